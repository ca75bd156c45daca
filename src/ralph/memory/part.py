"""The memories that one search asks, and what each of them does in its own way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from ralph.memory.store import FEATURES, KNOWLEDGE, NOTES, Store, Stream
from ralph.recall import Hit
from ralph.recall.kinds import Keeper
from ralph.recall.search import Found, Question
from ralph.records import Record


class JournalKey(NamedTuple):
    """A journal: the memory it belongs to, and its name there."""

    memory: str
    name: str

    @property
    def feature(self) -> str | None:
        """The feature it belongs to, if it is the journal of one."""
        return self.name if self.memory == FEATURES and self.name != NOTES else None

    @property
    def title(self) -> str:
        """What people call it."""
        if self.memory == FEATURES:
            return "the notes" if self.name == NOTES else self.name
        return "knowledge" if self.memory == KNOWLEDGE else "the conversations"


class Reach(msgspec.Struct, frozen=True):
    """The kinds, memories and features that a call covers, and its time range (end excluded).

    `kinds` is None for all of them, also those that other packages add.
    """

    kinds: frozenset[str] | None = None
    keepers: frozenset[Keeper] = frozenset()
    features: Sequence[str] | None = None
    # Before and after every timestamp.
    first: str = ""
    end: str = "9"

    def has(self, hit: Hit) -> bool:
        """Whether a hit is covered; the project's own notes belong to every feature."""
        feature = getattr(hit.record, "feature", None)
        return (
            (self.kinds is None or hit.kind in self.kinds)
            and (self.features is None or feature == "" or feature in self.features)
            and self.first <= hit.at < self.end
        )


# All kinds, memories and features.
EVERYTHING = Reach()


class SearchRequest(msgspec.Struct, frozen=True):
    """A question to all memories, and what narrows the answers.

    `dated`: the caller gave days. `meaning`: compare by meaning, too. `exclude` is a conversation
    to leave out. `budget_s` limits the time to index what is new in the journals.
    """

    question: Question
    reach: Reach
    tags: Collection[str] = ()
    everywhere: bool = False
    dated: bool = False
    meaning: bool = True
    exclude: str | None = None
    budget_s: float | None = None


class MemoryPart(Protocol):
    """One of the memories: its journals, and how they are searched, opened and forgotten."""

    @property
    def store(self) -> Store:
        """Its journals, and the index that follows them."""

    def answers(self, request: SearchRequest) -> list[Found]:
        """Return what may answer, to be merged with what the other memories have."""

    def find(
        self,
        begins: str,
        *,
        reach: Reach = EVERYTHING,
        everywhere: bool = False,
        newest: int | None = None,
    ) -> list[Hit]:
        """Return the records whose id begins like this, or the `newest` ones."""

    def is_forgotten(self, begins: str) -> bool:
        """Whether a record whose id begins like this was forgotten, and that may be told."""

    def journals(self, *, everywhere: bool = False) -> list[str]:
        """Return the names of this project's journals; `everywhere`: of all projects."""

    def stream_at(self, journal: str) -> Stream:
        """Return the stream of a journal."""

    def forgettable(self, *, everywhere: bool = False) -> Iterable[tuple[str, Iterable[Record]]]:
        """Yield the journals with the records that may be forgotten, each once."""
