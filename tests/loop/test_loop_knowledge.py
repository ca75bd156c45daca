"""The loop and other projects' knowledge: what it gives, what it takes, and that it never stops
for it."""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from examples import some
from looping import DONE, Loop, planned, python, scripted
from remembering import made
from serving import wired

import ralph
from ralph import disk
from ralph.config import Settings, home_folder
from ralph.loop.agent import LoopEvent
from ralph.loop.run import completed
from ralph.memory.lessons import lessons, technology_of
from ralph.plan.model import Task
from ralph.recall.patterns import CLOSING, OPENING, Pattern
from ralph.records.iteration import Decision, ErrorSeen, Iteration
from ralph.records.knowledge import Checkpoint, FailureSolution, knowledge_from
from ralph.text.tokens import estimate_tokens

ERROR = "KeyError: 'session_secret'"
FAILING = {
    "when": "(?s)^(?!.*Earlier attempts)",
    "steps": [
        {"write": "login.py", "content": "raise KeyError('session_secret')\n"},
        {"bash": "{{python}} login.py"},
    ],
    "result": "The login form fails. I do not know why. Nothing else was tried.",
}
# It meets the error again, and the same command passes after a change: that is proof.
RUN = {"bash": "{{python}} login.py"}
SOLVING = {
    "when": ERROR,
    "steps": [RUN, {"write": "login.py", "content": "print('from settings')\n"}, RUN, DONE],
    "result": "Read session_secret from the settings file in login.py.",
}
# Keeps what it was told beside the project, and does nothing.
SEEING = """
import sys
from pathlib import Path
Path("../prompt.txt").write_bytes(sys.stdin.buffer.read())
"""
HELPFUL = "Set the cookie's SameSite attribute to Lax and its path to the root."
USED = "I set the SameSite attribute of the cookie to Lax, with the root as its path."
PUBLISHED: dict[str, Any] = {
    "failure_description": "Add the login form: the form asks for name and password",
    "error_message": "AssertionError: the session cookie was refused by the browser",
    "solution_steps": HELPFUL,
}


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    """A project whose feature `auth` has one task, and `search` another."""
    root = planned(tmp_path / "project", tasks=tasks("auth", "search"))
    return Loop(root, remember_budget_s=60.0)


def tasks(*features: str) -> str:
    """A plan with one pending task for each of these features."""
    titles = {"auth": "Add the login form", "search": "Rank by age"}
    described = "The form asks for name and password."
    rows = [
        f"- id: {n}\n  feature: {name}\n  title: {titles[name]}\n  description: {described}\n"
        "  status: pending\n"
        for n, name in enumerate(features, 1)
    ]
    return "version: 1\ntasks:\n" + "".join(rows)


def publish(tmp_path: Path, **entry: Any) -> Pattern:
    """Something that another project solved and published; its pattern."""
    elsewhere = Loop(planned(tmp_path / "elsewhere"))
    with elsewhere.opened() as ralph:
        ralph.knowledge.capture_failure_solution(**{**PUBLISHED, **entry})
        ralph.knowledge.checkpoint()
        return ralph.knowledge.patterns()[-1]


def prompt(loop: Loop, tmp_path: Path) -> str:
    """What the agent is told for the first task."""
    loop(python(tmp_path, SEEING), max_iterations=1, task_id=1)
    return (tmp_path / "prompt.txt").read_text(encoding="utf-8")


def said(loop: Loop) -> list[str]:
    """What the last run said about knowledge."""
    lines = [facts["line"] for facts in loop.facts("memory")]
    return [line for line in lines if line.startswith("knowledge: ")]


def staged(loop: Loop) -> list[Any]:
    with loop.opened() as ralph:
        return [one.record for one in ralph.knowledge.staged()]


