"""Cross-project knowledge: what one project learned, for whoever directs the agents of another.
Agents have no access; they only see what an orchestrator puts into their context.

Entries are captured, published by checkpoints, judged by outcomes, and forgotten. They are stored
in Ralph's home, one journal per project.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ralph.current_run import refuse_agent
from ralph.errors import BadInput, JournalError, MemoryOff, NotFound
from ralph.index import Embedder, Only
from ralph.index.embedders.static import StaticEmbedder
from ralph.index.sync import IndexSpec
from ralph.journal import Draft
from ralph.memory import checkpoints, knowledge_state, store
from ralph.memory.knowledge_state import KnowledgeState, ProjectKnowledge, PublishedState
from ralph.memory.part import Reach, SearchRequest
from ralph.memory.store import KNOWLEDGE, Answer, Store, Stream, find_id
from ralph.recall import Hit
from ralph.recall import patterns as rules
from ralph.recall.patterns import Pattern, Patterns
from ralph.recall.score import TOLD
from ralph.recall.search import Candidate, Found, Question, WordsHeld, conclude
from ralph.records import Complaint, Record, clean, now
from ralph.records import knowledge as kinds
from ralph.records.iteration import EMBEDDING_CHARS
from ralph.records.knowledge import Entry, Outcome, facets, knowledge_from
from ralph.text.redact import redact
from ralph.text.signature import names_in

TASK_MIN_SCORE = TOLD
FAILURE_MIN_SCORE = 0.75
_TASK_LIMIT = 5
_FAILURE_LIMIT = 3
_PATTERNS_IN_CONTEXT = 3
_MOST_CONFLICTS = 3
# The name used in the source documents.
COLLECTION = "project_knowledge"
PATTERN = "pattern"
# How many entries a query looks at before it groups them into patterns.
_DEPTH = 60
_NOTE_CHARS = 500
_TASK_CHARS = 100
_NAME = re.compile(r"[\w.@/:+$-]{2,}")
_MESSAGE_CHARS = 300
_NOT_RECEIVING = "this project does not use shared knowledge (knowledge_receive is false)"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told for a task: the basic context, then the block of patterns.

    `patterns` are the ids of the patterns in the block, for `report_outcome`; the block does not
    show them.
    """

    text: str
    block: str
    patterns: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


