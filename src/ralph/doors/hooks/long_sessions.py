"""Capture and index what is too much for a hook, in a process that nobody waits for.

A hook has a few seconds, and its client waits for it. So it reads a short part of a transcript
itself and leaves a longer one to this process, which saves part after part and notes after each how
far it got. If it is killed, the next hook of any session starts it again from there. In the end it
indexes everything that a hook searches. A hook that finds much of it not indexed starts it, too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ralph import disk
from ralph.errors import MemoryOff
from ralph.programs import start_detached
from ralph.recall import SESSION

if TYPE_CHECKING:
    from ralph.doors.hooks.call import HookCall
    from ralph.doors.hooks.sessions import Session

CAPTURE = "capture"
# A hook leaves more than this to the process.
LONG_BYTES = 4 * 1024 * 1024
# The process ends after this time. Later hooks start it again for the rest.
_LIMIT_S = 3600.0
# A client may write the last line of an answer a moment after it calls the hook.
_SETTLE_S = 1.0
# How long the process leaves the lock to hooks after each part.
_PAUSE_S = 0.1
_LOCK_S = 60.0


def is_long(session: Session, transcript: str) -> bool:
    """Whether so much of the transcript is not captured yet that a hook should not read it."""
    try:
        return Path(transcript).stat().st_size - session.offset > LONG_BYTES
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return False


def start_capture(call: HookCall, name: str) -> None:
    """Start the process for a session, unless one is running for this folder."""
    _start(call, name, f"a long transcript is captured in the background ({name})")


def start_indexing(call: HookCall) -> None:
    """Start the process for the index alone, unless one is running for this folder."""
    _start(call, "", "much is new and is indexed in the background")


def _start(call: HookCall, name: str, what: str) -> None:
    disk.make_folder(call.own_folder)
    try:
        with disk.lock(_lock_file(call), timeout_s=0.0):
            pass
    except disk.Busy:
        return  # it looks for more sessions before it ends
    call.note(what)
    start_detached(["hook", CAPTURE, call.root, name], call.home)


def run_capture(argv: list[str]) -> int:
    """Capture the named session whole, then others that were left behind, and index everything.

    Without a name, only index.
    """
    from ralph.doors.hooks.answers import refresh
    from ralph.doors.hooks.call import HookCall, HookTimer
    from ralph.doors.hooks.context import open_memory, settings_of
    from ralph.doors.hooks.session_end import capture_part

    root, name = argv
    home = disk.home()
    # Ends the process at any point: journals are written all or nothing.
    watch = HookTimer(_LIMIT_S, lambda _: None)
    call = HookCall(CAPTURE, {}, root, home, watch)
    disk.make_folder(call.own_folder)
    try:
        with disk.lock(_lock_file(call), timeout_s=0.0):
            if not settings_of(call).hook_capture:
                return 0
            watch.limit_s = _LIMIT_S
            session: Session | None = None
            if name:
                time.sleep(_SETTLE_S)
                session = call.sessions.read(name)
            while session is not None:
                complete = False
                while not complete:
                    # Opened anew for each part, so that memory does not grow with the transcript.
                    with open_memory(call) as ralph:
                        complete = capture_part(call, ralph, session, lock_s=_LOCK_S).complete
                    time.sleep(_PAUSE_S)
                due = (each for each in call.sessions.due("") if each.name != session.name)
                session = next((each for each in due if is_long(each, each.transcript)), None)
            with open_memory(call) as ralph:
                if not ralph.remote:
                    # Without a limit of time, a search first indexes all that it looks at.
                    ralph.search("everything", limit=1, scope=SESSION)
                    refresh(call, ralph)
    except disk.Busy:
        pass  # another process captures, and notes of hooks tell it about this session
    except MemoryOff as error:
        call.fault(error, root)  # it is in the journal; the next search indexes it
    except Exception as error:  # noqa: BLE001 - only the log can report it
        call.fault(error, root)
    watch.stop()
    return 0


def _lock_file(call: HookCall) -> Path:
    return Path(call.own_folder) / "long-sessions.lock"
