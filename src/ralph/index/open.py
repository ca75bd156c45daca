"""The index of one place: where its file lies, who may write it, and how it heals."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import platform
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

from ralph import disk
from ralph.errors import IndexOff
from ralph.index.port import AnyIndex, Corrupt
from ralph.index.sqlite import FILE_NAME, SIDE_FILES, SqliteStore
from ralph.index.sync import IndexSpec, Progress, Synced, is_current, sync

if TYPE_CHECKING:
    from ralph.index.qdrant_server import QdrantConnection


_log = logging.getLogger("ralph")
LOCK_NAME = "index.lock"
_T = TypeVar("_T")


class Index:
    """A store in the first folder that can be written to: a project may be read-only."""

    def __init__(self, folders: Sequence[Path], *, lock_timeout_s: float) -> None:
        self._folders = folders
        self._lock_timeout_s = lock_timeout_s
        self._store: SqliteStore | None = None

    @property
    def store(self) -> SqliteStore:
        """The store, opened at first use."""
        if self._store is None:
            self._store = SqliteStore(self._folder() / FILE_NAME)
        return self._store

    @property
    def path(self) -> Path:
        """The file the index is kept in."""
        return self.store.path

    @property
    def where(self) -> str:
        """The file, for people."""
        return str(self.path)

    def check(self) -> None:
        """Look into the file; IndexOff says what to do."""
        self.store.collections()

    def sync(
        self,
        target: IndexSpec,
        *,
        budget_s: float | None = None,
        afresh: bool = False,
        progress: Progress | None = None,
        lock_timeout_s: float | None = None,
        changed: bool = False,
    ) -> Synced:
        """Bring one collection up to its journal; `changed`: there surely is something to do."""
        patience_s = self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s

        def work() -> Synced:
            if not (afresh or changed) and is_current(self.store, target):
                return Synced(complete=True)
            with self._lockable():
                return sync(
                    self.store,
                    target,
                    lock=self._lock,
                    lock_timeout_s=patience_s,
                    budget_s=budget_s,
                    afresh=afresh,
                    progress=progress,
                )

        return self.healed(work)

    def healed(self, work: Callable[[], _T]) -> _T:
        """Do the work; a damaged file is set aside and the work done again on a new one."""
        try:
            return work()
        except Corrupt as damage:
            self._set_aside(damage)
        try:
            return work()
        except Corrupt as damage:
            raise IndexOff(
                f"the index is damaged again after it was built anew ({damage})",
                where=str(self.path),
                todo="Check the disk; the journal has everything.",
            ) from damage

    def erase(self, target: IndexSpec, *, lock_timeout_s: float) -> None:
        """Leave nothing of what was forgotten on the disk, in no older or damaged index either."""
        synced = self.sync(target, lock_timeout_s=lock_timeout_s)
        held = not synced.complete and synced.embedder_off is None
        if held or self.healed(self.store.soiled):
            raise IndexOff("another process is busy with it", where=str(self.path))
        left = [file for file in self._others() if not _unlinked(file)]
        if left:
            raise IndexOff("an old index cannot be deleted", where=str(left[0]))

    def drop(self, name: str) -> None:
        """Delete a collection."""
        try:
            with self._lockable(), disk.locked(self._lock, timeout_s=self._lock_timeout_s):
                self.store.drop(name)
        except disk.Busy:
            raise IndexOff(
                "another process is building the index",
                where=str(self.path),
                todo="Try again when it has finished.",
            ) from None

    def remove_others(self) -> list[Path]:
        """Delete index files that no longer serve: set aside, of another schema or place."""
        return [file for file in self._others() if _unlinked(file)]

    def delete(self) -> None:
        """Throw the index away, wherever it can be; IndexOff when a file does not go."""
        if self._store is not None:
            self._store.close()
        left = [file for file in self._files() if not _unlinked(file)]
        if left:
            raise IndexOff(
                "the index cannot be deleted",
                where=str(left[0]),
                todo="Permit writing there, or delete it by hand.",
            )

    def _others(self) -> list[Path]:
        mine = {self.path.with_name(self.path.name + side) for side in SIDE_FILES}
        return [file for file in self._files() if file not in mine]

    def _files(self) -> list[Path]:
        found = (file for folder in self._folders for file in folder.glob("index-v*.sqlite3*"))
        return sorted(file for file in found if not file.is_dir())

    @contextlib.contextmanager
    def _lockable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise IndexOff(
                f"the index cannot be locked ({error.strerror or error})",
                where=str(self.path),
                todo="Free space or permit writing there; the journal has everything.",
            ) from error

    def close(self) -> None:
        """Close the store; it opens again by itself."""
        if self._store is not None:
            self._store.close()
            self._store = None

    @property
    def _lock(self) -> Path:
        return self.path.with_name(LOCK_NAME)

    def _folder(self) -> Path:
        for folder in self._folders:
            if _writable(folder):
                return folder
        raise IndexOff(
            "no folder for the index can be written to",
            where=str(self._folders[0]),
            todo="Permit writing there, or set RALPH_HOME to a folder of yours.",
        )

    def _set_aside(self, damage: Corrupt) -> None:
        inode = self.store.inode
        try:
            with disk.locked(self._lock, timeout_s=self._lock_timeout_s):
                if _inode(self.path) != inode:
                    self.store.close()  # somebody has seen to it already
                    return
                stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
                target = self.store.set_aside(f"damaged-{stamp}")
        except (disk.Busy, OSError) as error:
            raise IndexOff(
                f"the index is damaged ({damage}) and cannot be set aside ({error})",
                where=str(self.path),
                todo="Delete it: the journal has everything.",
            ) from error
        _log.warning(
            "the index was damaged (%s); it is set aside as %s and rebuilt from the journal",
            damage,
            target.name,
        )


def _writable(folder: Path) -> bool:
    """Whether files can be made there; asking the permissions alone is not enough."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _unlinked(file: Path) -> bool:
    try:
        file.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


