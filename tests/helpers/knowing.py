"""What the tests of knowledge share: lessons in one call, and projects that share a home."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from remembering import ToyEmbedder, marker

from ralph.index import Embedder
from ralph.index.sync import live_of
from ralph.memory import checkpoints
from ralph.memory.knowledge import Knowledge
from ralph.memory.ralph import open_ralph
from ralph.records.knowledge import (
    Checkpoint,
    FailureSolution,
    PublishedEntry,
    entry_record,
    pattern_id,
)

# Each tells of another problem with another solution.
LESSONS: tuple[tuple[str, str, str], ...] = (
    (
        "The database migration fails in CI",
        "sqlalchemy.exc.OperationalError: no such table: users",
        "Run alembic upgrade head before the tests start",
    ),
    (
        "The container is killed while webpack bundles the frontend",
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        "Give node more memory with NODE_OPTIONS and split the vendor chunk",
    ),
    (
        "Login cookies vanish behind the load balancer",
        "Set-Cookie was blocked because it had the Secure attribute",
        "Trust the X-Forwarded-Proto header of the proxy",
    ),
    (
        "The nightly backup of the ledger is empty",
        "pg_dump: error: permission denied for schema audit",
        "Grant usage on the schema to the role that makes the dump",
    ),
    (
        "Cargo cannot link on the build machine",
        "error: linker cc not found",
        "Install the package build-essential in the image",
    ),
    (
        "The websocket closes after a minute of silence",
        "1006 abnormal closure",
        "Send a ping frame every twenty seconds",
    ),
    (
        "Sorting invoices by name puts accented letters last",
        "",
        "Use a collation of the reader's language in ORDER BY",
    ),
    (
        "The Android emulator never boots on the runner",
        "PANIC: Cannot find AVD system path",
        "Enable nested virtualisation and download the system image first",
    ),
    (
        "Terraform wants to destroy the bucket on every apply",
        "Error: BucketNotEmpty",
        "Import the existing bucket into the state and ignore its tags",
    ),
    (
        "Thumbnails are upside down for pictures taken with a phone",
        "",
        "Apply the EXIF orientation before the picture is scaled",
    ),
    (
        "Kafka consumers process messages twice after a deploy",
        "CommitFailedException: the group has already rebalanced",
        "Commit offsets by hand after the write and make the handler idempotent",
    ),
    (
        "The German translation overflows the checkout button",
        "",
        "Let the label wrap and give the button a minimum height",
    ),
)


def lesson(n: int = 0, **more: Any) -> dict[str, Any]:
    """One of the lessons, as it is captured."""
    problem, error, solution = LESSONS[n]
    told = {
        "entry_type": "failure_solution",
        "failure_description": problem,
        "error_message": error,
        "solution_steps": solution,
    }
    return {**told, **more}


def solved(problem: str, solution: str, **more: Any) -> dict[str, Any]:
    """A failure and what solved it."""
    told = {"entry_type": "failure_solution", "failure_description": problem}
    return {**told, "solution_steps": solution, **more}


def many(count: int, *, project: str = "", start: int = 0) -> list[FailureSolution]:
    """So many lessons, each with words that only it has."""
    return [
        FailureSolution(
            project=project,
            failure_description=f"{LESSONS[n % len(LESSONS)][0]}: {marker(n)}",
            solution_steps=f"{LESSONS[n % len(LESSONS)][2]}, then remove {marker(n + 50_000)}",
        )
        for n in range(start, start + count)
    ]


@contextlib.contextmanager
def opened(
    root: Path, toy: Embedder | None = None, *, batch: int = checkpoints.BATCH, **settings: Any
) -> Iterator[Knowledge]:
    """The knowledge as a project sees it, by a toy embedder; all projects share the test's home."""
    with patch.object(checkpoints, "BATCH", batch), open_ralph(root, **settings) as ralph:
        if "embedder" not in settings:
            ralph.store.embedder = toy or ToyEmbedder()
        yield ralph.knowledge


def published_at(knowledge: Knowledge, at: str, *, project: str = "") -> list[str]:
    """Write the checkpoint that another time would have written, each entry a pattern."""
    waiting = knowledge.staged(project or None)
    name = waiting[0].record.project
    covers = tuple(PublishedEntry(one.id, pattern_id(one.id)) for one in waiting)
    line = Checkpoint(project=name, why="manual", covers=covers)
    knowledge.write(name, lambda n: entry_record(line, id=f"checkpoint-{at}", number=n, at=at))
    return [one.id for one in waiting]


def journals(home: Path) -> list[Path]:
    """The journals of knowledge."""
    return sorted((home / "journal" / "knowledge").glob("*.jsonl"))


def lines(home: Path) -> list[dict[str, Any]]:
    """Every line of every journal of knowledge."""
    return [json.loads(line) for file in journals(home) for line in file.read_bytes().splitlines()]


def ids_indexed(knowledge: Knowledge) -> list[str]:
    """The entries that the index holds, however often."""
    with knowledge.store.index.store.state() as view:
        live = live_of(view, knowledge.target().name)
        return [] if live is None else sorted(one for one, _ in view.content(live).keys)


def problems(found: Iterable[Any]) -> list[str]:
    """The problems of the patterns, first lines only."""
    return [one.problem.splitlines()[0] for one in found]
