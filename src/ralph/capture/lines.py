"""Turn the bytes of a session's lines into plain values and into exchanges with an agent."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from ralph.capture import AgentRun, TerminalReason
from ralph.records import Complaint
from ralph.records.conversation import Message, Role, Status
from ralph.text.redact import redact
from ralph.text.sanitize import strip_marked
from ralph.text.sentences import sentences as split_sentences

if TYPE_CHECKING:
    from ralph.capture.decisions import SessionAccount

# -- From the bytes of a line to plain values, whatever is on it.


Part = TypeVar("Part")
LineParts = Callable[[bytes], list[Any]]
MOST_COMPLAINTS = 100

BOM = b"\xef\xbb\xbf"
NOTHING = msgspec.Raw(b"null")
_HUGE = 2**63
_TOKENS = "input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens".split()
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_decode = msgspec.json.Decoder().decode
_one_after_another = json.JSONDecoder()


class UnreadableLine(Exception):
    """A line that cannot be read; the message says why."""


class LineReader:
    """Reads a file line by line; knows the current line and what was skipped so far."""

    def __init__(self, file: str, line: int = 0) -> None:
        self.file = file
        self.line = line
        self.complaints: list[Complaint] = []
        self._complained = 0

    def read(
        self, line: bytes, parts: Callable[[bytes], Iterable[Part]], take: Callable[[Part], None]
    ) -> None:
        """Pass each part of one line to `take`, and complain about a line that cannot be read."""
        self.line += 1
        if self.line == 1:
            line = line.removeprefix(BOM)
        line = line.strip()
        if not line:
            return
        try:
            for part in parts(line):
                take(part)
        except UnreadableLine as error:
            self.complain(f"{error}; skipped")

    def complain(self, what: str) -> None:
        """Note what was skipped on this line; after a hundred complaints, only count them."""
        self._complained += 1
        if self._complained <= MOST_COMPLAINTS:
            self.complaints.append(Complaint(self.file, self.line, redact(what)))
        elif self._complained == MOST_COMPLAINTS + 1:
            self.complaints.append(Complaint(self.file, self.line, "and more like these"))


def objects(line: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects on a line: one, several if line ends were lost, or a list of them."""
    try:
        return _objects_of(_decode(line))
    except _UNREADABLE:
        return loose_objects(line)


def loose_objects(line: bytes) -> list[dict[str, Any]]:
    """Return the objects of a line that is not quite JSON: half an emoji, NaN, a lost line end."""
    text = line.decode("utf-8", "replace").strip()
    found: list[dict[str, Any]] = []
    at = 0
    try:
        while at < len(text):
            value, at = _one_after_another.raw_decode(text, at)
            found += _objects_of(whole(value))
            while at < len(text) and text[at].isspace():
                at += 1
    except (ValueError, RecursionError) as error:
        torn = text.startswith(("{", "[")) and isinstance(error, ValueError)
        raise UnreadableLine("is torn or garbled JSON" if torn else "is not JSON") from None
    return found


def line_reader(keys: str, *, put_off: str) -> tuple[Callable[[bytes], Any], LineParts]:
    """Return a decoder of one line, and a reader of all objects on a line, whatever is on it.

    The objects have these keys as attributes, each of any type and None if it is missing; other
    keys are skipped. The keys in `put_off` stay raw: they are often large and seldom needed.
    """
    late = put_off.split()
    fields = [(key, Any, None) for key in keys.split()]
    kind: Any = msgspec.defstruct("Line", [*fields, *((key, msgspec.Raw, NOTHING) for key in late)])
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def read(line: bytes) -> list[Any]:
        try:
            return [decode(line)]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found = loose_objects(line)
            for one in found:
                one |= {key: raw(one[key]) for key in late if key in one}
            names = set(kind.__struct_fields__)
            return [kind(**{key: one[key] for key in one.keys() & names}) for one in found]

    return decode, read


