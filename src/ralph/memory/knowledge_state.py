"""The state of knowledge: entries, patterns, outcomes and gates of all projects.

It is computed from the journals alone, reading only what is new. The last part prepares an entry
before it is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ralph.errors import BadInput, BadRecord
from ralph.journal import Batch, Fold, Journal, Journals, read_position, write_position
from ralph.memory.store import short_hash
from ralph.records import JournalRecord, Record, clean_text, utc
from ralph.records import knowledge as kinds
from ralph.records.iteration import cut
from ralph.records.knowledge import ENTRIES, Entry, Outcome, facet_values, knowledge_from
from ralph.text.redact import redact
from ralph.text.sanitize import strip_marked, visible
from ralph.text.signature import is_solution
from ralph.text.tokens import shorten

# How many entries of a pattern are indexed.
_TELLINGS = 2
_LONGEST_NAME = 80


def stream_of(project: str) -> str:
    """Return the name of a project's journal."""
    project = project.strip()
    if len(project) <= _LONGEST_NAME:
        return project
    return f"{project[: _LONGEST_NAME - 9]}-{short_hash(project)}"


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A place in the order of publication: the entry, its pattern, and when it was published.

    It stays when the entry is forgotten, so that other places never move.
    """

    entry: str
    pattern: str
    at: str


class ProjectKnowledge:
    """The knowledge of one project, from its journal."""

    def __init__(self, name: str, journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self.fold = Fold(journal)
        # Generation of the fold, and how many of its records were processed.
        self.version = (-1, 0)

    def follow(self) -> ProjectKnowledge:
        """Process new records; return self."""
        generation, seen = self.version
        fresh = self.fold.after(seen)
        if self.fold.generation != generation:
            generation = self.fold.generation
            seen = 0
            fresh = self.fold.after(0)
            self.entries: dict[str, Record] = {}
            self.slots: list[Slot] = []
            self.staged: dict[str, Record] = {}
            # Each with its id and time.
            self.outcomes: list[tuple[str, str, Outcome]] = []
            # Rejections that wait for the approval of their revision.
            self.gates: dict[str, Record] = {}
            self._covered: set[str] = set()
        for located in fresh:
            self._take(located.record)
        self.version = generation, seen + len(fresh)
        return self

    def new_id(self, entry: Entry, may_return: str) -> str:
        """Return the entry's id; if it was forgotten for this reason before, a new one."""
        again = 0
        reasons = self.fold.reasons()
        while (identity := kinds.entry_id(entry, again=again)) in reasons:
            if reasons[identity] != may_return:
                raise BadInput(f"entry {identity} was forgotten and cannot be added again")
            again += 1
        return identity

    def _take(self, record: Record) -> None:
        if not kinds.is_knowledge_kind(record.kind):
            return
        try:
            said = knowledge_from(record)
        except BadRecord:
            return  # `verify` reports it
        if record.kind in ENTRIES:
            if record.id not in self.entries:
                self.entries[record.id] = record
                if record.id not in self._covered:
                    self.staged[record.id] = record
        elif record.kind == kinds.CHECKPOINT:
            for one in said.covers:
                if one.entry not in self._covered:
                    self._covered.add(one.entry)
                    self.slots.append(Slot(one.entry, one.pattern, record.at))
                    self.staged.pop(one.entry, None)
        elif record.kind == kinds.OUTCOME:
            self.outcomes.append((record.id, record.at, said))
        else:
            self.gates[record.id] = record


class PublishedState(msgspec.Struct, frozen=True):
    """Everything published: each entry's slot, and each pattern's entries and outcomes."""

    slots: dict[str, Slot]
    projects: dict[str, str]
    patterns: dict[str, list[str]]
    worked: dict[str, int]
    failed: dict[str, int]
    oldest: str = ""

    def tells(self, slot: Slot) -> bool:
        """Return whether the entry is one of the first of its pattern.

        Only those are indexed: if all entries of a lesson that fifty projects learned were, its
        words would become common, and it would score lower the more often it helped.
        """
        return slot.entry in self.patterns.get(slot.pattern, ())[:_TELLINGS]

    def without(self, leave_out: Callable[[Slot], bool]) -> PublishedState:
        """Return the same state without some of the entries."""
        kept = {entry: slot for entry, slot in self.slots.items() if not leave_out(slot)}
        some = {name: [e for e in entries if e in kept] for name, entries in self.patterns.items()}
        patterns = {name: entries for name, entries in some.items() if entries}
        return msgspec.structs.replace(self, slots=kept, patterns=patterns)


