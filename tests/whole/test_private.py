"""Everything in Ralph's home is its owner's alone, at every moment, whatever the umask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hooking import Session, roomy

if sys.platform == "win32":
    pytest.skip("modes as POSIX has them", allow_module_level=True)

# Runs a command, and notes after every step what others could read of what was just made.
WATCHED = """
import os, sys
os.umask(0)
home, found = os.environ["RALPH_HOME"], os.environ["FOUND"]
last, busy = [], []

def watch(event, args):
    if busy:
        return
    busy.append(True)
    for path in last:
        if os.path.exists(path) and os.stat(path).st_mode & 0o077:
            fd = os.open(found, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(fd, f"{path} was open to all before {event}\\n".encode())
            os.close(fd)
    if event in ("open", "os.mkdir", "os.rename"):
        path = os.fspath(args[event == "os.rename"]) if not isinstance(args[0], int) else ""
        if isinstance(path, str) and path.startswith(home):
            last[:] = [*last[-20:], path]
    busy.clear()

sys.addaudithook(watch)
sys.argv[0] = "ralph"
from ralph.__main__ import main
sys.exit(main())
"""


def ralph(*words: str, cwd: Path, given: str = "") -> None:
    """A command under a umask that hides nothing; nothing it makes in the home is open to all."""
    found = cwd.parent / "found"
    environ = {**os.environ, "FOUND": str(found), "RALPH_PAUSE_FOLDERS": "[]"}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", WATCHED, *words],
        input=given.encode(),
        cwd=cwd,
        env=environ | roomy(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert not found.exists(), found.read_text()


def open_to_all(home: Path) -> list[str]:
    return [
        str(path.relative_to(home.parent))
        for path in (home, *home.rglob("*"))
        if path.lstat().st_mode & 0o077
    ]


@pytest.mark.usefixtures("home")
def test_nothing_in_the_home_can_be_read_by_others_at_any_moment(
    tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    session = Session(folder, tmp_path)
    session.prompts("Why does the gateway answer with a timeout?")
    session.says("Because of the proxy.")
    for event in ("session-start", "user-prompt-submit", "stop", "session-end"):
        ralph("hook", event, cwd=folder, given=json.dumps(session.given(prompt="the gateway")))
    (tmp_path / "sessions" / "x").mkdir(parents=True)
    session.transcript.rename(tmp_path / "sessions" / "x" / session.transcript.name)
    for words in (
        ("config", "--user", "search_limit", "5"),
        ("hooks", "install", "--user", "--no-mcp"),
        ("init",),
        ("conversations", "import", "claude-code", str(tmp_path / "sessions")),
        ("search", "gateway timeout"),
        ("workers", "run", "--once"),
        ("pause", "--here"),
        ("resume", "--here"),
        ("trust", "--yes"),
        ("feature", "add", "auth", "--description", "Sign in"),
        ("focus", "auth"),
        ("demo",),
        ("forget", "--conversations", "--all", "--yes"),
        ("index", "rebuild"),
        ("doctor",),
    ):
        ralph(*words, cwd=folder)
        assert open_to_all(home) == [], words


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_what_an_earlier_version_left_open_is_closed_at_the_next_start(
    tmp_path: Path, home: Path, mode: int
) -> None:
    folder = home / "journal" / "conversations"
    folder.mkdir(parents=True)
    (folder / "general.jsonl").touch()
    for path in (home / "journal", folder, folder / "general.jsonl"):
        path.chmod(0o755)
    home.chmod(mode)
    session = Session(tmp_path, tmp_path)
    session.hook("session-start", environ={"RALPH_PAUSE_FOLDERS": "[]"})
    assert open_to_all(home) == []
