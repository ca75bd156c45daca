"""Reading the embedded store: everything one query needs, from one unchanging state of it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ralph.index.facets import Only, wanted_tokens
from ralph.index.matrix import Matrix
from ralph.index.tables import COLUMNS, Collection, Corrupt, collection_of
from ralph.records import Record, Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ralph.index import Vectors

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