class _AllPositions(msgspec.Struct, frozen=True):
    """For each project, how far its journal was read and how many of its slots were returned."""

    places: dict[str, tuple[str, int]]
    done: bool


class KnowledgeState:
    """The knowledge of all projects together.

    The index follows it as one sequence: the published entries that are indexed, project by
    project, each once, in the order of publication.
    """

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._accounts: dict[str, ProjectKnowledge] = {}
        self._version: tuple[object, ...] = ()
        self._history = PublishedState({}, {}, {}, {}, {})

    def account(self, name: str) -> ProjectKnowledge:
        """Return the knowledge of one project, up to date."""
        return self._opened(name).follow()

    def _opened(self, name: str) -> ProjectKnowledge:
        if name not in self._accounts:
            self._accounts[name] = ProjectKnowledge(name, self._journals.journal(name))
        return self._accounts[name]

    def accounts(self) -> list[ProjectKnowledge]:
        """Return the knowledge of every project, sorted by name, up to date."""
        return [self.account(name) for name in sorted(self._journals.names())]

    def entry(self, history: PublishedState, entry: str) -> Record:
        """Return an entry named by the history, without reading its journal again."""
        return self._opened(history.projects[entry]).entries[entry]

    def history(self) -> PublishedState:
        """Return what is published and not forgotten, as of now."""
        accounts = self.accounts()
        version = tuple((one.name, *one.version) for one in accounts)
        if version != self._version:
            self._history = _history(accounts)
            self._version = version
        return self._history

    def records(self) -> list[Record]:
        """Return every published record that is indexed."""
        history = self.history()
        records = (one for account in self.accounts() for one in account.entries.values())
        return [x for x in records if (slot := history.slots.get(x.id)) and history.tells(slot)]

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """Return what was published after the position, at most `limit` entries."""
        accounts = self.accounts()
        at = read_position(position, _AllPositions)
        places = {} if at is None else at.places
        # If a journal is gone, or no longer begins with what was read, all is read again.
        restarted = position is not None and (
            at is None or not places.keys() <= {one.name for one in accounts}
        )
        for account in accounts:
            if not restarted and account.name in places:
                news = account.journal.read(places[account.name][0])
                # A forgotten entry may have kept another entry of its pattern out of the index.
                restarted = news.restarted or bool(news.tombstones)
        stones = []
        if restarted:
            places = {}
            stones = [stone for one in accounts for stone in one.journal.read().tombstones]
        history = self.history()
        records: list[JournalRecord] = []
        reached: dict[str, tuple[str, int]] = {}
        done = True
        for account in accounts:
            _, start = places.get(account.name, ("", 0))
            end = len(account.slots)
            if limit is not None:
                end = min(end, start + limit - len(records))
            for slot in account.slots[start:end]:
                record = account.entries.get(slot.entry)
                if record is not None and history.tells(slot):
                    records.append(JournalRecord(record, account.name, 0))
            done = done and end == len(account.slots)
            reached[account.name] = (account.fold.position or "", end)
        end_position = write_position(_AllPositions(reached, done))
        return Batch(tuple(records), tuple(stones), (), end_position, restarted, done)

    def unchanged(self, position: str | None) -> bool:
        """Return True only if nothing was published since the position. Reads no journal."""
        at = read_position(position, _AllPositions)
        if at is None or not at.done:
            return False
        names = self._journals.names()
        return set(names) == at.places.keys() and all(
            self._opened(name).journal.unchanged(at.places[name][0]) for name in names
        )


def _history(accounts: Iterable[ProjectKnowledge]) -> PublishedState:
    slots: dict[str, Slot] = {}
    projects: dict[str, str] = {}
    patterns: dict[str, list[str]] = defaultdict(list)
    # Of several outcomes for the same task, only the last counts.
    last: dict[tuple[str, ...], tuple[str, Outcome]] = {}
    for account in accounts:
        for slot in account.slots:
            if slot.entry in account.entries and slot.entry not in slots:
                slots[slot.entry] = slot
                projects[slot.entry] = account.name
        for identity, at, one in account.outcomes:
            task = ("task", one.task) if one.task else ("once", identity)
            key = (account.name, one.pattern, *task)
            if key not in last or _moment(at) >= _moment(last[key][0]):
                last[key] = at, one
    by_age = sorted(slots.values(), key=lambda one: (_moment(one.at), one.entry))
    for slot in by_age:
        patterns[slot.pattern].append(slot.entry)
    worked: dict[str, int] = defaultdict(int)
    failed: dict[str, int] = defaultdict(int)
    for _, outcome in last.values():
        (worked if outcome.worked else failed)[outcome.pattern] += 1
    oldest = next((one.at for one in by_age if _is_time(one.at)), "")
    return PublishedState(slots, projects, dict(patterns), dict(worked), dict(failed), oldest)


