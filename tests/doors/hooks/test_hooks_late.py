"""Hooks that run out of time or are killed: the next event of any session keeps what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commanding import process
from hooking import Session, exchanges, hook, iterations, log, roomy

from ralph import disk
from ralph.doors.hooks.sessions import Sessions
from ralph.memory.project import Focus, Project, set_focus

DONE = "The login form is there, with validation of empty passwords and its own tests."
CAUGHT_UP = "kept what an earlier hook had no time for"
NO_TIME = {"RALPH_HOOK_TIMEOUT_S": "0.01"}
# Runs a hook that is killed as soon as it calls the function that is named.
KILLED = """
import os, pkgutil, signal, sys
owner, name = sys.argv[1].rsplit(".", 1)
def die(*args, **more):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(pkgutil.resolve_name(owner), name, die)
sys.argv = ["ralph", "hook", "stop"]
from ralph.__main__ import main
main()
"""


@pytest.fixture
def session(project: Path, tmp_path: Path) -> Session:
    """A session whose exchange is over."""
    set_focus(Project(project), Focus("login"))
    one = Session(project, tmp_path)
    ask(one, "Add the login form", DONE)
    return one


def ask(session: Session, question: str, answer: str) -> None:
    session.prompts(question)
    session.writes("src/login.py")
    session.says(answer)


def said(project: Path) -> list[tuple[str, str, str]]:
    return [(one.user, one.assistant, one.status) for one in exchanges(project)]


def any_event(event: str, session: Session) -> None:
    """One event of a session in which nothing is said."""
    session.transcript.touch()
    session.hook(event, prompt="zebra", tool_name="Bash", error="Exit code 1", source="startup")


@pytest.mark.parametrize("ending", ["stop", "session-end"])
@pytest.mark.parametrize(
    "event",
    [
        "session-start",
        "user-prompt-submit",
        "post-tool-use-failure",
        "stop",
        "stop-failure",
        "session-end",
        "pre-compact",
    ],
)
def test_what_a_hook_has_no_time_for_is_kept_at_the_next_event_of_any_session(
    session: Session, project: Path, tmp_path: Path, ending: str, event: str
) -> None:
    session.hook(ending, environ=NO_TIME, last_assistant_message=DONE)
    assert said(project) == []

    other = Session(project, tmp_path)
    any_event(event, other)
    any_event(event, other)

    assert said(project) == [("Add the login form", DONE, "complete")]
    assert len(iterations(project, "login")) == 1
    assert len([line for line in log(project) if CAUGHT_UP in line]) == 1


@pytest.mark.parametrize("event", ["user-prompt-submit", "pre-compact", "session-start"])
def test_the_session_itself_catches_up_too(session: Session, project: Path, event: str) -> None:
    session.hook("stop", environ=NO_TIME, last_assistant_message=DONE)

    session.hook(event, prompt="What is it called?", source="resume")

    assert said(project) == [("Add the login form", DONE, "complete")]


def test_what_is_being_worked_on_is_left_alone_when_others_catch_up(
    session: Session, project: Path, tmp_path: Path
) -> None:
    session.hook("stop", environ=NO_TIME, last_assistant_message=DONE)
    session.hook("user-prompt-submit", environ={"RALPH_HOOK_CAPTURE": "1"}, prompt="go on")
    session.prompts("Now the logout")
    session.writes("src/logout.py")

    any_event("stop", Session(project, tmp_path))
    assert said(project) == [("Add the login form", DONE, "complete")]

    session.says("The logout is there as well, and it has tests of its own.")
    session.hook("stop")
    assert said(project)[1] == (
        "Now the logout",
        "The logout is there as well, and it has tests of its own.",
        "complete",
    )


def test_a_second_prompt_tells_that_the_first_exchange_is_over(
    session: Session, project: Path, tmp_path: Path
) -> None:
    """No hook came so far as to note it: they were killed while Python was loading."""
    session.hook("user-prompt-submit", prompt="go on")
    session.prompts("Now the logout")
    session.hook("user-prompt-submit", prompt="go on")
    session.writes("src/logout.py")

    any_event("stop", Session(project, tmp_path))

    assert said(project) == [("Add the login form", DONE, "complete")]


@pytest.mark.parametrize("ended", [True, False])
def test_an_answer_after_which_nothing_was_written_for_long_is_over(
    session: Session, project: Path, tmp_path: Path, ended: bool
) -> None:
    session.hook("user-prompt-submit", prompt="go on")
    if not ended:
        session.prompts("Now the logout")
        session.writes("src/logout.py")
    some_time_ago = time.time() - 3600
    os.utime(session.transcript, (some_time_ago, some_time_ago))

    any_event("session-start", Session(project, tmp_path))

    assert said(project) == [("Add the login form", DONE, "complete")]


@pytest.mark.skipif(sys.platform == "win32", reason="nobody is killed so there")
@pytest.mark.parametrize(
    "point",
    [
        "ralph.doors.hooks.context.load",
        "ralph.doors.hooks.context.open_ralph",
        "ralph.doors.hooks.session_end.capture_part",
        "ralph.doors.hooks.session_end.keep_iteration",
        "ralph.doors.hooks.session_end.keep_exchanges",
        "ralph.doors.hooks.sessions.Sessions.keep",
        "ralph.doors.hooks.session_end._index",
    ],
)
def test_a_hook_that_is_killed_anywhere_loses_nothing_and_doubles_nothing(
    session: Session, project: Path, tmp_path: Path, point: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, point],
        input=json.dumps(session.given(last_assistant_message=DONE)).encode(),
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert ran.returncode < 0

    any_event("user-prompt-submit", Session(project, tmp_path))
    session.hook("session-end")

    assert said(project) == [("Add the login form", DONE, "complete")]
    assert [one.summary for one in iterations(project, "login")] == [DONE]


def test_the_next_question_is_not_answered_by_the_stop_of_the_one_before(
    session: Session, project: Path, tmp_path: Path, home: Path
) -> None:
    """A hook that has to wait finds a transcript that went on meanwhile."""
    session.hook("session-start")
    [folder] = (home / "cache" / "hooks").iterdir()
    [note] = folder.glob("sessions/*.jsonl")
    with disk.lock(folder / "lock", timeout_s=5):
        stop = subprocess.Popen(
            [sys.executable, "-m", "ralph", "hook", "stop"],
            stdin=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, **roomy()},
        )
        assert stop.stdin is not None
        stop.stdin.write(json.dumps(session.given(last_assistant_message=DONE)).encode())
        stop.stdin.close()
        _wait_for(lambda: b'"over"' in note.read_bytes())
        session.prompts("Now the logout")
        session.writes("src/logout.py")
    assert stop.wait(60) == 0
    assert said(project) == [("Add the login form", DONE, "complete")]

    session.says("The logout is there as well.")
    session.hook("stop")

    assert said(project)[1] == ("Now the logout", "The logout is there as well.", "complete")


@pytest.mark.parametrize(("event", "tries"), [("session-start", 12), ("user-prompt-submit", 3)])
def test_a_session_that_could_not_be_kept_again_and_again_is_tried_an_hour_later(
    session: Session, project: Path, tmp_path: Path, home: Path, event: str, tries: int
) -> None:
    session.hook("stop", environ=NO_TIME, last_assistant_message=DONE)
    other = Session(project, tmp_path)
    other.transcript.touch()
    [note] = home.glob(f"cache/hooks/*/sessions/{session.name}.jsonl")
    note.write_bytes(note.read_bytes() + tries * b'{"note":"try"}\n')

    any_event(event, other)
    assert said(project) == []

    an_hour_ago = time.time() - 2 * 3600
    os.utime(note, (an_hour_ago, an_hour_ago))
    any_event(event, other)
    assert said(project) == [("Add the login form", DONE, "complete")]


def test_doctor_tells_of_sessions_that_wait(
    session: Session, project: Path, tmp_path: Path
) -> None:
    def check() -> dict[str, str]:
        ran = process(["doctor", "--json"], cwd=project)
        found: list[dict[str, str]] = json.loads(ran.stdout)["checks"]
        return next(one for one in found if one["name"] == "capture")

    session.hook("stop", environ=NO_TIME, last_assistant_message=DONE)
    waiting = check()
    assert waiting["state"] == "warning"
    assert waiting["detail"] == "1 session not captured yet: a hook was killed, or had no time"

    any_event("stop", Session(project, tmp_path))
    assert check()["state"] == "ok"


def test_a_transcript_that_no_file_can_be_called_by_stops_nobody(
    session: Session, project: Path, tmp_path: Path
) -> None:
    odd = Session(project, tmp_path)
    for event in ("session-start", "user-prompt-submit", "user-prompt-submit", "stop"):
        given = odd.given(prompt="zebra") | {"transcript_path": "/half/\ud83d/a.jsonl"}
        hook(event, given, cwd=tmp_path)

    session.hook("stop", last_assistant_message=DONE)
    session.hook("session-start", source="resume")

    assert said(project) == [("Add the login form", DONE, "complete")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="seen in /proc alone")
def test_a_session_whose_transcript_is_not_there_yet_is_left_alone(
    project: Path, tmp_path: Path, home: Path
) -> None:
    young = Session(project, tmp_path)
    for event in ("session-start", "user-prompt-submit", "user-prompt-submit"):
        young.hook(event, prompt="zebra")

    for _ in range(4):
        Session(project, tmp_path).hook("session-start")

    assert log(project) == []
    assert list(home.glob(f"cache/hooks/*/sessions/{young.name}.jsonl"))


def test_hooks_with_capture_off_keep_nothing_that_others_left(
    session: Session, project: Path, tmp_path: Path, home: Path
) -> None:
    session.hook("stop", environ=NO_TIME, last_assistant_message=DONE)

    other = Session(project, tmp_path)
    other.hook("user-prompt-submit", environ={"RALPH_HOOK_CAPTURE": "0"}, prompt="zebra")

    assert said(project) == []
    assert not list(home.glob(f"cache/hooks/*/sessions/{session.name}.jsonl"))


# Notes that hooks write side by side


def notes(folder: Path) -> Sessions:
    def fail(error: OSError, where: str) -> None:
        raise error

    return Sessions(str(folder), fail)


def test_a_prompt_that_is_noted_while_the_session_is_captured_stays_noted(tmp_path: Path) -> None:
    one = notes(tmp_path)
    one.over("s", "t.jsonl", "stop")
    session = one.read("s")

    one.note_prompt("s", "t.jsonl")
    one.keep(session, 10, under_way=False, complete=True)

    now = one.read("s")
    assert (now.under_way, now.offset, now.over_at) == (True, 10, None)


def test_what_was_not_read_to_its_end_is_still_due(tmp_path: Path) -> None:
    one = notes(tmp_path)
    one.over("s", "t.jsonl", "stop")

    one.keep(one.read("s"), 10, under_way=True, complete=False)

    assert one.read("s").over_at == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no file that is open is replaced there")
def test_no_line_is_lost_while_a_note_is_made_short(tmp_path: Path) -> None:
    one = notes(tmp_path)
    one.begin("s", "t.jsonl", remembers=False)
    wanted = [f"id-{number}" for number in range(150)]
    done = threading.Event()

    def tell() -> None:
        for name in wanted:
            one.note_recalled("s", [name])
        done.set()

    teller = threading.Thread(target=tell)
    teller.start()
    while not done.is_set():
        one.keep(one.read("s"), 10, under_way=False, complete=True)
    teller.join()

    assert set(one.read("s").recalled_ids) == set(wanted)


def test_half_a_line_of_a_full_disk_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    one = notes(tmp_path)
    one.begin("s", "t.jsonl", remembers=False)
    [note] = tmp_path.glob("sessions/*.jsonl")
    with note.open("ab") as file:
        file.write(b'{"note":"to')

    one.note_prompt("s", "t.jsonl")

    assert one.read("s").under_way


def _wait_for(what: Callable[[], bool]) -> None:
    for _ in range(6000):
        if what():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")
