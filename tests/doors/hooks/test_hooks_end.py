"""Stop, StopFailure, SessionEnd, PreCompact: what was said and done is kept, once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hooking import FIXTURES, Session, exchanges, hook, iterations, log

from ralph.doors.hooks.session_end import TranscriptReader
from ralph.memory.project import Focus, Project, set_focus
from ralph.memory.ralph import open_ralph
from ralph.plan.edit import create_feature, create_task, update_task
from ralph.plan.store import Plan
from ralph.records.conversation import conversation_id

DONE = "The login form is there, with validation of empty passwords and its own tests."


@pytest.fixture
def shop(project: Path) -> Path:
    """A project with a plan of two features."""
    plan = Plan(project)
    for name, title in (("login", "Add the login form"), ("cart", "Show the total")):
        create_feature(plan, name)
        create_task(plan, name, title)
    return project


def work(session: Session) -> str:
    """One exchange in which a file is made."""
    key = session.prompts("Add the login form")
    session.writes("src/login.py")
    session.says(DONE)
    return key


def test_an_exchange_is_kept_at_stop(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    session.hook("session-start")
    session.hook("user-prompt-submit", prompt="Add the login form")
    work(session)

    stopped = session.hook("stop", last_assistant_message=DONE)
    assert (stopped.context, stopped.message) == ("", "Ralph: 1 memory saved in this session")

    [exchange] = exchanges(shop)
    assert exchange.conversation == conversation_id("claude-code", session.name)
    assert (exchange.user, exchange.assistant) == ("Add the login form", DONE)
    assert exchange.status == "complete"
    assert [(file.path, file.action) for file in exchange.files_touched] == [
        ("src/login.py", "created")
    ]
    assert log(shop) == []
    with open_ralph(shop) as ralph:
        [listed] = ralph.conversations.list()
        assert listed.conversation.title == "Add the login form"
        assert listed.conversation.source == "claude-code"
        [hit] = ralph.conversations.search("validation of empty passwords")
        assert hit.id == exchange.id


def test_nothing_is_kept_twice_however_often_hooks_come(shop: Path, tmp_path: Path) -> None:
    set_focus(Project(shop), Focus("login"))
    session = Session(shop, tmp_path)
    work(session)

    for event in ("stop", "stop", "pre-compact", "session-end", "session-end", "stop"):
        session.hook(event, last_assistant_message=DONE)

    assert len(exchanges(shop)) == 1
    assert len(iterations(shop, "login")) == 1


def test_every_exchange_of_a_session_is_kept_as_it_ends(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    for number in range(3):
        session.prompts(f"Question {number}")
        session.says(f"The answer to question {number} is long enough to be one.")
        session.hook("stop", last_assistant_message="")
        assert len(exchanges(shop)) == number + 1


def test_the_last_message_counts_though_the_transcript_lacks_it(shop: Path, tmp_path: Path) -> None:
    set_focus(Project(shop), Focus("login"))
    session = Session(shop, tmp_path)
    session.prompts("Add the login form")
    session.writes("src/login.py")

    session.hook("stop", last_assistant_message=DONE)
    session.says(DONE)  # the client writes it only now
    session.hook("session-end", reason="other")

    [exchange] = exchanges(shop)
    assert (exchange.assistant, exchange.status) == (DONE, "complete")
    # As old as the rest of the transcript, however late the hook reads it.
    assert (exchange.completed or "").startswith("2026-11-02")
    [iteration] = iterations(shop, "login")
    assert iteration.summary == DONE


def test_a_prompt_that_is_not_written_yet_is_kept_later(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    session.transcript.touch()
    session.hook("stop", last_assistant_message=DONE)
    assert exchanges(shop) == []

    work(session)
    session.hook("session-end", reason="other")

    assert [one.assistant for one in exchanges(shop)] == [DONE]


def test_a_request_that_failed_is_kept_as_failed(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    session.prompts("Add the login form")

    session.hook(
        "stop-failure",
        error="invalid_request",
        error_details="400 prompt is too long: 210000 tokens > 200000 maximum",
        last_assistant_message="Prompt is too long: 210000 tokens is over the limit of 200000.",
    )
    session.hook("session-end", reason="other")

    [exchange] = exchanges(shop)
    assert exchange.status == "failed"
    assert "Prompt is too long" in exchange.errors[0].message


def test_what_is_under_way_at_the_end_of_a_session_is_interrupted(
    shop: Path, tmp_path: Path
) -> None:
    session = Session(shop, tmp_path)
    session.prompts("Add the login form")
    session.writes("src/login.py")

    session.hook("session-end", reason="other")

    assert [one.status for one in exchanges(shop)] == ["interrupted"]


def test_compaction_keeps_what_is_over_and_leaves_what_is_not(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    session.prompts("First question")
    session.says("The first answer is here, and it is the only one there is.")
    session.prompts("Second question")
    session.writes("src/login.py")

    session.hook("pre-compact", trigger="auto")
    assert [one.user for one in exchanges(shop)] == ["First question"]

    session.says(DONE)
    session.hook("stop", last_assistant_message=DONE)
    assert [one.user for one in exchanges(shop)] == ["First question", "Second question"]
    assert exchanges(shop)[1].files_touched[0].path == "src/login.py"


def test_an_exchange_that_a_person_stopped_is_kept_with_the_next_one(
    shop: Path, tmp_path: Path
) -> None:
    session = Session(shop, tmp_path)
    session.prompts("Rewrite everything in Rust")
    session.prompts("[Request interrupted by user]")
    work(session)

    session.hook("stop", last_assistant_message=DONE)

    assert [(one.user, one.status) for one in exchanges(shop)] == [
        ("Rewrite everything in Rust", "interrupted"),
        ("Add the login form", "complete"),
    ]


def test_a_recorded_session_becomes_memory(shop: Path, tmp_path: Path) -> None:
    set_focus(Project(shop), Focus("login"))
    recorded = (FIXTURES / "transcript_success.jsonl").read_text(encoding="utf-8")
    transcript = tmp_path / "1408c1ab-b833-4487-8c9f-704e38152773.jsonl"
    transcript.write_text(recorded.replace("/home/dev/shop", str(shop)), encoding="utf-8")
    inputs = (FIXTURES / "hook_inputs.jsonl").read_text(encoding="utf-8").splitlines()
    for line in inputs:
        given = json.loads(line)
        if given["run"] == "project" and given["hook_event_name"] in ("Stop", "SessionEnd"):
            given |= {"cwd": str(shop), "transcript_path": str(transcript)}
            given["session_id"] = transcript.stem
            hook(given["hook_event_name"], given, cwd=tmp_path)

    [exchange] = exchanges(shop)
    assert exchange.user == "Implement login feature"
    assert exchange.assistant.startswith("Done: login implemented.")
    [iteration] = iterations(shop, "login")
    assert (iteration.task_title, iteration.outcome) == ("Implement login feature", "unknown")
    assert [file.path for file in iteration.files_touched] == ["login.py", "README.md"]


# Which iteration it was


def kept(session: Session, shop: Path, feature: str) -> list[tuple[str, object, str]]:
    session.hook("stop", last_assistant_message=DONE)
    told = iterations(shop, feature)
    return [(one.task_title, one.task_id, one.outcome) for one in told]


def test_work_without_a_focus_is_only_a_conversation(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    work(session)

    assert kept(session, shop, "login") == []
    assert len(exchanges(shop)) == 1


def test_work_belongs_to_the_feature_in_focus(shop: Path, tmp_path: Path) -> None:
    set_focus(Project(shop), Focus("login"))
    session = Session(shop, tmp_path)
    key = work(session)

    assert kept(session, shop, "login") == [("Add the login form", None, "unknown")]
    [iteration] = iterations(shop, "login")
    assert iteration.session_id == f"{session.name}#{key}"


def test_talk_that_did_nothing_is_no_iteration(shop: Path, tmp_path: Path) -> None:
    set_focus(Project(shop), Focus("login"))
    session = Session(shop, tmp_path)
    session.prompts("What is a cookie?")
    session.says("A small text that a browser keeps for a site and sends back to it.")

    assert kept(session, shop, "login") == []
    assert len(exchanges(shop)) == 1


@pytest.mark.parametrize(
    ("patch", "comment", "outcome"),
    [
        ({"status": "done"}, None, "success"),
        ({"status": "in_progress"}, None, "partial"),
        ({}, "half of it is there", "partial"),
        ({"priority": 1}, None, "unknown"),
    ],
)
@pytest.mark.parametrize("focus", [None, Focus("login"), Focus("login", 1)])
def test_the_outcome_is_what_became_of_the_task(
    shop: Path,
    tmp_path: Path,
    patch: dict[str, object],
    comment: str | None,
    outcome: str,
    focus: Focus | None,
) -> None:
    if focus is not None:
        set_focus(Project(shop), focus)
    session = Session(shop, tmp_path)
    session.prompts("Add the login form")
    at = session.now()
    update_task(Plan(shop, clock=lambda: at), 1, patch, comment=comment)
    session.says(DONE)

    assert kept(session, shop, "login") == [("Add the login form", 1, outcome)]


def test_a_task_that_moved_before_or_after_says_nothing(shop: Path, tmp_path: Path) -> None:
    set_focus(Project(shop), Focus("login", 1))
    plan = Plan(shop, clock=lambda: "2026-11-01T00:00:00Z")
    update_task(plan, 1, {"status": "done"})
    session = Session(shop, tmp_path)
    work(session)

    assert kept(session, shop, "login") == [("Add the login form", 1, "unknown")]


def test_tasks_of_two_features_do_not_say_which_it_was(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    session.prompts("Do both")
    at = session.now()
    for task in (1, 2):
        update_task(Plan(shop, clock=lambda: at), task, {"status": "done"})
    session.says(DONE)

    assert kept(session, shop, "login") == []
    assert iterations(shop, "cart") == []


# Where it is read from


def test_a_long_transcript_is_read_only_where_it_is_new(shop: Path, tmp_path: Path) -> None:
    """What stands before the place that was reached is garbage; nobody looks at it."""
    session = Session(shop, tmp_path)
    work(session)
    session.hook("stop", last_assistant_message=DONE)
    size = session.transcript.stat().st_size
    session.transcript.write_bytes(b"#" * (size - 1) + b"\n")
    work(session)

    session.hook("stop", last_assistant_message=DONE)

    assert len(exchanges(shop)) == 2
    assert log(shop) == []


def test_a_transcript_that_takes_too_long_is_read_on_from_where_it_was_left(
    shop: Path, tmp_path: Path
) -> None:
    session = Session(shop, tmp_path)
    asked = [work(session) for _ in range(40)]
    found: list[str] = []
    offset, complete, looks = 0, False, 0
    while not complete:
        reading = TranscriptReader(session.transcript, root=str(shop), offset=offset)
        found += [one.key for one in reading.read_finished(lambda: False)]
        offset, complete, looks = reading.begins_at, reading.complete, looks + 1

    last = reading.open_exchange()
    assert last is not None
    assert [*found, last.key] == asked
    assert looks > 1


def test_a_lost_note_means_reading_again_and_nothing_twice(
    shop: Path, tmp_path: Path, home: Path
) -> None:
    set_focus(Project(shop), Focus("login"))
    session = Session(shop, tmp_path)
    work(session)
    session.hook("stop", last_assistant_message=DONE)
    for file in home.glob("cache/hooks/*/sessions/*.jsonl"):
        file.unlink()
    work(session)

    session.hook("stop", last_assistant_message=DONE)

    assert len(exchanges(shop)) == 2
    assert len(iterations(shop, "login")) == 2


def test_half_a_line_is_left_for_later(shop: Path, tmp_path: Path) -> None:
    session = Session(shop, tmp_path)
    work(session)
    whole = session.transcript.read_bytes()
    second = whole.index(b"\n", whole.index(b"\n") + 1)
    session.transcript.write_bytes(whole[: second - 10])

    session.hook("pre-compact", trigger="manual")
    session.transcript.write_bytes(whole)
    session.hook("stop", last_assistant_message=DONE)

    [exchange] = exchanges(shop)
    assert exchange.files_touched[0].path == "src/login.py"


def test_the_next_session_begins_with_what_was_just_kept(
    shop: Path, tmp_path: Path, home: Path
) -> None:
    set_focus(Project(shop), Focus("login"))
    session = Session(shop, tmp_path)
    work(session)
    session.hook("stop", last_assistant_message=DONE)
    [ready] = home.glob("cache/hooks/*/brief.json")
    made = ready.stat()

    text = Session(shop, tmp_path).hook("session-start").context

    assert DONE in text
    assert ready.stat().st_mtime_ns == made.st_mtime_ns  # it was ready


def test_an_iteration_that_has_only_a_summary_is_told_by_it(shop: Path, tmp_path: Path) -> None:
    with open_ralph(shop) as ralph:
        ralph.feature("login").remember({"summary": "Mended the form."})
    text = Session(shop, tmp_path).hook("session-start").context
    assert re.search(r"^- iteration 1, [-0-9]+: Mended the form\.$", text, re.MULTILINE), text


@pytest.mark.parametrize("event", ["stop", "stop-failure", "session-end", "pre-compact"])
@pytest.mark.parametrize("name", ["RALPH_FEATURE", "RALPH_HOOK_CAPTURE"])
def test_nothing_is_kept_in_the_loop_and_when_switched_off(
    shop: Path, tmp_path: Path, event: str, name: str
) -> None:
    session = Session(shop, tmp_path)
    work(session)
    work(session)

    session.hook(event, environ={name: "0"}, last_assistant_message=DONE)

    assert exchanges(shop) == []
    assert log(shop) == []
