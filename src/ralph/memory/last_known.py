"""A server's journals while it is away: what the index here has of them stands in for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ralph.journal.database import PostgresJournals
from ralph.journal.folder import file_name
from ralph.journal.postgres import PostgresJournal
from ralph.journal.spool import Spool
from ralph.journal.spooled import SpooledJournal, SpooledJournals
from ralph.memory.store import Known
from ralph.records import Located


class LastKnownJournal(SpooledJournal):
    """A stream on a server that, while it is away, knows what the index knows."""

    def __init__(
        self,
        server: PostgresJournal,
        spool: Callable[[], Spool],
        *,
        lock_s: float,
        away: Callable[[], bool],
        known: Callable[[], tuple[Located, ...]],
    ) -> None:
        super().__init__(server, spool, lock_s=lock_s)
        self._away = away
        self._known = known
        self._held: tuple[Located, ...] | None = None

    def waiting(self) -> tuple[Located, ...]:
        """What the server does not tell now: what it had the last time, and what waits for it."""
        if not self._away():
            self._held = None
            return super().waiting()
        if self._held is None:
            self._held = self._known()
        return self._held + super().waiting()


class LastKnownJournals(SpooledJournals):
    """The journals of one memory on a server; `known` tells what the index has of a stream."""

    def __init__(self, server: PostgresJournals, spools: Path, known: Known) -> None:
        super().__init__(server, spools)
        self._known = known

    def journal(self, name: str) -> SpooledJournal:
        """The journal of this name."""
        if name not in self._open:
            file_name(name)  # what cannot be kept here cannot be kept
            self._open[name] = LastKnownJournal(
                self.server.journal(name),
                lambda: self._spool_of(name),
                lock_s=self.server.link.patience.lock_s,
                away=lambda: self.server.trouble() is not None,
                known=lambda: self._located(name),
            )
        return self._open[name]

    def _located(self, name: str) -> tuple[Located, ...]:
        where = self.server.journal(name).name
        return tuple(Located(record, where, record.number) for record in self._known(name))
