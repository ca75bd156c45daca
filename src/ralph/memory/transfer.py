"""Move a project's memories to a server or back, and deliver what waits for a server.

A move copies what is missing, then verifies every record by id and hash.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import unquote

import msgspec

from ralph import disk
from ralph.config import Settings
from ralph.errors import BadInput, JournalDown, JournalError
from ralph.journal import Journal, Journals
from ralph.journal.file import JournalFolder
from ralph.journal.line import short_hash, write_record
from ralph.memory import store
from ralph.memory.knowledge_state import stream_of
from ralph.memory.project import Project
from ralph.memory.store import CONVERSATIONS, FEATURES, KNOWLEDGE, SPOOL
from ralph.records import Complaint

_FEATURE = "feature"
_PORTION = 500
_TRIES = 3

# Called with the stream's name and how many of its records were looked at.
Progress = Callable[[str, int], None]


class MovedStream(msgspec.Struct, frozen=True):
    """How much of one stream is the same in both places now, and what is not there.

    `unreadable` are lines that cannot be read and stay where they are; `forgotten_there` are
    records that the target had forgotten before, and that stay forgotten.
    """

    name: str
    records: int
    tombstones: int
    fresh: int
    forgotten_there: int
    unreadable: tuple[Complaint, ...]


class MovedMemory(msgspec.Struct, frozen=True):
    """One memory, and how many journals of other projects stayed where they are."""

    memory: str
    source: str
    target: str
    streams: tuple[MovedStream, ...]
    left: int = 0


class MovedProject(msgspec.Struct, frozen=True):
    """All memories of a project, copied and compared; `dry_run`: only looked at."""

    memories: tuple[MovedMemory, ...]
    dry_run: bool

    @property
    def records(self) -> int:
        """How many records are the same in both places, or would be."""
        return sum(one.records for each in self.memories for one in each.streams)

    @property
    def fresh(self) -> int:
        """How many of them the target did not have."""
        return sum(one.fresh for each in self.memories for one in each.streams)

    @property
    def left(self) -> int:
        """How many journals of other projects were not moved."""
        return sum(one.left for one in self.memories)


def move_project(
    project: Project,
    settings: Settings,
    home: Path,
    *,
    source: str | None,
    target: str | None,
    everything: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MovedProject:
    """Copy the journals of a project's memories, and say so only when every record is the same.

    An address is a server, None is files. The source is not changed. `everything` takes the
    conversations and the knowledge of all projects along.
    """
    own = {FEATURES: None, CONVERSATIONS: project.ids, KNOWLEDGE: [stream_of(project.id)]}
    with contextlib.ExitStack() as stack:

        def opened(url: str | None) -> list[Journals]:
            chosen = msgspec.structs.replace(settings, journal_url=url)
            # One of the two is files: that is no sign that somebody lacks the address.
            journals = [store.feature_journals(project, chosen, home, warns=False)]
            for memory in (CONVERSATIONS, KNOWLEDGE):
                journals.append(store.home_journals(memory, chosen, home, warns=False))
            for one in journals:
                stack.callback(one.close)
                if server := store.on_server(one):
                    if _hands_over(url, settings, dry_run):
                        server.deliver()
                    else:
                        server.link.retry()  # a person asks
            return journals

        # A server without its spool, so that what it does not have is not called moved.
        sources, targets = opened(source), opened(target)
        plain = ([getattr(one, "server", one) for one in side] for side in (sources, targets))
        pairs = list(zip(*plain, strict=True))
        for begin, end in pairs:
            if begin.where == end.where:
                raise BadInput("the journals are there already", where=end.where)
        moved: list[MovedMemory] = []
        for (memory, mine), (begin, end) in zip(own.items(), pairs, strict=True):
            only = None if everything else mine
            moved.append(move(begin, end, progress, memory=memory, only=only, dry_run=dry_run))
        if target is not None and _hands_over(target, settings, dry_run):
            # Remember how far the numbers go, so that they go on when the server is away.
            with contextlib.suppress(JournalDown):  # the next use that reaches it does so, too
                for journals, there in zip(targets, moved, strict=True):
                    for stream in there.streams:
                        journals.journal(stream.name).read(limit=1)
    return MovedProject(tuple(moved), dry_run)


def _hands_over(url: str | None, settings: Settings, dry_run: bool) -> bool:
    """Whether what waits here goes to this server: it may wait for another."""
    return not dry_run and (settings.journal_url or url) == url


def move(
    source: Journals,
    target: Journals,
    progress: Progress | None = None,
    *,
    memory: str = "",
    only: Collection[str] | None = None,
    dry_run: bool = False,
) -> MovedMemory:
    """Copy every stream (or those of these names); return only when all of it is there.

    The source is not changed. After an interruption it can be repeated. Refused before anything
    is written: other content under an id that both have. `dry_run` writes nothing.
    """
    names = source.names()
    chosen = [name for name in names if only is None or name in only]
    streams = [_plan(source.journal(name), target, name) for name in chosen]
    if not dry_run:

        def report(name: str, count: int) -> None:
            if progress:
                progress(f"{memory} {name}".strip(), count)

        streams = [_copy_checked(source.journal(name), target, name, report) for name in chosen]
    return MovedMemory(memory, source.where, target.where, tuple(streams), len(names) - len(chosen))


class _Contents:
    """What is in a journal: living records by id and hash, and the ids of its tombstones."""

    def __init__(self, journal: Journal) -> None:
        batch = journal.read()
        self.complaints = batch.complaints
        self.buried = {stone.id for stone in batch.tombstones}
        records = (one.record for one in batch.records if one.record.id not in self.buried)
        self.living = {(one.id, short_hash(write_record(one))) for one in records}


def _plan(source: Journal, place: Journals, name: str) -> MovedStream:
    """What a move would come to."""
    ours, theirs = _Contents(source), _Contents(place.journal(name))
    ids = {record_id for record_id, _ in ours.living}
    others = sorted({key[0] for key in theirs.living - ours.living if key[0] in ids})
    if others:
        raise BadInput(
            f"records of {name!r} exist there with other content ({len(others)}), the first is "
            f"{others[0]}; nothing was copied",
            where=place.where,
            todo="Move into an empty place, or forget those records on one side.",
        )
    return _report(name, ours, theirs)


def _copy_checked(source: Journal, place: Journals, name: str, report: Progress) -> MovedStream:
    """Copy a stream, and return only when every id and hash of it is in the target."""
    target = place.journal(name)
    fresh = 0
    for _ in range(_TRIES):
        forgotten = {stone.id for one in (source, target) for stone in one.read().tombstones}
        position, done, seen = None, False, 0
        while not done:  # what the target lacks, in the source's order
            batch = source.read(position, limit=_PORTION)
            records = [one.record for one in batch.records if one.record.id not in forgotten]
            fresh += sum(one.fresh for one in target.append(records))
            if batch.tombstones:
                target.forget((), stones=batch.tombstones)
            seen += len(batch.records)
            report(name, seen)
            position, done = batch.position, batch.done
        ours, theirs = _Contents(source), _Contents(target)
        if source.unchanged(position):
            break
    else:
        what, todo = "is written to faster than it can be copied", "Stop what writes to it, then"
        raise JournalError(f"{name!r} {what}", where=place.where, todo=f"{todo} move again.")
    missing = {key[0] for key in ours.living - theirs.living} | ours.buried
    if missing := missing - theirs.buried:
        raise JournalError(
            f"the copy of {name!r} lacks records ({len(missing)}), the first is {min(missing)}",
            where=place.where,
            todo="Keep using the old place; move into an empty one.",
        )
    return _report(name, ours, theirs, fresh)


def _report(name: str, ours: _Contents, theirs: _Contents, fresh: int | None = None) -> MovedStream:
    lost = {key for key in ours.living if key[0] in theirs.buried}
    fresh = len(ours.living - theirs.living - lost) if fresh is None else fresh
    records, stones = len(ours.living) - len(lost), len(ours.buried)
    return MovedStream(name, records, stones, fresh, len(lost), ours.complaints)


# -- what waits for a server


def waiting_records(home: Path) -> dict[str, int]:
    """How many records wait on this machine for a server, by memory."""
    from ralph.journal.spool import spool_folder

    spools = home / SPOOL
    features = [f"{_FEATURE}/{unquote(one.name)}" for one in sorted(spools.glob(f"{_FEATURE}/*"))]
    counts: dict[str, int] = {}
    for memory in (CONVERSATIONS, KNOWLEDGE, *features):
        files = JournalFolder(spool_folder(spools, memory))
        counts[memory] = sum(len(files.journal(name).read().records) for name in files.names())
    return {memory: count for memory, count in counts.items() if count}


def deliver_all(url: str, settings: Settings, home: Path) -> dict[str, int]:
    """Hand everything that waits on this machine to the server, of whichever project, by memory."""
    delivered: dict[str, int] = {}
    chosen = msgspec.structs.replace(settings, journal_url=url)
    for memory in waiting_records(home):
        with contextlib.closing(store.home_journals(memory, chosen, home)) as journals:
            if server := store.on_server(journals):
                delivered[memory] = server.deliver()
    return delivered


def bring_home(project: Project, settings: Settings, home: Path) -> dict[str, int]:
    """Put what waits for a server into the files instead: all but other projects' features."""
    from ralph.journal.spool import deliver_to_files

    folders = {memory: home / "journal" / memory for memory in (CONVERSATIONS, KNOWLEDGE)}
    folders[f"{_FEATURE}/{project.id}"] = project.journals
    waiting = waiting_records(home)
    for memory in waiting.keys() & folders.keys():
        disk.make_folder(folders[memory])
        files = JournalFolder(folders[memory], lock_timeout_s=settings.journal_lock_timeout_s)
        deliver_to_files(files, memory, home / SPOOL)
    return {memory: count for memory, count in waiting.items() if memory in folders}
