"""The real Claude Code, driven by the loop against a model that plays a script."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import FEATURES, TASKS, World, client, ralph, worlds
from looping import Late, Loop, eventually
from places import ROOT
from scripted_model import Call, Refusal, Request, Run, ScriptedModel, Step

from ralph.memory.ralph import open_ralph
from ralph.plan.store import Plan

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

SEARCH = "mcp__feature-memory__search_feature_memory"
UPDATE = "mcp__feature-memory__update_task"
PLAN = "mcp__plan__"
MAKE = Call("Bash", {"command": "make export"})
NOTHING = Run(steps=(Step(text="There was nothing to do."),))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scratch world with Claude Code in it."""
    client("claude")
    yield from worlds(tmp_path)


@pytest.fixture
def root(world: World) -> Path:
    return world.project(FEATURES, TASKS)


def search(query: str) -> Call:
    return Call(SEARCH, {"query": query})


class LateWhenAsked:
    """A clock on which an hour has passed once the model was asked so often."""

    def __init__(self, model: ScriptedModel, times: int) -> None:
        self._model, self._times = model, times

    def monotonic(self) -> float:
        return time.monotonic() + (3600 if len(self._model.asked(0)) >= self._times else 0)


# -- memory in the loop


def test_three_iterations_fail_then_search_memory_then_read_the_learning(
    world: World, root: Path
) -> None:
    tried = Run(
        steps=(
            Step(text="I try to make it.", calls=(MAKE,)),
            Step(text="The export cannot be made: make knows no such target."),
        )
    )
    makefile = {"file_path": str(root / "Makefile"), "content": "export:\n\tmkdir -p build\n"}
    fix = "Fixed it: there was no rule to make the target export, so I wrote a Makefile with one."
    found = Run(
        steps=(
            Step(text="What is known?", calls=(search("make export target"),)),
            Step(text="It still fails.", calls=(MAKE,)),
            Step(text="I write the rule.", calls=(Call("Write", makefile),)),
            Step(text="It passes.", calls=(MAKE,)),
            Step(calls=(Call(UPDATE, {"status": "in_progress", "comment": "has a rule now"}),)),
            Step(text=fix),
        )
    )
    finished = Run(
        steps=(
            Step(text="The rule is there.", calls=(MAKE,)),
            Step(calls=(Call(UPDATE, {"status": "done", "comment": "made"}),)),
            Step(text="The export is made and the task is done, with nothing left over."),
        )
    )
    with ScriptedModel(tried, found, finished) as model:
        world.talk_to(model.url)
        ran = world.loop(root, "--agent", "claude", "--max-iterations", "5")

    assert ran.outcomes == ["failure", "partial", "success"]
    assert ran.events[-1]["reason"] == "no_ready_task"
    first, second, third = ran.told["export"]
    assert [error.message for error in first.errors] == ["No rule to make target 'export'.  Stop."]
    [solved] = second.errors
    assert solved.resolution == "Edited Makefile; then `make export` passed."
    assert third.errors == ()
    assert [(file.path, file.action) for file in second.files_touched] == [("Makefile", "created")]
    assert second.summary == fix
    assert (second.tokens_used, second.model_tier) == (720, "haiku")
    assert Plan(root).task(1).status == "done"

    # What the model was shown.
    offered = model.asked(0)[0].tools
    assert "Search what earlier iterations of work on this feature did" in offered[SEARCH]
    assert UPDATE in offered
    answer = model.asked(1)[1].results[-1]
    assert "No rule to make target 'export'" in answer
    assert "iteration 1, the latest" in answer
    learning = "was no rule to make the target export, so I wrote a Makefile"
    assert learning not in model.asked(1)[0].shown
    shown = model.asked(2)[0].shown
    assert learning in shown
    _, heading, learned = shown.partition("Observations from previous iterations")
    assert heading
    assert "Edited Makefile" in learned


