"""The real clients: where they are, and a scratch world to run them in that leaves nothing outside.

They are installed by `scripts/clients`. Without them their tests are skipped, unless
RALPH_REQUIRE_CLIENTS=1 says that they must be there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from looping import MARK, eventually, marked, planned
from places import ROOT

from ralph.memory.ralph import open_ralph
from ralph.plan.store import Plan
from ralph.records.iteration import Iteration

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

FOLDER = Path(os.environ.get("RALPH_CLIENTS") or ROOT / ".clients").absolute()
REQUIRED = os.environ.get("RALPH_REQUIRE_CLIENTS") == "1"
BIN = FOLDER / "node_modules" / ".bin"
# For the slowest machine; nothing waits for it to pass.
PATIENCE_S = 200

FEATURES = """\
version: 1
features:
- name: export
  description: People download their articles as one file. The export is made by make, lies in
    build/export.csv and has one line an article, newest first.
"""
TASKS = """\
version: 1
tasks:
- id: 1
  feature: export
  title: Make the export
  status: pending
"""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing(what: str, todo: str) -> None:
    """Leave the test: it cannot be made here, and that is a failure where it must be."""
    if REQUIRED:
        pytest.fail(f"{what}, and RALPH_REQUIRE_CLIENTS=1 wants it. {todo}", pytrace=False)
    pytest.skip(f"{what}. {todo}")


def client(name: str) -> str:
    """The path of an installed client, or the test ends here."""
    program = BIN / name
    if not program.exists():
        missing(f"{name} is not in {FOLDER}", "Run: scripts/clients")
    return str(program)


def loopback_only() -> list[str]:
    """The beginning of a command line whose program sees no network but loopback."""
    up = 'ip link set lo up && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", up, "sh"]
    if not all(shutil.which(program, path=_SYSTEM_PATH) for program in ("unshare", "ip")):
        missing("unshare or ip is not there", "On Linux, install util-linux and iproute2.")
    tried = subprocess.run(
        [*command, "true"],
        env={"PATH": _SYSTEM_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        why = tried.stderr.strip()
        missing(f"no network namespace can be made ({why})", "Permit user namespaces.")
    return command


class World:
    """A home, a temporary folder and a project that belong to one test alone."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder = folder
        self.mark = mark
        self.home = folder / "home"
        self.temporary = folder / "tmp"
        self.home.mkdir()
        self.temporary.mkdir()
        self.environ = {
            "PATH": f"{BIN}:{_SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "RALPH_HOME": os.environ["RALPH_HOME"],  # the test's own
            "RALPH_REVIEW_EVERY": "0",
            "RALPH_SUMMARIZER_CONVERSATION_ENABLED": "false",  # no worker after a session
            "RALPH_SUMMARIZER_EXCHANGE_ENABLED": "false",
            MARK: mark,
        }

    def move_in(self, patch: pytest.MonkeyPatch) -> None:
        """Give this process the same environment, for a loop that runs in it."""
        for name in os.environ.keys() - self.environ.keys():
            patch.delenv(name)
        for name, value in self.environ.items():
            patch.setenv(name, value)

    def talk_to(self, url: str) -> None:
        """Point Claude Code at this model and keep it from everything else."""
        self.environ |= {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
        }

    def project(self, features: str, tasks: str) -> Path:
        """The project with this plan."""
        return planned(self.folder / "project", features, tasks)

    def run(
        self, words: Sequence[str | Path], *, cwd: Path | None = None, ends_with: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """A command in this world; it must end so, and within our patience."""
        with self._started(words, cwd or self.folder) as process:
            out, err = process.communicate()
        assert process.returncode == ends_with, f"{words}\n{out}\n{err}"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def loop(
        self,
        root: Path,
        *words: str,
        prefix: Sequence[str] = (),
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> Ran:
        """`ralph run` in this world; what it tells is heard while it runs."""
        events = []
        command = [*prefix, *ralph("run", "--json", *words)]
        with self._started(command, root, stderr=subprocess.STDOUT) as process:
            assert process.stdout is not None
            for line in process.stdout:
                assert line.startswith("{"), line + process.stdout.read()
                events.append(json.loads(line))
                on_event(events[-1])
        assert process.returncode == 0, events
        with open_ralph(root, embedder="none") as opened:
            names = [feature.name for feature in Plan(root).load().features]
            told = {name: [one for _, one in opened.feature(name).iterations()] for name in names}
        return Ran(events=events, told=told)

    def import_sessions(self, name: str, root: Path) -> None:
        """Bring in a client's sessions; the last answers count once they are some seconds old."""

        def is_done() -> bool:
            told = self.run(ralph("conversations", "import", name, "--json"), cwd=root).stdout
            waiting: int = json.loads(told)["waiting"]
            return waiting == 0

        assert eventually(is_done)

    @contextlib.contextmanager
    def _started(
        self, words: Sequence[str | Path], cwd: Path, stderr: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            list(map(str, words)),
            cwd=cwd,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
        ) as process:
            patience = threading.Timer(PATIENCE_S, process.kill)
            patience.start()
            try:
                yield process
                process.wait()
            finally:
                patience.cancel()
                process.kill()

    def processes(self, word: str) -> list[int]:
        """The living processes of this world that have this word in their command line."""
        return [pid for pid in self.inhabitants() if word in command_line(pid)]

    def inhabitants(self) -> list[int]:
        """The living processes that carry this world's mark, or work in its folder: clients may
        hand on little of their environment."""
        here = [pid for pid in _all_processes() if self._is_home_of(pid)]
        return sorted({*marked(self.mark), *here} - {os.getpid()})

    def _is_home_of(self, pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(self.folder)
        except OSError:  # it ended while we looked, or is none of ours
            return False


class Ran(msgspec.Struct, frozen=True):
    """What a loop told while it ran, and what it left in the journal."""

    events: list[dict[str, Any]]
    told: dict[str, list[Iteration]]

    @property
    def outcomes(self) -> list[str]:
        """How its iterations came out."""
        return [event["outcome"] for event in self.events if event["event"] == "ended"]


def ralph(*words: str | Path) -> list[str]:
    """Our own command, as the interpreter that runs the tests starts it."""
    return [sys.executable, "-m", "ralph", *map(str, words)]


def worlds(folder: Path) -> Iterator[World]:
    """A world, for a fixture; afterwards no process of it runs, and Ralph left nothing lying about.

    Its clients are told that all they know of is its own: home, temporary folder, configuration.
    """
    world = World(folder, uuid.uuid4().hex)
    yield world
    ended = eventually(lambda: not world.inhabitants())
    left = {pid: command_line(pid) for pid in world.inhabitants()}
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert ended, left
    lying_about = [one.name for one in world.temporary.iterdir() if "ralph" in one.name]
    assert not lying_about, lying_about


def _all_processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def command_line(pid: int) -> list[str]:
    """The words a process was started with; none when it is gone."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        return []
    words = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
