"""Work that takes longer than a view may: it runs on a thread of its own, once at a time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class BackgroundTask(ABC):
    """A task of the page; its attributes say how far it is and how it ended."""

    def __init__(self) -> None:
        self.error = ""
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the task is running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the task, unless it is running."""
        if not self.running:
            name = f"page-{type(self).__name__}"
            self._thread = threading.Thread(target=self._run, daemon=True, name=name)
            self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the task has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @abstractmethod
    def _run(self) -> None:
        """Do the work; set `error` if it fails."""
