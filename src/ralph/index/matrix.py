"""What a process caches of an index in SQLite: vectors as a matrix, words, and passages."""

from __future__ import annotations

import bisect
import itertools
import math
import sqlite3
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import index
from ralph.index import (
    Collection,
    Corrupt,
    NearPassages,
    Only,
    Rows,
    StoredPassage,
    bm25,
    wanted_tokens,
)
from ralph.text.tokens import FIELD_WEIGHTS, PassageWords

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = index.Vectors
    Among = NDArray[np.int64] | None
    Counts = Mapping[str, int]
    FetchPassages = Callable[[Rows], Mapping[int, StoredPassage]]

NEARNESS_DIGITS = 5
_FLOAT_BYTES = 4
# How many questions, and how many rows of the matrix, are multiplied at once.
_AT_ONCE = 64
_ROWS_AT_ONCE = 4096
# For a few questions, so few products that BLAS starts no threads: they cost more than they gain.
_FEW = 16
_PRODUCTS_FOR_FEW = 2**18

# The row of a passage, and its vectors as bytes.
PassageVectors = tuple[int, bytes]
# How many passages share one block of vectors.
_BLOCK = 64


def pack(vectors: Sequence[PassageVectors]) -> tuple[bytes, bytes]:
    """Return a block: the row and the size in bytes for each passage, and all vectors."""
    owners = array("q", [number for row, v in vectors for number in (row, len(v))])
    return owners.tobytes(), b"".join(v for _, v in vectors)


def unpack(owners: bytes, data: bytes) -> list[PassageVectors]:
    """Return the vectors in a block, with their passages."""
    if len(owners) % 16:
        raise Corrupt("a block of vectors does not say whose they are")
    numbers = array("q", owners)
    rows = numbers[::2]
    sizes = numbers[1::2]
    ends = itertools.accumulate(sizes)
    return [(row, data[end - size : end]) for row, size, end in zip(rows, sizes, ends, strict=True)]


def insert_vectors(
    connection: sqlite3.Connection, n: int, vectors: Sequence[PassageVectors]
) -> None:
    """Save vectors in new blocks, for passages that had none."""
    for start in range(0, len(vectors), _BLOCK):
        some = vectors[start : start + _BLOCK]
        insert = f"INSERT INTO vector_{n} (owners, v) VALUES (?, ?)"
        block = connection.execute(insert, pack(some)).lastrowid or 0
        update = f"UPDATE passage_{n} SET waiting = NULL, block = ? WHERE row = ?"
        connection.executemany(update, [(block, row) for row, _ in some])
        if block % _BLOCK == 0:
            _merge_blocks(connection, n)


def _merge_blocks(connection: sqlite3.Connection, n: int) -> None:
    """Merge the small blocks at the end, which come from records written one at a time. A reader
    notices because the last block it has read is gone."""
    select = f"SELECT row, owners, v FROM vector_{n} ORDER BY row DESC LIMIT {_BLOCK}"
    last = connection.execute(select).fetchall()
    small = list(itertools.takewhile(lambda one: len(one[1]) <= 8 * _BLOCK, last))
    if len(small) > _BLOCK // 2:
        connection.executemany(f"DELETE FROM vector_{n} WHERE row = ?", [one[:1] for one in small])
        together = [one for _, *block in reversed(small) for one in unpack(*block)]
        insert_vectors(connection, n, together)


def remove_vectors(
    connection: sqlite3.Connection, n: int, block_of: Mapping[int, int | None]
) -> None:
    """Remove the vectors of these passages from their blocks."""
    for block in {*block_of.values()} - {None}:
        select = f"SELECT owners, v FROM vector_{n} WHERE row = ?"
        packed = connection.execute(select, (block,)).fetchone() or (b"", b"")
        rest = [one for one in unpack(*packed) if one[0] not in block_of]
        update = f"UPDATE vector_{n} SET owners = ?, v = ? WHERE row = ?"
        connection.execute(update, (*pack(rest), block))
    connection.execute(f"DELETE FROM vector_{n} WHERE owners = x''")
    # This tells readers to read everything again.
    connection.execute("UPDATE collection SET removals = removals + 1 WHERE id = ?", (n,))


