"""Bringing a collection up to its journal: the only place where the index is written.

Each batch moves the position in the same transaction as its rows, so that a sync that was killed
goes on where it stopped. What no longer fits (another embedder, tokeniser or way of cutting) is
built anew beside the old and then takes its place.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from collections.abc import Collection as Sized
from typing import TYPE_CHECKING

import msgspec

from ralph.errors import EmbedderOff, IndexOff
from ralph.index import (
    ASIDE,
    ASIDE_WEIGHT,
    Collection,
    Cut,
    Embedder,
    IndexBatch,
    IndexedRecord,
    IndexStore,
    IndexView,
    Manifest,
    Passage,
    RecordKey,
)
from ralph.journal import Followed
from ralph.records import Record
from ralph.text.tokens import TOKENISER_VERSION

if TYPE_CHECKING:
    from ralph.index import Vectors

_BATCH = 512
_PORTIONS = 8
_TRIES = 3

# Told how many records the index has by now, while a sync goes on.
Progress = Callable[[int], None]


class Synced(msgspec.Struct, frozen=True):
    """How far a sync got: whether the collection is complete, and what stood in the way."""

    complete: bool
    rebuilt: bool = False
    written: int = 0
    embedder_off: str | None = None


class IndexSpec(msgspec.Struct, frozen=True):
    """A collection, the journal it comes from, and how its records are cut and embedded."""

    name: str
    stream: str
    journal: Followed
    cut: Cut
    cut_version: str
    embedder: Embedder | None

    def manifest(self) -> Manifest:
        """What the collection must have been built with."""
        identity, dims = ("none", 0) if self.embedder is None else _named(self.embedder)
        return Manifest(identity, dims, TOKENISER_VERSION, self.cut_version)


def live_of(view: IndexView, name: str) -> Collection | None:
    """The collection that answers under this name."""
    return next((one for one in view.collections(name) if one.live), None)


def is_current(store: IndexStore, spec: IndexSpec) -> bool:
    """Whether there is nothing to do; cheap, for every query."""
    with store.state() as view:
        return is_current_in(view, spec)


def is_current_in(view: IndexView, spec: IndexSpec) -> bool:
    """The same, of one state of the store."""
    found = view.collections(spec.name)
    if len(found) != 1:
        return False  # nothing yet, or one is being built to replace the other
    [one] = found
    if not one.live or one.sweeping or one.waiting or one.needs_vacuum:
        return False
    return one.manifest == spec.manifest() and spec.journal.unchanged(one.position)


def sync(
    store: IndexStore,
    spec: IndexSpec,
    *,
    budget_s: float | None = None,
    afresh: bool = False,
    renew: bool = False,
    progress: Progress | None = None,
) -> Synced:
    """Index what the journal has and the collection lacks, for as long as the budget allows.

    `afresh` builds all of it anew; `renew` does too, but uses the vectors there are.
    Whoever calls it holds the lock: one process at a time works on an index.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(_EmbedderChanged):
            return _SyncRun(store, spec, budget_s, progress).go(afresh=afresh, renew=renew)
    raise IndexOff("the embedder keeps changing its model", where=store.where)


class _EmbedderChanged(Exception):
    """The embedder turned out to be another one than the collection is built with."""


