"""The run: outcomes, and every reason to stop."""

from __future__ import annotations

import re
import shlex
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from looping import (
    BEGUN,
    DONE,
    FIXTURES,
    Late,
    Loop,
    command,
    eventually,
    fake_claude,
    planned,
    replay,
    scripted,
    shell,
)

from ralph.capture import AgentRun
from ralph.loop.agent import AgentOutput
from ralph.loop.iteration import judge
from ralph.loop.process import AgentEnd
from ralph.plan.edit import update_task
from ralph.plan.model import Comment, Task

DO_NOTHING = "/bin/true"


def commented(text: str) -> dict[str, Any]:
    return {
        "edit": ".ralph/db/tasks.yaml",
        "old": "  status: pending\n",
        "new": f"  status: pending\n  comments:\n  - {text}\n",
    }


# -- outcomes


def test_a_task_that_got_done_is_a_success(loop: Loop, tmp_path: Path) -> None:
    loop(scripted(tmp_path, {"steps": [DONE], "result": "The form is there."}), max_iterations=1)
    assert loop.outcomes == ["success"]
    [told] = loop.told()
    assert (told.task_id, told.task_title) == (1, "Add the login form")
    assert (told.outcome, told.summary) == ("success", "The form is there.")
    assert told.model_tier == "haiku"


@pytest.mark.parametrize("step", [BEGUN, commented("half of it is there")])
def test_a_task_that_was_begun_or_commented_on_is_partial(
    loop: Loop, tmp_path: Path, step: dict[str, Any]
) -> None:
    loop(scripted(tmp_path, {"steps": [step], "result": "Half of it."}), max_iterations=1)
    assert loop.outcomes == ["partial"]


def test_a_comment_on_the_same_error_again_is_a_failed_attempt(loop: Loop, tmp_path: Path) -> None:
    red = {"bash": "echo 'ValueError: the pool is closed' >&2; exit 1"}
    first = {"steps": [red, commented("the pool is closed")], "result": "Not yet."}
    more = {"bash": "{{ralph}} task update 1 --comment 'it is still closed'"}
    loop(scripted(tmp_path, first), max_iterations=1)
    loop(scripted(tmp_path, {"steps": [red, more], "result": "Not yet."}), max_iterations=1)
    assert [one.outcome for one in loop.told()] == ["partial", "failure"]
    [failed] = [one for one in loop.told() if one.failed]
    assert failed.errors[0].message == "ValueError: the pool is closed"


def test_an_unchanged_task_is_a_failure(loop: Loop, tmp_path: Path) -> None:
    loop(scripted(tmp_path, {"result": "I could not do it."}), max_iterations=1)
    assert loop.outcomes == ["failure"]


def test_an_agent_over_its_time_is_a_timeout_and_its_words_are_kept(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.loop.process.time", Late(loop.root / "thinking"))
    saying = {"say": "I will now think about this for a very long time, longer than allowed."}
    thinking = {"write": "thinking", "content": ""}
    agent = scripted(tmp_path, {"steps": [saying, thinking, {"sleep": 600}]})
    loop(agent, max_iterations=1, timeout_s=1800)
    assert loop.outcomes == ["timeout"]
    assert loop.facts("ended")[0]["timed_out"]
    killed = "The run was killed before it ended."
    assert loop.told()[0].summary == f"{saying['say']}\n{killed}"


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ("pending", "done", "success"),
        ("in_progress", "done", "success"),
        ("pending", "in_progress", "partial"),
        ("pending", "blocked", "partial"),
        ("in_progress", "skipped", "partial"),
        ("in_progress", "in_progress", "failure"),
        ("in_progress", "pending", "failure"),
    ],
)
def test_the_outcome_is_what_became_of_the_task(before: Any, after: Any, outcome: str) -> None:
    was = Task(id=1, feature="auth", title="T", status=before)
    now = Task(id=1, feature="auth", title="T", status=after)
    assert judge(was, now, timed_out=False, rate_limited=False) == outcome


def test_a_task_that_is_gone_or_was_none_is_unknown_and_never_a_failure() -> None:
    task = Task(id=1, feature="auth", title="T")
    assert judge(task, None, timed_out=False, rate_limited=False) == "unknown"
    assert judge(None, None, timed_out=False, rate_limited=False) == "unknown"


def test_a_new_comment_counts_when_the_oldest_one_had_to_leave() -> None:
    was = Task(id=1, feature="a", title="T", comments=(Comment("one"), Comment("two")))
    now = Task(id=1, feature="a", title="T", comments=(Comment("two"), Comment("three")))
    assert judge(was, now, timed_out=False, rate_limited=False) == "partial"


