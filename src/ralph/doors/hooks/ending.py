"""Stop, StopFailure, SessionEnd, PreCompact: what was said and done goes into memory.

The transcript is read from where it was last captured. An exchange under way counts as over at
Stop and StopFailure, whose input has the last message the transcript may still lack, and at
SessionEnd as far as it got; PreCompact leaves it to those.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ralph import disk
from ralph.doors.hooks import own_files
from ralph.doors.hooks.opening import focus_of, opened, settings_of
from ralph.doors.hooks.planned import plan_view
from ralph.doors.hooks.reading import Reading
from ralph.doors.hooks.starting import refresh
from ralph.errors import JournalBusy, JournalError, MemoryOff, RecordForgotten
from ralph.kinds.iteration import ErrorSeen
from ralph.memories.pausing import unpaused
from ralph.memories.sessions import keep_exchanges, keep_iteration, unkept, work_of
from ralph.text.signature import signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph.capture.exchanges import ExchangeSeen
    from ralph.doors.hooks.call import Call
    from ralph.doors.hooks.sessions import Session
    from ralph.memories.ralph import Ralph

_LOCK = "lock"
_OVER = ("stop", "stop-failure")
# Shares of the time left: for whoever captures at the same time, for reading this session and those
# that were left behind, and for the index.
_FOR_LOCK, _FOR_READING, _FOR_OTHERS, _FOR_INDEX = 0.3, 0.6, 0.4, 0.5
# The text for the next session is made now only if this much time is left.
_ENOUGH_S = 0.4


def keep(call: Call) -> None:
    """Capture the session of this call, and on Stop also those that were left behind."""
    settings = settings_of(call)
    sessions = call.sessions
    if not call.session:
        call.note("the input names no session", "session_id")
        return
    if not settings.hook_capture:
        sessions.end(call.session)
        return
    session = sessions.read(call.session)
    session.transcript = call.transcript or session.transcript
    if not session.transcript:
        call.note("the input names no transcript", "transcript_path")
        return
    with opened(call) as ralph:
        try:
            fresh = _captured(call, ralph, session, for_reading=_FOR_READING)
        except disk.Busy:
            call.note("another hook is capturing; this is left to a later one", call.own_folder)
            return
        if call.event == "session-end" and not session.under_way:
            sessions.end(session.name)
        if call.event == "stop":
            _recovered(call, ralph, sessions.left_behind(but=call.session))
        if fresh:
            _indexed(call, ralph)


def recover(call: Call, left: Sequence[Session]) -> None:
    """Capture sessions whose client is gone and called no hook at its end."""
    if not settings_of(call).hook_capture:
        for session in left:
            call.sessions.end(session.name)
        return
    with opened(call) as ralph:
        _recovered(call, ralph, left)


def _recovered(call: Call, ralph: Ralph, left: Sequence[Session]) -> None:
    for session in left:
        call.sessions.trying(session.name)
        try:
            _captured(call, ralph, session, for_reading=_FOR_OTHERS, gone=True)
        except (JournalError, OSError, disk.Busy) as error:
            call.fault(error, session.transcript)
            continue
        if not session.under_way:
            call.sessions.end(session.name)


def _captured(
    call: Call, ralph: Ralph, session: Session, *, for_reading: float, gone: bool = False
) -> bool:
    """Keep what the session's transcript has beyond what was captured; whether that was any.

    What cannot be read within its share of the time is left to a later hook.
    """
    lock = Path(own_files.folder(call.own_folder)) / _LOCK
    with disk.locked(lock, timeout_s=call.watch.left_s() * _FOR_LOCK):
        reading = Reading(Path(session.transcript), root=call.root, offset=session.offset)
        left_s = call.watch.left_s() * (1 - for_reading)
        seen = reading.finished(lambda: call.watch.left_s() > left_s)
        rest = reading.rest() if reading.complete else None
        if rest is not None and gone:
            seen.append(_with_noted(rest, session))
        elif rest is not None and call.event == "session-end":
            seen.append(rest)
        elif rest is not None and call.event in _OVER:
            seen.append(reading.ended(call))
        fresh = _kept(call, ralph, session, seen, reading.title)
        if not reading.complete:
            call.note("a long transcript is read on by a later hook", session.transcript)
        under_way = not reading.complete or (rest is not None and not _is_last(rest, seen))
        # At Stop there was a prompt, though it may not be written yet.
        unseen = session.under_way and not seen and call.event in _OVER and not gone
        if seen or reading.complete:
            offset = reading.begins_at if under_way else reading.ends_at
            call.sessions.keep(session, offset, under_way=under_way or unseen)
    return fresh


def _is_last(one: ExchangeSeen, seen: Sequence[ExchangeSeen]) -> bool:
    return bool(seen) and seen[-1].key == one.key


def _kept(
    call: Call, ralph: Ralph, session: Session, seen: Sequence[ExchangeSeen], title: str | None
) -> bool:
    unknown = unkept(ralph, seen, session=session.name) if seen else []
    new = unpaused(ralph, unknown, session=session.name)
    if not new:
        return False
    # What was held in a pause may have given the session its title.
    title = title if len(new) == len(unknown) and not session.offset else None
    view, focus = plan_view(call), focus_of(call, ralph)
    for one in new:
        work = work_of(one, view, focus)
        if work is None:
            continue
        try:
            keep_iteration(ralph, one, work, session=session.name)
        except JournalBusy:
            raise  # it is free again later; nothing is noted as captured until then
        except (JournalError, RecordForgotten) as error:
            call.fault(error)  # what cannot be written here must not keep the conversation away
    # Last: an exchange that is kept is settled, also for whoever comes after a hook was killed.
    keep_exchanges(ralph, new, session=session.name, title=title)
    return True


def _indexed(call: Call, ralph: Ralph) -> None:
    """Make what was kept findable, and the next session's beginning ready, if time is left."""
    try:
        ralph.conversations.sync(budget_s=call.watch.left_s() * _FOR_INDEX)
    except MemoryOff as error:
        call.fault(error)  # the journal has it; the next search catches up
    if call.watch.left_s() > _ENOUGH_S:
        refresh(call, ralph)


def _with_noted(seen: ExchangeSeen, session: Session) -> ExchangeSeen:
    """The exchange with the errors that were noted when they came up; the client died on them."""
    captured = seen.captured
    errors = list(captured.errors)
    known = {signature(error.message) for error in errors}
    for plain in session.errors:
        message = plain.get("message", "")
        if message and signature(message) not in known:
            known.add(signature(message))
            errors.append(ErrorSeen(message))
    captured = msgspec.structs.replace(captured, errors=tuple(errors))
    return msgspec.structs.replace(seen, captured=captured)