def checkpoints(loop: Loop) -> list[tuple[str, int]]:
    """The kind of each checkpoint of this project, and how many entries it covers."""
    with loop.opened() as ralph:
        account = ralph.knowledge.state.account(ralph.project.id)
        lines = [one.record for one in account.fold.records() if one.record.kind == "checkpoint"]
    told: list[Checkpoint] = [knowledge_from(record) for record in lines]
    return [(one.why, len(one.covers)) for one in told]


def pattern(loop: Loop) -> Pattern:
    with loop.opened() as ralph:
        [one] = ralph.knowledge.patterns()
        return one


# -- giving


def test_an_error_that_failed_one_iteration_and_was_solved_in_a_later_one_is_captured(
    loop: Loop, tmp_path: Path
) -> None:
    (loop.root / "pyproject.toml").touch()
    loop(scripted(tmp_path, FAILING, SOLVING), task_id=1, max_iterations=2)
    assert loop.outcomes == ["failure", "success"]
    assert said(loop) == ["knowledge: 1 captured", "knowledge: 1 published (phase complete)"]
    entry = pattern(loop).record
    assert isinstance(entry, FailureSolution)
    assert ERROR in entry.error_message
    assert entry.failure_description == (
        "Add the login form: The login form fails. I do not know why."
    )
    assert "login.py" in entry.solution_steps
    assert "Read session_secret" not in entry.solution_steps  # what it says is no proof
    assert (entry.subject, entry.technology) == ("Add the login form", "python")
    assert entry.agent_type == ""


def test_what_is_captured_names_files_as_seen_from_the_project(loop: Loop, tmp_path: Path) -> None:
    raising = "import os\nraise KeyError(os.path.abspath('login.py') + ' session_secret')\n"
    failing = {
        **FAILING,
        "steps": [{"write": "login.py", "content": raising}, {"bash": "{{python}} login.py"}],
        "result": f"The login form in {loop.root} fails.",
    }
    solving = {**SOLVING, "when": "KeyError", "result": f"Read {loop.root / 'settings.toml'}."}

    loop(scripted(tmp_path, failing, solving), task_id=1, max_iterations=2)

    entry = pattern(loop).record
    assert isinstance(entry, FailureSolution)
    assert str(loop.root) not in str(entry.to_json())
    assert entry.error_message == "KeyError: 'login.py session_secret'"
    assert entry.failure_description == "Add the login form: The login form in ./ fails."
    assert "login.py" in entry.solution_steps


def test_nothing_is_captured_while_the_task_is_not_done(loop: Loop, tmp_path: Path) -> None:
    loop(scripted(tmp_path, {**FAILING, "when": ""}), task_id=1, max_iterations=2)
    assert loop.outcomes == ["failure", "failure"]
    assert (said(loop), staged(loop)) == ([], [])


def test_a_project_that_gives_nothing_keeps_what_it_learned(loop: Loop, tmp_path: Path) -> None:
    closed = Loop(loop.root, knowledge_give=False)
    closed(scripted(tmp_path, FAILING, SOLVING))
    assert closed.outcomes == ["failure", "success", "failure", "success"]
    assert said(closed) == []
    assert not (home_folder() / "journal" / "knowledge").exists()


def test_the_end_of_one_feature_is_the_end_of_a_phase_and_the_last_one_of_the_project(
    loop: Loop, tmp_path: Path
) -> None:
    loop(scripted(tmp_path, FAILING, SOLVING))
    assert loop.outcomes == ["failure", "success", "failure", "success"]
    assert checkpoints(loop) == [("phase_complete", 1), ("project_complete", 1)]


def test_a_phase_that_taught_nothing_leaves_no_checkpoint(loop: Loop, tmp_path: Path) -> None:
    loop(scripted(tmp_path, {"steps": [DONE], "result": "Done at once."}))
    assert loop.outcomes == ["success", "success"]
    assert (checkpoints(loop), said(loop)) == ([], [])


