"""A progress bar on stderr: only on a terminal, and only for work that takes its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ralph.doors.cli.page import is_terminal, raw

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_S = 0.5


class Bar:
    """Told how many records are done; several runs one after another add up."""

    def __init__(self, total: Callable[[], int], *, patience_s: float = _PATIENCE_S) -> None:
        self._total = total
        self._due = time.monotonic() + patience_s
        self._shown: tuple[Progress, TaskID] | None = None
        self._wanted = is_terminal(sys.stderr)
        self._before = self._last = 0

    def __call__(self, done: int) -> None:
        """Move to `done`; a smaller number than the last begins the next run."""
        if not self._wanted:
            return
        if done < self._last:
            self._before += self._last
        self._last = done
        if self._shown is None and time.monotonic() >= self._due:
            self._shown = self._show()
        if self._shown is not None:
            bar, task = self._shown
            bar.update(task, completed=self._before + done)

    def close(self) -> None:
        """Take the bar away; the answer comes next."""
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None
        self._wanted = False

    def _show(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as TimeLeft

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeLeft(),
            console=Console(file=raw(sys.stderr)),
            transient=True,
        )
        task = bar.add_task("indexing the journal", total=self._total())
        bar.start()
        return bar, task
