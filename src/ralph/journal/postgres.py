"""The journal as rows in PostgreSQL: the same promises as a file, for many machines at once.

Each stream has a row that hands out positions and stays locked until the commit. So positions
have no gaps and become visible in order: a reader that has seen one has seen all earlier ones.
Forgetting deletes rows and appends tombstones, so no reader has to start over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, TypeVar

import msgspec

from ralph.errors import BadRecord, RecordForgotten
from ralph.journal import Appended, Batch, Draft, Drafts, Ids, Stones, read_position, write_position
from ralph.journal import line as entries
from ralph.journal.file import check_name
from ralph.journal.line import FORGOTTEN, VERSION, AppenderState, Step, short_hash
from ralph.journal.session import CHANNEL, DatabaseSession, Link, Listener, Row
from ralph.records import Complaint, Record, Source, Tombstone, now

# -- Entries as table rows: what fits into a row, reading and writing rows, planning an append.


_T = TypeVar("_T")
_COLUMNS = "position, v, kind, id, number, at, digest, source, body, reason, was_at"
# Longer keys do not fit into the database's indexes.
_LONGEST_KEY_BYTES = 1000
_CHUNK_ROWS = 500
_CHUNK_BYTES = 8 * 1024 * 1024

_decode_source = msgspec.json.Decoder(Source).decode

_PUT = """
INSERT INTO ralph_entries
    (stream, position, v, kind, id, number, at, digest, source, body, reason, was_at)
