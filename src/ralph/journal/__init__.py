"""The journal, Ralph's source of truth: append records, read from a position, verify, forget.

A journal knows record envelopes and tombstones, not record bodies. Only `forget` rewrites it.
`Fold` keeps the live records of a journal, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import msgspec

from ralph.errors import JournalDown
from ralph.records import Complaint, JournalRecord, Record, Tombstone

if TYPE_CHECKING:
    from ralph.journal.session import Listener

# Builds a record from its number. Called with the next number, under the journal's lock.
Draft = Callable[[int], Record]
Drafts = Sequence[Record | Draft]
Ids = Collection[str]
Stones = Sequence[Tombstone]


class Appended(msgspec.Struct, frozen=True):
    """The result of appending one record: the record as stored, and whether it is new."""

    record: Record
    fresh: bool


class Batch(msgspec.Struct, frozen=True):
    """The entries read after a position, and the position to continue from.

    `restarted` means that the position no longer fits the journal (it was merged, forgotten from
    or replaced), so reading started over from the beginning.
    """

    records: tuple[JournalRecord, ...]
    tombstones: tuple[Tombstone, ...]
    complaints: tuple[Complaint, ...]
    position: str
    restarted: bool
    done: bool


class Selection(msgspec.Struct, frozen=True):
    """Which live records are wanted: of these kinds, of this run, or with these ids.

    `newest`: only this many of each kind, by time.
    """

    kinds: tuple[str, ...] = ()
    ids: Collection[str] = ()
    run: str | None = None
    newest: int | None = None

    def of(self, records: Iterable[JournalRecord]) -> list[JournalRecord]:
        """Return those of the live records that are wanted, in the given order."""
        wanted = [located for located in records if self._wants(located.record)]
        if self.newest is None:
            return wanted
        by_kind: dict[str, list[JournalRecord]] = {}
        for located in wanted:
            by_kind.setdefault(located.record.kind, []).append(located)
        newest: set[int] = set()
        for found in by_kind.values():
            found.sort(key=lambda located: (located.record.at, located.line))
            newest |= {id(located) for located in found[max(0, len(found) - self.newest) :]}
        return [located for located in wanted if id(located) in newest]

    def _wants(self, record: Record) -> bool:
        if record.kind in self.kinds or record.id in self.ids:
            return True
        return self.run is not None and record.source.run == self.run


class Followed(Protocol):
    """The part of a journal that an index needs to follow it."""

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """Return the entries after the position, at most `limit` lines."""

    def unchanged(self, position: str | None) -> bool:
        """Return True only if nothing was written since the position. Cheap, for every query."""


class Journal(Followed, Protocol):
    """A sequence of records. JSONL files and PostgreSQL keep the same promises."""

    def append(self, drafts: Drafts) -> list[Appended]:
        """Append all drafts or none; when this returns they are on disk."""

    def forget(self, ids: Ids, *, reason: str | None = None, stones: Stones = ()) -> list[str]:
        """Delete records for good, leave a tombstone for each, and return the ids that existed.

        `stones` are tombstones made elsewhere: their records are deleted too, and stay out.
        """

    def verify(self) -> tuple[int, list[Complaint]]:
        """Return how many records can be read, and every problem found."""


@runtime_checkable
class Selective(Protocol):
    """A journal that can return a few records without being read as a whole."""

    def select(self, selection: Selection) -> list[JournalRecord] | None:
        """Return some of the live records in journal order; None if it must be read."""

    def known(self, ids: Collection[str]) -> set[str] | None:
        """Return those of the ids that it has or had; None if it must be read."""


class Journals(Protocol):
    """The named journals of one memory: a folder of files, or a database."""

    @property
    def where(self) -> str:
        """The folder, or the host and database. Never contains a password."""

    def journal(self, name: str) -> Journal:
        """Return the journal with this name. Its first record creates it."""

    def names(self) -> list[str]:
        """Return the names of all existing journals."""

    def newest_at(self, name: str) -> str:
        """Return the time of the newest record, reading only the journal's end; "" if unknown."""

    def size_bytes(self, name: str) -> int:
        """Return roughly how many bytes there are to read in a journal; 0 if it does not exist."""

    def trouble(self) -> str | None:
        """Return why answers may be stale (the server was not reached last time), or None."""

    def listener(self) -> Listener | None:
        """Return a listener that reports new records at once, or None if callers must poll."""

    def close(self) -> None:
        """Close connections. They reopen when needed."""


