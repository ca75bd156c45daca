"""Speaking with PostgreSQL over one connection, never waiting longer than was allowed."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

Row = tuple[Any, ...]
_TICK_S = 0.5
_IDLE_S = 5.0


class DatabaseSession:
    """One connection. Whoever gives no answer in time is cut off, and the connection is lost.

    After a fork it is the parent's alone: to the child it is lost, and never said good-bye on.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Row],
        *,
        answer_timeout_s: float,
        lock_timeout_s: float,
    ) -> None:
        self.connection = connection
        self._answer_timeout_s = answer_timeout_s
        self._lock_timeout_s = lock_timeout_s
        self._watch = _AnswerTimer(self._cut)
        self._pid = os.getpid()

    @property
    def lost(self) -> bool:
        """Whether the connection is of no use any more."""
        return self.connection.closed or self._pid != os.getpid()

    def rows(self, sql: str, params: Sequence[object] = (), *, waits: bool = False) -> list[Row]:
        """The statement's rows; `waits` says that it may wait for a lock before it answers."""
        with self._watched(waits):
            cursor = self.connection.execute(sql.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def script(self, sql: str) -> None:
        """Run many statements at once."""
        with self._watched(waits=True):
            self.connection.execute(sql.encode())

    @contextlib.contextmanager
    def transaction(self, *, snapshot: bool = False) -> Iterator[None]:
        """All of it or nothing; with `snapshot` every statement sees the same moment."""
        level = "REPEATABLE READ READ ONLY" if snapshot else "READ COMMITTED"
        self.rows(f"BEGIN ISOLATION LEVEL {level}")
        try:
            yield
        except BaseException:
            if not self.lost:
                self.rows("ROLLBACK")
            raise
        self.rows("COMMIT")  # it waits for no lock, and whose answer is late can be asked about

    def close(self) -> None:
        """Say good-bye; never raises."""
        if self._pid != os.getpid():
            return
        with contextlib.suppress(Exception):
            self.connection.close()

    def _watched(self, waits: bool) -> contextlib.AbstractContextManager[None]:
        return self._watch.within(self._answer_timeout_s + (self._lock_timeout_s if waits else 0.0))

    def _cut(self) -> None:
        if not self.lost:
            _shut(self.connection.fileno())


class _AnswerTimer:
    """Calls `late` when something takes too long. Its thread comes with the first use, looks at
    the clock about once a second, and goes when nobody has needed it for a while."""

    def __init__(self, late: Callable[[], None]) -> None:
        self._late = late
        self._gate = threading.Lock()
        self._deadline: float | None = None
        self._used = 0.0
        self._running = False

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        with self._gate:
            self._used = time.monotonic()
            self._deadline = self._used + seconds
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, daemon=True, name="ralph-watch").start()
        try:
            yield
        finally:
            with self._gate:  # what is late must still be what it was
                self._deadline = None

    def _run(self) -> None:
        tick_s = _TICK_S
        while True:
            time.sleep(tick_s)
            with self._gate:
                now_s = time.monotonic()
                if self._deadline is not None and now_s >= self._deadline:
                    self._deadline = None
                    self._late()
                elif self._deadline is not None:
                    tick_s = min(_TICK_S, self._deadline - now_s)
                elif now_s - self._used > _IDLE_S:
                    self._running = False
                    return
                else:
                    tick_s = _TICK_S


def _shut(descriptor: int) -> None:
    """End the traffic on a socket: whoever waits for it gets an error instead."""
    copy = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
    with copy, contextlib.suppress(OSError):  # it is down already
        copy.shutdown(socket.SHUT_RDWR)
