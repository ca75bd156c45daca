"""The worker that a session's end starts: it summarizes, nobody waits for it, and it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import MODEL, running
from commanding import Line, process
from hooking import NO_WORKER, Session, hook, log
from looping import MARK, eventually, marked

from ralph import disk
from ralph.memory.activity import WORKER, Activity, note_activity, read_activity
from ralph.memory.ralph import open_ralph
from ralph.state_folders import hooks_folder

DONE = "The login form is there, with validation of empty passwords and its own tests."
ON = dict.fromkeys(NO_WORKER, "true")
# A worker that ends soon after its time, as a process of its own.
IMPATIENT = """
import sys
from ralph.doors.hooks import worker
worker._GRACE_S = 0.2
worker.run_worker(sys.argv[1:])
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
def session(project: Path, tmp_path: Path, mark: str) -> Session:
    """A session that saved one exchange."""
    one = Session(project, tmp_path)
    one.prompts("Add the login form")
    one.writes("login.py")
    one.says(DONE)
    one.hook("stop", last_assistant_message=DONE)
    return one


def summaries(project: Path) -> list[str]:
    with open_ralph(project) as ralph:
        found = ralph.conversations.stream.history.summaries
        return [one.text for one in found.values()]


def workers(project: Path) -> list[Activity]:
    found = read_activity(hooks_folder(str(project), disk.home()))
    return [one for one in found if one.event == WORKER]


def end(session: Session, event: str = "session-end", **more: str) -> None:
    session.hook(event, environ=ON | more, source="startup", reason="other")


def test_the_end_of_a_session_has_it_summarized(session: Session, mark: str) -> None:
    end(session)

    assert eventually(lambda: bool(workers(session.project)))
    assert eventually(lambda: not marked(mark))
    assert len(summaries(session.project)) == 2  # of the conversation, and of the exchange
    assert [(one.left, one.spend_usd) for one in workers(session.project)] == [(0, 0.0)]
    assert log(session.project) == []


def test_a_session_that_never_ended_is_summarized_at_the_start_of_the_next(
    session: Session, tmp_path: Path
) -> None:
    end(Session(session.project, tmp_path), "session-start")
    assert eventually(lambda: bool(workers(session.project)))
    assert len(summaries(session.project)) == 2


def test_no_worker_starts_where_there_is_nothing_to_do(session: Session, mark: str) -> None:
    end(session)
    assert eventually(lambda: bool(workers(session.project)))
    assert eventually(lambda: not marked(mark))

    end(Session(session.project, session.folder), "session-start")
    end(session)

    assert marked(mark) == []
    assert len(workers(session.project)) == 1


@pytest.mark.parametrize(
    "more", [dict.fromkeys(NO_WORKER, "false"), {"RALPH_HOOK_CAPTURE": "false"}]
)
def test_a_setting_turns_it_off(session: Session, mark: str, more: dict[str, str]) -> None:
    end(session, **more)
    assert marked(mark) == []
    assert workers(session.project) == []


def test_nothing_starts_in_a_pause(
    session: Session, mark: str, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(session.project)
    ralph.well("pause")
    end(session)
    assert marked(mark) == []


def test_neither_the_hook_nor_its_streams_wait_for_the_worker(session: Session, mark: str) -> None:
    with running() as server:
        server.fail("hang")
        asked = {"RALPH_SUMMARY_MODEL": f"openai:{MODEL}", "RALPH_SUMMARY_BASE_URL": server.url}
        # A pipe ends when every process that has it is gone.
        hook(
            "session-end", session.given(), cwd=session.folder, environ=ON | asked, prefix=("env",)
        )
        assert eventually(lambda: bool(server.requests))
        assert len(marked(mark)) == 1
        # The second gives way to the first.
        process(["hook", "worker", "60", str(session.project)], cwd=session.folder)
        assert workers(session.project) == []
        [pid] = marked(mark)
        if sys.platform == "linux":
            streams = {str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)}
            assert streams == {os.devnull}
        assert os.getsid(pid) == pid
    assert eventually(lambda: bool(workers(session.project)))


def test_a_worker_whose_model_hangs_ends_when_its_time_is_over(session: Session) -> None:
    with running() as server:
        server.fail("hang")
        environ = {"RALPH_SUMMARY_MODEL": f"openai:{MODEL}", "RALPH_SUMMARY_BASE_URL": server.url}
        ran = subprocess.run(
            [sys.executable, "-c", IMPATIENT, "2", str(session.project)],
            env={**os.environ, **environ},
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0
    [worker] = workers(session.project)
    assert worker.left


def test_within_a_day_workers_spend_no_more_than_one_run_may(session: Session, mark: str) -> None:
    """A cap for each session would be no cap."""
    other = hooks_folder("/some/other/project", disk.home())
    note_activity(other, WORKER, spend_usd=0.6)
    with running() as server:
        environ = {
            "RALPH_SUMMARY_MODEL": f"openai:{MODEL}",
            "RALPH_SUMMARY_BASE_URL": server.url,
            "RALPH_SUMMARY_SPEND_CAP_USD": "0.5",
        }
        end(session, **environ)
        assert marked(mark) == []
        words = ["hook", "worker", "60", str(session.project)]
        process(words, cwd=session.folder, environ=environ)
        assert len(workers(session.project)) == 1
        assert server.requests == []
        process(words, cwd=session.folder, environ=environ | {"RALPH_SUMMARY_SPEND_CAP_USD": "5"})
        assert server.requests


def test_the_next_session_starts_as_fast_as_before(session: Session, mark: str) -> None:
    end(session)
    assert eventually(lambda: bool(workers(session.project)))
    assert eventually(lambda: not marked(mark))

    given = Session(session.project, session.folder).given(source="startup")
    started = hook("session-start", given, cwd=session.folder, environ=ON, python=("-Ximporttime",))

    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in started.err.splitlines()
    }
    assert "Add the login form" in started.context
    assert loaded & {"msgspec", "sqlite3", "subprocess"} == set()


def test_what_a_worker_cannot_read_is_a_line_in_the_log(session: Session, home: Path) -> None:
    (home / "config.json").write_text("{", encoding="utf-8")
    ran = process(["hook", "worker", "60", str(session.project)], cwd=session.folder)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "worker" in log(session.project)[-1]
