"""Where the journals of each memory are: in files, or on the server that the settings name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.config import Settings
from ralph.index.held import held_records
from ralph.index.view import AnyIndex
from ralph.journal import Journals
from ralph.journal.choose import journals_for
from ralph.journal.folder import JournalFolder
from ralph.memories.project import Project
from ralph.record import Record

if TYPE_CHECKING:
    from ralph.journal.spooled import SpooledJournals

CONVERSATIONS, KNOWLEDGE = "conversations", "knowledge"
# Where in Ralph's home what must wait for a server is kept.
SPOOL = "spool"
_log = logging.getLogger("ralph")
# How long it may take to read what stands in for a journal whose server is away.
_STAND_IN_S = 1.0

# Gives what is known of a stream without its journal.
Known = Callable[[str], Sequence[Record]]


def feature_journals(
    project: Project,
    settings: Settings,
    home: Path,
    *,
    known: Known | None = None,
    warns: bool = True,
) -> Journals:
    """The journals of a project's features; `warns` of what waits though no server is set."""
    return _opened(
        settings,
        project.journals,
        memory=lambda: f"feature/{project.id}",
        home=home,
        shown_as=".ralph/db/memory",
        known=known,
        warns=warns,
    )


def conversation_journals(
    settings: Settings, home: Path, *, known: Known | None = None, warns: bool = True
) -> Journals:
    """The journals of what was said, one a project."""
    return _in_home(CONVERSATIONS, settings, home, known, warns)


def knowledge_journals(settings: Settings, home: Path, *, warns: bool = True) -> Journals:
    """The journals of what was learned, one a project."""
    return _in_home(KNOWLEDGE, settings, home, None, warns)


def known_by(index: Callable[[], AnyIndex], collection: Callable[[str], str]) -> Known:
    """What an index has of a stream, by the name of the stream's collection."""
    return lambda stream: held_records(index(), collection(stream), budget_s=_STAND_IN_S)


def _in_home(
    memory: str, settings: Settings, home: Path, known: Known | None, warns: bool
) -> Journals:
    return _opened(
        settings,
        home / "journal" / memory,
        memory=lambda: memory,
        home=home,
        shown_as=f"journal/{memory}",
        known=known,
        warns=warns,
    )


def _opened(
    settings: Settings,
    folder: Path,
    *,
    memory: Callable[[], str],
    home: Path,
    shown_as: str,
    known: Known | None,
    warns: bool,
) -> Journals:
    if not settings.journal_url:
        # Not by `journals_for`, which would bring what waits for a server into these files: whoever
        # lacks the address (an agent does) must not decide that.
        if warns and (home / SPOOL).is_dir():
            _tell_of_waiting(home / SPOOL, memory())
        lock_timeout_s = settings.journal_lock_timeout_s
        return JournalFolder(folder, shown_as=shown_as, lock_timeout_s=lock_timeout_s)
    journals = journals_for(
        settings.journal_url,
        folder,
        memory=memory,
        home=home,
        shown_as=shown_as,
        lock_timeout_s=settings.journal_lock_timeout_s,
        connect_timeout_s=settings.journal_connect_timeout_s,
    )
    if known is None:
        return journals
    from ralph.journal.spooled import SpooledJournals
    from ralph.memories.last_known import LastKnownJournals

    assert isinstance(journals, SpooledJournals)
    return LastKnownJournals(journals.server, home / SPOOL, known)


def on_server(journals: Journals) -> SpooledJournals | None:
    """The journals as those of a server; None where they are files."""
    if isinstance(journals, JournalFolder):
        return None
    from ralph.journal.spooled import SpooledJournals

    return journals if isinstance(journals, SpooledJournals) else None


def _tell_of_waiting(spools: Path, memory: str) -> None:
    from ralph.journal.spool import spool_folder, waiting_names

    if waiting_names(spool_folder(spools, memory)):
        _log.warning(
            "memory: records wait in %s for a journal's server, but journal_url is not set here; "
            "set it, or bring them into the files with: ralph journal deliver",
            spools,
        )
