"""The table of contents of a long journal file: which entries it has, and where each line is.

A process that appends one record, or wants the newest ones, asks the ledger and reads only the end
of the file. A ledger is made from its journal and can be deleted at any time. It is used only as
far as the journal's bytes still match the position stored with it, and never decides alone: lines
are read from the journal, and what was appended since is added.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ralph import disk
from ralph.journal import Selection, read_position
from ralph.journal.line import FORGOTTEN, Step, Unreadable, read_line
from ralph.journal.position import (
    NO_FILE,
    TAIL_BYTES,
    FilePosition,
    position_at,
    resume,
    scan,
    tail_hash,
)
from ralph.records import JournalRecord, Record, Tombstone

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

# Part of the file's name, so that another version makes its own.
_SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS head (
    position TEXT NOT NULL, last_number INTEGER NOT NULL, entries INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS entry (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL,
    number INTEGER NOT NULL, at TEXT NOT NULL, run TEXT,
    line INTEGER NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS entry_id ON entry (id, key);
CREATE INDEX IF NOT EXISTS entry_key ON entry (key);
CREATE INDEX IF NOT EXISTS entry_kind ON entry (kind, at);
CREATE INDEX IF NOT EXISTS entry_run ON entry (run) WHERE run IS NOT NULL;
"""
_BUSY_TIMEOUT_S = 1.0
# The pages that adding lines to a long ledger writes; SQLite takes only what it uses.
_CACHE_KB = 64 * 1024
# Below the limit on query parameters of every SQLite build.
_IDS_AT_ONCE = 500
# How many lines to add in one transaction: a process that is killed has not worked for nothing.
_LINES_AT_ONCE = 20_000


class LedgerOff(Exception):
    """The ledger cannot be used now; the journal itself has everything."""


class LedgerDamaged(Exception):
    """The ledger is wrong. It is deleted, and made again from the journal."""


class LedgerHead(NamedTuple):
    """How far the ledger goes, the highest number up to there, and how many entries it has."""

    position: str
    last_number: int
    entries: int


class Place(NamedTuple):
    """Where the line of a record is in its journal."""

    id: str
    at: str
    line: int
    start: int
    size: int