def test_a_run_that_is_cancelled_publishes_what_is_staged(tmp_path: Path) -> None:
    root = planned(tmp_path / "project", tasks=tasks("auth", "auth"))
    loop = Loop(root, remember_budget_s=60.0)

    def stop(event: LoopEvent) -> None:
        if event.event == "memory" and event.facts["line"] == "knowledge: 1 captured":
            loop.stop.set()

    loop.on_event = stop
    stopped = loop(scripted(tmp_path, FAILING, SOLVING))
    assert stopped.reason == "interrupted"
    assert said(loop)[1:] == ["knowledge: 1 published (cancelled)"]
    assert checkpoints(loop) == [("cancelled", 1)]


def test_a_cancelled_run_does_not_wait_for_a_checkpoint_that_takes_long(tmp_path: Path) -> None:
    root = planned(tmp_path / "project", tasks=tasks("auth"))
    loop = Loop(root, remember_budget_s=0.01)
    stage(loop)
    loop.stop.set()
    lock = home_folder() / "cache" / "knowledge" / "checkpoint.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with disk.lock(lock, timeout_s=0.0):  # as another project's checkpoint would
        stopped = loop("true")
    assert stopped.reason == "interrupted"
    assert said(loop) == ["knowledge: not published in time; what is left stays staged"]
    for thread in threading.enumerate():
        if thread.name == "ralph-checkpoint":
            thread.join()


def stage(loop: Loop) -> None:
    """Something of this project that waits for a checkpoint."""
    with loop.opened() as ralph:
        ralph.knowledge.capture_failure_solution(**PUBLISHED)


def test_what_a_checkpoint_could_not_publish_the_next_run_does(tmp_path: Path) -> None:
    done = tasks("auth").replace("pending", "done")
    loop = Loop(planned(tmp_path / "project", tasks=done))
    stage(loop)
    stopped = loop("true")
    assert stopped.reason == "no_ready_task"
    assert said(loop) == ["knowledge: 1 published (project complete)"]
    loop("true")
    assert said(loop) == []


def test_an_index_that_cannot_be_written_leaves_it_staged_and_the_run_goes_on(
    loop: Loop, tmp_path: Path
) -> None:
    folder = home_folder() / "cache" / "knowledge"
    folder.parent.mkdir(parents=True)
    folder.touch()  # no folder can be made here
    stopped = loop(scripted(tmp_path, FAILING, SOLVING))
    assert stopped.totals.outcomes == {"failure": 2, "success": 2}
    told = said(loop)
    assert [line for line in told if line == "knowledge: 1 captured"] == told[:1] * 2
    assert any(line.startswith("knowledge: not published (") for line in told)
    assert len(staged(loop)) == 2


def test_a_home_that_cannot_be_written_is_told_once_and_does_not_stop_the_run(
    loop: Loop, tmp_path: Path
) -> None:
    folder = home_folder() / "journal" / "knowledge"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()
    stopped = loop(scripted(tmp_path, FAILING, SOLVING))
    assert stopped.totals.outcomes == {"failure": 2, "success": 2}
    captured, published = said(loop)  # of two tasks, each trouble once
    assert captured.startswith("knowledge: not captured (")
    assert published.startswith("knowledge: not published (")
    assert str(folder) in captured


def test_a_killed_loops_work_teaches_when_the_next_run_finishes_it(
    loop: Loop, tmp_path: Path
) -> None:
    """The record is in the journal, but the loop died before anything else."""
    agent = scripted(tmp_path, FAILING, SOLVING)

    def die(event: LoopEvent) -> None:
        if event.event == "ended" and event.facts["outcome"] == "success":
            raise KeyboardInterrupt

    loop.on_event = die
    with pytest.raises(KeyboardInterrupt):
        loop(agent, task_id=1)
    loop.on_event = lambda event: None
    loop(agent, task_id=1)
    assert said(loop) == ["knowledge: 1 captured", "knowledge: 1 published (phase complete)"]
    assert checkpoints(loop) == [("phase_complete", 1)]


