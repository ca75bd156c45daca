"""The embedded store: one SQLite file in WAL mode, read by any number of processes at once.

A collection has its own tables, so dropping or rebuilding one touches no other. A rebuild grows
beside the collection it replaces and takes its place in one transaction.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ralph import disk
from ralph.errors import IndexOff
from ralph.index import Manifest
from ralph.index.sqlite_rows import insert_row, remove_records
from ralph.index.sqlite_view import Matrices, SqliteView
from ralph.index.tables import (
    COLUMNS,
    DROP,
    META,
    TABLES,
    Collection,
    Corrupt,
    Row,
    collection_of,
)

# In the file's name: a Ralph with another schema keeps its own file, and nothing is migrated.
SCHEMA = 2
FILE_NAME = f"index-v{SCHEMA}.sqlite3"
SIDE_FILES = ("", "-wal", "-shm")
_LARGEST_IDLE_LOG_BYTES = 16 * 1024 * 1024
# In the file itself, so that whoever comes after a crash still cleans up.
_SOILED, _CLEAN = "PRAGMA user_version = 1", "PRAGMA user_version = 0"


class SqliteStore:
    """All collections of one project in one file. Each thread gets its own connection."""

    def __init__(self, path: Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._local = threading.local()
        # Each connection with the lock its thread holds while using it: closing one that another
        # thread is using would crash the process.
        self._opened: dict[sqlite3.Connection, threading.RLock] = {}
        self._matrices: tuple[int, Matrices] = 0, Matrices()

    @property
    def title(self) -> str:
        """What people call it."""
        return "SQLite"

    @property
    def where(self) -> str:
        """The file."""
        return str(self.path)

    # -- reading

    @contextlib.contextmanager
    def reading(self) -> Iterator[SqliteView]:
        """A view in which nothing changes while it is open; writers go on beside it."""
        with self._using() as connection:
            connection.execute("BEGIN")
            try:
                yield SqliteView(connection, self._local.matrices)
            finally:
                connection.execute("COMMIT")

    def collections(self) -> list[Collection]:
        """Every generation of every collection."""
        with self._using() as connection:
            rows = connection.execute(f"SELECT {COLUMNS} FROM collection ORDER BY id")
            return [collection_of(row) for row in rows]

    def generations(self, name: str) -> tuple[Collection | None, Collection | None]:
        """The collection that answers, and the one that is being built to replace it."""
        with self.reading() as view:
            return view.generations(name)

    # -- writing

    def create(self, name: str, stream: str, manifest: Manifest, *, live: bool) -> Collection:
        """A new, empty generation; one that was being built before is dropped."""
        with self._writing() as connection:
            if not live:
                self._drop(connection, "name = ? AND live = 0", name)
            cursor = connection.execute(
                "INSERT INTO collection (name, stream, live, embedder, dims, tokeniser, cut)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, stream, int(live), *msgspec.structs.astuple(manifest)),
            )
            _script(connection, TABLES, cursor.lastrowid)
            query = f"SELECT {COLUMNS} FROM collection WHERE id = ?"
            row = connection.execute(query, (cursor.lastrowid,)).fetchone()
            return collection_of(row)

    def write(
        self,
        collection: Collection,
        rows: Sequence[Row],
        *,
        forget: Some[str],
        seen: Sequence[tuple[str, str]],
        position: str,
        restart: bool,
        done: bool,
    ) -> int:
        """Index one batch and move the position, all or nothing; how many were forgotten.

        `restart` begins a sweep: what the journal no longer has when `done` comes is dropped.
        `seen` are records the collection has already, met again by the sweep.
        """
        n = collection.id
        with self._writing() as connection:
            if restart:
                connection.execute(
                    "UPDATE collection SET sweep = sweep + 1, sweeping = 1 WHERE id = ?", (n,)
                )
                connection.execute(f"DELETE FROM forgotten_{n}")
            state = connection.execute(
                "SELECT sweep, sweeping FROM collection WHERE id = ?", (n,)
            ).fetchone()
            if state is None:
                raise Corrupt("somebody deleted it while it was written")
            sweep, sweeping = state
            for row in rows:
                insert_row(connection, n, row, sweep)
            if sweeping:
                connection.executemany(
                    f"UPDATE record_{n} SET sweep = {sweep} WHERE id = ? AND digest = ?", seen
                )
            removed = 0
            for record_id in forget:
                connection.execute(f"INSERT OR IGNORE INTO forgotten_{n} VALUES (?)", (record_id,))
                removed += remove_records(connection, n, "id = ?", record_id)
            if removed:
                connection.execute(_SOILED)
            if done and sweeping:
                remove_records(connection, n, "sweep < ?", sweep)
                connection.execute("UPDATE collection SET sweeping = 0 WHERE id = ?", (n,))
            connection.execute("UPDATE collection SET position = ? WHERE id = ?", (position, n))
        return removed

    def fill(self, collection: Collection, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Give vectors to passages that waited for the embedder."""
        n = collection.id
        with self._writing() as connection:
            connection.executemany(
                f"INSERT OR REPLACE INTO vector_{n} (passage, v) VALUES (?, ?)", vectors
            )
            connection.executemany(
                f"UPDATE passage_{n} SET waiting = NULL WHERE row = ?", [(v[0],) for v in vectors]
            )

    def replace_live(self, collection: Collection) -> None:
        """Let a built generation answer from now on, and drop the one before."""
        with self._writing() as connection:
            live, _ = SqliteView(connection, self._local.matrices).generations(collection.name)
            if (
                live
                and connection.execute(
                    f"SELECT 1 FROM record_{live.id} JOIN forgotten_{collection.id} USING (id)"
                ).fetchone()
            ):
                connection.execute(_SOILED)
            self._drop(connection, "name = ? AND live = 1", collection.name)
            connection.execute("UPDATE collection SET live = 1 WHERE id = ?", (collection.id,))

    def drop_building(self, name: str) -> None:
        """Give up a generation that was being built; the live one stays."""
        with self._writing() as connection:
            self._drop(connection, "name = ? AND live = 0", name)

    def drop(self, name: str) -> None:
        """Delete a collection, every generation of it."""
        with self._writing() as connection:
            self._drop(connection, "name = ?", name)

    def soiled(self) -> bool:
        """Whether bytes of something forgotten may still be in the file."""
        with self.reading() as view:
            return view.soiled()

    def scrub(self) -> None:
        """Make sure that what was removed cannot be read from the file's bytes any more."""
        with self._using() as connection:
            for collection in self.collections():
                n = collection.id
                connection.execute(f"INSERT INTO words_{n} (words_{n}) VALUES ('optimize')")
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise IndexOff(
                    "somebody reads the index for so long that it cannot be cleaned",
                    where=str(self.path),
                    todo="Ask again when that has ended.",
                )
            connection.execute(_CLEAN)

    def compact(self) -> None:
        """Give back the space of a dropped generation, unless somebody is in the way."""
        with contextlib.suppress(IndexOff), self._using() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def check(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        with self._using() as connection:
            rows = connection.execute("PRAGMA integrity_check").fetchall()
            return [str(row[0]) for row in rows if row[0] != "ok"]

    def close(self) -> None:
        """Close every connection; the store may be used again afterwards."""
        for connection, lock in list(self._opened.items()):
            with lock:
                self._close(connection)

    def set_aside(self, suffix: str) -> Path:
        """Move the file out of the way, so that a new one can be built."""
        self.close()
        target = self.path.with_name(f"{self.path.name}.{suffix}")
        for side in SIDE_FILES:
            # SQLite itself takes the log away with the last connection.
            with contextlib.suppress(FileNotFoundError):
                old = self.path.with_name(self.path.name + side)
                old.replace(target.with_name(target.name + side))
        return target

    # -- inside

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection; nobody closes it meanwhile."""
        with self._translated():
            while True:
                connection, lock = self._connection()
                with lock:
                    if connection in self._opened:
                        yield connection
                        return

    def _connection(self) -> tuple[sqlite3.Connection, threading.RLock]:
        opened: sqlite3.Connection | None = getattr(self._local, "opened", None)
        known = self._opened.get(opened) if opened else None
        if opened and known:
            if self._local.inode == self._inode():
                return opened, known
            with known:
                self._close(opened)  # the file was deleted or replaced under us
        disk.make_folder(self.path.parent)
        # Made here, because SQLite would let everybody read it; its log gets the same mode.
        if not self.path.exists():
            os.close(disk.open_file(self.path, os.O_RDWR | os.O_CREAT))
        self._local.inode = self._inode()
        lock = threading.RLock()
        with lock:
            connection = sqlite3.connect(
                self.path,
                timeout=self._busy_timeout_s,
                isolation_level=None,
                # Only its own thread uses a connection; closing may happen from another.
                check_same_thread=False,
            )
            self._opened[connection] = lock
            self._local.inode = self._inode()
            connection.execute("PRAGMA synchronous = NORMAL")
            # Forgotten content is wiped by `scrub`; zeroing every page of a dropped generation
            # would only make rebuilds slow.
            connection.execute("PRAGMA secure_delete = FAST")
            connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_LOG_BYTES}")
            self._use_wal(connection)
            connection.execute(META)
        if self._matrices[0] != self._local.inode:
            self._matrices = self._local.inode, Matrices()
        self._local.matrices = self._matrices[1]
        self._local.opened = connection
        return connection, lock

    def _close(self, connection: sqlite3.Connection) -> None:
        connection.close()
        self._opened.pop(connection, None)
        self._matrices = 0, Matrices()  # another file may be there when it is opened again

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to WAL once for the file; SQLite does not wait for others by itself here."""
        deadline = time.monotonic() + self._busy_timeout_s
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or time.monotonic() >= deadline:
                    raise  # a full disk stays full
                time.sleep(0.01)

    @property
    def inode(self) -> int:
        """Of the file this thread has open or tried last, which need not be the one there now."""
        return getattr(self._local, "inode", 0)

    def _inode(self) -> int:
        try:
            return self.path.stat().st_ino
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _drop(self, connection: sqlite3.Connection, where: str, name: str) -> None:
        found = connection.execute(f"SELECT id FROM collection WHERE {where}", (name,)).fetchall()
        for (n,) in found:
            _script(connection, DROP, n)
            connection.execute("DELETE FROM collection WHERE id = ?", (n,))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, OSError, msgspec.MsgspecError) as error:
            if _is_damage(error) or self.path.is_dir():
                raise Corrupt(str(error)) from error
            raise IndexOff(
                f"the index cannot be used ({error})",
                where=str(self.path),
                todo="Free space or permit writing there; the journal has everything.",
            ) from error


def _is_damage(error: Exception) -> bool:
    """Whether building the file anew would help; it does not where space or a permission lacks."""
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        return code & 0xFF == sqlite3.SQLITE_ERROR  # a table or column that is not there
    # Using a connection that another thread has closed is no damage to the file.
    return not isinstance(error, OSError | sqlite3.ProgrammingError)


def _script(connection: sqlite3.Connection, script: str, n: int | None) -> None:
    """Run statements one by one: executescript() would commit the transaction under way."""
    for statement in script.format(n=n).split(";"):
        if statement.strip():
            connection.execute(statement)
