"""Checkpoints: embed everything a project has staged, group it into patterns, and publish it.

Each batch is embedded, then published by writing one line, then indexed. If that fails before the
line, the batch stays staged; after it, the index catches up by itself. So a checkpoint can always
be repeated, and nothing is published twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import disk, errors
from ralph.index import ASIDE, Collection, Embedder, IndexView, Passage, Vectors
from ralph.index.embedders.static import StaticEmbedder
from ralph.journal import Draft
from ralph.memory.store import days_before, is_before, once_a_day
from ralph.recall.patterns import case_of
from ralph.recall.sameness import (
    Case,
    Explained,
    Meaning,
    Nearness,
    conflicting,
    joins,
    likeness,
    same,
)
from ralph.records import Record, now, utc
from ralph.records import knowledge as kinds
from ralph.records.knowledge import (
    CheckpointKind,
    Entry,
    PublishedEntry,
    facets,
    knowledge_from,
)
from ralph.text.rarity import usual_rarity
from ralph.text.sameness import gist
from ralph.text.tokens import query_tokens, stem

if TYPE_CHECKING:
    from ralph.memory.knowledge import Knowledge


# The reason why an expired entry was forgotten. Only such entries may be learned again.
EXPIRED = "older than knowledge_keep_days"
NOT_GIVING = "this project does not share knowledge (knowledge_give is false)"
# How many entries one published line covers.
BATCH = 500


def said_draft(said: kinds.LedgerEvent, identity: str) -> Draft:
    """Draft a record of this event. Its time is set now, so every call gives the same record."""
    moment = now()
    return lambda number: kinds.entry_record(said, id=identity, number=number, at=moment)


# -- Which pattern an entry belongs to. This is decided once, when it is published.
#
# The decision is written into the journal with the checkpoint, so the same journal gives the same
# patterns with any index and embedder. Nearness is always measured with the built-in embeddings,
# because the weights of the comparison were fitted on them.

# Below this cosine two entries have too little in common to be the same.
_WORTH_COMPARING = 0.3
# At or above this cosine, two texts are about the same problem.
_ONE_PROBLEM = 0.8
# Above this cosine, two words mean much the same.
_NEAR_WORDS = 0.5
_CACHED_VECTORS = 20_000
# Only this many of the nearest patterns are compared word by word, and of each so many entries.
_COMPARED = 8
_MEMBERS = 5
# Stands for the problem if only solutions are compared.
_ANY_PROBLEM = "the same problem"
# A solution's word that its own problem has explains less than one that the other case has.
_OWN_PROBLEM = 0.9


class Member(msgspec.Struct, frozen=True):
    """An entry and its pattern, which is empty until the entry is published."""

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
    ) -> list[PublishedEntry]:
        """Assign each entry, in order, to the pattern that it fits best, or to a new one.

        `candidates` returns entries of the published patterns that the entry at an index may
        belong to, oldest first.
        """
        if not fresh:
            return []
        kin = [kinship(member.entry) for member in fresh]
        published = [
            [one for one in candidates(n) if kinship(one.entry) == own] for n, own in enumerate(kin)
        ]
        everybody = [*fresh, *(member for members in published for member in members)]
        self._embed(text for member in everybody for text in _texts(case_of(member.entry)))
        vectors = self._static.embed_passages([case_of(member.entry).whole for member in fresh])
        worth_comparing = vectors @ vectors.T >= _WORTH_COMPARING
        assigned: list[Member] = []
        for n, member in enumerate(fresh):
            near = worth_comparing[n, :n].nonzero()[0].tolist()
            possible = {one.pattern for one in published[n]}
            possible |= {assigned[i].pattern for i in near if kin[i] == kin[n]}
            patterns: dict[str, list[Member]] = {}
            for other in (*published[n], *assigned):
                if other.pattern in possible:
                    patterns.setdefault(other.pattern, []).append(other)
            found = self._best_pattern(case_of(member.entry), patterns)
            pattern = found or kinds.pattern_id(member.id)
            assigned.append(Member(member.id, member.entry, pattern))
        return [PublishedEntry(member.id, member.pattern) for member in assigned]

    def alternative(self, a: Entry, b: Entry) -> bool:
        """Return whether two entries answer the same problem."""
        if a.entry_type != b.entry_type:
            return False
        near = self._cosine(case_of(a).problem, case_of(b).problem)
        return near >= _ONE_PROBLEM or self.conflicting(a, b)

    def conflicting(self, a: Entry, b: Entry) -> bool:
        """Return whether two entries cannot both be right."""
        one = case_of(a)
        other = case_of(b)
        if not conflicting(one, other, self._cosine(one.problem, other.problem)):
            return False
        return not same(one, other, self.nearness(one, other))

    def same_solution(self, a: Entry, b: Entry) -> bool:
        """Return whether two entries have the same solution, whatever their problems."""
        one, other = (Case(_ANY_PROBLEM, case_of(entry).solution) for entry in (a, b))
        return same(one, other, self.nearness(one, other))

    def nearness(self, one: Case, other: Case) -> Nearness:
        """Return how near two cases are by the built-in embeddings."""
        problem, solution, whole = map(self._meaning, _texts(one), _texts(other))
        return Nearness(problem, solution, whole, self._explained(one, other))

    def _best_pattern(self, case: Case, patterns: Mapping[str, Sequence[Member]]) -> str | None:
        """Return the pattern that a case fits best, or None."""
        cosines: dict[str, float] = {}
        for pattern, members in patterns.items():
            near = [self._cosine(case.whole, case_of(one.entry).whole) for one in members]
            if max(near) >= _WORTH_COMPARING:
                cosines[pattern] = max(near)
        nearest = sorted(cosines, key=lambda pattern: (-cosines[pattern], pattern))
        best: str | None = None
        highest = -math.inf
        for pattern in nearest[:_COMPARED]:
            others = [case_of(one.entry) for one in patterns[pattern][:_MEMBERS]]
            found = [likeness(case, other, self.nearness(case, other)) for other in others]
            if joins(found) and max(found) > highest:
                best = pattern
                highest = max(found)
        return best

    def _explained(self, one: Case, other: Case) -> Explained:
        """Return how much of two solutions the other case explains."""
        a = self._explained_by(one, other)
        b = self._explained_by(other, one)
        (matched, matched_most), (known, known_most), (odd, odd_most) = map(
            sorted, zip(a, b, strict=True)
        )
        return Explained(matched, matched_most, known, known_most, odd, odd_most)

    def _explained_by(self, one: Case, other: Case) -> tuple[float, float, float]:
        """Return what the other solution explains of this one, what both cases explain, and how
        much the least explained word says."""
        words = gist(one.solution).spelled
        if not words:
            return 0.0, 0.0, 0.0
        import numpy as np

        rarities = np.array([usual_rarity(stem(word)) for word in words])
        weights = rarities / (rarities.sum() or 1.0)
        matched = self._best_matches(words, gist(other.solution).spelled)
        known = np.maximum(matched, self._best_matches(words, gist(other.problem).spelled))
        own = self._best_matches(words, gist(one.problem).spelled)
        known = np.maximum(known, _OWN_PROBLEM * own)
        odd = (rarities * (1 - known)).max()
        return float(weights @ matched), float(weights @ known), float(odd)

    def _best_matches(self, words: Sequence[str], others: Sequence[str]) -> Vectors:
        """Return the similarity of each word to the nearest of the others."""
        import numpy as np

        if not others:
            return np.zeros(len(words), dtype=np.float32)
        self._embed([*words, *others])
        rows, columns = (np.stack([self._vectors[w] for w in x]) for x in (words, others))
        best: Vectors = (rows @ columns.T).max(axis=1).clip(0, 1)
        return best

    def _meaning(self, a: str, b: str) -> Meaning:
        words_a = gist(a).spelled
        words_b = gist(b).spelled
        cosine = self._cosine(a, b)
        if not words_a or not words_b:
            return Meaning(cosine, 0.0, 0.0, 0.0, 0.0, 0.0)
        import numpy as np

        self._embed([*words_a, *words_b])
        a_rows, b_rows = (np.stack([self._vectors[w] for w in x]) for x in (words_a, words_b))
        cosines = a_rows @ b_rows.T
        best = (cosines.max(axis=1), cosines.max(axis=0))
        aligned, aligned_most = sorted(float(row.mean()) for row in best)
        covered, covered_most = sorted(float((row > _NEAR_WORDS).mean()) for row in best)
        weakest = sum(float(np.sort(row)[:3].mean()) for row in best) / 2
        return Meaning(cosine, aligned, aligned_most, covered, covered_most, weakest)

    def _cosine(self, a: str, b: str) -> float:
        self._embed([a, b])
        return float(self._vectors[a] @ self._vectors[b])

    def _embed(self, texts: Iterable[str]) -> None:
        """Embed the texts not cached yet, all at once: that costs a tenth of one by one."""
        texts = list(dict.fromkeys(texts))
        missing = [text for text in texts if text not in self._vectors]
        if len(self._vectors) + len(missing) > _CACHED_VECTORS:
            self._vectors.clear()
            missing = texts
        self._vectors.update(zip(missing, self._static.embed_passages(missing), strict=True))


def kinship(entry: Entry) -> tuple[object, ...]:
    """Return what two entries must have in common to be compared at all."""
    of = facets(entry.agent_type, entry.task_type, entry.technology, entry.entry_type)
    return getattr(entry, "gate_type", ""), *map(frozenset, of.values())


def _texts(case: Case) -> tuple[str, str, str]:
    return case.problem, case.solution, case.whole


# -- Embedding ahead: all of a batch is embedded before it is published.


class CachedEmbedder:
    """An embedder, and the vectors it made ahead."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vectors] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def embed_ahead(self, texts: Iterable[str]) -> None:
        """Embed every piece of these texts, or raise EmbedderOff."""
        parts = (part for text in texts for part in text.split(ASIDE) if part)
        pieces = list(dict.fromkeys(piece for part in parts for piece in self.pieces(part)))
        for start in range(0, len(pieces), self.batch):
            some = pieces[start : start + self.batch]
            self._made.update(zip(some, self._embedder.embed_passages(some), strict=True))

    def vector(self, text: str) -> Vectors:
        """Return the vector of the first piece of a text that was embedded ahead."""
        return self._made[self.pieces(next(part for part in text.split(ASIDE) if part))[0]]

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """Return the vectors made ahead, or embed all of these texts if one is missing."""
        import numpy as np

        if any(text not in self._made for text in texts):
            return self._embedder.embed_passages(texts, budget_s=budget_s)
        return np.stack([self._made[text] for text in texts])


