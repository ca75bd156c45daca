"""A journal as a JSONL file that git can merge: its lines, positions in it, appending to it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from ralph import disk
from ralph.errors import JournalBusy, JournalError, RecordForgotten
from ralph.journal import Appended, Batch, Draft
from ralph.journal.line import BOM, FORGOTTEN, Unreadable, read_line, write_record, write_tombstone
from ralph.records import Complaint, Located, Record, Tombstone, now

# -- What an appender must know of a journal before it may add to it.


class AppenderState:
    """What an appender must know of the lines before: the last number, contents, tombstones."""

    def __init__(self) -> None:
        self.position: str | None = None
        self.last_number = 0
        self.forgotten: set[str] = set()
        # Where a content stands, and where one of that time stood: ids and numbers.
        self._places: dict[str, tuple[tuple[str, int], ...]] = {}
        self._graves: dict[str, tuple[tuple[str, int], ...]] = {}

    def numbered(self, draft: Draft) -> Record:
        """The draft as the journal has or had it already, else with the next number."""
        record = draft(self.last_number + 1)
        places = self._places.get(record.digest, ())
        graves = self._graves.get(record.at, ())
        for known_id, number in (*places, *graves):
            again = draft(number)
            if again.id == known_id:
                return again
        return record

    def has(self, record: Record) -> bool:
        """Whether exactly this content stands under this id."""
        return any(known == record.id for known, _ in self._places.get(record.digest, ()))

    def buried(self, record: Record) -> bool:
        """Whether what has this id was forgotten."""
        return record.id in self.forgotten

    def add(self, record: Record) -> None:
        """Know one more record."""
        self.stands(record.digest, record.id, record.number)

    def stands(self, digest: str, record_id: str, number: int) -> None:
        """Know that this content stands under this id and number."""
        places = self._places.get(digest, ())
        if all(known != record_id for known, _ in places):
            self._places[digest] = (*places, (record_id, number))
        self.last_number = max(self.last_number, number)

    def bury(self, stone: Tombstone) -> None:
        """Know one more tombstone."""
        # The number stays taken: under it another record could get the forgotten one's id.
        self.forgotten.add(stone.id)
        if stone.was_at:
            graves = self._graves.get(stone.was_at, ())
            self._graves[stone.was_at] = (*graves, (stone.id, stone.number))
        self.last_number = max(self.last_number, stone.number)


class Numbers:
    """The highest number that was given out, by whoever."""

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest


def prepared(
    drafts: Sequence[Record | Draft], known: AppenderState, *, name: str, max_line_bytes: int
) -> tuple[list[Appended], list[tuple[Record, bytes]]]:
    """What an append comes to, and the records with their lines that are to be written for it."""
    appended: list[Appended] = []
    fresh: list[tuple[Record, bytes]] = []
    for draft in drafts:
        record = draft if isinstance(draft, Record) else known.numbered(draft)
        if known.buried(record):
            raise RecordForgotten(f"record {record.id} was forgotten and stays so", where=name)
        new = not known.has(record)
        if new:
            line = write_record(record)
            if len(line) > max_line_bytes:
                raise JournalError(
                    f"record {record.id} takes {len(line)} bytes, the limit is {max_line_bytes}",
                    where=name,
                    todo="Shorten it; nothing was written.",
                )
            fresh.append((record, line))
            known.add(record)
        appended.append(Appended(record, new))
    return appended, fresh


# -- Going through a journal's lines whatever is on them: nothing raises, nothing is left unsaid.


BUFFER_BYTES = 1024 * 1024


class Step(msgspec.Struct, frozen=True, gc=False):
    """One line as it was met: an entry, a complaint, or both; `crc` is of all up to its end."""

    line: int
    start: int
    end: int
    crc: int
    entry: Record | Tombstone | None = None
    digest: str = ""
    complaint: str | None = None
    torn: bool = False
    ended: bool = True


def scan(
    file: BinaryIO, max_line_bytes: int, offset: int = 0, line: int = 0, crc: int = 0
) -> Iterator[Step]:
    """Each line from the offset on; together the steps cover every byte of the file."""
    file.seek(offset)
    told_crlf = False
    while raw := file.readline(max_line_bytes + 1):
        line += 1
        start, notes = offset, list[str]()
        ended = raw.endswith(b"\n")
        offset += len(raw)
        crc = zlib.crc32(raw, crc)
        if not ended and len(raw) > max_line_bytes:
            more, ended, crc = _skip_line(file, crc)
            offset += more
            what = f"is {offset - start} bytes long, over the limit of {max_line_bytes}"
            yield Step(line, start, offset, crc, complaint=what, ended=ended)
            if not ended:
                return
            continue
        if start == 0 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
            notes.append("begins with a byte order mark; it was ignored")
        if raw.endswith(b"\r\n") and not told_crlf:
            told_crlf = True
            notes.append("ends in CRLF, as do maybe others; read all the same")
        entry: Record | Tombstone | None = None
        digest, torn = "", False
        if text := raw.strip(b" \t\r\n"):
            try:
                entry, digest = read_line(text)
            except Unreadable as error:
                torn = not ended
                notes.append(f"is torn: it {error}" if torn else str(error))
        yield Step(line, start, offset, crc, entry, digest, "; ".join(notes) or None, torn, ended)
        if not ended:
            return  # what a writer adds by now is the rest of this line, not a line of its own


def _skip_line(file: BinaryIO, crc: int) -> tuple[int, bool, int]:
    """Step over the rest of a line without holding it: its length, whether it ended, the crc."""
    size = 0
    while more := file.readline(BUFFER_BYTES):
        size += len(more)
        crc = zlib.crc32(more, crc)
        if more.endswith(b"\n"):
            return size, True, crc
    return size, False, crc


def judge(name: str, steps: Iterator[Step]) -> tuple[int, list[Complaint]]:
    """How many records the lines hold, and everything that looks wrong about them."""
    complaints: list[Complaint] = []
    first_line: dict[str, int] = {}
    contents: dict[str, set[str]] = {}
    lines: dict[str, list[int]] = {}
    buried: set[str] = set()
    for step in steps:
        if step.complaint:
            complaints.append(Complaint(name, step.line, step.complaint))
        if isinstance(step.entry, Tombstone):
            buried.add(step.entry.id)
        elif step.entry is not None:
            record = step.entry
            lines.setdefault(record.id, []).append(step.line)
            if step.digest and step.digest != record.digest:
                what = f"record {record.id} does not match its digest: changed after it was written"
                complaints.append(Complaint(name, step.line, what))
            known = contents.setdefault(record.id, set())
            if known and record.digest not in known:
                what = (
                    f"record {record.id} stands on line {first_line[record.id]} with other "
                    "content; both are kept"
                )
                complaints.append(Complaint(name, step.line, what))
            first_line.setdefault(record.id, step.line)
            known.add(record.digest)
    for record_id in sorted(buried & lines.keys()):
        what = f"record {record_id} was forgotten and is back, by a merge perhaps; forget it again"
        complaints += [Complaint(name, line, what) for line in lines[record_id]]
    complaints.sort(key=lambda complaint: complaint.line)
    return sum(len(known) for i, known in contents.items() if i not in buried), complaints


# -- A place in a journal's file, and how to tell that the file before it is still the same.


# Several lines, heads and all: lines that differ only there must not look the same.
TAIL_BYTES = 16 * 1024
_Count = Annotated[int, msgspec.Meta(ge=0)]


class FilePosition(msgspec.Struct, frozen=True):
    """How far was read, and enough about the file to notice that it is another one now.

    `line` counts the lines that ended before the offset; `crc` is of all bytes before it, `tail`
    a hash of the last of them.
    """

    offset: _Count
    line: _Count
    inode: int
    size: int
    mtime_ns: int
    crc: int
    tail: str
    done: bool


_decode = msgspec.json.Decoder(FilePosition).decode
_encode = msgspec.json.Encoder().encode


def mark(stat: os.stat_result, offset: int, line: int, crc: int, tail: str, *, done: bool) -> str:
    """The position as it is given out and kept by others."""
    position = FilePosition(
        offset=offset,
        line=line,
        inode=stat.st_ino,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        crc=crc,
        tail=tail,
        done=done,
    )
    return _encode(position).decode()


def no_file() -> str:
    """The position in a file that is not there."""
    nothing = FilePosition(offset=0, line=0, inode=0, size=0, mtime_ns=0, crc=0, tail="", done=True)
    return _encode(nothing).decode()


def known_position(position: str | None) -> FilePosition | None:
    """The position read; None for none, and for one that another version of Ralph wrote."""
    try:
        return None if position is None else _decode(position)
    except (msgspec.DecodeError, UnicodeError):
        return None


def tail_hash(file: BinaryIO, offset: int) -> str:
    """A hash of the last bytes before the offset."""
    start = max(0, offset - TAIL_BYTES)
    file.seek(start)
    return short_hash(file.read(offset - start))


def crc_of(file: BinaryIO, end: int) -> int:
    """The crc of everything before the offset."""
    file.seek(0)
    crc = 0
    while (left := end - file.tell()) > 0 and (data := file.read(min(left, BUFFER_BYTES))):
        crc = zlib.crc32(data, crc)
    return crc


def short_hash(data: bytes) -> str:
    """A hash of these bytes, short enough to be kept in a position."""
    return hashlib.sha256(data).hexdigest()[:16]


MAX_LINE_BYTES = 4 * 1024 * 1024
# Half a million records. A clone can ship a file that is larger and packs to nothing.
LARGEST_BYTES = 1 << 30
LOCK_TIMEOUT_S = 30.0
# The record that a damaged line was to be, as far as it got.
_BEGUN = re.compile(rb'\{"v":\d+,"kind":"(?!%b")[^"]*","id":"([^"]*)"' % FORGOTTEN.encode())


class JsonlJournal:
    """A journal in one file. Any number of processes may read and append at once."""

    def __init__(
        self,
        path: Path,
        *,
        name: str | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.path = path
        self.name = name or path.name
        self._lock_timeout_s = lock_timeout_s
        self._max_line_bytes = max_line_bytes
        self._known = AppenderState()

    def append(self, drafts: Sequence[Record | Draft], *, above: int = 0) -> list[Appended]:
        """Keep all of them or none; when this returns they are on disk.

        Numbers go on from the highest in the file, or from `above` where that is higher.
        """
        if not drafts:
            return []
        while True:
            with self._locked() as fd:
                try:
                    known = self._catch_up()
                    known.last_number = max(known.last_number, above)
                    appended, fresh = prepared(
                        drafts, known, name=self.name, max_line_bytes=self._max_line_bytes
                    )
                    data = b"".join(line for _, line in fresh)
                    if data:
                        self._write(fd, data)
                except BaseException:
                    self._known = AppenderState()  # it may hold what was not written
                    raise
                if not data or disk.is_current(fd, self.path):
                    return appended
                # Somebody who knows no lock (git, an editor) put another file here meanwhile.
                self._known = AppenderState()

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What stands behind the position, at most `limit` lines."""
        try:
            with self._opened() as file:
                return self._read(file, position, limit)
        except FileNotFoundError:
            at = known_position(position)
            restarted = position is not None and (at is None or at.inode != 0)
            return Batch((), (), (), no_file(), restarted, done=True)

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have happened since the position; cheap, for every query."""
        at = known_position(position)
        if at is None or not at.done:
            return False
        try:
            stat = disk.stat(self.path)
        except FileNotFoundError:
            return at.inode == 0
        except OSError:
            return False  # reading tells why
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns) == (at.inode, at.size, at.mtime_ns)

    def forget(
        self,
        ids: Collection[str],
        *,
        reason: str | None = None,
        stones: Sequence[Tombstone] = (),
    ) -> list[str]:
        """Take the content out for good, leave a tombstone for each, and say which were there."""
        if not stones and (not ids or not self._is_there()):
            return []
        with self._locked():
            rewritten, gone = self._without(set(ids), reason, {s.id: s for s in stones})
            if rewritten is not None:
                disk.sweep_drafts(self.path)
                disk.replace(self.path, rewritten)
                self._known = AppenderState()
        return gone

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten here."""
        return frozenset(stone.id for stone in self.read().tombstones)

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong."""
        if not self._is_there():
            return 0, []
        with contextlib.ExitStack() as stack:
            # Without the lock a line that is being written would look torn. A journal that may
            # only be read has no writer.
            if os.access(self.path, os.W_OK):
                stack.enter_context(self._locked())
            file = stack.enter_context(self._opened())
            return judge(self.name, scan(file, self._max_line_bytes))

    # -- reading

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self._reading(), disk.opened(self.path, buffering=BUFFER_BYTES) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
                raise OSError(errno.EFBIG, f"it is larger than {LARGEST_BYTES} bytes")
            yield file

    def _is_there(self) -> bool:
        with contextlib.suppress(FileNotFoundError), self._reading():
            disk.stat(self.path)
            return True
        return False

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise JournalError(
                f"cannot read the journal ({error.strerror or error})",
                where=str(self.path),
                todo=getattr(error, "todo", None) or "Permit reading it, then try again.",
            ) from error

    def _read(self, file: BinaryIO, position: str | None, limit: int | None) -> Batch:
        stat = os.fstat(file.fileno())
        start = self._resume(file, position, stat)
        restarted = start is None and position is not None
        offset, line, crc = (start.offset, start.line, start.crc) if start else (0, 0, 0)
        records: list[Located] = []
        stones: list[Tombstone] = []
        complaints: list[Complaint] = []
        done = True
        for seen, step in enumerate(scan(file, self._max_line_bytes, offset, line, crc)):
            if limit is not None and seen >= limit:
                done = False
                break
            if step.complaint:
                complaints.append(Complaint(self.name, step.line, step.complaint))
            if isinstance(step.entry, Record):
                records.append(Located(step.entry, self.name, step.line))
            elif step.entry is not None:
                stones.append(step.entry)
            if not step.torn:
                offset, crc = step.end, step.crc
                line = step.line if step.ended else step.line - 1
        end = mark(stat, offset, line, crc, tail_hash(file, offset), done=done)
        return Batch(tuple(records), tuple(stones), tuple(complaints), end, restarted, done)

    def _resume(
        self, file: BinaryIO, position: str | None, stat: os.stat_result
    ) -> FilePosition | None:
        """The position, if the file still begins with what was read up to it."""
        at = known_position(position)
        if at is None:
            return None
        if at.inode == 0 and at.offset == 0:
            return at  # there was no file: everything in it is new, nothing was taken away
        if at.inode != stat.st_ino or at.offset > stat.st_size:
            return None
        if stat.st_size == at.size and stat.st_mtime_ns != at.mtime_ns:
            # Edited in place, or an append that has begun: its time changes before the size.
            return at if crc_of(file, at.offset) == at.crc else None
        return at if tail_hash(file, at.offset) == at.tail else None

    # -- writing

    def _catch_up(self) -> AppenderState:
        """What the file holds by now, read on from where this process last looked."""
        if self.unchanged(self._known.position):
            return self._known
        batch = self.read(self._known.position)
        if batch.restarted:
            self._known = AppenderState()
        self._known.position = batch.position
        for located in batch.records:
            self._known.add(located.record)
        for stone in batch.tombstones:
            self._known.bury(stone)
        return self._known

    def _write(self, fd: int, data: bytes) -> None:
        size = os.fstat(fd).st_size
        last = _read_at(fd, max(0, size - TAIL_BYTES), size)
        if last and not last.endswith(b"\n"):  # a torn last line stays, on a line of its own
            data = b"\n" + data
        disk.write_all(fd, data)
        if size == 0:
            disk.flush_folder(self.path.parent)
        known = self._known
        at = known_position(known.position)
        if at is not None and at.offset == size:
            # What we wrote need not be read back by our next append.
            line = at.line + data.count(b"\n")
            tail = short_hash((last + data)[-TAIL_BYTES:])
            crc = zlib.crc32(data, at.crc)
            known.position = mark(os.fstat(fd), size + len(data), line, crc, tail, done=True)
        else:  # it must never hold more than what stands before its position
            self._known = AppenderState()

    def _without(
        self, ids: set[str], reason: str | None, given: dict[str, Tombstone]
    ) -> tuple[bytes | None, list[str]]:
        """The file without these records' lines, with their tombstones; None if nothing to do."""
        parts: list[bytes] = []
        gone: dict[str, Tombstone] = {}
        buried: set[str] = set()
        at = now()
        ids = ids | given.keys()
        with self._opened() as file, self._opened() as copy:
            for step in scan(file, self._max_line_bytes):
                entry = step.entry
                if isinstance(entry, Tombstone):
                    buried.add(entry.id)
                elif isinstance(entry, Record) and entry.id in ids:
                    gone[entry.id] = Tombstone(entry.id, at, reason, entry.number, entry.at)
                    continue
                copy.seek(step.start)
                line = copy.read(step.end - step.start)
                if entry is None and (damaged := _begun(line) & ids):
                    for record_id in damaged:
                        gone.setdefault(record_id, Tombstone(record_id, at, reason))
                    continue
                parts.append(line)
        stones = {i: stone for i, stone in (gone | given).items() if i not in buried}
        if not gone and not stones:
            return None, []
        if parts and not parts[-1].endswith(b"\n"):
            parts.append(b"\n")
        parts += [write_tombstone(stone) for stone in stones.values()]
        return b"".join(parts), list(gone)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            disk.make_folder(self.path.parent)
            with disk.locked(self.path, timeout_s=self._lock_timeout_s) as fd:
                yield fd
        except disk.Busy:
            raise JournalBusy(
                f"another process has held the journal for over {self._lock_timeout_s:g} s",
                where=self.name,
                todo="Try again when it has finished.",
            ) from None
        except OSError as error:
            raise JournalError(
                f"cannot write the journal ({error.strerror or error}); nothing was written",
                where=str(self.path),
                todo=getattr(error, "todo", None)
                or "Free space or permit writing there, then try again.",
            ) from error


def _begun(line: bytes) -> set[str]:
    return {found.decode(errors="replace") for found in _BEGUN.findall(line)}


def _read_at(fd: int, start: int, end: int) -> bytes:
    os.lseek(fd, start, os.SEEK_SET)
    return os.read(fd, end - start)
