"""Bringing a collection up to its journal: the only place where the index is written.

Each batch moves the position in the same transaction as its rows, so that a sync that was killed
goes on where it stopped. What no longer fits (another embedder, tokeniser or way of cutting) is
built anew beside the old and then takes its place.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ralph import disk
from ralph.errors import EmbedderOff, IndexOff
from ralph.index import ASIDE, ASIDE_WEIGHT, Cut, Embedder, Manifest, Passage
from ralph.index.port import Collection, IndexedRecord, Store, View
from ralph.journal import Batch, Followed
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


def is_current(store: Store, target: IndexSpec) -> bool:
    """Whether there is nothing to do; cheap, for every query."""
    with store.reading() as view:
        return is_current_in(view, target)


def is_current_in(view: View, target: IndexSpec) -> bool:
    """The same, of one state of the store."""
    live, building = view.generations(target.name)
    if live is None or building is not None or live.sweeping:
        return False
    if live.manifest != target.manifest() or view.waiting(live, 1) or view.soiled():
        return False
    return target.journal.unchanged(live.position)


def sync(
    store: Store,
    target: IndexSpec,
    *,
    lock: Path,
    lock_timeout_s: float,
    budget_s: float | None = None,
    afresh: bool = False,
    renew: bool = False,
    progress: Progress | None = None,
) -> Synced:
    """Index what the journal has and the collection lacks, for as long as the budget allows.

    `afresh` builds all of it anew; `renew` does too, but uses the vectors there are.

    One process at a time works on an index; whoever finds it taken answers from what is there.
    """
    try:
        with disk.locked(lock, timeout_s=lock_timeout_s):
            for _ in range(_TRIES):
                try:
                    run = _SyncRun(store, target, budget_s, progress)
                    return run.go(afresh=afresh, renew=renew)
                except _EmbedderChanged:
                    continue
    except disk.Busy:
        return Synced(complete=is_current(store, target))
    raise IndexOff("the embedder is another one again and again", where=store.where)


class _EmbedderChanged(Exception):
    """The embedder turned out to be another one than the collection is built with."""


class _SyncRun:
    def __init__(
        self,
        store: Store,
        target: IndexSpec,
        budget_s: float | None,
        progress: Progress | None,
    ) -> None:
        self._store = store
        self._target = target
        self._manifest = target.manifest()
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._progress = progress or (lambda done: None)
        self._reusable: dict[bytes, bytes] = {}
        self._embedder_off: str | None = None
        self._written = 0
        # Whether passages wait for vectors, and whether forgotten bytes may be in the file.
        self._waiting = self._soiled = False

    def go(self, *, afresh: bool, renew: bool) -> Synced:
        with self._store.reading() as view:
            live, building = view.generations(self._target.name)
            self._soiled = view.soiled()
            self._waiting = live is not None and bool(view.waiting(live, 1))
        collection = self._choose(live, building, afresh=afresh, anew=afresh or renew)
        complete = self._follow(collection)
        if complete and not collection.live:
            self._store.replace_live(collection)
            self._soiled = self._soiled or self._store.soiled()
            self._store.compact()
        if complete and self._waiting:
            complete = self._embed_waiting()
        if self._soiled:
            with contextlib.suppress(IndexOff):  # a long reader: the next sync tries again
                self._store.scrub()
        return Synced(complete, not collection.live, self._written, self._embedder_off)

    def _choose(
        self, live: Collection | None, building: Collection | None, *, afresh: bool, anew: bool
    ) -> Collection:
        """The generation to work on: the live one if it fits, else one built beside it."""
        target, store, manifest = self._target, self._store, self._manifest
        if building and building.manifest == manifest and not anew:
            return self._with_old_vectors(building, live)
        if live and live.manifest == manifest and not anew:
            if building:
                store.drop_building(target.name)
            return live
        made = store.create(target.name, target.stream, manifest, live=live is None)
        return made if afresh else self._with_old_vectors(made, live)

    def _with_old_vectors(self, building: Collection, live: Collection | None) -> Collection:
        old, new = (live or building).manifest, building.manifest
        if live and (old.embedder, old.dims) == (new.embedder, new.dims):
            with self._store.reading() as view:
                self._reusable = view.vectors_by_hash(live)
        return building

    def _follow(self, collection: Collection) -> bool:
        position = collection.position
        while True:
            batch = self._target.journal.read(position, limit=self._limit())
            self._index(collection, batch)
            position = batch.position
            if batch.done:
                return True
            if self._late():
                return False

    def _index(self, collection: Collection, batch: Batch) -> None:
        fresh: dict[tuple[str, str], Record] = {}
        seen: list[tuple[str, str]] = []
        gone = {stone.id for stone in batch.tombstones}
        given: dict[tuple[str, str], Record] = {}
        for located in batch.records:
            given.setdefault((located.record.id, located.record.digest), located.record)
        with self._store.reading() as view:
            held = view.held(collection, given)
            new = [record_id for record_id, _ in given.keys() - held]
            buried = set() if batch.restarted else view.forgotten(collection, new)
        for key, record in given.items():
            if key in held:
                seen.append(key)
            elif record.id not in gone and record.id not in buried:
                fresh[key] = record
        rows = self._rows(list(fresh.values()))
        removed = self._store.write(
            collection,
            rows,
            forget=gone,
            seen=seen,
            position=batch.position,
            restart=batch.restarted,
            done=batch.done,
        )
        self._written += len(rows)
        self._soiled = self._soiled or removed > 0
        self._waiting = self._waiting or any(None in row.vectors for row in rows)
        self._progress(self._written + len(seen))

    def _rows(self, records: Sequence[Record]) -> list[IndexedRecord]:
        cut = [(record, self._cut(record)) for record in records]
        hashes = [[_hash(p) for p in passages] for _, passages in cut]
        wanted = [
            (h, p.embed)
            for (_, passages), row in zip(cut, hashes, strict=True)
            for p, h in zip(passages, row, strict=True)
            if h not in self._reusable and p.embed
        ]
        made = self._embed(wanted)
        return [
            IndexedRecord(
                record, passages, row, [self._reusable.get(h) or made.get(h) for h in row]
            )
            for (record, passages), row in zip(cut, hashes, strict=True)
        ]

    def _cut(self, record: Record) -> list[Passage]:
        passages = list(self._target.cut(record))
        if self._target.embedder is not None:
            return passages
        return [msgspec.structs.replace(passage, embed="") for passage in passages]

    def _embed(self, wanted: Sequence[tuple[bytes, str]]) -> dict[bytes, bytes]:
        """Vectors by hash, for as many as there is time; the other passages wait for theirs."""
        embedder = self._target.embedder
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
        self, embedder: Embedder, some: dict[bytes, Sequence[_WeightedPiece]]
    ) -> dict[bytes, bytes]:
        import numpy as np

        pieces_of_all = [piece for pieces in some.values() for piece in pieces]
        texts = [piece.text for piece in pieces_of_all]
        left_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        vectors = embedder.embed_passages(texts, budget_s=left_s)
        if _named(embedder) != (self._manifest.embedder, self._manifest.dims):
            raise _EmbedderChanged  # its server has told us only now which one it is
        _check_shape(vectors, len(texts), embedder)
        if any(piece.weight != 1.0 for piece in pieces_of_all):
            weights = np.array([[piece.weight] for piece in pieces_of_all], dtype=np.float32)
            vectors = vectors * weights
        ends = list(itertools.accumulate(len(pieces) for pieces in some.values()))
        starts = [0, *ends]
        return {
            h: vectors[start:end].tobytes()
            for h, start, end in zip(some, starts, ends, strict=False)
        }

    def _embed_waiting(self) -> bool:
        """Catch up on passages that were indexed while the embedder was off."""
        live, _ = self._store.generations(self._target.name)
        while live and self._embedder_off is None and not self._late():
            with self._store.reading() as view:
                waiting = view.waiting(live, self._limit())
            if not waiting:
                return True
            made = self._embed([(str(row).encode(), text) for row, text in waiting])
            self._store.fill(live, [(int(row), vector) for row, vector in made.items()])
        return False

    def _limit(self) -> int:
        """How many records at once: what a slow embedder has done is kept more often."""
        embedder = self._target.embedder
        return _BATCH if embedder is None else min(_BATCH, _PORTIONS * embedder.batch)

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline


class _WeightedPiece(msgspec.Struct, frozen=True):
    """What is embedded at once, and how much its nearness counts."""

    text: str
    weight: float = 1.0


def _pieces(text: str, embedder: Embedder) -> list[_WeightedPiece]:
    main, _, aside = text.partition(ASIDE)
    found = [_WeightedPiece(piece) for piece in embedder.pieces(main)] if main else []
    return found + [
        _WeightedPiece(piece, ASIDE_WEIGHT) for piece in embedder.pieces(aside) if aside
    ]


def _portions(
    texts: dict[bytes, str], embedder: Embedder
) -> Iterator[dict[bytes, Sequence[_WeightedPiece]]]:
    """The texts in pieces, and no more of them at once than the embedder likes; a text is whole."""
    some: dict[bytes, Sequence[_WeightedPiece]] = {}
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
