"""Journal entries: read and write their lines, plan an append, find problems."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from sys import intern
from typing import Annotated, Protocol

import msgspec

from ralph.errors import BadRecord, JournalError, RecordForgotten
from ralph.journal import Appended, Draft, Drafts
from ralph.records import Complaint, JournalRecord, Record, Source, Tombstone

VERSION = 1
FORGOTTEN = "forgotten"
BOM = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 4 * 1024 * 1024
_ENVELOPE = ("kind", "id", "number", "at", "digest", "source")
# Raises if a record cannot be stored.
Check = Callable[[Record], None]
# The range of integers that every JSON reader keeps exact.
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


class _Version(msgspec.Struct):
    v: int


class Unreadable(Exception):
    """A line is not an entry; the message says why. Readers of the journal get a complaint."""


_decode = msgspec.json.Decoder(_JournalLine).decode
_decode_lines = msgspec.json.Decoder(_JournalLine).decode_lines
_encode = msgspec.json.Encoder().encode


def write_record(record: Record) -> bytes:
    """Return a record's line with its newline. Refuse a record that would not read back."""
    envelope = {name: getattr(record, name) for name in _ENVELOPE}
    line = {"v": VERSION, **envelope, "body": msgspec.Raw(record.body)}
    try:
        raw = _encode(line)
        back, _ = read_line(raw)
    except (UnicodeEncodeError, Unreadable) as error:
        raise BadRecord(f"record {record.id!r} cannot be kept: as a line it {error}") from None
    if back != record or b"\n" in raw:
        what = f"record {record.id!r} cannot be kept: it would not read back as it is"
        todo = "Give its body as JSON without line breaks, and a kind of its own."
        raise BadRecord(what, todo=todo)
    return raw + b"\n"


def write_tombstone(stone: Tombstone) -> bytes:
    """Return a tombstone's line with its newline."""
    plain: dict[str, str | int] = {"v": VERSION, "kind": FORGOTTEN, "id": stone.id}
    if stone.number:
        plain["number"] = stone.number
    plain["at"] = stone.at
    if stone.was_at:
        plain["was_at"] = stone.was_at
    if stone.reason:
        # A terminal can pass bytes that are not text. A bad reason must not stop a forget.
        plain["reason"] = stone.reason.encode(errors="replace").decode()
    return _encode(plain) + b"\n"


def read_line(raw: bytes) -> tuple[Record | Tombstone, str]:
    """Return the entry on a line and its stored digest. Raises Unreadable with the reason."""
    if b"\0" in raw:
        raise Unreadable("contains NUL bytes, probably left by a crash")
    try:
        raw.decode()  # decoding does not check the body
        line = _decode(raw)
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 text ({error.reason})") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(_why(raw, error)) from None
    return _entry(line), line.digest


def read_lines(
    data: bytes, name: str, line: int
) -> tuple[list[JournalRecord], list[Tombstone]] | None:
    """Return the entries of whole lines, or None if one of them needs a closer look.

    `line` is the number of the line before the first one.
    """
    if not data.endswith(b"\n") or data.startswith(BOM) or b"\0" in data or b"\r" in data:
        return None
    records: list[JournalRecord] = []
    stones: list[Tombstone] = []
    try:
        data.decode()  # decoding does not check the bodies
        lines = _decode_lines(data)
        if len(lines) != data.count(b"\n"):
            return None  # the decoder skips blank lines
        for number, one in enumerate(lines, line + 1):
            entry = _entry(one)
            if isinstance(entry, Record):
                records.append(JournalRecord(entry, name, number))
            else:
                stones.append(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Unreadable):
        return None
    return records, stones


def _entry(line: _JournalLine) -> Record | Tombstone:
    if line.v > VERSION:
        raise Unreadable(newer(line.v))
    if line.v < 1 or not line.id or not line.kind:
        raise Unreadable("is not an entry: it has no version, kind or id")
    if line.kind == FORGOTTEN:
        return Tombstone(line.id, line.at, line.reason, line.number, line.was_at)
    kind, body = intern(line.kind), bytes(line.body)  # a journal has many records of few kinds
    return Record(line.id, kind, line.number, line.at, body, line.source)


def _why(raw: bytes, error: Exception) -> str:
    try:
        version = msgspec.json.decode(raw, type=_Version).v
    except (msgspec.DecodeError, RecursionError):
        return f"is not an entry of this journal ({error})"
    if version > VERSION:
        return newer(version)
    return f"is an entry with a field that does not fit ({error})"


def newer(version: int) -> str:
    """Return the complaint about an entry that this version cannot read."""
    return f"was written by a newer Ralph (version {version}); upgrade to read it"


def short_hash(data: bytes) -> str:
    """Return a hash of these bytes, short enough to store in a position."""
    return hashlib.sha256(data).hexdigest()[:16]


# -- Planning an append: what it adds to the entries already in the journal.


class OlderEntries(Protocol):
    """The entries that an appender has not read itself."""

    def numbers(self, key: str) -> tuple[tuple[str, int], ...]:
        """Return ids and numbers by a record's digest, or by the time of a forgotten one."""

    def is_forgotten(self, record_id: str) -> bool:
        """Whether there is a tombstone for this id."""


