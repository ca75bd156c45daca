"""The index of one memory: brought up to its journal, one writer at a time, and repaired.

This is the only place where the index is written.
Each batch moves the position in the same transaction as its rows, so that a sync that was killed
goes on where it stopped. What no longer fits (another embedder, tokeniser or way of cutting) is
built anew beside the old and then takes its place.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import tempfile
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from collections.abc import Collection as Sized
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ralph import disk, index
from ralph.errors import EmbedderOff, IndexBusy, IndexOff
from ralph.index.matrix import quantized
from ralph.index.sqlite import FILE_NAME, SqliteStore
from ralph.journal import Followed
from ralph.records import Record
from ralph.text.tokens import TOKENISER_VERSION

_BATCH = 512
_PORTIONS = 8

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
    cut: index.Cut
    cut_version: str
    embedder: index.Embedder | None

    def manifest(self) -> index.Manifest:
        """What the collection must have been built with."""
        identity = self.embedder.identity if self.embedder else "none"
        dims = self.embedder.dims if self.embedder else 0
        return index.Manifest(identity, dims, TOKENISER_VERSION, self.cut_version)


def live_of(view: index.IndexView, name: str) -> index.Collection | None:
    """The collection that answers under this name."""
    return next((one for one in view.collections(name) if one.live), None)


def is_current(store: index.IndexStore, spec: IndexSpec) -> bool:
    """Whether there is nothing to do; cheap, for every query."""
    with store.state() as view:
        return is_current_in(view, spec)


def is_current_in(view: index.IndexView, spec: IndexSpec) -> bool:
    """The same, of one state of the store."""
    found = view.collections(spec.name)
    if len(found) != 1:
        return False  # nothing yet, or one is being built to replace the other
    [one] = found
    if not one.live or one.sweeping or one.waiting or one.needs_vacuum:
        return False
    return one.manifest == spec.manifest() and spec.journal.unchanged(one.position)


class EmbedderChanged(Exception):
    """The embedder turned out to be another one than the collection is built with."""


class SyncRun(msgspec.Struct, eq=False):
    """One sync of one collection, by whoever holds the lock."""

    store: index.IndexStore
    spec: IndexSpec
    manifest: index.Manifest
    deadline: float | None
    progress: Progress
    reusable: dict[bytes, bytes] = {}
    embedder_off: str | None = None
    written: int = 0

    def go(self, *, afresh: bool, renew: bool) -> Synced:
        """Sync it."""
        with self.store.state() as view:
            found = view.collections(self.spec.name)
            live = next((one for one in found if one.live), None)
            building = next((one for one in found if not one.live), None)
            fitting = [one for one in (building, live) if one and one.manifest == self.manifest]
            collection = index.Collection(self.spec.name, self.spec.stream, self.manifest)
            if fitting and not (afresh or renew):
                collection = fitting[0]
            if live and collection is not live and not afresh:
                old, new = live.manifest, self.manifest
                if (old.embedder, old.dims) == (new.embedder, new.dims):
                    self.reusable = view.content(live).vectors
        if building and collection is live:
            self.store.drop(self.spec.name, unfinished=True)
        collection, complete = self._follow(collection)
        if complete and collection.waiting:
            complete = self._embed_waiting(collection)
        rebuilt = live is not None and collection.id != live.id
        return Synced(complete, rebuilt, self.written, self.embedder_off)

    def _follow(self, collection: index.Collection) -> tuple[index.Collection, bool]:
        while True:
            batch = self.spec.journal.read(collection.position, limit=self._limit())
            records: dict[index.RecordKey, Record] = {}
            for located in batch.records:
                records.setdefault((located.record.id, located.record.digest), located.record)
            before = self.written
            forget = {stone.id for stone in batch.tombstones}
            step = index.IndexBatch(
                records,
                functools.partial(self._prepare, records, forget),
                forget=forget,
                position=batch.position,
                restart=batch.restarted,
                done=batch.done,
            )
            collection = self.store.write(collection, step)
            self.progress(before + len(records))
            if batch.done or self._late():
                return collection, batch.done

    def _prepare(
        self,
        records: Mapping[index.RecordKey, Record],
        forget: Set[str],
        indexed: Sized[index.RecordKey],
        forgotten: Sized[str],
    ) -> list[index.IndexedRecord]:
        embeds = {} if self.spec.embedder else {"embed": ""}
        rows = [
            (record, [msgspec.structs.replace(one, **embeds) for one in self.spec.cut(record)])
            for key, record in records.items()
            if key not in indexed and record.id not in forget and record.id not in forgotten
        ]
        hashes = [[_hash(passage) for passage in passages] for _, passages in rows]
        texts = {_hash(one): one.embed for _, passages in rows for one in passages if one.embed}
        wanted = {h: text for h, text in texts.items() if h not in self.reusable}
        vectors = ChainMap(self._embed(wanted), self.reusable)
        self.written += len(rows)
        return [
            index.IndexedRecord(record, passages, row, [vectors.get(h) for h in row])
            for (record, passages), row in zip(rows, hashes, strict=True)
        ]

    def _embed(self, wanted: Mapping[bytes, str]) -> dict[bytes, bytes]:
        """Vectors by hash, for as many as there is time; the other passages wait for theirs."""
        embedder = self.spec.embedder
        made: dict[bytes, bytes] = {}
        if embedder is None or self.embedder_off is not None:
            return made
        try:
            # No more pieces at once than the embedder likes; a text is whole.
            pieces = ((h, _pieces(text, embedder)) for h, text in wanted.items())
            most = embedder.batch
            for some in batches(pieces, lambda one: len(one[1]), most=_BATCH, largest=most):
                if made and self._late():
                    break
                made |= self._vectors(embedder, dict(some))
        except EmbedderOff as error:
            self.embedder_off = str(error)  # words go on without it
        return made

    def _vectors(
        self, embedder: index.Embedder, some: dict[bytes, Sequence[_Piece]]
    ) -> dict[bytes, bytes]:
        import numpy as np

        pieces = [piece for row in some.values() for piece in row]
        left_s = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        vectors = embedder.embed_passages([text for text, _ in pieces], budget_s=left_s)
        if self.spec.manifest() != self.manifest:
            raise EmbedderChanged  # its server has told us only now which one it is
        if vectors.shape != (len(pieces), embedder.dims) or vectors.dtype != "float32":
            what = f"{embedder.identity} gave {vectors.dtype} vectors of shape {vectors.shape}"
            what += f" instead of float32 of {(len(pieces), embedder.dims)}"
            raise EmbedderOff(what, todo="Choose another embedder: ralph config embedder NAME")
        if any(weight != 1.0 for _, weight in pieces):
            vectors = vectors * np.array([[weight] for _, weight in pieces], dtype=np.float32)
        # As SQLite's readers keep them in memory, so that every store gives the same scores.
        numbers, scales = quantized(vectors)
        vectors = numbers * scales[:, None]
        ends = itertools.accumulate(map(len, some.values()))
        return {
            h: vectors[end - len(row) : end].tobytes()
            for (h, row), end in zip(some.items(), ends, strict=True)
        }

    def _embed_waiting(self, collection: index.Collection) -> bool:
        """Catch up on passages that were indexed while the embedder was off."""
        while self.embedder_off is None and not self._late():
            with self.store.state() as view:
                waiting = view.size(collection, texts=self._limit()).texts
            if not waiting:
                return True
            made = self._embed({str(row).encode(): text for row, text in waiting})
            filled = [(int(row), vector) for row, vector in made.items()]
            collection = self.store.write(collection, index.IndexBatch(vectors=filled))
        return False

    def _limit(self) -> int:
        """How many records at once: what a slow embedder has done is kept more often."""
        embedder = self.spec.embedder
        return _BATCH if embedder is None else min(_BATCH, _PORTIONS * embedder.batch)

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline


# A text that is embedded at once, and how much its nearness counts.
_Piece = tuple[str, float]


def _pieces(text: str, embedder: index.Embedder) -> list[_Piece]:
    main, _, aside = text.partition(index.ASIDE)
    return [
        (piece, weight)
        for part, weight in ((main, 1.0), (aside, index.ASIDE_WEIGHT))
        if part
        for piece in embedder.pieces(part)
    ]


def batches(
    items: Iterable[_T], size: Callable[[_T], int], *, most: int, largest: int
) -> Iterator[list[_T]]:
    """As many items at once as a request may hold, by their number and their size; one at least."""
    some: list[_T] = []
    total = 0
    for item in items:
        if some and (len(some) == most or total + size(item) > largest):
            yield some
            some, total = [], 0
        some.append(item)
        total += size(item)
    if some:
        yield some


def _hash(passage: index.Passage) -> bytes:
    return hashlib.sha256(passage.embed.encode()).digest()[:16]


# -- The index of one memory: where it is, who may write it at a time, and how it is repaired.


LOCK_NAME = "index.lock"
_TRIES = 3
# A lock that takes longer than this to get was held by someone else.
_NOT_AT_ONCE_S = 0.001
# Up to so many, a collection from which something was forgotten is written anew on a server.
_RENEWED_PASSAGES = 5000
_T = TypeVar("_T")


class Index(msgspec.Struct, eq=False, dict=True, weakref=True):
    """A store with what SQLite and Qdrant share: one writer at a time on this machine, repair.

    Between machines nothing is locked: what two of them write is the same, and a position that
    goes back only means that a part of the journal is read again.
    """

    open_store: Callable[[], index.IndexStore]
    find_path: Callable[[], Path]
    lock_timeout_s: float

    @functools.cached_property
    def store(self) -> index.IndexStore:
        """The store, opened at first use."""
        return self.open_store()

    @functools.cached_property
    def path(self) -> Path:
        """The file of the index, or beside which its lock lies."""
        return self.find_path()

    @property
    def where(self) -> str:
        """The file or the server, for people."""
        return self.store.where

    def sync(
        self,
        spec: IndexSpec,
        *,
        budget_s: float | None = None,
        afresh: bool = False,
        progress: Progress | None = None,
        lock_timeout_s: float | None = None,
        changed: bool = False,
        renew: bool = False,
    ) -> Synced:
        """Index what the journal has and a collection lacks, for as long as the budget allows.

        `afresh` builds all of it anew; `renew` does too, but uses the vectors there are.
        `changed`: there surely is something to do. One process at a time works on an index; whoever
        finds it taken answers from what is there.
        """

        def work() -> Synced:
            anyway = afresh or renew
            if not (anyway or changed) and is_current(self.store, spec):
                return Synced(complete=True)
            try:
                begin = time.monotonic()
                with self._locked(lock_timeout_s):
                    waited = time.monotonic() - begin > _NOT_AT_ONCE_S
                    if waited and not anyway and is_current(self.store, spec):
                        return Synced(complete=True)  # whoever had the lock has done it
                    for _ in range(_TRIES):
                        with contextlib.suppress(EmbedderChanged):
                            end = None if budget_s is None else time.monotonic() + budget_s
                            report = progress or (lambda done: None)
                            run = SyncRun(self.store, spec, spec.manifest(), end, report)
                            return run.go(afresh=afresh, renew=renew)
            except IndexBusy:  # answer from what is there
                return Synced(complete=is_current(self.store, spec))
            raise IndexOff("the embedder keeps changing its model", where=self.where)

        return self.with_repair(work)

    def with_repair(self, work: Callable[[], _T]) -> _T:
        """Do the work; what is damaged is repaired first, and the work done again."""
        for _ in range(_TRIES):
            try:
                return work()
            except index.Corrupt as damage:
                last = damage
                if not damage.replaced:
                    self._repair(damage)
        what = f"the index is damaged again after it was rebuilt ({last})"
        todo = "Check the disk or the server; the journal has everything."
        raise IndexOff(what, where=self.where, todo=todo) from last

    def _repair(self, damage: index.Corrupt) -> None:
        try:
            with self._locked():
                self.store.repair(damage)
        except IndexOff as error:
            what = f"the index is damaged ({damage}) and cannot be repaired ({error.what})"
            todo = "Delete it: the journal has everything."
            raise IndexOff(what, where=self.where, todo=todo) from error

    def erase(self, spec: IndexSpec, *, lock_timeout_s: float) -> None:
        """Leave nothing of what was forgotten in the index, nor in older or damaged files."""
        synced = self.sync(spec, lock_timeout_s=lock_timeout_s)

        def look() -> tuple[bool, int]:
            with self.answering(spec.name) as (view, live):
                unclean = live is not None and live.needs_vacuum
                return unclean, view.size(live).passages if live else 0

        unclean, passages = self.with_repair(look)
        if unclean or (not synced.complete and synced.embedder_off is None):
            raise IndexOff("another process is using the index", where=self.where)
        if not self.store.keeps_deleted:
            self.store.prune()
        elif 0 < passages <= _RENEWED_PASSAGES:
            self.sync(spec, lock_timeout_s=lock_timeout_s, renew=True)

    def collections(self) -> list[index.Collection]:
        """Everything that is indexed here."""

        def look() -> list[index.Collection]:
            with self.store.state() as view:
                return view.collections()

        return self.with_repair(look)

    @contextlib.contextmanager
    def answering(self, name: str) -> Iterator[tuple[index.IndexView, index.Collection | None]]:
        """One state of the store, and the collection of this name that answers in it."""
        with self.store.state() as view:
            yield view, live_of(view, name)

    def clear(self, name: str, ids: Sized[str]) -> None:
        """Take records out of a collection; the next sync brings back those of the journal."""
        with self._locked():
            with self.answering(name) as (_, live):
                pass
            if live is not None:
                # From no position the journal is read again; what is still in the index stays.
                self.store.write(live, index.IndexBatch(forget=set(ids), position=""))

    def drop(self, name: str) -> None:
        """Delete a collection."""
        with self._locked():
            self.store.drop(name)

    @contextlib.contextmanager
    def _locked(self, timeout_s: float | None = None) -> Iterator[None]:
        lock = self.path.with_name(LOCK_NAME)
        timeout_s = self.lock_timeout_s if timeout_s is None else timeout_s
        try:
            with disk.lock(lock, timeout_s=timeout_s):
                yield
        except disk.Busy:
            what, todo = "another process is building the index", "Try again when it has finished."
            raise IndexBusy(what, where=self.where, todo=todo) from None
        except OSError as error:
            what = f"the index cannot be locked ({error.strerror or error})"
            todo = "Free space or permit writing there; the journal has everything."
            raise IndexOff(what, where=str(lock), todo=todo) from error

    def prune(self) -> list[str]:
        """Delete what no longer serves, and name it."""
        try:
            with self._locked():
                return self.store.prune()
        except IndexBusy:
            return []  # whoever is at work may need it

    def delete(self) -> None:
        """Throw the index away; IndexOff when that cannot be."""
        self.store.drop()

    def close(self) -> None:
        """Let go of it; it opens again by itself."""
        if "store" in self.__dict__:
            self.store.close()
            del self.store


# By the setting that names a server for the index, the module of this room whose `open_store`
# opens it.
SERVERS = {"qdrant_url": "qdrant_start"}


def open_index(
    settings: Any, folders: Sequence[Path], *, home: Path, scope: Callable[[], str]
) -> Index:
    """The index of one memory that the settings name; nothing is opened before its first use.

    `folders` are where an embedded index, or the lock of another, may lie; `scope` tells what
    the names of this memory's collections begin with.
    """
    timeout_s = settings.index_lock_timeout_s
    if module := next((SERVERS[one] for one in SERVERS if getattr(settings, one)), None):
        # Its lock may lie in the system's folder too; nothing of the index does.
        places = [*folders, Path(tempfile.gettempdir())]
        open_store = import_module(f"ralph.index.{module}").open_store
        store = functools.partial(open_store, settings, folders[0], home, scope)
        return Index(store, lambda: _writable(places) / module, lock_timeout_s=timeout_s)
    file = functools.cache(lambda: _writable(folders) / FILE_NAME)
    return Index(lambda: SqliteStore(file(), folders), file, lock_timeout_s=timeout_s)


def _writable(folders: Sequence[Path]) -> Path:
    """The first folder that files can be made in; asking its permissions alone is not enough."""
    for folder in folders:
        try:
            disk.make_folder(folder)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    what, todo = "no folder for the index can be written to", "Permit writing there, or set"
    raise IndexOff(what, where=str(folders[0]), todo=f"{todo} RALPH_HOME to a folder of yours.")


def choose_embedder(settings: Any, cache: Path | None) -> index.Embedder | None:
    """The embedder that the settings name; None where words alone are wanted.

    `cache` keeps which files were checked, and what servers said of their models.
    """
    if settings.embedder == "none":
        return None
    module = import_module(f"ralph.index.embedders.{settings.embedder}")
    embedder: index.Embedder = module.open_embedder(settings, cache)
    return embedder
