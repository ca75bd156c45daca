"""What the journal's tests share: a record in one call, and children that end with their test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import ralph
from ralph.journal import Draft, Fold, Journal
from ralph.records import Complaint, JournalRecord, Record, Tombstone
from ralph.records.iteration import Iteration, from_record, to_record

PROJECT = "9f8a4c1e-0000-4000-8000-000000000001"
_SOURCES = [Path(ralph.__file__).parents[1], Path(__file__).parent]


def note(
    run: str,
    number: int = 1,
    *,
    text: str = "",
    at: str = "2026-02-07T14:30:00Z",
    task: int | str | None = None,
    project: str = PROJECT,
) -> Record:
    """An iteration's record; its run is what tells it from others."""
    iteration = Iteration(
        feature="auth", summary=text or run, task_id=task, session_id=run, timestamp=at
    )
    return to_record(iteration, project_id=project, number=number)


def unnumbered(run: str, *, text: str = "", at: str = "2026-02-07T14:30:00Z") -> Draft:
    """The same, with its number left to the journal."""
    return lambda number: note(run, number, text=text, at=at)


def summary(record: Record) -> str:
    """What an iteration's record tells."""
    return from_record(record).summary


def living(journal: Journal) -> list[str]:
    """The summaries of a journal's living records, each once, in its order."""
    return [summary(located.record) for located in Fold(journal).records()]


def forgotten(journal: Journal) -> set[str]:
    """The ids of everything that was forgotten in a journal."""
    return {stone.id for stone in journal.read().tombstones}


def in_steps(
    journal: Journal, limit: int
) -> tuple[list[JournalRecord], list[Tombstone], list[Complaint], str | None]:
    """Everything there is, read so many lines at a time: records, tombstones, complaints, and the
    last position."""
    records: list[JournalRecord] = []
    stones: list[Tombstone] = []
    complaints: list[Complaint] = []
    position = None
    while True:
        batch = journal.read(position, limit=limit)
        assert not batch.restarted
        assert batch.done or not journal.unchanged(batch.position)
        records += batch.records
        stones += batch.tombstones
        complaints += batch.complaints
        position = batch.position
        if batch.done:
            return records, stones, complaints, position


@contextlib.contextmanager
def child(
    script: str, *args: object, under: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs the script; it is gone when the block is left."""
    command = [*under, sys.executable, "-c", textwrap.dedent(script), *map(str, args)]
    path = os.pathsep.join(map(str, _SOURCES))
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Give the child a line to read."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """Wait for the child's next line."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def run_child(script: str, *args: object, under: tuple[str, ...] = ()) -> list[str]:
    """Run the script to its end, which must be a good one, and give the lines it printed."""
    with child(script, *args, under=under) as process:
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed
    return printed.splitlines()
