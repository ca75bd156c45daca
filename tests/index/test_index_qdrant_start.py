"""A local Qdrant is started when nothing answers, and ends with whoever started it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from journaling import child, hear, tell
from places import TESTS
from qdrant import open_served
from qdrant_server import KEY, QdrantServer
from remembering import made, open_toy, summaries

from ralph import disk
from ralph.errors import IndexOff
from ralph.index.qdrant_start import LocalServer, local_server

if sys.platform == "win32":
    pytest.skip("a script is no program there", allow_module_level=True)

# So long may a busy machine take until a process has begun or ended.
PATIENT_S = 60.0
ASK = """
import sys
from qdrant import open_served
project, url, binary = sys.argv[1:4]
with open_served(project, url, qdrant_binary=binary, remember_budget_s=60.0) as memory:
    for line in sys.stdin:
        answer = memory.feature("auth").search(line.strip(), min_score=0.0)
        print("|".join([hit.record.summary for hit in answer] + list(answer.notes)), flush=True)
"""


@pytest.fixture
def port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A program that behaves as `qdrant` does."""
    helpers = str(TESTS / "helpers")
    return program(
        tmp_path / "qdrant",
        f"import sys; sys.path.insert(0, {helpers!r})\nimport qdrant_server\nqdrant_server.main()",
    )


