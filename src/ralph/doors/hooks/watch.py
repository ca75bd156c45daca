"""The clock of a hook: when its time is over the process ends, with 0, wherever it is.

Ending there loses nothing: journals and index are written all or nothing, and a session that was
not captured is picked up by a later hook.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable


class Watch:
    """Ends the process when its time is over, unless it was called off before."""

    def __init__(self, limit_s: float, on_end: Callable[[float], None]) -> None:
        self._began = time.monotonic()
        self._limit_s = limit_s
        self._on_end = on_end
        self._off = False
        self._changed = _thread.allocate_lock()
        self._changed.acquire()
        # Not `threading`, which takes a millisecond to load. A thread and no signal: SQLite and
        # locks wait in C, where a signal's handler would not run.
        _thread.start_new_thread(self._wait, ())

    def limit(self, limit_s: float) -> None:
        """So many seconds in all, counted from the beginning."""
        self._limit_s = limit_s
        self._wake()

    def left_s(self) -> float:
        """How much time is left."""
        return max(0.0, self._began + self._limit_s - time.monotonic())

    def stop(self) -> None:
        """Nothing is ended any more."""
        self._off = True
        self._wake()

    def _wake(self) -> None:
        if self._changed.locked():
            self._changed.release()

    def _wait(self) -> None:
        while not self._off and (left_s := self.left_s()):
            self._changed.acquire(timeout=left_s)
        if not self._off:
            self._on_end(self._limit_s)
            os._exit(0)
