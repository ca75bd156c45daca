"""What passages are chosen by: their facets, and SQLite's vectors (in blocks and as a matrix)."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import sqlite3
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ralph.index import DERIVED, Collection, Corrupt, Facets, Only, Rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ralph.index import Vectors

    Among = NDArray[np.int64] | None

NEARNESS_DIGITS = 5
_FLOAT_BYTES = 4
# Which passages fit the facets asked for is remembered for so many ways of asking.
_FACET_CACHE = 8
# How many questions, and how many rows of the matrix, are multiplied in one go.
_AT_ONCE, _ROWS_AT_ONCE = 64, 4096
# Of a row's numbers: those of 16 bits give cosines that are right to five digits.
_LARGEST = 32767


# For each facet the tokens of which one must be there.
Groups = tuple[tuple[str, ...], ...]


# A passage, and its vectors as bytes.
PassageVectors = tuple[int, bytes]
# How many passages have their vectors in one block.
_BLOCK = 64


def pack(vectors: Sequence[PassageVectors]) -> tuple[bytes, bytes]:
    """A block: two numbers for each passage, its row and the bytes it has; then all vectors."""
    owners = array("q", [number for row, v in vectors for number in (row, len(v))])
    return owners.tobytes(), b"".join(v for _, v in vectors)


def unpack(owners: bytes, data: bytes) -> list[PassageVectors]:
    """The vectors of a block by passage."""
    if len(owners) % 16:
        raise Corrupt("a block of vectors does not say whose they are")
    numbers = array("q", owners)
    rows, sizes = numbers[::2], numbers[1::2]
    ends = itertools.accumulate(sizes)
    return [(row, data[end - size : end]) for row, size, end in zip(rows, sizes, ends, strict=True)]


def insert_vectors(
    connection: sqlite3.Connection, n: int, vectors: Sequence[PassageVectors]
) -> None:
    """Vectors of passages that had none, in new blocks."""
    for start in range(0, len(vectors), _BLOCK):
        some = vectors[start : start + _BLOCK]
        insert = f"INSERT INTO vector_{n} (owners, v) VALUES (?, ?)"
        block = connection.execute(insert, pack(some)).lastrowid or 0
        update = f"UPDATE passage_{n} SET waiting = NULL, block = ? WHERE row = ?"
        connection.executemany(update, [(block, row) for row, _ in some])
        if block % _BLOCK == 0:
            _merge_blocks(connection, n)


def _merge_blocks(connection: sqlite3.Connection, n: int) -> None:
    """Make the small blocks at the end one: many records come one at a time."""
    select = f"SELECT row, owners, v FROM vector_{n} ORDER BY row DESC LIMIT {_BLOCK}"
    last = connection.execute(select).fetchall()
    small = list(itertools.takewhile(lambda one: len(one[1]) <= 8 * _BLOCK, last))
    if len(small) > _BLOCK // 2:
        connection.executemany(f"DELETE FROM vector_{n} WHERE row = ?", [one[:1] for one in small])
        together = [one for _, *block in reversed(small) for one in unpack(*block)]
        insert_vectors(connection, n, together)
        _count_removal(connection, n)


def remove_vectors(
    connection: sqlite3.Connection, n: int, block_of: Mapping[int, int | None]
) -> None:
    """Take the vectors of these passages out of their blocks."""
    for block in {*block_of.values()} - {None}:
        select = f"SELECT owners, v FROM vector_{n} WHERE row = ?"
        packed = connection.execute(select, (block,)).fetchone() or (b"", b"")
        rest = [one for one in unpack(*packed) if one[0] not in block_of]
        update = f"UPDATE vector_{n} SET owners = ?, v = ? WHERE row = ?"
        connection.execute(update, (*pack(rest), block))
    connection.execute(f"DELETE FROM vector_{n} WHERE owners = x''")
    _count_removal(connection, n)


def _count_removal(connection: sqlite3.Connection, n: int) -> None:
    """Vectors are no longer where readers have seen them; they read them all again."""
    connection.execute("UPDATE collection SET removals = removals + 1 WHERE id = ?", (n,))


def quantized(vectors: Vectors) -> tuple[Vectors, Vectors]:
    """The vectors as whole numbers of 16 bits, and the scale that each row is to be taken by."""
    import numpy as np

    largest = np.maximum(vectors.max(axis=1), -vectors.min(axis=1))
    largest[largest == 0] = 1  # a text without a word that the embedder knows
    numbers = np.rint(vectors * (_LARGEST / largest)[:, None])
    squares = np.einsum("ij,ij->i", numbers, numbers)
    # The nearest multiple of the whole numbers: every vector keeps its length.
    return numbers, np.einsum("ij,ij->i", numbers, vectors) / np.maximum(squares, 1)


class Matrix:
    """Rows of unit vectors; grows by appending, and is thrown away when rows were removed.

    A passage that was cut into pieces has a row for each, one after another. Row i stands for
    `scales[i] * data[i]`: as 16-bit numbers they take half the memory.
    """

    def __init__(self, dims: int, state: tuple[int, int] = (0, 0)) -> None:
        import numpy as np

        self._dims = dims
        self._count = 0
        self._rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._vectors: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._data: NDArray[np.int16] = np.empty((0, dims), dtype=np.int16)
        self._scales: Vectors = np.empty(0, dtype=np.float32)
        self._pieces = False  # whether any passage has several rows
        # Which collection is here, and after how many removals.
        self.state = state

    @property
    def last_vector(self) -> int:
        """The last block that is here."""
        return int(self._vectors[self._count - 1]) if self._count else 0

    def reserve(self, capacity: int) -> None:
        """Make room for this many rows in all."""
        import numpy as np

        if capacity <= len(self._rows):
            return
        for name in ("_rows", "_vectors", "_data", "_scales"):
            old = getattr(self, name)
            new = np.empty((capacity, *old.shape[1:]), dtype=old.dtype)
            new[: self._count] = old[: self._count]
            setattr(self, name, new)

    def append(self, block: int, owners: bytes, data: bytes) -> None:
        """Add a block above the last one: whose its vectors are, and their numbers."""
        import numpy as np

        width = self._dims * _FLOAT_BYTES
        passages, sizes = np.frombuffer(owners, dtype=np.int64).reshape(-1, 2).T
        counts = sizes // width
        total = len(data) // width
        if (counts * width != sizes).any() or sizes.min() <= 0 or sizes.sum() != len(data):
            raise ValueError("a block that holds no whole vectors")
        end = self._count + total
        if end > len(self._rows):
            self.reserve(max(end, 2 * self._count))  # doubling keeps the cost of growing flat
        new = slice(self._count, end)
        vectors = np.frombuffer(data, dtype=np.float32).reshape(total, self._dims)
        with np.errstate(invalid="ignore"):  # `ralph index verify` reports what is no number
            self._data[new], self._scales[new] = quantized(vectors)
        self._rows[new] = passages.repeat(counts)
        self._vectors[new] = block
        self._pieces = self._pieces or total > len(passages)
        self._count = end

    def nearest(
        self, to: Vectors, count: int, also: Rows = (), upto: int | None = None, among: Among = None
    ) -> list[dict[int, float]]:
        """For each vector the cosines of the `count` nearest passages, and of those in `also`.

        `upto` leaves out blocks above it: another thread may have loaded what was written
        after the asking view began. `among` names the passages that count.
        """
        import numpy as np

        held = self._count
        if upto is not None and self.last_vector > upto:
            held = int(np.searchsorted(self._vectors[:held], upto, side="right"))
        if not held:
            return [{} for _ in to]
        rows = self._rows[:held]
        firsts: Any = None
        if self._pieces:
            firsts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
            rows = rows[firsts]
        chosen: Any = slice(None) if among is None else _is_among(rows, among)
        rows = rows[chosen]
        asked = np.flatnonzero(_is_among(rows, np.array(also))) if also else np.arange(0)
        found: list[dict[int, float]] = []
        for start in range(0, len(to), _AT_ONCE):
            for cosines in self._cosines(to[start : start + _AT_ONCE], held):
                # A passage is as near as its nearest piece.
                near_by = cosines if firsts is None else np.maximum.reduceat(cosines, firsts)
                near_by = near_by[chosen]
                best = _largest(near_by, count) if count < len(rows) else np.arange(len(rows))
                best = np.concatenate((best, asked))
                found.append(dict(zip(rows[best].tolist(), rounded(near_by[best]), strict=True)))
        return found

    def _cosines(self, to: Vectors, held: int) -> Vectors:
        """Of each vector with each of the first rows."""
        import numpy as np

        found = np.empty((len(to), held), dtype=np.float32)
        if len(to) == 1:
            # Only many at once are worth BLAS: its threads cost more than they give for one when
            # the machine is busy.
            np.einsum("ij,j->i", self._data[:held], to[0], out=found[0])
        else:
            for start in range(0, held, _ROWS_AT_ONCE):
                part = slice(start, min(start + _ROWS_AT_ONCE, held))
                found[:, part] = to @ self._data[part].T.astype(np.float32)
        found *= self._scales[:held]
        return found


def rounded(cosines: Vectors) -> list[float]:
    """To five digits: what is equally near is so in every store, whatever order it sums in."""
    import numpy as np

    numbers: list[float] = np.round(cosines.astype(np.float64), NEARNESS_DIGITS).tolist()
    return numbers


def _is_among(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """By a mask, because np.isin and np.union1d load numpy.ma, which takes 25 ms."""
    import numpy as np

    mask = np.zeros(int(rows.max(initial=0)) + 1, dtype=np.bool_)
    mask[wanted[wanted < len(mask)]] = True
    is_among: NDArray[np.bool_] = mask[rows]
    return is_among


def _largest(values: Vectors, count: int) -> NDArray[np.intp]:
    """Where the largest values stand; of equal ones the first, so that a rebuild chooses alike."""
    import numpy as np

    least = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > least)
    equal = np.flatnonzero(values == least)[: count - len(above)]
    return np.concatenate((above, equal))


class Matrices:
    """The vectors of each collection, shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, Matrix] = {}
        self._fitting: dict[tuple[object, ...], NDArray[np.int64]] = {}

    @contextlib.contextmanager
    def loaded(
        self, connection: sqlite3.Connection, collection: Collection, groups: Groups
    ) -> Iterator[tuple[Matrix, int, Among]]:
        """The vectors, after loading what is new since the last query; up to which one of them
        counts, and which passages fit."""
        with self._lock:
            matrix, upto = self._loaded(connection, collection)
            yield matrix, upto, self._among(connection, (*matrix.state, upto, groups))

    def _loaded(self, connection: sqlite3.Connection, collection: Collection) -> tuple[Matrix, int]:
        n = collection.id
        matrix = self._by_name.get(collection.name)
        wanted = (n, collection.removals)
        if matrix is None or matrix.state != wanted:
            matrix = self._by_name[collection.name] = Matrix(collection.manifest.dims, wanted)
        if matrix.last_vector == 0:
            # Growing later copies them all.
            select = f"SELECT sum(length(v)) FROM vector_{n}"
            [size] = connection.execute(select).fetchone()
            matrix.reserve((size or 0) // (collection.manifest.dims * _FLOAT_BYTES))
        select = f"SELECT row, owners, v FROM vector_{n} WHERE row > ? ORDER BY row"
        for block in connection.execute(select, (matrix.last_vector,)):
            try:
                matrix.append(*block)
            except ValueError as error:
                raise Corrupt(f"a vector of another length than it should have: {error}") from None
        last = connection.execute(f"SELECT max(row) FROM vector_{n}").fetchone()[0]
        return matrix, last or 0

    def _among(
        self, connection: sqlite3.Connection, key: tuple[int, int, int, Groups]
    ) -> NDArray[np.int64] | None:
        """The passages that fit the facets; cached, because the same are asked for again."""
        n, *_, groups = key
        if not groups:
            return None
        import numpy as np

        if key not in self._fitting:
            select = f"SELECT rowid FROM words_{n} WHERE words_{n} MATCH ?"
            rows = connection.execute(select, (facet_query(groups),)).fetchall()
            while len(self._fitting) >= _FACET_CACHE:
                self._fitting.pop(next(iter(self._fitting)))
            self._fitting[key] = np.array([row for (row,) in rows], dtype=np.int64)
        return self._fitting[key]


def facet_query(groups: Groups) -> str:
    return " AND ".join(f"facets : ({' OR '.join(group)})" for group in groups)


# -- Facets: what a passage is of, so that a question can leave out what is of something else.


def facet_tokens(facets: Facets) -> list[str]:
    """One token a value, and one for each facet that has no value."""
    return [
        _token(name, value) for name, values in sorted(facets.items()) for value in values or ("",)
    ]


def wanted_tokens(only: Only) -> tuple[tuple[str, ...], ...]:
    """For each facet the tokens of which a passage must have one."""
    return tuple(
        tuple(_token(name, value) for value in (*sorted(values), ""))
        for name, values in sorted((only or {}).items())
        if values
    )


def fits(facets: Facets, only: Only) -> bool:
    """Whether a passage with these facets is asked for."""
    held = set(facet_tokens(facets))
    return all(held.intersection(group) for group in wanted_tokens(only))


def derived_token() -> str:
    """What every derived passage has, and no other."""
    [token] = facet_tokens(DERIVED)
    return token


def _token(name: str, value: str) -> str:
    # A hash, because a value may hold any character; no word of a text looks like it.
    told = f"{name}={value}".encode(errors="surrogatepass")
    return f"f{hashlib.sha256(told).hexdigest()[:20]}"
