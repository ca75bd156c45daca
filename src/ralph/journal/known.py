"""What an appender must know of a journal before it may add to it."""

from __future__ import annotations

from collections.abc import Sequence

from ralph.errors import JournalError, RecordForgotten
from ralph.journal import Appended, Draft
from ralph.journal.line import write_record
from ralph.records import Record, Tombstone


class AppenderState:
    """What an appender must know of the lines before: the last number, contents, tombstones."""

    def __init__(self) -> None:
        self.position: str | None = None
        self.last_number = 0
        self.forgotten: set[str] = set()
        # Where a content stands, and where one of that time stood: ids and numbers.
        self._places: dict[str, tuple[tuple[str, int], ...]] = {}
        self._graves: dict[str, tuple[tuple[str, int], ...]] = {}

    def numbered(self, draft: Draft) -> Record:
        """The draft as the journal has or had it already, else with the next number."""
        record = draft(self.last_number + 1)
        places = self._places.get(record.digest, ())
        graves = self._graves.get(record.at, ())
        for known_id, number in (*places, *graves):
            again = draft(number)
            if again.id == known_id:
                return again
        return record

    def has(self, record: Record) -> bool:
        """Whether exactly this content stands under this id."""
        return any(known == record.id for known, _ in self._places.get(record.digest, ()))

    def buried(self, record: Record) -> bool:
        """Whether what has this id was forgotten."""
        return record.id in self.forgotten

    def add(self, record: Record) -> None:
        """Know one more record."""
        self.stands(record.digest, record.id, record.number)

    def stands(self, digest: str, record_id: str, number: int) -> None:
        """Know that this content stands under this id and number."""
        places = self._places.get(digest, ())
        if all(known != record_id for known, _ in places):
            self._places[digest] = (*places, (record_id, number))
        self.last_number = max(self.last_number, number)

    def bury(self, stone: Tombstone) -> None:
        """Know one more tombstone."""
        # The number stays taken: under it another record could get the forgotten one's id.
        self.forgotten.add(stone.id)
        if stone.was_at:
            graves = self._graves.get(stone.was_at, ())
            self._graves[stone.was_at] = (*graves, (stone.id, stone.number))
        self.last_number = max(self.last_number, stone.number)


class Numbers:
    """The highest number that was given out, by whoever."""

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest


def prepared(
    drafts: Sequence[Record | Draft], known: AppenderState, *, name: str, max_line_bytes: int
) -> tuple[list[Appended], list[tuple[Record, bytes]]]:
    """What an append comes to, and the records with their lines that are to be written for it."""
    appended: list[Appended] = []
    fresh: list[tuple[Record, bytes]] = []
    for draft in drafts:
        record = draft if isinstance(draft, Record) else known.numbered(draft)
        if known.buried(record):
            raise RecordForgotten(f"record {record.id} was forgotten and stays so", where=name)
        new = not known.has(record)
        if new:
            line = write_record(record)
            if len(line) > max_line_bytes:
                raise JournalError(
                    f"record {record.id} takes {len(line)} bytes, the limit is {max_line_bytes}",
                    where=name,
                    todo="Shorten it; nothing was written.",
                )
            fresh.append((record, line))
            known.add(record)
        appended.append(Appended(record, new))
    return appended, fresh
