"""The truth: records appended one after another, read from a position, verified, forgotten.

A journal knows envelopes and tombstones and nothing of what is inside a record; nothing rewrites
it but `forget`. `Fold` keeps the living records of a journal, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from ralph.errors import JournalDown
from ralph.records import Complaint, JournalRecord, Record, Tombstone

if TYPE_CHECKING:
    from ralph.journal.session import Listener

# A record that waits for its number: called under the journal's lock with the next one.
Draft = Callable[[int], Record]
Drafts = Sequence[Record | Draft]
Ids = Collection[str]
Stones = Sequence[Tombstone]


class Appended(msgspec.Struct, frozen=True):
    """What an append came to: the record as the journal has it, and whether it is new there."""

    record: Record
    fresh: bool


class Batch(msgspec.Struct, frozen=True):
    """What was read from a position on, and the position to go on from.

    `restarted` says that the position no longer fits the journal (it was merged, forgotten from
    or replaced) and that reading began again at the start.
    """

    records: tuple[JournalRecord, ...]
    tombstones: tuple[Tombstone, ...]
    complaints: tuple[Complaint, ...]
    position: str
    restarted: bool
    done: bool


class Followed(Protocol):
    """What an index needs of a journal to follow it."""

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What stands behind the position, at most `limit` lines."""

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have happened since the position; cheap, for every query."""


class Journal(Followed, Protocol):
    """One series of records. JSONL files and PostgreSQL keep the same promises."""

    def append(self, drafts: Drafts) -> list[Appended]:
        """Keep all of them or none; when this returns they are on disk."""

    def forget(self, ids: Ids, *, reason: str | None = None, stones: Stones = ()) -> list[str]:
        """Take the content out for good, leave a tombstone for each, and say which were there.

        `stones` were made elsewhere: what they stand for goes too, and cannot come later.
        """

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong."""


class Journals(Protocol):
    """The journals of one memory, each with a name: a folder of files, or a database."""

    @property
    def where(self) -> str:
        """The folder, or host and database; no password is in it."""

    def journal(self, name: str) -> Journal:
        """The journal of this name; it begins with its first record."""

    def names(self) -> list[str]:
        """The names of all journals that are there."""

    def newest_at(self, name: str) -> str:
        """When the newest record of a journal was made, from its end alone; "" if unclear."""

    def size_bytes(self, name: str) -> int:
        """About how much there is to read in a journal; 0 where there is none."""

    def trouble(self) -> str | None:
        """Why answers may be old: the server was not reached the last time; None where it was."""

    def listener(self) -> Listener | None:
        """What tells of new records at once; None where one has to look."""

    def close(self) -> None:
        """Let go of connections; they open again by themselves."""


# -- Positions: a struct of each kind of journal, given out as JSON and kept by others.

_P = TypeVar("_P", bound=msgspec.Struct)


def read_position(position: str | None, kind: type[_P]) -> _P | None:
    """The position read; None for none, and for one of another kind or version of Ralph."""
    try:
        return None if position is None else msgspec.json.decode(position, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        return None


def write_position(position: msgspec.Struct) -> str:
    """The position as it is given out."""
    return msgspec.json.encode(position).decode()


# -- What a journal comes to when read as a whole.


class Fold:
    """The living records of a journal, kept up to date by reading only what is new."""

    def __init__(self, journal: Followed) -> None:
        self._journal = journal
        # How far the journal was read.
        self.position: str | None = None
        # By id; a second content of the same id stands under its digest too.
        self._records: dict[str, JournalRecord] = {}
        self._listed: list[JournalRecord] = []
        self._reasons: dict[str, str] = {}
        # Changes whenever what was given before no longer stands, and not when something is added.
        self.generation = 0
        # Whether there is only what waits here for a server that was never reached.
        self._makeshift = False

    def records(self) -> list[JournalRecord]:
        """Every living record in journal order, as of now.

        While nothing can be known of a server's journal yet, what waits here for it is all.
        """
        return self.after(0)

    def after(self, count: int) -> list[JournalRecord]:
        """The living records behind the first `count`, as of now."""
        self._look()
        return self._listed[count:]

    def reasons(self) -> Mapping[str, str]:
        """Why everything that was forgotten went, by its id, as of now."""
        self._look()
        return self._reasons

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten, as of now."""
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
        """Keep the record unless it is known, and give the key it is known by.

        Digests tell apart only what has the same id: of most records nobody needs one.
        """
        record = located.record
        first = self._records.setdefault(record.id, located).record
        if first is record or first.digest == record.digest:
            return record.id
        key = f"{record.id} {record.digest}"
        self._records.setdefault(key, located)
        return key
