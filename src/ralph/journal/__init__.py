"""The truth: records appended one after another, read from a position, verified, forgotten.

A journal knows envelopes and tombstones and nothing of what is inside a record; nothing rewrites
it but `forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec

from ralph.record import Complaint, Located, Record, Tombstone

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


class Journal(Protocol):
    """One series of records. JSONL files and PostgreSQL keep the same promises."""

    def append(self, drafts: Sequence[Record | Draft]) -> list[Appended]:
        """Keep all of them or none; when this returns they are on disk."""
        ...

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What stands behind the position, at most `limit` lines."""
        ...

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have happened since the position; cheap, for every query."""
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
