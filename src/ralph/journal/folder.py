"""A folder of journals, one file per name; and where a memory's journals are, files or a server."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from ralph import disk
from ralph.errors import BadInput
from ralph.journal import Journals
from ralph.journal.file import LOCK_TIMEOUT_S, JsonlJournal
from ralph.journal.line import Unreadable, read_line
from ralph.records import Record

if TYPE_CHECKING:
    from ralph.journal.session import Link


_SUFFIX = ".jsonl"
_MAX_NAME_CHARS = 100
# File systems allow 255; a draft of the file has a longer name for a moment.
_MAX_FILE_BYTES = 230
# Where the newest record of a journal stands, unless a very long one or a stranger's line does.
_TAIL_BYTES = 64 * 1024
# Names that Windows gives to devices; a project is shared between systems.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)


class JournalFolder:
    """The journals of one memory, each in a file named after it."""

    def __init__(
        self, path: Path, *, shown_as: str = "", lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self.path = path
        self._shown_as = shown_as
        self._lock_timeout_s = lock_timeout_s
        self._open: dict[str, JsonlJournal] = {}

    def journal(self, name: str) -> JsonlJournal:
        """The journal of this name; its file is made by the first append."""
        if name not in self._open:
            file = self.path / file_name(name)
            self._refuse_twin(name, file)
            shown = f"{self._shown_as}/{file.name}" if self._shown_as else file.name
            self._open[name] = JsonlJournal(file, name=shown, lock_timeout_s=self._lock_timeout_s)
        return self._open[name]

    def names(self) -> list[str]:
        """The names of all journals that are there."""
        files = (name for name in disk.names(self.path) if name.endswith(_SUFFIX))
        return sorted(unquote(name[: -len(_SUFFIX)]) for name in files if name[0] != ".")

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.path)

    def prepare(self) -> None:
        """Make the folder; OSError where that cannot be."""
        disk.make_folder(self.path)

    def newest_at(self, name: str) -> str:
        """When the newest record of a journal was made, from its end alone; "" if unclear."""
        with disk.opened(self.journal(name).path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().splitlines()
        found = ""
        for line in lines:
            with contextlib.suppress(Unreadable):  # half a line, or a stranger's
                entry, _ = read_line(line)
                found = max(found, entry.at if isinstance(entry, Record) else "")
        return found

    def size_bytes(self, name: str) -> int:
        """How long a journal's file is; 0 where there is none."""
        path = self.journal(name).path
        return disk.stat(path).st_size if disk.exists(path) else 0

    def trouble(self) -> None:
        """A folder is here or fails at once: nothing is ever as of the last time."""

    def deliver(self) -> int:
        """Nothing waits for a folder."""
        return 0

    def listener(self) -> None:
        """Files tell nobody; looking at them costs next to nothing."""

    def close(self) -> None:
        """No file is kept open."""

    def _refuse_twin(self, name: str, file: Path) -> None:
        """Where upper and lower case are one, two names must not become one file."""
        if not disk.exists(file) or name in self.names():
            return
        raise BadInput(
            f"{name!r} differs from a name already used only in upper and lower case, "
            "which this file system does not tell apart",
            where=str(self.path),
            todo="Use the name as it was written first.",
        )


def file_name(name: str) -> str:
    """The file a name is kept in: the name itself wherever every file system allows it."""
    check_name(name)
    quoted = quote(name, safe=" ") if name.isascii() else _quote_some(name)
    if quoted.startswith((".", " ")) or _RESERVED.match(quoted):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if quoted.endswith((".", " ")):
        quoted = f"{quoted[:-1]}%{ord(quoted[-1]):02X}"
    file = quoted + _SUFFIX
    if len(file.encode()) > _MAX_FILE_BYTES:
        raise BadInput(
            f"the name {name[:40]!r}... takes {len(file.encode())} bytes as a file's name, "
            f"at most {_MAX_FILE_BYTES} are allowed",
            todo="Use a shorter name.",
        )
    return file


def check_name(name: str) -> None:
    """Refuse a name that cannot be shown or kept anywhere."""
    if not name.strip():
        raise BadInput("the name is empty", todo="Give the feature a name.")
    if len(name) > _MAX_NAME_CHARS:
        raise BadInput(
            f"the name {name[:40]!r}... has {len(name)} characters, "
            f"at most {_MAX_NAME_CHARS} are allowed"
        )
    if any(unicodedata.category(char)[0] == "C" for char in name):
        raise BadInput(f"the name {name!r} holds characters that cannot be seen")


def _quote_some(name: str) -> str:
    """Letters of any script stay readable; what a file system may refuse is quoted."""
    return "".join(char if char.isalnum() else quote(char, safe=" ") for char in name)


# -- Where the journals of a memory are: in a folder, or where an address says.


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
    from ralph.journal.session import Link, Patience
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
