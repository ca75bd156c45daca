"""What must not go wrong on a disk: locks, flushed appends, atomic replacement.

The locks are the operating system's, so a process that dies gives them back.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    # Windows locks are mandatory for the bytes they cover, so cover one that no file reaches.
    _LOCKED_BYTE = 0x7FFF_FFFE

    def _try_lock(fd: int) -> bool:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


_BINARY = getattr(os, "O_BINARY", 0)
_FIRST_WAIT_S = 0.0005
_LONGEST_WAIT_S = 0.02
# EPERM is what Linux says of a file system that has none, Windows EINVAL.
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_serial = itertools.count()


class Busy(Exception):
    """The lock was not free in time; whoever asked for it says so in his words."""


@contextlib.contextmanager
def locked(path: Path, *, timeout_s: float) -> Iterator[int]:
    """Hold the file's lock and give its descriptor, opened for reading and appending.

    The file may be replaced while we wait; the lock counts only on the file that is there now.
    """
    deadline = time.monotonic() + timeout_s
    while (fd := _lock_current(path, deadline)) is None:
        if time.monotonic() >= deadline:
            raise Busy
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):  # closing gives the lock back in any case
            _unlock(fd)
        os.close(fd)


def _lock_current(path: Path, deadline: float) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)
    try:
        _wait_for(fd, deadline)
        if is_current(fd, path):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _wait_for(fd: int, deadline: float) -> None:
    wait_s = _FIRST_WAIT_S
    while not _try_lock(fd):
        if time.monotonic() >= deadline:
            raise Busy
        time.sleep(wait_s)
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)


def is_current(fd: int, path: Path) -> bool:
    """Whether the opened file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def write_all(fd: int, data: bytes) -> None:
    """Write every byte or raise; an append that fails leaves the file as it was."""
    size = os.fstat(fd).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
        flush(fd)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            os.ftruncate(fd, size)
        raise


def flush(fd: int) -> None:
    """Bring the file's bytes to the disk itself, not only to the system's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def flush_folder(folder: Path) -> None:
    """Bring a folder's entries (a new or renamed file) to the disk; Windows does it itself."""
    if sys.platform == "win32":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """Put new content in the file's place: readers see the old or the new, never a part."""
    path = path.resolve()  # what a link points to is replaced, not the link
    draft = _draft(path)
    try:
        _write_new(draft, data, mode=path.stat().st_mode & 0o7777 if path.exists() else None)
        _put(draft, path, data)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            draft.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def _put(draft: Path, path: Path, data: bytes) -> None:
    try:
        draft.replace(path)
    except PermissionError:
        if sys.platform != "win32" or not path.exists():
            raise
        # Windows does not replace a file that somebody has open, ourselves included. The draft
        # stays beside it until the content is in place.
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()
            flush(file.fileno())
        draft.unlink()


def create(path: Path, data: bytes) -> bool:
    """Create the file whole, or say False when somebody else did first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return False
    draft = _draft(path)
    try:
        _write_new(draft, data)
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        try:  # the exclusive open is the next best
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            return False
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            draft.unlink(missing_ok=True)
    flush_folder(path.parent)
    return True


def sweep_drafts(path: Path) -> None:
    """Remove what a crash in the middle of a replacement left; its lock must be held."""
    path = path.resolve()
    draft = re.compile(rf"\.{re.escape(path.name)}\.\d+-\d+\.tmp")
    for file in path.parent.iterdir():
        if draft.fullmatch(file.name):
            file.unlink(missing_ok=True)


def _write_new(path: Path, data: bytes, *, mode: int | None = None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
    try:
        if mode is not None:
            path.chmod(mode)
        write_all(fd, data)
    finally:
        os.close(fd)


def _draft(path: Path) -> Path:
    # Two threads of a process may be at the same file.
    return path.with_name(f".{path.name}.{os.getpid()}-{next(_serial)}.tmp")
