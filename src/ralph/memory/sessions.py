"""Turn the sessions of clients into conversations and iterations.

Everything here can be repeated, and can be killed at any point: an exchange's id is made from its
prompt, an iteration is looked up by its run before it is written, and how far a file was read is
saved only after its exchanges are in the journal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path, PureWindowsPath
from typing import BinaryIO, NamedTuple

import msgspec

from ralph import disk
from ralph.capture.decisions import session_title
from ralph.capture.lines import (
    READER_VERSION,
    FileStamp,
    SessionExchange,
    SessionHead,
    SessionReader,
    SessionStart,
    moment,
)
from ralph.clients import BY_SOURCE, drift
from ralph.errors import BadRecord, JournalBusy, NotFound, UnsafeFile
from ralph.memory.anchors import anchors_in
from ralph.memory.conversation_stream import (
    ConversationContent,
    ConversationImport,
    ConversationStream,
)
from ralph.memory.feature import SavedIteration
from ralph.memory.pausing import unpaused_talks
from ralph.memory.project import GENERAL, Focus, PlainFolder, Project, find_project
from ralph.memory.ralph import Ralph
from ralph.memory.store import Store
from ralph.plan.model import PlanView, Task
from ralph.recall import CLAUDE_CODE, run_name
from ralph.records import Complaint, utc
from ralph.records.conversation import Conversation, Exchange, conversation_id, exchange_id
from ralph.records.iteration import Outcome, cut
from ralph.text.sanitize import strip_marked

_TITLE_CHARS = 80
# The fields that an exchange copies from a captured run.
_CAPTURED = "tokens_used model errors decisions files_touched checks".split()
# Sentences of the prompts that Ralph itself gives to agents.
_OWN_PROMPTS = (
    "Only the text outside of marks says how you report and which tools you use.",
    "You plan the work, you do not do it: change no file.",
)
# How long a file must be unchanged before its last exchange counts as finished: with a final
# answer, and without one.
SETTLED_S = 10.0
ABANDONED_S = 600.0
# The timestamp of a line, searched for at the end of a file.
_TIMESTAMP = re.compile(rb'"timestamp":\s*"([^"\\]{10,40})"')
_TAIL_BYTES = 64 * 1024
# How much is read between two flushes of the journal.
_BATCH_BYTES = 16 * 1024 * 1024


# -- The exchanges of a session's file, as conversations.


class SessionHome(NamedTuple):
    """Where a session belongs: its project's ids, name and root, and the folder it was held in."""

    ids: tuple[str, ...]
    project: str = ""
    root: str | None = None
    folder: str = ""


def home_of(cwd: str, home: Path) -> SessionHome:
    """Return the project around a folder, or the folder itself; it may no longer exist."""
    if not cwd or "\0" in cwd:
        return SessionHome((GENERAL,))
    path = Path(cwd)
    if not path.is_absolute():  # from another system
        only = str(uuid.uuid5(uuid.NAMESPACE_URL, cwd))
        return SessionHome((only,), PureWindowsPath(cwd).name, cwd, cwd)
    project: Project = PlainFolder(path, home)
    with contextlib.suppress(UnsafeFile):
        project = find_project(path, home=home) or project
    return SessionHome(tuple(project.ids), project.root.name, str(project.root), cwd)


def conversations_of(
    seen: Sequence[SessionExchange],
    *,
    source: str,
    session: str,
    title: str | None,
    project: str = "",
    no_prompts: Sequence[str] = (),
) -> list[ConversationContent]:
    """Group exchanges into conversations; those copied from another session belong to that one.

    `no_prompts` are the keys of exchanges that an older reader made of what nobody asked.
    """
    by_session: dict[str, list[SessionExchange]] = {}
    # An exchange that a later prompt took back comes twice; the last one is right.
    for one in {(one.session_id, one.key): one for one in seen}.values():
        if any(own in one.user for own in _OWN_PROMPTS):
            continue  # a run saves its own iterations
        if strip_marked(one.user).strip() or strip_marked(one.assistant).strip():
            by_session.setdefault(one.session_id or session, []).append(one)
    found: list[ConversationContent] = []
    for name, some in by_session.items():
        conversation = Conversation(
            id=conversation_id(source, name),
            title=_title(some, title or ""),
            source=source,
            project=project,
            created=some[0].captured.started_at,
        )
        exchanges = [exchange_of(conversation.id, one) for one in some]
        keys = {one.key for one in some}
        nothing = [exchange_id(conversation.id, key) for key in no_prompts if key not in keys]
        anchors = {
            exchange.id: anchors_in(one.captured, exchange.id, one.git_branch or "")
            for exchange, one in zip(exchanges, some, strict=True)
        }
        found.append(
            ConversationContent(conversation, exchanges, no_exchanges=nothing, anchors=anchors)
        )
    return found


