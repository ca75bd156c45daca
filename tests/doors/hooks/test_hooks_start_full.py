"""`ralph hooks install --user` finds what clients stored before, and imports it if it may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commanding import Line
from hooking import roomy
from importing import gemini_folder, opencode_folder, turn, write
from terminal import at_terminal

RULE = "No, don't round. We never use floats for money."
IMPORT = "ralph conversations import --all"


@pytest.fixture
def past(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home with sessions of three clients in three folders; the shop is the current."""
    person = home.parent
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    if sys.platform != "win32":
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    folders = [tmp_path / name for name in ("shop", "site", "tools")]
    for folder in folders:
        folder.mkdir()
    shop, site, tools = folders
    sessions = person / ".claude" / "projects" / "shop"
    write(sessions / "one.jsonl", [*turn("one", 1, shop), *turn("one", 2, shop, question=RULE)])
    write(sessions / "two.jsonl", turn("two", 1, shop, question="How are refunds booked?"))
    gemini_folder(person / ".gemini", site)
    opencode_folder(person / ".local" / "share", tools)
    monkeypatch.chdir(shop)
    return shop


def test_it_counts_the_sessions_of_every_client_and_names_the_command(
    ralph: Line, past: Path
) -> None:
    said = ralph.well("hooks", "install", "--user", "--no-mcp").out

    counted = "Found 4 earlier sessions in 3 projects on this machine"
    assert f"{counted} (Claude Code 2, Gemini CLI 1, OpenCode 1).\n" in said
    assert f"To import them: {IMPORT}\n" in said
    assert ralph.well("conversations", "list", "--everywhere", "--json").json == []


def test_it_imports_them_and_ends_with_something_from_them(ralph: Line, past: Path) -> None:
    said = ralph.well("hooks", "install", "--user", "--no-mcp", "--import").out

    assert "Imported 4 conversations, 5 exchanges." in said
    assert "They are of 3 projects: shop, site, tools\n" in said
    assert "You decided in shop on 2026-11-02: We never use floats for money" in said
    assert len(ralph.well("conversations", "list", "--everywhere", "--json").json) == 4
    again = ralph.well("hooks", "install", "--user", "--no-mcp", "--import").out
    assert "earlier session" not in again
    assert "You decided" not in again


def test_the_command_that_it_names_imports_the_same(ralph: Line, past: Path) -> None:
    said = ralph.well(*IMPORT.split()[1:]).out

    assert said.startswith("Imported 4 conversations, 5 exchanges.\n")
    assert "4 sessions unchanged" in ralph.well(*IMPORT.split()[1:]).out
    [hit, *_] = ralph.well("search", "refunds", "--json").json
    assert hit["record"]["user"] == "How are refunds booked?"


def test_sessions_that_hooks_saved_are_not_counted_again(ralph: Line, past: Path) -> None:
    ralph.well(*IMPORT.split()[1:])
    marks = Path(os.environ["RALPH_HOME"]) / "cache" / "imports"
    for file in marks.iterdir():
        file.unlink()

    said = ralph.well("hooks", "install", "--user", "--no-mcp").out

    assert "earlier session" not in said


def test_it_names_the_other_clients_that_are_used_here(ralph: Line, past: Path) -> None:
    said = ralph.well("hooks", "install", "--user", "--no-mcp", "--import").out

    assert "For Gemini CLI: ralph hooks install --user --agent gemini\n" in said
    assert "For Codex" not in said


def test_a_person_without_any_sessions_is_asked_nothing(ralph: Line, home: Path) -> None:
    said = ralph.well("hooks", "install", "--user", "--no-mcp").out

    assert "earlier session" not in said
    ran = ralph("conversations", "import")
    assert (ran.code, ran.out) == (1, "")
    assert "no client has sessions on this machine (Claude Code, Codex, " in ran.complaint


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such terminal")
@pytest.mark.parametrize(("key", "imported"), [("\n", 4), ("n\n", 0)])
def test_at_a_terminal_it_asks_first(ralph: Line, past: Path, key: str, imported: int) -> None:
    words = ["hooks", "install", "--user", "--no-mcp"]
    with at_terminal(words, cwd=past) as (process, screen):
        assert "Found 4 earlier sessions" in screen.until("[Y/n] ")
        screen.type(key)
        screen.until("never comes", quiet_s=60 if imported else 20)
        assert process.wait(timeout=60) == 0

    assert len(ralph.well("conversations", "list", "--everywhere", "--json").json) == imported


def test_what_was_said_before_is_told_where_it_was_said(ralph: Line, past: Path) -> None:
    """A held command or a decision must not wait for the next session to be saved there."""
    ralph.well("hooks", "install", "--user", "--no-mcp", "--import")

    started = subprocess.run(
        [sys.executable, "-m", "ralph", "hook", "session-start"],
        cwd=past,
        input=b'{"session_id": "new", "hook_event_name": "SessionStart", "source": "startup"}',
        capture_output=True,
        env={**os.environ, **roomy()},
        check=True,
        timeout=60,
    )

    assert b"never use floats for money" in started.stdout