class _SyncRun:
    def __init__(
        self, store: IndexStore, spec: IndexSpec, budget_s: float | None, progress: Progress | None
    ) -> None:
        self._store = store
        self._spec = spec
        self._manifest = spec.manifest()
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._progress = progress or (lambda done: None)
        self._reusable: dict[bytes, bytes] = {}
        self._embedder_off: str | None = None
        self._written = 0

    def go(self, *, afresh: bool, renew: bool) -> Synced:
        with self._store.state() as view:
            found = view.collections(self._spec.name)
            live = next((one for one in found if one.live), None)
            building = next((one for one in found if not one.live), None)
            collection = self._choose(live, building, anew=afresh or renew)
            if live and collection is not live and not afresh and self._same_vectors(live):
                self._reusable = view.content(live).vectors
        if building and collection is live:
            self._store.drop(self._spec.name, unfinished=True)
        collection, complete = self._follow(collection)
        if complete and collection.waiting:
            complete = self._embed_waiting(collection)
        rebuilt = live is not None and collection.id != live.id
        return Synced(complete, rebuilt, self._written, self._embedder_off)

    def _choose(
        self, live: Collection | None, building: Collection | None, *, anew: bool
    ) -> Collection:
        """The collection to work on: one that fits, or a new one beside it."""
        for one in (building, live):
            if one and one.manifest == self._manifest and not anew:
                return one
        return Collection(self._spec.name, self._spec.stream, self._manifest)

    def _same_vectors(self, live: Collection) -> bool:
        old, new = live.manifest, self._manifest
        return (old.embedder, old.dims) == (new.embedder, new.dims)

    def _follow(self, collection: Collection) -> tuple[Collection, bool]:
        while True:
            batch = self._spec.journal.read(collection.position, limit=self._limit())
            records: dict[RecordKey, Record] = {}
            for located in batch.records:
                records.setdefault((located.record.id, located.record.digest), located.record)
            before = self._written
            forget = {stone.id for stone in batch.tombstones}
            step = IndexBatch(
                records,
                functools.partial(self._prepare, records, forget),
                forget=forget,
                position=batch.position,
                restart=batch.restarted,
                done=batch.done,
            )
            collection = self._store.write(collection, step)
            self._progress(before + len(records))
            if batch.done or self._late():
                return collection, batch.done

    def _prepare(
        self,
        records: Mapping[RecordKey, Record],
        forget: Set[str],
        indexed: Sized[RecordKey],
        forgotten: Sized[str],
    ) -> list[IndexedRecord]:
        cut = [
            (record, self._cut(record))
            for key, record in records.items()
            if key not in indexed and record.id not in forget and record.id not in forgotten
        ]
        hashes = [[_hash(p) for p in passages] for _, passages in cut]
        wanted = [
            (h, p.embed)
            for (_, passages), row in zip(cut, hashes, strict=True)
            for p, h in zip(passages, row, strict=True)
            if h not in self._reusable and p.embed
        ]
        made = self._embed(wanted)
        self._written += len(cut)
        return [
            IndexedRecord(
                record, passages, row, [self._reusable.get(h) or made.get(h) for h in row]
            )
            for (record, passages), row in zip(cut, hashes, strict=True)
        ]

    def _cut(self, record: Record) -> list[Passage]:
        passages = list(self._spec.cut(record))
        if self._spec.embedder is not None:
            return passages
        return [msgspec.structs.replace(passage, embed="") for passage in passages]

    def _embed(self, wanted: Sequence[tuple[bytes, str]]) -> dict[bytes, bytes]:
        """Vectors by hash, for as many as there is time; the other passages wait for theirs."""
        embedder = self._spec.embedder
        made: dict[bytes, bytes] = {}
        if embedder is None or self._embedder_off is not None:
            return made
        try:
            for some in _portions(dict(wanted), embedder):
                if made and self._late():
                    break
                made |= self._vectors(embedder, some)
        except EmbedderOff as error:
            self._embedder_off = str(error)  # words go on without it
        return made

    def _vectors(
        self, embedder: Embedder, some: dict[bytes, Sequence[_Piece]]
    ) -> dict[bytes, bytes]:
        import numpy as np

        pieces = [piece for row in some.values() for piece in row]
        left_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        vectors = embedder.embed_passages([text for text, _ in pieces], budget_s=left_s)
        if _named(embedder) != (self._manifest.embedder, self._manifest.dims):
            raise _EmbedderChanged  # its server has told us only now which one it is
        _check_shape(vectors, len(pieces), embedder)
        if any(weight != 1.0 for _, weight in pieces):
            vectors = vectors * np.array([[weight] for _, weight in pieces], dtype=np.float32)
        ends = itertools.accumulate(map(len, some.values()))
        return {
            h: vectors[end - len(row) : end].tobytes()
            for (h, row), end in zip(some.items(), ends, strict=True)
        }

    def _embed_waiting(self, collection: Collection) -> bool:
        """Catch up on passages that were indexed while the embedder was off."""
        while self._embedder_off is None and not self._late():
            with self._store.state() as view:
                waiting = view.waiting(collection, self._limit())
            if not waiting:
                return True
            made = self._embed([(str(row).encode(), text) for row, text in waiting])
            filled = [(int(row), vector) for row, vector in made.items()]
            collection = self._store.write(collection, IndexBatch(vectors=filled))
        return False

    def _limit(self) -> int:
        """How many records at once: what a slow embedder has done is kept more often."""
        embedder = self._spec.embedder
        return _BATCH if embedder is None else min(_BATCH, _PORTIONS * embedder.batch)

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline


# A text that is embedded at once, and how much its nearness counts.
_Piece = tuple[str, float]


def _pieces(text: str, embedder: Embedder) -> list[_Piece]:
    main, _, aside = text.partition(ASIDE)
    return [
        (piece, weight)
        for part, weight in ((main, 1.0), (aside, ASIDE_WEIGHT))
        if part
        for piece in embedder.pieces(part)
    ]


def _portions(
    texts: dict[bytes, str], embedder: Embedder
) -> Iterator[dict[bytes, Sequence[_Piece]]]:
    """The texts in pieces, and no more of them at once than the embedder likes; a text is whole."""
    some: dict[bytes, Sequence[_Piece]] = {}
    count = 0
    for text_hash, text in texts.items():
        pieces = _pieces(text, embedder)
        if some and count + len(pieces) > embedder.batch:
            yield some
            some, count = {}, 0
        some[text_hash] = pieces
        count += len(pieces)
    if some:
        yield some


def _named(embedder: Embedder) -> tuple[str, int]:
    return embedder.identity, embedder.dims


def _check_shape(vectors: Vectors, count: int, embedder: Embedder) -> None:
    if vectors.shape != (count, embedder.dims) or vectors.dtype != "float32":
        raise EmbedderOff(
            f"{embedder.identity} gave {vectors.dtype} vectors of shape {vectors.shape} instead of "
            f"float32 of {(count, embedder.dims)}",
            todo="Choose another embedder: ralph config embedder NAME",
        )


def _hash(passage: Passage) -> bytes:
    return hashlib.sha256(passage.embed.encode()).digest()[:16]
