"""The embedded store: one SQLite file in WAL mode. Any number of processes can read it at once.

Each collection has its own tables, so dropping or rebuilding one does not touch the others. A
rebuild is written next to the collection it replaces, and replaces it in one transaction.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from ralph import disk, index
from ralph.errors import IndexOff
from ralph.index import Collection, Corrupt, IndexBatch, IndexedRecord, Only, Rows, StoredPassage
from ralph.index.matrix import LoadedCollections, insert_vectors, remove_vectors, unpack
from ralph.records import Record, Source
from ralph.text.tokens import PassageWords, tokens

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.index.matrix import PassageVectors

# Part of the file's name: a Ralph with another schema uses its own file, and nothing is migrated.
SCHEMA = 3
FILE_NAME = f"index-v{SCHEMA}.sqlite3"
_SIDE_FILES = ("", "-wal", "-shm")
_META = """
CREATE TABLE IF NOT EXISTS collection (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL, stream TEXT NOT NULL, live INTEGER NOT NULL,
    embedder TEXT NOT NULL, dims INTEGER NOT NULL, tokeniser TEXT NOT NULL, cut TEXT NOT NULL,
    position TEXT, sweep INTEGER NOT NULL DEFAULT 0, sweeping INTEGER NOT NULL DEFAULT 0,
    removals INTEGER NOT NULL DEFAULT 0, UNIQUE (name, live));
"""
# Row numbers of passage and vector are never reused: an open reader selects the rows after the
# last one it knows. A row of vector is a block with the vectors of several passages, because
# reading them one by one would take most of the time of a first search.
_TABLES = """
CREATE TABLE record_{n} (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, digest TEXT NOT NULL, kind TEXT NOT NULL,
    number INTEGER NOT NULL, at TEXT NOT NULL, source TEXT NOT NULL, body BLOB NOT NULL,
    sweep INTEGER NOT NULL, UNIQUE (id, digest));
CREATE INDEX record_number_{n} ON record_{n} (number);
CREATE TABLE passage_{n} (
    row INTEGER PRIMARY KEY AUTOINCREMENT, record INTEGER NOT NULL, hash BLOB NOT NULL,
    waiting TEXT, block INTEGER);
CREATE INDEX passage_record_{n} ON passage_{n} (record);
CREATE INDEX passage_waiting_{n} ON passage_{n} (row) WHERE waiting IS NOT NULL;
CREATE TABLE vector_{n} (
    row INTEGER PRIMARY KEY AUTOINCREMENT, owners BLOB NOT NULL, v BLOB NOT NULL);
CREATE VIRTUAL TABLE words_{n} USING fts5(
    title, text, places, facets, tokenize = "ascii tokenchars '._/+#-'");
