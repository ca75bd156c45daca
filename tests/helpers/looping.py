"""What the tests of agents and loop share: projects with a plan, agents, and counting processes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import places
import pytest
from remembering import ToyEmbedder, state_of

import ralph.loop.agent as agent_module
from ralph.loop.agent import LoopEvent
from ralph.loop.run import RunOptions, RunResult, run
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.plan.store import Plan
from ralph.records.iteration import Iteration

FIXTURES = places.FIXTURES / "claude_code"
MARK = "RALPH_TEST_MARK"
PATIENCE_S = 60.0

FEATURES = """\
# People's own words stay.
version: 1
features:
- name: auth
  display_name: Signing in
  description: People sign in with a name and a password. The session lives in a cookie that is
    signed, and ends after a day without a request.
  architecture: A form posts to src/login.py, which checks the hash and sets the cookie.
  boundaries: No third-party identity providers.
  dependencies: [the users table]
  learnings:
  - text: The cookie must be set before the redirect.
    source: human
    reviewed: true
  - text: Hashes are compared in constant time.
    source: auto
    iteration: 2
  - text: The test database is made by make testdb.
    source: agent
    iteration: 3
- name: search
  description: Finds articles by their words, newest first, with the words marked in an excerpt
    of the article that is shown below its title.
  architecture: An inverted index in src/search.py.
"""
TASKS = """\
version: 1
tasks:
- id: 1
  feature: auth
  title: Add the login form
  description: The form asks for name and password.
  acceptance_criteria: [an empty password is refused]
  status: pending
- id: 2
  feature: auth
  title: Sign people out
  status: pending
  blocked_by: [1]
- id: 3
  feature: search
  title: Rank by age
  status: pending
  priority: 4
"""
DONE = {"edit": ".ralph/db/tasks.yaml", "old": "status: pending", "new": "status: done"}
BEGUN = {"edit": ".ralph/db/tasks.yaml", "old": "status: pending", "new": "status: in_progress"}


def planned(root: Path, features: str = FEATURES, tasks: str = TASKS) -> Path:
    """A project with this plan, made by `init` if it is none yet."""
    root.mkdir(parents=True, exist_ok=True)
    Project(root).init()
    db = root / ".ralph" / "db"
    (db / "features.yaml").write_text(features, encoding="utf-8")
    (db / "tasks.yaml").write_text(tasks, encoding="utf-8")
    return root


def scripted(folder: Path, *runs: dict[str, Any]) -> str:
    """The command of an agent that plays these runs."""
    script = folder / f"script-{uuid.uuid4().hex[:8]}.json"
    script.write_text(json.dumps({"runs": list(runs)}), encoding="utf-8")
    return command(sys.executable, "-m", "ralph.loop.scripted", str(script))


def shell(folder: Path, text: str) -> str:
    """The command of an agent that is a shell script."""
    script = folder / f"agent-{uuid.uuid4().hex[:8]}.sh"
    script.write_text(text, encoding="utf-8")
    return command("/bin/sh", str(script))


def python(folder: Path, text: str) -> str:
    """The command of an agent that is a Python script without the site's packages."""
    script = folder / f"agent-{uuid.uuid4().hex[:8]}.py"
    script.write_text(text, encoding="utf-8")
    return command(sys.executable, "-S", str(script))


def replay(fixture: str, folder: Path = FIXTURES) -> str:
    """The command of an agent that prints what a real one has printed."""
    return command("cat", str(folder / fixture))


STAND_IN = """\
#!{python} -S
import json, os, sys
from pathlib import Path

config = Path(os.environ["RALPH_MCP_CONFIG"])
kept = {{
    "argv": sys.argv[1:],
    "prompt": sys.stdin.read(),
    "config": json.loads(config.read_text()),
    "mode": oct(config.stat().st_mode & 0o777),
    "path": str(config),
    "environ": dict(os.environ),
}}
with open("../calls.jsonl", "a") as file:
    file.write(json.dumps(kept) + "\\n")
"""


