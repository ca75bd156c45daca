"""Waking the workers when another machine has written to the journal they follow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from ralph.errors import RalphError
from ralph.memory.ralph import Ralph

# How soon it notices that it is to end.
_SLICE_S = 0.5


class Ear(threading.Thread):
    """Listens where the journal is on a server, and calls `heard`; with files it ends at once."""

    def __init__(self, open_memory: Callable[[], Ralph], heard: Callable[[], None]) -> None:
        super().__init__(name="ralph-listening", daemon=True)
        self._open = open_memory
        self._heard = heard
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Listen until it is stopped; without a sign the workers look by themselves."""
        with suppress(RalphError, OSError), self._open() as ralph:
            listener = ralph.conversations.shelf.journals.listener()
            if listener is None:
                return
            try:
                while not self._ended.is_set():
                    if listener.wait(_SLICE_S):
                        self._heard()
            finally:
                listener.close()

    def end(self, timeout_s: float) -> None:
        """Listen no longer."""
        self._ended.set()
        self.join(timeout_s)