_LOCK_NAME = "checkpoint.lock"
# How many published entries near a new one are compared with it.
_CANDIDATES = 10
# Without vectors, the rarest words of the new entry find them.
_RAREST_WORDS = 8


class CheckpointResult(msgspec.Struct, frozen=True):
    """The result of a checkpoint."""

    project: str
    kind: CheckpointKind
    published: tuple[str, ...] = ()
    new_patterns: int = 0
    joined: int = 0
    notes: tuple[str, ...] = ()


def checkpoint(
    memory: Knowledge, project: str, kind: str, *, imported: bool = False
) -> CheckpointResult:
    """Publish everything staged for a project. Safe to repeat."""
    if kind not in kinds.CHECKPOINT_KINDS:
        todo = f"It is one of {', '.join(kinds.CHECKPOINT_KINDS)}."
        raise errors.BadInput(f"unknown checkpoint kind {kind!r}", todo=todo)
    why = msgspec.convert(kind, CheckpointKind)
    gives = memory.gives(project)
    if not gives or not memory.staged_records(project, imported=imported):
        notes: tuple[str, ...] = () if gives else (NOT_GIVING,)
        if gives and memory.state.history().slots:
            try:  # an earlier checkpoint may have stopped before this
                notes = _catch_up(memory)
            except errors.MemoryOff as error:
                notes = (f"not indexed yet: {error}",)
        return CheckpointResult(project, why, notes=notes)
    if trouble := memory.store.journals.trouble():
        # Others may have published the same lesson meanwhile, which is not known here.
        what = f"nothing is published while the journal's server is away: {trouble}"
        todo = "What is staged stays so; repeat the checkpoint when it is back."
        raise errors.JournalDown(what, todo=todo)
    lock = memory.store.index.path.with_name(_LOCK_NAME)
    what = "another checkpoint is under way"
    todo = "Try again when it has ended."
    busy = errors.JournalBusy(what, where=str(lock), todo=todo)
    # One at a time on this machine: two projects may be publishing the same pattern.
    with disk.lock(lock, timeout_s=memory.store.settings.journal_lock_timeout_s, busy=busy):
        return _publish(memory, project, why, imported=imported)


