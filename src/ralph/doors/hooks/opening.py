"""From a hook's call to open memories, with waits that fit into the hook's time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.config import PROJECT_FILE, Settings, load, within
from ralph.errors import BadInput
from ralph.memories.focus import Focus, read_focus
from ralph.memories.ralph import open_ralph

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call
    from ralph.memories.ralph import Ralph

_LIMITS = {"stop-failure": "hook_stop_s"}
# Shares of a hook's time that single waits may take, and reaching a server.
_SHARES = {
    "journal_lock_timeout_s": 0.3,
    "index_lock_timeout_s": 0.1,
    "remember_budget_s": 0.3,
    "journal_connect_timeout_s": 0.3,
    "qdrant_timeout_s": 0.6,
}


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
    waits: dict[str, Any] = {key: within(key, left_s * one) for key, one in _SHARES.items()}
    with (
        _warnings_noted(call),
        open_ralph(call.root, home=call.home, **waits) as ralph,
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
