"""One record kept, and seen by another process, beside one flushed append and one commit."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import string
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import IO, Any

from bench import corpus
from bench.ground import FEATURE, Ground
from bench.measure import child_environment, compared
from bench.report import Row, Target, of_times
from ralph import disk
from ralph.errors import RalphError

_BINARY = getattr(os, "O_BINARY", 0)
_VECTOR = bytes(256 * 4)
_KEPT_LINES = 64
_END_TIMEOUT_S = 10.0
_WARM_UP = 3
_TABLE = "CREATE TABLE IF NOT EXISTS plain (id TEXT PRIMARY KEY, body BLOB, vector BLOB)"


def remember(ground: Ground, repeat: int) -> list[Row]:
    """One `remember`, everything loaded before."""
    with ground.opened() as (_, memory), closing(_Plain(ground)) as plain:
        rounds = 20 * repeat
        fresh = _fresh_iterations(ground, rounds + _WARM_UP)
        both = compared(
            lambda: memory.remember(next(fresh)), plain.keep, rounds=rounds, warm_up=_WARM_UP
        )
    target = Target(ratio=4.0)
    return [of_times("one remember", ground.size, both, "append + commit", target=target)]


def lag(ground: Ground, repeat: int) -> list[Row]:
    """From the call of `remember` until a process that was open before has found the record."""
    with (
        ground.opened() as (_, memory),
        closing(_Plain(ground)) as plain,
        _reader(ground, plain.path) as ask,
    ):
        rounds = 6 * repeat
        fresh = _fresh_iterations(ground, rounds + _WARM_UP)

        def ours() -> None:
            iteration, word = next(fresh), _word()
            memory.remember(iteration | {"task_title": f"{iteration['task_title']} {word}"})
            ask("memory", word)

        both = compared(ours, lambda: ask("plain", plain.keep()), rounds=rounds, warm_up=_WARM_UP)
    return [
        of_times(
            "remember until another process finds it",
            ground.size,
            both,
            "append + commit until another process reads it",
        )
    ]


class _Plain:
    """The reference: a file and a database of its own, as durable as each is by default."""

    def __init__(self, ground: Ground) -> None:
        self.path = ground.scratch / "plain.sqlite3"
        self._lines = cycle(_last_lines(ground.journal))
        file = ground.scratch / "plain.jsonl"
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)
        self._connection = sqlite3.connect(self.path)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_TABLE)
        self._connection.commit()

    def keep(self) -> str:
        """Append a line of the journal and flush it, then commit one row with text and vector."""
        line, row_id = next(self._lines), uuid.uuid4().hex
        disk.write_all(self._fd, line)
        self._connection.execute("INSERT INTO plain VALUES (?, ?, ?)", (row_id, line, _VECTOR))
        self._connection.commit()
        return row_id

    def close(self) -> None:
        os.close(self._fd)
        self._connection.close()


@contextmanager
def _reader(ground: Ground, plain: Path) -> Iterator[Any]:
    """Another process with the memory open; asked for a word, it answers when it has found it."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("reader.py"))]
    process = subprocess.Popen(
        [*command, str(ground.project), FEATURE, str(plain)],
        env=child_environment(ground.home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    stdin, stdout = _pipes(process)

    def ask(where: str, wanted: str) -> None:
        stdin.write(json.dumps([where, wanted]) + "\n")
        stdin.flush()
        if stdout.readline().strip() != "found":
            raise RalphError(f"the reading process never saw {wanted!r}", where="scripts/bench")

    try:
        if stdout.readline().strip() != "ready":
            raise RalphError("the reading process did not start", where="scripts/bench")
        yield ask
    finally:
        with suppress(OSError):  # it may have ended already, and was told of above
            stdin.close()  # its sign to end
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        stdout.close()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both were asked for")
    return process.stdin, process.stdout


def _fresh_iterations(ground: Ground, count: int) -> Iterator[dict[str, Any]]:
    """Iterations that no memory has, made beforehand; the journal numbers and the clock dates."""
    fresh = list(corpus.iterations(ground.size, ground.size + count))
    for plain in fresh:
        plain["session_id"] = uuid.uuid4().hex
        del plain["iteration_number"], plain["timestamp"]
    return iter(fresh)


def _word() -> str:
    """A word that stands nowhere."""
    return "zq" + "".join(random.choices(string.ascii_lowercase, k=12))


def _last_lines(journal: Path) -> list[bytes]:
    with journal.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _KEPT_LINES * 4096))
        return file.read().splitlines(keepends=True)[-_KEPT_LINES:]