# -- From settings to the index they name: embedded, or on a Qdrant server.


_ID_NAME = "machine"


class IndexSettings(Protocol):
    """The settings that choose an index and say how to reach it."""

    @property
    def index_lock_timeout_s(self) -> float: ...
    @property
    def journal_url(self) -> str | None: ...
    @property
    def qdrant_url(self) -> str | None: ...
    @property
    def qdrant_api_key(self) -> str | None: ...
    @property
    def qdrant_timeout_s(self) -> float: ...
    @property
    def qdrant_binary(self) -> str | None: ...


def index_for(
    where: IndexSettings, folders: Sequence[Path], *, home: Path, scope: Callable[[], str]
) -> AnyIndex:
    """The index of one memory; nothing is opened or asked before its first use.

    `folders` are where an embedded index, or the lock of another, may lie; `scope` tells what
    the names of this memory's collections begin with. On a server the collections of journals
    that lie in files belong to the first folder on this machine alone: clones share an id, and
    machines may share a path, but not their journals. Those of a journal that is itself on a
    server belong to all who use that database.
    """
    lock_timeout_s = where.index_lock_timeout_s
    if not where.qdrant_url:
        return Index(folders, lock_timeout_s=lock_timeout_s)
    from ralph.index.qdrant import CollectionNames, QdrantIndex

    server = _server(
        where.qdrant_url,
        where.qdrant_api_key or None,
        where.qdrant_timeout_s,
        where.qdrant_binary or None,
        home,
    )
    place = _database(where.journal_url) if where.journal_url else _folder(home, folders[0])
    return QdrantIndex(
        server, CollectionNames(scope, place), folders, lock_timeout_s=lock_timeout_s
    )


def _database(url: str) -> str:
    """One database, whoever asks it and with which password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _short("")  # the journal tells what is wrong with it
    told = {"host", "hostaddr", "port", "dbname", "service"}
    more = sorted(one for one in parse_qsl(parts.query) if one[0] in told)
    host = parts.netloc.rpartition("@")[2].lower().removesuffix(":5432")
    return _short(f"{host}/{parts.path.strip('/')} {more}")


def _folder(home: Path, folder: Path) -> Callable[[], str]:
    """A folder of this machine; looked up at its first use."""

    @functools.cache
    def place() -> str:
        return _short(f"{_own_id(home / _ID_NAME)} {folder}")

    return place


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
    from ralph.index.qdrant_server import QdrantConnection
    from ralph.index.qdrant_start import local_server

    starter = local_server(url, key=key, binary=binary, home=home)
    return QdrantConnection(url, key=key, timeout_s=timeout_s, starter=starter)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