class SavedEntry(msgspec.Struct, frozen=True):
    """An entry as it is stored, whether it was new, and whether it waits for a checkpoint.

    `imported` is the file that it came from, if somebody else may have written it.
    """

    id: str
    record: Entry
    fresh: bool
    staged: bool = True
    imported: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name."""
        plain = {"id": self.id, "fresh": self.fresh, "staged": self.staged}
        if self.imported is not None:
            plain["imported"] = self.imported
        return {**plain, "record": self.record.to_json()}


class KnowledgeStore(Store):
    """The journals of all projects, read as one stream."""

    def names(self) -> set[str]:
        """Return the one stream, if it has anything."""
        return {KNOWLEDGE} if self.journals.names() else set()

    def collection_name(self, stream: str) -> str:
        """Return the one collection."""
        return COLLECTION


class Knowledge(Stream):
    """What all projects learned, as one stream of the index, for an orchestrator to query."""

    cut_version = f"knowledge-1-{EMBEDDING_CHARS}"
    state: KnowledgeState
    grouping: checkpoints.Grouping

    def __init__(self, *, project_id: str, **opened: Any) -> None:
        shared = KnowledgeStore.in_home(KNOWLEDGE, COLLECTION, **opened)
        self.state = KnowledgeState(shared.journals)
        super().__init__(KNOWLEDGE, shared, self.state)
        self._own = project_id
        static = shared.embedder if isinstance(shared.embedder, StaticEmbedder) else None
        static = static or StaticEmbedder(stamp_folder=shared.home / "cache")
        self.grouping = checkpoints.Grouping(static)

    # -- capturing

    def capture_failure_solution(self, **fields: Any) -> SavedEntry:
        """Stage a failure with the solution that was seen to work.

        The fields are those of a FailureSolution; `solution_steps` may be a list of texts.
        """
        return self.capture({**fields, "entry_type": kinds.FAILURE_SOLUTION})

    def capture_gate_rejection(self, **fields: Any) -> SavedEntry:
        """Stage a rejection with its feedback and the revision that was approved."""
        return self.capture({**fields, "entry_type": kinds.GATE_REJECTION})

    def capture_gate_approval(self, **fields: Any) -> SavedEntry:
        """Stage what was approved at the first attempt."""
        return self.capture({**fields, "entry_type": kinds.GATE_APPROVAL})

    def capture(self, plain: Mapping[str, Any]) -> SavedEntry:
        """Stage an entry given in its published form, with its `entry_type`."""
        return self.capture_all([self.entry(plain)])[0]

    def entry(self, plain: Mapping[str, Any]) -> Entry:
        """Read an entry from its published form; its default project is this one."""
        return knowledge_state.read_entry({**plain, "project": plain.get("project") or self._own})

    def capture_all(self, entries: Sequence[Entry]) -> list[SavedEntry]:
        """Stage many, with one flush per project; nothing is written unless all are valid."""
        refuse_agent("capture knowledge for other projects")
        ready = [knowledge_state.prepared_entry(one) for one in entries]
        for one in ready:
            self.check_giving(one.project)
        accounts = {one.project: self.account(one.project) for one in ready}
        # This refuses forgotten entries before anything is written.
        named = [(accounts[one.project].new_id(one, checkpoints.EXPIRED), one) for one in ready]
        fresh: set[str] = set()
        for project, account in accounts.items():
            mine = {name: one for name, one in named if one.project == project}
            wanted = {name: one for name, one in mine.items() if name not in account.entries}
            appended = account.journal.append(_drafts(account, wanted))
            fresh |= {one.record.id for one in appended if one.fresh}
            account.follow()
        saved: list[SavedEntry] = []
        for name, one in named:
            saved.append(SavedEntry(name, one, name in fresh, name in accounts[one.project].staged))
            fresh.discard(name)  # given twice in one call, it is new once
        return saved

    def gives(self, project: str) -> bool:
        """Return whether a project shares its knowledge; only this one has a setting for it."""
        return project != self._own or self.store.settings.knowledge_give

    def check_giving(self, project: str) -> None:
        """Raise if a project does not share its knowledge."""
        if not self.gives(project):
            raise BadInput(checkpoints.NOT_GIVING, todo="Run: ralph config knowledge_give true")

    # -- publishing

    def checkpoint(
        self, project: str | None = None, kind: str = "manual", *, imported: bool = False
    ) -> checkpoints.CheckpointResult:
        """Publish everything staged for a project in batches, each whole or not at all.

        Imported entries, which anybody may have written, stay staged unless a person asks for them
        with `imported`. Safe to repeat. Raises MemoryOff if the embedder or the index is off; what
        was not published stays staged.
        """
        refuse_agent("publish knowledge")
        done = checkpoints.checkpoint(self, project or self._own, kind, imported=imported)
        try:
            checkpoints.prune_if_due(self)
        except (JournalError, MemoryOff) as error:
            # The entries are published; pruning is tried again next time.
            return msgspec.structs.replace(done, notes=(*done.notes, f"not pruned: {error}"))
        return done

    def prune(
        self, *, dry_run: bool = False, at: datetime | None = None
    ) -> checkpoints.PrunedKnowledge:
        """Forget entries of all projects published longer ago than `knowledge_keep_days`."""
        return checkpoints.prune(self, dry_run=dry_run, at=at)

    def prune_if_due(self) -> None:
        """Forget what is too old, at most once a day."""
        checkpoints.prune_if_due(self)

    def has_staged(self) -> bool:
        """Whether something waits for a checkpoint in this project."""
        return bool(self.staged())

    def write(self, project: str, draft: Draft) -> None:
        """Append one line to a project's journal."""
        self.account(project).journal.append([draft])

    # -- asking

    def query_for_task(
        self,
        task_description: str,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        **bounds: Any,
    ) -> Patterns:
        """Return the patterns that may help with a task, best first, before an agent gets it.

        `max_results` and `min_score` limit the answer, `budget_s` limits catching up before it.
        """
        only = facets(agent_type, task_type, technology)
        return self._query(task_description, only, _TASK_LIMIT, TASK_MIN_SCORE, **bounds)

    def query_for_failure(
        self,
        failure_description: str,
        error_message: str = "",
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        **bounds: Any,
    ) -> Patterns:
        """Return how failures like this one were solved, best first; limits are as for a task."""
        asked = "\n".join(part for part in (failure_description, error_message) if part)
        only = facets(agent_type, task_type, technology, kinds.FAILURE_SOLUTION)
        return self._query(asked, only, _FAILURE_LIMIT, FAILURE_MIN_SCORE, **bounds)

    def context_for_task(
        self, task_description: str, *of: str | None, basic: str | None = None, **more: Any
    ) -> Context:
        """Return the context an agent gets for a task; `basic` is the part without patterns.

        The patterns come from `query_for_task`, which gets all other arguments.
        """
        found = self.query_for_task(task_description, *of, **more)
        shown: list[Pattern] = []
        block = ""
        if found:
            shown = rules.without_repeated_solutions(found, same=self._same_solution)
            shown = shown[:_PATTERNS_IN_CONTEXT]
            block = rules.context_block(shown)
        before = f"Task: {task_description.strip()}" if basic is None else basic.rstrip("\n")
        return Context(
            text="\n\n".join(part for part in (before, block) if part),
            block=block,
            patterns=tuple(one.id for one in shown),
            notes=found.notes,
        )

    def _same_solution(self, a: Pattern, b: Pattern) -> bool:
        return self.grouping.same_solution(a.record, b.record)

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        min_score: float | None = None,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        budget_s: float | None = None,
    ) -> Answer:
        """Return the published entries that answer the question, best first."""
        question = self.store.question(query, limit=limit, min_score=min_score)
        only = facets(agent_type, task_type, technology)
        found = self.candidates(question, only=only, budget_s=budget_s)
        return Answer(conclude(question, [found]), found.notes)

    def candidates(
        self, question: Question, *, only: Only = None, budget_s: float | None = None
    ) -> Found:
        """Return the entries that may answer, without expired ones."""
        found = self._find(question, only, budget_s)
        before = store.days_before(self.store.settings.knowledge_keep_days)
        # An entry is captured before it is published. So if these were captured recently, none has
        # expired, and most searches need not read the journals.
        if any(store.is_before(one.record.at, before) for one in found.candidates):
            slots = self.living().slots
            found.candidates = [one for one in found.candidates if one.record.id in slots]
        return found

    def _find(self, question: Question, only: Only, budget_s: float | None) -> Found:
        if not self.store.settings.knowledge_receive:
            return Found(notes=(_NOT_RECEIVING,))
        asked = msgspec.structs.replace(question, only=only)
        return self.store.find([self], asked, budget_s=budget_s)

    def _query(
        self,
        text: str,
        only: Only,
        limit: int,
        floor: float,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        budget_s: float | None = None,
    ) -> Patterns:
        limit = limit if max_results is None else max_results
        floor = floor if min_score is None else min_score
        question = self.store.question(text, limit=limit, min_score=floor)
        found = self._find(question, only, budget_s)
        answer = Patterns()
        answer.notes = found.notes
        if not found.candidates:
            return answer
        slots, history = self.state.history().slots, self.living()

        def of_patterns(candidates: list[Candidate], _: WordsHeld) -> list[Candidate]:
            """Return the best entry of each pattern, so that repeated ones do not score lower."""
            best: dict[str, Candidate] = {}
            for one in sorted(
                candidates, key=lambda one: (-one.value, one.record.at, one.record.id)
            ):
                slot = slots.get(one.record.id)
                living = slot is not None and slot.pattern in history.patterns
                if slot and living and _names_fit(knowledge_from(one.record), text):
                    best.setdefault(slot.pattern, one)
            return list(best.values())

        found.lift = of_patterns
        # More than wanted, because contradicting ones will be put side by side.
        deeper = msgspec.structs.replace(question, limit=_DEPTH, every=True)
        best = {slots[hit.id].pattern: hit for hit in conclude(deeper, [found])}
        fitting: list[tuple[float, Pattern]] = []
        for name, hit in best.items():
            # A pattern that was found by an expired entry is shown by one that has not expired.
            entry = hit.record if hit.id in history.slots else self._first_of(history, name)
            fit = hit.parts.mixed if hit.parts else hit.score or 0.0
            fitting.append((fit, _pattern(history, name, entry, hit)))
        answer += rules.in_order(
            fitting,
            alternative=lambda a, b: self.grouping.alternative(a.record, b.record),
            conflicting=lambda a, b: self.grouping.conflicting(a.record, b.record),
            conflicts_max=_MOST_CONFLICTS,
            limit=question.limit,
        )
        return answer

    def patterns(self, begins: str = "") -> Patterns:
        """Return every pattern, the most frequent first; ties go by success rate.

        `begins`: only those whose id begins with this.
        """
        history = self.living()
        names = [name for name in history.patterns if name.startswith(begins)]
        found = [_pattern(history, name, self._first_of(history, name)) for name in names]
        found.sort(key=lambda one: (-one.success_count, -one.success_rate, one.id))
        return Patterns(found)

    def pattern(self, wanted: str) -> Pattern:
        """Return one pattern by its id or the beginning of it."""
        history = self.living()
        todo = "`ralph knowledge patterns` lists them with their ids."
        missing = NotFound(f"there is no pattern {wanted!r}", todo=todo)
        name = find_id(wanted, history.patterns, missing)
        return _pattern(history, name, self._first_of(history, name))

    def entries_of(self, pattern: Pattern) -> list[Record]:
        """Return the entries of a pattern, oldest first."""
        history = self.state.history()
        known = (entry for entry in pattern.entries if entry in history.projects)
        return [self.state.entry(history, entry) for entry in known]

    def living(self) -> PublishedState:
        """Return what is published and neither expired nor forgotten."""
        history = self.state.history()
        before = store.days_before(self.store.settings.knowledge_keep_days)
        if not store.is_before(history.oldest, before):
            return history  # the usual case, except just before the daily pruning
        return history.without(lambda slot: store.is_before(slot.at, before))

    def _first_of(self, history: PublishedState, pattern: str) -> Entry:
        entry: Entry = knowledge_from(self.state.entry(history, history.patterns[pattern][0]))
        return entry

    # -- looking up

    def account(self, project: str | None = None) -> ProjectKnowledge:
        """Return the knowledge of a project, by default this one, from its journal."""
        return self.state.account(knowledge_state.stream_of(project or self._own))

    def staged(self, project: str | None = None) -> list[SavedEntry]:
        """Return what waits for a checkpoint in a project, by default this one; `*` is all."""
        accounts = self.state.accounts() if project == "*" else [self.account(project)]
        return [
            SavedEntry(record.id, knowledge_from(record), fresh=False, imported=record.source.file)
            for account in accounts
            for record in account.staged.values()
        ]

    def staged_records(self, project: str, *, imported: bool = False) -> list[Record]:
        """Return the records that wait for a checkpoint, in the order they were captured."""
        waiting = self.account(project).staged.values()
        return [one for one in waiting if imported or one.source.file is None]

    def get(self, wanted: str) -> Record:
        """Return an entry by its id or the beginning of it."""
        found = {i: one for account in self.state.accounts() for i, one in account.entries.items()}
        return found[find_id(wanted, found, NotFound(f"there is no entry {wanted!r}"))]

    # -- as a part of all memories

    def answers(self, request: SearchRequest) -> list[Found]:
        """Return what may answer."""
        return [self.candidates(request.question, budget_s=request.budget_s)]

    def is_forgotten(self, begins: str) -> bool:
        """Return False: which of these were forgotten is not told."""
        return False

    def journals(self, *, everywhere: bool = False) -> list[str]:
        """Return the names of this project's journals; `everywhere`: of all projects."""
        own = knowledge_state.stream_of(self._own)
        return [name for name in self.store.journals.names() if everywhere or name == own]

    def stream_at(self, journal: str) -> Knowledge:
        """Return the stream of a journal: all of them are one."""
        return self

    def forgettable(self, *, everywhere: bool = False) -> Iterator[tuple[str, Iterator[Record]]]:
        """Yield the entries, outcomes and waiting rejections."""
        wanted = {*kinds.ENTRIES, kinds.GATE, kinds.OUTCOME}
        for name in self.journals(everywhere=everywhere):
            yield name, (one for one in self.store.records_in(name) if one.kind in wanted)

    def find(
        self,
        record_id: str,
        *,
        reach: Reach | None = None,
        everywhere: bool = False,
        newest: int | None = None,
    ) -> list[Hit]:
        """Return every entry, pattern and waiting rejection whose id begins with this."""
        begins = record_id.lower()
        known = [account.entries | account.gates for account in self.state.accounts()]
        records = [x for some in known for name, x in some.items() if name.startswith(begins)]
        found = [store.unasked(x, store.when(x.at), knowledge_from(x)) for x in records]
        for pattern in self.patterns(begins) if begins else ():
            at = pattern.published
            found.append(
                Hit(pattern.id, PATTERN, None, None, store.when(at), None, pattern, None, at)
            )
        return found

    def of_project(self, project: str | None = None) -> list[Record]:
        """Return every entry of a project, staged or published."""
        return list(self.account(project).entries.values())

    # -- judging

    def report_outcome(
        self,
        pattern: str | Pattern,
        worked: bool,
        *,
        project: str | None = None,
        task: str | int | None = None,
        run: str | None = None,
        note: str = "",
    ) -> str:
        """Report whether a pattern that was given to an agent helped; return the outcome's id.

        For one task only the last report counts; for one run on it, the first.
        """
        if not isinstance(worked, bool):  # it could not be read back
            raise BadInput(f"worked is true or false, not {worked!r}")
        wanted = pattern if isinstance(pattern, str) else pattern.id
        missing = NotFound(
            f"there is no pattern {wanted!r}",
            todo="A query gives the ids of its patterns; one whose entries expired is gone.",
        )
        outcome = Outcome(
            project=project or self._own,
            pattern=find_id(wanted, self.state.history().patterns, missing),
            worked=worked,
            task="" if task is None else redact(" ".join(str(task).split()))[:_TASK_CHARS],
            note=redact(note)[:_NOTE_CHARS],
        )
        told = run or uuid.uuid4().hex
        identity = kinds.outcome_id(outcome.project, outcome.pattern, outcome.task, told)
        if all(known != identity for known, _, _ in self.account(project).outcomes):
            self.write(outcome.project, checkpoints.said_draft(outcome, identity))
        return identity

    # -- keeping

    def forget(self, ids: Collection[str], *, reason: str | None = None) -> list[str]:
        """Delete entries, gates and outcomes for good, and the outcomes of patterns left empty."""
        refuse_agent("forget what is published")
        wanted = set(ids)
        gone: list[str] = []
        for account in self.state.accounts():
            outcomes = (identity for identity, _, _ in account.outcomes)
            if mine := wanted & {*account.entries, *account.gates, *outcomes}:
                gone += account.journal.forget(sorted(mine), reason=clean(reason))
        if not gone:
            return gone
        patterns = self.state.history().patterns
        for account in self.state.accounts():
            orphans = [i for i, _, outcome in account.outcomes if outcome.pattern not in patterns]
            account.journal.forget(orphans, reason=clean(reason))
        self.store.erase_soon(self.target())
        return gone

    def verify(self) -> tuple[int, list[Complaint]]:
        """Return how many records can be read, and every problem found in the journals."""

        def read(record: Record) -> object:
            return kinds.is_knowledge_kind(record.kind) and knowledge_from(record)

        found = [store.verify_records(one.journal, one.fold, read) for one in self.state.accounts()]
        return sum(count for count, _ in found), [one for _, some in found for one in some]

    # -- for the index

    def target(self, embedder: Embedder | None = None) -> IndexSpec:
        """Return what the index needs to follow published entries."""
        own = super().target()
        return own if embedder is None else msgspec.structs.replace(own, embedder=embedder)

    def records(self) -> list[Record]:
        """Return every published record that is indexed."""
        return self.state.records()


