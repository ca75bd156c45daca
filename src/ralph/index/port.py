"""The ports of the index: what a store, a view of it, and the index around it promise.

SQLite and Qdrant keep the same promises; nobody outside this room knows which of them is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Collection as Some
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from ralph.index import Manifest, Only, Passage
from ralph.records import Record

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.index.sync import IndexSpec, Progress, Synced


# -- The tables of one collection generation in SQLite, and what goes into them.


META = """
CREATE TABLE IF NOT EXISTS collection (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL, stream TEXT NOT NULL, live INTEGER NOT NULL,
    embedder TEXT NOT NULL, dims INTEGER NOT NULL, tokeniser TEXT NOT NULL, cut TEXT NOT NULL,
    position TEXT, sweep INTEGER NOT NULL DEFAULT 0, sweeping INTEGER NOT NULL DEFAULT 0,
    removals INTEGER NOT NULL DEFAULT 0, UNIQUE (name, live));
"""
# Rows of passage and vector are never used twice: an open reader asks for those above the last
# one it knows.
TABLES = """
CREATE TABLE record_{n} (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, digest TEXT NOT NULL, kind TEXT NOT NULL,
    number INTEGER NOT NULL, at TEXT NOT NULL, source TEXT NOT NULL, body BLOB NOT NULL,
    sweep INTEGER NOT NULL, UNIQUE (id, digest));
CREATE INDEX record_number_{n} ON record_{n} (number);
CREATE TABLE passage_{n} (
    row INTEGER PRIMARY KEY AUTOINCREMENT, record INTEGER NOT NULL, hash BLOB NOT NULL,
    waiting TEXT);
CREATE INDEX passage_record_{n} ON passage_{n} (record);
CREATE INDEX passage_waiting_{n} ON passage_{n} (row) WHERE waiting IS NOT NULL;
CREATE TABLE vector_{n} (
    row INTEGER PRIMARY KEY AUTOINCREMENT, passage INTEGER NOT NULL UNIQUE, v BLOB NOT NULL);
CREATE VIRTUAL TABLE words_{n} USING fts5(
    title, text, places, facets, tokenize = "ascii tokenchars '._/+#-'");
