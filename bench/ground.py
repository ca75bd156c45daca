"""The ground a bench stands on: a project whose memory holds so many made-up iterations."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import corpus
from bench.measure import Compared
from ralph import disk
from ralph.memories import Ralph, open_ralph
from ralph.memories.feature import FeatureMemory

FEATURE = "bench"
_MARK = "built.json"
_CHUNKS = 10
Tell = Callable[[str], None]


class Ground(msgspec.Struct, frozen=True):
    """Where the memory lies, how many records it was built with, and how the building went."""

    size: int
    project: Path
    home: Path
    scratch: Path
    ingest: Compared | None = None

    @contextmanager
    def opened(self) -> Iterator[tuple[Ralph, FeatureMemory]]:
        """The memory, open."""
        with open_ralph(self.project, home=self.home) as ralph:
            yield ralph, ralph.feature(FEATURE)

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.project / ".ralph" / "db" / "memory" / f"{FEATURE}.jsonl"


def build(folder: Path, size: int, tell: Tell) -> Ground:
    """A memory of this size in the folder; one that stands there already is used again.

    Measuring adds some records to it, and a kept folder keeps them.
    """
    ground = Ground(size, folder / "project", folder / "home", folder / "scratch")
    mark = folder / _MARK
    built = {"corpus": corpus.VERSION, "seed": corpus.SEED, "size": size}
    ground.scratch.mkdir(parents=True, exist_ok=True)
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == built:
        with ground.opened() as (_, memory):
            memory.sync()
        return ground
    for old in (ground.project, ground.home):
        shutil.rmtree(old, ignore_errors=True)
    ground.project.mkdir(parents=True)
    ingest = _ingest(ground, tell)
    mark.write_text(json.dumps(built), encoding="utf-8")
    return msgspec.structs.replace(ground, ingest=ingest)


def _ingest(ground: Ground, tell: Tell) -> Compared:
    """Fill the memory chunk by chunk, each beside writing the same data with one flush."""
    ours: list[float] = []
    reference: list[float] = []
    chunk = max(1, ground.size // _CHUNKS)
    plain = ground.scratch / "ingest.jsonl"
    with ground.opened() as (_, memory), plain.open("ab", buffering=0) as file:
        for start in range(0, ground.size, chunk):
            told = list(corpus.iterations(start, min(start + chunk, ground.size)))
            begin = time.perf_counter()
            memory.remember_all(told)
            memory.sync()
            middle = time.perf_counter()
            disk.write_all(file.fileno(), "".join(f"{json.dumps(one)}\n" for one in told).encode())
            end = time.perf_counter()
            ours.append((middle - begin) / len(told))
            reference.append((end - middle) / len(told))
            tell(f"{ground.size:,}: {start + len(told):,} records kept and indexed")
    plain.unlink()
    return Compared(tuple(ours), tuple(reference))
