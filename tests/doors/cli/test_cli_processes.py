"""The command line as real processes: pipes, signals, encodings, read-only projects."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commanding import COOKIE, LOGIN, process
from remembering import state_of

from ralph.memory.ralph import open_ralph

ODD = 'it\'s a "proyecto" ünïcøde 项目'


@pytest.fixture
def odd_project(tmp_path: Path) -> Path:
    """A project whose path holds what paths may hold."""
    root = tmp_path / ODD
    root.mkdir()
    with open_ralph(root, embedder="none") as ralph:
        ralph.feature("auth").remember_all([LOGIN, COOKIE])
    return root


def test_the_whole_way_in_processes(tmp_path: Path) -> None:
    root = tmp_path / ODD
    made = process(["init", root], cwd=tmp_path)
    text = json.dumps([LOGIN, COOKIE]).encode()
    kept = process(["record", "--feature", "auth", "-"], cwd=root, stdin=text)
    found = process(["search", "session cookie", "--json"], cwd=root)
    refused = process(["show", "ffffffff"], cwd=root)
    wrong = process(["search"], cwd=root)

    assert [made.returncode, kept.returncode, found.returncode] == [0, 0, 0]
    assert json.loads(found.stdout)[0]["record"]["task_id"] == 42
    assert found.stderr == b""
    assert refused.returncode == 1
    assert refused.stderr.count(b"\n") == 1
    assert b"Traceback" not in refused.stderr
    assert wrong.returncode == 2


@pytest.mark.parametrize(
    "environ",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "cp437:strict"},
    ],
)
def test_no_encoding_makes_it_fail(odd_project: Path, environ: dict[str, str]) -> None:
    environ = {**environ, "RALPH_EMBEDDER": "none"}
    text = '{"summary": "größer als 项目 \U0001f600"}'.encode()
    kept = process(
        ["record", "--feature", "Ünï", "-"], cwd=odd_project, stdin=text, environ=environ
    )
    said = process(["recent"], cwd=odd_project, environ=environ)
    told = process(["recent", "--json"], cwd=odd_project, environ=environ)

    if environ.get("PYTHONUTF8") == "0":  # then even a name on the line cannot be read as text
        assert kept.returncode == 1
        assert kept.stderr.count(b"\n") == 1
    else:
        assert kept.returncode == 0, kept
        assert json.loads(told.stdout)[0]["record"]["summary"] == "größer als 项目 \U0001f600"
    assert said.returncode == told.returncode == 0, said


def test_a_reader_that_goes_away_ends_it_quietly(odd_project: Path) -> None:
    with open_ralph(odd_project, embedder="none") as ralph:
        many = [{"summary": f"number {n}" * 50} for n in range(400)]  # more than a pipe holds
        ralph.feature("many").remember_all(many)
    with subprocess.Popen(
        [sys.executable, "-m", "ralph", "export", "-"],
        cwd=odd_project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.read(10)
        writer.stdout.close()
        complaint = writer.stderr.read()

    assert complaint == b""
    assert writer.returncode == 141


@pytest.mark.skipif(sys.platform == "win32", reason="signals of its own")
def test_ctrl_c_ends_it_quietly(odd_project: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "ralph", "record", "--feature", "auth", "-"],
        cwd=odd_project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reader:
        assert reader.stderr is not None
        # The last module it loads before it waits for stdin.
        for line in reader.stderr:
            if b"ralph.memory.feature" in line:
                break
        while Path(f"/proc/{reader.pid}/wchan").exists() and not waits(reader.pid):
            time.sleep(0.005)
        reader.send_signal(signal.SIGINT)
        rest = reader.stderr.read()

    assert reader.returncode == 130
    assert b"Traceback" not in rest


def waits(pid: int) -> bool:
    """Whether the process sleeps, so that it has come to its read."""
    return (
        Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "S"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_under_stdout_is_one_line(odd_project: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -m ralph recent > /dev/full"
    ran = subprocess.run(
        ["sh", "-c", line], cwd=odd_project, capture_output=True, timeout=60, check=False
    )

    assert ran.returncode == 1
    assert ran.stderr == b"ralph: No space left on device\n"


def read_only(project: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a world where nothing of the project can be written, even by root."""
    script = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'
    )
    return process(
        words, cwd=project, prefix=("unshare", "-m", "sh", "-c", script, "sh", str(project))
    )


def test_a_read_only_project_still_searches(odd_project: Path, home: Path) -> None:
    probe = subprocess.run(
        ["unshare", "-m", "true"] if sys.platform == "linux" else ["false"],
        capture_output=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip("only root on Linux can make a world of its own to mount in")
    for file in (state_of(odd_project)).iterdir():
        file.unlink()

    found = read_only(odd_project, "search", "session cookie", "--json")

    assert found.returncode == 0, found
    assert json.loads(found.stdout)[0]["record"]["task_id"] == 42
    refused = read_only(odd_project, "forget", "--project", "--yes")
    assert refused.returncode == 1
    assert refused.stderr.count(b"\n") == 1
    assert b"Read-only file system" in refused.stderr
    assert list(state_of(odd_project).glob("index-v*.sqlite3"))
    health = json.loads(read_only(odd_project, "doctor", "--json").stdout)
    [cache] = [check for check in health["checks"] if check["name"] == "cache"]
    assert cache["state"] == "ok"


def test_two_homes_share_nothing(odd_project: Path, tmp_path: Path) -> None:
    process(["config", "--user", "search_limit", "3"], cwd=odd_project)
    other = process(
        ["config", "search_limit"],
        cwd=odd_project,
        environ={"RALPH_HOME": str(tmp_path / "other home")},
    )
    same = process(["config", "search_limit"], cwd=odd_project)

    assert other.stdout.split() == [b"10"]
    assert same.stdout.split() == [b"3"]


def test_every_line_is_answered_from_any_folder(odd_project: Path, tmp_path: Path) -> None:
    told = process(["recent", "--project", odd_project, "--json"], cwd=tmp_path)
    also = process(["recent", "--json", f"--project={ODD}"], cwd=tmp_path)

    assert json.loads(told.stdout) == json.loads(also.stdout)
    assert os.listdir(tmp_path) == [ODD]  # noqa: PTH208 - nothing was made beside it
