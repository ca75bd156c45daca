"""The journals of one memory in a PostgreSQL database, and waiting for news from them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ralph.errors import JournalDown
from ralph.journal.folder import check_name
from ralph.journal.postgres import CHANNEL, PostgresJournal
from ralph.journal.session import DatabaseSession, Link, need_driver

_NAMES = "SELECT name FROM ralph_streams WHERE memory = %s"
_NEWEST = """
SELECT at FROM ralph_entries
WHERE stream = (SELECT stream FROM ralph_streams WHERE memory = %s AND name = %s)
    AND kind <> 'forgotten'
ORDER BY position DESC LIMIT 50
"""
# Enough to tell a short journal from a long one, however long it is.
_SIZE = """
SELECT coalesce(sum(size), 0) FROM (
    SELECT octet_length(e.body) + 200 AS size
    FROM ralph_entries e JOIN ralph_streams s USING (stream)
    WHERE s.memory = %s AND s.name = %s LIMIT 10000) AS first
"""


class PostgresJournals:
    """The journals of one memory, each a stream of one database.

    The memory is named when it is used: a project gets its id with its first record.
    """

    def __init__(self, link: Link, memory: Callable[[], str]) -> None:
        self.link = link
        self.memory = memory
        self._open: dict[str, PostgresJournal] = {}

    @property
    def where(self) -> str:
        """Host, database and memory."""
        return f"{self.link.shown}/{self.memory()}"

    def journal(self, name: str) -> PostgresJournal:
        """The journal of this name; its stream is made by the first append."""
        if name not in self._open:
            check_name(name)
            self._open[name] = PostgresJournal(self.link, self.memory, name)
        return self._open[name]

    def names(self) -> list[str]:
        """The names of all journals that are there."""
        rows = self.link.run(lambda talk: talk.rows(_NAMES, [self.memory()]))
        return sorted(row[0] for row in rows)

    def prepare(self) -> None:
        """Nothing must be made: tables come with the connection, streams with a record."""

    def newest_at(self, name: str) -> str:
        """When the newest record of a journal was made, from its end alone; "" if unclear."""
        rows = self.link.run(lambda talk: talk.rows(_NEWEST, [self.memory(), name]))
        return max((row[0] for row in rows), default="")

    def size_bytes(self, name: str) -> int:
        """About how much there is to read in a journal; of a very long one only a part."""
        return int(self.link.run(lambda talk: talk.rows(_SIZE, [self.memory(), name]))[0][0])

    def trouble(self) -> str | None:
        """Why the server was not reached the last time; None where it was."""
        why = self.link.trouble
        return None if why is None else f"{self.link.shown}: {why}"

    def deliver(self) -> int:
        """Nothing waits here: what the server does not take is refused."""
        return 0

    def listener(self) -> Listener:
        """What wakes whoever follows these journals; it has a connection of its own."""
        return Listener(self.link, self.memory)

    def close(self) -> None:
        """Let go of the connection; it opens again by itself."""
        self.link.close()


class Listener:
    """Wakes up when something was written to a memory. Begin to listen, look, then wait."""

    def __init__(self, link: Link, memory: Callable[[], str]) -> None:
        self._link = link
        self._memory = memory
        self._talk: DatabaseSession | None = None
        self._closed = threading.Event()

    def listen(self) -> bool:
        """Listen from now on; False where the server is not reached, or lets nobody listen."""
        need_driver()
        from psycopg import Error

        if self._talk is None or self._talk.lost:
            try:
                talk = self._link.open()
            except JournalDown:
                return False
            try:
                talk.rows(f"LISTEN {CHANNEL}")
            except Error:  # a standby refuses; whoever waits looks when his time is over
                talk.close()
                return False
            self._talk = talk
        return True

    def wait(self, timeout_s: float) -> bool:
        """Whether something may have happened; False when the time went by without a sign.

        A connection that broke is a sign too: what happened meanwhile was not heard.
        """
        need_driver()
        from psycopg import Error

        heard = self._talk is not None and not self._talk.lost
        deadline = time.monotonic() + timeout_s
        try:
            if self._closed.is_set() or not self.listen():
                self._closed.wait(max(0.0, deadline - time.monotonic()))
                return False
            if not heard:
                return True
            return self._heard(deadline)
        except Error:
            self.drop()
            return True

    def _heard(self, deadline: float) -> bool:
        assert self._talk is not None
        mine = self._memory()
        connection = self._talk.connection
        while (left_s := deadline - time.monotonic()) > 0:
            heard = [*connection.notifies(timeout=left_s, stop_after=1)]
            heard += connection.notifies(timeout=0)  # what came together is told together
            if any(note.payload.partition("\n")[0] == mine for note in heard):
                return True
        return False

    def drop(self) -> None:
        """Let go of the connection; the next wait makes another."""
        if self._talk is not None:
            self._talk.close()
        self._talk = None

    def close(self) -> None:
        """End it; somebody who waits for a server that is down is let go."""
        self._closed.set()
        self.drop()

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
