"""The page as a process: it listens on this machine alone, and other commands do not load it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from browsing import serving
from places import ROOT

import ralph.doors.web
from ralph.doors.rest.main import PORT, bound
from ralph.errors import RalphError


def test_serve_tells_its_address_lets_a_browser_in_and_ends_with_ctrl_c(root: Path) -> None:
    with serving(root) as page:
        assert page.get("/").status == 403
        entered = page.get(page.path)
        assert entered.status == 303
        cookie = str(entered.getheader("set-cookie")).partition(";")[0]
        own = str(entered.getheader("location"))
        assert page.get("/", cookie=cookie).status == 403
        home = page.get(own, cookie=cookie)
        assert home.status == 200
        assert home.getheader("server") is None
        if sys.platform != "win32":
            page.process.send_signal(signal.SIGINT)
            assert page.process.wait(timeout=30) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="every address of 127/8 answers there alone")
def test_it_listens_on_loopback_alone(root: Path) -> None:
    with serving(root) as page, socket.socket() as other:
        other.settimeout(5)
        with pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", page.port))


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for the browser")
def test_ui_opens_the_address_in_the_browser(root: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {seen}.new\nmv {seen}.new {seen}\n')
    script.chmod(0o755)
    with serving(root, "ui", BROWSER=f"{script} %s") as page:
        for _ in range(600):
            if seen.exists():
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                page.process.wait(timeout=0.1)
        assert seen.read_text().strip().endswith(page.path)


def run(root: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ralph", *words],
        cwd=root,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("word", ["ui", "serve"])
def test_an_agent_in_its_run_gets_no_page(root: Path, word: str) -> None:
    env = {"RALPH_FEATURE": "auth", "RALPH_TASK": "1", "RALPH_PROJECT": str(root)}
    told = run(root, word, "--port", "0", **env)
    assert told.returncode == 1
    assert "an agent in `ralph run` cannot start" in told.stderr


@pytest.mark.parametrize("word", ["ui", "serve"])
def test_help_and_wrong_words(root: Path, word: str) -> None:
    assert run(root, word, "--help").stdout.startswith(f"usage: ralph {word}")
    assert run(root, word, "--colour").returncode == 2


def test_a_project_that_is_named_must_be_there(root: Path, tmp_path: Path) -> None:
    told = run(root, "serve", "--project", str(tmp_path / "none"))
    assert told.returncode == 1
    assert "there is no folder" in told.stderr


def test_a_port_that_is_taken_is_told_and_the_usual_one_is_not_insisted_on() -> None:
    host = "127.0.0.1"
    with bound(host, 0) as first:
        taken = first.getsockname()[1]
        with pytest.raises(RalphError, match="--port"), bound(host, taken):
            pass
    with bound(host, None) as first, bound(host, None) as second:
        assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"
        # Otherwise each answer waits 40 ms: asyncio sends at once only where it is sure of TCP.
        assert first.proto == socket.IPPROTO_TCP
        assert PORT not in (second.getsockname()[1],)


@pytest.mark.parametrize(
    "words", [["--help"], ["recent", "--json"], ["status"], ["search", "login"]]
)
def test_no_other_command_loads_the_page(root: Path, words: list[str]) -> None:
    code = (
        "import sys; from ralph.doors.cli.main import run; run(sys.argv[1:]); print(*sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=root, capture_output=True, text=True, check=True
    )
    modules = {name.partition(".")[0] for name in told.stdout.splitlines()[-1].split()}
    assert modules & {"starlette", "uvicorn", "jinja2"} == set()


def test_the_wheel_has_the_files_of_the_page(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        inside = set(opened.namelist())
    folder = Path(ralph.doors.web.__file__).parent
    files = [one for part in ("static", "templates") for one in (folder / part).iterdir()]
    assert len(files) > 10
    assert {f"ralph/doors/web/{one.parent.name}/{one.name}" for one in files} <= inside
