"""From the bytes of a line to plain values, whatever is on it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from ralph.records import Complaint
from ralph.text.redact import redact

Part = TypeVar("Part")
LineParts = Callable[[bytes], list[Any]]
MOST_COMPLAINTS = 100

BOM = b"\xef\xbb\xbf"
NOTHING = msgspec.Raw(b"null")
_HUGE = 2**63
_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
_decode = msgspec.json.Decoder().decode
_one_after_another = json.JSONDecoder()


class UnreadableLine(Exception):
    """A line that holds nothing to read; the message says why."""


class LineReader:
    """A file being read line by line: where it is, and what was stepped over so far."""

    def __init__(self, file: str, line: int = 0) -> None:
        self.file = file
        self.line = line
        self.complaints: list[Complaint] = []
        self._complained = 0

    def read(
        self,
        line: bytes,
        parts: Callable[[bytes], Iterable[Part]],
        take: Callable[[Part], None],
    ) -> None:
        """Take what stands on one line, and complain about what cannot be read."""
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
            self.complain(f"{error}; stepped over")

    def complain(self, what: str) -> None:
        """Note what was stepped over on this line; beyond a hundred they are only counted."""
        self._complained += 1
        if self._complained <= MOST_COMPLAINTS:
            self.complaints.append(Complaint(self.file, self.line, redact(what)))
        elif self._complained == MOST_COMPLAINTS + 1:
            self.complaints.append(Complaint(self.file, self.line, "and more like these"))


def objects(line: bytes) -> list[dict[str, Any]]:
    """The JSON objects on a line: one; several when line ends were lost; or those of a list."""
    try:
        value = _decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return loose_objects(line)
    return _objects_of(value)


def loose_objects(line: bytes) -> list[dict[str, Any]]:
    """The same for a line that is not quite JSON: half of an emoji, infinity, a lost line end."""
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
    """A decoder of one line, and what reads the objects on a line, whatever is on it.

    They have these keys as attributes, each of any type and None where it is missing; the decoder
    skips the others. What is put off stays raw: it is often large, and seldom needed.
    """
    late = put_off.split()
    fields = [(key, Any, None) for key in keys.split()]
    kind: Any = msgspec.defstruct("Line", [*fields, *((key, msgspec.Raw, NOTHING) for key in late)])
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def read(line: bytes) -> list[Any]:
        try:
            return [decode(line)]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found = [
                {key: raw(value) if key in late else value for key, value in one.items()}
                for one in loose_objects(line)
            ]
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
    """The value with lone surrogates replaced, which no file could hold."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


def text_of(value: Any) -> str:
    """The value if it is a text, else nothing."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in a list; nothing when it is no list."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def count(value: Any) -> int | None:
    """A number of things: not negative, not a bool, not beyond reason."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _HUGE:
        return None
    return value


def tokens(usage: Mapping[str, Any]) -> int:
    """Everything that was processed: what came in, cached or not, and what went out."""
    return sum(count(usage.get(key)) or 0 for key in _TOKENS)


def money(value: Any) -> float | None:
    """An amount: finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None


def moment(value: Any) -> str | None:
    """A time as it is written everywhere, from ISO text or seconds or milliseconds since 1970."""
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
    """The text within the limit, cut between words so that no half of a secret stays."""
    if len(text) <= most:
        return text
    cut = text[:most]
    return (cut.rsplit(None, 1)[0] if " " in cut or "\n" in cut else "") + "\u2026"


def content_text(content: Any) -> str:
    """The words of a message or a tool's result: a text, or a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(text_of(block.get("text")) for block in items(content) if block.get("text"))


def raw(value: Any) -> msgspec.Raw:
    """A value put off, as the decoder puts off what may not be needed."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return NOTHING


def unraw(put_off: msgspec.Raw) -> Any:
    """The value that was put off, or nothing when it cannot be read after all."""
    try:
        return _decode(put_off)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
