"""Journals as JSONL files that git can merge, and the folder of one memory's journals."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import unicodedata
from collections.abc import Collection, Iterator
from glob import escape as glob_escape
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote
from zlib import crc32

import msgspec

from ralph import disk
from ralph.errors import BadInput, JournalBusy, JournalError
from ralph.journal import (
    Appended,
    Batch,
    Drafts,
    Ids,
    Selection,
    Stones,
    read_position,
    write_position,
)
from ralph.journal import line as entries
from ralph.journal.ledger import Ledger, LedgerOff, LedgerView, ledger_goes_on
from ralph.journal.line import AppenderState, Check, Unreadable, read_line, read_lines
from ralph.journal.position import (
    BUFFER_BYTES,
    NO_FILE,
    TAIL_BYTES,
    FilePosition,
    position_at,
    resume,
    scan,
    tail_hash,
)
from ralph.records import Complaint, JournalRecord, Record, Tombstone, now

LOCK_TIMEOUT_S = 30.0
# Where copies of journals are, in Ralph's state of a project.
COPIES = ("runs/*/journal", "undo/*/journal")
FREE_SPACE = "Free up disk space or fix the permissions, then try again."
# About half a million records. A cloned repository can ship a huge file that compresses well.
_LARGEST_BYTES = 1 << 30
# So much of a journal may be missing in its ledger. Reading it takes a few milliseconds, and a
# journal that is not longer needs no ledger.
_LEDGER_STEP_BYTES = 256 * 1024
# Finds the ids of records, but not of tombstones, in a damaged line.
_BEGUN = re.compile(rb'\{"v":\d+,"kind":"(?!%b")[^"]*","id":"([^"]*)"' % entries.FORGOTTEN.encode())


def disk_error(what: str, path: Path, error: OSError, todo: str) -> JournalError:
    """Return the error for a failed read or write; `{}` in `what` becomes the reason."""
    todo = getattr(error, "todo", None) or todo
    return JournalError(what.format(error.strerror or error), where=str(path), todo=todo)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


class JsonlJournal(msgspec.Struct, eq=False):
    """A journal in one file. Any number of processes may read and append at once."""

    path: Path
    name: str = ""
    lock_timeout_s: float = LOCK_TIMEOUT_S
    max_line_bytes: int = entries.MAX_LINE_BYTES
    ledger: Ledger | None = None
    # Ralph's state of the project, with copies of the journal that active runs keep.
    project_state: Path | None = None
    ledger_step_bytes: int = _LEDGER_STEP_BYTES
    state: AppenderState = msgspec.field(default_factory=AppenderState)

    def __post_init__(self) -> None:
        self.name = self.name or self.path.name

    def append(self, drafts: Drafts, above: int = 0, check: Check | None = None) -> list[Appended]:
        """Append all drafts or none; when this returns they are on disk.

        Numbers continue from the highest in the file, or from `above` if that is higher.
        If `check` refuses a record, nothing is written.
        """
        if not drafts:
            return []
        if self.state.position is None:
            self._extend_ledger()
        uses_ledger = True
        while True:
            try:
                appended = self._append(drafts, above, check, uses_ledger=uses_ledger)
            except LedgerOff:
                uses_ledger = False  # the journal itself has everything
                continue
            if appended is not None:
                self._extend_ledger()
                return appended

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """Return the entries after the position, at most `limit` lines."""
        try:
            with self._opened() as file:
                return self._read(file, position, limit)
        except FileNotFoundError:
            at = read_position(position, FilePosition)
            restarted = position is not None and (at is None or at.inode != 0)
            return Batch((), (), (), write_position(NO_FILE), restarted, done=True)

    def unchanged(self, position: str | None) -> bool:
        """Return True only if nothing was written since the position. Cheap, for every query."""
        at = read_position(position, FilePosition)
        if at is None or not at.done:
            return False
        if disk.has_state(self.path, (at.inode, at.size, at.mtime_ns)):
            return True
        try:
            stat = disk.stat(self.path)
        except FileNotFoundError:
            return at.inode == 0
        except OSError:
            return False  # reading reports why
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns) == (at.inode, at.size, at.mtime_ns)

    def select(self, selection: Selection) -> list[JournalRecord] | None:
        """Return some of the live records in journal order; None if the journal must be read."""
        try:
            with self._with_ledger() as found:
                if found is None:
                    return None
                file, view, newer = found
                gone = {stone.id for stone in newer.tombstones}
                wanted = [place for place in view.places(selection) if place.id not in gone]
                wanted.sort(key=lambda place: place.line)
                records = [view.record_at(place, file, self.name) for place in wanted]
                for located in newer.records:
                    if located.record.id not in gone and not view.is_forgotten(located.record.id):
                        records.append(located)
        except (LedgerOff, FileNotFoundError):
            return None
        contents = {(each.record.id, each.record.digest): each for each in reversed(records)}
        return selection.of(reversed(contents.values()))

    def known(self, ids: Collection[str]) -> set[str] | None:
        """Return those of the ids that it has or had; None if the journal must be read."""
        try:
            with self._with_ledger() as found:
                if found is None:
                    return None
                _, view, newer = found
                known = view.known(ids)
        except (LedgerOff, FileNotFoundError):
            return None
        known |= {located.record.id for located in newer.records}
        known |= {stone.id for stone in newer.tombstones}
        return known.intersection(ids)

    def forget(self, ids: Ids, *, reason: str | None = None, stones: Stones = ()) -> list[str]:
        """Delete records for good, leave a tombstone for each, and return the ids that existed."""
        with self._reading():
            if not stones and not (ids and disk.exists(self.path)):
                return []
        with self.locked():
            given = {stone.id: stone for stone in stones}
            # First, so that a run's guard never puts back what was forgotten.
            self._forget_in_copies({*ids, *given})
            rewritten, gone = self._without(set(ids), reason, given)
            if rewritten is not None:
                self.put_whole(rewritten)
        return gone

    def put_whole(self, data: bytes) -> None:
        """Replace the whole file in one step; needs the lock."""
        disk.sweep_drafts(self.path)
        disk.replace(self.path, data)
        self.state = AppenderState()
        if self.ledger is not None:
            self.ledger.discard()  # it no longer fits, and may have ids of forgotten records

    def verify(self) -> tuple[int, list[Complaint]]:
        """Return how many records can be read, and every problem found."""
        # Without the lock, a line being written would look torn. A read-only journal has no writer.
        writable = os.access(self.path, os.W_OK)
        try:
            with self.locked() if writable else contextlib.nullcontext(), self._opened() as file:
                return entries.judge(self.name, scan(file, self.max_line_bytes))
        except FileNotFoundError:
            return 0, []

    # -- reading

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self._reading(), disk.open_reader(self.path, buffering=BUFFER_BYTES) as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_BYTES:
                raise OSError(errno.EFBIG, f"it is larger than {_LARGEST_BYTES} bytes")
            yield file

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            todo = "Fix the file's permissions, then try again."
            raise disk_error("cannot read the journal ({})", self.path, error, todo) from error

    @contextlib.contextmanager
    def _with_ledger(self) -> Iterator[tuple[BinaryIO, LedgerView, Batch] | None]:
        """Yield the file, its ledger, and what was appended since; None without a ledger."""
        if self.ledger is None:
            yield None
            return
        with self._opened() as file:
            if _size(file) <= self.ledger_step_bytes:
                yield None
                return
            if not self.ledger.is_near(file, self.ledger_step_bytes):
                self.ledger.extend(file, self.max_line_bytes)
            with self.ledger.view() as view:
                head = view.trusted_head(file)
                if head is None:
                    yield None
                else:
                    yield file, view, self._read(file, head.position, None)

    def _extend_ledger(self) -> None:
        """Add what was appended to the ledger, if it is much."""
        if self.ledger is None:
            return
        at = read_position(self.state.position, FilePosition)
        if at is not None and at.offset <= self.ledger.offset + self.ledger_step_bytes:
            return
        with contextlib.suppress(LedgerOff, JournalError, OSError), self._opened() as file:
            if _size(file) <= self.ledger.offset + self.ledger_step_bytes:
                return
            if not self.ledger.is_near(file, self.ledger_step_bytes):
                self.ledger.extend(file, self.max_line_bytes)

    def _read(self, file: BinaryIO, position: str | None, limit: int | None) -> Batch:
        stat = os.fstat(file.fileno())
        start = (resumed := resume(file, position, stat)) or NO_FILE
        offset = start.offset
        line = start.line
        crc = start.crc
        records: list[JournalRecord] = []
        stones: list[Tombstone] = []
        file.seek(offset)
        # Read many lines at once until something looks wrong, then the rest line by line.
        while limit is None and (data := file.read(BUFFER_BYTES)):
            data += file.readline(BUFFER_BYTES)
            found = read_lines(data, self.name, line)
            if found is None:
                del data  # a line may be long
                break
            records += found[0]
            stones += found[1]
            offset = offset + len(data)
            line = line + data.count(b"\n")
            crc = crc32(data, crc)
        lines = scan(file, self.max_line_bytes, offset, line, crc)
        steps = list(itertools.islice(lines, limit))
        done = limit is None or next(lines, None) is None
        if whole := [step for step in steps[-2:] if not step.torn]:  # only the last can be torn
            last = whole[-1]
            offset = last.end
            crc = last.crc
            line = last.line if last.ended else last.line - 1
        end = position_at(stat, offset, line, crc, tail_hash(file, offset), done=done)
        restarted = resumed is None and position is not None
        more, more_stones, complaints = entries.sort_steps(self.name, steps)
        every = (*records, *more)
        buried = (*stones, *more_stones)
        return Batch(every, buried, complaints, end, restarted, done)

    # -- writing

    def _append(
        self, drafts: Drafts, above: int, check: Check | None, *, uses_ledger: bool
    ) -> list[Appended] | None:
        """Append all drafts; None if another program has replaced the file meanwhile."""
        with self.locked() as fd, self._older_entries(fd, uses_ledger=uses_ledger) as older:
            try:
                state = self._catch_up(older)
                state.last_number = max(state.last_number, above)
                appended, fresh = state.plan(drafts, self.name, check, self.max_line_bytes)
                data = b"".join(line for _, line in fresh)
                if data:
                    self._write(fd, data)
            except BaseException:
                self.state = AppenderState()  # it may contain unwritten records
                raise
            if not data or disk.is_current(fd, self.path):
                return appended
            # A program that ignores the lock (git, an editor) replaced the file meanwhile.
            self.state = AppenderState()
            return None

    @contextlib.contextmanager
    def _older_entries(self, fd: int, *, uses_ledger: bool) -> Iterator[LedgerView | None]:
        """Yield the ledger, unless this process has read the whole journal itself."""
        whole = self.state.position is not None and self.state.base is None
        short = os.fstat(fd).st_size <= self.ledger_step_bytes
        if self.ledger is None or not uses_ledger or whole or short:
            yield None
            return
        with self.ledger.view() as view:
            yield view

    def _catch_up(self, older: LedgerView | None) -> AppenderState:
        """Return the state of the file now, reading only from where this process last stopped."""
        if self.state.base is not None and not ledger_goes_on(older, self.state.base):
            self.state = AppenderState()
        if self.state.position is None and older is not None:
            with self._opened() as file:
                head = older.trusted_head(file)
            if head is not None:
                self.state = AppenderState(head.last_number, head.position, base=head.position)
        if self.state.base is not None:
            self.state.older = older
        if self.unchanged(self.state.position):
            return self.state
        batch = self.read(self.state.position)
        if batch.restarted:
            self.state = AppenderState()
        self.state.position = batch.position
        for record in (located.record for located in batch.records):
            self.state.add(record.id, record.number, record.digest)
        for stone in batch.tombstones:
            self.state.bury(stone.id, stone.number, stone.was_at)
        return self.state

    def _write(self, fd: int, data: bytes) -> None:
        size = os.fstat(fd).st_size
        os.lseek(fd, max(0, size - TAIL_BYTES), os.SEEK_SET)
        last = os.read(fd, TAIL_BYTES)
        if last and not last.endswith(b"\n"):  # a torn last line stays, on its own line
            data = b"\n" + data
        disk.write_all(fd, data)
        if size == 0:
            disk.flush_folder(self.path.parent)
        at = read_position(self.state.position, FilePosition)
        if at is not None and at.offset == size:
            # Our next append need not read back what we just wrote.
            line = at.line + data.count(b"\n")
            tail = entries.short_hash((last + data)[-TAIL_BYTES:])
            crc = crc32(data, at.crc)
            end = position_at(os.fstat(fd), size + len(data), line, crc, tail, done=True)
            self.state.position = end
        else:  # the state must never include entries after its position
            self.state = AppenderState()

    def _without(
        self, ids: set[str], reason: str | None, given: dict[str, Tombstone]
    ) -> tuple[bytes | None, list[str]]:
        """Return the rewritten file (None if nothing changes) and the ids removed from it."""
        parts: list[bytes] = []
        gone: dict[str, Tombstone] = {}
        buried: set[str] = set()
        at = now()
        ids = ids | given.keys()
        with self._opened() as file, self._opened() as copy:
            for step in scan(file, self.max_line_bytes):
                entry = step.entry
                if isinstance(entry, Tombstone):
                    buried.add(entry.id)
                elif isinstance(entry, Record) and entry.id in ids:
                    gone[entry.id] = Tombstone(entry.id, at, reason, entry.number, entry.at)
                    continue
                copy.seek(step.start)
                line = copy.read(step.end - step.start)
                begun = _BEGUN.findall(line) if entry is None else ()
                if damaged := {found.decode(errors="replace") for found in begun} & ids:
                    for record_id in damaged:
                        gone.setdefault(record_id, Tombstone(record_id, at, reason))
                    continue
                parts.append(line)
        stones = {i: stone for i, stone in (gone | given).items() if i not in buried}
        if not gone and not stones:
            return None, []
        if parts and not parts[-1].endswith(b"\n"):
            parts.append(b"\n")
        parts += [entries.write_tombstone(stone) for stone in stones.values()]
        return b"".join(parts), list(gone)

    def _forget_in_copies(self, ids: set[str]) -> None:
        for copy in copies_of(self.project_state, self.path.name):
            with disk.open_reader(copy) as file:
                lines = file.readlines()
            kept = [line for line in lines if not _names_one_of(line, ids)]
            if len(kept) < len(lines):
                disk.replace(copy, b"".join(kept))

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the journal's lock, which every writer takes, and yield the open file."""
        what = f"another process has held the journal for over {self.lock_timeout_s:g} s"
        busy = JournalBusy(what, where=self.name, todo="Try again when it has finished.")
        try:
            disk.make_folder(self.path.parent)
            with disk.lock(self.path, timeout_s=self.lock_timeout_s, busy=busy) as fd:
                yield fd
        except OSError as error:
            what = "cannot write the journal ({}); nothing was written"
            raise disk_error(what, self.path, error, FREE_SPACE) from error