def exchange_of(conversation: str, seen: SessionExchange) -> Exchange:
    """Return a part of a session as it is saved."""
    captured = seen.captured
    return Exchange(
        id=exchange_id(conversation, seen.key),
        conversation=conversation,
        started=captured.started_at,
        completed=captured.ended_at,
        **{name: getattr(seen, name) for name in ("user", "assistant", "status", "messages")},
        stumbles=captured.shapes,
        **{name: getattr(captured, name) for name in _CAPTURED},
    )


def _title(exchanges: Sequence[SessionExchange], own: str = "") -> str:
    """Return a title: the client's `own`, the plan's, the first real request, or first words."""
    prompts = [strip_marked(one.user) for one in exchanges]
    answers = [strip_marked(one.assistant) for one in exchanges]
    # The title of an exchange may be what it committed.
    titles = [one.captured.title for one in exchanges]
    done = [text for pair in zip(titles, answers, strict=True) for text in pair]
    if title := session_title(prompts, own=own, done=done):
        return title
    words = prompts[0].split() or answers[0].split()
    return cut(" ".join(words), _TITLE_CHARS)


# -- How far each session's file was imported. Only a cache: if it is lost, files are read again.


_VERSION = 1
_BEGINNING = 256


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much of a file is saved, and how the file looked then.

    `waits_s`: its last exchange was in progress; it counts as finished once the file has not
    changed for this long. `reader` is the version of the reader.
    """

    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    line: int = 0
    crc: int = 0
    title: str = ""
    waits_s: float = 0.0
    reader: int = 0


class _Marks(msgspec.Struct):
    version: int
    files: dict[str, Mark]


def read_marks(path: Path) -> dict[str, Mark]:
    """Return the marks by file; none if they are missing, damaged or of another version."""
    try:
        marks = msgspec.json.decode(path.read_bytes(), type=_Marks)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return marks.files if marks.version == _VERSION else {}


def write_marks(path: Path, files: dict[str, Mark]) -> None:
    """Save the marks in one step."""
    disk.replace(path, msgspec.json.encode(_Marks(_VERSION, files)))


def still_fits(mark: Mark, file: BinaryIO, size: int) -> bool:
    """Return whether the file still begins as it did, and the mark is at the start of a line."""
    if not 0 < mark.offset <= size or beginning(file, mark.offset) != mark.crc:
        return False
    file.seek(mark.offset - 1)
    return file.read(1) == b"\n"


def beginning(file: BinaryIO, offset: int) -> int:
    """Return a checksum of the file's beginning, to tell it from other files."""
    file.seek(0)
    return zlib.crc32(file.read(min(offset, _BEGINNING)))


# -- All sessions of a client on this machine.


class _SessionFile(NamedTuple):
    path: Path
    file: BinaryIO
    stamp: FileStamp
    head: SessionHead
    home: SessionHome
    quiet_s: float