class LedgerView:
    """The ledger as one transaction sees it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def head(self) -> LedgerHead | None:
        """Return how far the ledger goes; None if it is empty."""
        row = self._connection.execute("SELECT position, last_number, entries FROM head").fetchone()
        return None if row is None else LedgerHead(*row)

    def trusted_head(self, file: BinaryIO) -> LedgerHead | None:
        """Return how far the ledger goes, or None if it does not fit the journal's file.

        A ledger that is wrong although its position fits is damaged: that raises LedgerDamaged.
        """
        head = self.head()
        at = None if head is None else resume(file, head.position, os.fstat(file.fileno()))
        if head is None or at is None:
            return None
        [count] = self._connection.execute("SELECT count(*) FROM entry").fetchone()
        if count != head.entries:
            raise LedgerDamaged(f"it has {count} entries instead of {head.entries}")
        if head.last_number < _last_number_before(file, at.offset):
            raise LedgerDamaged("its last number is too low")
        return head

    def record_at(self, place: Place, file: BinaryIO, name: str) -> JournalRecord:
        """Return the record on a line of the journal."""
        file.seek(place.start)
        with contextlib.suppress(Unreadable):
            entry, _ = read_line(file.read(place.size).strip())
            if isinstance(entry, Record) and entry.id == place.id:
                return JournalRecord(entry, name, place.line)
        raise LedgerDamaged(f"record {place.id} is not on line {place.line}")

    def numbers(self, key: str) -> tuple[tuple[str, int], ...]:
        """Return ids and numbers by a record's digest, or by the time of a forgotten one."""
        select = "SELECT id, number FROM entry WHERE key = ?"
        return tuple(self._connection.execute(select, (key,)).fetchall())

    def is_forgotten(self, record_id: str) -> bool:
        """Whether there is a tombstone for this id."""
        select = "SELECT 1 FROM entry WHERE id = ? AND kind = ?"
        return self._connection.execute(select, (record_id, FORGOTTEN)).fetchone() is not None

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that have an entry, also if it is a tombstone."""
        found: set[str] = set()
        for part in _parts(ids):
            select = f"SELECT id FROM entry WHERE id IN ({_marks(part)})"
            found |= {row[0] for row in self._connection.execute(select, part)}
        return found

    def places(self, selection: Selection) -> list[Place]:
        """Return where the live records of a selection are."""
        columns = "SELECT id, at, line, start, size FROM entry WHERE"
        living = "id NOT IN (SELECT id FROM entry WHERE kind = ?)"
        found: list[Place] = []
        if selection.run is not None:
            select = f"{columns} run = ? AND {living}"
            found += self._places(select, selection.run, FORGOTTEN)
        for part in _parts(selection.ids):
            select = f"{columns} id IN ({_marks(part)}) AND kind != ? AND {living}"
            found += self._places(select, *part, FORGOTTEN, FORGOTTEN)
        for kind in selection.kinds:
            select = f"{columns} kind = ? AND {living} ORDER BY at DESC, line DESC LIMIT ?"
            limit = -1 if selection.newest is None else selection.newest
            found += self._places(select, kind, FORGOTTEN, limit)
        return found

    def _places(self, select: str, *values: object) -> Iterator[Place]:
        return map(Place._make, self._connection.execute(select, values))

    def clear(self) -> None:
        """Remove everything, because the journal was rewritten."""
        self._connection.execute("DELETE FROM entry")
        self._connection.execute("DELETE FROM head")

    def add(self, steps: Sequence[Step], position: str) -> None:
        """Add the entries of the next lines, which end at the position."""
        head = self.head() or LedgerHead("", 0, 0)
        last_number = head.last_number
        rows: list[tuple[object, ...]] = []
        for step in steps:
            entry = step.entry
            if isinstance(entry, Record):
                key = entry.digest
                kind = entry.kind
                run = entry.source.run
            elif isinstance(entry, Tombstone):
                key = entry.was_at
                kind = FORGOTTEN
                run = None
            else:
                continue
            last_number = max(last_number, entry.number)
            size = step.end - step.start
            rows.append(
                (entry.id, key, kind, entry.number, entry.at, run, step.line, step.start, size)
            )
        # A merge may repeat a line; the first one counts.
        insert = "INSERT OR IGNORE INTO entry (id, key, kind, number, at, run, line, start, size)"
        before = self._connection.total_changes
        self._connection.executemany(f"{insert} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        entries = head.entries + self._connection.total_changes - before
        self._connection.execute("DELETE FROM head")
        values = position, last_number, entries
        self._connection.execute("INSERT INTO head VALUES (?, ?, ?)", values)


class Ledger:
    """The ledger of one journal, in a file of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.ledger-v{_SCHEMA}"
        # How far it went when this process last looked.
        self.offset = 0

    @contextlib.contextmanager
    def view(self, *, writes: bool = False) -> Iterator[LedgerView]:
        """Yield the ledger in one transaction. Raises LedgerOff, also from inside the block."""
        import sqlite3  # a process that only appends to short journals need not load it

        try:
            connection = self._connect()
            try:
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield LedgerView(connection)
                connection.execute("COMMIT")
            finally:
                connection.close()  # rolls back what was not committed
        except sqlite3.OperationalError as error:  # busy, or no place to write
            raise LedgerOff(str(error)) from error
        except (sqlite3.Error, LedgerDamaged) as error:
            self.discard()
            raise LedgerOff(str(error)) from error

    def is_near(self, file: BinaryIO, distance: int) -> bool:
        """Whether the ledger ends at most this many bytes before the end of the journal."""
        stat = os.fstat(file.fileno())
        with self.view() as view:
            head = view.head()
        at = None if head is None else resume(file, head.position, stat)
        self.offset = 0 if at is None else at.offset
        return at is not None and stat.st_size <= at.offset + distance

    def extend(self, file: BinaryIO, max_line_bytes: int) -> None:
        """Add the journal's lines that are not in the ledger yet."""
        while self._add_lines(file, max_line_bytes):
            pass

    def _add_lines(self, file: BinaryIO, max_line_bytes: int) -> bool:
        """Add the next lines; return whether there are more."""
        stat = os.fstat(file.fileno())
        with self.view(writes=True) as view:
            head = view.head()
            at = None if head is None else resume(file, head.position, stat)
            if at is None:
                view.clear()
                at = NO_FILE
            lines = scan(file, max_line_bytes, at.offset, at.line, at.crc)
            # The last line may still be written.
            steps = [step for step in islice(lines, _LINES_AT_ONCE) if step.ended]
            if steps:
                last = steps[-1]
                tail = tail_hash(file, last.end)
                position = position_at(stat, last.end, last.line, last.crc, tail, done=False)
                view.add(steps, position)
        self.offset = steps[-1].end if steps else at.offset
        return len(steps) == _LINES_AT_ONCE

    def discard(self) -> None:
        """Delete the file: it is damaged, or does not fit its journal. It is made again."""
        for side in ("", "-journal"):
            with contextlib.suppress(OSError):
                self.path.with_name(f"{self.path.name}{side}").unlink()

    def _connect(self) -> sqlite3.Connection:
        import sqlite3

        try:
            if not self.path.exists():  # SQLite would make it readable for everyone
                disk.make_folder(self.path.parent)
                os.close(disk.open_file(self.path, os.O_RDWR | os.O_CREAT))
        except OSError as error:
            raise LedgerOff(str(error)) from error
        connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        try:
            # A crash of the system may lose the last writes, but never mixes up what is there.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                connection.executescript(_TABLES)
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def ledger_goes_on(view: LedgerView | None, base: str) -> bool:
    """Whether a ledger still has everything up to a position where it ended before."""
    head = None if view is None else view.head()
    now = None if head is None else read_position(head.position, FilePosition)
    before = read_position(base, FilePosition)
    if now is None or before is None:
        return False
    return now.inode == before.inode and now.offset >= before.offset


def _last_number_before(file: BinaryIO, offset: int) -> int:
    """Return the highest number on the last lines before an offset."""
    file.seek(max(0, offset - TAIL_BYTES))
    lines = file.read(min(offset, TAIL_BYTES)).splitlines()
    highest = 0
    for line in lines:
        with contextlib.suppress(Unreadable):  # half a line, or not ours
            entry, _ = read_line(line)
            highest = max(highest, entry.number)
    return highest


def _parts(ids: Collection[str]) -> Iterator[list[str]]:
    listed = list(ids)
    for start in range(0, len(listed), _IDS_AT_ONCE):
        yield listed[start : start + _IDS_AT_ONCE]


def _marks(part: list[str]) -> str:
    return ", ".join("?" * len(part))
