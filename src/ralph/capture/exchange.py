"""An exchange in a session file: a person asked, the agent answered, and the steps between.

Every client's sessions are read into these values, whatever its files look like.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ralph.capture import AgentRun, TerminalReason
from ralph.capture.lines import LineReader, clip
from ralph.records.conversation import Message, Role, Status
from ralph.text.redact import redact
from ralph.text.sanitize import strip_marked

LONGEST_TEXT = 2000
LONGEST_ASKED = 500
LONGEST_ANSWER = 500
LONGEST_FINAL = 20_000
LONGEST_USER = LONGEST_FINAL
LONGEST_TITLE = 200
# Of a long exchange, how it began and how it ended.
MOST_FIRST = 50
MOST_LAST = 150
_MOST_OPEN = 1000
_MOST_AFTER = 50
STATUS: dict[TerminalReason, Status] = {
    "ok": "complete",
    "interrupted": "interrupted",
    "unknown": "interrupted",
}


class SessionHead(msgspec.Struct, frozen=True):
    """What the beginning of a file says of the session it holds."""

    session: str = ""
    cwd: str = ""
    git_branch: str = ""
    is_subagent: bool = False


class SessionStart(msgspec.Struct, frozen=True):
    """Where reading starts: the file, the byte, and what is known of the session.

    `line` is how many lines come before `offset`, for the places of complaints; `title` is what the
    session was called when it was read before.
    """

    file: str = "-"
    root: str | None = None
    head: SessionHead = SessionHead()
    offset: int = 0
    line: int = 0
    title: str | None = None


class SessionExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange as the transcript tells it, redacted.

    `key` names its prompt, however often and however far the file is read. `session_id` is the
    session it was held in: in a copy of a session, the first one. Of `captured`, the cost is not
    known. Not `finished`: nobody has asked anything after it yet, so it may go on; `ends_at` is
    then how far it was read.
    """

    key: str
    session_id: str | None
    user: str
    assistant: str
    messages: tuple[Message, ...]
    captured: AgentRun
    status: Status
    finished: bool
    cwd: str | None
    git_branch: str | None
    begins_at: int
    ends_at: int


class SessionReader(ABC):
    """A session's file being read, from its beginning or from where an exchange ended."""

    def __init__(self, start: SessionStart | None = None) -> None:
        start = start or SessionStart()
        self._start = start
        self._reading = LineReader(start.file, start.line)
        self.complaints = self._reading.complaints
        self._at = self._next = start.offset
        self._finished: list[SessionExchange] = []

    def feed(self, line: bytes) -> list[SessionExchange]:
        """Take one line with its end; return the exchanges it finished. Never raises."""
        self._at = self._next
        self._next += len(line)
        self._read(line)
        finished, self._finished = self._finished, []
        return finished

    @abstractmethod
    def _read(self, line: bytes) -> None: ...

    @abstractmethod
    def rest(self) -> list[SessionExchange]:
        """The exchange under way, if any, as it stands; reading may go on after it."""

    @property
    @abstractmethod
    def ends_at(self) -> int:
        """How far everything was read; what may become an exchange yet is not."""

    @property
    @abstractmethod
    def title(self) -> str | None:
        """What the session is called."""


class _ExchangeStep(msgspec.Struct):
    role: Role
    text: str
    tool: str = ""
    answer: str = ""
    failed: bool = False


class Steps:
    """The steps of one exchange so far."""

    def __init__(self) -> None:
        self._first: list[_ExchangeStep] = []
        self._last: deque[_ExchangeStep] = deque(maxlen=MOST_LAST)
        self._open: dict[str, _ExchangeStep] = {}
        # What was said since the last tool was called.
        self._after: list[tuple[_ExchangeStep, str]] = []
        self._last_said = ""

    def said(self, text: str) -> None:
        """The assistant's words."""
        if text.strip():
            step = self._add(_ExchangeStep("assistant", _cut(text, LONGEST_TEXT)))
            self._last_said = text[: 2 * LONGEST_FINAL]
            if len(self._after) < _MOST_AFTER:
                self._after.append((step, self._last_said))

    def asked(self, text: str) -> None:
        """More words of the person's, while the assistant was at work."""
        self._add(_ExchangeStep("user", _cut(text, LONGEST_TEXT)))

    def called(self, identity: str, tool: str, target: str) -> None:
        """The assistant called a tool."""
        self._after.clear()
        if len(self._open) >= _MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._open[identity] = self._add(
            _ExchangeStep("tool", _cut(target, LONGEST_ASKED), tool[:100])
        )

    def answered(self, identity: str, output: str, *, failed: bool) -> None:
        """A tool answered."""
        if step := self._open.pop(identity, None):
            step.answer, step.failed = _cut(output.lstrip(), LONGEST_ANSWER), failed

    def _add(self, step: _ExchangeStep) -> _ExchangeStep:
        if len(self._first) < MOST_FIRST:
            self._first.append(step)
        else:
            self._last.append(step)
        return step

    @property
    def final(self) -> str:
        """The assistant's final words: all since its last tool call, else the last there were."""
        said = [text for _, text in self._after] or [self._last_said]
        return cleaned("\n\n".join(text.strip() for text in said), LONGEST_FINAL)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The steps before the final words."""
        return tuple(self._messages())

    def _messages(self) -> Iterator[Message]:
        final = {id(step) for step, _ in self._after}
        for step in (*self._first, *self._last):
            if id(step) in final:
                continue
            if step.role != "tool":
                yield Message(step.role, cleaned(step.text, LONGEST_TEXT))
                continue
            asked, answer = cleaned(step.text, LONGEST_ASKED), cleaned(step.answer, LONGEST_ANSWER)
            content = f"{asked}\n{answer}" if answer else asked
            yield Message("tool", content, redact(step.tool), step.failed)


def _cut(text: str, most: int) -> str:
    # More than will stay, so that what is cut off at the end is cut after redaction.
    return clip(text, 4 * most)


def cleaned(text: str, most: int) -> str:
    """A text as it may be kept: without what Ralph injected, redacted, within the limit."""
    return clip(redact(strip_marked(text).strip()), most)


def jsonl_files(folder: Path) -> Iterator[Path]:
    """Every `.jsonl` file under a folder, in a steady order."""
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".jsonl"):
                yield Path(here) / name
