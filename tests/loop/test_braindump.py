"""`ralph plan braindump`: an agent proposes a plan, and nothing changes until it is accepted."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commanding import Line, Terminal
from looping import (
    FEATURES,
    MARK,
    Late,
    calls,
    eventually,
    fake_claude,
    none_is_left,
    planned,
    ralph_process,
    scripted,
    stand_in,
)
from remembering import state_of

from ralph.doors.cli.main import run
from ralph.errors import BadInput
from ralph.loop.braindump import Proposal, accept
from ralph.plan.edit import (
    check,
    create_feature,
    create_task,
    delete,
    update_feature,
    update_task,
)
from ralph.plan.store import Plan

WHY = (
    "Customers get their invoices as PDF files by mail, on the first day of every month, so that "
    "nobody has to ask for them."
)
FEATURE = {
    "mcp": "create_feature",
    "args": {"name": "invoices", "description": WHY, "architecture": "src/invoices.py"},
}
RENDER = {
    "mcp": "create_task",
    "args": {"feature": "invoices", "title": "Render the PDF", "acceptance_criteria": ["it opens"]},
    "expect": "Created task 4",
}
SEND = {"mcp": "create_task", "args": {"feature": "invoices", "title": "Send", "blocked_by": [4]}}
PLANNING: dict[str, Any] = {
    "when": "(?s)# The requirements.*invoices",
    "steps": [{"mcp": "get_plan", "expect": "login form"}, FEATURE, RENDER, SEND],
    "result": "Planned the invoices in two tasks.",
    "cost_usd": 0.25,
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a plan, and requirements in a file beside it."""
    root = planned(tmp_path / "project")
    (tmp_path / "wish.md").write_text("We need invoices as PDF.\n", encoding="utf-8")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def ralph(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(capsys, monkeypatch)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert list((state_of(tmp_path / "project") / "braindump").glob("run-*")) == []


def agent(folder: Path, *steps: dict[str, Any], **more: Any) -> str:
    return scripted(folder, {"steps": list(steps), "result": "Planned it.", **more})


def files(root: Path) -> dict[str, bytes]:
    """The plan's files as they are."""
    return {file.name: file.read_bytes() for file in (root / ".ralph" / "db").glob("*.yaml")}


def titles(root: Path) -> dict[str, str]:
    return {str(task.id): task.title for task in Plan(root).read().tasks}


# -- the proposal


@pytest.mark.parametrize(("setting", "model"), [("strong", "strong"), (None, "opus")])
def test_it_is_given_the_model_of_a_review(
    root: Path,
    tmp_path: Path,
    ralph: Line,
    monkeypatch: pytest.MonkeyPatch,
    setting: str | None,
    model: str,
) -> None:
    fake_claude(tmp_path, monkeypatch, 'echo "$@" >> ../calls')
    if setting:
        monkeypatch.setenv("RALPH_MODEL_REVIEW", setting)
    assert ralph("plan", "braindump", "../wish.md", "--agent", "claude").code == 1  # no proposal
    assert f"--model {model}" in (tmp_path / "calls").read_text()


def test_a_proposal_is_shown_as_a_diff_and_changes_nothing(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    before = files(root)
    ran = ralph.well("plan", "braindump", "../wish.md", "--agent", scripted(tmp_path, PLANNING))
    assert files(root) == before
    shown = ran.out.splitlines()
    assert shown[0] == "The agent: Planned the invoices in two tasks."
    assert shown[1:3] == [
        "--- .ralph/db/features.yaml",
        "+++ .ralph/db/features.yaml (proposed)",
    ]
    assert "+- name: invoices" in shown
    assert "+  title: Render the PDF" in shown
    assert not any(line.startswith("-") for line in shown if not line.startswith("---"))
    assert shown[-2].startswith("1 feature and 2 tasks added (")
    assert shown[-2].endswith(" tokens, 0.2500 USD)")
    assert "`ralph plan braindump --accept`" in shown[-1]


def test_a_proposal_that_was_kept_is_accepted_later_and_only_once(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    words = ("plan", "braindump", "../wish.md", "--agent", scripted(tmp_path, PLANNING), "--json")
    told = ralph.well(*words).json
    assert told["accepted"] is False
    assert told["features"] == {"added": ["invoices"], "changed": [], "removed": []}
    assert told["tasks"]["added"] == [4, 5]
    assert (told["source"], told["cost_usd"]) == ("../wish.md", 0.25)
    done = ralph.well("plan", "braindump", "--accept", "--json").json
    assert (done["accepted"], done["problems"], done["renumbered"]) == (True, [], {})
    assert done["diff"] == told["diff"]
    plan = Plan(root)
    assert plan.feature("invoices").description == WHY
    assert plan.task(5).blocked_by == (4,)
    assert FEATURES.splitlines()[0].encode() in files(root)["features.yaml"]  # people's comments
    again = ralph("plan", "braindump", "--accept")
    assert again.code == 1
    assert again.complaint == (
        "ralph: there is no proposal to accept. Run: ralph plan braindump FILE"
    )


def test_yes_accepts_at_once_and_the_plan_is_sound(ralph: Line, root: Path, tmp_path: Path) -> None:
    ran = ralph.well(
        "plan", "braindump", "../wish.md", "--yes", "--agent", scripted(tmp_path, PLANNING)
    )
    assert ran.out.endswith("Accepted. `ralph task ready` lists what can be worked on.\n")
    assert titles(root) | {"4": "Render the PDF", "5": "Send"} == titles(root)
    assert [problem for problem in check(Plan(root)) if problem.severity == "error"] == []


@pytest.mark.slow
def test_requirements_come_from_standard_input_too(ralph: Line, root: Path, tmp_path: Path) -> None:
    words = ("plan", "braindump", "-", "--yes", "--agent", scripted(tmp_path, PLANNING))
    ralph.well(*words, stdin="Send invoices.\n")
    assert "4" in titles(root)


@pytest.mark.parametrize(
    ("said", "code"), [("y\n", 0), ("n\n", 1), pytest.param("\n", 1, marks=pytest.mark.slow)]
)
def test_on_a_terminal_it_asks(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(said))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: _answered(out, text, said))
    words = ["plan", "braindump", "../wish.md", "--agent", scripted(tmp_path, PLANNING)]
    assert run(words) == code
    assert "Accept? [y/N]" in out.getvalue()
    assert ("4" in titles(root)) == (code == 0)


def _answered(out: io.StringIO, text: str, said: str) -> str:
    out.write(text)
    return said.strip()


def test_an_agent_without_mcp_plans_with_commands(ralph: Line, root: Path, tmp_path: Path) -> None:
    steps = [
        {"bash": f"{{{{ralph}}}} feature add invoices --description '{WHY}'"},
        {"bash": "{{ralph}} task add 'Render the PDF' --feature invoices --criterion opens"},
        {"bash": "{{ralph}} task update 1 --comment 'also for invoices'"},
    ]
    before = files(root)
    words = ("plan", "braindump", "../wish.md", "--agent", agent(tmp_path, *steps), "--json")
    told = ralph.well(*words).json
    assert files(root) == before
    assert (told["tasks"]["added"], told["tasks"]["changed"]) == ([4], [1])
    ralph.well("plan", "braindump", "--accept")
    [comment] = Plan(root).task(1).comments
    assert (comment.text, comment.author) == ("also for invoices", "agent")


def test_claude_gets_the_planning_tools_for_the_copy_and_works_in_the_project(
    ralph: Line, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("claude", tmp_path, monkeypatch)
    ran = ralph("plan", "braindump", "../wish.md", "--agent", "claude")
    assert ran.code == 1
    [call] = calls(tmp_path)
    [(name, server)] = call["config"]["mcpServers"].items()
    assert (name, server["args"][-2:]) == ("plan", ["mcp", "--planning"])
    copy = Path(server["env"]["RALPH_PROJECT"])
    assert copy.is_relative_to(state_of(root) / "braindump")
    assert call["environ"]["RALPH_PROJECT"] == str(copy)
    assert "# The requirements\n<ralph-plan>\nWe need invoices as PDF." in call["prompt"]
    assert "create_feature and create_task add" in call["prompt"]
    assert "mcp__plan" in call["argv"]


def test_a_thin_description_is_pointed_out(ralph: Line, tmp_path: Path) -> None:
    thin = {"mcp": "create_feature", "args": {"name": "invoices", "description": "PDF."}}
    ran = ralph.well("plan", "braindump", "../wish.md", "--agent", agent(tmp_path, thin))
    assert "thin: the description of invoices is under 100 characters" in ran.out


# -- what goes wrong


def refused(ralph: Line, root: Path, command: str, *words: str) -> str:
    """The one line that a run with this agent is refused with; the plan is as it was."""
    before = files(root)
    ran = ralph("plan", "braindump", "../wish.md", "--yes", "--agent", command, *words)
    assert (ran.code, ran.out) == (1, "")
    assert files(root) == before
    assert ralph("plan", "braindump", "--accept").code == 1  # nothing to accept either
    return ran.complaint


def test_an_agent_that_plans_nothing_is_told_with_its_last_words(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    said = refused(ralph, root, agent(tmp_path, result="What are invoices?"))
    assert said.startswith("ralph: the agent planned nothing: What are invoices?")
    assert said.endswith("Nothing was changed.")


def test_an_agent_that_fails_leaves_nothing_even_of_what_it_planned(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    script = tmp_path / "failing.sh"
    planning = scripted(tmp_path, PLANNING)
    script.write_text(f"{planning} >/dev/null\necho 'no credit left' >&2\nexit 3\n")
    said = refused(ralph, root, f"/bin/sh {script}")
    assert "the agent failed: The agent ended with exit code 3: no credit left" in said


def test_an_agent_that_runs_out_of_time_leaves_nothing_even_of_what_it_planned(
    ralph: Line, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.loop.process.time", Late(tmp_path / "begun"))
    steps: list[dict[str, Any]] = [FEATURE, {"bash": "touch ../begun"}, {"sleep": 600}]
    said = refused(ralph, root, agent(tmp_path, *steps), "--timeout", "1800")
    assert "the agent ran out of time" in said
    assert "--timeout" in said


def test_an_agent_that_is_not_there_is_refused_at_once(ralph: Line, root: Path) -> None:
    assert "'no-such-agent' was not found" in refused(ralph, root, "no-such-agent")


def test_ctrl_c_ends_the_agent_and_changes_nothing(root: Path, tmp_path: Path) -> None:
    before = files(root)
    waiting = agent(tmp_path, {"bash": "touch ../begun"}, {"sleep": 600})
    words = ["plan", "braindump", "../wish.md", "--yes", "--agent", waiting]
    with ralph_process(words, cwd=root) as process:
        assert eventually((tmp_path / "begun").exists)
        process.terminate()
        assert process.wait(timeout=60) == 130
    assert files(root) == before


def test_direct_edits_of_the_plan_are_undone_and_told(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    before = files(root)
    own = {
        "edit": ".ralph/db/tasks.yaml",
        "old": "tasks:\n",
        "new": "tasks:\n- {id: 9, feature: auth, title: Mine}\n",
    }
    sweep = {"bash": "rm .ralph/db/features.yaml; echo x: > .ralph/db/disciplines.yaml"}
    steps: list[dict[str, Any]] = [own, sweep, FEATURE]
    ran = ralph.well("plan", "braindump", "../wish.md", "--agent", agent(tmp_path, *steps))
    assert files(root) == before
    assert "plan: tasks.yaml: task 9 taken out: it was added without a call" in ran.out
    assert "plan: features.yaml: the file restored: it was gone" in ran.out
    assert "plan: disciplines.yaml: a part restored" in ran.out
    assert "1 feature added" in ran.out


def test_what_a_script_does_to_the_plan_is_undone_and_told(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    before = files(root)
    (tmp_path / "sly.sh").write_text("echo 'tasks: []' > .ralph/db/tasks.yaml\n")
    sly = agent(tmp_path, {"bash": "sh ../sly.sh"})
    ran = ralph("plan", "braindump", "../wish.md", "--yes", "--agent", sly)
    assert ran.code == 1
    assert files(root) == before
    assert "tasks.yaml: task 1 restored: it was taken out of the file" in ran.complaint
    assert "Nothing was changed" not in ran.complaint
    told = "the file as it was found is kept in "
    kept = ran.complaint.partition(told)[2].partition(".yaml")[0] + ".yaml"
    assert (root / kept).read_text() == "tasks: []\n"


def test_direct_edits_are_told_of_an_agent_that_ran_out_of_time_too(
    ralph: Line, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.loop.process.time", Late(tmp_path / "begun"))
    spoil = {"bash": "rm .ralph/db/features.yaml; touch ../begun"}
    steps: list[dict[str, Any]] = [spoil, {"sleep": 600}]
    said = refused(ralph, root, agent(tmp_path, *steps), "--timeout", "1800")
    assert "features.yaml: the file restored: it was gone" in said


def test_what_somebody_else_writes_meanwhile_is_not_undone(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    begun, written = tmp_path / "begun", tmp_path / "written"
    steps: list[dict[str, Any]] = [
        {"bash": f"touch {begun}; until [ -e {written} ]; do sleep 0.05; done"},
        FEATURE,
        {**RENDER, "expect": "task 4"},
    ]

    def write() -> None:
        """As another process of the user would; the agent's own are known by their parents."""
        assert eventually(begun.exists)
        create_task(Plan(root), "auth", "Urgent")
        written.touch()

    threading.Thread(target=write, daemon=True).start()
    told = ralph.well(
        "plan", "braindump", "../wish.md", "--yes", "--json", "--agent", agent(tmp_path, *steps)
    ).json
    assert told["accepted"] is True
    assert told["renumbered"] == {"4": 5}
    assert told["repaired"] == ["meanwhile, through Ralph: task created for auth"]
    assert titles(root)["4"] == "Urgent"
    assert titles(root)["5"] == "Render the PDF"


def test_a_proposal_that_is_no_sound_plan_is_refused(
    ralph: Line, root: Path, tmp_path: Path
) -> None:
    broken = "tasks: [{id: 1, feature: nowhere, title: T, blocked_by: [7]}]"
    spoil = {"bash": f'echo "{broken}" > "$RALPH_PROJECT/.ralph/db/tasks.yaml"'}
    said = refused(ralph, root, agent(tmp_path, spoil))
    assert "the proposed plan has errors" in said
    assert "unknown feature 'nowhere'" in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file contains no requirements. Write some."),
        (b" \n\t\n", "the file contains no requirements. Write some."),
        (b"\x7fELF\xff\xfe\x00", "is not UTF-8 text"),
        (b"one\x00two", "is not text. Give requirements as plain text."),
        (b"word " * 45_000, "the requirements are too long: 45000 tokens, 40000 at most."),
        (b"x" * 2_000_001, "is longer than 2 MB."),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    ralph: Line, root: Path, tmp_path: Path, data: bytes, said: str
) -> None:
    (tmp_path / "wish.md").write_bytes(data)
    complaint = refused(ralph, root, f"touch {tmp_path / 'started'}")
    assert "../wish.md" in complaint
    assert said in complaint
    assert not (tmp_path / "started").exists()


def test_a_file_that_is_not_there_is_named(ralph: Line) -> None:
    ran = ralph("plan", "braindump", "none.md", "--agent", "true")
    assert (ran.code, ran.complaint) == (1, "ralph: none.md: No such file or directory")


@pytest.mark.parametrize("words", [[], ["f", "--accept"], ["--accept", "--yes"]])
def test_it_is_given_a_file_or_told_to_accept(ralph: Line, words: list[str]) -> None:
    ran = ralph("plan", "braindump", *words)
    assert ran.code == 2
    assert "Give a FILE, or --accept alone." in ran.err


def test_two_at_once_are_one_too_many(ralph: Line, root: Path, tmp_path: Path) -> None:
    waiting = agent(tmp_path, {"bash": "touch ../begun"}, {"sleep": 600})
    words = ["plan", "braindump", "../wish.md", "--agent", waiting]
    with ralph_process(words, cwd=root) as process:
        assert eventually((tmp_path / "begun").exists)
        ran = ralph("plan", "braindump", "../wish.md", "--agent", "true")
        assert ran.code == 1
        assert "another braindump is under way" in ran.complaint
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.slow
def test_what_a_killed_run_left_goes_with_the_next(ralph: Line, root: Path, tmp_path: Path) -> None:
    waiting = agent(tmp_path, {"bash": "touch ../begun"}, {"sleep": 600})
    words = ["plan", "braindump", "../wish.md", "--agent", waiting]
    with ralph_process(words, cwd=root, **{MARK: str(tmp_path)}) as process:
        assert eventually((tmp_path / "begun").exists)
        process.kill()
        process.wait(timeout=60)
    assert none_is_left(str(tmp_path))
    assert list((state_of(root) / "braindump").glob("run-*")) != []
    ralph.well("plan", "braindump", "../wish.md", "--agent", scripted(tmp_path, PLANNING))


# -- a plan that changes before the proposal is accepted


_PROPOSALS: list[bytes] = []


@pytest.fixture
def proposed(ralph: Line, root: Path, tmp_path: Path) -> Plan:
    """A plan for which a proposal waits: a feature, two tasks, and a change to each of two more.

    The agent makes it once; every plan here begins the same.
    """
    file = state_of(root) / "braindump" / "proposal.bin"
    if _PROPOSALS:
        file.parent.mkdir(parents=True)
        file.write_bytes(_PROPOSALS[0])
        return Plan(root)
    changes = [
        {"mcp": "update_feature", "args": {"name": "search", "boundaries": "No web search."}},
        {"mcp": "update_task", "args": {"task_id": 3, "priority": 1, "comment": "First."}},
    ]
    steps = [*PLANNING["steps"], *changes]
    ralph.well("plan", "braindump", "../wish.md", "--agent", agent(tmp_path, *steps))
    _PROPOSALS.append(file.read_bytes())
    return Plan(root)


def test_changes_elsewhere_do_not_stand_in_the_way(ralph: Line, proposed: Plan) -> None:
    update_feature(proposed, "search", {"architecture": "A suffix array."})
    update_task(proposed, 3, {"status": "in_progress"}, comment="Begun.")
    create_task(proposed, "auth", "Urgent")
    ran = ralph.well("plan", "braindump", "--accept")
    assert "Task 4 became task 6: its number was taken meanwhile." in ran.out
    search = proposed.feature("search")
    assert (search.architecture, search.boundaries) == ("A suffix array.", "No web search.")
    task = proposed.task(3)
    assert (task.status, task.priority) == ("in_progress", 1)
    assert [one.text for one in task.comments] == ["Begun.", "First."]
    assert proposed.task(4).title == "Urgent"
    assert (proposed.task(6).title, proposed.task(5).blocked_by) == ("Render the PDF", (6,))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda plan: update_feature(plan, "search", {"boundaries": "Mine."}), "feature search"),
        (lambda plan: update_task(plan, 3, {"priority": 2}), "task 3"),
        (lambda plan: delete(plan, "tasks", 3), "task 3"),
        (lambda plan: create_feature(plan, "invoices", {"description": "X"}), "feature invoices"),
    ],
)
def test_a_change_to_the_same_thing_is_a_conflict_and_nothing_is_written(
    ralph: Line, root: Path, proposed: Plan, change: Any, named: str
) -> None:
    change(proposed)
    before = files(root)
    ran = ralph("plan", "braindump", "--accept")
    assert ran.code == 1
    assert f"the plan has changed since this was proposed: {named}" in ran.complaint
    assert "Nothing was changed" in ran.complaint
    assert files(root) == before


def test_a_plan_that_is_broken_by_then_is_not_written_to(
    ralph: Line, root: Path, proposed: Plan
) -> None:
    (root / ".ralph" / "db" / "tasks.yaml").write_text("tasks: [half\n", encoding="utf-8")
    before = files(root)
    ran = ralph("plan", "braindump", "--accept")
    assert ran.code == 1
    assert ".ralph/db/tasks.yaml:" in ran.complaint
    assert files(root) == before


def test_a_proposal_takes_out_only_what_nobody_has_touched_since(root: Path) -> None:
    plan = Plan(root)
    was = files(root)["tasks.yaml"]
    now = was[: was.index(b"- id: 3")]
    proposal = Proposal("x", "", {"tasks": was}, {"tasks": now})
    assert proposal.changes()["tasks"].removed == ("3",)
    update_task(plan, 3, comment="I am at it.")
    with pytest.raises(BadInput, match="has changed since this was proposed: task 3"):
        accept(plan, proposal)
    (root / ".ralph" / "db" / "tasks.yaml").write_bytes(was)
    accept(plan, proposal)
    assert list(titles(root)) == ["1", "2"]
