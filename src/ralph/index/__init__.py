"""The search index: passages of records with their words and vectors, derived from the journal.

The whole index can be deleted at any time; `sync` rebuilds it from the journal. The index knows
only passages and vectors, not what a record means.

This module defines the ports: what an embedder and a store promise, and the values they take and
return. SQLite and Qdrant keep the same promises, and code outside this package does not know which
is in use. Any call may raise IndexOff (the store cannot be reached) or Corrupt (it is damaged).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Sized
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import msgspec

from ralph.records import Record
from ralph.text.tokens import PassageWords

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "NDArray[np.float32]"

# Marks the start of an aside in a text to embed. An aside gets its own vectors, which count less.
ASIDE = "\x1e"
ASIDE_WEIGHT = 0.85


class Passage(msgspec.Struct, frozen=True):
    """A searchable part of a record: its words by field, the text to embed, and its facets."""

    title: str
    text: str
    places: str = ""
    embed: str = ""
    facets: dict[str, tuple[str, ...]] = {}


# The facet of a passage made from other records (a summary, a snapshot). Its words only repeat
# theirs, so they are left out when counting how common a word is.
DERIVED: dict[str, tuple[str, ...]] = {"derived": ("yes",)}


# Cuts a record into passages; returns none if the record cannot be read.
Cut = Callable[[Record], Sequence[Passage]]


class Embedder(Protocol):
    """Turns texts into unit vectors. Its identity covers everything that affects the numbers."""

    # The name shown to people, and how many texts to pass at once.
    title: str
    batch: int

    @property
    def identity(self) -> str:
        """The model and its version. A different identity means different vectors."""

    @property
    def dims(self) -> int:
        """The length of a vector; 0 if not known yet."""

    def pieces(self, text: str) -> Sequence[str]:
        """Return the text as one or more overlapping parts, each short enough for the model."""

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """Return one row per text. The budget limits remote work. Raises EmbedderOff."""

    def embed_query(self, text: str) -> Vectors:
        """Return one vector, quickly. Raises EmbedderOff."""

    def check(self) -> None:
        """Try the embedder now, ignoring earlier results. EmbedderOff says what to do."""


# The largest number in a quantized vector. With 16 bits, cosines are right to five digits.
_LARGEST = 32767


def quantized(vectors: Vectors) -> tuple[Vectors, Vectors]:
    """Return the vectors as 16-bit integers, and the scale to multiply each row by."""
    import numpy as np

    largest = np.maximum(vectors.max(axis=1), -vectors.min(axis=1))
    largest[largest == 0] = 1  # a text with no word that the embedder knows
    numbers = np.rint(vectors * (_LARGEST / largest)[:, None])
    squares = np.einsum("ij,ij->i", numbers, numbers)
    # The scale with the smallest error, so that every vector keeps its length.
    return numbers, np.einsum("ij,ij->i", numbers, vectors) / np.maximum(squares, 1)


class Manifest(msgspec.Struct, frozen=True):
    """What a collection was built with. If that is not what is wanted now, it is rebuilt."""

    embedder: str
    dims: int
    tokeniser: str
    cut: str


# The values of each facet of a passage, by name. A facet with no values matches any wanted value.
Facets = Mapping[str, Sequence[str]]
# The wanted values of each facet, by name. A passage fits if its facet has one of them, or none.
# An empty list of values lets every passage through.
Only = Mapping[str, Sized[str]] | None
# The numbers of passages.
Rows = Sequence[int]


# A record's id and the digest of its content.
RecordKey = tuple[str, str]


class Corrupt(Exception):
    """The index is damaged or incomplete; `Index.with_repair` handles it."""

    # Whether another process replaced or deleted it: then reading it again is enough.
    replaced = False


class Collection(msgspec.Struct, frozen=True):
    """The index of one journal, as the store has it.

    A rebuild is a second collection with the same name. It becomes `live` when it is complete; only
    the live collection is searched.
    """

    name: str
    stream: str
    manifest: Manifest
    live: bool = False
    # 0 before the first write.
    id: int = 0
    position: str | None = None
    # A sweep reads the journal again from its start. Records not seen by its end are dropped.
    sweep: int = 0
    sweeping: bool = False
    removals: int = 0
    last_number: int = 0
    # Whether passages wait for the embedder, and whether the file may still contain forgotten text.
    waiting: bool = False
    needs_vacuum: bool = False
    # Only on a server: the name of the collection there, and an id that every write changes.
    physical: str = ""
    state: str = ""


class CollectionSize(msgspec.Struct, frozen=True):
    """How many records and passages a collection has, and how many passages wait for a vector.

    `texts` has the rows and texts of some waiting passages, if requested.
    """

    records: int
    passages: int
    waiting: int
    texts: list[tuple[int, str]] = []


class IndexedRecord(msgspec.Struct, frozen=True):
    """A record to index: its passages, their hashes, and the vectors that exist already.

    A passage's vectors are one blob: one vector, or one for each piece of its text.
    """

    record: Record
    passages: Sequence[Passage]
    hashes: Sequence[bytes]
    vectors: Sequence[bytes | None]


class IndexBatch(msgspec.Struct, frozen=True):
    """One step of a sync: records read from the journal, and vectors for waiting passages.

    `prepare` cuts and embeds the records that the collection does not have. It takes the keys that
    are indexed already and the ids that were forgotten.
    """

    records: Mapping[RecordKey, Record] = {}
    prepare: Callable[[Sized[RecordKey], Sized[str]], list[IndexedRecord]] = lambda *_: []
    forget: Sized[str] = ()
    vectors: Sequence[tuple[int, bytes]] = ()
    # None keeps the current position.
    position: str | None = None
    restart: bool = False
    done: bool = False


class WordMatches(msgspec.Struct, frozen=True):
    """The BM25 scores of passages, how many passages contain each token, and how many passages
    there are (both without derived ones).

    `times`, if known, says how often each token (a column) occurs in each passage (a row), and
    `sizes` how long each passage is (a `PassageSize`).
    """

    scores: dict[int, float]
    frequencies: dict[str, int]
    passages: int
    times: Vectors | None = None
    sizes: Vectors | None = None


# In a collection of at least this many passages, tokens that occur in more than this share of them
# are not used for ranking: they say little, and would take most of the time of a search.
_LARGE = 1000
_COMMON_SHARE = 0.15


def ranking_tokens(matches: WordMatches) -> list[str]:
    """Return the tokens to rank passages by: the rare ones, or all if none is rare."""
    most = matches.passages * _COMMON_SHARE if matches.passages >= _LARGE else matches.passages
    rare = [token for token, count in matches.frequencies.items() if count <= most]
    return rare or list(matches.frequencies)


class NearPassages(NamedTuple):
    """Passages and their cosines, rounded to five digits: first those that the caller asked for, in
    the same order, NaN for one without a vector; then the nearest others."""

    rows: list[int]
    cosines: Sequence[float] | NDArray[np.float64]


class DatedPassages(msgspec.Struct, frozen=True):
    """The first passage of each record in a time range, the number of records in the range, and the
    number of all records."""

    rows: Rows
    records: int
    among: int


class StoredPassage(msgspec.Struct, frozen=True):
    """The words of a passage, and its record if requested."""

    words: PassageWords
    record: Record | None = None


class StoredContent(msgspec.Struct, frozen=True):
    """The keys of all records, and all vectors by the hash of the text they were made from."""

    keys: frozenset[RecordKey]
    vectors: dict[bytes, bytes]


class IndexView(Protocol):
    """The store as one query sees it. A row is the number of a passage, the same in every view."""

    def collections(self, name: str | None = None) -> list[Collection]:
        """Return the collections with this name, or all: live ones and those being built."""

    def size(self, collection: Collection, *, texts: int = 0) -> CollectionSize:
        """Return its size, and the first `texts` texts that wait for a vector."""

    def words(
        self, collection: Collection, query: Sequence[str], count: int, *, only: Only = None
    ) -> WordMatches:
        """Return the best `count` passages with any of these tokens; for 0, only the counts."""

    def nearest(
        self,
        collection: Collection,
        to: Vectors,
        count: int,
        *,
        also: Rows = (),
        only: Only = None,
    ) -> list[NearPassages]:
        """Return, for each vector, the passages in `also` and the `count` nearest ones."""

    def dated(self, collection: Collection, first: str, end: str, count: int) -> DatedPassages:
        """Return the newest `count` records from `first` on and before `end`."""

    def fetch(
        self, collection: Collection, rows: Iterable[int], *, records: bool = False
    ) -> dict[int, StoredPassage]:
        """Return these passages by row, with their records if requested."""

    def content(self, collection: Collection, *, vectors: bool = True) -> StoredContent:
        """Return everything, to check it or to reuse its vectors (F16)."""


class IndexStore(Protocol):
    """The collections of one memory: read through views, written batch by batch."""

    title: str
    where: str
    # A server may keep deleted text, so after `forget` a collection is rewritten.
    keeps_deleted: bool

    def state(self) -> AbstractContextManager[IndexView]:
        """Return a view for one query. It does not block writers."""

    def write(self, collection: Collection, batch: IndexBatch) -> Collection:
        """Index one batch, then move the position. The first write creates the collection.

        With `done` it replaces the live collection, and forgotten text is wiped from files.
        """

    def drop(self, name: str | None = None, *, unfinished: bool = False) -> None:
        """Delete the collections with this name, or all; or only those being built."""

    def prune(self) -> list[str]:
        """Delete what is no longer used, and return its names."""

    def repair(self, damage: Corrupt) -> None:
        """Move or delete what is damaged, so that it can be rebuilt."""

    def check(self, *, deep: bool = False) -> list[str]:
        """Try the store now, ignoring earlier results; with `deep`, return its faults."""

    def close(self) -> None:
        """Close the store. It opens again when it is used."""


# -- Facets: properties of a passage (type, outcome, task) that a search can filter by.


def facet_tokens(facets: Facets) -> list[str]:
    """Return one token per value, and one for each facet without a value."""
    return [
        _token(name, value) for name, values in sorted(facets.items()) for value in values or ("",)
    ]


def wanted_tokens(only: Only) -> tuple[tuple[str, ...], ...]:
    """Return, for each facet, the tokens of which a passage must have one."""
    return tuple(
        tuple(_token(name, value) for value in (*sorted(values), ""))
        for name, values in sorted((only or {}).items())
        if values
    )


def fits(facets: Facets, only: Only) -> bool:
    """Whether a passage with these facets is wanted."""
    held = set(facet_tokens(facets))
    return all(held.intersection(group) for group in wanted_tokens(only))


@functools.cache
def derived_token() -> str:
    """Return the token that every derived passage has, and no other."""
    [token] = facet_tokens(DERIVED)
    return token


def _token(name: str, value: str) -> str:
    # A hash, because a value may contain any character. No word of a text looks like it.
    told = f"{name}={value}".encode(errors="surrogatepass")
    return f"f{hashlib.sha256(told).hexdigest()[:20]}"


# -- Choosing passages in arrays.


def is_among(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each row is wanted. Uses a mask: np.isin loads numpy.ma, which takes 25 ms."""
    import numpy as np

    mask = np.zeros(int(rows.max(initial=0)) + 1, dtype=np.bool_)
    mask[wanted[wanted < len(mask)]] = True
    is_among: NDArray[np.bool_] = mask[rows]
    return is_among


def largest(values: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Return the places of the largest values; the first of equals, so a rebuild picks the same."""
    import numpy as np

    where = np.arange(len(values))
    few = len(values) // (4 * count)
    if few > 1:  # the maximum of each small group gives a bound that at least `count` values reach
        tops = values[: len(values) // few * few].reshape(few, -1).max(axis=0)
        where = (values >= np.partition(tops, len(tops) - count)[len(tops) - count]).nonzero()[0]
        values = values[where]
    if len(values) <= count:
        return where
    least = np.partition(values, len(values) - count)[len(values) - count]
    above: NDArray[np.intp] = (values > least).nonzero()[0]
    equal: NDArray[np.intp] = (values == least).nonzero()[0][: count - len(above)]
    return where[np.concatenate((above, equal))]
