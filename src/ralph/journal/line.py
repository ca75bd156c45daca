"""One line of a journal: its published form, and reading it back whoever wrote it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ralph.errors import BadRecord
from ralph.records import Record, Source, Tombstone

VERSION = 1
FORGOTTEN = "forgotten"
BOM = b"\xef\xbb\xbf"
# What every reader of JSON keeps exactly.
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class _JournalLine(msgspec.Struct, gc=False):
    v: int
    kind: str
    id: str
    number: _Number = 0
    at: str = ""
    digest: str = ""
    source: Source = Source()
    reason: str | None = None
    was_at: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Written(msgspec.Struct, omit_defaults=True):
    v: int
    kind: str
    id: str
    number: int
    at: str
    digest: str
    source: Source
    body: msgspec.Raw


class _Version(msgspec.Struct):
    v: int


class Unreadable(Exception):
    """This line is not an entry; the message says why. It leaves the journal as a complaint."""


_decode = msgspec.json.Decoder(_JournalLine).decode
_decode_version = msgspec.json.Decoder(_Version).decode
_encode = msgspec.json.Encoder().encode


def write_record(record: Record) -> bytes:
    """The line a record is kept as, newline included; refuses what would not read back."""
    line = _Written(
        v=VERSION,
        kind=record.kind,
        id=record.id,
        number=record.number,
        at=record.at,
        digest=record.digest,
        source=record.source,
        body=msgspec.Raw(record.body),
    )
    try:
        raw = _encode(line)
        back, _ = read_line(raw)
    except (UnicodeEncodeError, Unreadable) as error:
        raise BadRecord(f"record {record.id!r} cannot be kept: as a line it {error}") from None
    if back != record or b"\n" in raw:
        raise BadRecord(
            f"record {record.id!r} cannot be kept: it would not read back as it is",
            todo="Give its body as JSON without line breaks, and a kind of its own.",
        )
    return raw + b"\n"


def write_tombstone(stone: Tombstone) -> bytes:
    """The line that stays of a forgotten record, newline included."""
    plain: dict[str, str | int] = {"v": VERSION, "kind": FORGOTTEN, "id": stone.id}
    if stone.number:
        plain["number"] = stone.number
    plain["at"] = stone.at
    if stone.was_at:
        plain["was_at"] = stone.was_at
    if stone.reason:
        # A terminal may hand over bytes that are no text; a reason must not stop a forget.
        plain["reason"] = stone.reason.encode(errors="replace").decode()
    return _encode(plain) + b"\n"


def read_line(raw: bytes) -> tuple[Record | Tombstone, str]:
    """The entry on a line and the digest written beside it; raises Unreadable with the reason."""
    if b"\0" in raw:
        raise Unreadable("holds NUL bytes, as a crash of the machine can leave them")
    try:
        raw.decode()  # the body is not looked into below
        line = _decode(raw)
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 text ({error.reason})") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(_why(raw, error)) from None
    if line.v > VERSION:
        raise Unreadable(newer(line.v))
    if line.v < 1 or not line.id or not line.kind:
        raise Unreadable("is not an entry: it has no version, kind or id")
    if line.kind == FORGOTTEN:
        return Tombstone(line.id, line.at, line.reason, line.number, line.was_at), ""
    record = Record(
        id=line.id,
        kind=line.kind,
        number=line.number,
        at=line.at,
        body=bytes(line.body),
        source=line.source,
    )
    return record, line.digest


def _why(raw: bytes, error: Exception) -> str:
    try:
        version = _decode_version(raw).v
    except (msgspec.DecodeError, RecursionError):
        return f"is not an entry of this journal ({error})"
    if version > VERSION:
        return newer(version)
    return f"is an entry with a field that does not fit ({error})"


def newer(version: int) -> str:
    """What is said of an entry that this version cannot read."""
    return f"was written by a newer Ralph (version {version}); upgrade to read it"
