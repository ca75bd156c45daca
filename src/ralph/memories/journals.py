"""Where the journals of each memory are: in files, or on the server that an address names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from ralph.config import Settings
from ralph.index.held import held_records
from ralph.index.view import AnyIndex
from ralph.journal import Journals
from ralph.journal.choose import journals_for
from ralph.journal.folder import JournalFolder
from ralph.memories.project import Project
from ralph.record import Record

_log = logging.getLogger("ralph")
SPOOL = "spool"
# How long reading a stand-in for a journal may take whose server is away.
_STAND_IN_S = 1.0

# Gives the records that are known of a stream without its journal.
Known = Callable[[str], Sequence[Record]]


def feature_journals(
    project: Project, settings: Settings, home: Path, *, known: Known | None = None
) -> Journals:
    """The journals of a project's features."""
    return _opened(
        settings,
        project.journals,
        memory=lambda: f"feature/{project.id}",
        home=home,
        shown_as=".ralph/db/memory",
        known=known,
    )


def conversation_journals(
    settings: Settings, home: Path, *, known: Known | None = None
) -> Journals:
    """The journals of what was said, one a project."""
    return _in_home("conversations", settings, home, known)


def knowledge_journals(settings: Settings, home: Path) -> Journals:
    """The journals of what was learned, one a project."""
    return _in_home("knowledge", settings, home, None)


def known_by(index: Callable[[], AnyIndex], collection: Callable[[str], str]) -> Known:
    """What the index has of a stream, which is in the collection of that name."""
    return lambda stream: held_records(index(), collection(stream), budget_s=_STAND_IN_S)


def take_in_waiting(
    memory: str | Callable[[], str], files: JournalFolder, home: Path
) -> list[str]:
    """Bring what waits for a server into files instead, and name the streams."""
    from ralph.journal.spool import Spool, spool_folder, waiting_names

    place = spool_folder(home / SPOOL, memory() if callable(memory) else memory)
    names = waiting_names(place)
    return names


def _in_home(memory: str, settings: Settings, home: Path, known: Known | None) -> Journals:
    folder = home / "journal" / memory
    return _opened(
        settings, folder, memory=lambda: memory, home=home, shown_as=f"journal/{memory}", known=known
    )