def _catch_up(memory: Knowledge) -> tuple[str, ...]:
    """Index what is published but not indexed yet; return a note if the embedder is off."""
    synced = memory.sync()
    return (f"indexed by words alone: {synced.embedder_off}",) if synced.embedder_off else ()


def _publish(
    memory: Knowledge, project: str, why: CheckpointKind, *, imported: bool
) -> CheckpointResult:
    def waiting() -> list[Record]:
        return memory.staged_records(project, imported=imported)

    published: list[str] = []
    staged = {record.id for record in waiting()}
    before = memory.state.history().patterns.keys()
    fresh_patterns: set[str] = set()
    notes: tuple[str, ...] = ()
    while batch := waiting()[:BATCH]:
        try:
            covers = _publish_batch(memory, batch, project, why)
            notes = _catch_up(memory)
        except errors.MemoryOff as error:
            left = {record.id for record in waiting()}
            what = f"{len(staged - left)} published, {len(left)} stay staged: {error.what}"
            todo = error.todo or "Repeat the checkpoint."
            raise type(error)(what, where=error.where, todo=todo) from error
        published += [one.entry for one in covers]
        fresh_patterns |= {one.pattern for one in covers} - before
    new = len(fresh_patterns)
    joined = len(published) - len(fresh_patterns)
    return CheckpointResult(project, why, tuple(published), new, joined, notes)