def _objects_of(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return value
    raise UnreadableLine("is JSON, but not an object")


def whole(value: Any) -> Any:
    """Return the value with lone surrogates replaced, which no file can hold."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


# Code in Markdown.
FENCED = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)", re.M | re.S)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a Markdown text without its code; every line end ends one."""
    for line in FENCED.sub("\n", text).split("\n") if "\n" in text else [text]:
        if ". " in line or "! " in line or "? " in line:
            yield from split_sentences(line)
        elif line:
            yield line


def text_of(value: Any) -> str:
    """Return the value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a list; [] if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """Return the value if it is a count (not negative, not a bool, not absurd), else None."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < _HUGE else None


def tokens(usage: Mapping[str, Any]) -> int:
    """Return the number of tokens processed: input, cached or not, and output."""
    return sum(count(usage.get(key)) or 0 for key in _TOKENS)


def money(value: Any) -> float | None:
    """Return the value if it is an amount (finite, not negative), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None


def moment(value: Any) -> str | None:
    """Return a timestamp in UTC, from ISO text, or from seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str) and len(value) <= 40:
            when = datetime.fromisoformat(value)
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
        elif (number := count(value)) is not None:
            when = datetime.fromtimestamp(number / 1000 if number > 10**11 else number, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clip(text: str, most: int) -> str:
    """Return the text cut to the limit, between words so that no half of a secret stays."""
    if len(text) <= most:
        return text
    cut = text[:most]
    return (cut.rsplit(None, 1)[0] if " " in cut or "\n" in cut else "") + "\u2026"


def content_text(content: Any) -> str:
    """Return the text of a message or a tool result, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(text_of(block.get("text")) for block in items(content) if block.get("text"))


def raw(value: Any) -> msgspec.Raw:
    """Return a value as raw JSON, as the decoder leaves values that may not be needed."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return NOTHING


def unraw(put_off: msgspec.Raw) -> Any:
    """Return the decoded value of raw JSON, or None if it cannot be read."""
    try:
        return _decode(put_off)
    except _UNREADABLE:
        return None


# -- An exchange in a session file: a person asked, the agent answered, and the steps between.
#
# Every client's sessions are read into these values, whatever its files look like.


LONGEST_TEXT = 2000
LONGEST_ASKED = 500
LONGEST_ANSWER = 500
LONGEST_FINAL = 20_000
LONGEST_USER = LONGEST_FINAL
LONGEST_TITLE = 200
# The first and the last steps that are kept of a long exchange.
MOST_FIRST = 50
MOST_LAST = 150
_MOST_OPEN = 1000
_MOST_AFTER = 50
_MOST_NAMES = 100
_LOOK_BACK_BYTES = 128 * 1024
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/[\w-]{1,40})?", re.I)
STATUS: dict[TerminalReason, Status]
STATUS = {"ok": "complete", "interrupted": "interrupted", "unknown": "interrupted"}


class SessionHead(msgspec.Struct, frozen=True):
    """What the beginning of a file says about its session."""

    session: str = ""
    cwd: str = ""
    git_branch: str = ""
    is_subagent: bool = False
    version: str = ""  # the client's


class SessionStart(msgspec.Struct, frozen=True):
    """Where reading starts: the file, the byte, and what is known about the session.

    `line` is how many lines come before `offset`, for the line numbers of complaints; `title` is
    the session's title when it was read before.
    """

    file: str = "-"
    root: str | None = None
    head: SessionHead = SessionHead()
    offset: int = 0
    line: int = 0
    title: str | None = None


class SessionExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange from a transcript, redacted.

    `key` identifies its prompt, however often and however far the file is read. `session_id` is the
    session it was held in: in a copy of a session, the original. `captured` has no cost. If it is
    not `finished`, nobody has asked anything after it yet and it may go on; `ends_at` is then how
    far it was read.
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


