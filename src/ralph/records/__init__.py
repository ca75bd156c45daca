"""Record, the envelope that every memory shares; complaints about lines; and the JSON codec.

A Record is a frozen value. It knows its id, its number in its series and where it came from, and
nothing about its content; the modules here give the content its type. Every string is redacted
when a body is written, whatever its field is called.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from ralph.errors import BadRecord

T = TypeVar("T")
_SHORT_ID_CHARS = 16
_MARGIN_CHARS = 4000
_encode = msgspec.json.Encoder().encode


# `gc=False`: there are many of these, and none can refer to itself.
class Source(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a record came from: an agent's run, or a file and line."""

    run: str | None = None
    file: str | None = None
    line: int | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """One memory: its id, its time, and its content as JSON bytes."""

    id: str
    kind: str
    number: int
    at: str
    body: bytes
    source: Source = Source()

    @property
    def digest(self) -> str:
        """A hash of kind, time and content, without number and source."""
        envelope = f"{self.kind}\0{self.at}\0".encode(errors="surrogatepass")
        return hashlib.sha256(envelope + self.body).hexdigest()[:32]


class JournalRecord(msgspec.Struct, frozen=True, gc=False):
    """A record and its line in the journal."""

    record: Record
    file: str
    line: int


class Tombstone(msgspec.Struct, frozen=True):
    """What is left of a forgotten record: its id, number and time, and when and why it went."""

    id: str
    at: str
    reason: str | None = None
    number: int = 0
    was_at: str = ""


class Complaint(msgspec.Struct, frozen=True):
    """Something in a file that was skipped or looks wrong, with its file and line."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def now() -> str:
    """Return the current time in UTC, in the format of all timestamps."""
    return utc(datetime.now(UTC).isoformat(timespec="milliseconds"))


def utc(timestamp: str, *, field: str = "timestamp") -> str:
    """Return the timestamp in UTC with a trailing Z; a time without a zone counts as UTC."""
    try:
        moment = datetime.fromisoformat(timestamp)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: before year 1 or after 9999 in UTC
        todo = "Write it as 2026-02-07T14:30:00Z."
        raise BadRecord(f"{field} {timestamp!r} is not a time", todo=todo) from None
    spec = "auto" if moment.microsecond % 1000 or not moment.microsecond else "milliseconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")


def ago(at: str | None) -> str:
    """Return how long ago a time in the last 24 hours was; "" for any other time."""
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(at or "")).total_seconds())
    except (ValueError, OverflowError, TypeError):
        return ""
    if not 0 <= seconds < 24 * 3600:
        return ""
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h ago" if hours else f"{minutes} min ago" if minutes else "just now"


# -- the codec


def write_body(value: msgspec.Struct, **envelope: Any) -> bytes:
    """Return the value as a record's body: redacted, without the fields that the envelope has."""
    return encode(clean(msgspec.structs.replace(value, **envelope) if envelope else value))


def encode(value: Any) -> bytes:
    """Return the value as JSON; raise BadRecord for a lone surrogate."""
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise BadRecord(
            "its text contains a lone surrogate "
            f"({error.object[error.start : error.end]!r}), which cannot be saved"
        ) from None


def read_body(decode: Callable[[bytes], Any], record: Record, **envelope: Any) -> Any:
    """Return the value inside a record, with the fields that its envelope holds."""
    try:
        value = decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(f"record {record.id} is not a readable {record.kind}: {error}") from None
    for name, said in envelope.items():  # safe: nobody else has the value yet
        msgspec.structs.force_setattr(value, name, said)
    return value


def short_id(namespace: uuid.UUID, *parts: str) -> str:
    """Return the id that these parts always get; JSON separates them."""
    name = _encode([part.encode(errors="replace").decode() for part in parts]).decode()
    return uuid.uuid5(namespace, name).hex[:_SHORT_ID_CHARS]


def to_json(value: msgspec.Struct) -> dict[str, Any]:
    """Return every field under its published name, including empty ones."""
    return {name: msgspec.to_builtins(getattr(value, name)) for name in value.__struct_fields__}


# Most texts were already cleaned once, before they were cut to size, and come again unchanged.
@lru_cache(maxsize=256)
def clean_text(text: str) -> str:
    """Return the text without secrets."""
    from ralph.text.redact import redact  # code that only reads records need not load it

    return redact(text)


def clean_beginning(text: str, max_chars: int) -> str:
    """Return the text without secrets, or a beginning of it that is longer than the limit.

    What is cut off anyway is not read: a text of megabytes would keep a server busy for seconds.
    """
    beginning = text[: 4 * max_chars + _MARGIN_CHARS]
    cleaned = clean_text(beginning)
    # A secret that was cut in two is not recognized, so it must not be near what is kept.
    if len(beginning) == len(text) or len(cleaned) >= max_chars + _MARGIN_CHARS:
        return cleaned
    return clean_text(text)


def clean(value: T) -> T:
    """Return the value with every string in it redacted, at any depth."""
    result: Any = value
    if value is None or isinstance(value, (int, float)):
        pass  # most fields
    elif isinstance(value, str):
        redacted = clean_text(value)
        result = value if redacted == value else redacted  # the cache may hold an equal string
    elif isinstance(value, msgspec.Struct):
        found = {name: clean(getattr(value, name)) for name in value.__struct_fields__}
        changed = {name: one for name, one in found.items() if one is not getattr(value, name)}
        result = msgspec.structs.replace(value, **changed) if changed else value
    elif isinstance(value, (tuple, list)):
        items = [clean(one) for one in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            result = items if isinstance(value, list) else tuple(items)
    elif isinstance(value, dict):
        result = {clean(key): clean(one) for key, one in value.items()}
    return result  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """Return the value as plain JSON data: structs by their `to_json`, else with all fields."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return msgspec.to_builtins(value)
