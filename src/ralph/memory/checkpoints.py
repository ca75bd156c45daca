"""Checkpoints: everything a project has staged is embedded, put into patterns and published.

For each batch in this order: embed all of it, write the line that publishes it, index it. What is
killed or fails before the line stays staged; after it the index catches up by itself. So a
checkpoint can always be repeated, and nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from ralph import disk
from ralph.errors import (
    BadInput,
    BadRecord,
    EmbedderOff,
    IndexOff,
    JournalBusy,
    JournalDown,
    MemoryOff,
)
from ralph.index import ASIDE, Embedder
from ralph.index.embedders.static import StaticEmbedder
from ralph.memory.knowledge_journal import EXPIRED, NOT_GIVING, passages, said_draft
from ralph.memory.ledger import facet_values
from ralph.memory.store import is_due, note_done
from ralph.recall.patterns import knowledge_text
from ralph.recall.sameness import WORTH_COMPARING, Nearness, conflicting, same
from ralph.records import Record, utc
from ralph.records.knowledge import (
    CHECKPOINT_KINDS,
    Checkpoint,
    CheckpointKind,
    Covered,
    Entry,
    checkpoint_id,
    knowledge_from,
    pattern_id,
)
from ralph.text.tokens import query_tokens

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.index.port import Collection, IndexView
    from ralph.memory.knowledge import Knowledge
    from ralph.memory.ledger import PublishedState


# -- Which pattern an entry belongs to, decided once, when it is published.
#
# The decision is written into the journal with the checkpoint: the same journal gives the same
# patterns whatever index or embedder there is. The built-in table measures nearness, always, so
# that its thresholds mean the same everywhere.


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
        near = self._cosine(knowledge_text(one).problem, knowledge_text(other).problem)
        return near >= _ONE_PROBLEM or self.conflicting(one, other)

    def conflicting(self, one: Entry, other: Entry) -> bool:
        """Whether two entries cannot both be right."""
        if (
            self._cosine(knowledge_text(one).problem, knowledge_text(other).problem)
            < _LIKE_PROBLEMS
        ):
            return False
        return conflicting(knowledge_text(one), knowledge_text(other), self._nearness(one, other))

    def _nearest_twin(self, one: Member, others: Sequence[Member]) -> Member | None:
        near = [
            (cosine, other)
            for other in others
            if (cosine := self._cosine(_whole(one.entry), _whole(other.entry))) >= WORTH_COMPARING
        ]
        near.sort(key=lambda pair: (-pair[0], pair[1].id))
        for _, other in near[:_COMPARED]:
            if same(
                knowledge_text(one.entry),
                knowledge_text(other.entry),
                self._nearness(one.entry, other.entry),
            ):
                return other
        return None

    def _nearness(self, one: Entry, other: Entry) -> Nearness:
        mine, theirs = knowledge_text(one), knowledge_text(other)
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
    both = knowledge_text(entry)
    return both.problem, both.solution, _whole(entry)


def _whole(entry: Entry) -> str:
    both = knowledge_text(entry)
    return f"{both.problem}\n{both.solution}"


# -- An embedder that has embedded ahead: what is published was embedded whole before that.


class CachedEmbedder:
    """The embedder, and the vectors it made beforehand."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.title, self.batch = embedder.title, embedder.batch
        self._made: dict[str, Vectors] = {}

    @property
    def identity(self) -> str:
        return self._embedder.identity

    @property
    def dims(self) -> int:
        return self._embedder.dims

    def pieces(self, text: str) -> Sequence[str]:
        """As the embedder cuts it."""
        return self._embedder.pieces(text)

    def embed_ahead(self, texts: Iterable[str]) -> None:
        """Embed every piece of these texts, all of them or EmbedderOff."""
        wanted = dict.fromkeys(
            piece
            for text in texts
            for part in text.split(ASIDE)
            if part
            for piece in self.pieces(part)
        )
        pieces = list(wanted)
        made: dict[str, Vectors] = {}
        for start in range(0, len(pieces), self.batch):
            some = pieces[start : start + self.batch]
            made.update(zip(some, self._embedder.embed_passages(some), strict=True))
        self._made = made

    def vector(self, text: str) -> Vectors:
        """The vector of the first piece of a text that was embedded ahead."""
        first = next(part for part in text.split(ASIDE) if part)
        return self._made[self.pieces(first)[0]]

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """What was made ahead, and the rest by the embedder."""
        import numpy as np

        if any(text not in self._made for text in texts):
            return self._embedder.embed_passages(texts, budget_s=budget_s)
        return np.stack([self._made[text] for text in texts])

    def embed_query(self, text: str) -> Vectors:
        """By the embedder."""
        return self._embedder.embed_query(text)

    def check(self) -> None:
        """Try the embedder now."""
        self._embedder.check()


