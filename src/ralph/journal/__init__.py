"""The truth: records appended one after another, read from a position, verified, forgotten.

A journal knows envelopes and tombstones and nothing of what is inside a record; nothing rewrites
it but `forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from ralph.records import Complaint, Located, Record, Tombstone

# A record that waits for its number: called under the journal's lock with the next one.
Draft = Callable[[int], Record]


class Appended(msgspec.Struct, frozen=True):
    """What an append came to: the record as the journal has it, and whether it is new there."""

    record: Record
    fresh: bool


class Batch(msgspec.Struct, frozen=True):
    """What was read from a position on, and the position to go on from.

    `restarted` says that the position no longer fits the journal (it was merged, forgotten from
    or replaced) and that reading began again at the start.
    """

    records: tuple[Located, ...]
    tombstones: tuple[Tombstone, ...]
    complaints: tuple[Complaint, ...]
    position: str
    restarted: bool
    done: bool


class Followed(Protocol):
    """What an index needs of a journal to follow it."""

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What stands behind the position, at most `limit` lines."""
        ...

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have happened since the position; cheap, for every query."""
        ...


class Journal(Followed, Protocol):
    """One series of records. JSONL files and PostgreSQL keep the same promises."""

    def append(self, drafts: Sequence[Record | Draft]) -> list[Appended]:
        """Keep all of them or none; when this returns they are on disk."""
        ...

    def forget(
        self,
        ids: Collection[str],
        *,
        reason: str | None = None,
        stones: Sequence[Tombstone] = (),
    ) -> list[str]:
        """Take the content out for good, leave a tombstone for each, and say which were there.

        `stones` were made elsewhere: what they stand for goes too, and cannot come later.
        """
        ...

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten here."""
        ...

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong."""
        ...


@runtime_checkable
class SpoolingJournal(Protocol):
    """A journal whose records may have to wait here, because its server is elsewhere."""

    def waiting(self) -> tuple[Located, ...]:
        """What was kept here and has not reached the server yet."""
        ...


class Listens(Protocol):
    """What wakes whoever follows journals that somebody else writes."""

    def wait(self, timeout_s: float) -> bool:
        """Whether something may have happened; False when the time went by without a sign."""
        ...

    def close(self) -> None:
        """Listen no longer."""
        ...


class Journals(Protocol):
    """The journals of one memory, each with a name: a folder of files, or a database."""

    @property
    def where(self) -> str:
        """The folder, or host and database; no password is in it."""
        ...

    def journal(self, name: str) -> Journal:
        """The journal of this name; it begins with its first record."""
        ...

    def names(self) -> list[str]:
        """The names of all journals that are there."""
        ...

    def prepare(self) -> None:
        """Make what must be there before the first record; OSError where that cannot be."""
        ...

    def newest_at(self, name: str) -> str:
        """When the newest record of a journal was made, from its end alone; "" if unclear."""
        ...

    def size_bytes(self, name: str) -> int:
        """About how much there is to read in a journal; 0 where there is none."""
        ...

    def trouble(self) -> str | None:
        """Why answers may be old: the server was not reached the last time; None where it was."""
        ...

    def deliver(self) -> int:
        """Hand over what waits here for its server, and say how many records that were."""
        ...

    def listener(self) -> Listens | None:
        """What tells of new records at once; None where one has to look."""
        ...

    def close(self) -> None:
        """Let go of connections; they open again by themselves."""
        ...
