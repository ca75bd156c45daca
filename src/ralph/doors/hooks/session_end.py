"""Stop, StopFailure, SessionEnd, PreCompact: save what was said and done.

We read the transcript from where it was last captured. Stop and StopFailure save the current
exchange as over; their input has the last message, which the transcript may still lack. SessionEnd
saves it as far as it got, and PreCompact leaves it to the others. An exchange that begins after
where the transcript ended at the event is a new one, started while this hook was waiting.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ralph import disk
from ralph.capture.lines import SessionExchange, SessionHead, SessionReader, SessionStart
from ralph.clients import BY_AGENT
from ralph.clients.drift import save_counts
from ralph.doors.hooks.answers import refresh
from ralph.doors.hooks.call import CLAUDE, start_due_worker
from ralph.doors.hooks.context import focus_of, open_memory, plan_view, settings_of
from ralph.doors.hooks.long_sessions import LONG_BYTES, is_long, start_capture
from ralph.doors.hooks.messages import saved_message
from ralph.errors import JournalBusy, JournalError, MemoryOff, RecordForgotten
from ralph.memory.activity import note_activity
from ralph.memory.pausing import unpaused
from ralph.memory.sessions import keep_exchanges, keep_iteration, unkept, work_of
from ralph.records import now
from ralph.records.iteration import ErrorSeen
from ralph.text.signature import signature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralph.doors.hooks.call import HookCall
    from ralph.doors.hooks.sessions import Session
    from ralph.memory.ralph import Ralph


# -- A session's transcript, read from where it was last captured.


# How many lines to read before checking the clock.
_LINES_PER_CHECK = 100
# How much to read before it is saved: limits memory, and how long others wait for the lock.
_PART_BYTES = 2 * LONG_BYTES


class TranscriptReader:
    """Reads a transcript; `complete` once it has read every whole line."""

    def __init__(self, file: Path, *, root: str, offset: int, agent: str = CLAUDE) -> None:
        self._file = file
        self._agent = agent
        files = BY_AGENT[agent].program.sessions()
        self.complete = False
        self._last_end = 0
        with file.open("rb") as opened_file:
            # Continue from there, unless this is no longer the same file.
            if 0 < offset <= opened_file.seek(0, 2):
                opened_file.seek(offset - 1)
                self._last_end = offset if opened_file.read(1) == b"\n" else 0
            opened_file.seek(0)
            head = files.session_head(file, opened_file) or SessionHead()
            start = SessionStart(file.name, root, head, self._last_end)
            self.exchanges = files.session_reader(start)
            self.exchanges.look_back(opened_file)

    def read_finished(self, time_left: Callable[[], bool]) -> list[SessionExchange]:
        """Return the next exchanges that another one followed, as far as time allows."""
        found: list[SessionExchange] = []
        bytes_read = 0
        with self._file.open("rb") as file:
            file.seek(self._last_end)
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # the client is still writing it
                if number % _LINES_PER_CHECK == 0 and not time_left():
                    return found
                if found and bytes_read > _PART_BYTES:
                    return found
                bytes_read += len(line)
                found += self.exchanges.feed(line)
                self._last_end = found[-1].ends_at if found else self._last_end
        self.complete = True
        return found

    def is_spent(self, spool: str) -> bool:
        """Whether the file holds lines that hooks got as input, and all of them have been read.

        Such a file is our own, so we delete it once it is captured.
        """
        file = self._file
        return str(file.parent) == spool and file.stat().st_size <= self.exchanges.ends_at

    @property
    def begins_at(self) -> int:
        """Where the current exchange begins, or else the part that is not captured yet."""
        exchange = self.open_exchange()
        return exchange.begins_at if exchange is not None else self._last_end

    def open_exchange(self) -> SessionExchange | None:
        """Return the current exchange, if there is one."""
        return next(iter(self.exchanges.rest()), None)

    def close_exchange(self, call: HookCall) -> SessionExchange:
        """Return the current exchange as over, with its last message even if not written yet."""
        exchange = self.exchanges.rest()[0]
        text = call.text("last_assistant_message")
        failed = call.event == "stop-failure"
        lacks_end = exchange.captured.terminal_reason == "unknown"
        if failed:
            text = text or call.text("error_details") or call.text("error") or "the request failed"
            lacks_end = exchange.status != "failed"
        if lacks_end and text and self._agent == CLAUDE:  # others write it before calling the hook
            # The message came right after what the transcript has, which may be read much later.
            at = exchange.captured.ended_at or now()
            self.exchanges.feed(_line(call, text, at, failed=failed))
            exchange = self.exchanges.rest()[0]
        return exchange if failed else self.as_complete(exchange)

    def as_complete(self, exchange: SessionExchange) -> SessionExchange:
        """Return the exchange as complete: Stop ended it, even if the transcript lacks its end."""
        if exchange.captured.terminal_reason != "unknown":
            return exchange
        return msgspec.structs.replace(exchange, status="complete")


def _line(call: HookCall, text: str, at: str, *, failed: bool) -> bytes:
    """Return the line that the client is about to write."""
    content = [{"type": "text", "text": text}]
    message = {"role": "assistant", "content": content, "stop_reason": "end_turn"}
    line: dict[str, Any] = {"type": "assistant", "message": message, "timestamp": at}
    line["sessionId"] = call.session
    if failed:
        line |= {"isApiErrorMessage": True, "error": call.text("error")}
    return json.dumps(line).encode() + b"\n"


class CapturedPart(NamedTuple):
    """What capturing a part of a transcript came to.

    `fresh`: something was saved. `under_way`: something is left to capture. `complete`: the
    transcript was read to its end.
    """

    fresh: bool
    under_way: bool
    complete: bool


_LOCK = "lock"
_OVER = ("stop", "stop-failure")
# Shares of the remaining time: to wait for another capture, to read this session, to read sessions
# that were left behind, and to update the index.
_FOR_LOCK = 0.3
_FOR_READING = 0.6
_FOR_OTHERS = 0.4
_FOR_INDEX = 0.5
# Make the text for the next session only if this much time is left.
_ENOUGH_S = 0.4


def keep(call: HookCall) -> None:
    """Capture the session of this call, and then those that were left behind."""
    settings = settings_of(call)
    sessions = call.sessions
    if not call.session:
        call.note("the input names no session", "session_id")
        return
    if not settings.hook_capture:
        _drop(call, sessions.read(call.session))
        return
    transcript = call.transcript or sessions.read(call.session).transcript
    if not transcript:
        call.note("the input names no transcript", "transcript_path")
        return
    if Path(transcript).parent == Path(call.spool) and not Path(transcript).exists():
        return  # everything that hooks passed on is captured
    session = sessions.read(call.session)
    session.transcript = transcript
    if is_long(session, transcript):
        start_capture(call, call.session)
        call.done = True
        return
    with open_memory(call) as ralph:
        lock_s = call.watch.left_s() * _FOR_LOCK
        try:
            fresh, under_way, complete = capture_part(call, ralph, session, lock_s=lock_s)
            if fresh and settings.hook_messages:
                call.message = saved_message(call)
        except disk.Busy:
            call.note("another hook is capturing; this is left to a later one", call.own_folder)
            return
        call.done = True
        if call.event == "session-end" and not under_way:
            sessions.end(call.session)
        if not complete:
            start_capture(call, call.session)
        # A worker has more time for the index.
        fresh &= not (call.event == "session-end" and start_due_worker(call))
        _recover(call, ralph, sessions.due(call.session))
        if fresh:
            _index(call, ralph)


def recover(call: HookCall, due: Sequence[Session]) -> None:
    """Capture sessions that a hook did not finish, or whose client ended without calling one."""
    if not settings_of(call).hook_capture:
        for session in due:
            _drop(call, session)
        return
    with open_memory(call) as ralph:
        _recover(call, ralph, due)


def _drop(call: HookCall, session: Session) -> None:
    """Delete the session's notes and lines, because capturing is off."""
    call.sessions.end(session.name)
    if Path(session.transcript).parent == Path(call.spool):
        Path(session.transcript).unlink(missing_ok=True)


