"""All sessions that clients left on this machine, brought in as conversations.

Everything may be done again, and may be killed anywhere: an exchange has the id its prompt gives
it, and how far a file was read is noted only once its exchanges are in the journal.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

import msgspec

from ralph import disk
from ralph.capture.lines import SessionExchange, SessionHead, SessionReader, SessionStart
from ralph.clients import BY_SOURCE
from ralph.errors import JournalBusy, NotFound, UnsafeFile
from ralph.memory.conversation_journal import GENERAL
from ralph.memory.conversation_stream import ConversationStream
from ralph.memory.conversations import ConversationContent, ConversationImport, keep_many
from ralph.memory.forgetting import Mark, beginning, read_marks, still_fits, write_marks
from ralph.memory.pausing import unpaused_talks
from ralph.memory.project import Project, find_project
from ralph.memory.store import Store
from ralph.records import Complaint
from ralph.records.conversation import Conversation, Exchange, conversation_id, exchange_id
from ralph.records.iteration import cut
from ralph.text.sanitize import strip_marked

# -- What was seen in a session's file, as the conversations it is, and the project they belong to.


_TITLE_CHARS = 80


class SessionHome(msgspec.Struct, frozen=True):
    """Where a session belongs: the stream, the project's name and its root."""

    stream: str
    project: str = ""
    root: str | None = None


def conversations_of(
    seen: Sequence[SessionExchange],
    *,
    source: str,
    session: str,
    title: str | None,
    where: SessionHome,
) -> list[ConversationContent]:
    """What was seen, as the conversations it belongs to: a copied session keeps its first name."""
    by_session: dict[str, list[SessionExchange]] = {}
    for one in seen:
        if strip_marked(one.user).strip() or strip_marked(one.assistant).strip():
            by_session.setdefault(one.session_id or session, []).append(one)
    found: list[ConversationContent] = []
    for name, some in by_session.items():
        conversation = Conversation(
            id=conversation_id(source, name),
            title=title or first_words(some[0]),
            source=source,
            project=where.project,
            created=some[0].captured.started_at,
        )
        exchanges = [_exchange(conversation.id, one) for one in some]
        found.append(ConversationContent(conversation, exchanges))
    return found


def _exchange(conversation: str, seen: SessionExchange) -> Exchange:
    captured = seen.captured
    return Exchange(
        id=exchange_id(conversation, seen.key),
        conversation=conversation,
        user=seen.user,
        assistant=seen.assistant,
        status=seen.status,
        started=captured.started_at,
        completed=captured.ended_at,
        tokens_used=captured.tokens_used,
        model=captured.model,
        errors=captured.errors,
        files_touched=captured.files_touched,
        messages=seen.messages,
    )


def first_words(seen: SessionExchange) -> str:
    """How an exchange begins: a title where there is none."""
    words = strip_marked(seen.user).split() or strip_marked(seen.assistant).split()
    return cut(" ".join(words), _TITLE_CHARS)


def home_of(cwd: str, home: Path) -> SessionHome:
    """The project around a folder, or the folder itself; it need not be there any more."""
    if not cwd or "\0" in cwd:
        return SessionHome(GENERAL)
    path = Path(cwd)
    if not path.is_absolute():  # another system's
        return SessionHome(str(uuid.uuid5(uuid.NAMESPACE_URL, cwd)), PureWindowsPath(cwd).name, cwd)
    try:
        project = find_project(path, home=home)
    except UnsafeFile:
        project = None
    if project is None:
        return SessionHome(Project(path, home).id, path.name, cwd)
    return SessionHome(project.id, project.root.name, str(project.root))


# How long a file must be left alone before its last exchange counts as over: after the
# assistant's last word, and without one.
SETTLED_S = 10.0
ABANDONED_S = 600.0
# So much is read between two flushes of the journal.
_BATCH_BYTES = 16 * 1024 * 1024


