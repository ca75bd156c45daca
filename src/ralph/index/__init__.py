"""What makes records findable: passages, their words and vectors, derived from the journal.

Everything here may be deleted at any time; `sync` brings it back from the journal by itself. The
index knows passages and vectors and nothing of what a record is about.

This module has the ports: what an embedder and a store promise, and the values that go in and out
of them. SQLite and Qdrant keep the same promises; nobody outside this room knows which is there.
Everything may raise IndexOff where the store cannot be reached, Corrupt where it is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Sized
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from ralph.records import Record
from ralph.text.tokens import PassageWords

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "NDArray[np.float32]"

# In a text to embed: what follows is an aside. It is embedded apart and its nearness counts less.
ASIDE = "\x1e"
ASIDE_WEIGHT = 0.85


class Passage(msgspec.Struct, frozen=True):
    """One findable piece of a record: its words by field, the text whose meaning counts, and what
    it is of."""

    title: str
    text: str
    places: str = ""
    embed: str = ""
    facets: dict[str, tuple[str, ...]] = {}


# The facet of a passage that was made from other records (a summary, a snapshot): what it repeats
# does not make its words common.
DERIVED: dict[str, tuple[str, ...]] = {"derived": ("yes",)}


# How a memory cuts its records into passages; a record it cannot read gives none.
Cut = Callable[[Record], Sequence[Passage]]


class Embedder(Protocol):
    """Texts to vectors of length one. The identity names everything that shapes the numbers."""

    # What people call it, and how many texts are worth handing over at once.
    title: str
    batch: int

    @property
    def identity(self) -> str:
        """Names the model and its version; another identity means other vectors."""

    @property
    def dims(self) -> int:
        """How long a vector is; 0 while nobody could ask."""

    def pieces(self, text: str) -> Sequence[str]:
        """The text cut into overlapping parts that the model reads to their end; at least one."""

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """One row a text, within the budget where somebody else does the work. EmbedderOff."""

    def embed_query(self, text: str) -> Vectors:
        """One vector, soon. Raises EmbedderOff."""

    def check(self) -> None:
        """Try it now, whatever was found before; EmbedderOff says what to do."""


class Manifest(msgspec.Struct, frozen=True):
    """What a collection was built with; anything else than wanted means a rebuild."""

    embedder: str
    dims: int
    tokeniser: str
    cut: str


# By name; a passage that has no value for a facet it names fits every value asked for.
Facets = Mapping[str, Sequence[str]]
# By name; a passage fits that has one of these values, or none. No values at all: every one fits.
Only = Mapping[str, Sized[str]] | None
# The numbers of passages.
Rows = Sequence[int]


# A record's id and the digest of its content.
RecordKey = tuple[str, str]


class Corrupt(Exception):
    """The index does not hold what it should; `Index.with_repair` sees to it."""

    # Another process replaced or deleted it meanwhile: looking again is enough.
    replaced = False


class Collection(msgspec.Struct, frozen=True):
    """What is indexed of one journal, as the store has it.

    A rebuild is a second collection of the same name. It answers (`live`) when it is complete.
    """

    name: str
    stream: str
    manifest: Manifest
    live: bool = False
    # 0 before the first write.
    id: int = 0
    position: str | None = None
    # While the journal is read again from its start: what is not met until its end is dropped.
    sweep: int = 0
    sweeping: bool = False
    removals: int = 0
    last_number: int = 0
    # Whether passages wait for the embedder, and whether the file may hold forgotten bytes.
    waiting: bool = False
    needs_vacuum: bool = False
    # Only on a server: what the collection is called there, and what changes with every write.
    physical: str = ""
    state: str = ""


class CollectionSize(msgspec.Struct, frozen=True):
    """How much a collection holds, and how many passages wait for a vector.

    `texts` are some of those by their rows, if they were asked for.
    """

    records: int
    passages: int
    waiting: int
    texts: list[tuple[int, str]] = []


class IndexedRecord(msgspec.Struct, frozen=True):
    """A record to be indexed: its passages, their hashes, and the vectors there are already.

    A passage's vectors are one blob: one vector, or one for each piece it was cut into.
    """

    record: Record
    passages: Sequence[Passage]
    hashes: Sequence[bytes]
    vectors: Sequence[bytes | None]


class IndexBatch(msgspec.Struct, frozen=True):
    """One step of a sync: what was read from the journal, and vectors for waiting passages.

    `prepare` cuts and embeds those records that the collection does not have; it is told the keys
    that are indexed already, and the ids that were forgotten.
    """

    records: Mapping[RecordKey, Record] = {}
    prepare: Callable[[Sized[RecordKey], Sized[str]], list[IndexedRecord]] = lambda *_: []
    forget: Sized[str] = ()
    vectors: Sequence[tuple[int, bytes]] = ()
    # None: the position stays as it is.
    position: str | None = None
    restart: bool = False
    done: bool = False


class WordMatches(msgspec.Struct, frozen=True):
    """The BM25 scores of passages, how many passages contain each token, and how many passages
    there are (both without derived ones).

    `times`, if known, says how often each token (a column) occurs in each passage (a row).
    """

    scores: dict[int, float]
    frequencies: dict[str, int]
    passages: int
    times: Vectors | None = None


# In a collection of at least this many passages, a token that more than this share of them contain
# isn't ranked by: it tells little, and ranking by it is most of the time a search takes.
_LARGE, _COMMON_SHARE = 1000, 0.15


def ranking_tokens(matches: WordMatches) -> list[str]:
    """The tokens to rank passages by: the rare ones, or all if there is no rare one."""
    most = matches.passages * _COMMON_SHARE if matches.passages >= _LARGE else matches.passages
    rare = [token for token, count in matches.frequencies.items() if count <= most]
    return rare or list(matches.frequencies)


class DatedPassages(msgspec.Struct, frozen=True):
    """The first passages of records of some days, how many such records there are, and of how many
    in all."""

    rows: Rows
    records: int
    among: int


class StoredPassage(msgspec.Struct, frozen=True):
    """The words of a passage, and its record where asked for."""

    words: PassageWords
    record: Record | None = None


class StoredContent(msgspec.Struct, frozen=True):
    """The keys of all records, and all vectors by the hash of the text they were made from."""

    keys: frozenset[RecordKey]
    vectors: dict[bytes, bytes]


class IndexView(Protocol):
    """The store as one query sees it. A row is a passage's number, the same in every view."""

    def collections(self, name: str | None = None) -> list[Collection]:
        """The collections of this name, or all: those that answer and those being built."""

    def size(self, collection: Collection, *, texts: int = 0) -> CollectionSize:
        """How much it holds, and the first so many texts that wait for a vector."""

    def words(
        self, collection: Collection, query: Sequence[str], count: int, *, only: Only = None
    ) -> WordMatches:
        """The best `count` of the passages that hold any of these tokens; 0: only the facts."""

    def nearest(
        self, collection: Collection, to: Vectors, count: int, *, also: Rows = (), only: Only = None
    ) -> list[dict[int, float]]:
        """For each vector the cosines of the `count` nearest passages and of those in `also`, to
        five digits."""

    def dated(self, collection: Collection, first: str, end: str, count: int) -> DatedPassages:
        """The newest `count` records from the first moment on until before the end."""

    def fetch(
        self, collection: Collection, rows: Iterable[int], *, records: bool = False
    ) -> dict[int, StoredPassage]:
        """These passages, with their records if wanted."""

    def content(self, collection: Collection, *, vectors: bool = True) -> StoredContent:
        """Everything: to check it, or to use its vectors again (F16)."""


class IndexStore(Protocol):
    """Collections of one place: read through views, written batch by batch."""

    title: str
    where: str
    # A server may keep deleted bytes: after `forget` a collection is written anew.
    keeps_deleted: bool

    def state(self) -> AbstractContextManager[IndexView]:
        """A view for one query; writers go on beside it."""

    def write(self, collection: Collection, batch: IndexBatch) -> Collection:
        """Index one batch, then move the position; the first write makes the collection.

        With `done` it answers in place of the one before, and nothing forgotten stays in a file.
        """

    def drop(self, name: str | None = None, *, unfinished: bool = False) -> None:
        """Delete the collections of this name, or of all; or only what is being built."""

    def prune(self) -> list[str]:
        """Delete what no longer serves, and name it."""

    def repair(self, damage: Corrupt) -> None:
        """Make room for building anew what is damaged."""

    def check(self, *, deep: bool = False) -> list[str]:
        """Try it now, whatever was found before; `deep` tells what is wrong with it."""

    def close(self) -> None:
        """Let go of it; it opens again by itself."""