def _recover(call: HookCall, ralph: Ralph, due: Sequence[Session]) -> None:
    for session in due:
        call.sessions.note_try(session.name)
        if is_long(session, session.transcript):
            start_capture(call, session.name)
            continue
        try:
            fresh, under_way, _ = capture_part(call, ralph, session)
        except disk.Busy:
            return  # another hook is capturing, and will do these too
        except (JournalError, OSError) as error:
            call.fault(error, session.transcript)
            continue
        if fresh and session.over_at is not None:
            call.note("kept what an earlier hook had no time for", session.transcript)
        if not under_way and session.name != call.session and session.is_abandoned():
            call.sessions.end(session.name)


def capture_part(
    call: HookCall, ralph: Ralph, left_behind: Session, *, lock_s: float = 0.0
) -> CapturedPart:
    """Save the next part of a session's transcript that is not captured yet.

    What cannot be read in time is left to a later hook.
    """
    name = left_behind.name
    transcript = left_behind.transcript
    own = name == call.session
    disk.make_folder(call.own_folder)
    with disk.lock(Path(call.own_folder) / _LOCK, timeout_s=lock_s):
        # Read it under the lock: the last holder may have captured the session.
        session = call.sessions.read(name)
        session.transcript = transcript
        session.agent = call.agent if own else session.agent
        reader = TranscriptReader(
            Path(transcript), agent=session.agent, root=call.root, offset=session.offset
        )
        left_s = call.watch.left_s() * (1 - (_FOR_READING if own else _FOR_OTHERS))
        exchanges = reader.read_finished(lambda: call.watch.left_s() > left_s)
        exchange = reader.open_exchange() if reader.complete else None
        if exchange and (last := _last_exchange(call, session, reader, exchange)) is not None:
            exchanges.append(last)
        fresh = _save(call, ralph, session, exchanges, reader.exchanges.title)
        _note_drift(call, session.agent, reader.exchanges)
        last_seen = exchange is None or (bool(exchanges) and exchanges[-1].key == exchange.key)
        under_way = not (reader.complete and last_seen)
        offset = reader.begins_at if under_way else reader.exchanges.ends_at
        # At Stop there was a prompt, even if it is not written yet.
        under_way |= session.under_way and not exchanges and own and call.event in _OVER
        if exchanges or reader.complete:
            spent = not under_way and reader.is_spent(call.spool)
            offset = 0 if spent else offset
            call.sessions.keep(session, offset, under_way=under_way, complete=reader.complete)
            if spent:
                Path(transcript).unlink()
    return CapturedPart(fresh, under_way, reader.complete)


