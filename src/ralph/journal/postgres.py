"""The journal as rows of PostgreSQL: the same promises as a file, for many machines at once.

A stream's own row gives out positions one by one, and its lock is held until the commit: so
positions have no gaps, become visible in their order, and a reader that has seen one has seen
every earlier one. Forgetting deletes rows and adds tombstones behind them all; no reader has to
begin again for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Annotated

import msgspec

from ralph.errors import BadRecord, RecordForgotten
from ralph.journal import Appended, Batch, Draft
from ralph.journal.file import (
    MAX_LINE_BYTES,
    AppenderState,
    Numbers,
    Step,
    judge,
    prepared,
    short_hash,
)
from ralph.journal.line import FORGOTTEN, VERSION, newer
from ralph.journal.session import DatabaseSession, Link, Row
from ralph.records import Complaint, Located, Record, Source, Tombstone, now

# -- Entries as rows of a table: what fits in one, what a row says, and what an appender must ask.


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


CHANNEL = "ralph_journal"
_PAGE_ROWS = 1000
_PAGE_BYTES = 4 * 1024 * 1024
_MICROS = "(extract(epoch FROM e.written_at) * 1000000)::bigint"

_STATE = f"""
SELECT s.stream, s.epoch::text, s.head, s.last_number, e.id, {_MICROS}
FROM ralph_streams s LEFT JOIN ralph_entries e ON e.stream = s.stream AND e.position = %s
WHERE s.memory = %s AND s.name = %s
"""
_MARK = f"SELECT e.id, {_MICROS} FROM ralph_entries e WHERE e.stream = %s AND e.position = %s"
# So many entries, or fewer where they are long: an answer must come within its time.
_PAGE = f"""
SELECT {COLUMNS} FROM (
    SELECT *, sum(coalesce(octet_length(body), 0)) OVER (ORDER BY position)
        - coalesce(octet_length(body), 0) AS before
    FROM (SELECT * FROM ralph_entries WHERE stream = %s AND position > %s AND position <= %s
        ORDER BY position LIMIT %s) AS page) AS counted
WHERE before < {_PAGE_BYTES} ORDER BY position
"""
_LOCK = """
SELECT stream, epoch::text, head, last_number FROM ralph_streams
WHERE memory = %s AND name = %s FOR NO KEY UPDATE
"""
_MAKE = "INSERT INTO ralph_streams (memory, name) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_MOVE = f"""
UPDATE ralph_streams SET head = %s, last_number = %s, removed = removed + %s WHERE stream = %s
RETURNING pg_current_xact_id()::text, pg_notify('{CHANNEL}', %s)
"""
# A transaction that this server does not know (it was restored) is not asked about.
_FATE = """
SELECT CASE WHEN %s::xid8 < pg_snapshot_xmax(pg_current_snapshot())
    THEN pg_xact_status(%s::xid8) END
"""
_STANDING = """
SELECT id, number, at FROM ralph_entries
WHERE stream = %s AND id = ANY(%s) AND kind <> 'forgotten' ORDER BY position
"""
_BURIED = "SELECT id FROM ralph_entries WHERE stream = %s AND id = ANY(%s) AND kind = 'forgotten'"
_DELETE = """
WITH gone AS (DELETE FROM ralph_entries
    WHERE stream = %s AND id = ANY(%s) AND kind <> 'forgotten' RETURNING 1)
