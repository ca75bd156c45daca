"""Whatever a hook is given: it ends with 0, says nothing, and leaves at most a line in its log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hooking import FIXTURES, Session, exchanges, files_below, hook, log
from remembering import made, state_of

from ralph.doors.hooks.call import EVENTS, LOG_NAME, note
from ralph.memory.project import Focus, Project, set_focus
from ralph.memory.ralph import open_ralph
from ralph.records.iteration import ErrorSeen

ALL = list(EVENTS)
NOT_TEXT: list[Any] = [None, 7, [], {}, "\0", ""]


@pytest.mark.parametrize("event", ALL)
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "there is no input"),
        (b"   \n", "there is no input"),
        (b"{", "the input is not JSON"),
        (b"\xff\xfe\x00", "the input is not JSON"),
        (b"[1, 2]", "the input is not a JSON object but list"),
        (b"null", "the input is not a JSON object but NoneType"),
        (b"[" * 100_000, "the input is not JSON"),
    ],
)
def test_what_is_no_input_is_one_line_in_the_log(
    project: Path, event: str, data: bytes, what: str
) -> None:
    assert hook(event, data, cwd=project).out == ""

    [line] = log(project)
    assert f" {event} {what}" in line
    assert line.endswith("(stdin)")


@pytest.mark.parametrize("event", ALL)
def test_a_folder_without_a_project_is_left_alone(event: str, tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    transcript = tmp_path / "t.jsonl"
    transcript.write_bytes((FIXTURES / "transcript_success.jsonl").read_bytes())
    given = {"session_id": "s", "transcript_path": str(transcript), "cwd": str(folder)}
    before = files_below(tmp_path)

    ran = hook(
        event,
        {**given, "prompt": "login form", "error": "Error: it broke here", "tool_name": "Bash"},
        cwd=folder,
        python=("-X", "importtime"),
    )
    hook(event, b"not JSON", cwd=folder)

    assert ran.code == 0
    assert ran.out == ""
    assert "msgspec" not in ran.err
    assert files_below(tmp_path) == before
    assert not home.exists()


def test_ralph_s_home_is_no_project(home: Path, tmp_path: Path) -> None:
    (home / "db").mkdir(parents=True)

    assert (
        hook("session-start", {"session_id": "s", "cwd": str(home.parent)}, cwd=tmp_path).out == ""
    )

    assert files_below(home) == set()


@pytest.mark.parametrize("event", ALL)
@pytest.mark.parametrize("value", NOT_TEXT)
def test_fields_that_are_missing_or_of_another_type_break_nothing(
    project: Path, event: str, value: Any
) -> None:
    fields = (
        "session_id transcript_path cwd prompt tool_name tool_input error error_details source"
        " last_assistant_message reason trigger is_interrupt stop_hook_active hook_event_name"
    ).split()

    assert hook(event, dict.fromkeys(fields, value), cwd=project).out == ""
    assert hook(event, {}, cwd=project).out == ""

    assert exchanges(project) == []
    assert all(line.startswith("20") and f" {event} " in line for line in log(project))


@pytest.mark.parametrize("event", ["stop", "stop-failure", "session-end", "pre-compact"])
def test_a_transcript_that_is_not_there_is_one_line(
    project: Path, tmp_path: Path, event: str
) -> None:
    session = Session(project, tmp_path)

    session.hook(event, last_assistant_message="Done.")

    [line] = log(project)
    assert f" {event} FileNotFoundError" in line
    assert str(session.transcript) in line
    assert exchanges(project) == []


@pytest.mark.parametrize("content", [b"", b"\0\0\0\n", b"no JSON\n{}\n[]\n", b'{"type": 7}\n' * 50])
def test_a_transcript_full_of_nonsense_breaks_nothing(
    project: Path, tmp_path: Path, content: bytes
) -> None:
    session = Session(project, tmp_path)
    session.transcript.write_bytes(content)

    session.hook("stop", last_assistant_message="Done.")

    assert exchanges(project) == []


def test_a_transcript_that_is_a_folder_is_one_line(project: Path, tmp_path: Path) -> None:
    session = Session(project, tmp_path)
    session.transcript.mkdir()

    session.hook("stop")

    [line] = log(project)
    assert "IsADirectoryError" in line or "PermissionError" in line


def test_a_huge_input_is_read_to_its_end_and_not_used(project: Path) -> None:
    hook("stop", b'{"cwd": "' + b"x" * 20_000_000, cwd=project)

    [line] = log(project)
    assert "the input is longer than 16777216 bytes" in line


@pytest.mark.skipif(sys.platform == "win32", reason="closing descriptors in a shell")
def test_closed_streams_break_nothing(project: Path) -> None:
    with open_ralph(project, embedder="none") as ralph:
        ralph.feature("login").remember(made("Work."))
    before = (project / ".ralph" / "db" / "memory" / "login.jsonl").read_bytes()
    given = json.dumps({"session_id": "s", "cwd": str(project)})
    script = """
        "$1" -m ralph hook session-start <&- || exit 1
        printf %s "$2" | "$1" -m ralph hook session-start >&- || exit 2
        printf %s "$2" | "$1" -m ralph hook session-start 2>&- >/dev/null || exit 3
        printf %s "$2" | "$1" -m ralph hook stop >&- 2>&- || exit 4
    """

    ran = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, given],
        cwd=project,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert (project / ".ralph" / "db" / "memory" / "login.jsonl").read_bytes() == before


@pytest.mark.parametrize("words", ["no-such-event", "", "stop now", "--verbose"])
def test_unknown_words_are_no_reason_to_fail(project: Path, words: str) -> None:
    assert hook(words, {"cwd": str(project)}, cwd=project).out == ""

    assert len(log(project)) == 1


def test_help_is_given(project: Path) -> None:
    assert hook("--help", b"", cwd=project).out.startswith("Usage: ralph hook EVENT")
    assert log(project) == []


def test_a_project_that_was_named_is_the_one(project: Path, tmp_path: Path) -> None:
    with open_ralph(project, embedder="none") as ralph:
        ralph.feature("login").remember(made("Work on the form."))
    given = {"session_id": "s", "cwd": str(tmp_path)}

    said = hook(f"session-start --project {project}", given, cwd=tmp_path)
    in_session = hook(
        "session-start", given, cwd=tmp_path, environ={"CLAUDE_PROJECT_DIR": str(project)}
    )

    assert "Work on the form." in said.context
    assert in_session.out == said.out


def test_settings_that_cannot_be_read_are_one_line(project: Path, tmp_path: Path) -> None:
    Project(project).settings_file.write_text('{"hook_timeout_s": "long"}')
    session = Session(project, tmp_path)
    session.prompts("A question")

    session.hook("stop", last_assistant_message="An answer.")

    [line] = log(project)
    assert "hook_timeout_s cannot be 'long'" in line
    assert "rag_config.json" in line


def test_a_focus_that_cannot_be_read_is_one_line_and_the_conversation_is_kept(
    project: Path, tmp_path: Path
) -> None:
    set_focus(Project(project), Focus("login"))
    (state_of(project) / "focus.json").write_text("{")
    session = Session(project, tmp_path)
    session.prompts("A question")
    session.says("An answer that is long enough to be taken for one, certainly.")

    session.hook("stop")

    assert len(exchanges(project)) == 1
    assert all("the focus cannot be read" in line for line in log(project))


def test_where_in_the_code_it_went_wrong_is_told_on_request(project: Path) -> None:
    Project(project).settings_file.write_text("{")

    hook("stop", {"session_id": "s"}, cwd=project, environ={"RALPH_DEBUG": "1"})

    assert "Traceback" in "\n".join(log(project))


def test_the_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    for _ in range(1500):
        note([str(tmp_path)], "stop", "x" * 2000)

    assert files_below(tmp_path) == {LOG_NAME, f"{LOG_NAME}.1"}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_200_000


def test_a_session_s_name_cannot_leave_its_folder(
    project: Path, tmp_path: Path, home: Path
) -> None:
    session = Session(project, tmp_path)
    before = files_below(tmp_path)
    given = session.given(session_id="../../../../outside", prompt="hello")

    hook("user-prompt-submit", given, cwd=tmp_path)

    assert files_below(tmp_path) == before
    [note_file] = home.parent.rglob("*outside*.jsonl")
    assert note_file.parent.name == "sessions"
    assert note_file.is_relative_to(home / "cache" / "hooks")


def test_a_model_is_answered_though_nothing_can_be_noted(
    project: Path, tmp_path: Path, home: Path
) -> None:
    refused = "psycopg.OperationalError: connection refused by db"
    met = ErrorSeen(refused, "runtime", resolution="Ran `docker compose up -d db`.")
    with open_ralph(project) as ralph:
        ralph.feature("db").remember(made("The database was down.", errors=(met,)))
    (home / "cache").mkdir(parents=True, exist_ok=True)
    (home / "cache" / "hooks").write_text("in the way", encoding="utf-8")
    session = Session(project, tmp_path)
    error = f"Exit code 1\n{met.message}"

    assert "Feature last worked on: db" in session.hook("session-start").context
    asked = session.hook("user-prompt-submit", prompt="the database is down, connection refused")
    assert met.message in asked.context
    failed = session.hook(
        "post-tool-use-failure", tool_name="Bash", tool_input={"command": "make"}, error=error
    )
    assert "docker compose up -d db" in failed.context
    lines = (home / "cache" / "hooks.log").read_text(encoding="utf-8").splitlines()
    assert {line.split()[1] for line in lines} == {
        "session-start",
        "user-prompt-submit",
        "post-tool-use-failure",
    }


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no RLIMIT_FSIZE")
def test_a_file_that_does_not_fit_leaves_the_one_before_it(tmp_path: Path) -> None:
    file = tmp_path / "note.jsonl"
    script = """
import resource, sys
from ralph.doors.hooks import sessions
sessions.replace(sys.argv[1], b"whole")
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
sessions.replace(sys.argv[1], b"x" * 5000)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False
    )
    assert "File too large" in ran.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["note.jsonl"]
    assert file.read_bytes() == b"whole"


def test_a_setting_of_an_earlier_version_is_a_line_in_the_log_and_not_on_the_screen(
    project: Path, tmp_path: Path
) -> None:
    Project(project).settings_file.write_text('{"hook_stop_s": 3}')
    Session(project, tmp_path).hook("session-start")  # checks that stderr is empty
    [line] = log(project)
    assert "hook_stop_s has no effect: use hook_timeout_s" in line