CREATE TABLE forgotten_{n} (id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
# Files of earlier versions also have a vocabulary table.
_DROPPED = ("vocabulary", "words", "vector", "passage", "record", "forgotten")
_DROP = "\n".join(f"DROP TABLE IF EXISTS {table}_{{n}};" for table in _DROPPED)
# Twice SQLite's default: reading blocks is faster, and writing one record is no slower.
_PAGE_BYTES = 8192
_LARGEST_IDLE_LOG_BYTES = 16 * 1024 * 1024
_BUSY_TIMEOUT_S = 5.0
# Stored in the file itself, so that cleanup still happens after a crash.
_NEEDS_VACUUM = "PRAGMA user_version = 1"
_IS_CLEAN = "PRAGMA user_version = 0"
# Below the limit on query parameters of every SQLite build.
_ROWS_AT_ONCE = 500
_decode_source = msgspec.json.Decoder(Source).decode


class ViewFacts(msgspec.Struct):
    """Facts a view has looked up. Valid until `version` changes, that is, until somebody writes."""

    version: int = 0
    found: dict[str | None, list[Collection]] = {}
    last_rows: dict[str, int] = {}


class SqliteView(msgspec.Struct, eq=False):
    """A snapshot of the store, as long as the view is open."""

    connection: sqlite3.Connection
    loaded: LoadedCollections
    facts: ViewFacts = msgspec.field(default_factory=ViewFacts)

    def collections(self, name: str | None = None) -> list[Collection]:
        """Return the collections with this name, or all: live ones and those being built."""
        if name in self.facts.found:
            return self.facts.found[name]
        columns = "embedder, dims, tokeniser, cut, id, name, stream, live, position"
        columns += ", sweep, sweeping, removals"
        select = f"SELECT {columns} FROM collection WHERE ?1 IS NULL OR name = ?1 ORDER BY id"
        rows = self.connection.execute(select, (name,)).fetchall()
        needs_vacuum = self._one("PRAGMA user_version")
        found: list[Collection] = []
        for row in rows:
            facts = dict(zip(columns.split(", "), row, strict=True), needs_vacuum=needs_vacuum)
            n = facts["id"]
            waiting = f"SELECT EXISTS (SELECT 1 FROM passage_{n} WHERE waiting IS NOT NULL)"
            last = self._one(f"SELECT max(number) FROM record_{n}")
            facts |= {"waiting": self._one(waiting), "last_number": last}
            facts["manifest"] = {key: facts[key] for key in index.Manifest.__struct_fields__}
            found.append(msgspec.convert(facts, Collection, strict=False))
        self.facts.found[name] = found
        return found

    def size(self, collection: Collection, *, texts: int = 0) -> index.CollectionSize:
        """Return its size, and the first `texts` texts that wait for a vector."""
        n = collection.id
        waiting = f"passage_{n} WHERE waiting IS NOT NULL"
        tables = (f"record_{n}", f"passage_{n}", waiting)
        records, passages, late = (self._one(f"SELECT count(*) FROM {one}") for one in tables)
        select = f"SELECT row, waiting FROM {waiting} ORDER BY row LIMIT ?"
        found = self.connection.execute(select, (texts,)).fetchall()
        return index.CollectionSize(records, passages, late, found)

    def words(
        self, collection: Collection, query: Sequence[str], count: int, *, only: Only = None
    ) -> index.WordMatches:
        """Return the best `count` passages with any of these tokens; for 0, only the counts."""
        loaded = self.loaded.of(collection)
        view = self.connection, self._last_row("passage", collection)
        passages = loaded.count(*view)
        counts = {one: loaded.count(*view, one) for one in query}
        facts = index.WordMatches({}, counts, passages)
        derived = index.derived_token()
        if without := loaded.count(*view, derived):
            own = {one: counts[one] - loaded.count(*view, one, derived) for one in counts}
            facts = index.WordMatches({}, own, passages - without)
        if not query or not count:
            return facts
        ranked = index.ranking_tokens(facts)
        fetch = functools.partial(self.fetch, collection)
        scores, *tables = loaded.matches(*view, counts, ranked, count, only, fetch)
        return index.WordMatches(scores, facts.frequencies, facts.passages, *tables)

    def nearest(
        self,
        collection: Collection,
        to: Vectors,
        count: int,
        *,
        also: Rows = (),
        only: Only = None,
    ) -> list[index.NearPassages]:
        """Return, for each vector, the passages in `also` and the `count` nearest ones."""
        loaded = self.loaded.of(collection)
        last = self._last_row("passage", collection)
        last_vector = self._last_row("vector", collection)
        return loaded.nearest(self.connection, last, last_vector, to, count, also=also, only=only)

    def dated(
        self, collection: Collection, first: str, end: str, count: int
    ) -> index.DatedPassages:
        """Return the newest `count` records from `first` on and before `end`."""
        n = collection.id
        first_passage = f"(SELECT min(row) FROM passage_{n} WHERE record = r.row)"
        select = (
            f"SELECT r.at, r.row, {first_passage} FROM record_{n} r WHERE r.at >= ? AND r.at < ?"
        )
        found = [one for one in self.connection.execute(select, (first, end)) if one[2]]
        rows = [row for _, _, row in sorted(found, reverse=True)[:count]]
        among = self._one(f"SELECT count(DISTINCT record) FROM passage_{n}")
        return index.DatedPassages(rows, len(found), among)

    def fetch(
        self, collection: Collection, rows: Iterable[int], *, records: bool = False
    ) -> dict[int, StoredPassage]:
        """Return these passages by row, with their records if requested."""
        n = collection.id
        wanted = list(rows)
        known = self.loaded.of(collection).passages
        if fresh := [row for row in wanted if row not in known]:
            select = f"SELECT rowid, title, text, places FROM words_{n} WHERE rowid"
            texts = self._rows(select, fresh)
            known |= {row: StoredPassage(PassageWords(*texts[row])) for row in fresh}
        if records and (fresh := [row for row in wanted if known[row].record is None]):
            select = "SELECT p.row, r.id, r.kind, r.number, r.at, r.body, r.source, r.digest"
            select += f" FROM passage_{n} p JOIN record_{n} r ON r.row = p.record WHERE p.row"
            values = self._rows(select, fresh)
            known |= {row: StoredPassage(known[row].words, _record(values[row])) for row in fresh}
        return dict(zip(wanted, map(known.__getitem__, wanted), strict=True))

    def _rows(self, select: str, rows: Sequence[int]) -> dict[int, Any]:
        """Return the columns of a SELECT for each of these rows; its first column is the row."""
        found: dict[int, Any] = {}
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            marks = ", ".join("?" * len(some))
            for row, *values in self.connection.execute(f"{select} IN ({marks})", some):
                found[row] = tuple(values)
        if missing := {*rows} - found.keys():
            raise Corrupt(f"passage {min(missing)} is not whole")
        return found

    def content(self, collection: Collection, *, vectors: bool = True) -> index.StoredContent:
        """Return everything, to check it or to reuse its vectors (F16)."""
        n = collection.id
        keys = self.connection.execute(f"SELECT id, digest FROM record_{n}").fetchall()
        found: dict[bytes, bytes] = {}
        if vectors:
            hashes = dict(self.connection.execute(f"SELECT row, hash FROM passage_{n}").fetchall())
            for block in self.connection.execute(f"SELECT owners, v FROM vector_{n} ORDER BY row"):
                found |= {hashes[row]: v for row, v in unpack(*block) if row in hashes}
        return index.StoredContent(frozenset(keys), found)

    def _last_row(self, kind: str, collection: Collection) -> int:
        table = f"{kind}_{collection.id}"
        if table not in self.facts.last_rows:
            self.facts.last_rows[table] = self._one(f"SELECT max(row) FROM {table}")
        return self.facts.last_rows[table]

    def _one(self, select: str, *values: object) -> int:
        row = self.connection.execute(select, values).fetchone()
        return int(row[0] or 0) if row else 0


def _record(values: tuple[str, str, int, str, bytes, bytes, str]) -> Record:
    record_id, kind, number, at, body, source, digest = values
    record = Record(record_id, kind, number, at, body, _decode_source(source))
    if record.digest != digest:
        raise Corrupt(f"record {record.id} does not match its digest")
    return record


class OpenConnection(msgspec.Struct, eq=False):
    """The state of a connection: a lock for the thread that uses it (closing a connection in use
    crashes the process), its file's inode and cache, and the facts its last view has looked up."""

    lock: Any
    inode: int
    loaded: LoadedCollections
    facts: ViewFacts = msgspec.field(default_factory=ViewFacts)


# By path and inode; the inode is not reused as long as a connection is open.
_loaded: WeakValueDictionary[tuple[Path, int], LoadedCollections] = WeakValueDictionary()
_loaded_lock = threading.Lock()
# Nobody deletes a file while a thread opens it: SQLite would take the side file of its successor
# for its own, and empty it in the memory of the other threads (SIGBUS).
_file_locks: dict[Path, threading.RLock] = {}


class SqliteStore:
    """All collections of one memory in one file. No two threads use a connection at once.

    `folders` may contain other index files: damaged, from another schema, or in another place.
    """

    title = "SQLite"
    keeps_deleted = False

    def __init__(self, path: Path, folders: Sequence[Path] = ()) -> None:
        self.path = path
        self.where = str(path)
        self._folders = folders or [path.parent]
        self._file_lock = _file_locks.setdefault(path, threading.RLock())
        self._local = threading.local()
        self._opened: dict[sqlite3.Connection, OpenConnection] = {}
        # Those that no thread uses. The last one knows most about the file.
        self._idle: list[sqlite3.Connection] = []

    @contextlib.contextmanager
    def state(self) -> Iterator[SqliteView]:
        """Yield a view in which nothing changes while it is open. It does not block writers."""
        with self._using() as connection:
            connection.execute("BEGIN")
            try:
                opened = self._opened[connection]
                version = _data_version(connection)
                if opened.facts.version != version:
                    opened.facts = ViewFacts(version)
                yield SqliteView(connection, opened.loaded, opened.facts)
            finally:
                connection.execute("COMMIT")

    def write(self, collection: Collection, batch: IndexBatch) -> Collection:
        """Index one batch and move the position, all or nothing."""
        rows, seen = self._divided(collection, batch)
        with self._writing() as connection:
            collection = collection if collection.id else _create(connection, collection)
            n = collection.id
            if batch.restart:
                restart = "UPDATE collection SET sweep = sweep + 1, sweeping = 1 WHERE id = ?"
                connection.execute(restart, (n,))
                connection.execute(f"DELETE FROM forgotten_{n}")
            select = "SELECT sweep, sweeping, live FROM collection WHERE id = ?"
            if (state := connection.execute(select, (n,)).fetchone()) is None:
                raise Corrupt("another process deleted it while it was written")
            sweep, sweeping, live = state
            vectors = [one for row in rows for one in _insert_record(connection, n, row, sweep)]
            insert_vectors(connection, n, vectors)
            if sweeping:
                mark = f"UPDATE record_{n} SET sweep = {sweep} WHERE id = ? AND digest = ?"
                connection.executemany(mark, seen)
            for record_id in batch.forget:
                connection.execute(f"INSERT OR IGNORE INTO forgotten_{n} VALUES (?)", (record_id,))
                if _remove(connection, n, "id = ?", record_id):
                    connection.execute(_NEEDS_VACUUM)
            if batch.done and sweeping:
                _remove(connection, n, "sweep < ?", sweep)
                connection.execute("UPDATE collection SET sweeping = 0 WHERE id = ?", (n,))
            select = f"SELECT 1 FROM passage_{n} WHERE row = ? AND block IS NULL"
            is_free = [connection.execute(select, one[:1]).fetchone() for one in batch.vectors]
            insert_vectors(connection, n, [*itertools.compress(batch.vectors, is_free)])
            if batch.position is not None:
                position = (batch.position, n)
                connection.execute("UPDATE collection SET position = ? WHERE id = ?", position)
            if batch.done and not live:
                _switch(connection, collection)
            # No other connection can write now, so the next view need not look again.
            opened = self._opened[connection]
            opened.facts = ViewFacts(_data_version(connection))
            found = SqliteView(connection, opened.loaded, opened.facts).collections(collection.name)
        [written] = (one for one in found if one.id == n)
        if batch.done and (written.needs_vacuum or not live):
            with contextlib.suppress(IndexOff):  # a reader takes long; the next sync tries again
                self._vacuum(forgotten=written.needs_vacuum)
        return written

    def _divided(
        self, collection: Collection, batch: IndexBatch
    ) -> tuple[list[IndexedRecord], list[index.RecordKey]]:
        """Return the records to write, and the keys that are indexed already."""
        n = collection.id
        if not n:
            return batch.prepare((), ()), []
        with self._using() as connection:
            select = f"SELECT 1 FROM record_{n} WHERE id = ? AND digest = ?"
            seen = [key for key in batch.records if connection.execute(select, key).fetchone()]
            select = f"SELECT 1 FROM forgotten_{n} WHERE id = ?"
            forgotten = {
                record_id
                for record_id, _ in batch.records.keys() - seen
                if not batch.restart and connection.execute(select, (record_id,)).fetchone()
            }
        return batch.prepare(frozenset(seen), forgotten), seen

    def drop(self, name: str | None = None, *, unfinished: bool = False) -> None:
        """Delete the collections with this name, or only those being built; or the whole file."""
        if name is not None:
            with self._writing() as connection:
                _drop(connection, "name = ? AND live = 0" if unfinished else "name = ?", name)
            return
        self.close()
        with self._file_lock:
            self._unlink(self._files(), "the index cannot be deleted")

    def prune(self) -> list[str]:
        """Delete unused index files: damaged, from another schema, or in another place."""
        others = sorted({*self._files()} - {Path(f"{self.path}{side}") for side in _SIDE_FILES})
        self._unlink(others, "an old index cannot be deleted")
        return [file.name for file in others]

    def repair(self, damage: Corrupt) -> None:
        """Move the damaged file out of the way, so that a new one can be built."""
        mine = getattr(self._local, "inode", 0)
        self.close()
        if self._inode() != mine:
            return  # another process has repaired it already
        now = datetime.now(UTC)
        aside = self.path.with_name(f"{self.path.name}.damaged-{now:%Y%m%dT%H%M%S%f}")
        with self._file_lock:
            for side in _SIDE_FILES:
                # SQLite deletes the log itself when the last connection closes.
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{side}").replace(f"{aside}{side}")
        import logging  # a search does not need it

        warning = "the index was damaged (%s); it is set aside as %s and rebuilt from the journal"
        logging.getLogger("ralph").warning(warning, damage, aside.name)

    def check(self, *, deep: bool = False) -> list[str]:
        """Try to read the file; with `deep`, return the problems SQLite itself finds in it."""
        with self.state() as view:
            view.collections()
            rows = view.connection.execute("PRAGMA integrity_check").fetchall() if deep else ()
        return [str(row[0]) for row in rows if row[0] != "ok"]

    def close(self) -> None:
        """Close every connection. The store can be used again afterwards."""
        for opened in list(self._opened.items()):
            self._close(*opened)

    def _vacuum(self, *, forgotten: bool) -> None:
        """Free the space of dropped collections; with `forgotten`, also make sure that the file's
        bytes contain no forgotten text."""
        with self._using() as connection:
            self._opened[connection].facts = ViewFacts()
            if forgotten:
                for (n,) in connection.execute("SELECT id FROM collection").fetchall():
                    connection.execute(f"INSERT INTO words_{n} (words_{n}) VALUES ('optimize')")
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if forgotten and not busy:
                connection.execute(_IS_CLEAN)

    def _files(self) -> list[Path]:
        found = (file for folder in self._folders for file in folder.glob("index-v*.sqlite3*"))
        return sorted(file for file in found if not file.is_dir())

    def _unlink(self, files: Sequence[Path], complaint: str) -> None:
        for file in files:
            try:
                file.unlink(missing_ok=True)
            except OSError:
                todo = "Permit writing there, or delete it by hand."
                raise IndexOff(complaint, where=str(file), todo=todo) from None

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection. No other thread uses or closes it in the meantime."""
        with self._translated():
            while True:
                connection, lock = self._connection()
                with lock:
                    if connection in self._opened:
                        try:
                            yield connection
                        finally:
                            self._idle.append(connection)
                        return

    def _connection(self) -> tuple[sqlite3.Connection, threading.RLock]:
        with contextlib.suppress(IndexError):
            while True:
                idle = self._idle.pop()
                if used := self._opened.get(idle):
                    self._local.inode = used.inode
                    if used.inode == self._inode():
                        return idle, used.lock
                    self._close(idle, used)  # the file was deleted or replaced under us
        disk.make_folder(self.path.parent)
        while True:
            with self._file_lock:
                connection, opened = self._open()
                if opened.inode == self._inode():
                    return connection, opened.lock
                self._close(connection, opened)  # another process has replaced the file

    def _open(self) -> tuple[sqlite3.Connection, OpenConnection]:
        if not self.path.exists():  # SQLite would make it, and its log, readable for everyone
            os.close(disk.open_file(self.path, os.O_RDWR | os.O_CREAT))
        inode = self._local.inode = self._inode()
        # Threads use a connection in turn, and any thread may close it.
        how: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}
        connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, **how)
        with _loaded_lock:
            loaded = _loaded.setdefault((self.path, inode), LoadedCollections())
        opened = OpenConnection(threading.RLock(), inode, loaded)
        with opened.lock:
            self._opened[connection] = opened
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # for a new file
            connection.execute("PRAGMA synchronous = NORMAL")
            # `_vacuum` wipes forgotten content. Zeroing dropped pages would make rebuilds slow.
            connection.execute("PRAGMA secure_delete = FAST")
            connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_LOG_BYTES}")
            self._use_wal(connection)
            connection.execute(_META)
        return connection, opened

    def _close(self, connection: sqlite3.Connection, opened: OpenConnection) -> None:
        with opened.lock:
            connection.close()
            self._opened.pop(connection, None)

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch the file to WAL mode, once. Here SQLite does not wait for other processes."""
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or time.monotonic() >= deadline:
                    raise  # a full disk stays full
                time.sleep(0.01)

    def _inode(self) -> int:
        try:
            return self.path.stat().st_ino
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._using() as connection:
            opened = self._opened[connection]
            opened.facts = ViewFacts()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                opened.facts = ViewFacts()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, OSError, msgspec.MsgspecError) as error:
            if _is_damage(error) or self.path.is_dir():
                raise Corrupt(str(error)) from error
            what = f"the index cannot be used ({error})"
            todo = "Free up disk space or fix the permissions; the journal has everything."
            raise IndexOff(what, where=self.where, todo=todo) from error


