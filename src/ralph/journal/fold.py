"""What a journal comes to when read as a whole: each record once, the forgotten ones left out."""

from __future__ import annotations

from ralph.journal import Journal
from ralph.record import Complaint, Located


class Fold:
    """The living records of a journal, kept up to date by reading only what is new."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._position: str | None = None
        self._records: dict[tuple[str, str], Located] = {}
        self._forgotten: set[str] = set()
        self._complaints: dict[int, Complaint] = {}
        # Changes whenever what was given before no longer stands, and not when something is added.
        self.generation = 0

    @property
    def complaints(self) -> list[Complaint]:
        """What was stepped over so far, in journal order."""
        return list(self._complaints.values())

    def records(self) -> list[Located]:
        """Every living record in journal order, as of now."""
        if not self._journal.unchanged(self._position):
            self._refresh()
        return list(self._records.values())

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten, as of now."""
        self.records()
        return frozenset(self._forgotten)

    def _refresh(self) -> None:
        batch = self._journal.read(self._position)
        if batch.restarted:
            self.generation += 1
            self._records.clear()
            self._forgotten.clear()
            self._complaints.clear()
        self._position = batch.position
        # A torn last line is read again when it has grown, and may have become whole.
        for line in {located.line for located in batch.records} & self._complaints.keys():
            del self._complaints[line]
        self._complaints.update((complaint.line, complaint) for complaint in batch.complaints)
        for located in batch.records:
            record = located.record
            self._records.setdefault((record.id, record.digest), located)
        self._forgotten |= {stone.id for stone in batch.tombstones}
        fresh = [(one.record.id, one.record.digest) for one in batch.records]
        suspects = list(self._records) if batch.tombstones else fresh
        gone = {key for key in suspects if key[0] in self._forgotten}
        for key in gone:
            del self._records[key]
        self.generation += bool(gone)
