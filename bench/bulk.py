"""Many records at once: taken in, rebuilt, and the room they take on the disk."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

from bench.ground import Ground
from bench.measure import Compared, ratio, taken
from bench.report import NO_TARGET, Row, Target, of_times
from ralph.errors import RalphError
from ralph.text.tokens import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralph.index import Passage
    from ralph.memories.feature import FeatureMemory

_BATCH = 512
_SAMPLE = 1000
_LONG = 50_000
_REBUILD_SIZE, _REBUILD_S = 100_000, 120.0


def ingest(ground: Ground, repeat: int) -> list[Row]:
    """How the memory was built; nothing for one that stood there already."""
    if ground.ingest is None:
        return []
    return [
        of_times(
            "ingest until findable",
            ground.size,
            ground.ingest,
            "json.dumps, one flush",
            unit="s/record",
        )
    ]


def rebuild(ground: Ground, repeat: int) -> list[Row]:
    """The index made anew from the journal, beside embedding and tokenising alone.

    Half of the reference runs before it and half after, so that both meet the same noise.
    """
    ours: list[float] = []
    reference: list[float] = []
    with ground.opened() as (_, memory):
        for _ in range(1 if ground.size >= _LONG else min(repeat, 3)):
            passages = _passages(memory)
            before = _bare(memory, islice(passages, ground.size // 2))
            ours.append(taken(lambda: memory.sync(afresh=True)))
            reference.append(before + _bare(memory, passages))
    both = Compared(tuple(ours), tuple(reference))
    target = Target(value=_REBUILD_S) if ground.size == _REBUILD_SIZE else NO_TARGET
    row = of_times("rebuild", ground.size, both, "embed + tokenise alone", target=target)
    return [row, *_disk(ground, "disk a record, index after rebuilds", ("index",))]


def disk(ground: Ground, repeat: int) -> list[Row]:
    """What a record takes in the journal and in the index."""
    return [
        *_disk(ground, "disk a record, journal", ("journal",)),
        *_disk(ground, "disk a record, index", ("index",)),
        *_disk(ground, "disk a record, together", ("journal", "index")),
    ]


def _disk(ground: Ground, what: str, parts: tuple[str, ...]) -> list[Row]:
    with ground.opened() as (ralph, memory):
        index = ralph.place.index.path
        files = {"journal": [ground.journal], "index": list(index.parent.glob(f"{index.name}*"))}
        size = sum(file.stat().st_size for part in parts for file in files[part])
        with ground.journal.open("rb") as journal:
            records = sum(1 for _ in journal)
        sample = list(islice(_passages(memory), _SAMPLE))
        dims = memory.target().manifest().dims
    raw = sum(len(one.embed.encode()) for one in sample) / len(sample) + 4 * dims
    ours = size / records
    return [
        Row(
            what=what,
            size=ground.size,
            unit="bytes/record",
            ours=ours,
            reference=raw,
            reference_is="text + float32 vector",
            ratio=ratio(ours, raw),
            spread=(ratio(ours, raw), ratio(ours, raw)),
            rounds=1,
        )
    ]


def _bare(memory: FeatureMemory, passages: Iterator[Passage]) -> float:
    """The seconds that embedding and tokenising these passages take, reading left out."""
    embedder = memory.target().embedder
    if embedder is None:
        raise RalphError("the setting embedder is none, there is nothing to compare with")
    embedder.embed_query("loaded before")
    seconds = 0.0
    while some := list(islice(passages, _BATCH)):
        begin = time.perf_counter()
        embedder.embed_passages([one.embed for one in some])
        _tokenise(some)
        seconds += time.perf_counter() - begin
    return seconds


def _tokenise(passages: Sequence[Passage]) -> None:
    for one in passages:
        tokens(one.title)
        tokens(one.text)
        tokens(one.places)


def _passages(memory: FeatureMemory) -> Iterator[Passage]:
    target = memory.target()
    position: str | None = None
    done = False
    while not done:
        batch = target.journal.read(position, limit=_BATCH)
        position, done = batch.position, batch.done
        for located in batch.records:
            yield from target.cut(located.record)
