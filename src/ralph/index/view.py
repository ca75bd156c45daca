"""The ports of the index: what a store, a view of it, and the index around it promise.

SQLite and Qdrant keep the same promises; nobody outside this room knows which of them is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Collection as Some
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from ralph.index import Manifest
from ralph.index.facets import Only
from ralph.index.tables import Collection, Row
from ralph.records import Record

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.index.sync import Progress, Synced, Target

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
        rows: Sequence[Row],
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
        target: Target,
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

    def erase(self, target: Target, *, lock_timeout_s: float) -> None:
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
