"""Which pattern an entry belongs to, decided once, when it is published.

The decision is written into the journal with the checkpoint: the same journal gives the same
patterns whatever index or embedder there is. Nearness is always measured with the built-in
embeddings, which the weights of the comparison were fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ralph.index.static import StaticEmbedder
from ralph.kinds.knowledge import Covered, Entry, pattern_id
from ralph.memories.knowledge_intake import facet_values
from ralph.recall.patterns import case_of
from ralph.recall.sameness import Case, Meaning, Nearness, conflicting, same
from ralph.text.sameness import gist

if TYPE_CHECKING:
    from ralph.index import Vectors

# Below this cosine two entries have too little in common to be the same.
_WORTH_COMPARING = 0.3
# From this cosine on two texts are about one problem.
_ONE_PROBLEM = 0.8
# From this cosine on two words mean much the same.
_NEAR_WORDS = 0.6
_CACHED_VECTORS = 20_000
# Only this many of the nearest are compared word by word.
_COMPARED = 8


class Member(msgspec.Struct, frozen=True):
    """An entry and its pattern; empty until it is published."""

    id: str
    entry: Entry
    pattern: str = ""


class Grouping:
    """Compares entries, and caches their embeddings for the next comparison."""

    def __init__(self, static: StaticEmbedder) -> None:
        self._static = static
        self._vectors: dict[str, Vectors] = {}

    def assign(
        self, fresh: Sequence[Member], candidates: Callable[[int], Sequence[Member]]
    ) -> list[Covered]:
        """Give each entry, in order, the pattern of the nearest that is the same, or a new one.

        `candidates` returns the first entries of the published patterns that the entry at an index
        may belong to. Only first entries are compared: being the same is not transitive, and a
        chain of near ones could lead anywhere.
        """
        if not fresh:
            return []
        kin = [kinship(member.entry) for member in fresh]
        published = [
            [member for member in candidates(n) if kinship(member.entry) == kin[n]]
            for n in range(len(fresh))
        ]
        everybody = [*fresh, *(member for members in published for member in members)]
        self._embed(text for member in everybody for text in _texts(case_of(member.entry)))
        vectors = self._static.embed_passages([case_of(member.entry).whole for member in fresh])
        worth_comparing = vectors @ vectors.T >= _WORTH_COMPARING
        firsts: list[Member] = []  # the first entry of the pattern of each entry so far
        for n, member in enumerate(fresh):
            near = worth_comparing[n, :n].nonzero()[0].tolist()
            earlier = [firsts[i] for i in near if kin[i] == kin[n]]
            others = {first.id: first for first in (*published[n], *earlier)}
            twin = self._nearest_twin(case_of(member.entry), list(others.values()))
            firsts.append(twin or Member(member.id, member.entry, pattern_id(member.id)))
        return [
            Covered(member.id, first.pattern) for member, first in zip(fresh, firsts, strict=True)
        ]

    def alternative(self, a: Entry, b: Entry) -> bool:
        """Whether two entries answer the same problem."""
        if a.entry_type != b.entry_type:
            return False
        near = self._cosine(case_of(a).problem, case_of(b).problem)
        return near >= _ONE_PROBLEM or self.conflicting(a, b)

    def conflicting(self, a: Entry, b: Entry) -> bool:
        """Whether two entries cannot both be right."""
        one, other = case_of(a), case_of(b)
        return conflicting(one, other, self._cosine(one.problem, other.problem))

    def nearness(self, one: Case, other: Case) -> Nearness:
        """How near two cases are by the built-in embeddings."""
        return Nearness(*map(self._meaning, _texts(one), _texts(other)))

    def _nearest_twin(self, case: Case, members: Sequence[Member]) -> Member | None:
        near = [
            (cosine, member)
            for member in members
            if (cosine := self._cosine(case.whole, case_of(member.entry).whole)) >= _WORTH_COMPARING
        ]
        near.sort(key=lambda pair: (-pair[0], pair[1].id))
        for _, member in near[:_COMPARED]:
            other = case_of(member.entry)
            if same(case, other, self.nearness(case, other)):
                return member
        return None

    def _meaning(self, a: str, b: str) -> Meaning:
        words_a, words_b = gist(a).spelled, gist(b).spelled
        cosine = self._cosine(a, b)
        if not words_a or not words_b:
            return Meaning(cosine, 0.0, 0.0, 0.0, 0.0, 0.0)
        import numpy as np

        self._embed([*words_a, *words_b])
        cosines = self._vectors_of(words_a) @ self._vectors_of(words_b).T
        best = (cosines.max(axis=1), cosines.max(axis=0))
        aligned, aligned_most = sorted(float(row.mean()) for row in best)
        covered, covered_most = sorted(float((row > _NEAR_WORDS).mean()) for row in best)
        weakest = sum(float(np.sort(row)[:3].mean()) for row in best) / 2
        return Meaning(cosine, aligned, aligned_most, covered, covered_most, weakest)

    def _cosine(self, a: str, b: str) -> float:
        self._embed([a, b])
        return float(self._vectors[a] @ self._vectors[b])

    def _vectors_of(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        return np.stack([self._vectors[text] for text in texts])

    def _embed(self, texts: Iterable[str]) -> None:
        """Embed what is not cached; many at once cost a tenth of one by one."""
        texts = list(dict.fromkeys(texts))
        missing = [text for text in texts if text not in self._vectors]
        if len(self._vectors) + len(missing) > _CACHED_VECTORS:
            self._vectors.clear()
            missing = texts
        self._vectors.update(zip(missing, self._static.embed_passages(missing), strict=True))


def kinship(entry: Entry) -> tuple[object, ...]:
    """What two entries must have in common to be compared at all."""
    return (
        entry.entry_type,
        getattr(entry, "gate_type", ""),
        *(frozenset(facet_values(x)) for x in (entry.agent_type, entry.task_type)),
        frozenset(facet_values(entry.technology)),
    )


def _texts(case: Case) -> tuple[str, str, str]:
    return case.problem, case.solution, case.whole