class _ImportBatch(msgspec.Struct):
    """What was read and is not kept yet."""

    talks: dict[str, list[ConversationContent]] = {}
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

    def imported(self) -> ConversationImport:
        return ConversationImport(
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
        shelf: Store,
        *,
        home: Path,
        folder: Path | None = None,
        within: Project | None = None,
        progress: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = BY_SOURCE[client]
        self._files = self._client.program.sessions()
        self._shelf = shelf
        self._home = home
        self.folder = folder or self._files.session_folder(os.environ)
        self._within = within
        self._progress = progress
        self._clock = clock
        self._marks_file = home / "cache" / "imports" / f"{client}.json"
        self._marks: dict[str, Mark] = {}
        self._series: dict[str, ConversationStream] = {}
        self._homes: dict[str, SessionHome] = {}
        # Of other projects, or a sub-agent's: that does not change.
        self._passed_over: set[Path] = set()
        self._batch, self._tally = _ImportBatch(), _Tally()
        self.total_bytes = 0

    def once(self) -> ConversationImport:
        """Bring in what is new since the last time."""
        if not self.folder.exists():
            raise NotFound(
                f"there are no sessions of {self._client.source}",
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
                f"another import of {self._client.source} is under way",
                where=str(lock),
                todo="Try again when it is done.",
            ) from None
        return self._tally.imported()

    def _look_at_all(self) -> None:
        self._batch, self._tally = _ImportBatch(), _Tally()
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
        for path in self._files.session_files(self.folder):
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
            head = self._files.session_head(path, file)
            if head is None:
                why = f"holds no session of {self._client.source}"
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
            self._read(_SessionFile(path, file, head, where, mark, quiet_s), stat, done)

    def _read(self, one: _SessionFile, stat: os.stat_result, done: int) -> None:
        reader = self._files.session_reader(one.start())
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

    def _put(self, one: _SessionFile, reader: SessionReader, stat: os.stat_result) -> None:
        """Into the batch with what was seen, and with how far that goes."""
        talks = conversations_of(
            one.seen,
            source=self._client.source,
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
        batch, self._batch = self._batch, _ImportBatch()
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

    def _stream(self, name: str) -> ConversationStream:
        if name not in self._series:
            self._series[name] = ConversationStream(name, self._shelf)
        return self._series[name]

    def _home_of(self, cwd: str) -> SessionHome:
        if cwd not in self._homes:
            self._homes[cwd] = home_of(cwd, self._home)
        return self._homes[cwd]

    def _tell(self, done: int) -> None:
        if self._progress is not None:
            self._progress(done)


class _SessionFile:
    """One file being read on: where it is, and what it gave that is not kept yet."""

    def __init__(
        self,
        path: Path,
        file: BinaryIO,
        head: SessionHead,
        where: SessionHome,
        mark: Mark,
        quiet_s: float,
    ) -> None:
        self.path, self.file, self.head, self.where = path, file, head, where
        self.quiet_s = quiet_s
        self.at = self.ends_at = mark.offset
        self.line = mark.line
        self._title = mark.title
        self.seen: list[SessionExchange] = []
        self.waits_s = 0.0
        self.is_done = False

    def start(self) -> SessionStart:
        """Where its reader begins."""
        return SessionStart(
            str(self.path), self.where.root, self.head, self.at, self.line, self._title or None
        )

    def take(self, finished: list[SessionExchange]) -> None:
        """Exchanges that are over."""
        if finished:
            self.seen += finished
            self.ends_at = finished[-1].ends_at

    def end(self, reader: SessionReader) -> None:
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


def import_sessions(
    client: str,
    shelf: Store,
    *,
    home: Path,
    folder: Path | None = None,
    within: Project | None = None,
    progress: Callable[[int], None] | None = None,
) -> ConversationImport:
    """Bring in one client's sessions, those of every project or of one."""
    return Importer(
        client, shelf, home=home, folder=folder, within=within, progress=progress
    ).once()


def _newlines(file: BinaryIO, start: int, end: int) -> int:
    """How many lines end between two places of a file."""
    file.seek(start)
    found = 0
    while start < end and (part := file.read(min(1 << 20, end - start))):
        found += part.count(b"\n")
        start += len(part)
    return found
