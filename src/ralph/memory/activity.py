"""The activity log: which memories hooks showed a session, how much they saved, what timed out.

The loop logs what its prompts showed, too. Each event is one line in Ralph's home, with ids and
numbers but no text of a memory. `ralph why`, the web page, the status line, `ralph doctor` and the
worker after sessions read it. Hooks load this before every prompt, so it imports only light parts
of the standard library. The log is rotated, so its size is limited.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, NamedTuple

from ralph import disk

_NAME = "activity.jsonl"
# A longer file replaces the older one.
_MOST_BYTES = 500_000
# This much of the log's end covers the last sessions.
_TAIL_BYTES = 100_000
_TIME = "%Y-%m-%dT%H:%M:%SZ"
# The length of a time down to the second.
SECOND_CHARS = 19
_LONGEST_NAME = 200
_TEXTS = ("at", "event", "session", "agent", "after")
_NUMBERS = ("saved", "late_s", "warned", "left", "spend_usd")
WORKER = "worker"
# Prefix of events for what an iteration's prompt showed; the prompt's section follows.
RUN = "run-"
# A worker that left work undone runs again after this time, even if nothing new was saved.
_WORKER_AGAIN_S = 3600.0


class Activity(NamedTuple):
    """One event. `shown` has the ids of memories with their scores, `saved` counts exchanges.

    `late_s` is the time limit that a hook exceeded, `left` counts what a worker could not finish.
    `after` is a short hash of the command that had failed.
    """

    at: str
    event: str
    session: str = ""
    shown: tuple[tuple[str, float | None], ...] = ()
    saved: int = 0
    late_s: float = 0.0
    warned: int = 0
    left: int = 0
    spend_usd: float = 0.0
    agent: str = ""
    after: str = ""

    @property
    def age_s(self) -> float:
        """How long ago it was; infinite without a valid time."""
        import calendar

        try:
            return time.time() - calendar.timegm(time.strptime(self.at, _TIME))
        except ValueError:
            return float("inf")


class SessionCounts(NamedTuple):
    """What one session was shown and saved; `repeats` counts errors that memory already knew."""

    shown: int
    saved: int
    repeats: int


def note_activity(folder: str, event: str, session: str = "", **fields: Any) -> None:
    """Append an event to the log. A failed write is ignored: only the log is incomplete then."""
    at = time.strftime(_TIME, time.gmtime())
    line = {"at": at, "event": event, "session": session[:_LONGEST_NAME]}
    # Starts a new line: a full disk may have left half a line before it.
    data = b"\n" + json.dumps(line | fields, separators=(",", ":")).encode() + b"\n"
    with contextlib.suppress(OSError):
        disk.log(os.path.join(folder, _NAME), data, _MOST_BYTES)


def read_activity(
    folder: str, session: str | None = None, *, whole: bool = False
) -> list[Activity]:
    """Return recent events, or with `whole` all, of one session or of every one; oldest first."""
    data = b""
    for file in (_NAME, f"{_NAME}.1"):
        with contextlib.suppress(OSError):
            if whole or len(data) < _TAIL_BYTES:
                data = disk.read(os.path.join(folder, file)) + data
    session = None if session is None else session[:_LONGEST_NAME]
    wanted = b"" if session is None else json.dumps(session).encode()
    lines = (data if whole else data[-_TAIL_BYTES:]).splitlines()
    found = [_activity(line) for line in lines if line and wanted in line]
    return [one for one in found if one is not None and session in (None, one.session)]


def _activity(line: bytes) -> Activity | None:
    """Read an event; None if the line is unreadable."""
    try:
        plain = json.loads(line)
        shown = tuple(
            (str(identity), None if score is None else float(score))
            for identity, score in plain.get("shown", ())
        )
        numbers = {name: plain[name] + 0 for name in _NUMBERS if name in plain}
        texts: dict[str, Any] = {name: str(plain[name]) for name in _TEXTS if name in plain}
        return Activity(**texts, **numbers, shown=shown)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def counts(events: list[Activity]) -> SessionCounts:
    """Count the events of one session; a memory that was shown twice counts once."""
    shown = {identity: one.event for one in events for identity, _ in one.shown}
    repeats = sum(event == "post-tool-use-failure" for event in shown.values())
    return SessionCounts(len(shown), sum(one.saved for one in events), repeats)


def late_hooks(events: list[Activity]) -> list[Activity]:
    """Return the hooks that timed out since a session was last warned about that."""
    told = max((at for at, one in enumerate(events) if one.warned), default=-1)
    return [one for one in events[told + 1 :] if one.late_s]


def work_is_pending(events: list[Activity]) -> bool:
    """Return whether something was saved since the last worker, or it left work undone."""
    last = max((at for at, one in enumerate(events) if one.event == WORKER), default=-1)
    if any(one.saved for one in events[last + 1 :]):
        return True
    return last >= 0 and bool(events[last].left) and events[last].age_s > _WORKER_AGAIN_S


def activity_everywhere(home: str, within_s: float) -> list[Activity]:
    """Return the recent events of every project."""
    above = os.path.join(home, "cache", "hooks")
    folders = os.listdir(above) if os.path.isdir(above) else []
    found = [
        one for name in folders for one in read_activity(os.path.join(above, name), whole=True)
    ]
    return [one for one in found if one.age_s < within_s]
