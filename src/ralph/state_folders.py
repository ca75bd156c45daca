"""The folders where this machine keeps its own state of a project, in Ralph's home.

They are not in the project: files that come with a clone would pass for our own. Their names have a
hash of the project's path that a stranger cannot forge, and the path itself is inside.

Earlier versions used CRC-32, which can be forged in seconds. Such a folder is moved when a project
is first used, but only if what is inside belongs to this path: a clone whose path was made to fit
must not get somebody else's sessions. A folder that is not moved stays where it is.

Hooks load this before every prompt: it must stay cheap to import.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from importlib import import_module

from ralph import disk
from ralph.disk import AnyPath

_PROJECTS = "projects"
_HOOKS = "hooks"
# The file with the project's path, in each of its folders.
_PATH = "path"
_NAME_CHARS = 60
_HASH_CHARS = 16
# Enough of a transcript to find where its session began.
_BEGINNING_BYTES = 64 * 1024
# The file in which hooks keep the text that a session begins with.
_BRIEF = "brief.json"
_CWD = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.){1,4096}")')
_ROOT = re.compile(rb'"root"\s*:\s*("(?:[^"\\]|\\.){1,4096}")')
_TRANSCRIPT = re.compile(rb'"note":\s*"transcript",\s*"value":\s*("(?:[^"\\]|\\.){1,4096}")')


def state_folder(root: AnyPath, home_folder: AnyPath | None = None) -> str:
    """Return the folder for this machine's state of the project at a path."""
    return _folder(_PROJECTS, os.path.realpath(root), os.fspath(home_folder or disk.home()))


def hooks_folder(root: AnyPath, home_folder: AnyPath) -> str:
    """Return the folder where hooks keep their state of the project at a path."""
    return _folder(_HOOKS, os.path.realpath(root), os.fspath(home_folder))


def state_name(root: AnyPath) -> str:
    """Return a name for the project at a path that no other path has."""
    path = os.path.realpath(root)
    return f"{_plain_name(path)}-{_hash(path)[:_HASH_CHARS]}"


def old_state_name(root: AnyPath) -> str:
    """Return the name that earlier versions used; another path can have the same."""
    path = os.path.realpath(root)
    return f"{_plain_name(path)}-{zlib.crc32(os.fsencode(path)):08x}"


def _plain_name(path: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in os.path.basename(path))[:_NAME_CHARS]


def _hash(path: str) -> str:
    """Return the SHA-256 of a path. `hashlib` takes longer to load than all of this: OpenSSL."""
    for module in ("_sha2", "_sha256"):  # by version of Python
        with contextlib.suppress(ImportError):
            return str(import_module(module).sha256(os.fsencode(path)).hexdigest())
    return str(import_module("hashlib").sha256(os.fsencode(path)).hexdigest())


def _folder(kind: str, path: str, home: str) -> str:
    cache = os.path.join(home, "cache")
    folder = os.path.join(cache, kind, state_name(path))
    if os.path.isdir(folder):
        return folder if _is_of(folder, path) else f"{folder}{_hash(path)[_HASH_CHARS:]}"
    name = old_state_name(path)
    old = os.path.join(cache, kind, name)
    if not os.path.isdir(old) or not _belongs(name, path, home):
        return folder
    if _is_busy(old):
        return old  # a run of the earlier version still writes to it
    try:
        disk.write(os.path.join(old, _PATH), os.fsencode(path))
        os.rename(old, folder)
    except OSError:  # the home is read-only, or another process was faster
        return folder if os.path.isdir(folder) else old
    return folder


def _is_of(folder: str, path: str) -> bool:
    """Whether a folder is this path's. One without a path is new, so it is."""
    file = os.path.join(folder, _PATH)
    try:
        return disk.read(file) == os.fsencode(path)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            disk.write(file, os.fsencode(path))
    except OSError:
        pass  # the name is evidence enough
    return True


# -- folders of earlier versions


def _belongs(name: str, path: str, home: str) -> bool:
    """Whether the old folders with this name are this path's, and nobody else's.

    What is inside decides. If that says nothing, Ralph's notes must know no other path for it.
    """
    olds = [os.path.join(home, "cache", kind, name) for kind in (_PROJECTS, _HOOKS)]
    worktrees = os.path.join(home, "worktrees")
    named = {one for old in olds for one in _paths_in(old) if not _is_within(one, worktrees)}
    if named:
        return all(_is_within(one, path) for one in named)
    if any(_has_indexed(old, path) for old in olds):
        return True
    return {one for one in _known_paths(home) if old_state_name(one) == name} == {path}


def _is_within(folder: str, path: str) -> bool:
    inside = os.path.join(os.path.realpath(folder), "")
    return inside.startswith(os.path.join(os.path.realpath(path), ""))


def _paths_in(old: str) -> Iterator[str]:
    """Yield the paths in an old folder: of unfinished runs, sessions, and the stored brief."""
    for run in _names(os.path.join(old, "runs")):
        yield from _texts(_CWD, os.path.join(old, "runs", run, "run.json"))[:1]
    for note in _names(os.path.join(old, "sessions")):
        for transcript in _texts(_TRANSCRIPT, os.path.join(old, "sessions", note)):
            yield from _texts(_CWD, transcript)[:1]  # where the session began
    yield from _texts(_ROOT, os.path.join(old, _BRIEF))[:1]


def _texts(pattern: re.Pattern[bytes], file: str) -> list[str]:
    """Return the JSON strings that a pattern finds in a file's beginning."""
    try:
        with open(file, "rb") as opened_file:
            data = opened_file.read(_BEGINNING_BYTES)
    except (OSError, ValueError):
        return []
    found: list[str] = []
    for match in pattern.findall(data):
        with contextlib.suppress(ValueError):
            found.append(json.loads(match))
    return found


def _has_indexed(old: str, path: str) -> bool:
    """Whether the index in an old folder was made from this project's own journal files.

    It has their inode numbers. The project's id would prove nothing, because a clone has it, too.
    """
    import sqlite3

    folder = os.path.join(path, disk.FOLDER, "db", "memory")
    own: set[int] = set()
    for name in _names(folder):
        with contextlib.suppress(OSError):
            own.add(os.lstat(os.path.join(folder, name)).st_ino)
    for name in _names(old):
        if not own or not name.endswith(".sqlite3"):
            continue
        try:
            with contextlib.closing(sqlite3.connect(os.path.join(old, name))) as index:
                for (position,) in index.execute("SELECT position FROM collection"):
                    found = json.loads(position) if position else None
                    if isinstance(found, dict) and found.get("inode") in own:
                        return True
        except (sqlite3.Error, ValueError):
            continue
    return False


def _known_paths(home: str) -> set[str]:
    """Return every path that Ralph's notes about projects name."""
    folder = os.path.join(home, "projects")
    found: set[str] = set()
    for name in _names(folder):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            paths = json.loads(disk.read(os.path.join(folder, name)))["paths"]
            found.update(map(str, paths))
    return found


def _is_busy(old: str) -> bool:
    """Whether an agent's run in this folder has not ended."""
    runs = os.path.join(old, "runs")
    return any(disk.is_locked(os.path.join(runs, run, "lock")) for run in _names(runs))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
