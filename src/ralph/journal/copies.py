"""Copies of a project's journals, taken before an agent runs, and lost lines restored from them.

An agent can delete or rewrite the journals in its checkout. A copy in Ralph's home has the lines
that stood there when its run began. `ralph forget` removes lines from the copies first, so a copy
never brings back what was forgotten, and a tombstone for a line that a copy still has was not
written by Ralph.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from ralph import disk
from ralph.errors import UnsafeFile
from ralph.journal.file import JournalFolder
from ralph.journal.line import FORGOTTEN, Unreadable, read_line
from ralph.records import Record, Tombstone

_SUFFIX = ".jsonl"


class Loss(NamedTuple):
    """How many lines of a journal are gone, and how many records were hidden by tombstones."""

    name: str
    lines: int
    hidden: int

    def __str__(self) -> str:
        counts = [(self.lines, "lost"), (self.hidden, "hidden by a tombstone")]
        said = [f"{n} line{'s' * (n != 1)} {how}" for n, how in counts if n]
        return f"{self.name}: {', '.join(said)}"


def copy_journals(journals: JournalFolder, folder: Path) -> list[str]:
    """Copy all journals to a folder, each under its lock; return the names of the files."""
    disk.make_folder(folder)
    copied: list[str] = []
    for name in journals.names():
        journal = journals.journal(name)
        with (
            contextlib.suppress(FileNotFoundError),
            journal.locked(),
            disk.open_reader(journal.path) as source,
            disk.appending(folder / journal.path.name) as target,
        ):
            shutil.copyfileobj(source, target, 1024 * 1024)
            copied.append(journal.path.name)
    return copied


def restore_lines(
    journals: JournalFolder, folder: Path, taken: Callable[[str, list[bytes]], set[bytes]]
) -> tuple[list[Loss], list[Loss]]:
    """Put lines back that the copies have and the journals lost, in one step for each journal.

    `taken` returns, for a file's name and the lines it lost, those that are not put back. Returns
    what was restored, and what was left as it is. Lines that came since the copy stay.
    """
    restored: list[Loss] = []
    left: list[Loss] = []
    names = [name for name in disk.names(folder) if name.endswith(_SUFFIX)]
    if names:
        _make_usable(journals.path)
    for file in names:
        _clear(journals.path / file)
        journal = journals.journal(unquote(file[: -len(_SUFFIX)]))
        with journal.locked():
            # Read it under the lock: `forget` removes lines from copies under the same lock.
            before = _read(folder / file)
            found = _read(journal.path)
            if found.startswith(before) and FORGOTTEN.encode() not in found[len(before) :]:
                continue  # only added to: no need to look at each line
            lines, loss = _merged(before, found, journal.name)
            if not loss.lines and not loss.hidden:
                continue
            present = Counter(found.splitlines())
            gone = [line for line in before.splitlines() if not present[line]]
            if not_ours := taken(file, gone):
                left.append(Loss(journal.name, sum(line in not_ours for line in gone), 0))
                kept = [line for line in before.splitlines() if line not in not_ours]
                lines, loss = _merged(b"\n".join(kept), found, journal.name)
            if loss.lines or loss.hidden:
                journal.put_whole(b"".join(lines))
                restored.append(loss)
    return restored, left


def _merged(before: bytes, found: bytes, name: str) -> tuple[list[bytes], Loss]:
    """Return the lines of both: those of the copy in their order, then those that came since."""
    kept = _lines(before)
    present = Counter(_lines(found))
    lost: list[bytes] = []
    for line in kept:
        if present[line]:
            present[line] -= 1
        elif line.strip():
            lost.append(line)
    ours = {entry.id for entry in map(_entry, kept) if isinstance(entry, Record)}
    altered = {entry.id for entry in map(_entry, lost) if isinstance(entry, Record)}
    hidden = 0
    since: list[bytes] = []
    for line in _lines(found):
        if not present[line]:
            continue  # the copy has it
        present[line] -= 1
        entry = _entry(line)
        if isinstance(entry, Tombstone) and entry.id in ours:
            hidden += 1
        elif lost and (entry is None or (isinstance(entry, Record) and entry.id in altered)):
            pass  # what the agent left of a line, or wrote in its place
        else:
            since.append(line)
    return [*kept, *since], Loss(name, len(lost), hidden)


def _lines(data: bytes) -> list[bytes]:
    """Return the lines, each with a newline, so that a torn last line stays on its own."""
    return [line + b"\n" for line in data.split(b"\n") if line]


def _entry(line: bytes) -> Record | Tombstone | None:
    try:
        return read_line(line.strip())[0]
    except Unreadable:
        return None


def _read(path: Path) -> bytes:
    try:
        with disk.open_reader(path) as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _make_usable(folder: Path) -> None:
    """Make the journals' folder again if an agent has put something else there."""
    with contextlib.suppress(UnsafeFile):
        if disk.is_folder(folder):
            return
    disk.remove(folder)
    disk.make_folder(folder)


def _clear(path: Path) -> None:
    """Move away anything that is not a readable file, such as a folder or a link."""
    try:
        found = disk.stat(path)
    except FileNotFoundError:
        return
    except UnsafeFile:  # a link or a pipe: there is nothing in it
        disk.remove(path)
        return
    if not stat.S_ISREG(found.st_mode) or not os.access(path, os.R_OK | os.W_OK):
        disk.rename(path, f"{path.name}.found")
