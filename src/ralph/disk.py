"""Safe file access: links, locks, flushed appends, atomic replacement.

A project's `.ralph` comes with a clone, so a stranger may have filled it. Every file there is
opened, written, listed and deleted here and nowhere else: no link is followed from `.ralph` on, and
only regular files of a sane size are opened. Everything else that Ralph saves is in its home and is
private to its owner.

The locks are the operating system's, so a process that dies releases them. Hooks load this module
before every prompt: it must stay cheap to import.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import stat as modes
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from ralph.errors import UnsafeFile

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    # Windows locks are mandatory for the bytes they cover, so lock one that no file reaches.
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
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


AnyPath: TypeAlias = "str | os.PathLike[str]"
# The name of the folder in a project, and of Ralph's home.
FOLDER = ".ralph"
# A project's own settings, in its folder.
SETTINGS_FILE = "rag_config.json"
# Larger than any plan or settings file.
LARGEST_BYTES = 16 * 1024 * 1024

_BINARY = getattr(os, "O_BINARY", 0)
# Do not follow a link, and do not wait for the other end of a pipe.
_CAREFUL = _BINARY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER_ONLY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# Where this is False (on Windows), links are checked before the file is opened, not while.
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.listdir in os.supports_fd
_TODO = "Check it, and delete it if you did not create it."
_FIRST_WAIT_S = 0.0005
_LONGEST_WAIT_S = 0.02
# Errors of a file system without hard links: EPERM on Linux, EINVAL on Windows.
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
# A file in the home's cache; it says that `protect` has made everything in the home private.
_PRIVATE = "private"
_serial = itertools.count()


class Busy(Exception):
    """The lock was not free in time; the caller turns this into its own error."""


# -- Ralph's home


def home(environ: Mapping[str, str] | None = None) -> str:
    """Return Ralph's home, the folder for everything that does not travel with a project."""
    given = (os.environ if environ is None else environ).get("RALPH_HOME")
    return os.path.expanduser(given) if given else os.path.join(os.path.expanduser("~"), FOLDER)


def protect(home_folder: AnyPath) -> None:
    """Make Ralph's home, and everything already in it, private to its owner.

    Earlier versions left files that others could read in a home that they could not enter, so
    every file is checked once.
    """
    done = os.path.join(home_folder, "cache", _PRIVATE)
    try:
        mode = os.stat(home_folder).st_mode
    except OSError:
        return  # there is no home yet; it is created private
    if sys.platform == "win32" or (not mode & 0o077 and os.path.exists(done)):
        return
    for folder, _, files in os.walk(home_folder):
        for name in files:
            file = os.path.join(folder, name)
            with contextlib.suppress(OSError):  # gone, or another user's: the folder's mode counts
                if not os.path.islink(file):
                    os.chmod(file, os.stat(file).st_mode & 0o700)
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    with contextlib.suppress(OSError):  # without a cache there is little to check next time
        write(done, b"")