@pytest.mark.parametrize(
    ("statuses", "feature", "expected"),
    [
        ("", "a", None),
        ("a:pending", "a", None),
        ("a:done a:pending b:done", "a", None),
        ("a:done a:skipped b:pending", "a", "phase_complete"),
        ("a:done b:pending", "b", None),
        ("a:done b:blocked", None, None),
        ("a:done b:skipped", "a", "project_complete"),
        ("a:done b:done", None, "project_complete"),
    ],
)
def test_what_is_complete(statuses: str, feature: str | None, expected: str | None) -> None:
    told = [one.split(":") for one in statuses.split()]
    plan = [
        msgspec.convert({"id": n, "feature": name, "title": "T", "status": status}, Task)
        for n, (name, status) in enumerate(told)
    ]
    assert completed(plan, feature) == expected


# -- what a task teaches


def attempt(number: int, outcome: str, *errors: ErrorSeen | str, **more: Any) -> Iteration:
    seen = tuple(ErrorSeen(one) if isinstance(one, str) else one for one in errors)
    given = {"summary": f"Summary of {number}.", "task_id": 7, "task_title": "Send the mail"}
    return made(**{**given, "iteration_number": number, "outcome": outcome, "errors": seen, **more})


def taught(*told: Iteration) -> list[FailureSolution]:
    return lessons(told, told[-1], project="p", technology="python")


REFUSED = "ConnectionRefusedError: smtp relay refused the sender"
SOLVED_HERE = ErrorSeen(REFUSED, "runtime", "mail.py", 3, "Changed the sender in mail.py.")


def test_an_error_met_and_solved_on_the_way_to_success_is_a_lesson_if_its_cause_is_general() -> (
    None
):
    solved = ErrorSeen(REFUSED, "runtime", resolution="Started the relay on port 2525.")
    [one] = taught(attempt(1, "success", solved))
    assert one.solution_steps == "Started the relay on port 2525."


def test_a_lesson_has_the_error_its_description_and_its_proven_solution() -> None:
    [one] = taught(
        attempt(1, "failure", REFUSED, summary="It fails. Then it\nfails again. And a third."),
        attempt(
            2,
            "success",
            ErrorSeen(REFUSED, resolution="Log in before sending."),
            decisions=(Decision("Use port 587", "25 is closed"), Decision("Keep one connection")),
        ),
    )
    assert one == FailureSolution(
        project="p",
        technology="python",
        subject="Send the mail",
        failure_description="Send the mail: It fails. Then it fails again.",
        error_message=REFUSED,
        solution_steps="Log in before sending.",
    )


