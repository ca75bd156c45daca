"""`ralph conversations import` and `export` at the command line, killed and followed too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from commanding import Line, Ran
from importing import Kept, grow, just_now, turn, working, write
from looping import eventually
from places import FIXTURES

from ralph.memory.project import Project

PATIENCE_S = 60
RUNS = FIXTURES / "claude_code"


@pytest.fixture
def sessions(project: Path, tmp_path: Path) -> Path:
    """Sessions of this project and of another."""
    folder = tmp_path / "sessions"
    write(folder / "one.jsonl", [*turn("one", 1, project), *turn("one", 2, project)])
    write(folder / "two.jsonl", turn("two", 1, tmp_path / "other"))
    return folder


def test_in_a_project_its_own_sessions_come_in_and_with_all_those_of_others(
    ralph: Line, sessions: Path, project: Path, home: Path
) -> None:
    ran = ralph.well("conversations", "import", "claude-code", sessions)
    left = "1 session of other projects left out; --all includes them"
    assert ran.out == f"Imported 1 conversation, 2 exchanges ({left}).\n"
    assert Kept(home).streams() == [Project(project).id]

    ran = ralph.well("conversations", "import", "claude-code", sessions, "--all")
    assert ran.out == "Imported 1 conversation, 1 exchange (1 session unchanged).\n"
    assert len(ralph.well("conversations", "list", "--json").json) == 1
    assert len(ralph.well("conversations", "list", "--everywhere", "--json").json) == 2


def test_one_session_comes_in_by_its_file(ralph: Line, sessions: Path) -> None:
    file = sessions / "one.jsonl"
    told = ralph("conversations", "import", file).complaint
    assert "this is not a conversation" in told
    assert "For a session of Claude Code: ralph conversations import claude-code FILE" in told
    ran = ralph.well("conversations", "import", "claude-code", file)
    assert ran.out == "Imported 1 conversation, 2 exchanges.\n"


def test_the_output_of_runs_is_not_a_session_and_a_hint_says_so(
    ralph: Line, tmp_path: Path
) -> None:
    write(tmp_path / "runs" / "success.jsonl", [(RUNS / "success.jsonl").read_bytes()])
    ran = ralph.well("conversations", "import", "claude-code", tmp_path / "runs", "--all")
    hint = "1 file without exchanges; for an agent's output: ralph record FILE"
    assert ran.out == f"Imported 0 conversations, 0 exchanges ({hint}).\n"


def test_outside_a_project_all_sessions_come_in(
    ralph: Line, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    came = ralph.well("conversations", "import", "claude-code", sessions, "--json").json
    assert (came["conversations"], came["exchanges"]) == (2, 3)
    # A project that is named must be there.
    assert ralph("conversations", "import", "claude-code", "--project", outside).code == 1


def test_what_was_brought_in_is_found(ralph: Line, sessions: Path) -> None:
    ralph.well("conversations", "import", "claude-code", sessions)
    words = ("search", "answer 2 of one", "--conversations", "--min-score", "0", "--json")
    found = ralph.well(*words).json
    assert "Answer 2 of one." in [hit["record"]["assistant"] for hit in found]


def test_complaints_are_told_with_their_place(ralph: Line, sessions: Path, project: Path) -> None:
    bad = write(sessions / "bad.jsonl", [b"nonsense\n"])
    torn = write(sessions / "torn.jsonl", [*turn("torn", 1, project), b"{no\n"])
    ran = ralph.well("conversations", "import", "claude-code", sessions)
    assert ran.out.startswith("Imported 2 conversations, 3 exchanges (")
    assert ran.out.endswith(", 1 file could not be read).\n")
    assert ran.err.splitlines() == [
        f"ralph: {bad}:1: holds no session of claude-code",
        f"ralph: {torn}:3: is torn or garbled JSON; skipped",
    ]


def test_where_nothing_can_be_read_the_command_fails(ralph: Line, tmp_path: Path) -> None:
    write(tmp_path / "bad" / "bad.jsonl", [b"nonsense\n"])
    ran = ralph("conversations", "import", "claude-code", tmp_path / "bad")
    assert (ran.code, ran.out) == (
        1,
        "Imported 0 conversations, 0 exchanges (1 file could not be read).\n",
    )
    assert "there are no sessions of codex" in ralph("conversations", "import", "codex").complaint


def test_what_is_under_way_is_told(ralph: Line, tmp_path: Path, project: Path) -> None:
    write(tmp_path / "s" / "one.jsonl", just_now(working("one", 1, project)), age_s=0)
    ran = ralph.well("conversations", "import", "claude-code", tmp_path / "s")
    later = "1 session may still be running; its last exchange comes with the next import"
    assert ran.out == f"Imported 0 conversations, 0 exchanges ({later}).\n"


def test_a_file_goes_out_and_comes_in_elsewhere(
    ralph: Line, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.well("conversations", "import", "claude-code", sessions, "--all")
    file, lines = tmp_path / "talk.json", tmp_path / "talk.jsonl"
    ran = ralph.well("conversations", "export", file)
    assert ran.out == f"Wrote 1 conversation, 2 exchanges to {file}.\n"
    told = ralph.well("conversations", "export", lines, "--everywhere", "--json").json
    assert told == {"file": str(lines), "conversations": 2, "exchanges": 3}
    assert len(lines.read_bytes().splitlines()) == 2

    monkeypatch.setenv("RALPH_HOME", str(tmp_path / "elsewhere"))
    came = ralph.well("conversations", "import", file, "--json").json
    assert (came["conversations"], came["exchanges"], came["known"]) == (1, 2, 0)
    ran = ralph.well("conversations", "import", lines)
    assert ran.out == "Imported 1 conversation, 1 exchange (2 known, for 1 other project).\n"
    again = tmp_path / "again.json"
    [one] = json.loads(file.read_bytes())["conversations"]
    ralph.well("conversations", "export", again, "--conversation", one["id"])
    assert again.read_bytes() == file.read_bytes()


def test_a_pipe_carries_them_too(ralph: Line, sessions: Path) -> None:
    said = json.dumps([{"role": "user", "content": "Hello?"}, {"role": "ai", "content": "Yes."}])
    assert "1 exchange" in ralph.well("conversations", "import", "-", stdin=said).out


def test_bad_files_and_calls_are_refused(ralph: Line, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"exchanges": [{"user": 1}]}', encoding="utf-8")
    complaint = ralph("conversations", "import", bad).complaint
    assert complaint.startswith(f"ralph: {bad}.exchanges[0].user: expected `str")
    assert "No such file" in ralph("conversations", "import", tmp_path / "none.json").complaint
    assert ralph("conversations", "import", bad, "--all").code == 2
    assert ralph("conversations", "import", bad, tmp_path).code == 2
    since = ralph("conversations", "export", "-", "--since", "noon")
    assert "since 'noon' is not a day" in since.complaint


# -- as processes

IN_SMALL_STEPS = """\
import sys
from ralph.doors.cli.main import run
from ralph.memory import sessions
sessions._BATCH_BYTES = 3000
sys.exit(run(sys.argv[1:]))
"""


def start(*words: str | Path, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", IN_SMALL_STEPS, "conversations", "import", *map(str, words)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def is_at(process: subprocess.Popen[str], file: Path, size: int) -> bool:
    """Whether the file has grown to this size, or the process is at its end."""
    return process.poll() is not None or (file.exists() and file.stat().st_size >= size)


def test_killed_anywhere_nothing_is_lost_or_doubled(
    ralph: Line, tmp_path: Path, project: Path, home: Path
) -> None:
    folder = tmp_path / "many"
    for name in range(40):
        lines = [line for number in range(25) for line in turn(f"s{name}", number, project)]
        write(folder / f"s{name:02}.jsonl", lines)
    journal = home / "journal" / "conversations" / f"{Project(project).id}.jsonl"
    killed = 0
    for more in (1, 20_000, 40_000, 60_000, 80_000):
        wanted = (journal.stat().st_size if journal.exists() else 0) + more
        with start("claude-code", folder, cwd=project) as process:
            assert eventually(partial(is_at, process, journal, wanted))
            process.kill()
            process.communicate()
        killed += process.returncode != 0
    assert killed  # else this tests nothing

    ran = ralph.well("conversations", "import", "claude-code", folder)

    assert len(set(Kept(home).lines())) == len(Kept(home).lines()) == 40 + 1000, ran
    assert len(Kept(home).exchanges()) == 1000


class _Told:
    """What a process says, line by line; one that says nothing for too long is ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._out: IO[str] = process.stdout
        self._patience = threading.Timer(PATIENCE_S, process.kill)
        self._patience.start()

    def line(self) -> dict[str, Any]:
        text = self._out.readline()
        assert text, "it ended"
        found: dict[str, Any] = json.loads(text)
        return found

    def close(self) -> None:
        self._patience.cancel()


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_it_follows_what_is_new_until_it_is_interrupted(
    sessions: Path, project: Path, home: Path
) -> None:
    with start("claude-code", sessions, "--follow", "--json", cwd=project) as process:
        told = _Told(process)
        try:
            assert told.line()["exchanges"] == 2
            grow(sessions / "one.jsonl", turn("one", 3, project))
            assert told.line()["exchanges"] == 1
            write(sessions / "new.jsonl", turn("new", 1, project))
            came = told.line()
            assert (came["conversations"], came["exchanges"]) == (1, 1)
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate()
        finally:
            told.close()
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")
    assert len(Kept(home).exchanges()) == 4


def test_help_names_every_source(ralph: Line) -> None:
    ran: Ran = ralph.well("conversations", "import", "--help")
    assert "claude-code|codex|gemini-cli|opencode|FILE" in "".join(ran.out.split())
