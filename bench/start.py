"""`scripts/bench start`: how long a hook delays the client, and how soon the MCP server answers.

Hooks run before every prompt that a person types, and a server starts for every iteration, so fresh
processes are what counts. Each is compared with one that only imports what it cannot do without.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import corpus
from bench.measure import (
    FEATURE,
    BenchProject,
    Compared,
    child_environment,
    filled_project,
    fresh,
    in_turns,
    python,
    ralph_command,
    taken,
)
from bench.report import NO_TARGET, Row, Target, parser, row_of, show_rows
from bench.speed import NUMPY
from ralph.errors import RalphError
from ralph.plan.edit import create_feature, create_task, update_task
from ralph.plan.learnings import add
from ralph.plan.store import Plan

_SQLITE = 'python -c "import sqlite3, json"'
_EMPTY = "the SDK's own empty server"
_EMPTY_SERVER = """
from mcp.server.mcpserver import MCPServer
MCPServer("empty").run("stdio")
"""
_ANSWER_TIMEOUT_S = 60.0
_INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def main(args: Sequence[str]) -> int:
    """Measure, and show or write the results."""
    options = parser("start", __doc__, sizes="10000", repeat=15).parse_args(args)
    rows: list[Row] = []
    for size in options.sizes:
        with filled_project(size) as place:
            _work_under_way(place)
            rows += [*_hooks(place, options.repeat), *_servers(place, options.repeat)]
    return show_rows("start", rows, options)


# -- hooks


def _hooks(place: BenchProject, rounds: int) -> list[Row]:
    asked = corpus.queries(1, size=place.size)[0]
    # Words that occur nowhere: only meaning can say whether something is related.
    unheard = "please reconsider whether beforehand everybody understood zebra orchestras"
    times = in_turns(
        {
            "start": _hook(place, "session-start", source="startup"),
            "asked": _hook(place, "user-prompt-submit", prompt=asked),
            "unheard": _hook(place, "user-prompt-submit", prompt=unheard),
            "short": _hook(place, "user-prompt-submit", prompt="yes"),
            "sqlite": fresh(python("import sqlite3, json"), home=place.home),
            "numpy": fresh(python("import numpy"), home=place.home),
        },
        rounds=rounds,
    )

    def row(what: str, name: str, reference: str, shown: str, target: Target) -> Row:
        both = Compared(times[name], times[reference])
        return row_of(what, place.size, both, shown, target=target)

    return [
        row("hook session-start", "start", "sqlite", _SQLITE, Target(ratio=4.0)),
        row("hook user-prompt-submit", "asked", "numpy", NUMPY, Target(ratio=5.0)),
        row("the same, words found nowhere", "unheard", "numpy", NUMPY, Target(ratio=5.0)),
        row("the same, a prompt that says nothing", "short", "sqlite", _SQLITE, NO_TARGET),
    ]


def _hook(place: BenchProject, event: str, **facts: str) -> Callable[[], object]:
    facts = {
        "session_id": "bench",
        "transcript_path": str(place.scratch / "none.jsonl"),
        "cwd": str(place.project),
        **facts,
    }
    stdin = json.dumps(facts).encode()
    command = [*ralph_command(), "hook", event]
    environment = child_environment(place.home)

    def run() -> None:
        done = subprocess.run(
            command, input=stdin, env=environment, capture_output=True, cwd=place.project
        )
        if done.returncode:
            raise RalphError(f"hook {event} ended with {done.returncode}")

    return run


# -- the server


def _servers(place: BenchProject, rounds: int) -> list[Row]:
    ours = [*ralph_command(), "mcp", "--feature", FEATURE]
    empty = python(_EMPTY_SERVER)
    query = corpus.queries(1, size=place.size)[0]
    times = in_turns(
        {"ours": lambda: _shake(ours, place), "empty": lambda: _shake(empty, place)},
        rounds=rounds,
    )
    numpy = fresh(python("import numpy"), home=place.home)
    first: list[float] = []
    second: list[float] = []
    reference: list[float] = []
    for _ in range(rounds):
        with Server(ours, cwd=place.project, home=place.home) as server:
            server.shake()
            first.append(taken(lambda: server.search(query)))
            second.append(taken(lambda: server.search(query)))
        reference.append(taken(numpy))

    def beside_numpy(what: str, seconds: list[float], target: Target) -> Row:
        both = Compared(tuple(seconds), tuple(reference))
        return row_of(what, place.size, both, NUMPY, target=target)

    return [
        row_of(
            "mcp, start to handshake",
            place.size,
            Compared(times["ours"], times["empty"]),
            _EMPTY,
            target=Target(ratio=1.3),
        ),
        beside_numpy("mcp, first search after it", first, Target(ratio=4.0)),
        beside_numpy("mcp, second search", second, NO_TARGET),
    ]


def _shake(command: Sequence[str], place: BenchProject) -> None:
    with Server(command, cwd=place.project, home=place.home) as server:
        server.shake()


class Server:
    """An MCP server in its own process, called line by line; it ends with its block."""

    def __init__(self, command: Sequence[str], *, cwd: Path, home: Path) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(home),
            cwd=cwd,
        )
        self._alarm = threading.Timer(_ANSWER_TIMEOUT_S, self._process.kill)
        self._alarm.start()
        self._last = 0

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *trouble: object) -> None:
        self._alarm.cancel()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent bytes for a server that was killed
                    pipe.close()

    def shake(self) -> None:
        """Do the handshake."""
        self._ask("initialize", _INITIALIZE)
        self._say({"method": "notifications/initialized"})

    def end(self) -> None:
        """Close its input and wait until it has ended by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def search(self, query: str) -> None:
        """Call the search once."""
        answer = self._ask(
            "tools/call", {"name": "search_feature_memory", "arguments": {"query": query}}
        )
        if answer.get("isError"):
            raise RalphError(f"the server refused the search: {answer}")

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        self._say({"id": self._last, "method": method, "params": params})
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RalphError(f"the server answered {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
        raise RalphError(f"the server ended, or said nothing for {_ANSWER_TIMEOUT_S:.0f} s")

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


def _work_under_way(place: BenchProject) -> None:
    """Create a feature with a task in progress and learnings, and some conversations."""
    plan = Plan(place.project)
    create_feature(plan, FEATURE, {"description": "Finds things by their words. " * 20})
    for number in range(10):
        task = create_task(plan, FEATURE, f"Task {number}", {})
        if not number:
            update_task(plan, task.id, {"status": "in_progress"})
        add(plan, FEATURE, f"The module m{number} waits for its lock before it writes.")
    with place.opened() as ralph:
        talk = ralph.conversations.start("Bench")
        for made in corpus.iterations(place.size, place.size + max(10, place.size // 100)):
            ralph.conversations.exchange(
                talk, user=str(made["task_title"]), assistant=str(made["summary"])
            )
        ralph.conversations.sync()