class AppenderState(msgspec.Struct, eq=False):
    """What an appender knows about existing entries: the last number, contents, tombstones."""

    last_number: int = 0
    position: str | None = None
    forgotten: set[str] = set()
    # If it began where a ledger ends: that position, and the entries before it.
    base: str | None = None
    older: OlderEntries | None = None
    # Ids and numbers, by the digest of a live record or the creation time of a forgotten one.
    _numbers: dict[str, tuple[tuple[str, int], ...]] = {}

    def add(self, record_id: str, number: int, digest: str) -> None:
        """Add an existing record's id, number and digest."""
        known = self._numbers.get(digest, ())
        if all(other != record_id for other, _ in known):
            self._numbers[digest] = (*known, (record_id, number))
        self.last_number = max(self.last_number, number)

    def _known(self, key: str) -> tuple[tuple[str, int], ...]:
        """Return the ids and numbers of existing entries by digest or time."""
        known = self._numbers.get(key, ())
        return known if self.older is None else (*self.older.numbers(key), *known)

    def _is_forgotten(self, record_id: str) -> bool:
        if record_id in self.forgotten:
            return True
        return self.older is not None and self.older.is_forgotten(record_id)

    def bury(self, record_id: str, number: int, was_at: str) -> None:
        """Add an existing tombstone."""
        # The number stays taken: with it, another record could get the forgotten record's id.
        self.forgotten.add(record_id)
        self.last_number = max(self.last_number, number)
        if was_at:
            self.add(record_id, number, was_at)

    def plan(
        self, drafts: Drafts, name: str, check: Check | None, max_line_bytes: int = MAX_LINE_BYTES
    ) -> tuple[list[Appended], list[tuple[Record, bytes]]]:
        """Return the result of an append, and the new records with the lines to write."""
        appended: list[Appended] = []
        fresh: list[tuple[Record, bytes]] = []
        for draft in drafts:
            record = draft if isinstance(draft, Record) else self._number(draft)
            if self._is_forgotten(record.id):
                what = f"record {record.id} was forgotten and cannot be added again"
                raise RecordForgotten(what, where=name)
            new = all(known != record.id for known, _ in self._known(record.digest))
            if new:
                line = write_record(record)
                if check:
                    check(record)
                if len(line) > max_line_bytes:
                    what = f"record {record.id} takes {len(line)} bytes, the limit is "
                    todo = "Shorten it; nothing was written."
                    raise JournalError(f"{what}{max_line_bytes}", where=name, todo=todo)
                fresh.append((record, line))
                self.add(record.id, record.number, record.digest)
            appended.append(Appended(record, new))
        return appended, fresh

    def _number(self, draft: Draft) -> Record:
        """Number the draft: as before if the journal has or had it, else with the next number."""
        record = draft(self.last_number + 1)
        for key in (record.digest, record.at):
            for known, number in self._known(key):
                again = draft(number)
                if again.id == known:
                    return again
        return record


# -- Going through entries without raising: every problem is reported as a complaint.


class Step(msgspec.Struct, frozen=True, gc=False):
    """One line as read: an entry, a complaint, or both. `crc` covers the file up to its end."""

    line: int
    start: int = 0
    end: int = 0
    crc: int = 0
    entry: Record | Tombstone | None = None
    digest: str = ""
    complaint: str | None = None
    torn: bool = False
    ended: bool = True


def sort_steps(
    name: str, steps: Iterable[Step]
) -> tuple[tuple[JournalRecord, ...], tuple[Tombstone, ...], tuple[Complaint, ...]]:
    """Split steps into records, tombstones and complaints."""
    records: list[JournalRecord] = []
    stones: list[Tombstone] = []
    complaints: list[Complaint] = []
    for step in steps:
        if step.complaint:
            complaints.append(Complaint(name, step.line, step.complaint))
        if isinstance(step.entry, Record):
            records.append(JournalRecord(step.entry, name, step.line))
        elif step.entry is not None:
            stones.append(step.entry)
    return tuple(records), tuple(stones), tuple(complaints)


def judge(name: str, steps: Iterable[Step]) -> tuple[int, list[Complaint]]:
    """Return how many records the lines contain, and every problem found."""
    complaints: list[Complaint] = []
    # By record id: its line numbers, and the digests of its contents.
    lines: dict[str, list[int]] = {}
    contents: dict[str, set[str]] = {}
    buried: set[str] = set()
    for step in steps:
        wrong = [step.complaint] if step.complaint else []
        if isinstance(step.entry, Tombstone):
            buried.add(step.entry.id)
        elif (record := step.entry) is not None:
            digest = record.digest
            known = contents.setdefault(record.id, set())
            its = f"record {record.id}"
            if step.digest and step.digest != digest:
                wrong.append(f"{its} does not match its digest: changed after it was written")
            if known and digest not in known:
                first = lines[record.id][0]
                wrong.append(f"{its} is also on line {first} with different content; both are kept")
            lines.setdefault(record.id, []).append(step.line)
            known.add(digest)
        complaints += [Complaint(name, step.line, what) for what in wrong]
    for record_id in sorted(buried & lines.keys()):
        what = f"record {record_id} was forgotten and is back, by a merge perhaps; forget it again"
        complaints += [Complaint(name, line, what) for line in lines[record_id]]
    complaints.sort(key=lambda complaint: complaint.line)
    return sum(len(known) for i, known in contents.items() if i not in buried), complaints