def program(file: Path, text: str) -> Path:
    file.write_text(f"#!{sys.executable}\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def remembered(project: Path) -> str:
    """What the project's journal holds."""
    with open_toy(project) as memory:
        memory.feature("auth").remember(made("login form validation", session_id="1"))
    return "login form validation"


def pids(home: Path) -> list[int]:
    """The servers that were started, one after another."""
    file = home / "qdrant" / "storage" / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def ended(home: Path) -> None:
    """Return when no server runs any more: each holds the lock as long as it lives."""
    with disk.lock(home / "qdrant" / "server.lock", timeout_s=PATIENT_S):
        pass


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_is_started_when_nothing_answers_and_ends_with_us(
    project: Path, url: str, binary: Path, home: Path, remembered: str
) -> None:
    with child(ASK, project, url, binary) as asking:
        tell(asking, "login form")
        assert hear(asking) == remembered
        [pid] = pids(home)
        assert runs(pid)
        leave(asking)
    ended(home)
    assert not runs(pid)
    assert (home / "qdrant" / "qdrant.log").exists()


def test_a_server_ends_even_when_we_are_killed(
    project: Path, url: str, binary: Path, home: Path, remembered: str
) -> None:
    with child(ASK, project, url, binary) as asking:
        tell(asking, "login form")
        assert hear(asking) == remembered
        asking.kill()
        asking.wait(PATIENT_S)
    ended(home)
    [pid] = pids(home)
    assert not runs(pid)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_what_a_started_server_holds_is_there_the_next_time(
    project: Path, url: str, binary: Path, home: Path, remembered: str
) -> None:
    for _ in range(2):
        with child(ASK, project, url, binary) as asking:
            tell(asking, "login form")
            assert hear(asking) == remembered
            leave(asking)
    ended(home)
    assert len(pids(home)) == 2
    meta = (home / "qdrant" / "storage" / "local" / "meta.json").read_text()
    assert len(set(re.findall(r"-g[0-9a-f]{8}", meta))) == 1  # nothing had to be built again


def test_a_server_that_was_there_before_is_used_and_not_ended(
    project: Path, port: int, url: str, binary: Path, home: Path, remembered: str
) -> None:
    there = QdrantServer(port)
    try:
        with child(ASK, project, url, binary) as asking:
            tell(asking, "login form")
            assert hear(asking) == remembered
            leave(asking)
        assert pids(home) == []
        assert len(there.client.get_collections().collections) == 1
        assert not (home / "qdrant").exists()
    finally:
        there.close()


def leave(process: subprocess.Popen[str]) -> None:
    """Let the child end by itself."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENT_S) == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_at_once_start_one_server(
    project: Path, url: str, binary: Path, home: Path, remembered: str
) -> None:
    with child(ASK, project, url, binary) as one, child(ASK, project, url, binary) as two:
        for each in (one, two):
            tell(each, "login form")
        assert [hear(each) for each in (one, two)] == [remembered, remembered]
        assert len(pids(home)) == 1
        leave(one)
        leave(two)
    ended(home)
    assert not any(map(runs, pids(home)))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_whoever_misses_a_server_that_ended_with_another_starts_it_again(
    project: Path, url: str, binary: Path, home: Path, remembered: str
) -> None:
    with child(ASK, project, url, binary) as first, child(ASK, project, url, binary) as other:
        for each in (first, other):
            tell(each, "login form")
            assert hear(each) == remembered
        assert len(pids(home)) == 1
        leave(first)
        tell(other, "login form")
        assert hear(other) == remembered
        assert len(pids(home)) == 2
        leave(other)
    ended(home)
    assert not any(map(runs, pids(home)))


def test_the_key_reaches_the_server_and_nothing_of_ralphs_settings(
    port: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_OPENAI_API_KEY", "sk-not-for-others")
    helpers = str(TESTS / "helpers")
    told = tmp_path / "environment"
    binary = program(
        tmp_path / "qdrant",
        f"import os, sys; open({str(told)!r}, 'w').write(repr(dict(os.environ)))\n"
        f"sys.path.insert(0, {helpers!r})\nimport qdrant_server\nqdrant_server.main()",
    )
    started = local_server(url, key=KEY, binary=str(binary), home=tmp_path / "home")
    assert started is not None
    assert started.start()
    try:
        assert started.keeper is not None
        assert started.keeper.poll() is None
        assert not started.start()  # it is there now
        said = told.read_text()
    finally:
        started.stop()
    assert started.keeper is None
    ended(tmp_path / "home")
    for expected in (KEY, str(port), str(tmp_path / "home" / "qdrant" / "storage"), "127.0.0.1"):
        assert expected in said
    assert "'QDRANT__TELEMETRY_DISABLED': 'true'" in said
    assert "sk-not-for-others" not in said
    assert "RALPH_" not in said


def test_a_binary_that_ends_at_once_is_told_with_its_log(
    project: Path, url: str, tmp_path: Path, home: Path, remembered: str
) -> None:
    broken = program(tmp_path / "qdrant", "import sys; sys.exit('no space left')")
    with open_served(project, url, qdrant_binary=str(broken)) as memory:
        answer = memory.feature("auth").search("login form")
    assert summaries(answer) == [remembered]
    [note] = answer.notes
    assert "ended at once (1)" in note
    assert str(home / "qdrant" / "qdrant.log") in note
    assert "no space left" in (home / "qdrant" / "qdrant.log").read_text()


def test_a_binary_that_is_not_there_is_told(
    project: Path, url: str, tmp_path: Path, remembered: str
) -> None:
    missing = tmp_path / "nowhere" / "qdrant"
    with open_served(project, url, qdrant_binary=str(missing)) as memory:
        answer = memory.feature("auth").search("login form")
    assert summaries(answer) == [remembered]
    assert str(missing) in answer.notes[0]


def test_a_binary_that_never_gets_ready_is_ended(port: int, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    sleeper = program(
        tmp_path / "qdrant",
        f"import os, threading; open({str(told)!r}, 'w').write(str(os.getpid()))\n"
        "threading.Event().wait()",
    )
    slow = LocalServer("127.0.0.1", port, sleeper, tmp_path / "home", ready_s=1.0)
    with pytest.raises(IndexOff, match="was not ready within 1 s"):
        slow.start()
    with disk.lock(tmp_path / "home" / "server.lock", timeout_s=PATIENT_S):
        pass
    assert not told.exists() or not runs(int(told.read_text()))


def test_the_binary_on_the_path_is_taken(
    url: str, binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert local_server(url, key="", binary="", home=tmp_path) is None
    monkeypatch.setenv("PATH", str(binary.parent))
    assert local_server(url, key="", binary="", home=tmp_path) is not None


@pytest.mark.parametrize(
    "elsewhere",
    [
        "http://192.0.2.1:6333",
        "https://127.0.0.1:6333",
        "http://qdrant.example:6333",
        "http://localhost.example:6333",
        "http://127.example:6333",
        "http://127.0.0.1:99999",
    ],
)
def test_nothing_is_started_for_another_machine(elsewhere: str, binary: Path) -> None:
    found = local_server(elsewhere, key="", binary=str(binary), home=binary.parent)
    assert found is None


def test_several_threads_start_one_server(url: str, binary: Path, tmp_path: Path) -> None:
    started = local_server(url, key="", binary=str(binary), home=tmp_path / "home")
    assert started is not None
    failures: list[IndexOff] = []

    def start() -> None:
        try:
            started.start()
        except IndexOff as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(pids(tmp_path / "home")) == 1
    finally:
        started.stop()
    ended(tmp_path / "home")
