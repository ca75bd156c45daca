"""All sessions that clients left on this machine, brought in as conversations.

Everything may be done again, and may be killed anywhere: an exchange has the id its prompt gives
it, and how far a file was read is noted only once its exchanges are in the journal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ralph import disk
from ralph.capture.exchanges import ExchangeSeen
from ralph.capture.rollout_lines import SessionHead
from ralph.errors import JournalBusy, NotFound
from ralph.memories.many_conversations import Imported, Talk, keep_many
from ralph.memories.pausing import unpaused_talks
from ralph.memories.project import Project
from ralph.memories.runs import CLAUDE_CODE
from ralph.memories.series import Series
from ralph.memories.shelf import Shelf
from ralph.memories.transcript_clients import CLIENTS, CODEX, Client, From, Reader
from ralph.memories.transcript_conversations import Home, conversations_of, home_of
from ralph.memories.transcript_marks import (
    Mark,
    beginning,
    read_marks,
    still_fits,
    write_marks,
)
from ralph.record import Complaint

# How long a file must be left alone before its last exchange counts as over: after the
# assistant's last word, and without one.
SETTLED_S = 10.0
ABANDONED_S = 600.0
# So much is read between two flushes of the journal.
_BATCH_BYTES = 16 * 1024 * 1024


class _Batch(msgspec.Struct):
    """What was read and is not kept yet."""

    talks: dict[str, list[Talk]] = {}
    marks: dict[str, Mark] = {}
    size: int = 0


class _Tally(msgspec.Struct):
    """What one pass came to so far."""

    grown: set[str] = set()
    exchanges: int = 0
    known: int = 0
    waiting: int = 0
    files: int = 0
    unchanged: int = 0
    elsewhere: int = 0
    unread: list[Complaint] = []
    complaints: list[Complaint] = []

    def imported(self) -> Imported:
        return Imported(
            conversations=len(self.grown),
            exchanges=self.exchanges,
            known=self.known,
            waiting=self.waiting,
            files=self.files,
            unchanged=self.unchanged,
            elsewhere=self.elsewhere,
            unread=self.unread,
            complaints=self.complaints,
        )


class Importer:
    """The sessions of one client under a folder; `once` brings in what is new.

    `within` leaves out what was held in other projects. `progress` is told how many bytes of
    `total_bytes` were looked at.
    """

    def __init__(
        self,
        client: str,
        shelf: Shelf,
        *,
        home: Path,
        folder: Path | None = None,
        within: Project | None = None,
        progress: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client: Client = CLIENTS[client]
        self._shelf = shelf
        self._home = home
        self.folder = folder or self._client.folder(os.environ)
        self._within = within
        self._progress = progress
        self._clock = clock
        self._marks_file = home / "cache" / "imports" / f"{client}.json"
        self._marks: dict[str, Mark] = {}
        self._series: dict[str, Series] = {}
        self._homes: dict[str, Home] = {}
        # Of other projects, or a sub-agent's: that does not change.
        self._passed_over: set[Path] = set()
        self._batch, self._tally = _Batch(), _Tally()
        self.total_bytes = 0

    def once(self) -> Imported:
        """Bring in what is new since the last time."""
        if not self.folder.exists():
            raise NotFound(
                f"there are no sessions of {self._client.name}",
                where=str(self.folder),
                todo="Name the folder that holds them.",
            )
        self._marks_file.parent.mkdir(parents=True, exist_ok=True)
        lock = self._marks_file.with_suffix(".lock")
        try:
            with disk.locked(lock, timeout_s=self._shelf.settings.journal_lock_timeout_s):
                self._look_at_all()
        except disk.Busy:
            raise JournalBusy(
                f"another import of {self._client.name} is under way",
                where=str(lock),
                todo="Try again when it is done.",
            ) from None
        return self._tally.imported()

    def _look_at_all(self) -> None:
        self._batch, self._tally = _Batch(), _Tally()
        self._marks = read_marks(self._marks_file)
        sizes = dict(self._sizes())
        self.total_bytes = sum(sizes.values())
        done = 0
        for path, size in sizes.items():
            try:
                self._look_at(path, done)
            except OSError as error:
                why = f"cannot be read ({error.strerror or error})"
                self._tally.unread.append(Complaint(str(path), 1, why))
            done += size
            self._tell(done)
            if self._batch.size >= _BATCH_BYTES:
                self._keep()
        self._keep()

    def _sizes(self) -> Iterator[tuple[Path, int]]:
        """The files to look at, each with its size."""
        if self.folder.is_file():
            yield self.folder, self.folder.stat().st_size
            return
        for path in self._client.files(self.folder):
            if path in self._passed_over:
                continue
            try:
                yield path, path.stat().st_size
            except FileNotFoundError:
                continue  # removed while we looked, or a link to nothing

    def _look_at(self, path: Path, done: int) -> None:
        mark = self._marks.get(str(path), Mark())
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            quiet_s = abs(self._clock() - stat.st_mtime)
            same = (mark.size, mark.mtime_ns) == (stat.st_size, stat.st_mtime_ns)
            if not stat.st_size or (same and not 0 < mark.waits_s <= quiet_s):
                self._tally.waiting += bool(same and mark.waits_s)
                self._tally.unchanged += 1
                return
            head = self._client.head(path, file)
            if head is None:
                why = f"holds no session of {self._client.name}"
                self._tally.unread.append(Complaint(str(path), 1, why))
                return
            where = None if head.is_subagent else self._home_of(head.cwd)
            if where is None or (self._within is not None and where.stream != self._within.id):
                self._passed_over.add(path)
                self._tally.elsewhere += where is not None
                return
            if not still_fits(mark, file, stat.st_size):
                mark = Mark()
            self._tally.files += 1
            self._read(_Reading(path, file, head, where, mark, quiet_s), stat, done)

    def _read(self, one: _Reading, stat: os.stat_result, done: int) -> None:
        reader = self._client.reader(one.start())
        one.file.seek(one.at)
        begun = one.at
        for line in one.file:
            if not line.endswith(b"\n") and one.quiet_s < ABANDONED_S:
                one.waits_s = ABANDONED_S  # being written just now, or left so
                break
            one.at += len(line)
            one.line += 1
            one.take(reader.feed(line))
            if one.seen and one.at - begun >= _BATCH_BYTES:
                self._put(one, reader, stat)
                self._keep()
                begun = one.at
                self._tell(done + one.at)
        one.end(reader)
        self._tally.waiting += bool(one.waits_s)
        self._put(one, reader, stat)
        self._batch.size += one.at - begun
        self._tally.complaints += reader.complaints

    def _put(self, one: _Reading, reader: Reader, stat: os.stat_result) -> None:
        """Into the batch with what was seen, and with how far that goes."""
        talks = conversations_of(
            one.seen,
            source=self._client.name,
            session=one.head.session,
            title=reader.title,
            where=one.where,
        )
        self._batch.talks.setdefault(one.where.stream, []).extend(talks)
        one.seen = []
        # A file that was not read to its end must not look so to who comes after a crash.
        self._batch.marks[str(one.path)] = Mark(
            size=stat.st_size if one.is_done else 0,
            mtime_ns=stat.st_mtime_ns if one.is_done else 0,
            offset=one.ends_at,
            line=one.line - _newlines(one.file, one.ends_at, one.at),
            crc=beginning(one.file, one.ends_at),
            title=reader.title or "",
            waits_s=one.waits_s,
        )
        one.file.seek(one.at)

    def _keep(self) -> None:
        """Into the journals first, then into the notes."""
        batch, self._batch = self._batch, _Batch()
        for stream, talks in batch.talks.items():
            free = unpaused_talks(self._home, stream, talks)
            if free != talks:  # what was held in a pause may have given titles
                batch.marks = {
                    name: msgspec.structs.replace(mark, title="")
                    for name, mark in batch.marks.items()
                }
            if free:
                came = keep_many(self._stream(stream), free, self._shelf.settings)
                self._tally.grown |= came.conversations
                self._tally.exchanges += came.exchanges
                self._tally.known += came.known
        if batch.marks:
            self._marks |= batch.marks
            write_marks(self._marks_file, self._marks)

    def _stream(self, name: str) -> Series:
        if name not in self._series:
            self._series[name] = Series(name, self._shelf)
        return self._series[name]

    def _home_of(self, cwd: str) -> Home:
        if cwd not in self._homes:
            self._homes[cwd] = home_of(cwd, self._home)
        return self._homes[cwd]

    def _tell(self, done: int) -> None:
        if self._progress is not None:
            self._progress(done)


class _Reading:
    """One file being read on: where it is, and what it gave that is not kept yet."""

    def __init__(
        self,
        path: Path,
        file: BinaryIO,
        head: SessionHead,
        where: Home,
        mark: Mark,
        quiet_s: float,
    ) -> None:
        self.path, self.file, self.head, self.where = path, file, head, where
        self.quiet_s = quiet_s
        self.at = self.ends_at = mark.offset
        self.line = mark.line
        self._title = mark.title
        self.seen: list[ExchangeSeen] = []
        self.waits_s = 0.0
        self.is_done = False

    def start(self) -> From:
        """Where its reader begins."""
        return From(
            str(self.path), self.where.root, self.head, self.at, self.line, self._title or None
        )

    def take(self, finished: list[ExchangeSeen]) -> None:
        """Exchanges that are over."""
        if finished:
            self.seen += finished
            self.ends_at = finished[-1].ends_at

    def end(self, reader: Reader) -> None:
        """The file ends here: whether its last exchange is over depends on how long it is quiet."""
        self.is_done = True
        self.ends_at = reader.ends_at
        for last in reader.rest():
            is_over = last.captured.terminal_reason != "unknown"
            wait_s = SETTLED_S if is_over else ABANDONED_S
            if self.quiet_s < wait_s:
                self.ends_at, self.waits_s = last.begins_at, max(wait_s, self.waits_s)
            else:
                self.seen.append(last)


def import_claude_code(
    shelf: Shelf,
    *,
    home: Path,
    folder: Path | None = None,
    within: Project | None = None,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Bring in Claude Code's sessions, those of every project or of one."""
    told = Importer(CLAUDE_CODE, shelf, home=home, folder=folder, within=within, progress=progress)
    return told.once()


def import_codex(
    shelf: Shelf,
    *,
    home: Path,
    folder: Path | None = None,
    within: Project | None = None,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Bring in Codex's sessions, those of every project or of one."""
    return Importer(CODEX, shelf, home=home, folder=folder, within=within, progress=progress).once()


def _newlines(file: BinaryIO, start: int, end: int) -> int:
    """How many lines end between two places of a file."""
    file.seek(start)
    found = 0
    while start < end and (part := file.read(min(1 << 20, end - start))):
        found += part.count(b"\n")
        start += len(part)
    return found
