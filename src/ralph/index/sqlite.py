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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ralph import disk
from ralph.errors import IndexOff
from ralph.index import Manifest, Only, facet_tokens, wanted_tokens
from ralph.index.matrix import Matrix
from ralph.index.port import (
    COLUMNS,
    DROP,
    META,
    TABLES,
    Collection,
    Corrupt,
    IndexedRecord,
    collection_of,
)
from ralph.records import Record, Source
from ralph.text.tokens import tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ralph.index import Vectors


# -- Records into the tables of a collection in SQLite, and out of them.


_encode = msgspec.json.Encoder().encode


def insert_row(connection: sqlite3.Connection, n: int, row: IndexedRecord, sweep: int) -> None:
    """A record with its passages, their words, and the vectors there are."""
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
            f"INSERT INTO words_{n} (rowid, title, text, places, facets) VALUES (?, ?, ?, ?, ?)",
            (
                place,
                " ".join(tokens(passage.title)),
                " ".join(tokens(passage.text)),
                " ".join(tokens(passage.places)),
                " ".join(facet_tokens(passage.facets)),
            ),
        )
        if vector is not None:
            connection.execute(
                f"INSERT INTO vector_{n} (passage, v) VALUES (?, ?)", (place, vector)
            )


def remove_records(connection: sqlite3.Connection, n: int, where: str, value: str | int) -> int:
    """Take records out with everything that belongs to them; how many there were."""
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
    return len(found)


# -- Reading the embedded store: everything one query needs, from one unchanging state of it.


# For each facet the tokens of which one must be there.
Groups = tuple[tuple[str, ...], ...]

# Title, text, places, facets: how much a word counts by where it stands.
_FIELD_WEIGHTS = "2.0, 1.0, 0.5, 0.0"
# Vectors on their way from the file to the matrix are held twice; this bounds how many.
_LOAD_ROWS = 2048
_FLOAT_BYTES = 4
# Which passages fit the facets asked for is remembered for so many ways of asking.
_FITTING_KEPT = 8
_decode_source = msgspec.json.Decoder(Source).decode