class OpenExchange(ABC):
    """An exchange being read."""

    begins_at: int
    key: str
    steps: Steps
    # What the person typed, and in which folder.
    typed: list[str]
    folder: str
    head: SessionHead
    account: SessionAccount
    # Whether it is the session's first; None if that is not known.
    is_first: bool | None = None

    @abstractmethod
    def finish(self) -> AgentRun:
        """Return the result so far."""

    @abstractmethod
    def hear_reply(self, text: str) -> bool:
        """Take back what the person's next words are against; return whether anything changed."""

    def seen(self, ends_at: int, *, finished: bool) -> SessionExchange:
        """Return the exchange as it stands."""
        captured = self.finish()
        return SessionExchange(
            key=self.key,
            session_id=session_name(self.head.session),
            user=cleaned("\n\n".join(filter(None, self.typed))[: 2 * LONGEST_USER], LONGEST_USER),
            assistant=self.steps.final,
            messages=self.steps.messages,
            captured=captured,
            status=STATUS.get(captured.terminal_reason, "failed"),
            finished=finished,
            cwd=redact(self.folder[:500]) or None,
            git_branch=redact(self.head.git_branch[:200]) or None,
            begins_at=self.begins_at,
            ends_at=ends_at,
        )


# Raise this when readers read more of sessions than before: files that were imported by an older
# reader are then read again from their beginning.
READER_VERSION = 4


class SessionReader(ABC):
    """Reads a session's file, from its beginning or from where an exchange ended."""

    # Reads the objects on a line.
    _parts: LineParts
    # Names what is in such an object: its event, its tools.
    _names: Callable[[Any], Iterable[str]]
    _open: OpenExchange | None = None

    def __init__(self, start: SessionStart | None = None) -> None:
        start = start or SessionStart()
        self._start = start
        self._title = start.title
        self._reading = LineReader(start.file, start.line)
        self.complaints = self._reading.complaints
        self._at = self._next = start.offset
        self._finished: list[SessionExchange] = []
        # How often each name was met.
        self.met: dict[str, int] = {}
        # The keys of exchanges that an older reader made of what nobody asked.
        self.no_prompts: list[str] = []
        # What the agent said before the start.
        self._said_before = ""
        # Exchanges that the next prompt may be about, with their ends: the last one, and before it
        # the last one with an accepted plan.
        self._earlier: list[tuple[OpenExchange, int]] = []

    def feed(self, line: bytes) -> list[SessionExchange]:
        """Read one line with its line end; return the exchanges it finished. Never raises."""
        self._at = self._next
        self._next += len(line)
        self._reading.read(line, self._parts, self._meet)
        finished = self._finished
        self._finished = []
        return finished

    def look_back(self, file: BinaryIO) -> None:
        """Read what the agent said before the start: a person may answer it with "option 2"."""
        at = max(0, self._start.offset - _LOOK_BACK_BYTES)
        if self._start.offset:
            file.seek(at)
            self._hear_before(file.read(self._start.offset - at).splitlines())

    def _hear_before(self, before: Sequence[bytes]) -> None:
        """Take the lines before the start; the first may be torn."""
        for data in reversed(before):
            with contextlib.suppress(UnreadableLine):
                for part in self._parts(data):
                    self._said_before = self._agents_words(part)
                if self._said_before:
                    return

    @abstractmethod
    def _agents_words(self, part: Any) -> str:
        """Return what the agent said to a person in a part of a line, or ""."""

    def tell(self, opened: OpenExchange) -> None:
        """Tell a new exchange what came before it."""
        before = self._open or next((one for one, _ in reversed(self._earlier)), None)
        if before is not None:
            opened.account.follow(before.account)
        else:
            opened.account.said_before = self._said_before
            opened.is_first = True if self._start.offset == 0 else None

    def _hear_reply(self, text: str) -> None:
        """Let the exchanges before a prompt hear it: it may take back what they decided.

        One that was finished already is finished once more.
        """
        for earlier, ends_at in self._earlier:
            if earlier.hear_reply(text):
                self._finished.append(earlier.seen(ends_at, finished=True))
        if self._open is not None:
            self._open.hear_reply(text)

    def rest(self) -> list[SessionExchange]:
        """Return the open exchange, if any, as it stands; reading may go on after this."""
        return [self._open.seen(self.ends_at, finished=False)] if self._open else []

    def _close(self, at: int) -> None:
        """Finish the open exchange, if any; its lines end here."""
        if self._open is not None:
            self._finished.append(self._open.seen(at, finished=True))
            plans = [one for one in self._earlier if one[0].account.has_plan]
            self._earlier = [*plans[-1:], (self._open, at)]
        self._open = None

    def _meet(self, part: Any) -> None:
        met = self.met
        for name in self._names(part):
            if name in met:
                met[name] += 1
            elif len(met) < _MOST_NAMES:
                met[name] = 1
        self._take(part)

    @abstractmethod
    def _take(self, part: Any) -> None: ...

    @property
    def version(self) -> str:
        """The version of the client that wrote the session, or ""."""
        return self._start.head.version

    @property
    def ends_at(self) -> int:
        """The offset up to which everything was read, except what may still become an exchange."""
        return self._next

    @property
    def title(self) -> str | None:
        """The session's latest title."""
        return self._title


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
        # What was said since the last tool call.
        self._after: list[tuple[_ExchangeStep, str]] = []
        self._last_said = ""

    def said(self, text: str) -> None:
        """Add the assistant's words."""
        if text.strip():
            step = self._add(_ExchangeStep("assistant", _clip(text, LONGEST_TEXT)))
            self._last_said = text[: 2 * LONGEST_FINAL]
            if len(self._after) < _MOST_AFTER:
                self._after.append((step, self._last_said))

    def asked(self, text: str) -> None:
        """Add words that the person typed while the assistant was at work."""
        self._add(_ExchangeStep("user", _clip(text, LONGEST_TEXT)))

    def called(self, identity: str, tool: str, target: str) -> None:
        """Add a tool call of the assistant."""
        self._after.clear()
        if len(self._open) >= _MOST_OPEN:
            del self._open[next(iter(self._open))]
        step = _ExchangeStep("tool", _clip(target, LONGEST_ASKED), tool[:100])
        self._open[identity] = self._add(step)

    def answered(self, identity: str, output: str, *, failed: bool) -> None:
        """Add the answer to a tool call."""
        if step := self._open.pop(identity, None):
            step.answer = _clip(output.lstrip(), LONGEST_ANSWER)
            step.failed = failed

    def _add(self, step: _ExchangeStep) -> _ExchangeStep:
        if len(self._first) < MOST_FIRST:
            self._first.append(step)
        else:
            self._last.append(step)
        return step

    @property
    def final(self) -> str:
        """The assistant's final words: all since its last tool call, else its last ones."""
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
            asked = cleaned(step.text, LONGEST_ASKED)
            answer = cleaned(step.answer, LONGEST_ANSWER)
            content = f"{asked}\n{answer}" if answer else asked
            yield Message("tool", content, redact(step.tool), step.failed)


