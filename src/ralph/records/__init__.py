"""The envelope every memory shares, what may be wrong with a line, and the codec of all kinds.

A Record is a frozen value. It knows its identity, its place in its series and where it came
from, and nothing about what is inside; the modules here give the inside its type. Every string is
redacted where a body is written, whatever its field is called.
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
_encode = msgspec.json.Encoder().encode


# `gc=False`: there are many of these, and none can hold itself.
class Source(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a record came from: an agent's run, or a file and line."""

    run: str | None = None
    file: str | None = None
    line: int | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """One remembered thing: which it is, when it was, and its content as JSON bytes."""

    id: str
    kind: str
    number: int
    at: str
    body: bytes
    source: Source = Source()

    @property
    def digest(self) -> str:
        """A hash of kind, time and content; number and source do not count."""
        envelope = f"{self.kind}\0{self.at}\0".encode(errors="surrogatepass")
        return hashlib.sha256(envelope + self.body).hexdigest()[:32]


class JournalRecord(msgspec.Struct, frozen=True, gc=False):
    """A record and the line of the journal it stands on."""

    record: Record
    file: str
    line: int


class Tombstone(msgspec.Struct, frozen=True):
    """What stays of a forgotten record: its id, number and time, and when and why it went."""

    id: str
    at: str
    reason: str | None = None
    number: int = 0
    was_at: str = ""


class Complaint(msgspec.Struct, frozen=True):
    """Something in a file that was stepped over or looks wrong, with its place."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def now() -> str:
    """This moment in UTC, as timestamps are written everywhere."""
    return utc(datetime.now(UTC).isoformat(timespec="milliseconds"))


def utc(timestamp: str, *, field: str = "timestamp") -> str:
    """The same moment in UTC with a trailing Z; a time without a zone is taken as UTC."""
    try:
        moment = datetime.fromisoformat(timestamp)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: before year 1 or after 9999 in UTC
        todo = "Write it as 2026-02-07T14:30:00Z."
        raise BadRecord(f"{field} {timestamp!r} is not a time", todo=todo) from None
    spec = "auto" if moment.microsecond % 1000 or not moment.microsecond else "milliseconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")


def ago(at: str | None) -> str:
    """How long ago a moment of the last 24 hours was; empty for every other."""
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
    """The value as a record's body: redacted, without what the envelope has (at its default)."""
    ready = clean(value)
    return encode(msgspec.structs.replace(ready, **envelope) if envelope else ready)


def encode(value: Any) -> bytes:
    """The value as JSON, or an error that says which half of a character is in the way."""
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise BadRecord(
            "its text holds half a character "
            f"({error.object[error.start : error.end]!r}), which no file can keep"
        ) from None


def read_body(decode: Callable[[bytes], Any], record: Record, **envelope: Any) -> Any:
    """The value inside a record, with what its envelope says."""
    try:
        value = decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(f"record {record.id} is not a readable {record.kind}: {error}") from None
    for name, said in envelope.items():  # nobody else has the value yet
        msgspec.structs.force_setattr(value, name, said)
    return value


def short_id(namespace: uuid.UUID, *parts: str) -> str:
    """The id that these parts always get; JSON keeps them apart."""
    name = _encode([part.encode(errors="replace").decode() for part in parts]).decode()
    return uuid.uuid5(namespace, name).hex[:_SHORT_ID_CHARS]


def to_json(value: msgspec.Struct) -> dict[str, Any]:
    """Every field under its published name, the empty ones too."""
    return {name: msgspec.to_builtins(getattr(value, name)) for name in value.__struct_fields__}


# What comes in was cleaned before it was cut to size, and is seldom another string by then.
@lru_cache(maxsize=256)
def clean_text(text: str) -> str:
    """The text without secrets."""
    from ralph.text.redact import redact  # who only reads records need not load it

    return redact(text)


def clean(value: T) -> T:
    """The same value with every string in it redacted, at any depth."""
    result: Any = value
    if isinstance(value, str):
        redacted = clean_text(value)
        result = value if redacted == value else redacted  # the cache may hold an equal string
    elif isinstance(value, msgspec.Struct):
        found = {name: clean(getattr(value, name)) for name in value.__struct_fields__}
        changed = {name: one for name, one in found.items() if one is not getattr(value, name)}
        result = msgspec.structs.replace(value, **changed) if changed else value
    elif isinstance(value, tuple | list):
        items = [clean(one) for one in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            result = items if isinstance(value, list) else tuple(items)
    elif isinstance(value, dict):
        result = {clean(key): clean(one) for key, one in value.items()}
    return result  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """The value as JSON has it: structs with all their fields, or as their `to_json` says."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return msgspec.to_builtins(value)