def test_it_plans_with_the_planning_tools_and_the_plan_changes_when_that_is_accepted(
    world: World, root: Path
) -> None:
    feature = {"name": "letters", "description": "Readers get a letter a week. " * 5}
    task = {"feature": "letters", "title": "Send it", "priority": "2", "blocked_by": [1]}
    spoil = {"command": "echo 'tasks: []' > .ralph/db/tasks.yaml"}
    planned = Run(
        steps=(
            Step(text="What is there?", calls=(Call(f"{PLAN}get_plan"),)),
            Step(calls=(Call(f"{PLAN}create_feature", feature), Call(f"{PLAN}create_task", task))),
            Step(calls=(Call("Bash", spoil),)),
            Step(text="One feature and one task; the day of the week is open."),
        )
    )
    (root / "wish.md").write_text("Readers want a letter.\n", encoding="utf-8")
    before = Plan(root).raw("tasks")
    with ScriptedModel(planned) as model:
        world.talk_to(model.url)
        words = ("plan", "braindump", "wish.md", "--agent", "claude")
        shown = world.run(ralph(*words), cwd=root).stdout
    assert Plan(root).raw("tasks") == before
    assert "tasks.yaml: task 1 restored: it was taken out of the file" in shown
    assert "+  title: Send it" in shown
    assert "The agent: One feature and one task; the day of the week is open." in shown
    first, second, third = model.asked(0)[:3]
    assert {name for name in first.tools if name.startswith("mcp__")} == {
        f"{PLAN}{name}"
        for name in ("get_plan", "create_feature", "create_task", "update_feature", "update_task")
    }
    assert "task 1 [pending, priority 3]: Make the export" in second.results[-1]
    assert "Created task 2 of 'letters': Send it." in third.results[-1]
    world.run(ralph("plan", "braindump", "--accept"), cwd=root)
    assert (Plan(root).task(2).priority, Plan(root).task(2).blocked_by) == (2, (1,))
    world.run(ralph("plan", "check"), cwd=root)


# -- what goes wrong on the way


def test_a_memory_server_killed_in_mid_call_costs_one_answer_and_not_the_iteration(
    world: World, root: Path
) -> None:
    """It is stopped first, so that the call is under way for as long as it takes to kill it."""
    wait = "touch ../ready; while [ ! -e ../go ]; do sleep 0.02; done"
    broken = Run(
        steps=(
            Step(calls=(search("make export"),)),
            Step(calls=(Call("Bash", {"command": wait}),)),
            Step(text="Once more.", calls=(search("something else"),)),
            Step(text="Memory did not answer the second time, so I stop here for now."),
        )
    )
    works = Run(steps=(Step(calls=(search("memory did not answer"),)), Step(text="It is back.")))
    stopped: list[int] = []
    killed: list[int] = []

    def strike(event: dict[str, Any]) -> None:
        if event["event"] != "doing":
            return
        if event["last_tool"] == "Bash" and not stopped:
            assert eventually((world.folder / "ready").exists)
            [server] = world.processes("mcp")
            os.kill(server, signal.SIGSTOP)
            stopped.append(server)
            (world.folder / "go").touch()
        elif event["last_target"] == "something else" and not killed:
            killed.extend(stopped)
            os.kill(killed[0], signal.SIGKILL)

    world.environ["RALPH_AGENT_PERMISSIONS"] = "full"
    with ScriptedModel(broken, works) as model:
        world.talk_to(model.url)
        ran = world.loop(root, "--agent", "claude", "--max-iterations", "2", on_event=strike)

    assert killed
    assert ran.outcomes == ["failure", "failure"]
    first, second = ran.told["export"]
    [error] = first.errors
    assert SEARCH in error.message or "MCP" in error.message
    assert first.summary == "Memory did not answer the second time, so I stop here for now."
    assert second.errors == ()
    assert "Memory did not answer the second time" in model.asked(1)[1].results[-1]