def stand_in(name: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A program of this name on the path, which does nothing but keep how it was called."""
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    patch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def calls(folder: Path) -> list[dict[str, Any]]:
    """How stand-ins were called, in order."""
    return [json.loads(line) for line in lines(folder / "calls.jsonl")]


def command(*words: str) -> str:
    """The words as one would type them."""
    return shlex.join(words)


class Loop:
    """The real loop on a project, in this process; every event is kept."""

    def __init__(self, root: Path, *, grace_s: float = 0.5, **settings: Any) -> None:
        self.root = root
        self._grace_s = grace_s
        self.events: list[LoopEvent] = []
        self.stop = threading.Event()
        self.on_event: Callable[[LoopEvent], None] = lambda event: None
        self._settings: dict[str, Any] = {"review_every": 0, **settings}

    def __call__(self, agent: str, **options: Any) -> RunResult:
        """Run with this agent until the loop stops."""
        self.events.clear()
        with patch.object(agent_module, "GRACE_S", self._grace_s), self.opened() as ralph:
            chosen = RunOptions(agent=agent, **options)
            return run(ralph, chosen, listener=self._hear, stop=self.stop)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Ralph]:
        """The project's memories, with a toy for an embedder unless none is wanted."""
        with open_ralph(self.root, **self._settings) as ralph:
            if self._settings.get("embedder") != "none":
                ralph.store.embedder = ToyEmbedder()
            yield ralph

    def _hear(self, event: LoopEvent) -> None:
        self.events.append(event)
        self.on_event(event)

    def facts(self, name: str) -> list[dict[str, Any]]:
        """The facts of every event of this name."""
        return [event.facts for event in self.events if event.event == name]

    @property
    def outcomes(self) -> list[str]:
        """How the iterations of the last run came out."""
        return [facts["outcome"] for facts in self.facts("ended")]

    @property
    def repairs(self) -> str:
        """Everything the guard reported in the last run."""
        return "\n".join(line for facts in self.facts("repaired") for line in facts["lines"])

    @property
    def plan(self) -> Plan:
        """The plan as it is now."""
        return Plan(self.root)

    def told(self, feature: str = "auth") -> list[Iteration]:
        """The feature's iterations in the journal, oldest first."""
        with self.opened() as ralph:
            return [iteration for _, iteration in ralph.feature(feature).iterations()]

    @property
    def unfinished(self) -> list[Path]:
        """What is left of runs in the cache."""
        runs = state_of(self.root) / "runs"
        return [folder for folder in runs.glob("*") if folder.is_dir()]


def block_index(loop: Loop, home: Path) -> None:
    """Put something in the way wherever an index could be made."""
    with loop.opened() as ralph:
        name = ralph.store.index.path.name
        others = [*(home / "cache" / "projects").glob("*")]
    for cache in {state_of(loop.root), *others}:
        (cache / name).mkdir(parents=True)
        (cache / name / "in the way").touch()


class Late:
    """A clock for `ralph.loop.process` on which an hour has passed once the file is there."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def monotonic(self) -> float:
        return time.monotonic() + (3600 if self._file.exists() else 0)


# -- processes


def marked(mark: str) -> list[int]:
    """The living processes that inherited this mark in their environment, ours left out."""
    needle = f"{MARK}={mark}"
    if sys.platform == "linux":
        found = [
            int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _has(folder, needle)
        ]
    else:
        listing = subprocess.run(
            ["ps", "-axwwE", "-o", "pid=,command="], capture_output=True, text=True, check=True
        ).stdout
        found = [int(line.split()[0]) for line in listing.splitlines() if needle in line]
    return [pid for pid in found if pid != os.getpid()]


def _has(folder: Path, needle: str) -> bool:
    try:
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        return state != b"Z" and needle.encode() in (folder / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended while we looked
        return False


def fake_claude(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script that is called `claude` on the path."""
    claude = folder / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text(f"#!/bin/sh\n{script}\n")
    claude.chmod(0o755)
    monkeypatch.setenv("PATH", f"{claude.parent}:/usr/bin:/bin")


def none_is_left(mark: str) -> bool:
    """Whether all the marked processes end; given a long time, as machines may be slow."""
    return eventually(lambda: not marked(mark))


def eventually(true: Callable[[], bool]) -> bool:
    """Whether it becomes true before our patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def lines(file: Path) -> list[str]:
    """The file's whole lines, none when it is not there yet."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_text(encoding="utf-8").splitlines()
    return []


@contextlib.contextmanager
def ralph_process(
    words: Sequence[str], *, cwd: Path, **environ: str
) -> Iterator[subprocess.Popen[str]]:
    """The command line as a process of its own that is gone when the block is left."""
    with subprocess.Popen(
        [sys.executable, "-m", "ralph", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environ},
    ) as process:
        try:
            yield process
        finally:
            process.kill()
