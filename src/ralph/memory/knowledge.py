"""Cross-project knowledge: what one project paid for, found by whoever directs the agents of
another. Agents have no way here; they see what an orchestrator puts into their context."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ralph.config import Settings
from ralph.errors import JournalError, MemoryOff, NotFound
from ralph.index import Embedder, Only
from ralph.index.embedders.static import StaticEmbedder
from ralph.index.sync import Progress
from ralph.journal import Draft
from ralph.memory.checkpoints import (
    CheckpointResult,
    Grouping,
    PrunedKnowledge,
    checkpoint,
    is_expired,
    oldest_kept,
    prune,
    prune_if_due,
)
from ralph.memory.knowledge_journal import KnowledgeJournal
from ralph.memory.ledger import PublishedState, facet_values
from ralph.recall import Answer, Hit
from ralph.recall.patterns import (
    Pattern,
    Patterns,
    case_of,
    context_block,
    described,
    in_order,
    success_rate,
    when_to_try,
)
from ralph.records import Record
from ralph.records.knowledge import FAILURE_SOLUTION, Entry, EntryType, knowledge_from

TASK_MIN_SCORE = 0.70
FAILURE_MIN_SCORE = 0.75
_TASK_LIMIT = 5
_FAILURE_LIMIT = 3
_PATTERNS_IN_CONTEXT = 3
_MOST_CONFLICTS = 3

# How many entries are looked at: they are put together into patterns afterwards.
_DEPTH = 60
_NOT_RECEIVING = "this project receives no knowledge: knowledge_receive is false"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told for a task: the basic context, and behind it the block of patterns.

    `patterns` are the ids of those in the block, for `report_outcome`; they do not stand in it.
    """

    text: str
    block: str
    patterns: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


