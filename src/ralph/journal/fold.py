"""What a journal comes to when read as a whole: each record once, the forgotten ones left out."""

from __future__ import annotations

import itertools

from ralph.errors import JournalDown
from ralph.journal import Journal, SpoolingJournal
from ralph.records import Complaint, Located

# Where the first record of an id stands; others of that id stand under their digests.
_FIRST = ""


class Fold:
    """The living records of a journal, kept up to date by reading only what is new."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._position: str | None = None
        self._records: dict[tuple[str, str], Located] = {}
        self._forgotten: set[str] = set()
        self._complaints: dict[int, Complaint] = {}
        self._listed: list[Located] = []
        # Changes whenever what was given before no longer stands, and not when something is added.
        self.generation = 0
        # Whether there is only what waits here for a server that was never reached.
        self._makeshift = False

    @property
    def position(self) -> str | None:
        """How far the journal was read."""
        return self._position

    @property
    def complaints(self) -> list[Complaint]:
        """What was stepped over so far, in journal order."""
        return list(self._complaints.values())

    def records(self) -> list[Located]:
        """Every living record in journal order, as of now.

        While nothing can be known of a server's journal yet, what waits here for it is all.
        """
        self._look()
        return list(self._records.values())

    def after(self, count: int) -> list[Located]:
        """The living records behind the first `count`, as of now."""
        self._look()
        return self._listed[count:]

    def has_forgotten(self, record_id: str) -> bool:
        """Whether a record of this id was forgotten, as of now."""
        self._look()
        return record_id in self._forgotten

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten, as of now."""
        self.records()
        return frozenset(self._forgotten)

    def _look(self) -> None:
        try:
            if not self._journal.unchanged(self._position):
                self._refresh()
        except JournalDown:
            if not isinstance(self._journal, SpoolingJournal):
                raise
            self._makeshift = True
            before = len(self._records)
            for located in self._journal.waiting():
                self._take(located)
            self._listed += itertools.islice(self._records.values(), before, None)

    def _refresh(self) -> None:
        batch = self._journal.read(self._position)
        if batch.restarted or self._makeshift:
            self._makeshift = False
            self.generation += 1
            self._records.clear()
            self._forgotten.clear()
            self._complaints.clear()
        self._position = batch.position
        # A torn last line is read again when it has grown, and may have become whole.
        for line in {located.line for located in batch.records} & self._complaints.keys():
            del self._complaints[line]
        self._complaints.update((complaint.line, complaint) for complaint in batch.complaints)
        before = len(self._records)
        fresh = [self._take(located) for located in batch.records]
        self._forgotten |= {stone.id for stone in batch.tombstones}
        suspects = list(self._records) if batch.tombstones else fresh
        gone = {key for key in suspects if key[0] in self._forgotten}
        for key in gone:
            del self._records[key]
        self.generation += bool(gone)
        if gone or not before:
            self._listed = list(self._records.values())
        else:
            self._listed += itertools.islice(self._records.values(), before, None)

    def _take(self, located: Located) -> tuple[str, str]:
        """Keep the record unless it is known, and give the key it is known by.

        Digests tell apart only what has the same id: of most records nobody needs one.
        """
        record = located.record
        first = self._records.setdefault((record.id, _FIRST), located).record
        if first is record or first.digest == record.digest:
            return record.id, _FIRST
        key = record.id, record.digest
        self._records.setdefault(key, located)
        return key
