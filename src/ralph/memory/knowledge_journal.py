"""Knowledge as it is written: captured, published by checkpoints, judged by outcomes, forgotten."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ralph.config import Settings
from ralph.errors import BadInput, BadRecord, NotFound
from ralph.index import Embedder, Passage
from ralph.index.sync import IndexSpec, Progress, Synced
from ralph.journal import Appended, Draft
from ralph.memory.conversation_stream import when
from ralph.memory.ledger import (
    KnowledgeState,
    ProjectKnowledge,
    Published,
    facet_values,
    in_lines,
    prepared_entry,
    read_entry,
)
from ralph.memory.store import KNOWLEDGE, Store, home_journals, index_for, short_hash
from ralph.recall import Hit, ScoredRecord
from ralph.recall.patterns import Pattern, case_of
from ralph.records import Complaint, Record, clean, now
from ralph.records.iteration import EMBEDDING_CHARS
from ralph.records.knowledge import (
    ENTRIES,
    Entry,
    FailureSolution,
    GateApproval,
    GateRejection,
    Outcome,
    Said,
    entry_id,
    entry_record,
    is_known,
    knowledge_from,
    outcome_id,
    said_record,
)
from ralph.text.redact import redact

# -- Published knowledge as one stream: how it is cut for the index, and what a hit tells.


NAME = "knowledge"
# The name the source documents gave it.
COLLECTION = "project_knowledge"
_CUT_VERSION = "knowledge-1"
_HEADING_CHARS = 300
_SOLUTION_CHARS = 1000


class KnowledgeShelf(Store):
    """The shelf of knowledge: the journals of all projects, read as one stream."""

    def names(self) -> set[str]:
        """The one stream, if there is anything."""
        return {NAME} if self.journals.names() else set()


class KnowledgeStream:
    """What every project has published."""

    name = NAME
    foreign = False

    def __init__(self, shelf: Store, ledger: KnowledgeState) -> None:
        self._shelf = shelf
        self._ledger = ledger
        self._published = Published(ledger)

    def target(self, embedder: Embedder | None = None) -> IndexSpec:
        """What the index needs to know to follow what is published."""
        max_chars = EMBEDDING_CHARS

        def cut(record: Record) -> Sequence[Passage]:
            return passages(record, max_chars)

        return IndexSpec(
            name=COLLECTION,
            stream=NAME,
            journal=self._published,
            cut=cut,
            cut_version=f"{_CUT_VERSION}-{max_chars}",
            embedder=embedder or self._shelf.embedder,
        )

    def records(self) -> list[Record]:
        """Every published record that is to be found."""
        history = self._ledger.history()
        return [
            record
            for account in self._ledger.accounts()
            for record in account.entries.values()
            if (slot := history.slots.get(record.id)) and history.tells(slot)
        ]

    def hits(self, found: Sequence[ScoredRecord], last_number: int) -> list[Hit]:
        """What recall found, as an answer: entries."""
        return [one.hit(when(one.record.at), knowledge_from(one.record)) for one in found]


def passages(record: Record, max_chars: int) -> Sequence[Passage]:
    """An entry is found by its problem, and by its solution under the problem's first line.

    Of a solution its beginning counts: a whole patch has words of everything.
    """
    if record.kind not in ENTRIES:
        return ()
    try:
        entry: Entry = knowledge_from(record)
    except BadRecord:
        return ()
    both = case_of(entry)
    problem = f"{entry.subject}\n{both.problem}".strip()[:max_chars]
    first, _, rest = problem.partition("\n")
    solution = f"{first[:_HEADING_CHARS]}\n{both.solution[:_SOLUTION_CHARS]}"
    of = facets(entry)
    return [
        Passage(title=first, text=rest, embed=problem, facets=of),
        Passage(title="", text=solution, embed=solution, facets=of),
    ]


def facets(entry: Entry) -> dict[str, tuple[str, ...]]:
    """What an entry is of."""
    return {
        "entry_type": (entry.entry_type,),
        "agent_type": facet_values(entry.agent_type),
        "task_type": facet_values(entry.task_type),
        "technology": facet_values(entry.technology),
    }


# Why an entry went that had its time; only that may be learned anew.
EXPIRED = "older than knowledge_keep_days"
NOT_GIVING = "this project gives no knowledge: knowledge_give is false"
_LONGEST_NAME = 80
_NOTE_CHARS = 500
_TASK_CHARS = 100


class SavedEntry(msgspec.Struct, frozen=True):
    """An entry as memory has it now, whether it was new, and whether it waits for a checkpoint.

    `imported` is the file that it came from, where somebody else may have written it.
    """

    id: str
    record: Entry
    fresh: bool
    staged: bool = True
    imported: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Every field under its published name."""
        plain = {"id": self.id, "fresh": self.fresh, "staged": self.staged}
        if self.imported is not None:
            plain["imported"] = self.imported
        return {**plain, "record": self.record.to_json()}