class Knowledge(KnowledgeJournal):
    """What all projects published, asked by an orchestrator."""

    def __init__(
        self,
        *,
        home: Path,
        settings: Settings,
        embedder: Embedder | None,
        project_id: str,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(
            home=home,
            settings=settings,
            embedder=embedder,
            project_id=project_id,
            progress=progress,
        )
        own = embedder if isinstance(embedder, StaticEmbedder) else None
        self.grouping = Grouping(own or StaticEmbedder(stamp_folder=home / "cache"))

    # -- publishing

    def checkpoint(
        self, project: str | None = None, kind: str = "manual", *, imported: bool = False
    ) -> CheckpointResult:
        """Publish everything staged for a project: embedded in batches, each whole or not at all.

        What came by an import, from anybody, stays staged unless `imported` says that a person
        wants it. Repeating it is safe; MemoryOff when the embedder or the index is off, and what
        was not published stays staged.
        """
        done = checkpoint(self, project or self._own, kind, imported=imported)
        try:
            prune_if_due(self)
        except (JournalError, MemoryOff) as error:
            # What is published is published; pruning is tried again the next time.
            return msgspec.structs.replace(done, notes=(*done.notes, f"not pruned: {error}"))
        return done

    def prune(self, *, dry_run: bool = False, at: datetime | None = None) -> PrunedKnowledge:
        """Forget what was published longer ago than `knowledge_keep_days`, everywhere."""
        return prune(self, dry_run=dry_run, at=at)

    # -- asking

    def query_for_task(
        self,
        task_description: str,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        budget_s: float | None = None,
    ) -> Patterns:
        """The patterns that may help with a task, best first, before an agent gets it."""
        return self._query(
            task_description,
            self._only(agent_type, task_type, technology),
            limit=_TASK_LIMIT if max_results is None else max_results,
            floor=TASK_MIN_SCORE if min_score is None else min_score,
            budget_s=budget_s,
        )

    def query_for_failure(
        self,
        failure_description: str,
        error_message: str = "",
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        budget_s: float | None = None,
    ) -> Patterns:
        """How failures like this one were solved, best first."""
        asked = "\n".join(part for part in (failure_description, error_message) if part)
        return self._query(
            asked,
            self._only(agent_type, task_type, technology, [FAILURE_SOLUTION]),
            limit=_FAILURE_LIMIT if max_results is None else max_results,
            floor=FAILURE_MIN_SCORE if min_score is None else min_score,
            budget_s=budget_s,
        )

    def context_for_task(
        self,
        task_description: str,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        *,
        basic: str | None = None,
        budget_s: float | None = None,
    ) -> Context:
        """The context an agent gets for a task; `basic` is what it is told without patterns."""
        found = self.query_for_task(
            task_description, agent_type, task_type, technology, budget_s=budget_s
        )
        shown = found[:_PATTERNS_IN_CONTEXT]
        block = context_block(shown)
        before = f"Task: {task_description.strip()}" if basic is None else basic.rstrip("\n")
        return Context(
            text="\n\n".join(part for part in (before, block) if part),
            block=block,
            patterns=tuple(one.id for one in shown),
            notes=found.notes,
        )

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        min_score: float | None = None,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
    ) -> Answer:
        """The published entries that answer the question, best first."""
        if not self.shelf.settings.knowledge_receive:
            return Answer(notes=(_NOT_RECEIVING,))
        question = self.shelf.question(query, limit=limit, min_score=min_score)
        only = self._only(agent_type, task_type, technology)
        asked = msgspec.structs.replace(question, limit=_DEPTH, only=only)
        found = self.shelf.ask([self.stream], asked)
        slots = self.living().slots
        return Answer([hit for hit in found if hit.id in slots][: question.limit], found.notes)

    def patterns(self) -> Patterns:
        """Every pattern, those told most often first; of these the one that held best."""
        history = self.living()
        found = [
            _pattern(history, name, self._first_of(history, name)) for name in history.patterns
        ]
        return Patterns(sorted(found, key=_most_told))

    def pattern(self, wanted: str) -> Pattern:
        """One pattern by its id or the beginning of it."""
        found = [one for one in self.patterns() if wanted and one.id.startswith(wanted.lower())]
        if len(found) != 1:
            raise NotFound(
                f"there is no pattern {wanted!r}" if not found else f"{wanted} is not one pattern",
                todo="`ralph knowledge patterns` lists them with their ids.",
            )
        return found[0]

    def entries_of(self, pattern: Pattern) -> list[Record]:
        """The entries that tell a pattern, oldest first."""
        projects = self.ledger.history().projects
        return [
            self.ledger.entry(projects[entry], entry)
            for entry in pattern.entries
            if entry in projects  # or it was forgotten since
        ]

    # -- for checkpoints

    def staged_records(self, project: str, *, imported: bool = False) -> list[Record]:
        """What waits for a checkpoint, in the order it was captured."""
        waiting = self._account(project).staged.values()
        return [one for one in waiting if imported or one.source.file is None]

    def write(self, project: str, draft: Draft) -> None:
        """Append one line to a project's journal."""
        self._append(self._account(project), [draft])

    def catch_up(self) -> list[str]:
        """Bring the index up; what stands in the way, if anything."""
        synced = self.sync()
        return [f"indexed by words alone: {synced.embedder_off}"] if synced.embedder_off else []

    def living(self) -> PublishedState:
        """What is published, has not had its time and was not forgotten."""
        history = self.ledger.history()
        before = oldest_kept(self.shelf.settings.knowledge_keep_days)
        if not is_expired(history.oldest, before):
            return history  # as always but in the hours before the daily pruning
        return history.without(lambda slot: is_expired(slot.at, before))

    # -- inside

    def _only(
        self,
        agent_type: str | None,
        task_type: str | None,
        technology: str | None,
        entry_types: Sequence[EntryType] = (),
    ) -> Only:
        return {
            "entry_type": entry_types,
            "agent_type": facet_values(agent_type),
            "task_type": facet_values(task_type),
            "technology": facet_values(technology),
        }

    def _query(
        self, text: str, only: Only, *, limit: int, floor: float, budget_s: float | None
    ) -> Patterns:
        if not self.shelf.settings.knowledge_receive:
            return Patterns(notes=[_NOT_RECEIVING])
        question = self.shelf.question(text, limit=limit, min_score=floor)
        asked = msgspec.structs.replace(question, limit=_DEPTH, only=only)
        found = self.shelf.ask([self.stream], asked, budget_s=budget_s)
        slots, history = self.ledger.history().slots, self.living()
        best: dict[str, Hit] = {}
        for hit in found:
            if hit.id in slots and slots[hit.id].pattern in history.patterns:
                best.setdefault(slots[hit.id].pattern, hit)
        fitting: list[tuple[float, Pattern]] = []
        for name, hit in best.items():
            # Found by a telling that has had its time, a pattern is told by one that has not.
            entry = hit.record if hit.id in history.slots else self._first_of(history, name)
            fitting.append((_fit(hit), _pattern(history, name, entry, hit)))
        ordered = in_order(
            fitting,
            alternative=lambda a, b: self.grouping.alternative(a.record, b.record),
            conflicting=lambda a, b: self.grouping.conflicting(a.record, b.record),
            conflicts_max=_MOST_CONFLICTS,
            limit=question.limit,
        )
        return Patterns(ordered, found.notes)

    def _first_of(self, history: PublishedState, pattern: str) -> Entry:
        first = history.patterns[pattern][0]
        entry: Entry = knowledge_from(self.ledger.entry(history.projects[first], first))
        return entry


def _most_told(one: Pattern) -> tuple[int, float, str]:
    return -one.success_count, -one.success_rate, one.id


def _fit(hit: Hit) -> float:
    return hit.parts.mixed if hit.parts else hit.score or 0.0


def _pattern(history: PublishedState, name: str, entry: Entry, hit: Hit | None = None) -> Pattern:
    entries = history.patterns[name]
    worked, failed = history.worked.get(name, 0), history.failed.get(name, 0)
    return Pattern(
        id=name,
        entry_type=entry.entry_type,
        problem=described(entry),
        solution=case_of(entry).solution,
        when_to_try=when_to_try(entry),
        success_count=len(entries),
        worked=worked,
        failed=failed,
        success_rate=round(success_rate(len(entries) + worked, failed), 4),
        quality=entry.quality,
        projects=len({history.projects[one] for one in entries}),
        entries=tuple(entries),
        published=history.slots[entries[0]].at,
        record=entry,
        score=hit.score if hit else None,
        relevance=hit.relevance if hit else None,
        why=hit.why if hit else None,
    )