def copies_of(project_state: Path | None, file: str) -> list[Path]:
    """Return the copies of a journal's file that runs keep, or that `ralph undo` needs."""
    if project_state is None:
        return []
    return [path for place in COPIES for path in project_state.glob(f"{place}/{glob_escape(file)}")]


def _names_one_of(line: bytes, ids: set[str]) -> bool:
    """Return whether a line is the record of one of these ids, or what is left of it."""
    if any(found.decode(errors="replace") in ids for found in _BEGUN.findall(line)):
        return True
    try:
        entry, _ = read_line(line.strip())
    except Unreadable:
        return False
    return isinstance(entry, Record) and entry.id in ids


# -- The journals of one memory, each in a file named after it.

_SUFFIX = ".jsonl"
_MAX_NAME_CHARS = 100
# File systems allow 255, but the temporary file of a rewrite has a longer name.
_MAX_FILE_BYTES = 230
# The newest record is in these last bytes, unless it is very long or others' lines follow it.
_END_BYTES = 64 * 1024
# Device names on Windows: a project may be shared between systems.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)


class JournalFolder:
    """The journals of one memory, each in a file named after it."""

    def __init__(
        self,
        path: Path,
        shown: str = "",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        ledgers: Path | None = None,
        project_state: Path | None = None,
    ) -> None:
        self.path = path
        self.where = str(path)
        self._shown = shown
        self._lock_timeout_s = lock_timeout_s
        # The folder for the ledgers of long journals.
        self._ledgers = ledgers
        self._project_state = project_state
        self._open: dict[str, JsonlJournal] = {}
        # The journals that existed when the folder was last read.
        self._named: frozenset[str] = frozenset()

    def journal(self, name: str) -> JsonlJournal:
        """Return the journal with this name. Its first append creates the file."""
        if name not in self._open:
            file = self.path / file_name(name)
            if name not in self._named and disk.exists(file):
                self._named = frozenset(self.names())
                if name not in self._named:
                    what = f"{name!r} differs from an existing name only by case, "
                    what += "and this file system ignores case"
                    todo = "Use the name as it was written first."
                    raise BadInput(what, where=self.where, todo=todo)
            shown = f"{self._shown}/{file.name}" if self._shown else file.name
            ledger = Ledger(self._ledgers, file.name) if self._ledgers else None
            self._open[name] = JsonlJournal(
                file,
                name=shown,
                lock_timeout_s=self._lock_timeout_s,
                ledger=ledger,
                project_state=self._project_state,
            )
        return self._open[name]

    def names(self) -> list[str]:
        """Return the names of all existing journals."""
        files = (name for name in disk.names(self.path) if name.endswith(_SUFFIX))
        return sorted(unquote(name[: -len(_SUFFIX)]) for name in files if name[0] != ".")

    def newest_at(self, name: str) -> str:
        """Return the time of the newest record, reading only the file's end; "" if unknown."""
        with disk.open_reader(self.journal(name).path) as file:
            file.seek(max(0, file.seek(0, 2) - _END_BYTES))
            lines = file.read().splitlines()
        newest = ""
        for line in lines:
            with contextlib.suppress(Unreadable):  # half a line, or not ours
                entry, _ = read_line(line)
                newest = max(newest, entry.at if isinstance(entry, Record) else "")
        return newest

    def size_bytes(self, name: str) -> int:
        """Return the size of a journal's file; 0 if there is none."""
        try:
            return disk.stat(self.journal(name).path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def trouble(self) -> None:
        """Return None: files are read directly, so answers are never stale."""

    def listener(self) -> None:
        """Return None: files send no notifications, and polling them is cheap."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""


@functools.lru_cache(maxsize=1024)  # every search and every append asks for it
def file_name(name: str) -> str:
    """Return the file name for a journal: its name, quoted where a file system may refuse it."""
    check_name(name)
    # Letters of any script stay readable; characters a file system may refuse are quoted.
    quoted = "".join(char if char.isalnum() else quote(char, safe=" ") for char in name)
    if quoted.startswith((".", " ")) or _RESERVED.match(quoted):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if quoted.endswith((".", " ")):
        quoted = f"{quoted[:-1]}%{ord(quoted[-1]):02X}"
    file = quoted + _SUFFIX
    if (size := len(file.encode())) > _MAX_FILE_BYTES:
        what = f"the name {name[:40]!r}... takes {size} bytes as a file's name, at most "
        raise BadInput(f"{what}{_MAX_FILE_BYTES} are allowed", todo="Use a shorter name.")
    return file


def check_name(name: str) -> None:
    """Refuse a name that is empty, too long, or has invisible characters."""
    if not name.strip():
        raise BadInput("the name is empty", todo="Give the feature a name.")
    if len(name) > _MAX_NAME_CHARS:
        what = f"the name {name[:40]!r}... has {len(name)} characters, at most "
        raise BadInput(f"{what}{_MAX_NAME_CHARS} are allowed")
    if any(unicodedata.category(char)[0] == "C" for char in name):
        raise BadInput(f"the name {name!r} contains invisible characters")
