"""The envelope every memory shares: a Record, its Source, and what may be wrong with a line.

A Record is a frozen value. It knows its identity, its place in its series and where it came
from, and nothing about what is inside; the modules here give the inside its type.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec

from ralph.errors import BadRecord


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


class Located(msgspec.Struct, frozen=True, gc=False):
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
        raise BadRecord(
            f"{field} {timestamp!r} is not a time",
            todo="Write it as 2026-02-07T14:30:00Z.",
        ) from None
    spec = "auto" if moment.microsecond % 1000 or not moment.microsecond else "milliseconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")
