"""The memory of one project: its features, its notes and its plan, each a stream."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from ralph.errors import BadInput
from ralph.memory.feature import FeatureMemory, NoteMemory, ProjectStream
from ralph.memory.part import EVERYTHING, Reach, SearchRequest
from ralph.memory.store import NOTES, PLAN, ProjectStore
from ralph.recall import Hit
from ralph.recall.kinds import KINDS
from ralph.recall.search import Found
from ralph.records import Record

if TYPE_CHECKING:
    from ralph import index
    from ralph.memory.plan_stream import PlanStream


class ProjectMemory:
    """What is remembered in the project itself."""

    def __init__(self, store: ProjectStore) -> None:
        self.store = store
        self._features: dict[str, FeatureMemory] = {}

    def feature(self, name: str) -> FeatureMemory:
        """Return the memory of one feature, even if it is not in the plan."""
        if name in (NOTES, PLAN):
            raise BadInput(f"no feature can be called {name!r}: the name is Ralph's own")
        if name not in self._features:
            self._features[name] = FeatureMemory(name, self.store)
        return self._features[name]

    def features(self) -> list[FeatureMemory]:
        """Return every feature that has a journal."""
        return [self.feature(name) for name in self.journals() if name != NOTES]

    @functools.cached_property
    def notes(self) -> NoteMemory:
        """The notes of this project."""
        return NoteMemory(self.store)

    @functools.cached_property
    def plan(self) -> PlanStream:
        """The plan's learnings and features, as search sees them."""
        from ralph.memory.plan_stream import PlanStream  # hooks start faster without it

        return PlanStream(self.store)

    def streams(
        self, reach: Reach = EVERYTHING, names: Set[str] | None = None
    ) -> list[ProjectStream]:
        """Return the streams that may have what a call covers.

        `names`: the streams that are not empty, if known already.
        """
        kinds = KINDS if reach.kinds is None else reach.kinds
        wanted = {KINDS[kind].stream for kind in kinds}
        features = reach.features
        if features is None and names is not None:
            features = sorted(names - {NOTES, PLAN})
        streams: list[ProjectStream] = []
        if "features" in wanted:
            streams += self.features() if features is None else map(self.feature, features)
        if "notes" in wanted:
            streams.append(self.notes)
        if "plan" in wanted:
            streams.append(self.plan)
        return streams

    # -- as a part of all memories

    def answers(self, request: SearchRequest) -> list[Found]:
        """Return what may answer."""
        names = self.store.names()
        return [
            self.store.find(
                self.streams(request.reach, names),
                request.question,
                names=names,
                meaning=request.meaning,
                budget_s=request.budget_s,
            )
        ]

    def find(
        self,
        begins: str,
        *,
        reach: Reach = EVERYTHING,
        everywhere: bool = False,
        newest: int | None = None,
    ) -> list[Hit]:
        """Return the records whose id begins like this."""
        hits: list[Hit] = []
        for stream in self.streams(reach):
            # A feature's journal has only one kind, iterations, and may be long.
            most = newest if isinstance(stream, FeatureMemory) else None
            hits += stream.find(begins, newest=most)
        return hits

    def is_forgotten(self, begins: str) -> bool:
        """Whether a record whose id begins like this was forgotten."""
        return any(name.startswith(begins) for one in self.streams() for name in one.forgotten())

    def journals(self, *, everywhere: bool = False) -> list[str]:
        """Return the names of the journals, one for each feature and one for notes."""
        return list(self.store.journals.names())

    def stream_at(self, journal: str) -> ProjectStream:
        """Return the stream of a journal."""
        return self.notes if journal == NOTES else self.feature(journal)

    def forgettable(self, *, everywhere: bool = False) -> Iterator[tuple[str, Iterator[Record]]]:
        """Yield the journals with all their records, even those that a merge brought back."""
        for name in self.journals():
            yield name, self.store.records_in(name)

    # -- the index

    def orphans(self) -> list[index.Collection]:
        """Return collections whose journal is gone, or that belong to another project (F24)."""
        self.store.need_journals()  # a journal on a server that is down is not gone
        expected = {stream.target().name for stream in self.streams()}
        return [one for one in self.store.index.collections() if one.name not in expected]

    def prune(self) -> list[str]:
        """Delete orphan collections and unused index files; return their names."""
        gone = list(dict.fromkeys(one.name for one in self.orphans()))
        for name in gone:
            self.store.index.drop(name)
        return gone + self.store.index.prune()
