"""The index of one memory: synced with its journal by one writer at a time, and repaired.

Only this module writes to the index. Each batch saves its rows and the new position in one
transaction, so a sync that was killed continues where it stopped. If the embedder, the tokeniser or
the way of cutting records changes, a new collection is built next to the old one and replaces it.
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
from ralph.index.sqlite import FILE_NAME, SqliteStore
from ralph.journal import Followed
from ralph.plugins import loaded
from ralph.records import Record
from ralph.text.tokens import TOKENISER_VERSION

_BATCH = 512
# The first batch of a sync that has to end soon. The next ones are larger.
_FIRST_BATCH = 64
_PORTIONS = 8

# Called during a sync with the number of records indexed so far.
Progress = Callable[[int], None]


class Synced(msgspec.Struct, frozen=True):
    """The result of a sync: whether the collection is complete, and any embedder error."""

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
        """Return what the collection must be built with."""
        identity = self.embedder.identity if self.embedder else "none"
        dims = self.embedder.dims if self.embedder else 0
        return index.Manifest(identity, dims, TOKENISER_VERSION, self.cut_version)


def live_of(view: index.IndexView, name: str) -> index.Collection | None:
    """Return the live collection with this name."""
    return next((one for one in view.collections(name) if one.live), None)


def is_current(store: index.IndexStore, spec: IndexSpec) -> bool:
    """Whether there is nothing to sync. Cheap enough for every query."""
    with store.state() as view:
        return is_current_in(view, spec)


def is_current_in(view: index.IndexView, spec: IndexSpec) -> bool:
    """Whether there is nothing to sync, as this view sees it."""
    found = view.collections(spec.name)
    if len(found) != 1:
        return False  # none exists yet, or a replacement is being built
    [one] = found
    if not one.live or one.sweeping or one.waiting or one.needs_vacuum:
        return False
    return one.manifest == spec.manifest() and spec.journal.unchanged(one.position)


class EmbedderChanged(Exception):
    """The embedder is not the one that this collection is being built with."""


class SyncRun(msgspec.Struct, eq=False):
    """One sync of one collection. The caller holds the lock."""

    store: index.IndexStore
    spec: IndexSpec
    manifest: index.Manifest
    deadline: float | None
    progress: Progress
    reusable: dict[bytes, bytes] = {}
    embedder_off: str | None = None
    written: int = 0
    batches_written: int = 0

    def go(self, *, afresh: bool, renew: bool) -> Synced:
        """Run the sync."""
        with self.store.state() as view:
            found = view.collections(self.spec.name)
            live = next((one for one in found if one.live), None)
            building = next((one for one in found if not one.live), None)
            fitting = [one for one in (building, live) if one and one.manifest == self.manifest]
            collection = index.Collection(self.spec.name, self.spec.stream, self.manifest)
            if fitting and not (afresh or renew):
                collection = fitting[0]
            if live and collection is not live and not afresh:
                old = live.manifest
                new = self.manifest
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
            self.batches_written += 1
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
        """Return vectors by hash, for as many texts as time allows; the other passages wait."""
        embedder = self.spec.embedder
        made: dict[bytes, bytes] = {}
        if embedder is None or self.embedder_off is not None:
            return made
        try:
            # At most as many pieces as the embedder wants, but all pieces of a text together.
            pieces = ((h, _pieces(text, embedder)) for h, text in wanted.items())
            most = embedder.batch
            for some in batches(pieces, lambda one: len(one[1]), most=_BATCH, largest=most):
                if made and self._late():
                    break
                made |= self._vectors(embedder, dict(some))
        except EmbedderOff as error:
            self.embedder_off = str(error)  # words are indexed without it
        return made

    def _vectors(
        self, embedder: index.Embedder, some: dict[bytes, Sequence[_Piece]]
    ) -> dict[bytes, bytes]:
        import numpy as np

        pieces = [piece for row in some.values() for piece in row]
        left_s = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        vectors = embedder.embed_passages([text for text, _ in pieces], budget_s=left_s)
        if self.spec.manifest() != self.manifest:
            raise EmbedderChanged  # its server reports the model only now
        if vectors.shape != (len(pieces), embedder.dims) or vectors.dtype != "float32":
            what = f"{embedder.identity} gave {vectors.dtype} vectors of shape {vectors.shape}"
            what += f" instead of float32 of {(len(pieces), embedder.dims)}"
            raise EmbedderOff(what, todo="Choose another embedder: ralph config embedder NAME")
        if any(weight != 1.0 for _, weight in pieces):
            vectors = vectors * np.array([[weight] for _, weight in pieces], dtype=np.float32)
        # Round the vectors as SQLite's readers do in memory, so that every store gives the same
        # scores.
        numbers, scales = index.quantized(vectors)
        vectors = numbers * scales[:, None]
        ends = itertools.accumulate(map(len, some.values()))
        return {
            h: vectors[end - len(row) : end].tobytes()
            for (h, row), end in zip(some.items(), ends, strict=True)
        }

    def _embed_waiting(self, collection: index.Collection) -> bool:
        """Embed the passages that were indexed while the embedder was off."""
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
        """Return how many records to read at once; fewer save a slow embedder's work more often.

        A process with little time may be ended before a large batch is written, again and again.
        """
        embedder = self.spec.embedder
        most = _BATCH if embedder is None else min(_BATCH, _PORTIONS * embedder.batch)
        return most if self.deadline is None else min(most, _FIRST_BATCH << self.batches_written)

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline


# A text that the embedder takes as a whole, and the weight of its vector.
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
    """Yield at most `most` items at once, up to `largest` in total size; at least one."""
    some: list[_T] = []
    total = 0
    for item in items:
        if some and (len(some) == most or total + size(item) > largest):
            yield some
            some = []
            total = 0
        some.append(item)
        total += size(item)
    if some:
        yield some


def _hash(passage: index.Passage) -> bytes:
    return hashlib.sha256(passage.embed.encode()).digest()[:16]


# -- The index of one memory: where it is, how it is locked for writing, and how it is repaired.


LOCK_NAME = "index.lock"
_TRIES = 3
# A lock that takes longer than this to get was held by someone else.
_NOT_AT_ONCE_S = 0.001
# On a server, collections with at most this many passages are rewritten after a `forget`.
_RENEWED_PASSAGES = 5000
_T = TypeVar("_T")


class Index(msgspec.Struct, eq=False, dict=True, weakref=True):
    """A store, and what SQLite and Qdrant have in common: a lock for writers, and repair.

    The lock works only on this machine. Two machines write the same content, and if one moves the
    position back, a part of the journal is only read again.
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
        """The file of the index; on a server, a path next to the index's lock."""
        return self.find_path()

    @property
    def where(self) -> str:
        """The file or the server, to show to people."""
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
        """Index what is new in the journal, as far as the budget allows.

        `afresh` rebuilds everything; `renew` does, too, but reuses the vectors. `changed`: the
        caller knows that there is something new. Only one process works on an index at a time; if
        another one does, nothing is done here, and searches use the index as it is.
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
                        return Synced(complete=True)  # the process that had the lock did it
                    for _ in range(_TRIES):
                        with contextlib.suppress(EmbedderChanged):
                            end = None if budget_s is None else time.monotonic() + budget_s
                            report = progress or (lambda done: None)
                            run = SyncRun(self.store, spec, spec.manifest(), end, report)
                            return run.go(afresh=afresh, renew=renew)
            except IndexBusy:  # use the index as it is
                return Synced(complete=is_current(self.store, spec))
            raise IndexOff("the embedder keeps changing its model", where=self.where)

        return self.with_repair(work)

    def with_repair(self, work: Callable[[], _T]) -> _T:
        """Do the work. If the index is damaged, repair it and do the work again."""
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
        """Remove all forgotten text from the index, and from older or damaged files."""
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
        """Return all collections in this index."""

        def look() -> list[index.Collection]:
            with self.store.state() as view:
                return view.collections()

        return self.with_repair(look)

    @contextlib.contextmanager
    def answering(self, name: str) -> Iterator[tuple[index.IndexView, index.Collection | None]]:
        """Yield a view of the store, and the live collection with this name."""
        with self.store.state() as view:
            yield view, live_of(view, name)

    def clear(self, name: str, ids: Sized[str]) -> None:
        """Remove records from a collection; the next sync restores those that the journal has."""
        with self._locked():
            with self.answering(name) as (_, live):
                pass
            if live is not None:
                # Without a position the journal is read again; records still in the index stay.
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
            what = "another process is building the index"
            todo = "Try again when it has finished."
            raise IndexBusy(what, where=self.where, todo=todo) from None
        except OSError as error:
            what = f"the index cannot be locked ({error.strerror or error})"
            todo = "Free up disk space or fix the permissions; the journal has everything."
            raise IndexOff(what, where=str(lock), todo=todo) from error

    def prune(self) -> list[str]:
        """Delete what is no longer used, and return its names."""
        try:
            with self._locked():
                return self.store.prune()
        except IndexBusy:
            return []  # the other process may need it

    def delete(self) -> None:
        """Delete the index. Raises IndexOff if that fails."""
        self.store.drop()

    def close(self) -> None:
        """Close the store. It opens again when it is used."""
        if "store" in self.__dict__:
            self.store.close()
            del self.store


# For each setting with a server's URL, the module in this package whose `open_store` opens it.
SERVERS = {"qdrant_url": "qdrant_start"}
# Those in this package; each is a module with `open_embedder`.
_EMBEDDERS = ("static", "minilm", "ollama", "openai")


def open_index(
    settings: Any, folders: Sequence[Path], *, home: Path, scope: Callable[[], str]
) -> Index:
    """Return the index of one memory, as the settings say. It is opened when first used.

    `folders` may contain an embedded index, or the lock of one on a server. `scope` returns how the
    names of this memory's collections begin.
    """
    timeout_s = settings.index_lock_timeout_s
    if settings.vector_store != "sqlite":
        name = settings.vector_store
        open_store = loaded("ralph.vector_stores", name)
        store = functools.partial(open_store, settings, folders[0], home, scope)
        return Index(store, lambda: _writable(folders) / name, lock_timeout_s=timeout_s)
    if module := next((SERVERS[one] for one in SERVERS if getattr(settings, one)), None):
        # The lock may also be in the system's temporary folder. The index itself is not there.
        places = [*folders, Path(tempfile.gettempdir())]
        open_store = import_module(f"ralph.index.{module}").open_store
        store = functools.partial(open_store, settings, folders[0], home, scope)
        return Index(store, lambda: _writable(places) / module, lock_timeout_s=timeout_s)
    file = functools.cache(lambda: _writable(folders) / FILE_NAME)
    return Index(lambda: SqliteStore(file(), folders), file, lock_timeout_s=timeout_s)


def _writable(folders: Sequence[Path]) -> Path:
    """Return the first writable folder. Permissions alone do not tell, so create a file."""
    for folder in folders:
        try:
            disk.make_folder(folder)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    what = "no folder for the index can be written to"
    todo = "Permit writing there, or set"
    raise IndexOff(what, where=str(folders[0]), todo=f"{todo} RALPH_HOME to a folder of yours.")


def choose_embedder(settings: Any, cache: Path | None) -> index.Embedder | None:
    """Return the embedder from the settings; None to search by words only.

    `cache` is a folder that records which files were checked, and what servers reported about their
    models.
    """
    if settings.embedder == "none":
        return None
    if settings.embedder in _EMBEDDERS:
        open_embedder = import_module(f"ralph.index.embedders.{settings.embedder}").open_embedder
    else:
        open_embedder = loaded("ralph.embedders", settings.embedder)
    embedder: index.Embedder = open_embedder(settings, cache)
    return embedder
