"""What the journals of knowledge come to: entries, what is published, patterns, outcomes, gates.

Derived from the journals alone and kept up to date by reading only what is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from ralph.errors import BadRecord
from ralph.journal import Journal, Journals
from ralph.journal.fold import Fold
from ralph.kinds.knowledge import (
    CHECKPOINT,
    ENTRIES,
    OUTCOME,
    Gate,
    Outcome,
    is_known,
    knowledge_from,
)
from ralph.record import Located, Record, utc

# How many entries of a pattern are found by their own words.
_TELLINGS = 2


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A place in the order of publication: which entry, in which pattern, since when.

    It stays when the entry is forgotten, so that places never move.
    """

    entry: str
    pattern: str
    at: str


class Told(msgspec.Struct, frozen=True):
    """An outcome, and when it was reported."""

    id: str
    at: str
    outcome: Outcome


class Account:
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
        self.outcomes: list[Told] = []
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

    def follow(self) -> Account:
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
            self.outcomes.append(Told(record.id, record.at, said))
        else:
            self.gates[record.id] = said


class History(msgspec.Struct, frozen=True):
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

    def without(self, leave_out: Callable[[Slot], bool]) -> History:
        """The same without some of the entries."""
        kept = {entry: slot for entry, slot in self.slots.items() if not leave_out(slot)}
        patterns = {
            name: living
            for name, entries in self.patterns.items()
            if (living := [entry for entry in entries if entry in kept])
        }
        return msgspec.structs.replace(self, slots=kept, patterns=patterns)


class Ledger:
    """The accounts of all projects together."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._accounts: dict[str, Account] = {}
        self._state: tuple[object, ...] = ()
        self._history = History({}, {}, {}, {}, {})

    def account(self, name: str) -> Account:
        """The account of one project, up to date."""
        return self._known(name).follow()

    def _known(self, name: str) -> Account:
        if name not in self._accounts:
            self._accounts[name] = Account(name, self._journals.journal(name))
        return self._accounts[name]

    def entry(self, name: str, entry: str) -> Record:
        """An entry that the history names; its account is not read again for it."""
        return self._known(name).entries[entry]

    def accounts(self) -> list[Account]:
        """Every account there is, by name, up to date."""
        return [self.account(name) for name in sorted(self._journals.names())]

    def journals(self) -> dict[str, Journal]:
        """Every journal there is, by name; none of them is read."""
        return {name: self._known(name).journal for name in sorted(self._journals.names())}

    def history(self) -> History:
        """What is published and not forgotten, as of now."""
        accounts = self.accounts()
        state = tuple((one.name, *one.state) for one in accounts)
        if state != self._state:
            self._history, self._state = _history(accounts), state
        return self._history


def _history(accounts: Iterable[Account]) -> History:
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
    return History(slots, projects, dict(patterns), dict(worked), dict(failed), oldest)


def _last_words(accounts: Iterable[Account]) -> list[Outcome]:
    """Each outcome; of those about the same task only the last."""
    last: dict[tuple[str, ...], Told] = {}
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
