"""Move a project's memories to a server or back, and deliver what waits for a server."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from ralph import disk
from ralph.config import Settings
from ralph.errors import BadInput, JournalDown, JournalError
from ralph.journal import Journals
from ralph.journal.folder import journals_for
from ralph.journal.moving import MovedStream, Progress, move
from ralph.memory.knowledge_journal import stream_of
from ralph.memory.project import Project
from ralph.memory.store import (
    CONVERSATIONS,
    KNOWLEDGE,
    SPOOL,
    conversation_journals,
    feature_journals,
    knowledge_journals,
    on_server,
)

if TYPE_CHECKING:
    from ralph.journal.spooled import SpooledJournals


FEATURES = "features"
_FEATURE = "feature"


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


class _Pair(msgspec.Struct, frozen=True):
    memory: str
    source: Journals
    target: Journals
    own: str | None = None


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
    ends = [_End(one, settings, hands_over=not dry_run) for one in (source, target)]
    # One of the two is files: that is no sign that somebody lacks the address.
    features = [
        one.itself(feature_journals(project, one.settings, home, warns=False)) for one in ends
    ]
    said = [one.itself(conversation_journals(one.settings, home, warns=False)) for one in ends]
    known = [one.itself(knowledge_journals(one.settings, home, warns=False)) for one in ends]
    pairs = [
        _Pair(FEATURES, features[0], features[1]),
        _Pair(CONVERSATIONS, said[0], said[1], project.id),
        _Pair(KNOWLEDGE, known[0], known[1], stream_of(project.id)),
    ]
    try:
        for pair in pairs:
            if pair.source.where == pair.target.where:
                raise BadInput("the journals are there already", where=pair.target.where)
        moved = tuple(_moved(one, everything, dry_run, progress) for one in pairs)
        if not dry_run:
            ends[1].note(moved)
    finally:
        for pair in pairs:
            pair.source.close()
            pair.target.close()
    return MovedProject(moved, dry_run)


class _End:
    """One of the two places. What waits here is handed over to the server it waits for alone."""

    def __init__(self, url: str | None, settings: Settings, *, hands_over: bool) -> None:
        self.settings = msgspec.structs.replace(settings, journal_url=url)
        self._hands_over = hands_over and (settings.journal_url or url) == url
        self._servers: list[SpooledJournals] = []

    def itself(self, journals: Journals) -> Journals:
        """A server without its spool, so that what it does not have is not called moved."""
        server = on_server(journals)
        if server is None:
            return journals
        self._servers.append(server)
        if self._hands_over:
            server.deliver()
        else:
            server.server.link.retry()  # a person asks
        return server.server

    def note(self, moved: Sequence[MovedMemory]) -> None:
        """Remember how far the numbers go, so that they go on when the server is away."""
        if not self._hands_over:
            return
        with contextlib.suppress(JournalDown):  # all is moved; the next use that reaches it notes
            for server, memory in zip(self._servers, moved, strict=False):
                for one in memory.streams:
                    server.journal(one.name).read(limit=1)


def _moved(pair: _Pair, everything: bool, dry_run: bool, progress: Progress | None) -> MovedMemory:
    names = pair.source.names()
    chosen = [name for name in names if everything or pair.own in (None, name)]
    if chosen and not dry_run:
        _prepare(pair.target)

    def report(name: str, count: int) -> None:
        if progress:
            progress(f"{pair.memory} {name}", count)

    moved = move(pair.source, pair.target, report, names=chosen, dry_run=dry_run)
    left = len(names) - len(chosen)
    return MovedMemory(pair.memory, pair.source.where, pair.target.where, moved.streams, left)


def _prepare(target: Journals) -> None:
    try:
        target.prepare()
    except OSError as error:
        raise JournalError(
            f"the journals cannot be written ({error.strerror or error})",
            where=target.where,
            todo="Free space or permit writing there, then try again.",
        ) from error


# -- what waits for a server


def waiting_records(home: Path) -> dict[str, int]:
    """How many records wait on this machine for a server, by memory."""
    from ralph.journal.folder import JournalFolder
    from ralph.journal.spool import spool_folder, waiting_names

    counted: dict[str, int] = {}
    for memory in _spooled(home):
        place = spool_folder(home / SPOOL, memory)
        kept = JournalFolder(place)
        count = sum(len(kept.journal(name).read().records) for name in waiting_names(place))
        if count:
            counted[memory] = count
    return counted


def deliver_all(url: str, settings: Settings, home: Path) -> dict[str, int]:
    """Hand everything that waits on this machine to the server, of whichever project, by memory."""
    delivered: dict[str, int] = {}
    for memory in waiting_records(home):
        journals = journals_for(
            url,
            home / SPOOL,
            memory=memory,
            home=home,
            lock_timeout_s=settings.journal_lock_timeout_s,
            connect_timeout_s=settings.remember_budget_s,
        )
        try:
            delivered[memory] = journals.deliver()
        finally:
            journals.close()
    return delivered


def bring_home(project: Project, settings: Settings, home: Path) -> dict[str, int]:
    """Put what waits for a server into the files instead: all but other projects' features."""
    folders: dict[str, Path] = {
        f"{_FEATURE}/{project.id}": project.journals,
        **{memory: home / "journal" / memory for memory in (CONVERSATIONS, KNOWLEDGE)},
    }
    waiting = waiting_records(home)
    brought: dict[str, int] = {}
    for memory, folder in folders.items():
        if memory in waiting:
            disk.make_folder(folder)
            lock_timeout_s = settings.journal_lock_timeout_s
            journals_for(None, folder, memory=memory, home=home, lock_timeout_s=lock_timeout_s)
            brought[memory] = waiting[memory]
    return brought


def _spooled(home: Path) -> list[str]:
    """The memories that have a spool on this machine."""
    spools = home / SPOOL
    found = [name for name in (CONVERSATIONS, KNOWLEDGE) if (spools / name).is_dir()]
    features = spools / _FEATURE
    if features.is_dir():
        found += [f"{_FEATURE}/{unquote(one.name)}" for one in sorted(features.iterdir())]
    return found