def test_a_recorded_resolution_is_the_solution() -> None:
    solved = ErrorSeen(REFUSED, resolution="Started the relay on port 2525.")
    [earlier] = taught(attempt(1, "partial", solved), attempt(2, "success"))
    assert earlier.solution_steps == "Started the relay on port 2525."
    again = ErrorSeen(REFUSED, resolution="Gave the sender a name.")
    [newest] = taught(attempt(1, "timeout", solved), attempt(2, "success", again))
    assert newest.solution_steps == "Gave the sender a name."


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([attempt(1, "failure", REFUSED), attempt(2, "partial")], "not done"),
        ([attempt(1, "failure", REFUSED), attempt(2, "success", REFUSED)], "met again, unsolved"),
        ([attempt(1, "rate_limited", REFUSED), attempt(2, "success")], "nothing was tried"),
        ([attempt(1, "success", REFUSED), attempt(2, "success")], "solved and told then"),
        ([attempt(1, "failure", REFUSED, task_id=8), attempt(2, "success")], "another task"),
        ([attempt(1, "failure", "Exit code 1"), attempt(2, "success")], "tells nothing"),
        ([attempt(1, "failure", REFUSED), attempt(2, "success")], "no proof of a solution"),
        ([attempt(1, "success", SOLVED_HERE)], "a file of the project is to blame"),
        (
            [attempt(1, "failure", ErrorSeen(REFUSED, "permission")), attempt(2, "success")],
            "a tool it may not use",
        ),
        (
            [
                *(attempt(1, "failure", REFUSED), attempt(2, "success"), attempt(3, "failure")),
                attempt(4, "success"),
            ],
            "taught when the task was done before",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_teaches_nothing(told: Sequence[Iteration], why: str) -> None:
    assert taught(*told) == []


@pytest.mark.parametrize(
    ("message", "solution", "found"),
    [
        ("command not found: python", "`python3 -m pytest` instead of `python -m pytest`", 1),
        ("Error: unknown flag: --all", "`lint --default=none` instead of `lint --all` passed.", 1),
        ("go: cannot find main module", "`go test ./...` instead of `go test ./e2e` passed.", 0),
        ("unknown command build", "`make build` in the folder `web` passed.", 0),
        ("relay refused the sender", "Edited mail.py: -`a` +`b`; then `pytest` passed.", 0),
        ("relay refused the sender", 'Edited mail.py: -`a` +`b`. "The relay needs a login."', 0),
        ("relay refused the sender", 'Edited mail.toml: -`a` +`b`. "The relay needs a login."', 1),
        (
            "relay refused the sender",
            'Edited mail.toml: -`a` +`b`; mail.py: -`c` +`d`. "The relay needs a login."',
            0,
        ),
        ("CONFLICT (content): Merge conflict in go.mod", "With `GIT_EDITOR=true`", 0),
        ("jq: error: syntax error, unexpected INVALID", "`jq .a` instead of `jq {a` passed.", 0),
        ("`npm test` failed with exit code 1: x y", "Ran `npm ci`; then `npm test` passed.", 0),
    ],
)
def test_a_lesson_names_something_that_other_projects_have(
    message: str, solution: str, found: int
) -> None:
    error = ErrorSeen(message, "runtime", resolution=solution)
    assert len(taught(attempt(1, "failure", error), attempt(2, "success"))) == found


def test_each_error_teaches_once_whatever_its_numbers_and_those_met_most_often_come_first() -> None:
    def error(message: str) -> ErrorSeen:
        return ErrorSeen(message, resolution="Rewrote the header by hand.")

    def missing(line: int) -> ErrorSeen:
        return error(f"NameError: the sender is not defined at /srv/mail/send.py:{line}")

    names = ("to", "cc", "bcc")
    others = [error(f"ValueError: cannot parse the header called {name}") for name in names]
    found = taught(
        attempt(1, "failure", others[0], missing(10)),
        attempt(2, "failure", others[1], others[2], missing(20)),
        attempt(3, "success"),
    )
    assert [one.error_message for one in found] == [
        missing(20).message,
        others[1].message,
        others[2].message,
    ]


# -- taking


def test_what_another_project_solved_stands_in_the_prompt_exactly_as_the_block_says(
    loop: Loop, tmp_path: Path
) -> None:
    helped = publish(tmp_path)
    with loop.opened() as ralph:
        asked = "Add the login form\nThe form asks for name and password."
        context = ralph.knowledge.context_for_task(asked)
    text = prompt(loop, tmp_path)
    assert HELPFUL in context.block
    assert context.patterns == (helped.id,)
    assert f"\n\n{context.block}\n\n" in text
    assert text.count(OPENING) == text.count(CLOSING) == 1
    assert helped.id not in text
    assert "ralph knowledge" not in text
    assert "ralph gate" not in text


def test_an_error_that_the_last_attempt_met_is_asked_for_before_the_task(tmp_path: Path) -> None:
    publish(tmp_path)
    publish(
        tmp_path,
        failure_description="Signing in breaks",
        error_message=ERROR,
        solution_steps="Put session_secret into the environment.",
    )
    loop = Loop(planned(tmp_path / "project", tasks=tasks("auth")))
    first = prompt(loop, tmp_path)
    assert HELPFUL in first
    assert "session_secret" not in first
    with loop.opened() as ralph:
        met = ErrorSeen(ERROR, "runtime")
        ralph.feature("auth").remember(made("It broke.", task_id=1, errors=(met,)))
    second = prompt(loop, tmp_path)
    assert "Put session_secret into the environment." in second[second.index(OPENING) :]


def test_the_kind_of_agent_and_the_technology_leave_out_what_is_of_others(
    loop: Loop, tmp_path: Path
) -> None:
    publish(tmp_path, technology="ruby")
    assert OPENING in prompt(loop, tmp_path)  # this project does not say what it is written in
    (loop.root / "Cargo.toml").touch()
    assert OPENING not in prompt(loop, tmp_path)
    (loop.root / "Gemfile").touch()
    assert OPENING in prompt(loop, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [{"knowledge_receive": False}, {"prompt_tokens": 700}],
)
def test_no_block_and_no_half_of_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    publish(tmp_path, error_message="", failure_description="Add the login form, " * 40)
    root = planned(tmp_path / "project", tasks=tasks("auth"))
    assert OPENING in prompt(Loop(root), tmp_path)
    text = prompt(Loop(root, **settings), tmp_path)
    assert "ORCHESTRATOR" not in text
    assert CLOSING not in text
    assert HELPFUL not in text
    assert estimate_tokens(text) < 12000


def test_no_block_while_memory_is_off(loop: Loop, tmp_path: Path) -> None:
    publish(tmp_path)
    with loop.opened() as ralph:
        index = ralph.store.index.path
    for file in index.parent.glob("index-*"):
        file.unlink()
    for cache in (home_folder() / "cache" / "projects").glob("*"):
        (cache / index.name).mkdir(parents=True)
        (cache / index.name / "in the way").touch()
    text = prompt(loop, tmp_path)
    assert loop.facts("memory")[0]["available"] is False
    assert OPENING not in text


def test_a_title_too_short_to_ask_with_is_no_trouble(tmp_path: Path) -> None:
    publish(tmp_path)
    short = "version: 1\ntasks:\n- {id: 1, feature: auth, title: Do, status: pending}\n"
    loop = Loop(planned(tmp_path / "project", tasks=short))
    assert OPENING not in prompt(loop, tmp_path)
    assert said(loop) == []


def test_a_review_gets_no_block(tmp_path: Path) -> None:
    publish(tmp_path)
    loop = Loop(planned(tmp_path / "project", tasks=tasks("auth")), review_every=1)
    assert OPENING not in prompt(loop, tmp_path)
    [started] = loop.facts("started")
    assert started["review"] is True


def test_f10_an_agent_that_repeats_its_block_gives_nothing_of_it_back(
    loop: Loop, tmp_path: Path
) -> None:
    publish(tmp_path)
    echo = {"steps": [{"bash": "printf '%s' {{prompt}}"}, DONE], "result": "Done."}
    loop(scripted(tmp_path, {**FAILING, "steps": echo["steps"][:1]}, echo), task_id=1)
    assert all(one.errors == () for one in loop.told())
    assert staged(loop) == []
    assert len(pattern(loop).entries) == 1


# -- outcomes


def test_a_task_that_got_done_says_that_what_its_agent_used_worked(
    loop: Loop, tmp_path: Path
) -> None:
    publish(tmp_path)
    loop(scripted(tmp_path, {"steps": [DONE], "result": USED}), task_id=1)
    told = pattern(loop)
    assert (told.success_count, told.worked, told.failed) == (1, 1, 0)


def test_what_an_agent_was_given_and_did_not_use_is_not_credited(
    loop: Loop, tmp_path: Path
) -> None:
    publish(tmp_path)
    loop(scripted(tmp_path, {"steps": [DONE], "result": "Wrote the form by hand."}), task_id=1)
    assert (pattern(loop).worked, pattern(loop).failed) == (0, 0)


def test_a_task_that_did_not_says_that_it_failed_until_it_gets_done(
    loop: Loop, tmp_path: Path
) -> None:
    publish(tmp_path)
    loop(scripted(tmp_path, {"steps": [], "result": USED}), max_iterations=2, task_id=1)
    assert loop.outcomes == ["failure", "failure"]
    assert (pattern(loop).worked, pattern(loop).failed) == (0, 1)
    loop(scripted(tmp_path, {"steps": [DONE], "result": USED}), task_id=1)
    assert (pattern(loop).worked, pattern(loop).failed) == (1, 0)


def test_an_attempt_that_got_somewhere_says_nothing(loop: Loop, tmp_path: Path) -> None:
    publish(tmp_path)
    begun = {**DONE, "new": "status: in_progress"}
    loop(scripted(tmp_path, {"steps": [begun], "result": "Begun."}), task_id=1, max_iterations=1)
    assert loop.outcomes == ["partial"]
    assert (pattern(loop).worked, pattern(loop).failed) == (0, 0)


def test_an_attempt_that_a_person_stopped_says_nothing(loop: Loop, tmp_path: Path) -> None:
    publish(tmp_path)

    def stop(event: LoopEvent) -> None:
        if event.event == "started":
            loop.stop.set()

    loop.on_event = stop
    loop(scripted(tmp_path, {"steps": [{"sleep": 600}]}), task_id=1)
    assert loop.outcomes == ["interrupted"]
    assert (pattern(loop).worked, pattern(loop).failed) == (0, 0)


def test_what_found_no_room_in_the_prompt_is_not_judged(tmp_path: Path) -> None:
    publish(tmp_path, failure_description="Add the login form, " * 40)
    root = planned(tmp_path / "project", tasks=tasks("auth"))
    loop = Loop(root, prompt_tokens=600)
    loop(scripted(tmp_path, {"steps": [DONE], "result": "Done."}), task_id=1)
    assert loop.outcomes == ["success"]
    assert (pattern(loop).worked, pattern(loop).failed) == (0, 0)


def test_a_pattern_that_was_forgotten_meanwhile_is_not_judged_and_no_trouble(
    loop: Loop, tmp_path: Path
) -> None:
    helped = publish(tmp_path)

    def forget(event: LoopEvent) -> None:
        if event.event == "started":
            with loop.opened() as ralph:
                assert ralph.knowledge.forget(helped.entries)

    loop.on_event = forget
    loop(scripted(tmp_path, {"steps": [DONE], "result": "Done."}), task_id=1)
    assert loop.outcomes == ["success"]
    assert said(loop) == []


# -- what it is written in


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("pyproject.toml", "python"),
        ("requirements-dev.txt", "python"),
        ("package.json", "javascript"),
        ("package.json tsconfig.json", "typescript"),
        ("Cargo.toml README.md", "rust"),
        ("go.mod", "go"),
        ("build.gradle.kts", "java"),
        ("Gemfile", "ruby"),
        ("composer.json", "php"),
        ("Shop.csproj", "c#"),
        ("mix.exs", "elixir"),
        ("package.json setup.py", "python, javascript"),
        ("README.md notes.txt", None),
        ("", None),
    ],
)
def test_the_technology_is_told_by_the_files_at_the_root(
    tmp_path: Path, files: str, expected: str | None
) -> None:
    for name in files.split():
        (tmp_path / name).touch()
    assert technology_of(tmp_path, Settings()) == expected