# -- Positions: a struct for each kind of journal. Callers receive and store it as JSON.

_P = TypeVar("_P", bound=msgspec.Struct)


def read_position(position: str | None, kind: type[_P]) -> _P | None:
    """Decode a position; None if there is none, or it is of another kind or Ralph version."""
    try:
        return None if position is None else msgspec.json.decode(position, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        return None


def write_position(position: msgspec.Struct) -> str:
    """Encode a position as JSON."""
    return msgspec.json.encode(position).decode()


# -- The live records of a journal.


class Fold:
    """The live records of a journal. Stays current by reading only new entries."""

    def __init__(self, journal: Followed) -> None:
        self._journal = journal
        # How far the journal has been read.
        self.position: str | None = None
        # By id. A second record with the same id and other content has the key "<id> <digest>".
        self._records: dict[str, JournalRecord] = {}
        self._listed: list[JournalRecord] = []
        self._reasons: dict[str, str] = {}
        # Changes when records returned earlier are no longer valid, not when records are added.
        self.generation = 0
        # Whether these are only the records waiting here for a server that was never reached.
        self._makeshift = False

    def records(self) -> list[JournalRecord]:
        """Return every live record in journal order, as of now.

        If a server's journal was never read, these are only the records waiting here for it.
        """
        return self.after(0)

    def after(self, count: int) -> list[JournalRecord]:
        """Return the live records after the first `count`, as of now."""
        self._look()
        return self._listed[count:]

    def select(self, selection: Selection) -> list[JournalRecord]:
        """Return some of the live records in journal order, as of now.

        If none were read yet, a long journal is asked for these alone.
        """
        if self.position is None and isinstance(self._journal, Selective):
            found = self._journal.select(selection)
            if found is not None:
                return found
        return selection.of(self.records())

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that the journal has or had, as of now."""
        if self.position is None and isinstance(self._journal, Selective):
            found = self._journal.known(ids)
            if found is not None:
                return found
        self._look()
        living = {located.record.id for located in self._listed}
        return {record_id for record_id in ids if record_id in living or record_id in self._reasons}

    def reasons(self) -> Mapping[str, str]:
        """Return why each forgotten record was forgotten, by id, as of now."""
        self._look()
        return self._reasons

    def forgotten(self) -> frozenset[str]:
        """Return the ids of all forgotten records, as of now."""
        return frozenset(self.reasons())

    def _look(self) -> None:
        try:
            if self._journal.unchanged(self.position):
                return
            self._read_on()
        except JournalDown:
            waiting: Callable[[], Sequence[JournalRecord]] | None
            if (waiting := getattr(self._journal, "waiting", None)) is None:
                raise
            self._makeshift = True
            for located in waiting():
                self._take(located)
        self._listed = list(self._records.values())

    def _read_on(self) -> None:
        batch = self._journal.read(self.position)
        if batch.restarted or self._makeshift:
            self._makeshift = False
            self.generation += 1
            self._records.clear()
            self._reasons.clear()
        self.position = batch.position
        fresh = [self._take(located) for located in batch.records]
        self._reasons |= {stone.id: stone.reason or "" for stone in batch.tombstones}
        suspects = list(self._records) if batch.tombstones else fresh
        gone = {key for key in suspects if self._records[key].record.id in self._reasons}
        for key in gone:
            del self._records[key]
        self.generation += bool(gone)

    def _take(self, located: JournalRecord) -> str:
        """Store the record unless it is known already; return its key.

        Digests are compared only between records with the same id: most never need one.
        """
        record = located.record
        first = self._records.setdefault(record.id, located).record
        if first is record or first.digest == record.digest:
            return record.id
        key = f"{record.id} {record.digest}"
        self._records.setdefault(key, located)
        return key
