"""The index of one place on a Qdrant server: who syncs at a time, and how it heals.

A lock beside the local cache keeps the processes of one machine from doing the same work. Between
machines nothing is locked: what two of them write is the same, and a position that goes back only
means that a part of the journal is read again.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ralph import disk
from ralph.errors import IndexOff
from ralph.index.qdrant.names import Names
from ralph.index.qdrant.server import Damaged, Server
from ralph.index.qdrant.store import QdrantStore
from ralph.index.sync import Progress, Synced, Target, is_current, sync
from ralph.index.tables import Corrupt

_log = logging.getLogger("ralph")
_LOCK_NAME = "index.lock"
_TRIES = 3
# Up to so many, a collection from which something was forgotten is written anew.
_RENEWED_PASSAGES = 5000
_T = TypeVar("_T")


class QdrantIndex:
    """A store on a server, with the promises of the embedded index."""

    def __init__(
        self, server: Server, names: Names, folders: Sequence[Path], *, lock_timeout_s: float
    ) -> None:
        self._server = server
        self._store = QdrantStore(server, names)
        self._folders = folders
        self._lock_timeout_s = lock_timeout_s
        self._path: Path | None = None

    @property
    def store(self) -> QdrantStore:
        """The store."""
        return self._store

    @property
    def path(self) -> Path:
        """Where the lock lies; there is no file of the index."""
        if self._path is None:
            self._path = _writable(self._folders) / "qdrant"
        return self._path

    @property
    def where(self) -> str:
        """The server, without its key."""
        return self._server.where

    @property
    def version(self) -> str:
        """The server's version."""
        return self._server.version

    def check(self) -> None:
        """Ask the server now, whatever was found before; IndexOff says what to do."""
        self._server.check()

    def sync(
        self,
        target: Target,
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
            if not (afresh or changed) and is_current(self._store, target):
                return Synced(complete=True)
            try:
                return sync(
                    self._store,
                    target,
                    lock=self._lock,
                    lock_timeout_s=patience_s,
                    budget_s=budget_s,
                    afresh=afresh,
                    progress=progress,
                )
            except OSError as error:
                raise IndexOff(
                    f"the index cannot be locked ({error.strerror or error})",
                    where=str(self._lock),
                    todo="Free space or permit writing there; the journal has everything.",
                ) from error

        return self.healed(work)

    def healed(self, work: Callable[[], _T]) -> _T:
        """Do the work; what was replaced or deleted meanwhile is looked at again, and a collection
        that cannot be read is dropped and built anew."""
        last = Corrupt()
        for _ in range(_TRIES):
            try:
                return work()
            except Corrupt as error:
                last = error
                if isinstance(error, Damaged):
                    self._drop_damaged(error)
        raise IndexOff(
            f"the index is not what it should be, again and again ({last})",
            where=self.where,
            todo="Run: ralph index rebuild. The journal has everything.",
        )

    def erase(self, target: Target, *, lock_timeout_s: float) -> None:
        """Take what was forgotten out of the server's collection."""
        synced = self.sync(target, lock_timeout_s=lock_timeout_s)
        if not synced.complete and synced.embedder_off is None:
            raise IndexOff("another process is busy with it", where=self.where)
        self.healed(lambda: self._renew(target, lock_timeout_s))

    def _renew(self, target: Target, lock_timeout_s: float) -> None:
        """A server may keep a deleted point's bytes for long; it deletes a collection's at once."""
        with self._store.reading() as view:
            live = view.live(target.name)
            if live is None or view.passages(live) > _RENEWED_PASSAGES:
                return
        timeout_s = lock_timeout_s
        sync(self._store, target, lock=self._lock, lock_timeout_s=timeout_s, renew=True)

    def drop(self, name: str) -> None:
        """Delete a collection."""
        try:
            with disk.locked(self._lock, timeout_s=self._lock_timeout_s):
                self._store.drop(name)
        except disk.Busy:
            raise IndexOff(
                "another process is building the index",
                where=self.where,
                todo="Try again when it has finished.",
            ) from None

    def remove_others(self) -> list[Path]:
        """Delete generations that no alias names, and name them; IndexOff as everywhere."""
        try:
            with disk.locked(self._lock, timeout_s=self._lock_timeout_s):
                unused = self._store.unused()
                for physical in unused:
                    self._store.drop_generation(physical)
        except disk.Busy:
            return []  # whoever is at work sees to it
        return [Path(physical) for physical in unused]

    def delete(self) -> None:
        """Throw this place's collections away."""
        self._store.drop_all()

    def close(self) -> None:
        """Let go; it opens again by itself."""
        self._store.close()

    @property
    def _lock(self) -> Path:
        return self.path.with_name(_LOCK_NAME)

    def _drop_damaged(self, damage: Damaged) -> None:
        _log.warning(
            "the index was damaged (%s); %s is dropped and rebuilt from the journal",
            damage,
            damage.name,
        )
        self._store.drop_generation(damage.name)


def _writable(folders: Sequence[Path]) -> Path:
    """The first folder that a lock can lie in; one of the system's where there is none."""
    for folder in [*folders, Path(tempfile.gettempdir())]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    raise IndexOff(
        "no folder for the lock of the index can be written to",
        where=str(folders[0]),
        todo="Permit writing there, or set RALPH_HOME to a folder of yours.",
    )