def test_the_setting_says_it_where_a_person_wants_to(tmp_path: Path) -> None:
    (tmp_path / "go.mod").touch()
    assert technology_of(tmp_path, Settings(technology=" Rust, WASM ")) == "Rust, WASM"
    assert technology_of(tmp_path, Settings(technology="")) is None


def test_a_folder_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    assert technology_of(tmp_path / "gone", Settings()) is None


# -- mediation


def test_nothing_an_agent_is_started_with_leads_to_knowledge(loop: Loop, tmp_path: Path) -> None:
    helped = publish(tmp_path)
    keeping = """
import json, os, sys
from pathlib import Path
config = json.loads(Path(os.environ["RALPH_MCP_CONFIG"]).read_text())
given = {name: value for name, value in os.environ.items() if name.startswith("RALPH_")}
Path("../given.json").write_text(json.dumps({"config": config, "environ": given}))
"""
    loop(python(tmp_path, keeping), max_iterations=1, task_id=1)
    text = (tmp_path / "given.json").read_text(encoding="utf-8")
    given = json.loads(text)
    assert list(given["config"]["mcpServers"]) == ["feature-memory"]
    assert "knowledge" not in text
    assert helped.id not in text


ASKING = [
    # An answer repeats its question, so none has a word of the solution.
    ("search_feature_memory", {"query": "Add the login form", "min_score": 0}),
    ("search_feature_memory", {"query": "the session cookie was refused by the browser"}),
    ("get_recent_iterations", {}),
    ("get_failed_attempts", {}),
    ("get_feature_files", {}),
]


