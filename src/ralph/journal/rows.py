"""Entries as rows of a table: what fits in one, what a row says, and what an appender must ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ralph.errors import BadRecord, RecordForgotten
from ralph.journal import Appended, Draft
from ralph.journal.known import AppenderState, prepared
from ralph.journal.line import FORGOTTEN, VERSION, newer
from ralph.journal.scan import Step
from ralph.journal.talk import DatabaseSession, Row
from ralph.records import Record, Source, Tombstone

COLUMNS = "position, v, kind, id, number, at, digest, source, body, reason, was_at"
# An index of the database takes no longer key.
_LONGEST_KEY_BYTES = 1000
_CHUNK_ROWS = 500
_CHUNK_BYTES = 8 * 1024 * 1024

_decode_source = msgspec.json.Decoder(Source).decode
_encode_source = msgspec.json.Encoder().encode

_PUT = """
INSERT INTO ralph_entries
    (stream, position, v, kind, id, number, at, digest, source, body, reason, was_at)
SELECT %s, * FROM unnest(
    %s::bigint[], %s::smallint[], %s::text[], %s::text[], %s::bigint[], %s::text[],
    %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
"""
_ABOUT = """
SELECT position, kind, id, number, digest, was_at FROM ralph_entries
    WHERE stream = %s AND digest = ANY(%s)
UNION SELECT position, kind, id, number, digest, was_at FROM ralph_entries
    WHERE stream = %s AND id = ANY(%s) AND kind = 'forgotten'
UNION SELECT position, kind, id, number, digest, was_at FROM ralph_entries
    WHERE stream = %s AND was_at = ANY(%s)
ORDER BY position
"""


def check_fits(record: Record) -> None:
    """Refuse what a line of a file can hold and a row cannot."""
    texts = (record.id, record.kind, record.at, record.source.run, record.source.file)
    if any("\0" in text for text in texts if text):
        raise BadRecord(f"record {record.id!r} cannot be kept: it holds a NUL character")
    if any(len(text.encode()) > _LONGEST_KEY_BYTES for text in (record.id, record.kind, record.at)):
        raise BadRecord(
            f"record {record.id[:40]!r} cannot be kept: its id, kind or time takes over "
            f"{_LONGEST_KEY_BYTES} bytes"
        )


def is_text(text: str) -> bool:
    """Whether the database can hold this at all, and so perhaps does."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def put(
    talk: DatabaseSession, stream: int, head: int, entries: Sequence[Record | Tombstone]
) -> int:
    """Write the entries behind the head, each at the next position; gives the new head."""
    chunk: list[Row] = []
    size = 0
    for position, entry in enumerate(entries, start=head + 1):
        row = _row(position, entry)
        chunk.append(row)
        size += len(row[8] or "")
        if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            _put(talk, stream, chunk)
            chunk, size = [], 0
    _put(talk, stream, chunk)
    return head + len(entries)


def _put(talk: DatabaseSession, stream: int, rows: Sequence[Row]) -> None:
    if rows:
        talk.rows(_PUT, [stream, *(list(column) for column in zip(*rows, strict=True))])


def _row(position: int, entry: Record | Tombstone) -> Row:
    if isinstance(entry, Tombstone):
        reason = (entry.reason or "").encode(errors="replace").decode().replace("\0", "?")
        told = (None, "{}", None, reason or None, entry.was_at or None)
        return (position, VERSION, FORGOTTEN, entry.id, entry.number, entry.at, *told)
    source = _encode_source(entry.source).decode()
    told_of = (entry.digest, source, entry.body.decode(), None, None)
    return (position, VERSION, entry.kind, entry.id, entry.number, entry.at, *told_of)


def steps(rows: Iterable[Row]) -> Iterable[Step]:
    """The rows as lines of a journal: each with its entry, or with what is wrong with it."""
    for position, v, kind, record_id, number, at, digest, source, body, reason, was_at in rows:
        entry: Record | Tombstone | None = None
        complaint: str | None = None
        if v > VERSION:
            complaint = newer(v)
        elif kind == FORGOTTEN:
            entry = Tombstone(record_id, at, reason, number, was_at or "")
        else:
            try:
                told = Source() if source == "{}" else _decode_source(source)
            except msgspec.DecodeError as error:
                told, complaint = Source(), f"has a source that does not fit ({error})"
            raw = (body or "").encode()
            entry = Record(record_id, kind, number, at, raw, told)
        yield Step(position, 0, 0, 0, entry, digest or "", complaint)


class _Asking(AppenderState):
    """What is known so far, and what was asked for beyond it."""

    def __init__(self, last_number: int) -> None:
        super().__init__()
        self.last_number = last_number
        self.digests: set[str] = set()
        self.times: set[str] = set()
        self.ids: set[str] = set()

    def numbered(self, draft: Draft) -> Record:
        """The draft as the journal has or had it already, else with the next number."""
        wanted = draft(self.last_number + 1)
        self._needs(wanted)
        return super().numbered(draft)

    def buried(self, record: Record) -> bool:
        """Whether what has this id was forgotten."""
        self._needs(record)
        return super().buried(record)

    def _needs(self, record: Record) -> None:
        # What cannot be kept stands nowhere; the write refuses it in words of its own.
        if is_text(record.id) and is_text(record.at):
            self.digests.add(record.digest)
            self.times.add(record.at)
            self.ids.add(record.id)


def settled(
    talk: DatabaseSession,
    stream: int,
    last_number: int,
    drafts: Sequence[Record | Draft],
    *,
    name: str,
    max_line_bytes: int,
) -> tuple[list[Appended], list[Record], int]:
    """What an append comes to by the rules of `Known`, the records to write, the last number.

    Numbers decide ids, and what stands there decides numbers: so what a first look would use is
    asked for, and looked at again, until nothing is left to ask.
    """
    digests: set[str] = set()
    times: set[str] = set()
    ids: set[str] = set()
    facts: dict[int, Row] = {}
    while True:
        known = _Asking(last_number)
        for _, kind, record_id, number, digest, was_at in (facts[at] for at in sorted(facts)):
            if kind == FORGOTTEN:
                known.bury(Tombstone(record_id, "", None, number, was_at or ""))
            else:
                known.stands(digest, record_id, number)
        refused: RecordForgotten | None = None
        appended: list[Appended] = []
        fresh: list[tuple[Record, bytes]] = []
        try:
            appended, fresh = prepared(drafts, known, name=name, max_line_bytes=max_line_bytes)
        except RecordForgotten as error:
            refused = error
        lacking = known.digests - digests, known.ids - ids, known.times - times
        if not any(lacking):
            if refused is not None:
                raise refused
            records = [record for record, _ in fresh]
            for record in records:
                check_fits(record)
            return appended, records, known.last_number
        params: list[object] = []
        for some in lacking:
            params += [stream, list(some)]
        facts.update((row[0], row) for row in talk.rows(_ABOUT, params))
        digests |= known.digests
        ids |= known.ids
        times |= known.times