class KnowledgeJournal:
    """What projects learned: kept in Ralph's home, one journal a project."""

    def __init__(
        self,
        *,
        home: Path,
        settings: Settings,
        embedder: Embedder | None,
        project_id: str,
        progress: Progress | None = None,
    ) -> None:
        journals = home_journals(KNOWLEDGE, settings, home)
        folder = home / "cache" / "knowledge"
        index = index_for(settings, [folder], home=home, scope=lambda: COLLECTION)
        self.shelf = KnowledgeShelf(journals, index, embedder, settings, progress=progress)
        self.ledger = KnowledgeState(journals)
        self.stream = KnowledgeStream(self.shelf, self.ledger)
        self.home = home
        self._own = project_id

    # -- capturing

    def capture_failure_solution(
        self,
        *,
        failure_description: str,
        solution_steps: str | Sequence[str],
        error_message: str = "",
        project: str | None = None,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        subject: str = "",
        success_verified: bool = True,
    ) -> SavedEntry:
        """Stage a failure with the solution that was seen to work."""
        entry = FailureSolution(
            project=project or self._own,
            agent_type=agent_type or "",
            task_type=task_type or "",
            technology=technology or "",
            subject=subject,
            failure_description=failure_description,
            error_message=error_message,
            solution_steps=in_lines(solution_steps),
            success_verified=success_verified,
        )
        return self.capture_all([entry])[0]

    def capture_gate_rejection(
        self,
        *,
        gate_type: str,
        human_feedback: str,
        revision_approach: str,
        project: str | None = None,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        subject: str = "",
    ) -> SavedEntry:
        """Stage a rejection with its feedback and the revision that was approved."""
        entry = GateRejection(
            project=project or self._own,
            agent_type=agent_type or "",
            task_type=task_type or "",
            technology=technology or "",
            subject=subject,
            gate_type=gate_type,
            human_feedback=human_feedback,
            revision_approach=revision_approach,
        )
        return self.capture_all([entry])[0]

    def capture_gate_approval(
        self,
        *,
        gate_type: str,
        approved_approach: str,
        project: str | None = None,
        agent_type: str | None = None,
        task_type: str | None = None,
        technology: str | None = None,
        subject: str = "",
    ) -> SavedEntry:
        """Stage what was approved at the first attempt."""
        entry = GateApproval(
            project=project or self._own,
            agent_type=agent_type or "",
            task_type=task_type or "",
            technology=technology or "",
            subject=subject,
            gate_type=gate_type,
            approved_approach=approved_approach,
        )
        return self.capture_all([entry])[0]

    def capture(self, plain: Mapping[str, Any]) -> SavedEntry:
        """Stage an entry given in its published form, with its `entry_type`."""
        return self.capture_all([self.entry(plain)])[0]

    def entry(self, plain: Mapping[str, Any]) -> Entry:
        """An entry from its published form; without a project it is of this one."""
        return read_entry({**plain, "project": plain.get("project") or self._own})

    def capture_all(self, entries: Sequence[Entry]) -> list[SavedEntry]:
        """Stage many, each project's with one flush; nothing is written unless all of them fit."""
        ready = [prepared_entry(one, self.shelf.settings) for one in entries]
        if any(self.keeps_to_itself(one.project) for one in ready):
            raise BadInput(NOT_GIVING, todo="Run: ralph config knowledge_give true")
        # What was forgotten is refused before anything is written.
        accounts = {one.project: self._account(one.project) for one in ready}
        named = [(self._identity(accounts[one.project], one), one) for one in ready]
        kept: dict[int, SavedEntry] = {}
        for project, account in accounts.items():
            places = [place for place, one in enumerate(ready) if one.project == project]
            told = self._capture_of(account, [named[place] for place in places])
            kept.update(zip(places, told, strict=True))
        return [kept[place] for place in range(len(ready))]

    def keeps_to_itself(self, project: str) -> bool:
        """Whether this is our own project, and it gives no knowledge."""
        return project == self._own and not self.shelf.settings.knowledge_give

    def _capture_of(
        self, account: ProjectKnowledge, named: Sequence[tuple[str, Entry]]
    ) -> list[SavedEntry]:
        wanted = {name: one for name, one in named if name not in account.entries}
        appended = self._append(account, _drafts(account, wanted))
        fresh = {one.record.id for one in appended if one.fresh}
        staged = account.follow().staged
        captured: list[SavedEntry] = []
        for identity, one in named:
            captured.append(SavedEntry(identity, one, identity in fresh, identity in staged))
            fresh.discard(identity)  # told twice at once it is new once
        return captured

    def _identity(self, account: ProjectKnowledge, entry: Entry) -> str:
        """The entry's id; what was kept and expired before begins anew."""
        again = 0
        while account.has_forgotten(identity := entry_id(entry, again=again)):
            if account.reasons().get(identity) != EXPIRED:
                raise BadInput(f"entry {identity} was forgotten, and stays so")
            again += 1
        return identity

    def _append(
        self, account: ProjectKnowledge, drafts: Sequence[Record | Draft]
    ) -> list[Appended]:
        return account.journal.append(drafts)

    # -- looking up

    def staged(self, project: str | None = None) -> list[SavedEntry]:
        """What waits for a checkpoint: of one project, or of this one; `*` is all."""
        accounts = self.ledger.accounts() if project == "*" else [self._account(project)]
        return [
            SavedEntry(record.id, knowledge_from(record), fresh=False, imported=record.source.file)
            for account in accounts
            for record in account.staged.values()
        ]

    def get(self, wanted: str) -> Record:
        """An entry by its id or the beginning of it."""
        found = {
            record.id: record
            for account in self.ledger.accounts()
            for record in account.entries.values()
            if record.id.startswith(wanted.lower())
        }
        if not found:
            raise NotFound(f"there is no entry {wanted!r}")
        if len(found) > 1:
            raise BadInput(f"{wanted} is the beginning of {len(found)} ids; give more of it")
        return next(iter(found.values()))

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
        """Say whether a pattern that was given to an agent helped, and get the outcome's id.

        Of one task only the last word counts; of one run on it the first.
        """
        if not isinstance(worked, bool):  # what cannot be read back is not written
            raise BadInput(f"worked is true or false, not {worked!r}")
        wanted = (pattern if isinstance(pattern, str) else pattern.id).lower()
        known = self.ledger.history().patterns
        full = [one for one in known if one.startswith(wanted)] if wanted else []
        if not full:
            raise NotFound(
                f"there is no pattern {wanted!r}",
                todo="A query gives the ids of its patterns; one whose entries expired is gone.",
            )
        if len(full) > 1:
            raise BadInput(f"{wanted} is the beginning of {len(full)} ids; give more of it")
        account = self._account(project)
        on = "" if task is None else redact(" ".join(str(task).split()))[:_TASK_CHARS]
        outcome = Outcome(
            project=project or self._own,
            pattern=full[0],
            worked=worked,
            task=on,
            note=redact(note)[:_NOTE_CHARS],
        )
        identity = outcome_id(outcome.project, full[0], on, run or uuid.uuid4().hex)
        if all(told.id != identity for told in account.outcomes):
            self._append(account, [said_draft(outcome, identity)])
        return identity

    # -- keeping

    def forget(self, ids: Collection[str], *, reason: str | None = None) -> list[str]:
        """Take entries, gates and outcomes out for good, and outcomes of patterns that went so."""
        wanted = set(ids)
        gone: list[str] = []
        for account in self.ledger.accounts():
            said = (one.id for one in account.outcomes)
            mine = wanted & {*account.entries, *account.gates, *said}
            if mine:
                gone += account.journal.forget(sorted(mine), reason=clean(reason))
        if gone:
            self._forget_orphans(reason)
            self.shelf.erase_soon(self.stream.target())
        return gone

    def _forget_orphans(self, reason: str | None) -> None:
        patterns = self.ledger.history().patterns
        for account in self.ledger.accounts():
            orphans = [one.id for one in account.outcomes if one.outcome.pattern not in patterns]
            if orphans:
                account.journal.forget(orphans, reason=clean(reason))

    def of_project(self, project: str | None = None) -> list[Record]:
        """Every entry that a project gave, staged or published."""
        return list(self._account(project).entries.values())

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong in the journals."""
        total, complaints = 0, list[Complaint]()
        for account in self.ledger.accounts():
            count, found = account.journal.verify()
            unreadable = list(_unreadable(account))
            complaints += [*found, *unreadable]
            total += count - len(unreadable)
        return total, complaints

    def sync(self, *, budget_s: float | None = None, afresh: bool = False) -> Synced:
        """Bring the index up to what is published, or build it anew."""
        return self.shelf.index.sync(
            self.stream.target(), budget_s=budget_s, afresh=afresh, progress=self.shelf.progress
        )

    def close(self) -> None:
        """Let go of files; nothing is lost without it."""
        self.shelf.index.close()
        self.shelf.journals.close()

    def _account(self, project: str | None = None) -> ProjectKnowledge:
        return self.ledger.account(stream_of(project or self._own))


def stream_of(project: str) -> str:
    """The name of a project's journal."""
    project = project.strip()
    if len(project) <= _LONGEST_NAME:
        return project
    return f"{project[: _LONGEST_NAME - 9]}-{short_hash(project)}"


def _drafts(account: ProjectKnowledge, wanted: Mapping[str, Entry]) -> list[Draft]:
    """The entries to be written; one that another process wrote first stands as that wrote it."""

    def draft(identity: str, number: int) -> Record:
        # Under the journal's lock: after one look nobody adds anything.
        known = (account.follow() if identity == first else account).entries.get(identity)
        return known or entry_record(wanted[identity], id=identity, number=number, at=moment)

    # A journal may ask a draft more than once, and must be told the same.
    moment = now()
    first = next(iter(wanted), None)
    return [functools.partial(draft, identity) for identity in wanted]


def said_draft(said: Said, identity: str) -> Draft:
    """What is said now, whatever number it gets; asked twice it is the same."""
    moment = now()
    return lambda number: said_record(said, id=identity, number=number, at=moment)


def _unreadable(account: ProjectKnowledge) -> Iterable[Complaint]:
    for located in account.standing():
        if is_known(located.record.kind):
            try:
                knowledge_from(located.record)
            except BadInput as error:
                yield Complaint(located.file, located.line, error.what)