def _note_drift(call: HookCall, agent: str, reader: SessionReader) -> None:
    """Note what the client wrote that this version of Ralph does not know."""
    save_counts(Path(call.home), BY_AGENT[agent].source, reader.version, reader.met)


def _last_exchange(
    call: HookCall, session: Session, reader: TranscriptReader, exchange: SessionExchange
) -> SessionExchange | None:
    """Return the last exchange of a transcript, if it is over."""
    own = session.name == call.session
    if not own and session.is_abandoned():
        return _with_errors(exchange, session)
    over_at = call.over_at if own and session.over_at is None else session.over_at
    if over_at is None or exchange.begins_at >= over_at:
        ended = exchange.captured.terminal_reason != "unknown"
        return exchange if not own and ended and session.is_quiet() else None
    if own and call.event in _OVER:
        return reader.close_exchange(call)
    return reader.as_complete(exchange) if session.over_by == "stop" else exchange


def _save(
    call: HookCall,
    ralph: Ralph,
    session: Session,
    exchanges: list[SessionExchange],
    title: str | None,
) -> bool:
    names = {"session": session.name, "source": BY_AGENT[session.agent].source}
    unknown = unkept(ralph, exchanges, **names) if exchanges else []
    new = unpaused(ralph, unknown, **names)
    if not new:
        return False
    # The title may come from an exchange held during a pause.
    title = title if len(new) == len(unknown) and not session.offset else None
    view = plan_view(call)
    focus = focus_of(call, ralph)
    for one in new:
        work = work_of(one, view, focus) if ralph.project.exists else None
        if work is None:
            continue
        try:
            keep_iteration(ralph, one, work, **names)
        except JournalBusy:
            raise  # try again later; until then nothing counts as captured
        except (JournalError, RecordForgotten) as error:
            call.fault(error)  # a failed iteration must not prevent saving the conversation
    # Save exchanges last: a saved one counts as done, even if this hook is killed right after.
    keep_exchanges(ralph, new, title=title, **names)
    note_activity(call.own_folder, call.event, session.name, saved=len(new))
    return True


def _index(call: HookCall, ralph: Ralph) -> None:
    """Index what was saved, and make the next session's text if time is left."""
    if ralph.remote:
        return
    try:
        ralph.conversations.sync(budget_s=call.watch.left_s() * _FOR_INDEX)
    except MemoryOff as error:
        call.fault(error)  # it is in the journal; the next search indexes it
    if call.watch.left_s() > _ENOUGH_S:
        refresh(call, ralph)


def _with_errors(exchange: SessionExchange, session: Session) -> SessionExchange:
    """Add the errors noted during the exchange, which a client that died may not have written."""
    captured = exchange.captured
    errors = list(captured.errors)
    known = {signature(error.message) for error in errors}
    for plain in session.errors:
        message = plain.get("message", "")
        if message and signature(message) not in known:
            known.add(signature(message))
            errors.append(ErrorSeen(message))
    captured = msgspec.structs.replace(captured, errors=tuple(errors))
    return msgspec.structs.replace(exchange, captured=captured)