class Matrix:
    """Rows of unit vectors. It only grows; when rows are removed, it is discarded.

    A passage cut into pieces has one row per piece, in order. Row i is `scales[i] * data[i]`, in
    16-bit numbers to use half the memory.
    """

    def __init__(self, dims: int) -> None:
        import numpy as np

        self._dims = dims
        self._data: NDArray[np.int16] = np.empty((0, dims), dtype=np.int16)
        self._scales: Vectors = np.empty(0, dtype=np.float32)
        # The passages, and the first row of each.
        self._passages: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._firsts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        # For each passage its index in `_passages`, or -1 if it is not loaded.
        self._places: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        # For each block its number, and how many passages and rows there are up to its end.
        self._blocks: list[tuple[int, int, int]] = [(0, 0, 0)]

    @property
    def last_vector(self) -> int:
        """The number of the last loaded block."""
        return self._blocks[-1][0]

    def reserve(self, capacity: int) -> None:
        """Make room for this many rows in total."""
        self._grow(("_data", "_scales"), self._blocks[-1][2], capacity)

    def _grow(self, names: Sequence[str], held: int, capacity: int) -> None:
        import numpy as np

        for name in names:
            old = getattr(self, name)
            if capacity > len(old):
                new = np.empty((capacity, *old.shape[1:]), dtype=old.dtype)
                new[:held] = old[:held]
                setattr(self, name, new)

    def append(self, block: int, owners: bytes, data: bytes) -> None:
        """Add a block after the last one: the owners of its vectors, and their data."""
        import numpy as np

        width = self._dims * _FLOAT_BYTES
        passages, sizes = np.frombuffer(owners, dtype=np.int64).reshape(-1, 2).T
        counts = sizes // width
        if (counts * width != sizes).any() or sizes.min() <= 0 or sizes.sum() != len(data):
            raise ValueError("a block that holds no whole vectors")
        _, known, held = self._blocks[-1]
        in_all = known + len(passages)
        end = held + len(data) // width
        # Doubling keeps the cost of growing flat.
        if end > len(self._scales):
            self.reserve(max(end, 2 * held))
        if in_all > len(self._passages):
            self._grow(("_passages", "_firsts"), known, max(in_all, 2 * known))
        vectors = np.frombuffer(data, dtype=np.float32).reshape(-1, self._dims)
        with np.errstate(invalid="ignore"):  # `ralph index verify` reports NaN and inf
            self._data[held:end], self._scales[held:end] = index.quantized(vectors)
        self._passages[known:in_all] = passages
        if (needed := int(passages.max()) + 1) > (size := len(self._places)):
            self._grow(("_places",), size, max(needed, 2 * size))
            self._places[size:] = -1
        self._places[passages] = np.arange(known, in_all)
        self._firsts[known:in_all] = held + counts.cumsum() - counts
        self._blocks.append((block, in_all, end))

    def nearest(
        self,
        to: Vectors,
        count: int,
        also: Rows = (),
        upto: int | None = None,
        among: Among = None,
    ) -> list[NearPassages]:
        """Return, for each vector, the passages in `also` and the `count` nearest ones.

        Blocks after `upto` are ignored: another thread may have loaded blocks written after the
        caller's view began. `among` limits the search to these passages.
        """
        import numpy as np

        _, known, held = self._blocks[-1]
        if upto is not None and self.last_vector > upto:
            _, known, held = self._blocks[bisect.bisect(self._blocks, upto, key=lambda x: x[0]) - 1]
        if not held:
            return [NearPassages([*also], np.full(len(also), np.nan)) for _ in to]
        passages = self._passages[:known]
        firsts = self._firsts[:known]
        places = self._places_of(np.array(also, dtype=np.int64), known)
        chosen = None
        if among is not None:
            chosen = self._places_of(among, known)
            chosen = chosen[chosen >= 0]
            places[~index.is_among(places, chosen)] = -1
        is_asked = np.zeros(known + 1, dtype=np.bool_)  # the last one stands for the place -1
        is_asked[places] = True
        found: list[NearPassages] = []
        for start in range(0, len(to), _AT_ONCE):
            for cosines in self._cosines(to[start : start + _AT_ONCE], held):
                # A passage is as near as its nearest piece.
                near_by = cosines if known == held else np.maximum.reduceat(cosines, firsts)
                if chosen is None:
                    best = index.largest(near_by, count)
                else:
                    best = chosen[index.largest(near_by[chosen], count)]
                others = best[~is_asked[best]]
                near = rounded(near_by[np.concatenate((places, others))])
                near[: len(places)][places < 0] = np.nan
                found.append(NearPassages([*also, *passages[others].tolist()], near))
        return found

    def _places_of(self, passages: NDArray[np.int64], known: int) -> NDArray[np.int64]:
        """Return where these passages are; -1 for those not among the first `known`."""
        places: NDArray[np.int64] = self._places.take(passages, mode="clip")
        places[(passages >= len(self._places)) | (places >= known)] = -1
        return places

    def _cosines(self, to: Vectors, held: int) -> Vectors:
        """Return the cosine of each vector with each of the first `held` rows."""
        import numpy as np

        found = np.empty((len(to), held), dtype=np.float32)
        few = max(1, _PRODUCTS_FOR_FEW // (self._dims * len(to)))
        rows_at_once = _ROWS_AT_ONCE if len(to) > _FEW else few
        numbers = np.empty((min(rows_at_once, held), self._dims), dtype=np.float32)
        for start in range(0, held, rows_at_once):
            end = min(start + rows_at_once, held)
            part = numbers[: end - start]
            part[:] = self._data[start:end]
            np.matmul(to, part.T, out=found[:, start:end])
        found *= self._scales[:held]
        return found


def rounded(cosines: NDArray[Any]) -> NDArray[np.float64]:
    """Round to five digits, so that ties are ties in every store, in whatever order it sums."""
    import numpy as np

    return cosines.astype(np.float64).round(NEARNESS_DIGITS)


# For each facet, the tokens of which a passage must have one.
Groups = tuple[tuple[str, ...], ...]
# The passages that fit are cached for this many combinations of facets.
_FACET_CACHE = 8
_FIELD_WEIGHTS = ", ".join(map(str, FIELD_WEIGHTS))
# Words are cached for collections of at least this many passages; the limits are per collection.
_MANY_PASSAGES = 10
_MOST_ROWS = 2_000_000
_MOST_COUNTS = 20_000
_MOST_PASSAGES = 20_000
# For this many common words, the cache keeps how often they occur in each passage.
_MOST_MEASURES = 64
# Cached words are read again if there are this many new passages, or a tenth of all if that is
# more, and if the average length of passages has changed by this share.
_MOST_NEW = 100
_OTHER_AVERAGE = 0.05


class WordRows(msgspec.Struct, frozen=True):
    """The rows with a word. For each row: its BM25 score without the word's rarity, and how often
    the word occurs in it (NaN until counted)."""

    rows: NDArray[np.int32]
    shares: NDArray[np.float32]
    times: NDArray[np.float32]

    def upto(self, row: int) -> WordRows:
        """Return only the rows up to this one."""
        if not len(self.rows) or self.rows[-1] <= row:
            return self
        end = int(self.rows.searchsorted(self.rows.dtype.type(row), side="right"))
        return WordRows(self.rows[:end], self.shares[:end], self.times[:end])

    def extended(self, shares: Mapping[int, float]) -> WordRows:
        """Return these rows and new ones, given with their shares."""
        import numpy as np

        known: tuple[NDArray[Any], ...] = (self.rows, self.shares, self.times)
        new = [*shares], [*shares.values()], [math.nan] * len(shares)
        both = [(a, np.array(b, dtype=a.dtype)) for a, b in zip(known, new, strict=True)]
        return WordRows(*map(np.concatenate, both))


class LoadedCollection:
    """What a process has cached of one collection; discarded when rows are removed.

    All threads share it. One thread may load passages written after another thread's view began, so
    every call passes the last row in its view as `upto`.
    """

    def __init__(self, collection: Collection) -> None:
        self.state = (collection.id, collection.removals)
        self._lock = threading.RLock()
        self.passages: dict[int, StoredPassage] = {}
        self._matrix: Matrix | None = None
        self._dims = collection.manifest.dims
        self._words: dict[str, WordRows] = {}
        self._fitting: dict[tuple[int, Groups], NDArray[np.int64]] = {}
        self._held = 0  # the total number of rows in `_words`
        # For common words, which are not ranked by: how often each is in each passage, or NaN. And
        # the size of each passage, for "".
        self._measures: dict[str, Vectors] = {}
        # For each set of words: how many passages have all of them.
        self._counts: dict[tuple[str, ...], int] = {}
        # Words and counts cover the passages up to `_read`. They were last cleared when passages
        # had this `_average` length.
        self._read = 0
        self._average = 1.0
        self._asked = False

    def count(self, connection: sqlite3.Connection, upto: int, *words: str) -> int:
        """Return the number of passages with all of these words."""
        known = self._counts.get(words)
        if known is not None and upto == self._read:
            return known
        with self._lock:
            self._follow(connection, upto)
            known = self._counts.get(words) if upto == self._read else None
            if known is None:
                n = self.state[0]
                where = f"words_{n} WHERE words_{n} MATCH ?" if words else f"passage_{n}"
                match = [" AND ".join(f'"{word}"' for word in words)] if words else []
                [known] = connection.execute(f"SELECT count(*) FROM {where}", match).fetchone()
                if upto == self._read:
                    self._counts = self._counts if len(self._counts) < _MOST_COUNTS else {}
                    self._counts[words] = known
            return int(known)

    def _follow(self, connection: sqlite3.Connection, upto: int) -> None:
        """Read the words of new passages, and update what is cached.

        It is cleared if there are many at once, or if their average length has changed: BM25 scores
        depend on it.
        """
        if self._read and upto <= self._read:
            return
        n, new = self.state[0], dict[str, dict[int, float]]()  # by word, its share in each row
        select = f"SELECT block FROM words_{n}_data WHERE id = 1"
        [block] = connection.execute(select).fetchone() or (b"",)
        rows, *tokens = _varints(block) or [0]
        average = sum(tokens) / (rows or 1) or 1.0
        is_other = abs(average - self._average) > _OTHER_AVERAGE * self._average
        if not self._read or is_other or upto - self._read > max(_MOST_NEW, self._read // 10):
            self._words = {}
            self._counts = {}
            self._held = 0
            self._average = average
            self._read = upto
            return
        select = f"SELECT rowid, title, text, places, facets FROM words_{n} WHERE rowid > ?"
        found = connection.execute(f"{select} ORDER BY rowid", (self._read,)).fetchall()
        for row, *fields in found:
            self.passages.setdefault(row, StoredPassage(PassageWords(*fields[:3])))
            texts = [field.split() for field in fields]
            length = sum(map(len, texts)) / average
            for word, often in bm25.weighted_counts(texts).items():
                share = bm25.share(often, length)
                new.setdefault(word, {})[row] = share
        self._read = 0  # until all of it is updated
        for word, shares in new.items():
            if word in self._words:
                self._words[word] = self._words[word].extended(shares)
                self._held += len(shares)
            for key in (word,), (word, index.derived_token()):
                if key in self._counts:
                    self._counts[key] += len(shares.keys() & new.get(key[-1], {}).keys())
        if () in self._counts:
            self._counts[()] += len(found)
        self._read = upto

    def matches(
        self,
        connection: sqlite3.Connection,
        upto: int,
        words: Counts,
        ranked: Sequence[str],
        count: int,
        only: Only,
        fetch: FetchPassages,
    ) -> tuple[dict[int, float], Vectors | None, Vectors | None]:
        """Return the best `count` passages with a `ranked` word, by SQLite's BM25; and, if known, a
        table of how often each word (column) occurs in each of them (row), and their sizes.

        `words` has the number of passages with each word of the question.
        """
        n = self.state[0]
        groups = wanted_tokens(only)
        ranked_by = f"SELECT rowid, -bm25(words_{n}, {_FIELD_WEIGHTS}) AS score FROM words_{n}"
        ranked_by += f" WHERE words_{n} MATCH ? ORDER BY"
        passages = self.count(connection, upto)
        if passages < _MANY_PASSAGES or not self._asked:  # most processes search once
            self._asked = True
            match = " OR ".join(f'"{word}"' for word in ranked)
            if groups:
                match = f"({match}) AND {facet_query(groups)}"
            found = connection.execute(f"{ranked_by} score DESC, rowid LIMIT ?", (match, count))
            return dict(found.fetchall()), None, None
        import numpy as np

        held: list[WordRows] = []
        rarities: list[float] = []
        with self._lock:
            for word in ranked:
                rarities.append(bm25.rarity(words[word], passages))
                held.append(
                    self._rows_of(connection, upto, f"{ranked_by} rowid", word, rarities[-1])
                )
        lengths = [len(one.rows) for one in held]
        rows = np.concatenate([one.rows for one in held])
        shares = np.concatenate([one.shares for one in held])
        shares *= np.array(rarities, dtype=np.float32).repeat(lengths)
        total = np.bincount(rows, shares, upto + 1)
        matching = (total > 0.0).nonzero()[0]
        if (among := self._among(connection, upto, groups)) is not None:
            matching = matching[index.is_among(matching, among)]
        best = matching[index.largest(total[matching], count)]
        best = best[(-total[best]).argsort(kind="stable")]
        scores = dict(zip(best.tolist(), total[best].tolist(), strict=True))
        table = np.zeros((len(best), len(words)), dtype=np.float32)
        # The place in `best` of each row, from 1 on, and how often its word occurs in it.
        places = np.zeros(upto + 1, dtype=np.int32)
        places[best] = np.arange(1, len(best) + 1)
        places = places[rows]
        wanted = (places > 0).nonzero()[0]
        columns = {word: column for column, word in enumerate(words)}
        column = np.array([columns[word] for word in ranked]).repeat(lengths)[wanted]
        times = np.concatenate([one.times for one in held])[wanted]
        if unknown := np.isnan(times).nonzero()[0].tolist():
            new = rows[wanted[unknown]].tolist()
            fetched = fetch([*{*new}])
            starts = [0, *itertools.accumulate(lengths)]
            for n, row in zip(unknown, new, strict=True):
                which = bisect.bisect(starts, wanted[n]) - 1
                [times[n]] = fetched[row].words.times([ranked[which]])
                held[which].times[wanted[n] - starts[which]] = times[n]
        table[places[wanted] - 1, column] = times
        for word in columns.keys() - ranked:
            often = self._measured(word, best, upto, fetch)
            table[:, columns[word]] = often[:, 0]
        return scores, table, self._measured("", best, upto, fetch)

    def _measured(
        self, word: str, rows: NDArray[np.int64], upto: int, fetch: FetchPassages
    ) -> Vectors:
        """Return how often a word occurs in these passages, or, without one, their sizes."""
        import numpy as np

        with self._lock:
            known = self._measures.get(word)
            if known is None or len(known) <= upto:
                width = 1 if word else len(PassageWords("", "", "").size)
                longer = np.full((2 * upto + 1, width), np.nan, dtype=np.float32)
                if known is not None:
                    longer[: len(known)] = known
                elif len(self._measures) >= _MOST_MEASURES:
                    self._measures.pop(next(iter(self._measures)))
                known = self._measures[word] = longer
        if new := rows[np.isnan(known[rows, 0])].tolist():
            for row, one in fetch(new).items():
                known[row] = one.words.times([word]) if word else one.words.size
        return known[rows]

    def _rows_of(
        self, connection: sqlite3.Connection, upto: int, select: str, word: str, rarity: float
    ) -> WordRows:
        """Return the rows with a word; SELECT them if they are not cached."""
        import numpy as np

        known = self._words.pop(word, None)
        if known is None:
            found = connection.execute(select, (f'"{word}"',)).fetchall()
            rows, scores = np.array(found).reshape(-1, 2).T
            shares = (scores / rarity).astype(np.float32)
            known = WordRows(rows.astype(np.int32), shares, np.full_like(shares, np.nan))
            if upto != self._read:
                return known
            self._held += len(found)
        self._words[word] = known
        while self._held > _MOST_ROWS:
            self._held -= len(self._words.pop(next(iter(self._words))).rows)
        return known.upto(upto)

    def nearest(
        self,
        connection: sqlite3.Connection,
        upto: int,
        last: int,
        to: Vectors,
        count: int,
        *,
        also: Rows = (),
        only: Only = None,
    ) -> list[NearPassages]:
        """Like `Matrix.nearest`, after loading new blocks up to the `last`."""
        with self._lock:
            matrix = self._loaded(connection, last)
            among = self._among(connection, upto, wanted_tokens(only))
        # No lock needed: a matrix only grows, so another thread may load more blocks meanwhile.
        return matrix.nearest(to, count, also, upto=last, among=among)

    def _loaded(self, connection: sqlite3.Connection, last: int) -> Matrix:
        n = self.state[0]
        matrix = self._matrix
        if matrix is not None and matrix.last_vector == last:
            return matrix
        if matrix is not None and matrix.last_vector < last:
            select = f"SELECT 1 FROM vector_{n} WHERE row = ?"
            known = connection.execute(select, (matrix.last_vector,)).fetchone()
            matrix = matrix if known else None  # its last block was merged
        if matrix is None:
            matrix = self._matrix = Matrix(self._dims)
            # Reserve now: growing later copies everything.
            [size] = connection.execute(f"SELECT sum(length(v)) FROM vector_{n}").fetchone()
            matrix.reserve((size or 0) // (self._dims * _FLOAT_BYTES))
        select = f"SELECT row, owners, v FROM vector_{n} WHERE row > ? ORDER BY row"
        for block in connection.execute(select, (matrix.last_vector,)):
            try:
                matrix.append(*block)
            except ValueError as error:
                raise Corrupt(f"a vector of another length than it should have: {error}") from None
        return matrix

    def _among(self, connection: sqlite3.Connection, upto: int, groups: Groups) -> Among:
        """Return the passages that fit the facets; cached, because searches repeat them."""
        if not groups:
            return None
        import numpy as np

        n = self.state[0]
        key = (upto, groups)
        with self._lock:
            if key not in self._fitting:
                select = f"SELECT rowid FROM words_{n} WHERE words_{n} MATCH ?"
                rows = connection.execute(select, (facet_query(groups),)).fetchall()
                while len(self._fitting) >= _FACET_CACHE:
                    self._fitting.pop(next(iter(self._fitting)))
                self._fitting[key] = np.array([row for (row,) in rows], dtype=np.int64)
            return self._fitting[key]


class LoadedCollections:
    """The cache of each collection, shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, LoadedCollection] = {}

    def of(self, collection: Collection) -> LoadedCollection:
        """Return the cache of this collection, a new one if it is out of date."""
        with self._lock:
            found = self._by_name.get(collection.name)
            if found is None or found.state != (collection.id, collection.removals):
                found = self._by_name[collection.name] = LoadedCollection(collection)
            if len(found.passages) > _MOST_PASSAGES:
                found.passages = {}
            return found


def _varints(data: bytes) -> list[int]:
    """Return the numbers in a record of FTS5: the rows of a table, and the tokens per column."""
    numbers = [0]
    for byte in data:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(0)
    return numbers[:-1]


def facet_query(groups: Groups) -> str:
    return " AND ".join(f"facets : ({' OR '.join(group)})" for group in groups)