def _clip(text: str, most: int) -> str:
    # Keep more than will stay, so that the final cut comes after redaction.
    return clip(text, 4 * most)


def cleaned(text: str, most: int) -> str:
    """Return a text as it may be saved: without what Ralph injected, redacted, cut to the limit."""
    return clip(redact(strip_marked(text).strip()), most)


def session_name(session: str | None) -> str | None:
    """Return a session's id as it may be saved: a UUID is not a secret, anything else might be."""
    if not session:
        return None
    return session if _UUID.fullmatch(session) else clip(redact(session[:200]), 100)


def session_title(text: str) -> str:
    """Return a session's title as it may be saved."""
    return cleaned(text[: 4 * LONGEST_TITLE], LONGEST_TITLE)


class FileStamp(NamedTuple):
    """A session's size and last change; while both stay the same, so does the session."""

    size: int
    mtime_ns: int


def file_stamp(path: Path) -> FileStamp:
    """Return the stamp of a file."""
    stat = path.stat()
    return FileStamp(stat.st_size, stat.st_mtime_ns)


def open_file(path: Path) -> BinaryIO:
    """Open a session that is a file."""
    return path.open("rb")


def jsonl_files(folder: Path) -> Iterator[Path]:
    """Yield every `.jsonl` file under a folder, in a stable order."""
    for here, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(here) / name for name in sorted(files) if name.endswith(".jsonl"))