class Matrices:
    """The vectors of each collection generation, shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, Matrix] = {}
        self._fitting: dict[tuple[object, ...], NDArray[np.int64]] = {}

    def nearest(
        self,
        connection: sqlite3.Connection,
        collection: Collection,
        query: Vectors,
        count: int,
        also: list[int],
        groups: Groups = (),
    ) -> dict[int, float]:
        """Cosines of the nearest passages, after loading what is new since the last query."""
        with self._lock:
            matrix, upto = self._loaded(connection, collection)
            among = self._among(connection, matrix, collection, upto, groups)
            return matrix.nearest(query, count, also, upto=upto, among=among)

    def nearest_of_each(
        self,
        connection: sqlite3.Connection,
        collection: Collection,
        queries: Vectors,
        count: int,
    ) -> list[dict[int, float]]:
        """The same for many vectors at once."""
        with self._lock:
            matrix, upto = self._loaded(connection, collection)
            return matrix.nearest_of_each(queries, count, upto=upto)

    def _loaded(self, connection: sqlite3.Connection, collection: Collection) -> tuple[Matrix, int]:
        n = collection.id
        matrix = self._by_name.get(collection.name)
        wanted = (n, collection.removals)
        if matrix is None or (matrix.generation, matrix.removals) != wanted:
            matrix = self._by_name[collection.name] = Matrix(collection.manifest.dims)
            matrix.generation, matrix.removals = wanted
        if matrix.last_vector == 0:
            # A passage may have several vectors in one row, and growing later copies them all.
            held = connection.execute(f"SELECT total(length(v)) FROM vector_{n}").fetchone()
            matrix.reserve(int(held[0]) // (_FLOAT_BYTES * collection.manifest.dims))
        cursor = connection.execute(
            f"SELECT row, passage, v FROM vector_{n} WHERE row > ? ORDER BY row",
            (matrix.last_vector,),
        )
        while rows := cursor.fetchmany(_LOAD_ROWS):
            try:
                matrix.append(*(list(column) for column in zip(*rows, strict=True)))
            except ValueError as error:
                raise Corrupt(f"a vector of another length than it should have: {error}") from None
        last = connection.execute(f"SELECT max(row) FROM vector_{n}").fetchone()[0]
        return matrix, last or 0

    def _among(
        self,
        connection: sqlite3.Connection,
        matrix: Matrix,
        collection: Collection,
        upto: int,
        groups: Groups,
    ) -> NDArray[np.int64] | None:
        """The passages that fit the facets; kept, because the same are asked for again."""
        if not groups:
            return None
        import numpy as np

        key = (*matrix.state, upto, groups)
        if key not in self._fitting:
            select = f"SELECT rowid FROM words_{collection.id} WHERE words_{collection.id} MATCH ?"
            rows = connection.execute(select, (_of_facets(groups),)).fetchall()
            while len(self._fitting) >= _FITTING_KEPT:
                self._fitting.pop(next(iter(self._fitting)))
            self._fitting[key] = np.array([row for (row,) in rows], dtype=np.int64)
        return self._fitting[key]


class SqliteView:
    """One unchanging state of the store, for as long as it is open."""

    def __init__(self, connection: sqlite3.Connection, matrices: Matrices) -> None:
        self._connection = connection
        self._matrices = matrices

    def live(self, name: str) -> Collection | None:
        """The collection that answers under this name."""
        query = f"SELECT {COLUMNS} FROM collection WHERE name = ? AND live = 1"
        row = self._connection.execute(query, (name,)).fetchone()
        return collection_of(row) if row else None

    def generations(self, name: str) -> tuple[Collection | None, Collection | None]:
        """The collection that answers, and the one that is being built to replace it."""
        live = building = None
        query = f"SELECT {COLUMNS} FROM collection WHERE name = ?"
        for row in self._connection.execute(query, (name,)):
            found = collection_of(row)
            if found.live:
                live = found
            else:
                building = found
        return live, building

    def words(
        self,
        collection: Collection,
        query: Sequence[str],
        count: int,
        *,
        only: Only | None = None,
    ) -> dict[int, float]:
        """BM25 of the passages that hold any of these tokens, the best `count` of them."""
        if not query:
            return {}
        n = collection.id
        match = " OR ".join(f'"{token}"' for token in query)
        if groups := wanted_tokens(only):
            match = f"({match}) AND {_of_facets(groups)}"
        rows = self._connection.execute(
            f"SELECT rowid, -bm25(words_{n}, {_FIELD_WEIGHTS}) AS score FROM words_{n}"
            f" WHERE words_{n} MATCH ? ORDER BY score DESC, rowid LIMIT ?",
            (match, count),
        )
        return dict(rows.fetchall())

    def nearest(
        self,
        collection: Collection,
        query: Vectors,
        count: int,
        also: list[int],
        *,
        only: Only | None = None,
    ) -> dict[int, float]:
        """Cosines of the `count` nearest passages and of those in `also`."""
        groups = wanted_tokens(only)
        return self._matrices.nearest(self._connection, collection, query, count, also, groups)

    def nearest_of_each(
        self, collection: Collection, queries: Vectors, count: int
    ) -> list[dict[int, float]]:
        """Cosines of the `count` nearest passages of each of these vectors."""
        return self._matrices.nearest_of_each(self._connection, collection, queries, count)

    def frequencies(self, collection: Collection, query: Iterable[str]) -> dict[str, int]:
        """In how many passages each token stands."""
        select = f"SELECT doc FROM vocabulary_{collection.id} WHERE term = ?"
        found: dict[str, int] = {}
        for token in query:
            row = self._connection.execute(select, (token,)).fetchone()
            found[token] = row[0] if row else 0
        return found

    def passages(self, collection: Collection) -> int:
        """How many passages there are."""
        select = f"SELECT count(*) FROM passage_{collection.id}"
        count: int = self._connection.execute(select).fetchone()[0]
        return count

    def fields(
        self, collection: Collection, rows: Iterable[int]
    ) -> dict[int, tuple[str, str, str]]:
        """The tokens of title, text and places of each of these passages, separated by blanks."""
        select = f"SELECT title, text, places FROM words_{collection.id} WHERE rowid = ?"
        found: dict[int, tuple[str, str, str]] = {}
        for row in rows:
            held = self._connection.execute(select, (row,)).fetchone()
            if held is None:
                raise Corrupt(f"passage {row} has no words")
            found[row] = held
        return found

    def expect(self, collection: Collection, rows: Iterable[int]) -> None:
        """Nothing to do: every row is at hand."""

    def records(self, collection: Collection, rows: Iterable[int]) -> dict[int, tuple[int, Record]]:
        """For each passage the number of its record in the index, and the record."""
        n = collection.id
        select = (
            "SELECT r.row, r.id, r.kind, r.number, r.at, r.body, r.source, r.digest"
            f" FROM passage_{n} p JOIN record_{n} r ON r.row = p.record WHERE p.row = ?"
        )
        found: dict[int, tuple[int, Record]] = {}
        for row in rows:
            found_row = self._connection.execute(select, (row,)).fetchone()
            if found_row is None:
                raise Corrupt(f"passage {row} has no record")
            place, record_id, kind, number, at, body, source, digest = found_row
            record = Record(record_id, kind, number, at, body, _decode_source(source))
            if record.digest != digest:
                raise Corrupt(f"record {record_id} does not match its digest")
            found[row] = place, record
        return found

    def last_number(self, collection: Collection) -> int:
        """The highest number any record of the collection has."""
        select = f"SELECT max(number) FROM record_{collection.id}"
        return int(self._connection.execute(select).fetchone()[0] or 0)

    def known(self, collection: Collection) -> dict[tuple[str, str], None]:
        """Identity and content of everything indexed."""
        select = f"SELECT id, digest FROM record_{collection.id}"
        return dict.fromkeys((row[0], row[1]) for row in self._connection.execute(select))

    def held(self, collection: Collection, keys: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of these ids and contents that are indexed."""
        select = f"SELECT 1 FROM record_{collection.id} WHERE id = ? AND digest = ?"
        return {key for key in keys if self._connection.execute(select, key).fetchone()}

    def forgotten(self, collection: Collection, ids: Iterable[str]) -> set[str]:
        """Those of these ids of which a tombstone has been met."""
        select = f"SELECT 1 FROM forgotten_{collection.id} WHERE id = ?"
        return {one for one in ids if self._connection.execute(select, (one,)).fetchone()}

    def soiled(self) -> bool:
        """Whether bytes of something forgotten may still be in the file."""
        return bool(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def waiting(self, collection: Collection, count: int) -> list[tuple[int, str]]:
        """Passages that have no vector yet, and the text to make one from."""
        select = (
            f"SELECT row, waiting FROM passage_{collection.id} WHERE waiting IS NOT NULL"
            " ORDER BY row LIMIT ?"
        )
        return self._connection.execute(select, (count,)).fetchall()

    def counts(self, collection: Collection) -> tuple[int, int, int]:
        """Records, passages, and passages that wait for a vector."""
        n = collection.id
        one = "SELECT count(*) FROM "
        values = [
            self._connection.execute(one + table).fetchone()[0]
            for table in (f"record_{n}", f"passage_{n}", f"passage_{n} WHERE waiting IS NOT NULL")
        ]
        return values[0], values[1], values[2]

    def vectors_by_hash(self, collection: Collection) -> dict[bytes, bytes]:
        """The vectors under the hash of the text they were made from, to be used again (F16)."""
        n = collection.id
        select = f"SELECT p.hash, v.v FROM vector_{n} v JOIN passage_{n} p ON p.row = v.passage"
        return dict(self._connection.execute(select).fetchall())


def _of_facets(groups: Groups) -> str:
    return " AND ".join(f"facets : ({' OR '.join(group)})" for group in groups)


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
        rows: Sequence[IndexedRecord],
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