def test_done_right_before_the_clock_ran_out_is_done() -> None:
    was = Task(id=1, feature="a", title="T")
    now = Task(id=1, feature="a", title="T", status="done")
    assert judge(was, now, timed_out=True, rate_limited=False) == "success"


# -- agents that say little or nothing


@pytest.mark.parametrize(
    "script",
    [
        "exit 0",
        "echo this is not JSON",
        "printf '\\000\\377\\n{\\n[1]\\nnull\\n\"x\"\\n'",
        "head -c 300000 /dev/urandom",
        'i=0; while [ $i -lt 500 ]; do echo "line $i"; i=$((i+1)); done',
    ],
)
def test_an_agent_that_says_nothing_we_understand_is_recorded_all_the_same(
    loop: Loop, tmp_path: Path, script: str
) -> None:
    loop(shell(tmp_path, script), max_iterations=1)
    assert loop.outcomes == ["failure"]
    [told] = loop.told()
    assert told.task_title == "Add the login form"


def test_an_agent_that_fails_before_it_speaks_is_recorded_with_what_it_said_on_stderr(
    loop: Loop, tmp_path: Path
) -> None:
    loop(shell(tmp_path, "echo 'Error: not signed in' >&2; exit 1"), max_iterations=1)
    [told] = loop.told()
    assert told.summary == "The agent ended with exit code 1: Error: not signed in"
    assert [error.message for error in told.errors] == ["Error: not signed in"]


def test_a_plain_program_that_fails_is_recorded_with_what_it_printed_last(
    loop: Loop, tmp_path: Path
) -> None:
    script = "echo one; echo 'fatal: no space left'; echo; exit 3"
    loop(shell(tmp_path, script), max_iterations=1)
    [told] = loop.told()
    assert told.summary == "The agent ended with exit code 3: fatal: no space left"
    assert [error.message for error in told.errors] == ["fatal: no space left"]


def test_an_agent_that_fails_without_a_word_leaves_no_error_to_warn_of(
    loop: Loop, tmp_path: Path
) -> None:
    loop(shell(tmp_path, "exit 4"), max_iterations=1)
    [told] = loop.told()
    assert told.summary == "The agent ended with exit code 4; no output."
    assert told.errors == ()


