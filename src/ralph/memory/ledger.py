"""The state of all knowledge, folded from its journals: entries, patterns, outcomes, gates.

Derived from the journals alone and kept up to date by reading only what is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ralph.config import Settings
from ralph.errors import BadRecord
from ralph.journal import Batch, Fold, Journal, Journals
from ralph.records import Located, Record, Tombstone, clean_text, utc
from ralph.records.iteration import cut
from ralph.records.knowledge import (
    CHECKPOINT,
    ENTRIES,
    OUTCOME,
    Entry,
    FailureSolution,
    Gate,
    GateApproval,
    GateRejection,
    Outcome,
    is_known,
    knowledge_from,
)
from ralph.text.redact import redact
from ralph.text.sanitize import strip_marked, visible

_TEXT_CHARS = 4000

# How many entries of a pattern are found by their own words.
_TELLINGS = 2


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A place in the order of publication: which entry, in which pattern, since when.

    It stays when the entry is forgotten, so that places never move.
    """

    entry: str
    pattern: str
    at: str


class ReportedOutcome(msgspec.Struct, frozen=True):
    """An outcome, and when it was reported."""

    id: str
    at: str
    outcome: Outcome


class ProjectKnowledge:
    """The knowledge of one project, as its journal tells it."""

    def __init__(self, name: str, journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self._fold = Fold(journal)
        self._reasons: dict[str, str] = {}
        self._reasons_until: str | None = None
        self._seen = 0
        self._generation = -1
        self._clear()

    def _clear(self) -> None:
        self._seen = 0
        self.entries: dict[str, Record] = {}
        self.slots: list[Slot] = []
        self.staged: dict[str, Record] = {}
        self.outcomes: list[ReportedOutcome] = []
        self.gates: dict[str, Gate] = {}
        self._covered: set[str] = set()

    @property
    def state(self) -> tuple[int, int]:
        """Changes whenever anything here does."""
        return self._generation, self._seen

    @property
    def position(self) -> str:
        """How far its journal was read."""
        return self._fold.position or ""

    def follow(self) -> ProjectKnowledge:
        """Take in what is new."""
        fresh = self._fold.after(self._seen)
        if self._fold.generation != self._generation:
            self._clear()
            self._generation = self._fold.generation
            fresh = self._fold.after(0)
        for located in fresh:
            self._take(located.record)
        self._seen += len(fresh)
        return self

    def has_forgotten(self, record_id: str) -> bool:
        """Whether a record of this id was forgotten here."""
        return self._fold.has_forgotten(record_id)

    def reasons(self) -> dict[str, str]:
        """Why everything that was forgotten here went, by its id."""
        if not self.journal.unchanged(self._reasons_until):
            batch = self.journal.read()
            self._reasons = {stone.id: stone.reason or "" for stone in batch.tombstones}
            self._reasons_until = batch.position
        return self._reasons

    def standing(self) -> list[Located]:
        """Every living record and where it stands."""
        return self._fold.records()

    def _take(self, record: Record) -> None:
        if not is_known(record.kind):
            return
        try:
            said = knowledge_from(record)
        except BadRecord:
            return  # left to `verify`
        if record.kind in ENTRIES:
            if record.id not in self.entries:
                self.entries[record.id] = record
                if record.id not in self._covered:
                    self.staged[record.id] = record
        elif record.kind == CHECKPOINT:
            for one in said.covers:
                if one.entry not in self._covered:
                    self._covered.add(one.entry)
                    self.slots.append(Slot(one.entry, one.pattern, record.at))
                    self.staged.pop(one.entry, None)
        elif record.kind == OUTCOME:
            self.outcomes.append(ReportedOutcome(record.id, record.at, said))
        else:
            self.gates[record.id] = said


class PublishedState(msgspec.Struct, frozen=True):
    """Everything that is published: by entry its slot, by pattern its entries and outcomes."""

    slots: dict[str, Slot]
    projects: dict[str, str]
    patterns: dict[str, list[str]]
    worked: dict[str, int]
    failed: dict[str, int]
    oldest: str = ""

    def tells(self, slot: Slot) -> bool:
        """Whether the entry is one of the first of its pattern.

        Only those are indexed: a lesson that fifty projects learned would make its own words
        common, and so the less sure the more often it held.
        """
        return slot.entry in self.patterns.get(slot.pattern, ())[:_TELLINGS]

    def without(self, leave_out: Callable[[Slot], bool]) -> PublishedState:
        """The same without some of the entries."""
        kept = {entry: slot for entry, slot in self.slots.items() if not leave_out(slot)}
        patterns = {
            name: living
            for name, entries in self.patterns.items()
            if (living := [entry for entry in entries if entry in kept])
        }
        return msgspec.structs.replace(self, slots=kept, patterns=patterns)


class KnowledgeState:
    """The accounts of all projects together."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._accounts: dict[str, ProjectKnowledge] = {}
        self._state: tuple[object, ...] = ()
        self._history = PublishedState({}, {}, {}, {}, {})

    def account(self, name: str) -> ProjectKnowledge:
        """The account of one project, up to date."""
        return self._known(name).follow()

    def _known(self, name: str) -> ProjectKnowledge:
        if name not in self._accounts:
            self._accounts[name] = ProjectKnowledge(name, self._journals.journal(name))
        return self._accounts[name]

    def entry(self, name: str, entry: str) -> Record:
        """An entry that the history names; its account is not read again for it."""
        return self._known(name).entries[entry]

    def accounts(self) -> list[ProjectKnowledge]:
        """Every account there is, by name, up to date."""
        return [self.account(name) for name in sorted(self._journals.names())]

    def journals(self) -> dict[str, Journal]:
        """Every journal there is, by name; none of them is read."""
        return {name: self._known(name).journal for name in sorted(self._journals.names())}

    def history(self) -> PublishedState:
        """What is published and not forgotten, as of now."""
        accounts = self.accounts()
        state = tuple((one.name, *one.state) for one in accounts)
        if state != self._state:
            self._history, self._state = _history(accounts), state
        return self._history


def _history(accounts: Iterable[ProjectKnowledge]) -> PublishedState:
    slots: dict[str, Slot] = {}
    projects: dict[str, str] = {}
    patterns: dict[str, list[str]] = defaultdict(list)
    for account in accounts:
        for slot in account.slots:
            if slot.entry in account.entries and slot.entry not in slots:
                slots[slot.entry] = slot
                projects[slot.entry] = account.name
    by_age = sorted(slots.values(), key=lambda one: (_moment(one.at), one.entry))
    for slot in by_age:
        patterns[slot.pattern].append(slot.entry)
    worked: dict[str, int] = defaultdict(int)
    failed: dict[str, int] = defaultdict(int)
    for outcome in _last_words(accounts):
        (worked if outcome.worked else failed)[outcome.pattern] += 1
    oldest = next((one.at for one in by_age if _is_time(one.at)), "")
    return PublishedState(slots, projects, dict(patterns), dict(worked), dict(failed), oldest)


def _last_words(accounts: Iterable[ProjectKnowledge]) -> list[Outcome]:
    """Each outcome; of those about the same task only the last."""
    last: dict[tuple[str, ...], ReportedOutcome] = {}
    for account in accounts:
        for told in account.outcomes:
            one = told.outcome
            task = ("task", one.task) if one.task else ("once", told.id)
            key = (account.name, one.pattern, *task)
            if key not in last or _moment(told.at) >= _moment(last[key].at):
                last[key] = told
    return [told.outcome for told in last.values()]


def _moment(at: str) -> str:
    """Comes before that of any later time; a whole second is written shorter than its parts."""
    return at.removesuffix("Z")


def _is_time(at: str) -> bool:
    try:
        utc(at)
    except BadRecord:
        return False
    return True


# -- The journals of knowledge as the index follows them: one series, of what checkpoints cover.


class _ReadPosition(msgspec.Struct, frozen=True, array_like=True):
    """How far one project's journal was read, and how many of its slots were given."""

    journal: str
    slots: int


class _AllPositions(msgspec.Struct, frozen=True):
    places: dict[str, _ReadPosition]
    done: bool


_decode = msgspec.json.Decoder(_AllPositions).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class Published:
    """The published entries that are indexed, project by project, each once, in the order of
    publication."""

    def __init__(self, ledger: KnowledgeState) -> None:
        self._ledger = ledger

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What was published behind the position, at most `limit` entries."""
        accounts = self._ledger.accounts()
        places = _known(position)
        stones: list[Tombstone] = []
        # Where a journal is gone, or no longer begins with what was read, all is read again.
        restarted = position is not None and places is None
        if places is not None:
            restarted = not places.keys() <= {one.name for one in accounts}
            for account in accounts:
                if not restarted and account.name in places:
                    news = account.journal.read(places[account.name].journal)
                    # What was forgotten may have kept another telling of its pattern out.
                    restarted = news.restarted or bool(news.tombstones)
        if restarted:
            places = {}
            stones = [stone for one in accounts for stone in one.journal.read().tombstones]
        return self._from(accounts, places or {}, stones, limit, restarted)

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have been published since the position."""
        at = _read(position)
        if at is None or not at.done:
            return False
        accounts = self._ledger.journals()
        return accounts.keys() == at.places.keys() and all(
            journal.unchanged(at.places[name].journal) for name, journal in accounts.items()
        )

    def _from(
        self,
        accounts: list[ProjectKnowledge],
        places: dict[str, _ReadPosition],
        stones: list[Tombstone],
        limit: int | None,
        restarted: bool,
    ) -> Batch:
        history = self._ledger.history()
        records: list[Located] = []
        reached: dict[str, _ReadPosition] = {}
        done = True
        for account in accounts:
            start = places[account.name].slots if account.name in places else 0
            end = len(account.slots)
            if limit is not None:
                end = min(end, start + limit - len(records))
            for slot in account.slots[start:end]:
                record = account.entries.get(slot.entry)
                if record is not None and history.tells(slot):
                    records.append(Located(record, account.name, 0))
            done = done and end == len(account.slots)
            reached[account.name] = _ReadPosition(account.position, end)
        position = _encode(_AllPositions(reached, done)).decode()
        return Batch(tuple(records), tuple(stones), (), position, restarted, done)


def _read(position: str | None) -> _AllPositions | None:
    try:
        return None if position is None else _decode(position)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _known(position: str | None) -> dict[str, _ReadPosition] | None:
    at = _read(position)
    return None if at is None else at.places


# -- What an entry of knowledge goes through before it is kept: checked, secrets out, limits on.


_SHORT_FIELD_CHARS = 100
_SUBJECT_CHARS = 300
_SHORT = ("agent_type", "task_type", "technology")
_NEEDED: dict[type[Entry], dict[str, str]] = {
    FailureSolution: {
        "failure_description": "Say what failed.",
        "solution_steps": "Knowledge is what was seen to work: say what solved it, or wait until"
        " something did.",
    },
    GateRejection: {
        "gate_type": "Say which gate, for example: design.",
        "human_feedback": "Say why it was rejected.",
        "revision_approach": "A rejection is complete when its revision was approved: say what"
        " that was.",
    },
    GateApproval: {
        "gate_type": "Say which gate, for example: design.",
        "approved_approach": "Say what was approved.",
    },
}


def read_entry(plain: Mapping[str, Any]) -> Entry:
    """An entry from its published form; what does not fit is an error that names the field."""
    given = dict(plain)
    kind = given.pop("entry_type", None)
    if not isinstance(kind, str) or kind not in ENTRIES:
        raise BadRecord(
            "no entry_type" if kind is None else f"there is no entry_type {kind!r}",
            todo=f"It is one of {', '.join(ENTRIES)}.",
        )
    fields = ENTRIES[kind].__struct_fields__
    unknown = sorted(given.keys() - set(fields))
    if unknown:
        raise BadRecord(
            f"a {kind} has no field {unknown[0]!r}", todo=f"Its fields are {', '.join(fields)}."
        )
    if isinstance(given.get("solution_steps"), list | tuple):
        given["solution_steps"] = in_lines(given["solution_steps"])
    # What is not given counts as empty, so that one place says what is needed.
    texts = {name: "" for name in fields if name != "success_verified"}
    told = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert({**texts, **told}, ENTRIES[kind])
    except msgspec.ValidationError as error:
        raise BadRecord(f"not a {kind}: {error}") from None


def in_lines(steps: str | Sequence[str]) -> str:
    """Steps, one a line."""
    if isinstance(steps, str):
        return steps
    if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
        raise BadRecord("solution_steps must be a text, or a list of texts")
    return "\n".join(step.strip() for step in steps)


def prepared_entry(entry: Entry, settings: Settings) -> Entry:
    """The entry as it may be written, or an error that says what is missing."""
    _check_types(entry)
    project = entry.project.strip()
    if not project:
        raise BadRecord("an entry needs the project it comes from")
    if redact(project) != project:
        raise BadRecord(
            "the project's name looks like a secret", todo="Name the project by what it is."
        )
    if isinstance(entry, FailureSolution) and not entry.success_verified:
        raise BadRecord(
            "a failure whose solution is not verified is not knowledge yet",
            todo="Capture it when the solution was seen to work.",
        )
    most = _TEXT_CHARS
    # What nobody can see goes first: it can hide a secret, or a marker, from who looks for it.
    texts = {
        name: _clean(strip_marked(visible(value)).strip(), most)
        for name in entry.__struct_fields__
        if isinstance(value := getattr(entry, name), str)
    }
    for name in _SHORT:
        texts[name] = _clean(facet(texts[name]), _SHORT_FIELD_CHARS)
    texts["subject"] = _clean(" ".join(texts["subject"].split()), _SUBJECT_CHARS)
    texts["project"] = project
    if "gate_type" in texts:
        texts["gate_type"] = _clean(facet(texts["gate_type"]), _SHORT_FIELD_CHARS)
    for name, todo in _NEEDED[type(entry)].items():
        if not texts[name]:
            raise BadRecord(f"a {entry.entry_type} needs {name}", todo=todo)
    return msgspec.structs.replace(entry, **texts)


def facet(text: str) -> str:
    """The text as it is compared: lower case, single blanks; several values stay apart."""
    return ", ".join(facet_values(text))


def facet_values(text: str | None) -> tuple[str, ...]:
    """The values that a comma separates, each once."""
    parts = (" ".join(part.split()).casefold() for part in (text or "").split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _check_types(entry: Entry) -> None:
    """Whoever calls from Python can give anything; what cannot be read back is not written."""
    try:
        msgspec.convert(msgspec.structs.asdict(entry), type(entry))
    except msgspec.ValidationError as error:
        raise BadRecord(f"not a {entry.entry_type}: {error}") from None


def _clean(text: str, max_chars: int) -> str:
    return cut(clean_text(text), max_chars)
