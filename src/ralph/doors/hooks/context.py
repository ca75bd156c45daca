"""From a hook's call to open memories, with waits that fit into the hook's time."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.config import PROJECT_FILE, Settings, load, within
from ralph.disk import state_folder
from ralph.doors.hooks import files
from ralph.errors import BadInput
from ralph.memory.project import Focus, read_focus
from ralph.memory.ralph import open_ralph
from ralph.plan.store import Plan
from ralph.plan.values import View

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call
    from ralph.memory.ralph import Ralph


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


# -- The plan as a hook reads it: what can be read, whatever state it is in.


def plan_view(call: Call) -> View:
    """Features and tasks; files that cannot be read are a line in the log, and there are none."""
    try:
        state = Path(state_folder(call.root, call.home))
        return Plan(Path(call.root), state=state).read("features", "tasks")
    except (BadInput, OSError) as error:
        call.fault(error)
        return View()


# -- Whether the journals are on a server, found out without loading anything.


_SETTING = "journal_url"


def on_a_server(home: str) -> bool:
    """Whether an address is set; what it is, whoever opens the journals reads for himself."""
    variable = os.environ.get(f"RALPH_{_SETTING.upper()}")
    if variable is not None:
        return bool(variable)
    try:
        return _SETTING.encode() in files.read(os.path.join(home, "config.json"))
    except OSError:
        return False