_LOCK_NAME = "checkpoint.lock"
# How many published entries near a new one are compared with it.
_CANDIDATES = 10
# Without vectors its rarest words find them.
_RAREST_WORDS = 8


class CheckpointResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint came to."""

    project: str
    kind: CheckpointKind
    published: tuple[str, ...]
    new_patterns: int
    joined: int
    notes: tuple[str, ...] = ()


def checkpoint(
    memory: Knowledge, project: str, kind: str, *, imported: bool = False
) -> CheckpointResult:
    """Publish everything staged for a project; again when there is nothing, nothing happens."""
    if kind not in CHECKPOINT_KINDS:
        raise BadInput(
            f"{kind!r} is no kind of checkpoint",
            todo=f"It is one of {', '.join(CHECKPOINT_KINDS)}.",
        )
    why = msgspec.convert(kind, CheckpointKind)
    giving = not memory.keeps_to_itself(project)
    if not giving or not memory.staged_records(project, imported=imported):
        notes = _caught_up(memory) if giving else (NOT_GIVING,)
        return CheckpointResult(
            project=project, kind=why, published=(), new_patterns=0, joined=0, notes=notes
        )
    if trouble := memory.shelf.journals.trouble():
        # What others published meanwhile is not known here, and may be the same lesson.
        raise JournalDown(
            f"nothing is published while the journal's server is away: {trouble}",
            todo="What is staged stays so; repeat the checkpoint when it is back.",
        )
    settings = memory.shelf.settings
    lock = memory.shelf.index.path.with_name(_LOCK_NAME)
    try:
        # One at a time on this machine: what two projects publish at once may be one pattern.
        with disk.locked(lock, timeout_s=settings.journal_lock_timeout_s):
            return _publish(memory, project, why, imported=imported)
    except disk.Busy:
        raise JournalBusy(
            "another checkpoint is under way", where=str(lock), todo="Try again when it has ended."
        ) from None


def _caught_up(memory: Knowledge) -> tuple[str, ...]:
    """Index what was published by a checkpoint that did not come to it; what is in the way."""
    if not memory.ledger.history().slots:
        return ()
    try:
        return tuple(memory.catch_up())
    except MemoryOff as error:
        return (f"not indexed yet: {error}",)


def _publish(
    memory: Knowledge, project: str, why: CheckpointKind, *, imported: bool
) -> CheckpointResult:
    def waiting() -> list[Record]:
        return memory.staged_records(project, imported=imported)

    published: list[str] = []
    staged = {record.id for record in waiting()}
    before = set(memory.ledger.history().patterns)
    fresh_patterns: set[str] = set()
    notes: list[str] = []
    while batch := waiting()[: memory.shelf.settings.knowledge_batch]:
        try:
            line = _CheckpointBatch(memory, batch).publish(project, why)
            notes = memory.catch_up()
        except MemoryOff as error:
            left = {record.id for record in waiting()}
            raise type(error)(
                f"{len(staged - left)} published, {len(left)} stay staged: {error.what}",
                where=error.where,
                todo=error.todo or "Repeat the checkpoint.",
            ) from error
        published += [one.entry for one in line.covers]
        fresh_patterns |= {one.pattern for one in line.covers} - before
    joined = len(published) - len(fresh_patterns)
    return CheckpointResult(
        project=project,
        kind=why,
        published=tuple(published),
        new_patterns=len(fresh_patterns),
        joined=joined,
        notes=tuple(notes),
    )


class _CheckpointBatch:
    """Some staged entries on their way to being published."""

    def __init__(self, memory: Knowledge, records: Sequence[Record]) -> None:
        self._memory = memory
        self._records = records
        max_chars = memory.shelf.settings.embedding_max_chars
        self._cut = [passages(record, max_chars) for record in records]
        embedder = memory.shelf.embedder
        self._ahead = None if embedder is None else CachedEmbedder(embedder)

    def publish(self, project: str, why: CheckpointKind) -> Checkpoint:
        memory = self._memory
        if self._ahead is not None:
            self._ahead.embed_ahead(p.embed for cut in self._cut for p in cut)
        synced = memory.shelf.index.sync(memory.stream.target())
        if not synced.complete:
            off = synced.embedder_off
            raise (
                EmbedderOff(off)
                if off
                else IndexOff(
                    "another process is busy with the index", where=str(memory.shelf.index.path)
                )
            )
        near = memory.shelf.index.with_repair(self._candidates)
        members = [Member(record.id, knowledge_from(record)) for record in self._records]
        covers = memory.grouping.assign(members, lambda place: near[place])
        line = Checkpoint(project=project, why=why, covers=tuple(covers))
        memory.write(project, said_draft(line, checkpoint_id(project, covers[0].entry)))
        if self._ahead is not None:
            # What was embedded is not embedded again.
            memory.shelf.index.sync(memory.stream.target(self._ahead), changed=True)
        return line

    def _candidates(self) -> list[list[Member]]:
        """For each entry the patterns that may tell the same, each by its first entry."""
        memory = self._memory
        history = memory.ledger.history()
        with memory.shelf.index.answering(memory.stream.target().name) as (view, live):
            if live is None:
                return [[] for _ in self._records]
            found: list[list[Member]] = []
            for some in self._near(view, live):
                passages = view.fetch(live, some, records=True).values()
                near = [one.record.id for one in passages if one.record]
                patterns = dict.fromkeys(
                    history.slots[one].pattern for one in near if one in history.slots
                )
                found.append([self._first_of(history, name) for name in patterns])
        return found

    def _first_of(self, history: PublishedState, pattern: str) -> Member:
        first = history.patterns[pattern][0]
        record = self._memory.ledger.entry(history.projects[first], first)
        return Member(first, knowledge_from(record), pattern)

    def _near(self, view: IndexView, live: Collection) -> list[list[int]]:
        if self._ahead is not None:
            import numpy as np

            vectors = np.stack([self._ahead.vector(cut[0].embed) for cut in self._cut])
            near = view.nearest(live, vectors, _CANDIDATES)
            return [list(some) for some in near]
        found: list[list[int]] = []
        for cut in self._cut:
            asked = query_tokens(f"{cut[0].title}\n{cut[0].text}\n{cut[0].places}")
            often = view.words(live, asked, 0).frequencies
            known = [token for token in asked if often[token]]
            rarest = sorted(known, key=lambda token: (often[token], token))[:_RAREST_WORDS]
            found.append(list(view.words(live, rarest, _CANDIDATES).scores))
        return found


# -- Retention of knowledge: a year after it was published an entry goes, everywhere.
#
# An outcome reported lately prolongs nothing: it is the entry that grows old.


_STAMP = "pruned-knowledge"


class PrunedKnowledge(msgspec.Struct, frozen=True, kw_only=True):
    """What was published before `before`: its entries, and patterns none of which is left."""

    before: str
    entries: int = 0
    patterns: int = 0


def oldest_kept(keep_days: int, at: datetime | None = None) -> str:
    """What was published before this moment has had its time."""
    before = (at or datetime.now(UTC)) - timedelta(days=keep_days)
    return utc(before.isoformat(timespec="milliseconds"))


def is_expired(published: str, before: str) -> bool:
    """Whether something published then has had its time; what has no readable date has not."""
    try:
        return datetime.fromisoformat(utc(published)) < datetime.fromisoformat(before)
    except BadRecord:  # nobody knows when it was, and `journal verify` says so
        return False


def prune(
    memory: Knowledge, *, dry_run: bool = False, at: datetime | None = None
) -> PrunedKnowledge:
    """Forget what is too old, of every project; or only say what that would be."""
    before = oldest_kept(memory.shelf.settings.knowledge_keep_days, at)
    history = memory.ledger.history()
    old = {entry for entry, slot in history.slots.items() if is_expired(slot.at, before)}
    gone = sum(old.issuperset(entries) for entries in history.patterns.values())
    if old and not dry_run:
        memory.forget(old, reason=EXPIRED)
    return PrunedKnowledge(before=before, entries=len(old), patterns=gone)


def prune_if_due(memory: Knowledge, *, at: datetime | None = None) -> PrunedKnowledge | None:
    """Prune unless that was done within a day; None when it was."""
    stamp = memory.home / "cache" / _STAMP
    moment = at or datetime.now(UTC)
    if not is_due(stamp, moment):
        return None
    pruned = prune(memory, at=moment)
    note_done(stamp, moment)
    return pruned
