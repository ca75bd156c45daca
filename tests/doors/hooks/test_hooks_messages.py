"""What a person sees of the hooks: a line in the client, the status line, `ralph why`, timeouts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from commanding import Line, process
from hooking import Session, hook, roomy
from remembering import made

from ralph import disk
from ralph.memory.activity import counts, note_activity, read_activity
from ralph.memory.project import Focus, Project, set_focus
from ralph.memory.ralph import open_ralph
from ralph.records.iteration import ErrorSeen
from ralph.state_folders import hooks_folder, state_folder

COOKIE = "The login form loses its session cookie in Safari"
DONE = "The cookie has SameSite=Lax and Secure now, and Safari keeps it."
BROKEN = "psycopg.OperationalError: connection to port 5433 refused by db-3"
# A hook whose time is over when it comes to the function that is named.
OVER = """
import os, sys
from ralph.doors.hooks import session_end
def end(call, *args):
    call.watch._on_end(1.0)
    os._exit(0)
session_end.NAME = end
sys.argv = ["ralph", "hook", "stop"]
from ralph.__main__ import main
main()
"""
QUIET = {"RALPH_HOOK_MESSAGES": "false"}
# A hook whose memory takes longer than anybody waits.
SLOW = """
import sys, time
from ralph.doors.hooks import context
def wait(call, prompt):
    context.settings_of(call)
    time.sleep(600)