def test_out_of_time_the_command_under_way_ends_and_what_was_done_is_recorded(
    world: World, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = root / "began"
    monkeypatch.setattr("ralph.loop.process.time", Late(began))
    note = {"file_path": str(root / "notes.md"), "content": "Half of it.\n"}
    slow = Run(
        steps=(
            Step(text="I take a note first.", calls=(Call("Write", note),)),
            Step(calls=(Call("Bash", {"command": "touch began; sleep 600"}),)),
        )
    )
    with ScriptedModel(slow, NOTHING) as model:
        world.talk_to(model.url)
        world.move_in(monkeypatch)
        loop = Loop(root, embedder="none", grace_s=30)
        loop("claude", max_iterations=1, timeout_s=1800)
        began.unlink()
        loop("claude", max_iterations=1, timeout_s=1800)
    first, second = loop.told("export")
    assert (first.outcome, second.outcome) == ("timeout", "failure")
    assert [(file.path, file.action) for file in first.files_touched] == [("notes.md", "created")]
    assert second.summary.startswith("There was nothing to do.")


def test_an_answer_that_never_ends_is_a_time_out_too(
    world: World, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls = Run(steps=(Step(calls=(Call("Bash", {"command": "true"}),)), Step(stalls=True)))
    with ScriptedModel(stalls) as model:
        world.talk_to(model.url)
        world.move_in(monkeypatch)
        monkeypatch.setattr("ralph.loop.process.time", LateWhenAsked(model, times=2))
        loop = Loop(root, embedder="none", grace_s=30)
        loop("claude", max_iterations=1, timeout_s=1800)
    assert [one.outcome for one in loop.told("export")] == ["timeout"]


# Runs the command after it, with no wait for a provider's limit.
IMPATIENT = """
import sys
from ralph.doors.cli.main import run
from ralph.loop import run as loop
loop._RATE_LIMIT_WAIT_S = 0.01
sys.exit(run(sys.argv[sys.argv.index("ralph") + 1 :]))
"""


def test_every_error_of_the_api_is_recorded_and_the_next_iteration_works(
    world: World, root: Path
) -> None:
    world.environ["CLAUDE_CODE_MAX_RETRIES"] = "0"
    world.environ["RALPH_STAGNATION_LIMIT"] = "9"
    begun = Step(text="I begin, and I say at some length what it is that I begin.", calls=(MAKE,))
    broken = (
        Step(refusal=Refusal(400, "invalid_request_error", "the words are wrong")),
        Step(refusal=Refusal(429, "rate_limit_error", "too many")),
        Step(refusal=Refusal(529, "overloaded_error", "Overloaded")),
        Step(text="Half a sentence", cut=True),
    )
    runs = [Run(steps=(begun, step)) for step in broken]
    with ScriptedModel(*runs, NOTHING) as model:
        world.talk_to(model.url)
        # Of the provider's refusals for rate the loop counts none.
        impatient = [sys.executable, "-c", IMPATIENT]
        ran = world.loop(root, "--agent", "claude", "--max-iterations", "4", prefix=impatient)
    *failed, last = ran.told["export"]
    assert [one.outcome for one in failed] == ["failure", "rate_limited", "failure", "failure"]
    for one, said in zip(failed, ("400", "429", "529", "Connection"), strict=True):
        make, api = (error.message for error in one.errors)
        assert make == "No rule to make target 'export'.  Stop."
        assert "API Error" in api
        assert said in api
        assert one.summary == begun.text
    assert (last.outcome, last.errors) == ("failure", ())
    assert last.summary.startswith("There was nothing to do.")


def test_the_most_turns_are_recorded_as_what_ended_the_iteration(world: World, root: Path) -> None:
    agent = (
        "claude -p --max-turns 1 --output-format stream-json --verbose "
        "--permission-mode acceptEdits --allowedTools Bash"
    )
    with ScriptedModel(Run(steps=(Step(text="I begin.", calls=(MAKE,)),)), NOTHING) as model:
        world.talk_to(model.url)
        ran = world.loop(root, "--agent", agent, "--max-iterations", "2")
    first, second = ran.told["export"]
    assert (first.outcome, second.outcome) == ("failure", "failure")
    messages = [error.message for error in first.errors]
    assert messages[0] == "No rule to make target 'export'.  Stop."
    assert "maximum number of turns" in messages[1]
    assert second.errors == ()


# -- permissions


def test_it_runs_the_projects_commands_and_no_others(world: World, root: Path) -> None:
    """A compound command needs a permission for each of its parts."""
    commands = (
        "make export",
        "python3 -c 'print(6 * 7)' && git status",
        "curl http://127.0.0.1:1/",
    )
    calls = [Step(calls=(Call("Bash", {"command": one}),)) for one in (*commands, "make x; curl y")]
    with ScriptedModel(Run(steps=(*calls, Step(text="Nothing was fetched.")))) as model:
        world.talk_to(model.url)
        ran = world.loop(root, "--agent", "claude", "--max-iterations", "1")

    results = [one.results[-1] for one in model.asked(0)[1:]]
    assert "No rule to make target" in results[0]
    assert "42" in results[1]
    [ended] = [event for event in ran.events if event["event"] == "ended"]
    assert ended["denied"] == ["Bash(curl http://127.0.0.1:1/)", "Bash(make x; curl y)"]
    assert [error.message for error in ran.told["export"][0].errors] == [
        "No rule to make target 'export'.  Stop."
    ]
    assert "agent_permissions" in " ".join(ran.events[-1]["hints"])
    [shown] = [event["lines"] for event in ran.events if event["event"] == "permissions"]
    assert shown[0].startswith("Permissions: claude may edit files here and run build, test and")


# -- the plugin, in a person's own work


def test_the_plugin_and_its_marketplace_are_valid_in_the_strictest_sense(world: World) -> None:
    claude = client("claude")
    for folder in (ROOT, ROOT / "src" / "ralph" / "plugin"):
        world.run([claude, "plugin", "validate", "--strict", folder])


def test_the_plugin_tells_a_later_session_how_a_failing_command_was_solved(
    world: World, root: Path
) -> None:
    claude = client("claude")
    for words in (["marketplace", "add", str(ROOT)], ["install", "ralph@ralph"]):
        world.run([claude, "plugin", *words])
    # A slow machine is no failure here.
    world.environ["RALPH_HOOK_TIMEOUT_S"] = "60"
    # It calls `ralph`, which is where the interpreter of the tests is.
    world.environ["PATH"] += f":{Path(sys.executable).parent}"
    world.run(ralph("focus", "export", "1"), cwd=root)
    makefile = root / "Makefile"
    rule = {"file_path": str(makefile), "content": "export:\n\tmkdir -p build\n"}
    solved = Run(
        steps=(
            Step(text="I try to make it.", calls=(MAKE,)),
            Step(text="There is no rule, so I write one.", calls=(Call("Write", rule),)),
            Step(calls=(MAKE,)),
            Step(text="Fixed: there was no rule to make the target export; I wrote a Makefile."),
        )
    )
    again = Run(steps=(Step(text="I make it.", calls=(MAKE,)), Step(text="I know why.")))
    session = [claude, "-p", "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Write"]
    with ScriptedModel(solved, again) as model:
        world.talk_to(model.url)
        world.run([*session, "--", "Let people download their articles."], cwd=root)
        makefile.unlink()
        world.run([*session, "--", "Is there a rule to make the target export?"], cwd=root)

    began, failed, *_ = model.asked(0)
    assert "SessionStart hook additional context" in began.shown
    assert "Feature in focus: export" in began.shown
    # On a busy machine, a server is not there yet when the first request is sent.
    assert "mcp__plugin_ralph_memory__search_feature_memory" in model.asked(0)[-1].tools
    assert "No rule to make target 'export'" in failed.results[-1]
    assert "PostToolUseFailure" not in failed.shown  # nobody had solved it before

    with open_ralph(root, embedder="none") as opened:
        first, second = (one for _, one in opened.feature("export").iterations())
    assert (first.task_id, first.outcome, second.outcome) == (1, "unknown", "unknown")
    [error] = first.errors
    assert error.message == "No rule to make target 'export'.  Stop."
    reason = '"There is no rule, so I write one."'
    assert error.resolution == f"Edited Makefile; then `make export` passed. {reason}"

    began, failed = model.asked(1)
    matches = after(began, "UserPromptSubmit hook additional context")
    assert "Edited Makefile; then `make export` passed." in matches
    told = after(failed, "PostToolUseFailure:Bash hook additional context")
    assert "Edited Makefile; then `make export` passed." in told
    assert "PostToolUseFailure" not in began.shown


def after(request: Request, words: str) -> str:
    """What the model was shown behind these words."""
    _, found, rest = request.shown.partition(words)
    assert found, f"{words!r} is not in {request.shown!r}"
    return rest


def test_a_session_can_be_asked_what_it_was_told(world: World, root: Path) -> None:
    claude = client("claude")
    for words in (["marketplace", "add", str(ROOT)], ["install", "ralph@ralph"]):
        world.run([claude, "plugin", *words])
    world.environ["RALPH_HOOK_TIMEOUT_S"] = "60"
    world.environ["PATH"] += f":{Path(sys.executable).parent}"
    world.run(ralph("remember", "The export needs REDIS_URL=none, else it hangs."), cwd=root)
    session = [claude, "-p", "--allowedTools", "Bash(ralph why)"]
    run = Run(
        steps=(Step(calls=(Call("Bash", {"command": "ralph why"}),)), Step(text="A note on Redis."))
    )
    with ScriptedModel(run) as model:
        world.talk_to(model.url)
        world.run([*session, "--", "/ralph:why"], cwd=root)

    began, answered = model.asked(0)
    assert "Run `ralph why" in began.shown
    assert "The export needs REDIS_URL=none" in began.shown
    assert "1 memory shown" not in began.shown  # the line is for the person
    assert "SessionStart" in answered.results[-1]
    assert "note" in answered.results[-1]
    assert "The export needs REDIS_URL=none" in answered.results[-1]