class Importer:
    """Imports the sessions of one client under a folder; `once` imports what is new.

    `within` leaves out the sessions of other projects. `progress` is called with how many bytes of
    `total_bytes` were processed.
    """

    def __init__(
        self,
        client: str,
        store: Store,
        *,
        folder: Path | None = None,
        within: Project | None = None,
        progress: Callable[[int], None] = lambda done: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = BY_SOURCE[client]
        self._files = self._client.program.sessions()
        self._store = store
        self.folder = folder or self._files.session_folder(os.environ)
        self._within = within
        self._progress = progress
        self._clock = clock
        self._marks_file = store.home / "cache" / "imports" / f"{client}.json"
        self._home_of = functools.cache(functools.partial(home_of, home=store.home))
        self._streams: dict[SessionHome, ConversationStream] = {}
        # Files of other projects or of sub-agents: that never changes.
        self._passed_over: set[Path] = set()
        self.total_bytes = 0

    @property
    def title(self) -> str:
        """The client's name for people."""
        return self._client.title

    @property
    def agent(self) -> str:
        """The client's name as `--agent` takes it."""
        return self._client.agent

    @property
    def homes(self) -> list[SessionHome]:
        """Where the sessions belong that were imported, each once."""
        return list(self._streams)

    @property
    def streams(self) -> list[ConversationStream]:
        """The streams that got something."""
        return list(self._streams.values())

    def measure(self) -> None:
        """Set `total_bytes`, for a progress bar over several importers."""
        self.total_bytes = sum(size for _, size in self._sizes())

    def new_sessions(self) -> list[SessionHome]:
        """Return where each session belongs that memory does not have; not those of sub-agents."""
        marks = read_marks(self._marks_file)
        found: dict[SessionHome, list[str]] = {}
        for path, size in self._sizes():
            mark = marks.get(str(path), Mark())
            if not size or (mark.reader == READER_VERSION and mark.size == size):
                continue
            with contextlib.suppress(OSError), self._files.open_session(path) as file:
                head = self._files.session_head(path, file)
                if head is not None and not head.is_subagent:
                    home = self._home_of(head.cwd)
                    name = conversation_id(self._client.source, head.session)
                    found.setdefault(home, []).append(name)
        new: list[SessionHome] = []
        for home, names in found.items():
            own, *also = home.ids
            known = ConversationStream(own, self._store, also=also).known(names)
            new += [home for name in names if name not in known]
        return new

    def once(self) -> ConversationImport:
        """Import what is new since the last time."""
        source = self._client.source
        if not self.folder.exists():
            raise NotFound(
                f"there are no sessions of {source}",
                where=str(self.folder),
                todo="Name the folder that holds them.",
            )
        disk.make_folder(self._marks_file.parent)
        lock = self._marks_file.with_suffix(".lock")
        busy = JournalBusy(
            f"another import of {source} is under way",
            where=str(lock),
            todo="Try again when it is done.",
        )
        with disk.lock(lock, timeout_s=self._store.settings.journal_lock_timeout_s, busy=busy):
            self._read_all()
        self._result.conversations = len(self._grown)
        return self._result

    def _read_all(self) -> None:
        # Read but not saved yet: conversations by stream, and marks by file.
        self._talks: dict[SessionHome, list[ConversationContent]] = {}
        self._new_marks: dict[str, Mark] = {}
        self._unsaved_bytes = 0
        self._grown: set[str] = set()
        self._result = ConversationImport()
        # What was met in files of each version of the client.
        self._met: dict[str, dict[str, int]] = {}
        self._marks = read_marks(self._marks_file)
        sizes = dict(self._sizes())
        self.total_bytes = sum(sizes.values())
        done = 0
        for path, size in sizes.items():
            try:
                self._look_at(path, done)
            except OSError as error:
                self._unread(path, f"cannot be read ({error.strerror or error})")
            done += size
            self._progress(done)
            if self._unsaved_bytes >= _BATCH_BYTES:
                self._save()
        self._save()
        for version, met in self._met.items():
            drift.save_counts(self._store.home, self._client.source, version, met)
            if text := drift.drift_text(self._client.source, version, met):
                self._result.drift.append(text)

    def _sizes(self) -> Iterator[tuple[Path, int]]:
        """Yield the files to look at, each with its size."""
        files = list(self._files.session_files(self.folder))
        if not files and self.folder.is_file():
            files = [self.folder]
        for path in files:
            # A file may be removed meanwhile, or be a broken link.
            with contextlib.suppress(FileNotFoundError):
                if path not in self._passed_over:
                    yield path, self._files.session_stamp(path).size

    def _look_at(self, path: Path, done: int) -> None:
        mark = self._marks.get(str(path), Mark())
        if mark.reader < READER_VERSION:
            mark = Mark()
        stamp = self._files.session_stamp(path)
        quiet_s = abs(self._clock() - stamp.mtime_ns / 1e9)
        same = (mark.size, mark.mtime_ns) == stamp
        if not stamp.size or (same and not 0 < mark.waits_s <= quiet_s):
            self._result.waiting += bool(same and mark.waits_s)
            self._result.unchanged += 1
            return
        with self._files.open_session(path) as file:
            head = self._files.session_head(path, file)
            if head is None:
                self._unread(path, f"holds no session of {self._client.source}")
                return
            home = self._home_of(head.cwd)
            is_elsewhere = self._within is not None and home.ids[0] not in self._within.ids
            if is_elsewhere or head.is_subagent:
                self._passed_over.add(path)
                self._result.elsewhere += not head.is_subagent
                # Whoever names one file wants to know why nothing came of it.
                self._result.subagents += head.is_subagent and (
                    not is_elsewhere or path == self.folder
                )
                return
            if not still_fits(mark, file, file.seek(0, os.SEEK_END)):
                mark = Mark()
            self._result.files += 1
            self._read(_SessionFile(path, file, stamp, head, home, quiet_s), mark, done)

    def _read(self, source: _SessionFile, mark: Mark, done: int) -> None:
        """Read a file from its mark on; finished exchanges go into the batch."""
        start = SessionStart(
            str(source.path),
            source.home.root,
            source.head,
            mark.offset,
            mark.line,
            mark.title or None,
        )
        reader = self._files.session_reader(start)
        reader.look_back(source.file)
        at = begun = ends_at = mark.offset
        line = mark.line
        waits_s = 0.0
        seen: list[SessionExchange] = []
        source.file.seek(at)
        for data in source.file:
            if not data.endswith(b"\n") and source.quiet_s < ABANDONED_S:
                waits_s = ABANDONED_S  # being written now, or left incomplete
                break
            at += len(data)
            line += 1
            if finished := reader.feed(data):
                seen += finished
                ends_at = finished[-1].ends_at
            if seen and at - begun >= _BATCH_BYTES:
                # This mark has no size: after a crash the file must not look read to its end.
                self._put(source, reader, seen, Mark(offset=ends_at, line=line), at)
                self._save()
                seen = []
                begun = at
                self._progress(done + at)
        ends_at = reader.ends_at
        for last in reader.rest():
            wait_s = SETTLED_S if last.captured.terminal_reason != "unknown" else ABANDONED_S
            # A file that was copied just now is not being written, unless its last line is torn.
            if source.quiet_s < wait_s and (waits_s or self._age_s(source.file) < wait_s):
                ends_at = last.begins_at
                waits_s = max(wait_s, waits_s)
            else:
                seen.append(last)
        end = Mark(*source.stamp, offset=ends_at, line=line, waits_s=waits_s)
        self._put(source, reader, seen, end, at)
        self._unsaved_bytes += at - begun
        self._result.waiting += bool(waits_s)
        self._result.complaints += reader.complaints
        met = self._met.setdefault(drift.short_version(reader.version), {})
        drift.add_counts(met, reader.met)

    def _age_s(self, file: BinaryIO) -> float:
        """How old the newest of the last lines is by its own time; 0 where none has one."""
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        times = (
            moment(found.decode("utf-8", "replace")) for found in _TIMESTAMP.findall(file.read())
        )
        newest = max(filter(None, times), default=None)
        return self._clock() - datetime.fromisoformat(newest).timestamp() if newest else 0.0

    def _put(
        self,
        source: _SessionFile,
        reader: SessionReader,
        seen: Sequence[SessionExchange],
        mark: Mark,
        at: int,
    ) -> None:
        """Add to the batch what was seen up to `at`, and how far that goes."""
        talks = conversations_of(
            seen,
            source=self._client.source,
            session=source.head.session,
            title=reader.title,
            project=source.home.project,
            no_prompts=reader.no_prompts,
        )
        self._talks.setdefault(source.home, []).extend(talks)
        self._new_marks[str(source.path)] = msgspec.structs.replace(
            mark,
            line=mark.line - _newlines(source.file, mark.offset, at),
            crc=beginning(source.file, mark.offset),
            title=reader.title or "",
            reader=READER_VERSION,
        )
        source.file.seek(at)

    def _save(self) -> None:
        """Save the batch to the journals, then the marks."""
        talks = self._talks
        marks = self._new_marks
        self._talks = {}
        self._new_marks = {}
        self._unsaved_bytes = 0
        for home, some in talks.items():
            free = unpaused_talks(self._store.home, home.ids, some, folder=home.folder)
            if free != some:  # titles may come from what was said during a pause
                marks = {i: msgspec.structs.replace(one, title="") for i, one in marks.items()}
            if free:
                if home not in self._streams:
                    own, *also = home.ids
                    self._streams[home] = ConversationStream(own, self._store, also=also)
                saved = self._streams[home].save_again(free)
                self._grown |= saved.conversations
                self._result.exchanges += len(saved.exchanges)
                self._result.known += saved.known
                self._result.renewed += len(saved.renewed)
        if marks:
            self._marks |= marks
            write_marks(self._marks_file, self._marks)

    def _unread(self, path: Path, why: str) -> None:
        self._result.unread.append(Complaint(str(path), 1, why))


def _newlines(file: BinaryIO, start: int, end: int) -> int:
    """Return how many lines end between two places in a file."""
    file.seek(start)
    found = 0
    while start < end and (part := file.read(min(1 << 20, end - start))):
        found += part.count(b"\n")
        start += len(part)
    return found


# -- One session, as hooks capture it.


class SessionWork(msgspec.Struct, frozen=True):
    """What an exchange worked on: a feature, perhaps one of its tasks, and how the task changed."""

    feature: str
    task: Task | None = None
    outcome: Outcome = "unknown"
    moved: bool = False


def keep_exchanges(
    ralph: Ralph,
    seen: Sequence[SessionExchange],
    *,
    session: str,
    title: str | None,
    source: str = CLAUDE_CODE,
) -> None:
    """Save the exchanges, each once, in the conversation of their session."""
    for talk in conversations_of(seen, source=source, session=session, title=title):
        ralph.conversations.add(talk.conversation, talk.exchanges)
        ralph.anchor([saved for some in talk.anchors.values() for saved in some])


def unkept(
    ralph: Ralph, seen: Sequence[SessionExchange], *, session: str, source: str = CLAUDE_CODE
) -> list[SessionExchange]:
    """Return the exchanges that memory never had; those saved or forgotten before are settled.

    A session that continues is read from its beginning, and its earlier exchanges may have had
    another focus.
    """
    homes = [conversation_id(source, one.session_id or session) for one in seen]
    ids = {exchange_id(home, one.key): one for home, one in zip(homes, seen, strict=True)}
    known = ralph.conversations.known(ids)
    return [one for identity, one in ids.items() if identity not in known]


def keep_iteration(
    ralph: Ralph,
    seen: SessionExchange,
    work: SessionWork,
    *,
    session: str,
    source: str = CLAUDE_CODE,
) -> SavedIteration | None:
    """Save the exchange as an iteration of the feature, if it did anything and is not saved yet."""
    captured = seen.captured
    changed = any(file.action != "read" for file in captured.files_touched)
    if not (changed or captured.errors or captured.decisions or work.moved):
        return None
    run = run_name(seen.session_id or session, seen.key, source)
    memory = ralph.feature(work.feature)
    if memory.of_run(run):
        return None
    task = work.task
    iteration = captured.to_iteration(
        feature=work.feature,
        task_id=task.id if task else None,
        task_title=task.title if task else _title([seen]),
        discipline=(task.discipline or "") if task else "",
        outcome=None if work.outcome == "unknown" else work.outcome,
    )
    # A person's session has no result line; its last answer is the result, however short.
    summary = iteration.summary or seen.assistant
    saved = memory.remember(msgspec.structs.replace(iteration, session_id=run, summary=summary))
    ralph.anchor(anchors_in(captured, saved.id, seen.git_branch or ""))
    return saved


def work_of(seen: SessionExchange, view: PlanView, focus: Focus | None) -> SessionWork | None:
    """Return what the exchange worked on: the focus, else the one feature whose tasks changed.

    None if neither is known. The outcome is never a failure by default.
    """

    def within(at: str | None) -> bool:
        moments = (seen.captured.started_at, at, seen.captured.ended_at)
        try:
            times = [datetime.fromisoformat(utc(moment)) for moment in moments if moment]
        except BadRecord:
            return False  # somebody wrote an invalid time into the plan
        return len(times) == len(moments) and times == sorted(times)

    def done(task: Task) -> bool:
        return task.status == "done" and within(task.completed or task.updated)

    def commented(task: Task) -> bool:
        return any(within(comment.at) for comment in task.comments)

    moved = [one for one in view.tasks if within(one.updated) or done(one) or commented(one)]
    if focus is None:
        features = {task.feature for task in moved}
        if len(features) != 1:
            return None
        feature = features.pop()
    else:
        feature = focus.feature
        moved = [task for task in moved if task.feature == feature]
    if focus is not None and focus.task_id is not None:
        named = [task for task in view.tasks if str(task.id) == str(focus.task_id)]
        moved = [task for task in moved if task in named]
        if not moved:
            return SessionWork(feature, named[0] if named else None)
    if not moved:
        return SessionWork(feature)
    # Of several tasks, prefer the one that got done, then the one that changed last.
    task = max(moved, key=lambda one: (done(one), one.updated or ""))
    # Not done, but changed.
    partial = task.status in ("in_progress", "blocked", "skipped") or commented(task)
    outcome: Outcome = "success" if done(task) else "partial" if partial else "unknown"
    return SessionWork(feature, task, outcome, moved=True)