def _drafts(account: ProjectKnowledge, wanted: Mapping[str, Entry]) -> list[Draft]:
    """Return drafts of these entries; if another process wrote one first, its record stays."""

    def draft(identity: str, number: int) -> Record:
        # Under the journal's lock: one look is enough, because nobody else can write.
        known = (account.follow() if identity == first else account).entries.get(identity)
        return known or kinds.entry_record(wanted[identity], id=identity, number=number, at=moment)

    # A journal may call a draft more than once, and must get the same record.
    moment = now()
    first = next(iter(wanted), None)
    return [functools.partial(draft, identity) for identity in wanted]


def _names_fit(entry: Entry, asked: str) -> bool:
    """Return whether the question and the entry's error share a name, if both have any.

    Longer texts are reports; the names in them need not be what failed.
    """
    wanted = names_in(asked)
    if not wanted or not isinstance(entry, kinds.FailureSolution):
        return True
    problem = rules.case_of(entry).problem
    if max(len(asked), len(problem)) > _MESSAGE_CHARS:
        return True
    names = names_in(problem)
    return not names or not names.isdisjoint(wanted | set(_NAME.findall(asked.lower())))


def _pattern(history: PublishedState, name: str, entry: Entry, hit: Hit | None = None) -> Pattern:
    entries = history.patterns[name]
    worked = history.worked.get(name, 0)
    failed = history.failed.get(name, 0)
    return Pattern(
        id=name,
        entry_type=entry.entry_type,
        problem=rules.described(entry),
        solution=rules.case_of(entry).solution,
        when_to_try=rules.when_to_try(entry),
        success_count=len(entries),
        worked=worked,
        failed=failed,
        success_rate=round(rules.success_rate(len(entries) + worked, failed), 4),
        quality=entry.quality,
        projects=len({history.projects[one] for one in entries}),
        entries=tuple(entries),
        published=history.slots[entries[0]].at,
        record=entry,
        score=hit.score if hit else None,
        relevance=hit.relevance if hit else None,
        why=hit.why if hit else None,
    )