def _publish_batch(
    memory: Knowledge, records: Sequence[Record], project: str, why: CheckpointKind
) -> Sequence[PublishedEntry]:
    """Publish some staged entries; return them with their patterns."""
    index = memory.store.index
    embedder = memory.store.embedder
    cuts = [memory.passages(record) for record in records]
    ahead = None if embedder is None else CachedEmbedder(embedder)
    if ahead is not None:
        ahead.embed_ahead(passage.embed for cut in cuts for passage in cut)
    synced = index.sync(memory.target())
    if not synced.complete and synced.embedder_off:
        raise errors.EmbedderOff(synced.embedder_off)
    if not synced.complete:
        raise errors.IndexOff("another process is busy with the index", where=str(index.path))
    near = index.with_repair(lambda: _candidates(memory, cuts, ahead))
    members = [Member(record.id, knowledge_from(record)) for record in records]
    covers = memory.grouping.assign(members, lambda place: near[place])
    line = kinds.Checkpoint(project=project, why=why, covers=tuple(covers))
    memory.write(project, said_draft(line, kinds.checkpoint_id(project, covers[0].entry)))
    if ahead is not None:
        # Uses the vectors from above instead of embedding again.
        index.sync(memory.target(ahead), changed=True)
    return covers


def _candidates(
    memory: Knowledge, cuts: Sequence[Sequence[Passage]], ahead: CachedEmbedder | None
) -> list[list[Member]]:
    """Return, for each entry, the first entries of the patterns that it may belong to."""
    history = memory.state.history()

    def members_of(pattern: str) -> list[Member]:
        ids = history.patterns[pattern][:_MEMBERS]
        entries = [knowledge_from(memory.state.entry(history, name)) for name in ids]
        return [Member(name, entry, pattern) for name, entry in zip(ids, entries, strict=True)]

    with memory.store.index.answering(memory.target().name) as (view, live):
        if live is None:
            return [[] for _ in cuts]
        found: list[list[Member]] = []
        for rows in _near(view, live, [cut[0] for cut in cuts], ahead):
            stored = view.fetch(live, rows, records=True).values()
            slots = (history.slots.get(one.record.id) for one in stored if one.record)
            patterns = (slot.pattern for slot in slots if slot)
            found.append([x for name in dict.fromkeys(patterns) for x in members_of(name)])
    return found


def _near(
    view: IndexView, live: Collection, problems: Sequence[Passage], ahead: CachedEmbedder | None
) -> list[list[int]]:
    if ahead is not None:
        import numpy as np

        vectors = np.stack([ahead.vector(one.embed) for one in problems])
        return [near.rows for near in view.nearest(live, vectors, _CANDIDATES)]
    found: list[list[int]] = []
    for one in problems:
        asked = query_tokens(f"{one.title}\n{one.text}\n{one.places}")
        often = view.words(live, asked, 0).frequencies
        known = [token for token in asked if often[token]]
        rarest = sorted(known, key=lambda token: (often[token], token))[:_RAREST_WORDS]
        found.append(list(view.words(live, rarest, _CANDIDATES).scores))
    return found


# -- Retention: an entry is forgotten everywhere `knowledge_keep_days` after it was published.
#
# A recent outcome does not extend that: the entry itself is what gets old.


class PrunedKnowledge(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries published before `before` were pruned, and how many whole patterns."""

    before: str
    entries: int = 0
    patterns: int = 0


def prune(memory: Knowledge, dry_run: bool = False, at: datetime | None = None) -> PrunedKnowledge:
    """Forget the entries of every project that are too old; `dry_run` only counts them."""
    before = days_before(memory.store.settings.knowledge_keep_days, at)
    history = memory.state.history()
    old = {entry for entry, slot in history.slots.items() if is_before(slot.at, before)}
    gone = sum(old.issuperset(entries) for entries in history.patterns.values())
    if old and not dry_run:
        memory.forget(old, reason=EXPIRED)
    until = utc(before.isoformat(timespec="milliseconds"))
    return PrunedKnowledge(before=until, entries=len(old), patterns=gone)


def prune_if_due(memory: Knowledge, *, at: datetime | None = None) -> PrunedKnowledge | None:
    """Prune, unless that was done within a day; then return None."""
    stamp = memory.store.home / "cache" / "pruned-knowledge"
    return once_a_day(stamp, at, lambda moment: prune(memory, at=moment))