SELECT count(*) FROM gone
"""
_EXPECTED = "SELECT head - removed FROM ralph_streams WHERE stream = %s"
_BEYOND = "SELECT position FROM ralph_entries WHERE stream = %s AND position > %s LIMIT 1"


class TablePosition(msgspec.Struct, frozen=True):
    """How far was read, in which stream, and which entry stood there ("" where none does now)."""

    epoch: str
    at: Annotated[int, msgspec.Meta(ge=0)]
    mark: str = ""


class Tried:
    """What an append had sent when its connection broke: perhaps it is kept, perhaps not.

    `numbers` is held while numbers are given out, and told the highest before it is committed:
    whoever has to number something while the server is away must not give it out again.
    """

    def __init__(
        self, numbers: Callable[[], AbstractContextManager[Numbers]] | None = None
    ) -> None:
        self.xid: str | None = None
        self.appended: list[Appended] = []
        self.numbers = numbers or (lambda: contextlib.nullcontext(Numbers()))


class _StreamRow(msgspec.Struct, frozen=True):
    stream: int
    epoch: str
    head: int
    last_number: int


_decode = msgspec.json.Decoder(TablePosition).decode
_encode = msgspec.json.Encoder().encode


class PostgresJournal:
    """A journal in one database. Any number of processes and machines may use it at once."""

    def __init__(
        self,
        link: Link,
        memory: Callable[[], str],
        stream: str,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._link = link
        self._memory = memory
        self._stream = stream
        self._max_line_bytes = max_line_bytes
        # The highest number as of the last time anything was asked.
        self.last_number = 0

    @property
    def name(self) -> str:
        """Host, database, memory and stream."""
        return f"{self._link.shown}/{self._memory()}/{self._stream}"

    def append(self, drafts: Sequence[Record | Draft]) -> list[Appended]:
        """Keep all of them or none; when this returns the server has them on its disk."""
        return self.attempt(drafts, Tried())

    def attempt(self, drafts: Sequence[Record | Draft], tried: Tried) -> list[Appended]:
        """Append; where the server is lost on the way, `tried` has what may be kept already."""
        if not drafts:
            return []

        def work(talk: DatabaseSession) -> list[Appended]:
            with talk.transaction():
                stream = self._locked(talk)
                if tried.xid is not None and _committed(talk, tried.xid):
                    return tried.appended  # only the answer to the commit was lost
                tried.xid, tried.appended = None, []
                with tried.numbers() as numbers:
                    appended, fresh, last_number = settled(
                        talk,
                        stream.stream,
                        max(stream.last_number, numbers.highest),
                        drafts,
                        name=self.name,
                        max_line_bytes=self._max_line_bytes,
                    )
                    numbers.highest = last_number
                if fresh:
                    head = put(talk, stream.stream, stream.head, fresh)
                    tried.xid = self._move(talk, stream, head, last_number)
                tried.appended = appended
                self.last_number = last_number
            return appended

        return self._link.run(work)

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What stands behind the position, at most `limit` entries."""
        return self._link.run(lambda talk: self._read(talk, position, limit))

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have happened since the position; cheap, for every query."""
        at = known_position(position)
        if at is None:
            return False
        state, fits = self._link.run(lambda talk: self._state(talk, at))
        return fits and at.at == (state.head if state else 0)

    def forget(
        self,
        ids: Collection[str],
        *,
        reason: str | None = None,
        stones: Sequence[Tombstone] = (),
    ) -> list[str]:
        """Take the content out for good, leave a tombstone for each, and say which were there."""
        given = {stone.id: stone for stone in stones}
        for stone in given.values():
            check_fits(Record(stone.id, FORGOTTEN, stone.number, stone.was_at or stone.at, b""))
            if not is_text(stone.id):
                raise BadRecord(f"record {stone.id!r} cannot be forgotten: its id is no text")
        wanted = sorted({one for one in ids if is_text(one)} | given.keys())
        if not wanted:
            return []
        tried: list[tuple[str, list[str]]] = []
        return self._link.run(lambda talk: self._forget(talk, wanted, reason, given, tried))

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten here."""
        sql = """SELECT id FROM ralph_entries WHERE kind = 'forgotten' AND stream =
            (SELECT stream FROM ralph_streams WHERE memory = %s AND name = %s)"""
        rows = self._link.run(lambda talk: talk.rows(sql, [self._memory(), self._stream]))
        return frozenset(row[0] for row in rows)

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong."""
        return self._link.run(self._verify)

    # -- reading

    def _state(self, talk: DatabaseSession, at: TablePosition) -> tuple[_StreamRow | None, bool]:
        """The stream as it is now, and whether the position still fits it."""
        rows = talk.rows(_STATE, [at.at, self._memory(), self._stream])
        if not rows:
            return None, at.at == 0
        stream, epoch, head, last_number, *marked = rows[0]
        self.last_number = last_number
        state = _StreamRow(stream, epoch, head, last_number)
        if at.at == 0:
            return state, True
        same = at.epoch == epoch and at.at <= head
        # A row that is gone was forgotten; one that is another came with a restored database.
        return state, same and (not at.mark or marked[0] is None or at.mark == _mark(marked))

    def _read(self, talk: DatabaseSession, position: str | None, limit: int | None) -> Batch:
        at = known_position(position)
        start = at or TablePosition("", 0)
        state, fits = self._state(talk, start)
        restarted = position is not None and (at is None or not fits)
        if state is None:
            return Batch((), (), (), _given("", 0, ""), restarted, done=True)
        after = start.at if fits and at is not None else 0
        rows: list[Row] = []
        for page in self._pages(talk, state, after, limit):
            rows += page
        done = limit is None or len(rows) <= limit
        kept = rows if limit is None else rows[:limit]
        end = state.head if done else (kept[-1][0] if kept else after)
        records: list[Located] = []
        stones: list[Tombstone] = []
        complaints: list[Complaint] = []
        name = self.name
        for step in steps(kept):
            if step.complaint:
                complaints.append(Complaint(name, step.line, step.complaint))
            if isinstance(step.entry, Record):
                records.append(Located(step.entry, name, step.line))
            elif step.entry is not None:
                stones.append(step.entry)
        marked = talk.rows(_MARK, [state.stream, end])
        where = _given(state.epoch, end, _mark(marked[0]) if marked else "")
        return Batch(tuple(records), tuple(stones), tuple(complaints), where, restarted, done)

    def _pages(
        self, talk: DatabaseSession, state: _StreamRow, after: int, limit: int | None
    ) -> Iterator[list[Row]]:
        """The rows up to the head as it was, and one beyond the limit where there is one."""
        left = None if limit is None else limit + 1
        while after < state.head and left != 0:
            size = _PAGE_ROWS if left is None else min(left, _PAGE_ROWS)
            page = talk.rows(_PAGE, [state.stream, after, state.head, size])
            if not page:
                return
            yield page
            after = page[-1][0]
            left = None if left is None else left - len(page)

    def _verify(self, talk: DatabaseSession) -> tuple[int, list[Complaint]]:
        with talk.transaction(snapshot=True):
            state, _ = self._state(talk, TablePosition("", 0))
            if state is None:
                return 0, []
            name = self.name
            there = 0

            def rows() -> Iterator[Row]:
                nonlocal there
                for page in self._pages(talk, state, 0, None):
                    there += len(page)
                    yield from page

            count, complaints = judge(name, iter(steps(rows())))
            [(expected,)] = talk.rows(_EXPECTED, [state.stream])
            beyond = talk.rows(_BEYOND, [state.stream, state.head])
        if expected != there or beyond:
            what = f"{there} entries stand here and {expected} were written: rows were taken away"
            complaints.append(Complaint(name, state.head, what))
        return count, complaints

    # -- writing

    def _locked(self, talk: DatabaseSession) -> _StreamRow:
        """The stream with its lock held, made where it is new."""
        names = [self._memory(), self._stream]
        rows = talk.rows(_LOCK, names, waits=True)
        if not rows:
            talk.rows(_MAKE, names, waits=True)
            rows = talk.rows(_LOCK, names, waits=True)
        return _StreamRow(*rows[0])

    def _move(
        self,
        talk: DatabaseSession,
        stream: _StreamRow,
        head: int,
        last_number: int,
        removed: int = 0,
    ) -> str:
        """Set the stream's row, wake whoever listens after the commit; gives the transaction."""
        woken = f"{self._memory()}\n{self._stream}"
        rows = talk.rows(_MOVE, [head, last_number, removed, stream.stream, woken])
        return str(rows[0][0])

    def _forget(
        self,
        talk: DatabaseSession,
        wanted: list[str],
        reason: str | None,
        given: dict[str, Tombstone],
        tried: list[tuple[str, list[str]]],
    ) -> list[str]:
        with talk.transaction():
            if not given and not talk.rows(_STATE, [0, self._memory(), self._stream]):
                return []
            stream = self._locked(talk)
            for xid, were_there in tried:
                if _committed(talk, xid):
                    return were_there  # only the answer to the commit was lost
            at = now()
            gone = {
                row[0]: Tombstone(row[0], at, reason, row[1], row[2])
                for row in talk.rows(_STANDING, [stream.stream, wanted])
            }
            buried = {row[0] for row in talk.rows(_BURIED, [stream.stream, wanted])}
            stones = [stone for i, stone in (gone | given).items() if i not in buried]
            if gone or stones:
                removed = talk.rows(_DELETE, [stream.stream, list(gone)])[0][0]
                head = put(talk, stream.stream, stream.head, stones)
                last = max([stream.last_number, *(stone.number for stone in stones)])
                tried.append((self._move(talk, stream, head, last, removed), list(gone)))
        return list(gone)


def known_position(position: str | None) -> TablePosition | None:
    """The position read; None for none, and for one of a file or of another version of Ralph."""
    try:
        return None if position is None else _decode(position)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _given(epoch: str, at: int, mark: str) -> str:
    return _encode(TablePosition(epoch, at, mark)).decode()


def _mark(row: Sequence[object]) -> str:
    return short_hash(f"{row[0]} {row[1]}".encode())


def _committed(talk: DatabaseSession, xid: str) -> bool:
    return bool(talk.rows(_FATE, [xid, xid])[0][0] == "committed")