context.recall_for_prompt = wait
sys.argv = ["ralph", "hook", "user-prompt-submit"]
from ralph.__main__ import main
main()
"""


@pytest.fixture
def shop(project: Path) -> Path:
    """A project that solved something before."""
    error = ErrorSeen(BROKEN, "runtime")
    solved = msgspec.structs.replace(error, resolution="started the database with docker")
    with open_ralph(project) as ralph:
        ralph.feature("login").remember_all(
            [
                made(
                    "Safari refused the session cookie of the login form.",
                    task_title="Keep people signed in",
                    outcome="failure",
                    session_id="run-1",
                ),
                made("The tests could not connect.", errors=(solved,), session_id="run-2"),
            ]
        )
    return project


@pytest.fixture
def session(shop: Path, tmp_path: Path) -> Session:
    return Session(shop, tmp_path)


def work(session: Session, **more: Any) -> str:
    """One exchange; gives the line that it ends with."""
    session.prompts(COOKIE)
    session.writes("login.py")
    session.says(DONE)
    return session.hook("stop", last_assistant_message=DONE, **more).message


def folder_of(project: Path) -> str:
    return hooks_folder(str(project), disk.home())


def status(session: Session, **more: str) -> str:
    given = {"session_id": session.name, "workspace": {"project_dir": str(session.project)}}
    ran = process(
        ["statusline"], cwd=session.folder, stdin=json.dumps(given).encode(), environ=more
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode().rstrip("\n")


def run_out_of_time(session: Session) -> None:
    """A prompt that is not answered in time."""
    subprocess.run(
        [sys.executable, "-c", SLOW],
        input=json.dumps(session.given(prompt=COOKIE)).encode(),
        env={**os.environ, "RALPH_HOOK_TIMEOUT_S": "0.05"},
        cwd=session.folder,
        timeout=60,
        check=True,
    )


# -- the line in the client


def test_a_recall_and_a_saved_exchange_are_one_line_each(session: Session) -> None:
    asked = session.hook("user-prompt-submit", prompt=COOKIE)
    assert "Safari refused the session cookie" in asked.context
    assert asked.message == "Ralph: 1 memory shown"
    assert work(session) == "Ralph: 1 memory shown, 1 saved in this session"


def test_where_nothing_happens_there_is_no_line(session: Session) -> None:
    assert session.hook("user-prompt-submit", prompt="go on").out == ""
    assert session.hook("user-prompt-submit", prompt="kubernetes autoscaling").out == ""
    assert work(session) == "Ralph: 1 memory saved in this session"
    assert session.hook("stop").out == ""
    assert session.hook("session-end").out == ""


def test_an_error_that_was_solved_before_is_a_line(session: Session) -> None:
    failed: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "pytest"}}
    met = session.hook("post-tool-use-failure", error=f"Exit code 1\n{BROKEN}", **failed)
    assert "started the database with docker" in met.context
    assert met.message == "Ralph: 1 memory shown"


def test_a_session_begins_with_how_much_it_was_shown(session: Session, tmp_path: Path) -> None:
    work(session)
    first = Session(session.project, tmp_path).hook("session-start", source="startup")
    again = Session(session.project, tmp_path).hook("session-start", source="startup")
    assert "Safari refused" in first.context
    assert "Safari keeps it" in first.context
    assert (first.message, again.message) == ("Ralph: 3 memories shown",) * 2


def test_a_setting_takes_the_lines_away_and_nothing_else(session: Session) -> None:
    begun = session.hook("session-start", source="startup", environ=QUIET)
    asked = session.hook("user-prompt-submit", prompt=COOKIE, environ=QUIET)
    assert begun.context
    assert asked.context
    assert (begun.message, asked.message, work(session, environ=QUIET)) == ("", "", "")


def test_other_clients_get_no_line(session: Session) -> None:
    asked = session.hook("user-prompt-submit --agent codex", prompt=COOKIE)
    assert asked.context
    assert asked.message == ""


# -- hooks that ran out of time


def test_a_hook_that_ran_out_of_time_is_told_to_the_next_session_once(
    session: Session, tmp_path: Path
) -> None:
    run_out_of_time(session)

    first = Session(session.project, tmp_path).hook("session-start", source="startup").message
    second = Session(session.project, tmp_path).hook("session-start", source="startup").message

    late = "1 hook ran out of time since the last session (user-prompt-submit)"
    assert first == f"Ralph: 2 memories shown; {late}; see `ralph doctor`"
    assert second == "Ralph: 2 memories shown"


def test_doctor_warns_of_hooks_that_ran_out_of_time_until_they_have_more(
    session: Session, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> dict[str, Any]:
        checks: list[dict[str, Any]] = ralph("doctor", "--json").json["checks"]
        return next(one for one in checks if one["name"] == "timeouts")

    monkeypatch.chdir(session.project)
    assert check()["state"] == "ok"
    run_out_of_time(session)

    assert check()["state"] == "warning"
    assert "1 hook ran out of time in the last 7 days (1 user-prompt-submit" in check()["detail"]
    assert "hook_timeout_s" in check()["todo"]
    ralph.well("config", "--user", "hook_timeout_s", "20")
    assert check()["state"] == "ok"


@pytest.mark.parametrize(("before", "noted"), [("_save", 1), ("_index", 0)])
def test_only_a_hook_whose_work_is_undone_is_late(
    session: Session, before: str, noted: int
) -> None:
    """Saved is saved; the next search catches up with the index."""
    session.prompts(COOKIE)
    session.says(DONE)
    subprocess.run(
        [sys.executable, "-c", OVER.replace("NAME", before)],
        input=json.dumps(session.given(last_assistant_message=DONE)).encode(),
        env={**os.environ, **roomy()},
        cwd=session.folder,
        timeout=60,
        check=True,
    )
    late = [one for one in read_activity(folder_of(session.project)) if one.late_s]
    assert [one.event for one in late] == ["stop"] * noted


# -- the file


def test_the_notes_stay_small_and_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    for number in range(12_000):
        note_activity(str(folder), "stop", f"session-{number}", saved=1)
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["activity.jsonl", "activity.jsonl.1"]
    assert sum(file.stat().st_size for file in files) < 1_100_000
    if sys.platform != "win32":
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert read_activity(str(folder))[-1].session == "session-11999"


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[1]",
        b'{"event": "stop"}',
        b'{"at": "x", "event": "stop", "session": "s"}',
        b'{"at": 1, "event": "stop", "session": "s", "shown": [1]}',
        b'{"at": 1, "event": "stop", "session": "s", "shown": [["a", "b"]]}',
        b'{"at": 1, "event": "stop", "session": "s", "saved": null}',
        b"\xff\xfe",
        b"[" * 50_000,
    ],
)
def test_a_line_that_nobody_can_read_is_stepped_over(tmp_path: Path, line: bytes) -> None:
    note_activity(str(tmp_path), "stop", "s", saved=1)
    with (tmp_path / "activity.jsonl").open("ab") as file:
        file.write(line + b"\n")
    note_activity(str(tmp_path), "stop", "s", saved=2)
    assert counts(read_activity(str(tmp_path), "s")).saved == 3


# -- the status line


def test_the_status_line_says_what_this_session_was_shown_and_saved(session: Session) -> None:
    assert status(session) == "Ralph on | 0 shown, 0 saved"
    session.hook("user-prompt-submit", prompt=COOKIE)
    failed: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "pytest"}}
    session.hook("post-tool-use-failure", error=f"Exit code 1\n{BROKEN}", **failed)
    work(session)
    assert status(session) == "Ralph on | 2 shown, 1 saved | 1 repeat"
    set_focus(Project(session.project), Focus("login", 3))
    assert status(session) == "Ralph on | 2 shown, 1 saved | login #3 | 1 repeat"


def test_the_status_line_says_when_memory_is_off(
    session: Session, ralph: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert status(session, RALPH_HOOK_INJECT="false").startswith("Ralph saves only")
    assert status(session, RALPH_HOOK_CAPTURE="false").startswith("Ralph recalls only")
    both = {"RALPH_HOOK_CAPTURE": "false", "RALPH_HOOK_INJECT": "false"}
    assert status(session, **both) == "Ralph off"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert status(Session(elsewhere, tmp_path)) == "Ralph off"
    monkeypatch.chdir(session.project)
    ralph.well("pause")
    assert status(session).startswith("Ralph paused | ")


@pytest.mark.parametrize("given", [b"", b"{", b"[]", b'{"cwd": 5, "workspace": 7}', b"\xff"])
def test_the_status_line_breaks_on_nothing(shop: Path, given: bytes) -> None:
    ran = process(["statusline"], cwd=shop, stdin=given)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(b"Ralph")
    assert ran.stdout.count(b"\n") == 1


def test_a_focus_that_somebody_wrote_cannot_control_the_terminal(session: Session) -> None:
    file = Path(state_folder(str(session.project))) / "focus.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"feature": "a\x1b[2Jb\n" + "c" * 500}), encoding="utf-8")
    shown = status(session)
    assert shown.isprintable()
    assert len(shown) < 100


def test_the_status_line_loads_nothing_heavy(session: Session) -> None:
    session.hook("user-prompt-submit", prompt=COOKIE)
    given = json.dumps({"session_id": session.name, "cwd": str(session.project)}).encode()
    ran = hook("statusline", given, cwd=session.folder, python=("-X", "importtime"))
    assert ran.out == "Ralph on | 1 shown, 0 saved\n"
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.err.splitlines()}
    assert "ralph" in loaded
    assert loaded & {"msgspec", "click", "numpy", "sqlite3", "pathlib", "subprocess"} == set()


# -- why


def test_why_says_what_the_model_was_told_from_where_and_by_which_hook(
    session: Session, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(session.project)
    session.hook("user-prompt-submit", prompt=COOKIE)
    work(session)

    found = ralph.well("why", "--json").json

    assert (found["session"], found["shown"], found["saved"]) == (session.name, 1, 1)
    prompt, stop = found["events"]
    assert (prompt["event"], stop["event"], stop["saved"]) == ("UserPromptSubmit", "Stop", 1)
    [shown] = prompt["shown"]
    assert shown["title"].startswith("Keep people signed in")
    assert shown["kind"] == "iteration"
    assert 0.4 < shown["score"] <= 1
    assert ralph.well("show", shown["id"], "--json").json["id"] == shown["id"]
    page = ralph.well("why", session.name[:8]).out
    assert f"{shown['score']:.2f} {shown['id'][:8]} iteration" in page
    assert "Stop, " in page


def test_why_says_what_the_prompt_of_an_iteration_carried(
    session: Session, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(session.project)
    with open_ralph(session.project) as opened:
        [hit, *_] = opened.recent(1)
        folder = hooks_folder(opened.project.root, opened.project.home)
    note_activity(folder, "run-attempts", "run1", shown=[(hit.id, None)])

    [event] = ralph.well("why", "run1", "--json").json["events"]

    assert (event["event"], [one["id"] for one in event["shown"]]) == ("RunAttempts", [hit.id])


def test_why_knows_each_session_and_says_what_is_gone(
    session: Session, ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(session.project)
    assert "no session is known here" in ralph("why").complaint
    session.hook("user-prompt-submit", prompt=COOKIE)
    other = Session(session.project, tmp_path)
    work(other)

    assert ralph.well("why", "--json").json["session"] == other.name
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", session.name)
    [event] = ralph.well("why", "--json").json["events"]
    ralph.well("forget", event["shown"][0]["id"], "--yes")
    assert "(no longer in memory)" in ralph.well("why").out
    assert "no session 'zzz' is known here" in ralph("why", "zzz").complaint


def test_why_knows_sessions_of_folders_without_a_project(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    ralph.well("config", "--user", "pause_folders", "[]")
    session = Session(folder, tmp_path)
    work(session)
    monkeypatch.chdir(folder)
    assert ralph.well("why", "--json").json["session"] == session.name
