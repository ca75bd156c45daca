"""A transcript too long for a hook is captured by a process that nobody waits for."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from commanding import process
from hooking import Session, exchanges, log
from looping import MARK, eventually, marked

from ralph import disk
from ralph.chat.embeddings import index_lag
from ralph.doors.hooks.long_sessions import CAPTURE, LONG_BYTES
from ralph.memory.ralph import open_ralph

COUNT = 6
# A process that is killed before it reads the second part.
KILLED = """
import os, signal, sys
from ralph.doors.hooks import long_sessions, session_end
capture_part, parts = session_end.capture_part, []
def capture_one_part(*args, **more):
    if parts:
        os.kill(os.getpid(), signal.SIGKILL)
    parts.append(True)
    return capture_part(*args, **more)
session_end._PART_BYTES = 1_000_000
session_end.capture_part = capture_one_part
long_sessions.run_capture(sys.argv[1:])
"""

if sys.platform == "win32":
    pytest.skip("processes are found as POSIX shows them", allow_module_level=True)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every process of this test inherits it; none is left."""
    name = uuid.uuid4().hex
    monkeypatch.setenv(MARK, name)
    yield name
    assert eventually(lambda: not marked(name))


@pytest.fixture
def session(project: Path, tmp_path: Path) -> Session:
    """A session whose transcript is longer than a hook reads."""
    session = Session(project, tmp_path)
    log_of_a_build = "".join(f"[{number}] compiled a file\n" for number in range(40_000))
    for number in range(COUNT):
        session.prompts(f"Question {number}: does the build pass?")
        session.runs("make", log_of_a_build)
        session.says(f"Answer {number}: yes, the build passes.")
    assert session.transcript.stat().st_size > LONG_BYTES
    return session


def questions(project: Path) -> list[str]:
    return [exchange.user.partition(":")[0] for exchange in exchanges(project)]


@pytest.mark.slow
def test_a_long_transcript_is_captured_whole_after_one_hook(session: Session, mark: str) -> None:
    session.hook("stop")

    assert eventually(lambda: not marked(mark))
    assert questions(session.project) == [f"Question {number}" for number in range(COUNT)]
    assert [exchange.status for exchange in exchanges(session.project)] == ["complete"] * COUNT
    assert [line.partition(" stop ")[2] for line in log(session.project)] == [
        f"a long transcript is captured in the background ({session.name})"
    ]

    session.prompts("One more")
    session.says("Here it is.")
    session.hook("stop")

    assert eventually(lambda: not marked(mark))
    assert questions(session.project)[COUNT:] == ["One more"]


@pytest.mark.slow
def test_a_prompt_is_answered_while_much_is_not_indexed_yet(
    project: Path, tmp_path: Path, mark: str
) -> None:
    session = Session(project, tmp_path)
    session.prompts("Why does the zebra importer time out?")
    session.says("The zebra importer times out because its connection pool has one connection.")
    session.hook("stop")
    with open_ralph(project) as ralph:
        ralph.conversations.exchange(
            ralph.conversations.start(title="Pools"),
            user="Is the pool larger now?",
            assistant="Yes.",
        )
        ralph.store.index.close()
        lock = ralph.store.home / "cache" / "conversations" / "index.lock"

    with disk.lock(lock, timeout_s=1.0):  # another process is indexing
        other = Session(project, tmp_path)
        answer = other.hook("user-prompt-submit", prompt="Why does the zebra importer time out?")
        assert "one connection" in answer.context
        assert "1 memory shown; new records are still being indexed" in answer.message

    assert eventually(lambda: not marked(mark))
    with open_ralph(project) as ralph:
        assert index_lag(ralph.conversations).current


@pytest.mark.slow
def test_a_process_that_was_killed_is_started_again_by_a_hook_of_any_session(
    session: Session, tmp_path: Path, mark: str
) -> None:
    session.hook("stop", environ={"RALPH_HOOK_TIMEOUT_S": "0.01"})  # has no time to start it
    assert not marked(mark)
    words = [sys.executable, "-c", KILLED, str(session.project), session.name]
    killed = subprocess.run(words, cwd=tmp_path, check=False, timeout=60)
    assert killed.returncode == -9
    assert 0 < len(questions(session.project)) < COUNT

    Session(session.project, tmp_path).hook("user-prompt-submit", prompt="zebra")

    assert eventually(lambda: not marked(mark))
    assert questions(session.project) == [f"Question {number}" for number in range(COUNT)]


def test_a_long_transcript_is_not_captured_where_saving_is_off(session: Session, mark: str) -> None:
    session.hook("stop", environ={"RALPH_HOOK_CAPTURE": "false"})
    assert not marked(mark)
    process(
        ["hook", CAPTURE, session.project, session.name],
        cwd=session.folder,
        environ={"RALPH_HOOK_CAPTURE": "false"},
    )
    assert questions(session.project) == []
