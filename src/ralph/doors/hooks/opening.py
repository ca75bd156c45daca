"""From a hook's call to open memories, with waits that fit into the hook's time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.config import PROJECT_FILE, Settings, load
from ralph.errors import BadInput
from ralph.memories.focus import Focus, read_focus
from ralph.memories.ralph import open_ralph

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call
    from ralph.memories.ralph import Ralph

_LIMITS = {"stop-failure": "hook_stop_s"}
# Shares of a hook's time that single waits may take.
_FOR_JOURNAL, _FOR_INDEX_LOCK, _FOR_INDEXING = 0.3, 0.1, 0.3
# And those that reaching a server may take.
_FOR_CONNECTING, _FOR_QDRANT = 0.3, 0.6
_SHORTEST_S = 0.1


def settings_of(call: Call) -> Settings:
    """The settings in force for this project; from now on the hook's clock follows them."""
    file = Path(call.root) / ".ralph" / PROJECT_FILE
    settings = load(home=Path(call.home), project_file=file).settings
    name = _LIMITS.get(call.event, f"hook_{call.event.replace('-', '_')}_s")
    call.watch.limit(getattr(settings, name))
    return settings


@contextlib.contextmanager
def opened(call: Call) -> Iterator[Ralph]:
    """The project's memories; what they warn of goes to the log."""
    left_s = call.watch.left_s()
    with (
        _warnings_noted(call),
        open_ralph(
            call.root,
            home=call.home,
            journal_lock_timeout_s=left_s * _FOR_JOURNAL,
            index_lock_timeout_s=left_s * _FOR_INDEX_LOCK,
            remember_budget_s=left_s * _FOR_INDEXING,
            journal_connect_timeout_s=max(_SHORTEST_S, left_s * _FOR_CONNECTING),
            qdrant_timeout_s=max(_SHORTEST_S, left_s * _FOR_QDRANT),
        ) as ralph,
    ):
        yield ralph


def focus_of(call: Call, ralph: Ralph) -> Focus | None:
    """What a person set; a file that cannot be read is a line in the log."""
    try:
        return read_focus(ralph.project)
    except (BadInput, OSError) as error:
        call.fault(error)
        return None


@contextlib.contextmanager
def _warnings_noted(call: Call) -> Iterator[None]:
    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            call.note(record.getMessage())

    logger = logging.getLogger("ralph")
    handler, passed_on = Noting(logging.WARNING), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False  # nothing may reach the client's screen
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = passed_on
