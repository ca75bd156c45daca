"""Which pattern an entry belongs to, decided once, when it is published.

The decision is written into the journal with the checkpoint: the same journal gives the same
patterns whatever index or embedder there is. The built-in table measures nearness, always, so that
its thresholds mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ralph.index.static import StaticEmbedder
from ralph.kinds.knowledge import Covered, Entry, pattern_id
from ralph.memories.knowledge_intake import facet_values
from ralph.recall.patterns import told
from ralph.recall.sameness import WORTH_COMPARING, Nearness, conflicting, same

if TYPE_CHECKING:
    from ralph.index import Vectors

# From here on two texts tell of one problem.
_ONE_PROBLEM = 0.8
# Under it nobody need look closer.
_LIKE_PROBLEMS = 0.5
_KEPT_VECTORS = 20_000
# The nearest so many are compared word by word.
_COMPARED = 8


class Member(msgspec.Struct, frozen=True):
    """An entry, and the pattern it is in; none before it is published."""

    id: str
    entry: Entry
    pattern: str = ""


class Grouping:
    """Compares entries; what it has embedded it keeps for the next comparison."""

    def __init__(self, static: StaticEmbedder) -> None:
        self._static = static
        self._known: dict[str, Vectors] = {}

    def assign(
        self, fresh: Sequence[Member], candidates: Callable[[int], Sequence[Member]]
    ) -> list[Covered]:
        """A pattern for each, in order: that of the nearest that tells the same, else a new one.

        `candidates` gives the first entries of the published patterns that the one at this place
        may belong to. Only first entries are compared: being the same is not transitive, and a
        chain of near ones could lead anywhere.
        """
        if not fresh:
            return []
        kin = [kinship(one.entry) for one in fresh]
        published = [
            [other for other in candidates(place) if kinship(other.entry) == kin[place]]
            for place in range(len(fresh))
        ]
        everybody = [*fresh, *(other for some in published for other in some)]
        self._embed(text for one in everybody for text in _texts(one.entry))
        vectors = self._static.embed_passages([_whole(one.entry) for one in fresh])
        worth_comparing = vectors @ vectors.T >= WORTH_COMPARING
        firsts: list[Member] = []  # of the pattern of each that has one by now
        for place, one in enumerate(fresh):
            near = worth_comparing[place, :place].nonzero()[0].tolist()
            earlier = [firsts[other] for other in near if kin[other] == kin[place]]
            others = {other.id: other for other in (*published[place], *earlier)}
            twin = self._nearest_twin(one, list(others.values()))
            firsts.append(twin or Member(one.id, one.entry, pattern_id(one.id)))
        return [Covered(one.id, first.pattern) for one, first in zip(fresh, firsts, strict=True)]

    def alternative(self, one: Entry, other: Entry) -> bool:
        """Whether two entries answer the same problem."""
        if one.entry_type != other.entry_type:
            return False
        near = self._cosine(told(one).problem, told(other).problem)
        return near >= _ONE_PROBLEM or self.conflicting(one, other)

    def conflicting(self, one: Entry, other: Entry) -> bool:
        """Whether two entries cannot both be right."""
        if self._cosine(told(one).problem, told(other).problem) < _LIKE_PROBLEMS:
            return False
        return conflicting(told(one), told(other), self._nearness(one, other))

    def _nearest_twin(self, one: Member, others: Sequence[Member]) -> Member | None:
        near = [
            (cosine, other)
            for other in others
            if (cosine := self._cosine(_whole(one.entry), _whole(other.entry))) >= WORTH_COMPARING
        ]
        near.sort(key=lambda pair: (-pair[0], pair[1].id))
        for _, other in near[:_COMPARED]:
            if same(told(one.entry), told(other.entry), self._nearness(one.entry, other.entry)):
                return other
        return None

    def _nearness(self, one: Entry, other: Entry) -> Nearness:
        mine, theirs = told(one), told(other)
        return Nearness(
            problem=self._cosine(mine.problem, theirs.problem),
            solution=self._cosine(mine.solution, theirs.solution),
            whole=self._cosine(_whole(one), _whole(other)),
        )

    def _cosine(self, one: str, other: str) -> float:
        return float(self._vector(one) @ self._vector(other))

    def _vector(self, text: str) -> Vectors:
        if text not in self._known:
            self._embed([text])
        return self._known[text]

    def _embed(self, texts: Iterable[str]) -> None:
        """Many at once cost a tenth of one by one."""
        if len(self._known) >= _KEPT_VECTORS:
            self._known.clear()
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(missing, self._static.embed_passages(missing), strict=True))


def kinship(entry: Entry) -> tuple[object, ...]:
    """What two entries must share to be compared at all."""
    return (
        entry.entry_type,
        getattr(entry, "gate_type", ""),
        *(frozenset(facet_values(x)) for x in (entry.agent_type, entry.task_type)),
        frozenset(facet_values(entry.technology)),
    )


def _texts(entry: Entry) -> tuple[str, str, str]:
    both = told(entry)
    return both.problem, both.solution, _whole(entry)


def _whole(entry: Entry) -> str:
    both = told(entry)
    return f"{both.problem}\n{both.solution}"
