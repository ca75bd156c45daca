"""The index of one memory: where it is, who may write it at a time, and how it is repaired."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Collection as Sized
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ralph import disk
from ralph.errors import IndexOff
from ralph.index import Collection, Corrupt, Embedder, IndexBatch, IndexStore, IndexView
from ralph.index.sqlite import FILE_NAME, SqliteStore
from ralph.index.sync import IndexSpec, Progress, Synced, is_current, live_of, sync

if TYPE_CHECKING:
    from ralph.index.qdrant import QdrantConnection

LOCK_NAME = "index.lock"
_ID_NAME = "machine"
_TRIES = 3
# Up to so many, a collection from which something was forgotten is written anew on a server.
_RENEWED_PASSAGES = 5000
_T = TypeVar("_T")


class Index:
    """A store with what SQLite and Qdrant share: one writer at a time on this machine, repair.

    Between machines nothing is locked: what two of them write is the same, and a position that
    goes back only means that a part of the journal is read again.
    """

    def __init__(
        self,
        open_store: Callable[[], IndexStore],
        place: Callable[[], Path],
        *,
        lock_timeout_s: float,
    ) -> None:
        self._open_store = open_store
        self._place = place
        self._lock_timeout_s = lock_timeout_s
        self._store: IndexStore | None = None

    @property
    def store(self) -> IndexStore:
        """The store, opened at first use."""
        if self._store is None:
            self._store = self._open_store()
        return self._store

    @property
    def path(self) -> Path:
        """The file of the index, or beside which its lock lies."""
        return self._place()

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
        """Bring one collection up to its journal; `changed`: there surely is something to do."""

        def work() -> Synced:
            if not (afresh or changed or renew) and is_current(self.store, spec):
                return Synced(complete=True)
            try:
                with self._locked(lock_timeout_s):
                    return sync(
                        self.store,
                        spec,
                        budget_s=budget_s,
                        afresh=afresh,
                        renew=renew,
                        progress=progress,
                    )
            except _IndexBusy:  # answer from what is there
                return Synced(complete=is_current(self.store, spec))

        return self.with_repair(work)

    def with_repair(self, work: Callable[[], _T]) -> _T:
        """Do the work; what is damaged is repaired first, and the work done again."""
        for _ in range(_TRIES):
            try:
                return work()
            except Corrupt as damage:
                last = damage
                if not damage.replaced:
                    self._repair(damage)
        raise IndexOff(
            f"the index is damaged again after it was rebuilt ({last})",
            where=self.where,
            todo="Check the disk or the server; the journal has everything.",
        ) from last

    def _repair(self, damage: Corrupt) -> None:
        try:
            with self._locked():
                self.store.repair(damage)
        except IndexOff as error:
            raise IndexOff(
                f"the index is damaged ({damage}) and cannot be repaired ({error.what})",
                where=self.where,
                todo="Delete it: the journal has everything.",
            ) from error

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

    def collections(self) -> list[Collection]:
        """Everything that is indexed here."""

        def look() -> list[Collection]:
            with self.store.state() as view:
                return view.collections()

        return self.with_repair(look)

    @contextlib.contextmanager
    def answering(self, name: str) -> Iterator[tuple[IndexView, Collection | None]]:
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
                self.store.write(live, IndexBatch(forget=set(ids), position=""))

    def drop(self, name: str) -> None:
        """Delete a collection."""
        with self._locked():
            self.store.drop(name)

    @contextlib.contextmanager
    def _locked(self, timeout_s: float | None = None) -> Iterator[None]:
        lock = self.path.with_name(LOCK_NAME)
        timeout_s = self._lock_timeout_s if timeout_s is None else timeout_s
        try:
            with disk.locked(lock, timeout_s=timeout_s):
                yield
        except disk.Busy:
            raise _IndexBusy(
                "another process is building the index",
                where=self.where,
                todo="Try again when it has finished.",
            ) from None
        except OSError as error:
            raise IndexOff(
                f"the index cannot be locked ({error.strerror or error})",
                where=str(lock),
                todo="Free space or permit writing there; the journal has everything.",
            ) from error

    def prune(self) -> list[str]:
        """Delete what no longer serves, and name it."""
        try:
            with self._locked():
                return self.store.prune()
        except _IndexBusy:
            return []  # whoever is at work may need it

    def delete(self) -> None:
        """Throw the index away; IndexOff when that cannot be."""
        self.store.drop()

    def close(self) -> None:
        """Let go of it; it opens again by itself."""
        if self._store is not None:
            self._store.close()
            self._store = None


class _IndexBusy(IndexOff):
    """Another process holds the lock."""


_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,120}")
_PHYSICAL = re.compile(r"(.+)-g[0-9a-f]+")


class CollectionNames(msgspec.Struct, frozen=True):
    """What one memory's collections in one place are called on a server (F18).

    `scope` tells what its collections' names begin with; a project's id may be made later.
    `place` tells apart what shares a scope and not its journals: clones, homes, databases.
    """

    scope: Callable[[], str]
    place: str | Callable[[], str] = ""

    def alias(self, name: str) -> str:
        """Under which the collection answers."""
        plain = name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._before + plain

    def building(self, name: str) -> str:
        """Under which the collection is found that is to replace the one that answers."""
        return f"{self.alias(name)}-next"

    def new_physical(self, name: str) -> str:
        """A name that no collection has."""
        return f"{self.alias(name)}-g{uuid.uuid4().hex[:8]}"

    def owns(self, physical: str, name: str | None = None) -> bool:
        """Whether this is one of ours; of that name, where one is given."""
        found = _PHYSICAL.fullmatch(physical)
        if found is None:
            return False
        if name is not None:
            return found[1] == self.alias(name)
        return found[1].startswith(self._before + self.scope())

    @property
    def _before(self) -> str:
        place = self.place if isinstance(self.place, str) else self.place()
        return f"ralph-{place}-" if place else "ralph-"


def open_index(
    folders: Sequence[Path],
    *,
    home: Path,
    scope: Callable[[], str],
    lock_timeout_s: float,
    journal_url: str | None = None,
    qdrant_url: str | None = None,
    qdrant_api_key: str | None = None,
    qdrant_timeout_s: float = 5.0,
    qdrant_binary: str | None = None,
) -> Index:
    """The index of one memory; nothing is opened or asked before its first use.

    `folders` are where an embedded index, or the lock of another, may lie; `scope` tells what
    the names of this memory's collections begin with. On a server the collections of journals
    that lie in files belong to the first folder on this machine alone: clones share an id, and
    machines may share a path, but not their journals. Those of a journal that is itself on a
    server belong to all who use that database.
    """
    if not qdrant_url:

        @functools.cache
        def file() -> Path:
            return _writable(folders) / FILE_NAME

        return Index(lambda: SqliteStore(file(), folders), file, lock_timeout_s=lock_timeout_s)
    server = _server(qdrant_url, qdrant_api_key or None, qdrant_timeout_s, qdrant_binary, home)
    place = _database(journal_url) if journal_url else _folder(home, folders[0])

    def served() -> IndexStore:
        from ralph.index.qdrant import QdrantStore

        return QdrantStore(server, CollectionNames(scope, place))

    # Its lock may lie in the system's folder too; nothing of the index does.
    places = [*folders, Path(tempfile.gettempdir())]
    lock = functools.cache(lambda: _writable(places) / "qdrant")
    return Index(served, lock, lock_timeout_s=lock_timeout_s)


def _writable(folders: Sequence[Path]) -> Path:
    """The first folder that files can be made in; asking its permissions alone is not enough."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    raise IndexOff(
        "no folder for the index can be written to",
        where=str(folders[0]),
        todo="Permit writing there, or set RALPH_HOME to a folder of yours.",
    )


