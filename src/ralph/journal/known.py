"""What an appender must know of a journal before it may add to it."""

from __future__ import annotations

from ralph.journal import Draft
from ralph.record import Record, Tombstone


class Known:
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

    def add(self, record: Record) -> None:
        """Know one more record."""
        digest = record.digest
        places = self._places.get(digest, ())
        if all(known != record.id for known, _ in places):
            self._places[digest] = (*places, (record.id, record.number))
        self.last_number = max(self.last_number, record.number)

    def bury(self, stone: Tombstone) -> None:
        """Know one more tombstone."""
        # The number stays taken: under it another record could get the forgotten one's id.
        self.forgotten.add(stone.id)
        if stone.was_at:
            graves = self._graves.get(stone.was_at, ())
            self._graves[stone.was_at] = (*graves, (stone.id, stone.number))
        self.last_number = max(self.last_number, stone.number)