def _moment(at: str) -> str:
    """Return the time without its Z, so that a whole second sorts before its fractions."""
    return at.removesuffix("Z")


def _is_time(at: str) -> bool:
    try:
        utc(at)
    except BadRecord:
        return False
    return True


# -- Preparing an entry for saving: check it, remove secrets, apply limits.


_TEXT_CHARS = 4000
_SHORT_FIELD_CHARS = 100
_SUBJECT_CHARS = 300
# Fields that must not be empty in entries that have them, and what to say there.
_NEEDED = {
    "failure_description": "Say what failed.",
    "solution_steps": "Knowledge is what was seen to work: say what solved it, or wait until"
    " something did.",
    "gate_type": "Say which gate, for example: design.",
    "human_feedback": "Say why it was rejected.",
    "revision_approach": "A rejection is complete when its revision was approved: say what"
    " that was.",
    "approved_approach": "Say what was approved.",
}


def read_entry(plain: Mapping[str, Any]) -> Entry:
    """Read an entry from its published form; an error names the field that is wrong."""
    given = {name: value for name, value in plain.items() if value is not None}
    kind = given.pop("entry_type", None)
    if not isinstance(kind, str) or kind not in ENTRIES:
        what = "no entry_type" if kind is None else f"there is no entry_type {kind!r}"
        raise BadRecord(what, todo=f"It is one of {', '.join(ENTRIES)}.")
    fields = ENTRIES[kind].__struct_fields__
    if unknown := sorted(plain.keys() - {"entry_type", *fields}):
        todo = f"Its fields are {', '.join(fields)}."
        raise BadRecord(f"a {kind} has no field {unknown[0]!r}", todo=todo)
    steps = given.get("solution_steps")
    if isinstance(steps, list | tuple):
        if not all(isinstance(step, str) for step in steps):
            raise BadRecord("solution_steps must be a text, or a list of texts")
        given["solution_steps"] = "\n".join(step.strip() for step in steps)
    # A missing field counts as empty, so that one place says what is needed.
    texts = {name: "" for name in fields if name != "success_verified"}
    return _converted({**texts, **given}, kind)


def _converted(fields: dict[str, Any], kind: str) -> Entry:
    """Convert to an entry; refuse values from Python callers that could not be read back."""
    try:
        return msgspec.convert(fields, ENTRIES[kind])
    except msgspec.ValidationError as error:
        raise BadRecord(f"not a {kind}: {error}") from None


def prepared_entry(entry: Entry) -> Entry:
    """Return the entry, ready to be saved; an error says what is missing."""
    _converted(msgspec.structs.asdict(entry), entry.entry_type)
    project = entry.project.strip()
    if not project:
        raise BadRecord("an entry needs the project it comes from")
    if redact(project) != project:
        todo = "Name the project by what it is."
        raise BadRecord("the project's name looks like a secret", todo=todo)
    if isinstance(entry, kinds.FailureSolution) and not entry.success_verified:
        what = "a failure whose solution is not verified is not knowledge yet"
        raise BadRecord(what, todo="Capture it when the solution was seen to work.")
    # Remove invisible characters first: they can hide a secret or a marker from the checks.
    texts = {
        name: cut(clean_text(strip_marked(visible(value)).strip()), _TEXT_CHARS)
        for name in entry.__struct_fields__
        if isinstance(value := getattr(entry, name), str)
    }
    for name in texts.keys() & {"agent_type", "task_type", "technology", "gate_type"}:
        # As they are compared: lower case, single spaces; several values stay separate.
        texts[name] = cut(clean_text(", ".join(facet_values(texts[name]))), _SHORT_FIELD_CHARS)
    texts["subject"] = cut(clean_text(" ".join(texts["subject"].split())), _SUBJECT_CHARS)
    texts["project"] = project
    for name, todo in _NEEDED.items():
        if not texts.get(name, "-"):
            raise BadRecord(f"a {entry.entry_type} needs {name}", todo=todo)
    steps = texts.get("solution_steps", "")
    if isinstance(entry, kinds.FailureSolution) and not is_solution(steps):
        todo = "Say what was changed, or which command or option helped."
        raise BadRecord(f"{shorten(steps, 60)!r} does not say what solved it", todo=todo)
    return msgspec.structs.replace(entry, **texts)
