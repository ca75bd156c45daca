"""What hooks meet in the world: killed clients, other people's projects, locks that are held."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hooking import Session, exchanges, hook, iterations, log
from remembering import made

from ralph import disk
from ralph.memory.project import Focus, Project, set_focus
from ralph.memory.ralph import open_ralph

DONE = "The login form is there, with validation of empty passwords and its own tests."
# A client that begins a session, is given a prompt, and then waits to be killed.
CLIENT = """
import json, subprocess, sys
given = json.loads(sys.argv[1])
for event in ("session-start", "user-prompt-submit", *sys.argv[2:]):
    run = [sys.executable, "-m", "ralph", "hook", event]
    # As the real one does it: through a shell, which ends with the hook.
    subprocess.run(["sh", "-c", '"$@" || exit 0', "sh", *run], input=json.dumps(given).encode())
print("ready", flush=True)
sys.stdin.read()
"""
LINUX = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="whether a client is gone is seen in /proc"
)


@pytest.fixture
def session(project: Path, tmp_path: Path) -> Session:
    """A session in which a prompt is being worked on."""
    set_focus(Project(project), Focus("login"))
    one = Session(project, tmp_path)
    one.prompts("Add the login form")
    one.writes("src/login.py")
    return one


def client(session: Session, *events: str, **fields: object) -> Iterator[subprocess.Popen[bytes]]:
    given = session.given(prompt="Add the login form", **fields)
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, json.dumps(given), *events],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=session.folder,
    ) as process:
        try:
            assert process.stdout is not None
            while b"ready" not in process.stdout.readline():
                assert process.poll() is None
            yield process
        finally:
            process.kill()


@LINUX
def test_a_session_whose_client_was_killed_is_kept_at_the_next_start(
    session: Session, project: Path, tmp_path: Path, home: Path
) -> None:
    for process in client(session):
        process.kill()
        process.wait()
    assert exchanges(project) == []

    text = Session(project, tmp_path).hook("session-start").context

    [exchange] = exchanges(project)
    assert (exchange.user, exchange.status) == ("Add the login form", "interrupted")
    assert exchange.files_touched[0].path == "src/login.py"
    assert [one.outcome for one in iterations(project, "login")] == ["unknown"]
    assert "Add the login form" in text
    assert log(project) == []
    assert not list(home.glob(f"cache/hooks/*/sessions/{session.name}*"))


@LINUX
def test_a_session_whose_client_lives_is_left_to_it(
    session: Session, project: Path, tmp_path: Path
) -> None:
    for _ in client(session):
        Session(project, tmp_path).hook("session-start")
        other = Session(project, tmp_path)
        other.prompts("Something else")
        other.hook("stop", last_assistant_message="It was done, and that is all there is to say.")
        assert [one.user for one in exchanges(project)] == ["Something else"]

        session.says(DONE)
        session.hook("stop", last_assistant_message=DONE)

    assert [one.assistant for one in exchanges(project) if one.user == "Add the login form"] == [
        DONE
    ]


@LINUX
def test_an_error_that_killed_the_client_is_kept(
    session: Session, project: Path, tmp_path: Path
) -> None:
    """It was noted when it came up; the transcript does not have it yet."""
    broken = "Exit code 137\nError: the build ran out of memory at stage 4"
    fields = {"tool_name": "Bash", "tool_input": {"command": "make"}, "error": broken}
    for process in client(session, "post-tool-use-failure", **fields):
        process.kill()
        process.wait()

    Session(project, tmp_path).hook("session-start")

    [exchange] = exchanges(project)
    assert any("the build ran out of memory" in error.message for error in exchange.errors)


@LINUX
def test_a_killed_session_whose_transcript_is_gone_is_given_up_in_the_end(
    session: Session, project: Path, tmp_path: Path, home: Path
) -> None:
    for process in client(session):
        process.kill()
        process.wait()
    session.transcript.unlink()

    for _ in range(4):
        Session(project, tmp_path).hook("session-start")

    assert len(log(project)) == 3
    assert not list(home.glob(f"cache/hooks/*/sessions/{session.name}*"))


def test_a_session_that_ended_leaves_no_note(session: Session, home: Path) -> None:
    session.hook("session-start")
    session.hook("user-prompt-submit", prompt="Add the login form")
    session.hook("stop", last_assistant_message=DONE)
    assert list(home.glob("cache/hooks/*/sessions/*.jsonl"))

    session.hook("session-end", reason="other")

    assert not list(home.glob("cache/hooks/*/sessions/*.jsonl"))


# Somebody else's project


@pytest.fixture
def others(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """The project belongs to another user and may only be read; how to call a hook then."""
    if sys.platform == "win32":
        pytest.skip("permissions are other ones there")
    prefix: tuple[str, ...] = ()
    files = [project, *project.rglob("*")]
    if os.geteuid() == 0:
        # Root may write everywhere, except where it has given up what makes it root.
        prefix = ("unshare", "--user")
        unable = shutil.which("unshare") is None
        if unable or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
            pytest.skip("root cannot become somebody else here (unshare --user)")
        for file in files:
            os.chown(file, 65534, 65534)
        monkeypatch.setenv("SUDO_UID", "65534")  # so that the test itself may look
    for file in files:
        file.chmod(0o555 if file.is_dir() else 0o444)
    yield prefix
    for file in files:
        file.chmod(0o755 if file.is_dir() else 0o644)


def test_a_project_that_may_only_be_read_keeps_its_conversations_at_home(
    session: Session, project: Path, tmp_path: Path, home: Path, others: tuple[str, ...]
) -> None:
    before = {file: file.stat().st_mtime_ns for file in project.rglob("*")}
    session.says(DONE)
    for event in ("session-start", "user-prompt-submit", "post-tool-use-failure", "stop"):
        given = session.given(
            prompt="Add the login form",
            tool_name="Bash",
            tool_input={"command": "make"},
            error="Exit code 2\nError: no rule to make target",
            last_assistant_message=DONE,
        )
        hook(event, given, cwd=tmp_path, prefix=others)
    hook("session-end", session.given(reason="other"), cwd=tmp_path, prefix=others)

    [exchange] = exchanges(project)
    assert exchange.assistant == DONE
    assert {file: file.stat().st_mtime_ns for file in project.rglob("*")} == before
    assert iterations(project, "login") == []
    lines = log(project)
    assert len([line for line in lines if "cannot write the journal" in line]) == 1

    asked = hook(
        "user-prompt-submit",
        Session(project, tmp_path).given(prompt="add validation of passwords to the login form"),
        cwd=tmp_path,
        prefix=others,
    )
    assert DONE[:40] in asked.context


# Time


def test_a_hook_that_hangs_ends_in_time_and_says_so(session: Session, project: Path) -> None:
    """Nobody ever writes to its input."""
    reading, writing = os.pipe()
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "ralph", "hook", "stop"],
            stdin=reading,
            capture_output=True,
            cwd=project,
            timeout=60,
            check=False,
        )
    finally:
        os.close(reading)
        os.close(writing)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    [line] = log(project)
    assert " stop ended after 2 s, with its work undone" in line


def test_a_lock_that_is_held_is_not_waited_for_and_nothing_is_lost(
    session: Session, project: Path, tmp_path: Path
) -> None:
    with open_ralph(project, embedder="none") as ralph:
        ralph.feature("login").remember(made("Earlier work."))
    session.says(DONE)
    journal = project / ".ralph" / "db" / "memory" / "login.jsonl"
    environ = {"RALPH_HOOK_TIMEOUT_S": "2"}

    with disk.lock(journal, timeout_s=5):
        session.hook("stop", environ=environ, last_assistant_message=DONE)
        [line] = log(project)
        assert "another process has held the journal" in line

    session.hook("session-end", reason="other")
    assert len(exchanges(project)) == 1
    assert [one.summary for one in iterations(project, "login")] == ["Earlier work.", DONE]


def test_two_hooks_do_not_capture_at_the_same_time(
    session: Session, project: Path, home: Path
) -> None:
    session.hook("session-start")
    [folder] = (home / "cache" / "hooks").iterdir()

    with disk.lock(folder / "lock", timeout_s=5):
        environ = {"RALPH_HOOK_TIMEOUT_S": "2"}
        session.hook("stop", environ=environ, last_assistant_message=DONE)

    [line] = log(project)
    assert "another hook is capturing; this is left to a later one" in line
    session.hook("session-end", reason="other")
    assert len(exchanges(project)) == 1


def test_the_clock_ends_what_waits_too_long(session: Session, project: Path) -> None:
    journal = project / ".ralph" / "db" / "memory" / "login.jsonl"
    journal.touch()
    environ = {"RALPH_HOOK_TIMEOUT_S": "0.05"}

    session.hook("stop", environ=environ, last_assistant_message=DONE)

    [line] = log(project)
    assert " stop ended after 0.05 s, with its work undone" in line
    session.hook("stop", last_assistant_message=DONE)
    assert len(exchanges(project)) == 1


def test_what_a_killed_hook_was_writing_goes_in_the_end(session: Session, home: Path) -> None:
    session.hook("session-start")
    [note] = home.glob("cache/hooks/*/sessions/*.jsonl")
    old, new = (note.with_name(f"{note.name}.{pid}.tmp") for pid in (1, 2))
    for draft in (old, new):
        draft.write_bytes(b"{")
    os.utime(old, (0, 0))

    session.hook("session-start")

    assert sorted(note.parent.iterdir()) == [note, new]