def test_so_is_one_whose_dialect_is_known(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo \"error: unknown option '--verbose'\" >&2\nexit 1"
    fake_claude(tmp_path, monkeypatch, script)
    loop("claude", max_iterations=1)
    [told] = loop.told()
    assert [error.message for error in told.errors] == ["error: unknown option '--verbose'"]


def test_an_agent_that_ran_out_of_time_is_recorded_with_the_timeout(
    loop: Loop, tmp_path: Path
) -> None:
    loop(shell(tmp_path, "sleep 600"), max_iterations=1, timeout_s=1.0)
    assert loop.told()[0].summary == "Stopped after 1 s (--timeout); no output."


def test_an_agent_that_was_killed_is_recorded_with_the_signal(loop: Loop, tmp_path: Path) -> None:
    loop(shell(tmp_path, "kill -9 $$"), max_iterations=1)
    assert "was ended by signal 9" in loop.told()[0].summary


def test_an_agent_that_prints_faster_than_we_read_is_still_ended_on_time(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    over = False
    finish = AgentOutput.finish

    def always_more(self: AgentOutput) -> bool:
        nonlocal calls
        calls += 1
        assert calls < 1_000_000, "nobody looked at the clock"
        return not over

    def finished(self: AgentOutput, ended: AgentEnd) -> AgentRun:
        nonlocal over
        over = True
        return finish(self, ended)

    monkeypatch.setattr(AgentOutput, "follow", always_more)
    monkeypatch.setattr(AgentOutput, "finish", finished)
    loop(shell(tmp_path, "sleep 600"), max_iterations=1, timeout_s=0.2)
    assert loop.outcomes == ["timeout"]


def test_a_line_without_an_end_does_not_fill_the_memory(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.loop.agent.LONGEST_LINE_BYTES", 100_000)
    script = "head -c 3000000 /dev/zero | tr '\\0' x; echo; cat " + str(FIXTURES / "success.jsonl")
    loop(shell(tmp_path, script), max_iterations=1)
    assert loop.told()[0].session_id
    assert loop.told()[0].summary


def test_garbage_between_the_lines_is_stepped_over(loop: Loop, tmp_path: Path) -> None:
    stream = shlex.quote(str(FIXTURES / "success.jsonl"))
    script = f"head -n 1 {stream}; echo 'not {{ JSON'; tail -n +2 {stream}"
    loop(shell(tmp_path, script), max_iterations=1)
    with_garbage = loop.told()[0]
    loop(replay("success.jsonl"), max_iterations=1)
    assert with_garbage.summary
    assert loop.told()[1].summary == with_garbage.summary
    assert loop.told()[1].files_touched == with_garbage.files_touched


@pytest.mark.parametrize("fixture", ["api500.jsonl", "api400.jsonl", "dead_api.jsonl"])
def test_a_provider_that_failed_is_a_failure_whatever_its_subtype_says(
    loop: Loop, fixture: str
) -> None:
    loop(replay(fixture), max_iterations=1)
    assert loop.outcomes == ["failure"]
    assert loop.told()[0].errors


def test_denied_tools_and_failed_servers_are_shown(loop: Loop) -> None:
    loop(replay("perm_default.jsonl"), max_iterations=1)
    assert loop.facts("ended")[0]["denied"] != []
    loop(replay("mcp_missing.jsonl"), max_iterations=1)
    assert loop.facts("ended")[0]["mcp_failed"] != []


def test_what_the_agent_does_is_told_while_it_runs(loop: Loop, tmp_path: Path) -> None:
    steps = [{"write": "a.py", "content": "x = 1\n"}, {"sleep": 0.3}, DONE]
    loop(scripted(tmp_path, {"steps": steps, "cost_usd": 0.5}), max_iterations=1)
    assert "Write" in [facts["last_tool"] for facts in loop.facts("doing")]
    assert loop.facts("ended")[0]["cost_usd"] == 0.5


# -- reasons to stop


def test_it_goes_on_to_the_next_ready_task_until_there_is_none(loop: Loop, tmp_path: Path) -> None:
    stopped = loop(scripted(tmp_path, {"steps": [DONE], "result": "Done with it."}))
    assert stopped.reason == "no_ready_task"
    assert [facts["task_id"] for facts in loop.facts("started")] == [1, 2, 3]
    assert stopped.totals.outcomes == {"success": 3}
    assert all(task.status == "done" for task in loop.plan.read().tasks)


def test_f28_it_stops_after_three_iterations_that_changed_nothing(loop: Loop) -> None:
    stopped = loop(DO_NOTHING)
    assert (stopped.reason, stopped.totals.iterations) == ("stagnation", 3)


def test_f28_what_is_learned_from_an_iteration_does_not_count_as_a_change(
    loop: Loop, tmp_path: Path
) -> None:
    """Touching a file in three iterations makes it a context file: a write of ours, no progress."""
    write = {"write": "src/login.py", "content": "form = 1\n"}
    stopped = loop(scripted(tmp_path, {"steps": [write], "result": "Wrote the form again."}))
    assert stopped.reason == "stagnation"
    assert stopped.totals.iterations == 3
    assert [f.path for f in loop.plan.feature("auth").context_files] == ["src/login.py"]


def test_f28_an_agent_that_breaks_the_plan_every_time_makes_no_progress(
    loop: Loop, tmp_path: Path
) -> None:
    stopped = loop(shell(tmp_path, "echo '\t: [garbage' > .ralph/db/tasks.yaml"))
    assert (stopped.reason, stopped.totals.iterations) == ("stagnation", 3)


def test_f28_a_change_in_between_starts_the_count_anew(loop: Loop, tmp_path: Path) -> None:
    counting = """
        n=$(cat ../count 2>/dev/null || echo 0); echo $((n + 1)) > ../count
        if [ "$n" = 2 ]; then
            sed -i.bak 's/status: pending/status: in_progress/' .ralph/db/tasks.yaml
        fi
    """
    stopped = loop(shell(tmp_path, counting), feature="auth")
    assert (stopped.reason, stopped.totals.iterations) == ("stagnation", 6)


def test_what_another_loop_does_to_its_feature_is_not_this_ones_progress(loop: Loop) -> None:
    texts = iter(["one", "two", "three", "four", "five"])

    def meanwhile(event: Any) -> None:
        if event.event == "started":
            update_task(loop.plan, 3, comment=next(texts))

    loop.on_event = meanwhile
    stopped = loop(DO_NOTHING, feature="auth")
    assert (stopped.reason, stopped.totals.iterations) == ("stagnation", 3)


def test_it_stops_after_as_many_iterations_as_asked_for(loop: Loop) -> None:
    stopped = loop(DO_NOTHING, max_iterations=2)
    assert (stopped.reason, stopped.totals.iterations) == ("max_iterations", 2)


def test_it_stops_when_the_budget_is_spent(loop: Loop, tmp_path: Path) -> None:
    agent = scripted(tmp_path, {"steps": [commented("again")], "cost_usd": 0.4})
    stopped = loop(agent, budget_usd=0.7)
    assert (stopped.reason, stopped.totals.iterations) == ("budget", 2)
    assert stopped.totals.cost_usd == pytest.approx(0.8)
    assert stopped.totals.tokens_used > 0


def test_it_stops_on_request_and_finishes_the_record_of_the_iteration_under_way(
    loop: Loop, tmp_path: Path
) -> None:
    write = {"write": "a.py", "content": "x\n"}
    agent = scripted(tmp_path, {"steps": [write, {"sleep": 600}]})
    loop.on_event = lambda event: loop.stop.set() if event.facts.get("last_tool") else None
    stopped = loop(agent)
    assert stopped.reason == "interrupted"
    [told] = loop.told()
    assert [file.path for file in told.files_touched] == ["a.py"]
    assert told.summary.splitlines()[-1] == "It was stopped."
    assert loop.unfinished == []


def test_a_stopped_agent_that_said_nothing_reads_as_stopped_and_not_as_killed(
    loop: Loop, tmp_path: Path
) -> None:
    agent = shell(tmp_path, "touch begun; trap 'exit 143' TERM; while :; do sleep 0.05; done")
    begun = loop.root / "begun"

    def stop_once_begun() -> None:
        eventually(begun.exists)
        loop.stop.set()

    stopping = threading.Thread(target=stop_once_begun, daemon=True)
    stopping.start()
    loop(agent, max_iterations=1)
    stopping.join()
    [told] = loop.told()
    assert (told.outcome, told.summary) == ("interrupted", "It was stopped.")


def test_one_task_only(loop: Loop, tmp_path: Path) -> None:
    stopped = loop(scripted(tmp_path, {"steps": [DONE]}), task_id="1")
    assert (stopped.reason, stopped.detail) == ("no_ready_task", "task 1 is done")
    assert loop.plan.task(2).status == "pending"


def test_a_task_that_waits_is_not_run_and_says_what_for(loop: Loop) -> None:
    stopped = loop(DO_NOTHING, task_id="2")
    assert stopped.detail == "task 2 is not ready: it waits for 1"
    assert stopped.totals.iterations == 0


def test_a_task_of_another_feature_is_not_run_and_says_whose_it_is(loop: Loop) -> None:
    stopped = loop(DO_NOTHING, task_id="1", feature="search")
    assert stopped.detail == "task 1 belongs to auth, not to search"


def test_a_plan_without_tasks_says_how_to_add_one(tmp_path: Path) -> None:
    loop = Loop(planned(tmp_path / "project", tasks="tasks: []\n"))
    add = "Add one: ralph task add TITLE --feature"
    assert loop(DO_NOTHING).detail == f"the plan has no tasks yet. {add} NAME"
    assert loop(DO_NOTHING, feature="auth").detail == f"auth has no tasks yet. {add} auth"


def test_one_feature_only(loop: Loop, tmp_path: Path) -> None:
    done = {**DONE, "old": "status: pending\n  priority", "new": "status: done\n  priority"}
    stopped = loop(scripted(tmp_path, {"steps": [done]}), feature="search")
    assert (stopped.reason, stopped.detail) == ("no_ready_task", "every task of search is done")
    assert [facts["task_id"] for facts in loop.facts("started")] == [3]


def test_a_task_whose_feature_nobody_described_is_worked_on(tmp_path: Path) -> None:
    tasks = "tasks:\n- {id: 1, feature: ghost, title: Haunt, status: pending}\n"
    loop = Loop(planned(tmp_path / "project", "features: []\n", tasks))
    stopped = loop(scripted(tmp_path, {"steps": [DONE], "result": "Boo."}))
    assert loop.outcomes == ["success"]
    assert stopped.reason == "no_ready_task"
    assert loop.told("ghost")[0].summary == "Boo."


# -- rate limits


def limited(folder: Path, resets_at: datetime) -> str:
    """An agent that is refused with this time, once, and then does its task."""
    text = (FIXTURES / "rl_rej_oauth.jsonl").read_text()
    file = folder / "limited.jsonl"
    stated, found = re.subn(r'("resetsAt": ?)[0-9]+', rf"\g<1>{int(resets_at.timestamp())}", text)
    assert found
    file.write_text(stated)
    return shell(
        folder,
        f"""
        if [ -e ../asked ]; then
            sed -i.bak 's/status: pending/status: done/' .ralph/db/tasks.yaml
        else
            touch ../asked; cat {file}; exit 1
        fi
        """,
    )


def test_a_rate_limit_waits_until_the_stated_time_and_goes_on(loop: Loop, tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    stopped = loop(limited(tmp_path, before), max_iterations=1)
    assert loop.outcomes == ["rate_limited", "success"]
    [waiting] = loop.facts("waiting")
    assert waiting["seconds"] == 0
    assert datetime.fromisoformat(waiting["until"]).timestamp() == int(before.timestamp())
    assert stopped.totals.iterations == 1  # being refused is no iteration
    assert [one.outcome for one in loop.told()] == ["rate_limited", "success"]


def test_a_rate_limit_that_is_far_away_can_be_interrupted(loop: Loop, tmp_path: Path) -> None:
    far = datetime.now(UTC) + timedelta(days=2)
    loop.on_event = lambda event: loop.stop.set() if event.event == "waiting" else None
    stopped = loop(limited(tmp_path, far))
    assert stopped.reason == "interrupted"
    assert loop.facts("waiting")[0]["seconds"] > 24 * 3600


def test_a_stated_time_that_is_over_again_and_again_is_not_asked_without_a_pause(
    loop: Loop, tmp_path: Path
) -> None:
    limited(tmp_path, datetime.now(UTC) - timedelta(hours=1))
    agent = command("cat", str(tmp_path / "limited.jsonl"))
    seconds: list[float] = []

    def hear(event: Any) -> None:
        if event.event == "waiting":
            seconds.append(event.facts["seconds"])
            if len(seconds) == 2:
                loop.stop.set()

    loop.on_event = hear
    assert loop(agent).reason == "interrupted"
    assert seconds[0] == 0
    assert seconds[1] >= 5


# -- a task that is reported done while its check fails


CHECK = {"write": "check_form.py", "content": "raise SystemExit('AssertionError: no form')\n"}
RUN_CHECK = {"bash": "python3 check_form.py"}
FIX_CHECK = {"write": "check_form.py", "content": "print('ok')\n"}
BY_COMMAND = {"bash": "{{ralph}} task update 1 --status done --comment 'the form is there'"}


def test_done_with_a_failing_last_check_is_no_success_and_reopens_the_task(
    loop: Loop, tmp_path: Path
) -> None:
    steps = [CHECK, RUN_CHECK, DONE]
    loop(scripted(tmp_path, {"steps": steps, "result": "The form is there."}), max_iterations=1)

    assert loop.outcomes == ["partial"]
    why = "the agent reported it done, but its last check failed: python3 check_form.py"
    assert loop.facts("ended")[0]["reason"] == why
    task = loop.plan.task(1)
    assert task.status == "in_progress"
    assert task.comments[-1].text == "Not done: the last check failed: python3 check_form.py"
    assert loop.told()[0].summary.endswith(f"\nT{why[1:]}.")


def test_done_after_the_check_passed_is_a_success(loop: Loop, tmp_path: Path) -> None:
    steps = [CHECK, RUN_CHECK, FIX_CHECK, RUN_CHECK, DONE]
    loop(scripted(tmp_path, {"steps": steps, "result": "The form is there."}), max_iterations=1)

    assert loop.outcomes == ["success"]
    assert loop.plan.task(1).status == "done"


def test_done_again_and_again_with_the_same_failing_check_is_stagnation(
    loop: Loop, tmp_path: Path
) -> None:
    steps = [CHECK, RUN_CHECK, BY_COMMAND]
    agent = scripted(tmp_path, *[{"steps": steps, "result": "The form is there."}] * 6)

    stopped = loop(agent, task_id=1)

    assert stopped.reason == "stagnation"
    assert loop.outcomes == ["partial", "failure", "failure", "failure"]


def test_a_command_that_is_no_check_may_fail_at_the_end(loop: Loop, tmp_path: Path) -> None:
    steps = [{"bash": "ls nothere"}, DONE]
    loop(scripted(tmp_path, {"steps": steps, "result": "The form is there."}), max_iterations=1)

    assert loop.outcomes == ["success"]


def test_a_failure_without_an_error_says_why_it_counts_as_one(loop: Loop, tmp_path: Path) -> None:
    agent = scripted(tmp_path, {"result": "I looked at it. Nothing failed."})
    loop(agent, max_iterations=1)

    why = "the task's status and comments did not change"
    assert loop.facts("ended")[0]["reason"] == why
    assert loop.told()[0].summary == f"I looked at it. Nothing failed.\nT{why[1:]}."