SELECT %s, * FROM unnest(
    %s::bigint[], %s::smallint[], %s::text[], %s::text[], %s::bigint[], %s::text[],
    %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
"""
_ABOUT = """
SELECT position, kind, id, number, digest, was_at FROM ralph_entries
WHERE stream = %s
    AND (digest = ANY(%s) OR id = ANY(%s) AND kind = 'forgotten' OR was_at = ANY(%s))
ORDER BY position
"""


def check_fits(record: Record) -> None:
    """Refuse a record that fits into a line of a file but not into a row."""
    texts = (record.id, record.kind, record.at, record.source.run, record.source.file)
    if any("\0" in text for text in texts if text):
        raise BadRecord(f"record {record.id!r} cannot be kept: it holds a NUL character")
    if any(len(text.encode()) > _LONGEST_KEY_BYTES for text in (record.id, record.kind, record.at)):
        raise BadRecord(
            f"record {record.id[:40]!r} cannot be kept: its id, kind or time takes over "
            f"{_LONGEST_KEY_BYTES} bytes"
        )


def is_text(text: str) -> bool:
    """Return whether the database can store this text, and so may contain it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _put(db: DatabaseSession, stream: int, head: int, entries: Sequence[Record | Tombstone]) -> int:
    """Insert the entries after the head, each at the next position; return the new head."""
    chunk: list[Row] = []
    size = 0
    for position, entry in enumerate(entries, start=head + 1):
        row = _row(position, entry)
        chunk.append(row)
        size += len(row[8] or "")
        if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_BYTES or position == head + len(entries):
            db.rows(_PUT, [stream, *(list(column) for column in zip(*chunk, strict=True))])
            chunk = []
            size = 0
    return head + len(entries)


def _row(position: int, entry: Record | Tombstone) -> Row:
    content: Row
    if isinstance(entry, Tombstone):
        kind = FORGOTTEN
        reason = (entry.reason or "").encode(errors="replace").decode().replace("\0", "?")
        content = (None, "{}", None, reason or None, entry.was_at or None)
    else:
        kind = entry.kind
        source = msgspec.json.encode(entry.source).decode()
        content = (entry.digest, source, entry.body.decode(), None, None)
    return (position, VERSION, kind, entry.id, entry.number, entry.at, *content)


def _steps(rows: Iterable[Row]) -> Iterator[Step]:
    """Yield the rows as journal lines, each with its entry, a complaint, or both."""
    for position, v, kind, record_id, number, at, digest, source, body, reason, was_at, _ in rows:
        entry: Record | Tombstone | None = None
        complaint: str | None = None
        if v > VERSION:
            complaint = entries.newer(v)
        elif kind == FORGOTTEN:
            entry = Tombstone(record_id, at, reason, number, was_at or "")
        else:
            origin = Source()
            if source != "{}":
                try:
                    origin = _decode_source(source)
                except msgspec.DecodeError as error:
                    complaint = f"has a source that does not fit ({error})"
            entry = Record(record_id, kind, number, at, (body or "").encode(), origin)
        yield Step(position, entry=entry, digest=digest or "", complaint=complaint)


def _plan(
    db: DatabaseSession, stream: int, last_number: int, drafts: Drafts, name: str
) -> tuple[list[Appended], list[Record], int]:
    """Return the result of an append, the records to write, and the last number.

    Numbers decide ids, and existing entries decide numbers. So this plans, queries the entries
    that the plan depends on, and plans again until there is nothing left to query.
    """
    # Digest, id and time of every record in a plan so far.
    seen: set[tuple[str, str, str]] = set()

    def noted(record: Record) -> Record:
        # The database cannot contain other text; writing it fails with its own message.
        if is_text(record.id) and is_text(record.at):
            seen.add((record.digest, record.id, record.at))
        return record

    def noting(draft: Draft) -> Draft:
        return lambda number: noted(draft(number))

    asked: set[tuple[str, str, str]] = set()
    facts: dict[int, Row] = {}
    watched = [noted(one) if isinstance(one, Record) else noting(one) for one in drafts]
    while True:
        state = AppenderState(last_number)
        for _, (_, kind, record_id, number, digest, was_at) in sorted(facts.items()):
            if kind == FORGOTTEN:
                state.bury(record_id, number, was_at or "")
            else:
                state.add(record_id, number, digest)
        try:
            appended, fresh = state.plan(watched, name, check_fits)
        except RecordForgotten:
            if seen <= asked:
                raise
        if seen <= asked:
            return appended, [record for record, _ in fresh], state.last_number
        keys = (list(values) for values in zip(*(seen - asked), strict=True))
        facts.update((row[0], row) for row in db.rows(_ABOUT, [stream, *keys]))
        asked = set(seen)


_PAGE_ROWS = 1000
# Longer batches are not remembered for other readers.
_MOST_REMEMBERED = 20
_PAGE_BYTES = 4 * 1024 * 1024
_MICROS = "(extract(epoch FROM e.written_at) * 1000000)::bigint"

_STATE = f"""
SELECT s.stream, s.epoch::text, s.head, s.last_number, e.id, {_MICROS}
FROM ralph_streams s LEFT JOIN ralph_entries e ON e.stream = s.stream AND e.position = %s
WHERE s.memory = %s AND s.name = %s
"""
# A position is marked with the entry there, which tells whether the database was restored.
_MARK = f"SELECT e.id, {_MICROS} FROM ralph_entries e WHERE e.stream = %s AND e.position = %s"
# A limited number of entries, fewer if they are long: the answer must arrive in time.
_PAGE = f"""
SELECT {_COLUMNS}, {_MICROS} FROM (
    SELECT *, sum(coalesce(octet_length(body), 0)) OVER (ORDER BY position)
        - coalesce(octet_length(body), 0) AS before
    FROM (SELECT * FROM ralph_entries WHERE stream = %s AND position > %s AND position <= %s
        ORDER BY position LIMIT %s) AS page) AS e
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
# Asks only about transactions this server knows: a restored server may not know them all.
_FATE = """
SELECT CASE WHEN %s::xid8 < pg_snapshot_xmax(pg_current_snapshot())
    THEN pg_xact_status(%s::xid8) END
"""
_FOUND = """
SELECT id, kind, number, at FROM ralph_entries WHERE stream = %s AND id = ANY(%s) ORDER BY position
"""
_DELETE = """
WITH gone AS (DELETE FROM ralph_entries
    WHERE stream = %s AND id = ANY(%s) AND kind <> 'forgotten' RETURNING 1)
SELECT count(*) FROM gone
"""
# How many entries there should be, how many there are, and how many are beyond the head.
_COUNTS = """
SELECT s.head - s.removed,
    (SELECT count(*) FROM ralph_entries e WHERE e.stream = s.stream AND e.position <= s.head),
    (SELECT count(*) FROM ralph_entries e WHERE e.stream = s.stream AND e.position > s.head)
FROM ralph_streams s WHERE s.stream = %s
"""


class TablePosition(msgspec.Struct, frozen=True):
    """How far a stream was read, and a hash of the entry at that position ("" if none)."""

    epoch: str
    at: Annotated[int, msgspec.Meta(ge=0)]
    mark: str = ""


class Numbers(msgspec.Struct):
    """The highest number given out so far, by anyone."""

    highest: int = 0


class Tried(msgspec.Struct):
    """What an append had sent when its connection broke. It may or may not be stored.

    `numbers` is held while numbers are given out, and gets the highest before the commit. So
    nobody gives out the same numbers again while the server is down.
    """

    numbers: Callable[[], AbstractContextManager[Numbers]] = lambda: nullcontext(Numbers())
    xid: str | None = None
    appended: list[Appended] = []


class _StreamRow(msgspec.Struct, frozen=True):
    stream: int
    epoch: str
    head: int
    last_number: int


class PostgresJournal:
    """A journal in one database. Any number of processes and machines may use it at once."""

    def __init__(self, link: Link, memory: Callable[[], str], stream: str) -> None:
        self._link = link
        self._memory = memory
        self._stream = stream
        # The highest number, as of the last query.
        self.last_number = 0

    @property
    def name(self) -> str:
        """Host, database, memory and stream."""
        return f"{self._link.shown}/{self._memory()}/{self._stream}"

    def append(self, drafts: Drafts) -> list[Appended]:
        """Append all drafts or none; when this returns they are on the server's disk."""
        return self.attempt(drafts, Tried())

    def attempt(self, drafts: Drafts, tried: Tried) -> list[Appended]:
        """Append. If the connection breaks, `tried` has the records that may be stored already."""
        if not drafts:
            return []

        def work(db: DatabaseSession) -> list[Appended]:
            with db.transaction():
                stream = self._locked(db)
                if tried.xid is not None and _committed(db, tried.xid):
                    return tried.appended  # only the answer to the commit was lost
                tried.xid = None
                tried.appended = []
                with tried.numbers() as numbers:
                    last = max(stream.last_number, numbers.highest)
                    appended, fresh, last = _plan(db, stream.stream, last, drafts, self.name)
                    numbers.highest = last
                if fresh:
                    head = _put(db, stream.stream, stream.head, fresh)
                    tried.xid = self._move(db, stream, head, last)
                tried.appended = appended
                self.last_number = last
            return appended

        return self._write(work)

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """Return the entries after the position, at most `limit` of them."""
        if limit is not None and limit < _MOST_REMEMBERED:
            return self._link.run(lambda db: self._read(db, position, limit))
        batch = self._after(position, limit)
        self.last_number = max([self.last_number, *(one.record.number for one in batch.records)])
        return batch

    def unchanged(self, position: str | None) -> bool:
        """Return True only if nothing was written since the position. Cheap, for every query."""
        if position is None or (at := read_position(position, TablePosition)) is None:
            return False
        if self._link.remembers:  # what has changed is read next, so read it now
            return self._after(position, _MOST_REMEMBERED).position == position
        state, fits = self._link.run(lambda db: self._state(db, at))
        return fits and at.at == (state.head if state else 0)

    def _after(self, position: str | None, limit: int | None) -> Batch:
        """Return the entries after the position. Short batches are remembered, because several
        readers follow each stream."""

        def known(batch: Batch) -> dict[str, Any]:
            lines = len(batch.records) + len(batch.tombstones) + len(batch.complaints)
            if not batch.done or lines > _MOST_REMEMBERED:
                return {}
            nothing = Batch((), (), (), batch.position, restarted=False, done=True)
            return {f"after {batch.position}": nothing, what: batch}

        what = f"after {position}"
        return self._link.ask(
            self._memory(), self._stream, what, lambda db: self._read(db, position, limit), known
        )

    def forget(self, ids: Ids, *, reason: str | None = None, stones: Stones = ()) -> list[str]:
        """Delete records for good, leave a tombstone for each, and return the ids that existed."""
        given = {stone.id: stone for stone in stones}
        for stone in given.values():
            check_fits(Record(stone.id, FORGOTTEN, stone.number, stone.was_at or stone.at, b""))
            if not is_text(stone.id):
                raise BadRecord(f"record {stone.id!r} cannot be forgotten: its id is no text")
        wanted = sorted({one for one in ids if is_text(one)} | given.keys())
        if not wanted:
            return []
        tried: list[tuple[str, list[str]]] = []

        def work(db: DatabaseSession) -> list[str]:
            with db.transaction():
                if not given and not db.rows(_STATE, [0, self._memory(), self._stream]):
                    return []
                stream = self._locked(db)
                for xid, before in tried:
                    if _committed(db, xid):
                        return before  # only the answer to the commit was lost
                at = now()
                gone: dict[str, Tombstone] = {}
                buried: set[str] = set()
                for found, kind, number, was_at in db.rows(_FOUND, [stream.stream, wanted]):
                    if kind == FORGOTTEN:
                        buried.add(found)
                    else:
                        gone[found] = Tombstone(found, at, reason, number, was_at)
                stones = [stone for i, stone in (gone | given).items() if i not in buried]
                if gone or stones:
                    removed = db.rows(_DELETE, [stream.stream, list(gone)])[0][0]
                    head = _put(db, stream.stream, stream.head, stones)
                    last = max([stream.last_number, *(stone.number for stone in stones)])
                    tried.append((self._move(db, stream, head, last, removed), list(gone)))
            return list(gone)

        return self._write(work)

    def verify(self) -> tuple[int, list[Complaint]]:
        """Return how many records can be read, and every problem found."""
        return self._link.run(self._verify)

    # -- reading

    def _state(self, db: DatabaseSession, at: TablePosition) -> tuple[_StreamRow | None, bool]:
        """Return the stream as it is now, and whether the position still fits it."""
        rows = db.rows(_STATE, [at.at, self._memory(), self._stream])
        if not rows:
            return None, at.at == 0
        stream, epoch, head, last_number, *marked = rows[0]
        self.last_number = last_number
        state = _StreamRow(stream, epoch, head, last_number)
        if at.at == 0:
            return state, True
        same = at.epoch == epoch and at.at <= head
        # A missing row was forgotten. A different row means that the database was restored.
        return state, same and (not at.mark or marked[0] is None or at.mark == _mark(marked))

    def _read(self, db: DatabaseSession, position: str | None, limit: int | None) -> Batch:
        at = read_position(position, TablePosition)
        start = at or TablePosition("", 0)
        state, fits = self._state(db, start)
        restarted = position is not None and (at is None or not fits)
        if state is None:
            return Batch((), (), (), write_position(TablePosition("", 0)), restarted, done=True)
        after = start.at if fits and at is not None else 0
        rows = list(self._rows(db, state, after, limit))
        done = limit is None or len(rows) <= limit
        rows = rows[:limit]
        if done and not rows and position and not restarted and after == state.head:
            return Batch((), (), (), position, restarted, done)
        last = state.head if done else (rows[-1][0] if rows else after)
        marked = [(one[3], one[-1]) for one in rows[-1:] if one[0] == last]
        marked = marked or db.rows(_MARK, [state.stream, last])
        end = write_position(TablePosition(state.epoch, last, _mark(marked[0]) if marked else ""))
        return Batch(*entries.sort_steps(self.name, _steps(rows)), end, restarted, done)

    def _rows(
        self, db: DatabaseSession, state: _StreamRow, after: int, limit: int | None
    ) -> Iterator[Row]:
        """Yield the rows up to `state.head`, and one more than `limit` if there is one."""
        left = sys.maxsize if limit is None else limit + 1
        while after < state.head and left > 0:
            page = db.rows(_PAGE, [state.stream, after, state.head, min(left, _PAGE_ROWS)])
            if not page:
                return
            yield from page
            after = page[-1][0]
            left -= len(page)

    def _verify(self, db: DatabaseSession) -> tuple[int, list[Complaint]]:
        with db.transaction(snapshot=True):
            state, _ = self._state(db, TablePosition("", 0))
            if state is None:
                return 0, []
            count, complaints = entries.judge(self.name, _steps(self._rows(db, state, 0, None)))
            [(expected, there, beyond)] = db.rows(_COUNTS, [state.stream])
        if expected != there or beyond:
            what = f"found {there} entries but {expected} were written: rows are missing"
            complaints.append(Complaint(self.name, state.head, what))
        return count, complaints

    # -- writing

    def _write(self, work: Callable[[DatabaseSession], _T]) -> _T:
        try:
            return self._link.run(work)
        finally:
            self._link.changed(self._memory(), self._stream)

    def _locked(self, db: DatabaseSession) -> _StreamRow:
        """Lock the stream and return it, creating it if it is new."""
        names = [self._memory(), self._stream]
        rows = db.rows(_LOCK, names, waits=True)
        if not rows:
            db.rows(_MAKE, names, waits=True)
            rows = db.rows(_LOCK, names, waits=True)
        return _StreamRow(*rows[0])

    def _move(
        self, db: DatabaseSession, stream: _StreamRow, head: int, last: int, removed: int = 0
    ) -> str:
        """Update the stream's row and notify listeners on commit; return the transaction id."""
        woken = f"{self._memory()}\n{self._stream}"
        return str(db.rows(_MOVE, [head, last, removed, stream.stream, woken])[0][0])


def _mark(row: Sequence[object]) -> str:
    return short_hash(f"{row[0]} {row[1]}".encode())


def _committed(db: DatabaseSession, xid: str) -> bool:
    return bool(db.rows(_FATE, [xid, xid])[0][0] == "committed")


# -- The journals of one memory, each a stream of one database.

_NAMES = "SELECT name FROM ralph_streams WHERE memory = %s"
_NEWEST = """
SELECT at FROM ralph_entries
WHERE stream = (SELECT stream FROM ralph_streams WHERE memory = %s AND name = %s)
    AND kind <> 'forgotten'
ORDER BY position DESC LIMIT 50
"""
# Adds up only the first entries: enough to tell a short journal from a long one.
_SIZE = """
SELECT coalesce(sum(size), 0) FROM (
    SELECT octet_length(e.body) + 200 AS size
    FROM ralph_entries e JOIN ralph_streams s USING (stream)
    WHERE s.memory = %s AND s.name = %s LIMIT 10000) AS first
"""


class PostgresJournals:
    """The journals of one memory, each a stream of one database.

    `memory` is a function because a project gets its id only with its first record.
    """

    def __init__(self, link: Link, memory: Callable[[], str]) -> None:
        self.link = link
        self.memory = memory

    @property
    def where(self) -> str:
        """Host, database and memory."""
        return f"{self.link.shown}/{self.memory()}"

    def journal(self, name: str) -> PostgresJournal:
        """Return the journal with this name. Its first append creates the stream."""
        check_name(name)
        return PostgresJournal(self.link, self.memory, name)

    def names(self) -> list[str]:
        """Return the names of all existing journals."""
        rows = self.link.ask(
            (memory := self.memory()), "", "names", lambda db: db.rows(_NAMES, [memory])
        )
        return sorted(row[0] for row in rows)

    def newest_at(self, name: str) -> str:
        """Return the time of the newest record, reading only the stream's end; "" if unknown."""
        memory = self.memory()
        rows = self.link.ask(memory, name, "newest", lambda db: db.rows(_NEWEST, [memory, name]))
        return max((row[0] for row in rows), default="")

    def size_bytes(self, name: str) -> int:
        """Return roughly how many bytes there are to read; counts only part of a long journal."""
        return int(self.link.run(lambda db: db.rows(_SIZE, [self.memory(), name]))[0][0])

    def trouble(self) -> str | None:
        """Return why the server was not reached last time, or None if it was."""
        why = self.link.trouble
        return None if why is None else f"{self.link.shown}: {why}"

    def listener(self) -> Listener:
        """Return a listener for new records in these journals. It has its own connection."""
        return Listener(self.link, self.memory)

    def close(self) -> None:
        """Close the connection. It reopens when needed."""
        self.link.close()