def _database(url: str) -> str:
    """One database, whoever asks it and with which password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _short("")  # the journal reports what is wrong with it
    names = {"host", "hostaddr", "port", "dbname", "service"}
    more = sorted(pair for pair in parse_qsl(parts.query) if pair[0] in names)
    host = parts.netloc.rpartition("@")[2].lower().removesuffix(":5432")
    return _short(f"{host}/{parts.path.strip('/')} {more}")


def _folder(home: Path, folder: Path) -> Callable[[], str]:
    """A folder of this machine; looked up at its first use."""
    return functools.cache(lambda: _short(f"{_own_id(home / _ID_NAME)} {folder}"))


def _own_id(file: Path) -> str:
    """What tells this home from that of another machine at the same path; made once."""
    try:
        disk.create(file, uuid.uuid4().hex.encode())
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.node()  # better than nothing where nothing can be kept


@functools.cache
def _server(
    url: str, key: str | None, timeout_s: float, binary: str | None, home: Path
) -> QdrantConnection:
    """One for all indexes of a process: what fails for one need not be tried by the others."""
    from ralph.index.qdrant import QdrantConnection
    from ralph.index.qdrant_start import local_server

    local = local_server(url, key=key, binary=binary or None, home=home)
    start = local.start if local else None
    return QdrantConnection(url, key=key, timeout_s=timeout_s, start=start)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def choose_embedder(settings: Any, cache: Path | None) -> Embedder | None:
    """The embedder that the settings name; None where words alone are wanted.

    `cache` keeps which files were checked, and what servers said of their models.
    """
    if settings.embedder == "none":
        return None
    module = import_module(f"ralph.index.embedders.{settings.embedder}")
    embedder: Embedder = module.open_embedder(settings, cache)
    return embedder