def test_the_tools_that_the_loop_gives_an_agent_do_not_reach_what_its_prompt_carries(
    loop: Loop, tmp_path: Path
) -> None:
    """Over stdio, with the configuration that the loop wrote."""
    helped = publish(tmp_path)
    ids = [helped.id, *helped.entries]
    asked = [*ASKING, *(("get_memory", {"id": one}) for one in ids)]
    steps = [{"mcp": tool, "args": given} for tool, given in asked]
    answers = tool_results(loop, tmp_path, steps)
    assert "SameSite" not in "".join(answers)
    for answer, one in zip(answers[-len(ids) :], ids, strict=True):
        assert f"there is no record '{one}'" in answer


@pytest.mark.parametrize(
    "words",
    some(
        [
            ["--feature", "auth", "--task", "1"],
            ["--feature", "auth", "--review"],
            ["--planning"],
            ["--conversations"],
        ],
        every=4,
    ),
    ids=" ".join,
)
def test_no_server_has_a_tool_or_a_resource_for_it(
    loop: Loop, tmp_path: Path, words: list[str]
) -> None:
    helped = publish(tmp_path)
    with wired(loop.root, *words) as server:
        told = [server.greet(), server.ask("tools/list"), server.ask("resources/list")]
        assert told[1]["result"]["tools"]
        assert server.hang_up() == 0
    text = json.dumps(told).lower()
    for word in (
        "orchestrator",
        "checkpoint",
        "cross-project",
        "other projects",
        "gate_",
        helped.id,
    ):
        assert word not in text
    # What the plan calls so: files of the project's own.
    assert not re.search(r"knowledge(?!_paths| paths| files?)", text)


