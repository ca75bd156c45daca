"""Which dialect a stream is, told by its first readable lines; and reading one of unknown kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ralph.capture import AgentRun, Capture, Dialect, Live
from ralph.capture.lines import BOM, UnreadableLine, objects
from ralph.clients import CLIENTS, Client
from ralph.errors import BadInput
from ralph.records import Complaint

# Noise in front of a stream (a shell's greeting, a warning) is rarely longer.
_PATIENCE_LINES = 200
_PATIENCE_BYTES = 4_000_000


def expected(*more: str) -> str:
    """What to give instead of what is no agent's output, or none of `more` either."""
    outputs = [output for client in CLIENTS for output in client.program.OUTPUTS]
    *first, last = [*outputs, *more]
    return f"Give it {', '.join(first)}, or {last}."


def dialect_of(event: Mapping[str, Any]) -> Dialect | None:
    """The dialect a single event belongs to, if it is an agent's."""
    found = (client.program.dialect_of(event) for client in CLIENTS)
    return next(filter(None, found), None)


def session_client(event: Mapping[str, Any]) -> Client | None:
    """The client in whose session files an event stands, if it is no output of a run."""
    return next((one for one in CLIENTS if event.get("type") in one.program.SESSION_TYPES), None)


def open_capture(
    dialect: Dialect, *, file: str = "-", root: str | None = None, injected: str = ""
) -> Capture:
    """A fresh capture of a known dialect."""
    program = next(one.program for one in CLIENTS if dialect in one.program.DIALECTS)
    return program.open_capture(dialect, file=file, root=root, injected=injected)


class Detecting:
    """A capture that finds out the dialect by itself; until then it holds the lines back."""

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        self._file, self._root, self._injected = file, root, injected
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._clue = ""
        self._capture: Capture | None = None
        self.dialect: Dialect | None = None
        self.live = Live()
        self.complaints: list[Complaint] = []

    def feed(self, line: bytes) -> None:
        """Take one line; BadInput once it is clear that this is no agent's output."""
        if self._capture is not None:
            self._capture.feed(line)
            return
        self._held.append(line)
        self._held_bytes += len(line)
        for event in _events(line):
            if found := dialect_of(event):
                self._start(found)
                return
            self._clue = self._clue or _clue(event)
        if len(self._held) >= _PATIENCE_LINES or self._held_bytes >= _PATIENCE_BYTES:
            raise self._unknown()

    def _start(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._capture = open_capture(
            dialect, file=self._file, root=self._root, injected=self._injected
        )
        self.live, self.complaints = self._capture.live, self._capture.complaints
        for line in self._held:
            self._capture.feed(line)
        self._held.clear()

    def finish(self) -> AgentRun:
        """What the run left behind; BadInput when no agent's line was among the lines."""
        if self._capture is None:
            raise self._unknown()
        return self._capture.finish()

    def _unknown(self) -> BadInput:
        if not any(line.strip() for line in self._held):
            what = "is empty: the agent printed nothing"
        elif self._held[0].startswith((b"\xff\xfe", b"\xfe\xff")):
            what = "is UTF-16, not UTF-8; convert it first"
        else:
            what = self._clue or "is not the output of an agent that Ralph knows"
        return BadInput(what, where=self._file, todo=expected())


def read(
    lines: Iterable[bytes],
    *,
    file: str = "-",
    root: str | None = None,
    dialect: Dialect | None = None,
    injected: str = "",
) -> tuple[AgentRun, list[Complaint]]:
    """A whole run: what it left behind, and what was stepped over on the way."""
    capture: Capture
    if dialect is None:
        capture = Detecting(file=file, root=root, injected=injected)
    else:
        capture = open_capture(dialect, file=file, root=root, injected=injected)
    for line in lines:
        capture.feed(line)
    captured = capture.finish()
    return captured, capture.complaints


def _events(line: bytes) -> list[dict[str, Any]]:
    try:
        return objects(line.removeprefix(BOM))
    except UnreadableLine:
        return []


def _clue(event: Mapping[str, Any]) -> str:
    if "hook_event_name" in event:
        return "holds inputs of hooks, not the output of a run; the transcript they name has it"
    if "iteration_number" in event or "files_touched" in event:
        return "holds records, not the output of an agent"
    return ""