CREATE VIRTUAL TABLE vocabulary_{n} USING fts5vocab(words_{n}, 'row');
CREATE TABLE forgotten_{n} (id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
DROP = "\n".join(
    f"DROP TABLE IF EXISTS {table}_{{n}};"
    for table in ("vocabulary", "words", "vector", "passage", "record", "forgotten")
)
COLUMNS = (
    "id, name, stream, live, embedder, dims, tokeniser, cut, position, sweep, sweeping, removals"
)


class Corrupt(Exception):
    """The index does not hold what it should; `Index.healed` sets it aside and builds it anew."""


class Collection(msgspec.Struct, frozen=True):
    """One generation of a collection as the store has it."""

    id: int
    name: str
    stream: str
    live: bool
    manifest: Manifest
    position: str | None
    sweep: int
    sweeping: bool
    removals: int
    # Where a store gives its generations names of their own, this one's; and what changes with
    # everything that is written to it.
    physical: str = ""
    state: str = ""


class IndexedRecord(msgspec.Struct, frozen=True):
    """A record to be indexed: its passages, their hashes, and the vectors there are already.

    A passage's vectors are one blob: one vector, or one for each piece it was cut into.
    """

    record: Record
    passages: Sequence[Passage]
    hashes: Sequence[bytes]
    vectors: Sequence[bytes | None]


def collection_of(row: Sequence[object]) -> Collection:
    """A row of COLUMNS as a value."""
    number, name, stream, live, embedder, dims, tokeniser, cut, position, sweep, on, gone = row
    plain = {
        "id": number,
        "name": name,
        "stream": stream,
        "live": bool(live),
        "manifest": {"embedder": embedder, "dims": dims, "tokeniser": tokeniser, "cut": cut},
        "position": position,
        "sweep": sweep,
        "sweeping": bool(on),
        "removals": gone,
    }
    return msgspec.convert(plain, Collection)


_T = TypeVar("_T")


class View(Protocol):
    """The store as one query sees it. A row is a passage's number, the same in every view.

    All may raise IndexOff where the store cannot be reached, Corrupt where it is not what it was.
    """

    def live(self, name: str) -> Collection | None:
        """The collection that answers under this name."""
        ...

    def generations(self, name: str) -> tuple[Collection | None, Collection | None]:
        """The collection that answers, and the one that is being built to replace it."""
        ...

    def words(
        self,
        collection: Collection,
        query: Sequence[str],
        count: int,
        *,
        only: Only | None = None,
    ) -> dict[int, float]:
        """BM25 of the passages that hold any of these tokens, the best `count` of them."""
        ...

    def nearest(
        self,
        collection: Collection,
        query: Vectors,
        count: int,
        also: list[int],
        *,
        only: Only | None = None,
    ) -> dict[int, float]:
        """Cosines of the `count` nearest passages and of those in `also`, to five digits."""
        ...

    def nearest_of_each(
        self, collection: Collection, queries: Vectors, count: int
    ) -> list[dict[int, float]]:
        """Cosines of the `count` nearest passages of each of these vectors."""
        ...

    def frequencies(self, collection: Collection, query: Iterable[str]) -> dict[str, int]:
        """In how many passages each token stands."""
        ...

    def passages(self, collection: Collection) -> int:
        """How many passages there are."""
        ...

    def fields(
        self, collection: Collection, rows: Iterable[int]
    ) -> dict[int, tuple[str, str, str]]:
        """The tokens of title, text and places of each of these passages, separated by blanks."""
        ...

    def expect(self, collection: Collection, rows: Iterable[int]) -> None:
        """Be told whose fields and records will be asked for one by one, to fetch them at once."""
        ...

    def records(self, collection: Collection, rows: Iterable[int]) -> dict[int, tuple[int, Record]]:
        """For each passage the number of its record in the index, and the record."""
        ...

    def last_number(self, collection: Collection) -> int:
        """The highest number any record of the collection has."""
        ...

    def known(self, collection: Collection) -> dict[tuple[str, str], None]:
        """Identity and content of everything indexed."""
        ...

    def held(self, collection: Collection, keys: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of these ids and contents that are indexed."""
        ...

    def forgotten(self, collection: Collection, ids: Iterable[str]) -> set[str]:
        """Those of these ids of which a tombstone has been met."""
        ...

    def soiled(self) -> bool:
        """Whether bytes of something forgotten may still be in a file of ours."""
        ...

    def waiting(self, collection: Collection, count: int) -> list[tuple[int, str]]:
        """Passages that have no vector yet, and the text to make one from."""
        ...

    def counts(self, collection: Collection) -> tuple[int, int, int]:
        """Records, passages, and passages that wait for a vector."""
        ...

    def vectors_by_hash(self, collection: Collection) -> dict[bytes, bytes]:
        """The vectors under the hash of the text they were made from, to be used again (F16)."""
        ...


class Store(Protocol):
    """Collections and their generations: read through views, written batch by batch."""

    @property
    def title(self) -> str:
        """What people call it."""
        ...

    @property
    def where(self) -> str:
        """Where it is: a file, or a server without its key."""
        ...

    def reading(self) -> AbstractContextManager[View]:
        """A view for one query; writers go on beside it."""
        ...

    def collections(self) -> list[Collection]:
        """Every generation of every collection."""
        ...

    def generations(self, name: str) -> tuple[Collection | None, Collection | None]:
        """The collection that answers, and the one that is being built to replace it."""
        ...

    def create(self, name: str, stream: str, manifest: Manifest, *, live: bool) -> Collection:
        """A new, empty generation; one that was being built before is dropped."""
        ...

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
        """Index one batch, then move the position; how many were forgotten.

        `restart` begins a sweep: what the journal no longer has when `done` comes is dropped.
        `seen` are records the collection has already, met again by the sweep.
        """
        ...

    def fill(self, collection: Collection, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Give vectors to passages that waited for the embedder."""
        ...

    def replace_live(self, collection: Collection) -> None:
        """Let a built generation answer from now on, and drop the one before."""
        ...

    def drop_building(self, name: str) -> None:
        """Give up a generation that was being built; the live one stays."""
        ...

    def drop(self, name: str) -> None:
        """Delete a collection, every generation of it."""
        ...

    def soiled(self) -> bool:
        """Whether bytes of something forgotten may still be in a file of ours."""
        ...

    def scrub(self) -> None:
        """Make sure that what was removed cannot be read from a file of ours any more."""
        ...

    def compact(self) -> None:
        """Give back the space of a dropped generation, unless somebody is in the way."""
        ...

    def check(self) -> list[str]:
        """What is wrong with the store itself."""
        ...

    def close(self) -> None:
        """Let go of it; the store may be used again afterwards."""
        ...


class AnyIndex(Protocol):
    """A store, who may write it at a time, and how it heals."""

    @property
    def store(self) -> Store:
        """The store, opened at first use."""
        ...

    @property
    def path(self) -> Path:
        """The file of the index, or beside which its lock lies."""
        ...

    @property
    def where(self) -> str:
        """Where the index is, for people."""
        ...

    def check(self) -> None:
        """Try it now, whatever was found before; IndexOff says what to do."""
        ...

    def sync(
        self,
        target: IndexSpec,
        *,
        budget_s: float | None = None,
        afresh: bool = False,
        progress: Progress | None = None,
        lock_timeout_s: float | None = None,
        changed: bool = False,
    ) -> Synced:
        """Bring one collection up to its journal; `changed`: there surely is something to do."""
        ...

    def healed(self, work: Callable[[], _T]) -> _T:
        """Do the work; where the index turns out damaged, heal it and do the work again."""
        ...

    def erase(self, target: IndexSpec, *, lock_timeout_s: float) -> None:
        """Leave nothing of what was forgotten in the index."""
        ...

    def drop(self, name: str) -> None:
        """Delete a collection."""
        ...

    def remove_others(self) -> list[Path]:
        """Delete what no longer serves, and name it."""
        ...

    def delete(self) -> None:
        """Throw the index away; IndexOff when that cannot be."""
        ...

    def close(self) -> None:
        """Let go of it; it opens again by itself."""
        ...