def test_the_commands_for_it_refuse_an_agent_that_guesses_them(loop: Loop, tmp_path: Path) -> None:
    publish(tmp_path)
    guesses = ("knowledge patterns", "search --knowledge cookie", "gate list", "prompt 1")
    steps = [{"bash": f"{{{{ralph}}}} {one}"} for one in guesses]
    answers = tool_results(loop, tmp_path, steps)
    for answer in answers[:-1]:
        assert "an agent in `ralph run` may not call" in answer
    assert "# Your task: 1, Add the login form" in answers[-1]
    assert OPENING not in answers[-1]


def tool_results(loop: Loop, tmp_path: Path, steps: list[dict[str, Any]]) -> list[str]:
    """What the tools of an agent that has been told of other projects answer it."""
    kept = tmp_path / "output.jsonl"
    agent = scripted(tmp_path, {"when": HELPFUL, "steps": steps, "result": "Asked."})
    loop(f"sh -c {shlex.quote(f'{agent} | tee {shlex.quote(str(kept))}')}", max_iterations=1)
    events = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    results = [one["message"]["content"][0]["content"] for one in events if one["type"] == "user"]
    assert len(results) == len(steps)
    return results


def test_no_prompt_tells_an_agent_of_a_command_for_it() -> None:
    templates = Path(ralph.__file__).parent / "prompt" / "templates"
    for file in templates.iterdir():
        text = file.read_text(encoding="utf-8").lower()
        assert not re.search(r"ralph (?:knowledge|gate)|--knowledge", text), file.name
