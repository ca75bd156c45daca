"""The embedded store: one SQLite file in WAL mode, read by any number of processes at once.

A collection has its own tables, so dropping or rebuilding one touches no other. A rebuild grows
beside the collection it replaces and takes its place in one transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ralph.errors import IndexOff
from ralph.index import Manifest
from ralph.index.tables import COLUMNS, DROP, META, TABLES, Collection, Row, collection_of
from ralph.index.view import Matrices, View
from ralph.text.tokens import tokens

# In the file's name: a Ralph with another schema keeps its own file, and nothing is migrated.
SCHEMA = 1
FILE_NAME = f"index-v{SCHEMA}.sqlite3"
SIDE_FILES = ("", "-wal", "-shm")
_encode = msgspec.json.Encoder().encode


class Corrupt(Exception):
    """The index file cannot be read as a database."""


class SqliteStore:
    """All collections of one project in one file. Each thread gets its own connection."""

    def __init__(self, path: Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._matrices = Matrices()

    # -- reading

    @contextlib.contextmanager
    def reading(self) -> Iterator[View]:
        """A view in which nothing changes while it is open; writers go on beside it."""
        with self._translated():
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                yield View(connection, self._matrices)
            finally:
                connection.execute("COMMIT")

    def collections(self) -> list[Collection]:
        """Every generation of every collection."""
        with self._translated():
            rows = self._connection().execute(f"SELECT {COLUMNS} FROM collection ORDER BY id")
            return [collection_of(row) for row in rows]

    def generations(self, name: str) -> tuple[Collection | None, Collection | None]:
        """The collection that answers, and the one that is being built to replace it."""
        live = building = None
        with self._translated():
            query = f"SELECT {COLUMNS} FROM collection WHERE name = ?"
            for row in self._connection().execute(query, (name,)):
                found = collection_of(row)
                if found.live:
                    live = found
                else:
                    building = found
        return live, building

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
    ) -> None:
        """Index one batch and move the position, all or nothing.

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
            sweep, sweeping = connection.execute(
                "SELECT sweep, sweeping FROM collection WHERE id = ?", (n,)
            ).fetchone()
            for row in rows:
                _insert(connection, n, row, sweep)
            if sweeping:
                connection.executemany(
                    f"UPDATE record_{n} SET sweep = {sweep} WHERE id = ? AND digest = ?", seen
                )
            for record_id in forget:
                connection.execute(f"INSERT OR IGNORE INTO forgotten_{n} VALUES (?)", (record_id,))
                _remove(connection, n, "id = ?", record_id)
            if done and sweeping:
                _remove(connection, n, "sweep < ?", sweep)
                connection.execute("UPDATE collection SET sweeping = 0 WHERE id = ?", (n,))
            connection.execute("UPDATE collection SET position = ? WHERE id = ?", (position, n))

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
            self._drop(connection, "name = ? AND live = 1", collection.name)
            connection.execute("UPDATE collection SET live = 1 WHERE id = ?", (collection.id,))

    def drop(self, name: str) -> None:
        """Delete a collection, every generation of it."""
        with self._writing() as connection:
            self._drop(connection, "name = ?", name)

    def scrub(self) -> None:
        """Make sure that what was removed cannot be read from the file's bytes any more."""
        with self._translated():
            connection = self._connection()
            for collection in self.collections():
                n = collection.id
                connection.execute(f"INSERT INTO words_{n} (words_{n}) VALUES ('optimize')")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def check(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        with self._translated():
            rows = self._connection().execute("PRAGMA integrity_check").fetchall()
            return [str(row[0]) for row in rows if row[0] != "ok"]

    def close(self) -> None:
        """Close every connection; the store may be used again afterwards."""
        for connection in self._opened:
            connection.close()
        self._opened.clear()
        self._local = threading.local()

    def delete(self) -> None:
        """Remove the file and what SQLite keeps beside it."""
        self.close()
        self._matrices = Matrices()
        for side in SIDE_FILES:
            self.path.with_name(self.path.name + side).unlink(missing_ok=True)

    def set_aside(self, suffix: str) -> Path:
        """Move the file out of the way, so that a new one can be built."""
        self.close()
        self._matrices = Matrices()
        target = self.path.with_name(f"{self.path.name}.{suffix}")
        for side in SIDE_FILES:
            old = self.path.with_name(self.path.name + side)
            if old.exists():
                old.replace(target.with_name(target.name + side))
        return target

    # -- inside

    def _connection(self) -> sqlite3.Connection:
        opened: tuple[sqlite3.Connection, int] | None = getattr(self._local, "opened", None)
        if opened and opened[1] == self._inode():
            return opened[0]
        if opened:  # the file was deleted or replaced under us
            opened[0].close()
            self._opened.remove(opened[0])
            self._matrices = Matrices()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            # Only its own thread uses a connection; closing may happen from another.
            check_same_thread=False,
        )
        self._opened.append(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(META)
        self._local.opened = connection, self._inode()
        return connection

    def _inode(self) -> int:
        try:
            return self.path.stat().st_ino
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            connection = self._connection()
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
        except (sqlite3.OperationalError, OSError) as error:
            raise IndexOff(
                f"the index cannot be used ({error})",
                where=str(self.path),
                todo="Free space or permit writing there; the journal has everything.",
            ) from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(str(error)) from error


def _script(connection: sqlite3.Connection, script: str, n: int | None) -> None:
    """Run statements one by one: executescript() would commit the transaction under way."""
    for statement in script.format(n=n).split(";"):
        if statement.strip():
            connection.execute(statement)


def _insert(connection: sqlite3.Connection, n: int, row: Row, sweep: int) -> None:
    record = row.record
    number = connection.execute(
        f"INSERT INTO record_{n} (id, digest, kind, number, at, source, body, sweep)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.id,
            record.digest,
            record.kind,
            record.number,
            record.at,
            _encode(record.source).decode(),
            record.body,
            sweep,
        ),
    ).lastrowid
    for passage, passage_hash, vector in zip(row.passages, row.hashes, row.vectors, strict=True):
        place = connection.execute(
            f"INSERT INTO passage_{n} (record, hash, waiting) VALUES (?, ?, ?)",
            (number, passage_hash, (passage.embed or None) if vector is None else None),
        ).lastrowid
        connection.execute(
            f"INSERT INTO words_{n} (rowid, title, text, places) VALUES (?, ?, ?, ?)",
            (
                place,
                " ".join(tokens(passage.title)),
                " ".join(tokens(passage.text)),
                " ".join(tokens(passage.places)),
            ),
        )
        if vector is not None:
            connection.execute(
                f"INSERT INTO vector_{n} (passage, v) VALUES (?, ?)", (place, vector)
            )


def _remove(connection: sqlite3.Connection, n: int, where: str, value: str | int) -> None:
    found = connection.execute(f"SELECT row FROM record_{n} WHERE {where}", (value,)).fetchall()
    for (number,) in found:
        passages = connection.execute(
            f"SELECT row FROM passage_{n} WHERE record = ?", (number,)
        ).fetchall()
        connection.executemany(f"DELETE FROM words_{n} WHERE rowid = ?", passages)
        connection.executemany(f"DELETE FROM vector_{n} WHERE passage = ?", passages)
        connection.execute(f"DELETE FROM passage_{n} WHERE record = ?", (number,))
        connection.execute(f"DELETE FROM record_{n} WHERE row = ?", (number,))
    if found:
        connection.execute("UPDATE collection SET removals = removals + 1 WHERE id = ?", (n,))
