"""Where the journals of a memory are: in a folder, or where an address says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ralph.journal import Journals
from ralph.journal.folder import JournalFolder
from ralph.journal.jsonl import LOCK_TIMEOUT_S

if TYPE_CHECKING:
    from ralph.journal.link import Link

# The memories of a process share a connection; whoever closes it last closes it for all.
_links: WeakValueDictionary[tuple[str, float, float, Path], Link] = WeakValueDictionary()


def journals_for(
    url: str | None,
    folder: Path,
    *,
    memory: str | Callable[[], str],
    home: Path,
    shown_as: str = "",
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    connect_timeout_s: float = 2.0,
) -> Journals:
    """The journals of a memory: files in the folder, or with a URL streams of a database.

    A memory is named `conversations`, `knowledge` or `feature/<project id>`. Nothing is opened
    yet, but what still waits in Ralph's home for a server that is no longer used goes to the files.
    """
    named = memory if callable(memory) else lambda: memory
    spools = home / "spool"
    if url is None:
        files = JournalFolder(folder, shown_as=shown_as, lock_timeout_s=lock_timeout_s)
        if spools.is_dir():
            _take_in(files, spools, named())
        return files
    from ralph.journal.database import PostgresJournals
    from ralph.journal.link import Link, Patience
    from ralph.journal.spooled import SpooledJournals

    key = (url, lock_timeout_s, connect_timeout_s, spools)
    link = _links.get(key)
    if link is None:
        patience = Patience(connect_s=connect_timeout_s, lock_s=lock_timeout_s)
        link = _links[key] = Link(url, patience=patience, notes=spools)
    return SpooledJournals(PostgresJournals(link, named), spools)


def _take_in(files: JournalFolder, spools: Path, memory: str) -> None:
    from ralph.journal.spool import Spool, spool_folder, waiting_names

    place = spool_folder(spools, memory)
    for name in waiting_names(place):
        spool = Spool(place, name, lock_timeout_s=LOCK_TIMEOUT_S)
        spool.deliver(files.journal(name), patience_s=LOCK_TIMEOUT_S)