def is_own(path: AnyPath) -> bool:
    """Whether a file or folder belongs to the current user, or to the user behind `sudo`."""
    if sys.platform == "win32":
        return True
    own = {os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        own.add(int(os.environ["SUDO_UID"]))
    return os.lstat(path).st_uid in own


# -- a project's folder


def open_file(path: AnyPath, flags: int = os.O_RDONLY) -> int:
    """Open a file and return its descriptor."""
    with _folder_of(path) as (folder, name, fenced):
        if not fenced:
            return os.open(name, flags | _BINARY, 0o600)
        try:
            fd = os.open(name, flags | _CAREFUL, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise _refusal(path, _kind(name, folder)) from None
            raise
        mode = os.fstat(fd).st_mode
        if not modes.S_ISREG(mode):
            os.close(fd)
            raise _refusal(path, _mode_name(mode))
        return fd


def open_reader(path: AnyPath, *, buffering: int = -1) -> BinaryIO:
    """Open a file for reading."""
    return os.fdopen(open_file(path), "rb", buffering)


def appending(path: AnyPath) -> BinaryIO:
    """Open a file for appending; in Ralph's home a new one is private to its owner."""
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def log(path: AnyPath, data: bytes, most_bytes: int) -> None:
    """Append to a log with one write; a log that gets too long is renamed to `path.1`."""
    make_folder(os.path.dirname(path))
    with appending(path) as file:
        file.write(data)
        size = file.tell()
    if size > most_bytes:
        os.replace(path, f"{os.fspath(path)}.1")


def read(path: AnyPath, *, largest: int = LARGEST_BYTES) -> bytes:
    """Return the whole file; refuse one that is larger than anybody would write by hand."""
    with open_reader(path) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise UnsafeFile(f"it is larger than {largest} bytes", where=str(path), todo=_TODO)
    return data


def stat(path: AnyPath) -> os.stat_result:
    """Return the status of a file or folder; refuse a link, pipe or device in a project."""
    with _folder_of(path) as (folder, name, fenced):
        if not fenced:
            return os.stat(name)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not (modes.S_ISREG(found.st_mode) or modes.S_ISDIR(found.st_mode)):
            raise _refusal(path, _mode_name(found.st_mode))
        return found


# What `stat` says about a file that changes with every write: inode, size, time in nanoseconds.
FileState: TypeAlias = tuple[int, int, int]


def has_state(path: AnyPath, state: FileState) -> bool:
    """Whether the file at a path has exactly this state, which a safely opened file had before.

    Far faster than `stat` in a project, for questions asked with every search. It opens nothing and
    looks for no links on the way: what leads to the same file leads to the same bytes.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_ino, found.st_size, found.st_mtime_ns) == state


def exists(path: AnyPath) -> bool:
    """Whether a file or folder exists."""
    return _mode(path) != 0


def is_folder(path: AnyPath) -> bool:
    """Whether the path is a folder."""
    return modes.S_ISDIR(_mode(path))


def _mode(path: AnyPath) -> int:
    """Return the type and permissions of a file or folder, 0 if there is none."""
    try:
        return stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def names(folder: AnyPath) -> list[str]:
    """Return the sorted names in a folder, without other folders; [] if it does not exist."""
    inside = os.path.join(folder, "_")
    try:
        with _folder_of(inside) as (fd, _, _), os.scandir(folder if fd is None else fd) as found:
            return sorted(one.name for one in found if not one.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def make_folder(folder: AnyPath) -> None:
    """Create a folder and its parents, unless they exist."""
    if os.path.isdir(folder):
        return  # whoever opens a file in it looks for links then
    with _folder_of(os.path.join(folder, "_"), make=True) as (_, _, fenced):
        if not fenced:
            _make_private(os.fspath(folder))


def _make_private(folder: str) -> None:
    above = os.path.dirname(folder)
    if above and above != folder and not os.path.isdir(above):
        _make_private(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def remove(path: AnyPath) -> None:
    """Delete a file, unless it is already gone. For a link, delete the link itself."""
    with contextlib.suppress(FileNotFoundError), _folder_of(path) as (folder, name, _):
        os.unlink(name, dir_fd=folder)


def rename(path: Path, name: str) -> Path:
    """Rename whatever is at a path within its folder, and return the new path."""
    with _folder_of(path) as (folder, old, fenced):
        new = name if fenced and folder is not None else str(path.with_name(name))
        os.replace(old, new, src_dir_fd=folder, dst_dir_fd=folder)
    return path.with_name(name)


@contextlib.contextmanager
def _folder_of(path: AnyPath, *, make: bool = False) -> Iterator[tuple[int | None, str, bool]]:
    """Yield a file's folder as a descriptor, its name there, and whether it is in a project.

    Outside a project's `.ralph` the descriptor is None and the name is the whole path.
    """
    fence = _fence(path)
    if fence is None:
        yield None, os.fspath(path), False
        return
    base, below = fence
    if not _BY_DESCRIPTOR:
        _check_folders(base, below[:-1], make=make)
        if not make and (kind := _kind(os.path.join(base, *below), None)) == _LINK:
            raise _refusal(path, kind)
        yield None, os.fspath(path), True
        return
    fd = _open_folder(base, below[:-1], make=make)
    try:
        yield fd, below[-1], True
    except OSError as error:
        if not isinstance(error, UnsafeFile):
            error.filename = os.fspath(path)  # the system names only the last part
        raise
    finally:
        os.close(fd)


def _fence(path: AnyPath) -> tuple[str, list[str]] | None:
    """Return the project's root and the names from its `.ralph` on; None outside any project."""
    return _fence_below(os.fspath(path), home())


@functools.lru_cache(maxsize=256)
def _fence_below(path: str, own: str) -> tuple[str, list[str]] | None:
    plain = os.path.normpath(path)
    parts = plain.split(os.sep)
    for at, part in enumerate(parts):
        if part == FOLDER and os.sep.join(parts[: at + 1]) != os.path.normpath(own):
            root = os.sep if os.path.isabs(plain) else os.curdir
            return os.sep.join(parts[:at]) or root, parts[at:]
    return None


def _open_folder(base: str, below: list[str], *, make: bool) -> int:
    if make:
        os.makedirs(base, exist_ok=True)
    fd = os.open(base, os.O_RDONLY)
    path = base
    for name in below:
        path = os.path.join(path, name)
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
            inner = os.open(name, _FOLDER_ONLY, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise _refusal(path, _kind(name, fd)) from None
            error.filename = path
            raise
        finally:
            os.close(fd)
        fd = inner
    return fd


def _check_folders(base: str, below: list[str], *, make: bool) -> None:
    """Refuse a link on the way to a file, where the system has no `dir_fd` to open folders with."""
    path = base
    for name in below:
        path = os.path.join(path, name)
        kind = _kind(path, None)
        if kind == "" and make:
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.mkdir(path)
        elif kind not in ("", _A_FOLDER):
            raise _refusal(path, kind)


_LINK = "a link"
_A_FOLDER = "a folder"


def _kind(name: str, folder: int | None) -> str:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return ""
    # A Windows junction is not a symbolic link, but it leads elsewhere too.
    return _LINK if getattr(found, "st_reparse_tag", 0) else _mode_name(found.st_mode)


def _mode_name(mode: int) -> str:
    if modes.S_ISLNK(mode):
        return _LINK
    if modes.S_ISDIR(mode):
        return _A_FOLDER
    return "a file" if modes.S_ISREG(mode) else "a pipe or device"


def _refusal(path: AnyPath, kind: str) -> UnsafeFile:
    why = f"; Ralph does not follow links in {FOLDER}" if kind == _LINK else ""
    return UnsafeFile(f"it is {kind}{why}", where=str(path), todo=_TODO)


# -- locks


@contextlib.contextmanager
def lock(path: Path, *, timeout_s: float, busy: Exception | None = None) -> Iterator[int]:
    """Hold the file's lock and yield its descriptor, opened for reading and appending.

    The file may be replaced while we wait; the lock counts only on the file that is there now.
    Raises `busy`, or Busy, if the lock was not free in time.
    """
    deadline = time.monotonic() + timeout_s
    wait_s = _FIRST_WAIT_S
    while True:
        fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if _try_lock(fd) and is_current(fd, path):
                yield fd
                return
        finally:
            with contextlib.suppress(OSError):  # closing releases the lock in any case
                _unlock(fd)
            os.close(fd)
        if time.monotonic() >= deadline:
            raise busy or Busy
        time.sleep(wait_s)
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)


def is_locked(path: AnyPath) -> bool:
    """Whether a process holds the lock of an existing file."""
    try:
        fd = open_file(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)  # this releases the lock


def is_current(fd: int, path: Path) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        # No need to refuse links here: a link that leads to the open file changes nothing.
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


# -- writing


def write(path: AnyPath, data: bytes) -> None:
    """Write a file that may be lost: a crash can leave it cut off or empty."""
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(data)


def write_all(fd: int, data: bytes) -> None:
    """Write and flush every byte or raise; an append that fails leaves the file as it was."""
    size = os.fstat(fd).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
        flush(fd)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            os.ftruncate(fd, size)
        raise


def flush(fd: int) -> None:
    """Flush the file's bytes to the disk itself, not only to the system's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries (a new or renamed file) to the disk; Windows does this itself."""
    if sys.platform == "win32":
        return
    with _folder_of(os.path.join(folder, "_")) as (opened_folder, _, _):
        fd = os.open(folder, os.O_RDONLY) if opened_folder is None else os.dup(opened_folder)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def replace(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the file's content: readers see the old or the new content, never a part.

    The file keeps its mode; a new file gets `mode`, or the usual mode of its folder.
    """
    if _fence(path) is None:
        path = path.resolve()  # replace the target of a person's own link, not the link
    with _drafted(path, data, mode=mode, exactly=_mode(path) & 0o7777) as (draft, name, folder):
        _put(draft, name, data, folder)


def _put(draft: str, name: str, data: bytes, folder: int | None) -> None:
    try:
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except PermissionError:
        if sys.platform != "win32" or not os.path.exists(name):
            raise
        # Windows cannot replace a file that is open anywhere, even in this process. The draft stays
        # beside it until the content is in place.
        with open(name, "r+b") as file:
            file.write(data)
            file.truncate()
            flush(file.fileno())
        os.unlink(draft)


def create(path: Path, data: bytes) -> bool:
    """Create the complete file; return False if it exists, or somebody else was first."""
    make_folder(path.parent)
    if exists(path):
        return False
    with _drafted(path, data) as (draft, name, folder):
        try:
            os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            try:  # an exclusive open is the next best
                fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                return False
            with os.fdopen(fd, "wb") as file:
                file.write(data)
    return True


def sweep_drafts(path: Path) -> None:
    """Remove drafts that a crash during a replacement left; the caller holds the file's lock."""
    if _fence(path) is None:
        path = path.resolve()
    import re

    draft = re.compile(rf"\.{re.escape(path.name)}\.\d+-\d+\.tmp")
    for name in names(path.parent):
        if draft.fullmatch(name):
            remove(path.with_name(name))


@contextlib.contextmanager
def _drafted(
    path: Path, data: bytes, *, mode: int | None = None, exactly: int = 0
) -> Iterator[tuple[str, str, int | None]]:
    """Yield a new file with the content, beside the file that it will replace.

    Its mode is `exactly`, else `mode`, else the usual mode of its folder.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL
    with _folder_of(path) as (folder, name, fenced):
        # Two threads of one process may write the same file.
        above, last = os.path.split(name)
        draft = os.path.join(above, f".{last}.{os.getpid()}-{next(_serial)}.tmp")
        usual = mode if mode is not None else 0o666 if fenced else 0o600
        with contextlib.suppress(FileNotFoundError):  # left by a process that was killed
            os.unlink(draft, dir_fd=folder)
        try:
            fd = os.open(draft, flags, usual, dir_fd=folder)
            try:
                if exactly and sys.platform != "win32":
                    os.fchmod(fd, exactly)
                write_all(fd, data)
            finally:
                os.close(fd)
            yield draft, name, folder
        finally:
            with contextlib.suppress(OSError):  # it is in place already, or cannot be removed
                os.unlink(draft, dir_fd=folder)
    flush_folder(path.parent)


def find_repository(start: str) -> str:
    """Return the folder of the nearest git repository, here or above, or "".

    A repository in a person's home folder counts only for the home folder itself: everything below
    it is not one project.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    below = ""
    try:
        folder = os.path.realpath(start)
    except ValueError:  # a name that this locale cannot encode
        return ""
    while folder != below:
        if os.path.lexists(os.path.join(folder, ".git")) and (folder != home or not below):
            return folder
        folder, below = os.path.dirname(folder), folder
    return ""