def _is_damage(error: Exception) -> bool:
    """Whether rebuilding the file would help; not if disk space or a permission is missing."""
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        return code & 0xFF == sqlite3.SQLITE_ERROR  # a table or column is missing
    # Using a connection that another thread has closed does not mean the file is damaged.
    return not isinstance(error, OSError | sqlite3.ProgrammingError)


def _data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when other connections write, but not when this one does."""
    [version] = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


# -- collections and their rows, inside a transaction


def _create(connection: sqlite3.Connection, collection: Collection) -> Collection:
    """Create empty tables. The collection is live at once if no other has its name."""
    name = collection.name
    manifest = msgspec.structs.asdict(collection.manifest)
    _drop(connection, "name = ? AND live = 0", name)
    select = "SELECT 1 FROM collection WHERE name = ?"
    live = connection.execute(select, (name,)).fetchone() is None
    row = {"name": name, "stream": collection.stream, "live": int(live), **manifest}
    n = _insert(connection, "collection", row)
    _script(connection, _TABLES, n)
    return msgspec.structs.replace(collection, id=n, live=live)


def _switch(connection: sqlite3.Connection, collection: Collection) -> None:
    """Make a complete collection live, and drop the one before."""
    n = collection.id
    name = collection.name
    select = "SELECT id FROM collection WHERE name = ? AND live = 1"
    for (old,) in connection.execute(select, (name,)).fetchall():
        both = f"SELECT 1 FROM record_{old} JOIN forgotten_{n} USING (id)"
        if connection.execute(both).fetchone():
            connection.execute(_NEEDS_VACUUM)
    _drop(connection, "name = ? AND live = 1", name)
    connection.execute("UPDATE collection SET live = 1 WHERE id = ?", (n,))


def _drop(connection: sqlite3.Connection, where: str, name: str) -> None:
    select = f"SELECT id FROM collection WHERE {where}"
    for (n,) in connection.execute(select, (name,)).fetchall():
        _script(connection, _DROP, n)
        connection.execute("DELETE FROM collection WHERE id = ?", (n,))


def _insert(connection: sqlite3.Connection, table: str, values: Mapping[str, object]) -> int:
    """Insert a row and return its number."""
    columns = ", ".join(values)
    places = ", ".join("?" * len(values))
    insert = f"INSERT INTO {table} ({columns}) VALUES ({places})"
    return connection.execute(insert, tuple(values.values())).lastrowid or 0


def _insert_record(
    connection: sqlite3.Connection, n: int, row: IndexedRecord, sweep: int
) -> Iterator[PassageVectors]:
    """Insert a record, its passages and their words; yield the vectors that exist."""
    names = ("id", "digest", "kind", "number", "at", "body")
    values = {name: getattr(row.record, name) for name in names}
    values |= {"source": msgspec.json.encode(row.record.source).decode(), "sweep": sweep}
    number = _insert(connection, f"record_{n}", values)
    for passage, passage_hash, vector in zip(row.passages, row.hashes, row.vectors, strict=True):
        waiting = (passage.embed or None) if vector is None else None
        values = {"record": number, "hash": passage_hash, "waiting": waiting}
        place = _insert(connection, f"passage_{n}", values)
        fields = {name: tokens(getattr(passage, name)) for name in ("title", "text", "places")}
        fields["facets"] = index.facet_tokens(passage.facets)
        words = {name: " ".join(found) for name, found in fields.items()}
        _insert(connection, f"words_{n}", {"rowid": place, **words})
        if vector is not None:
            yield place, vector


def _remove(connection: sqlite3.Connection, n: int, where: str, value: str | int) -> int:
    """Delete records with everything that belongs to them; return how many there were."""
    found = connection.execute(f"SELECT row FROM record_{n} WHERE {where}", (value,)).fetchall()
    block_of: dict[int, int | None] = {}
    for number in found:
        select = f"SELECT row, block FROM passage_{n} WHERE record = ?"
        passages = dict(connection.execute(select, number).fetchall())
        for table, column in (("words", "rowid"), ("passage", "row")):
            delete = f"DELETE FROM {table}_{n} WHERE {column} = ?"
            connection.executemany(delete, [(row,) for row in passages])
        connection.execute(f"DELETE FROM record_{n} WHERE row = ?", number)
        block_of |= passages
    if found:
        remove_vectors(connection, n, block_of)
    return len(found)


def _script(connection: sqlite3.Connection, script: str, n: int) -> None:
    """Run statements one by one, because executescript() would commit the open transaction."""
    for statement in script.format(n=n).split(";"):
        if statement.strip():
            connection.execute(statement)
