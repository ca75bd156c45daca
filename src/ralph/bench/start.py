"""`ralph bench start`: how long a hook delays the client, and how soon the MCP server answers.

Hooks run before every prompt a person types and a server is started for every iteration, so what
counts is fresh processes: each beside one that only imports what it cannot do without.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ralph.bench import corpus
from ralph.bench.ground import FEATURE, Ground, build
from ralph.bench.measure import (
    Compared,
    child_environment,
    fresh,
    in_turns,
    python,
    ralph_command,
    taken,
)
from ralph.bench.report import NO_TARGET, Row, Target, of_times, to_json, to_markdown, write_table
from ralph.errors import BadInput, RalphError
from ralph.plan.edit import create_feature, create_task, update_task
from ralph.plan.learnings import add
from ralph.plan.store import Plan

_SIZE = 10_000
_SQLITE = 'python -c "import sqlite3, json"'
_NUMPY = 'python -c "import numpy"'
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
    """Measure, and show or write what came out; 2 for arguments that make no sense."""
    try:
        options = _parser().parse_args(args)
    except SystemExit as end:
        return int(end.code or 0)
    if options.size < 1 or options.repeat < 1:
        raise BadInput("--size and --repeat go from 1 upwards")
    rows = measured(options.size, rounds=options.repeat)
    if options.out:
        options.out.write_text(to_markdown(rows, name="start"), encoding="utf-8")
    if options.json:
        report = to_json(rows, sizes=[options.size], name="start")
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        write_table(rows, sys.stdout.write, name="start")
    return 0


def measured(size: int, *, rounds: int) -> list[Row]:
    """All rows at one size; nothing is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    try:
        ground = build(folder, size, lambda text: None)
        _work_under_way(ground)
        return [*_hooks(ground, rounds), *_servers(ground, rounds)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- hooks


def _hooks(ground: Ground, rounds: int) -> list[Row]:
    asked = corpus.queries(1, size=ground.size)[0]
    # Words that stand nowhere: only meaning can say whether something is related.
    unheard = "please reconsider whether beforehand everybody understood zebra orchestras"
    times = in_turns(
        {
            "start": _hook(ground, "session-start", source="startup"),
            "asked": _hook(ground, "user-prompt-submit", prompt=asked),
            "unheard": _hook(ground, "user-prompt-submit", prompt=unheard),
            "short": _hook(ground, "user-prompt-submit", prompt="yes"),
            "sqlite": fresh(python("import sqlite3, json"), home=ground.home),
            "numpy": fresh(python("import numpy"), home=ground.home),
        },
        rounds=rounds,
    )

    def row(what: str, name: str, reference: str, shown: str, target: Target) -> Row:
        both = Compared(times[name], times[reference])
        return of_times(what, ground.size, both, shown, target=target)

    return [
        row("hook session-start", "start", "sqlite", _SQLITE, Target(ratio=4.0)),
        row("hook user-prompt-submit", "asked", "numpy", _NUMPY, Target(ratio=5.0)),
        row("the same, words found nowhere", "unheard", "numpy", _NUMPY, Target(ratio=5.0)),
        row("the same, a prompt that says nothing", "short", "sqlite", _SQLITE, NO_TARGET),
    ]


def _hook(ground: Ground, event: str, **facts: str) -> Callable[[], object]:
    told = {
        "session_id": "bench",
        "transcript_path": str(ground.scratch / "none.jsonl"),
        "cwd": str(ground.project),
        **facts,
    }
    stdin = json.dumps(told).encode()
    command = [*ralph_command(), "hook", event]
    environment = child_environment(ground.home)

    def run() -> None:
        done = subprocess.run(
            command, input=stdin, env=environment, capture_output=True, cwd=ground.project
        )
        if done.returncode:
            raise RalphError(f"hook {event} ended with {done.returncode}")

    return run


# -- the server


def _servers(ground: Ground, rounds: int) -> list[Row]:
    ours = [*ralph_command(), "mcp", "--feature", FEATURE]
    empty = python(_EMPTY_SERVER)
    query = corpus.queries(1, size=ground.size)[0]
    times = in_turns(
        {"ours": lambda: _shake(ours, ground), "empty": lambda: _shake(empty, ground)},
        rounds=rounds,
    )
    numpy = fresh(python("import numpy"), home=ground.home)
    first: list[float] = []
    second: list[float] = []
    reference: list[float] = []
    for _ in range(rounds):
        with _Server(ours, ground) as server:
            server.shake()
            first.append(taken(lambda: server.search(query)))
            second.append(taken(lambda: server.search(query)))
        reference.append(taken(numpy))

    def beside_numpy(what: str, seconds: list[float], target: Target) -> Row:
        both = Compared(tuple(seconds), tuple(reference))
        return of_times(what, ground.size, both, _NUMPY, target=target)

    return [
        of_times(
            "mcp, start to handshake",
            ground.size,
            Compared(times["ours"], times["empty"]),
            _EMPTY,
            target=Target(ratio=1.3),
        ),
        beside_numpy("mcp, first search after it", first, Target(ratio=4.0)),
        beside_numpy("mcp, second search", second, NO_TARGET),
    ]


def _shake(command: Sequence[str], ground: Ground) -> None:
    with _Server(command, ground) as server:
        server.shake()


class _Server:
    """An MCP server as a process of its own, spoken to line by line; it ends with its block."""

    def __init__(self, command: Sequence[str], ground: Ground) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(ground.home),
            cwd=ground.project,
        )
        self._alarm = threading.Timer(_ANSWER_TIMEOUT_S, self._process.kill)
        self._alarm.start()
        self._last = 0

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *trouble: object) -> None:
        self._alarm.cancel()
        self._process.kill()
        self._process.communicate()

    def shake(self) -> None:
        self._ask("initialize", _INITIALIZE)
        self._say({"method": "notifications/initialized"})

    def search(self, query: str) -> None:
        told = self._ask(
            "tools/call", {"name": "search_feature_memory", "arguments": {"query": query}}
        )
        if told.get("isError"):
            raise RalphError(f"the server refused the search: {told}")

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


def _work_under_way(ground: Ground) -> None:
    """A feature with a task in progress and some learnings, and conversations beside it."""
    plan = Plan(ground.project)
    create_feature(plan, FEATURE, {"description": "Finds things by their words. " * 20})
    for number in range(10):
        task = create_task(plan, FEATURE, f"Task {number}", {})
        if not number:
            update_task(plan, task.id, {"status": "in_progress"})
        add(plan, FEATURE, f"The module m{number} waits for its lock before it writes.")
    with ground.opened() as (ralph, _):
        talk = ralph.conversations.start("Bench")
        for told in corpus.iterations(ground.size, ground.size + max(10, ground.size // 100)):
            ralph.conversations.exchange(
                talk, user=str(told["task_title"]), assistant=str(told["summary"])
            )
        ralph.conversations.sync()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ralph bench start", description=__doc__)
    parser.add_argument("--size", type=int, default=_SIZE, help="how many records (default 10000)")
    parser.add_argument("--repeat", type=int, default=15, help="rounds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write a Markdown table to this file too")
    return parser
