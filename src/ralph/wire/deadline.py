"""How long something may take."""

from __future__ import annotations

import time


class Deadline:
    """A moment by which something must be over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that remain, never less than none."""
        return max(0.0, self._end - time.monotonic())

    def within(self, seconds: float) -> Deadline:
        """The sooner one of this and so many seconds from now."""
        return Deadline(min(self.left(), seconds))
