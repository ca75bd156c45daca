"""The small files and the log that hooks write between two calls. Only their owner can read them.

Not `ralph.disk`, which flushes to the disk itself: these may be lost, and a hook must be quick.
"""

from __future__ import annotations

import os
import sys
import time

# How the name ends of what is not in its place yet; a hook that was killed leaves it behind.
DRAFT = ".tmp"


def folder(path: str) -> str:
    """The folder, made where it is missing."""
    if not os.path.isdir(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            return path  # another hook was faster
    return path


def append(file: str, data: bytes) -> None:
    """Add lines to the file with one write, so that hooks side by side do not mix.

    Another hook may put a new file in its place meanwhile, without these lines. Then they are
    added to that one too; whoever reads them does not mind a line twice.
    """
    while True:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # On a full disk half a line may stand at the end: it must not spoil this one.
            os.write(fd, b"\n" + data)
            if os.path.samestat(os.fstat(fd), os.stat(file)):
                return
        except FileNotFoundError:
            continue
        finally:
            os.close(fd)


def replace(file: str, data: bytes) -> None:
    """Put new content in the file's place."""
    draft = f"{file}.{os.getpid()}{DRAFT}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            while data:  # where there is no room, the first part may still fit
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
        os.replace(draft, file)
    except OSError:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


def shorten(file: str, data: bytes, size: int) -> None:
    """Put `data` in the place of a file's first `size` bytes; what others append stays.

    They append to the old file until the new one is there, so that is looked at once more.
    """
    try:
        fd = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        replace(file, data)
        return
    try:
        added = _behind(fd, size)
        if os.name == "nt":  # which replaces no file that is open
            os.close(fd)
            fd = -1
        replace(file, data + added)
        more = _behind(fd, size + len(added)) if fd >= 0 else b""
    finally:
        if fd >= 0:
            os.close(fd)
    if more:
        append(file, more)


def _behind(fd: int, start: int) -> bytes:
    os.lseek(fd, start, os.SEEK_SET)
    return os.read(fd, max(0, os.fstat(fd).st_size - start))


def read(file: str) -> bytes:
    """The file's content; FileNotFoundError where there is none."""
    fd = os.open(file, os.O_RDONLY)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


# -- One line for everything that went wrong in a hook, in a file that does not grow for ever.


NAME = "hooks.log"
# Two of these are kept: the one that is written, and the one before it.
_MOST_BYTES = 500_000
_LONGEST = 1000


def note(folders: list[str], event: str, what: str, where: str = "") -> None:
    """Write the line in the first of these folders that takes it; nowhere is no failure either."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    from ralph.text.redact import redact  # most calls have nothing to note

    told = redact(" ".join(f"{what} ({where})".split() if where else what.split())[:_LONGEST])
    seen = "".join(c if c.isprintable() else " " for c in told)  # it is read on a terminal
    line = f"{at} {event} {seen}\n".encode("utf-8", "replace")
    for folder in folders:
        if _written(folder, line):
            return


def fault(folders: list[str], event: str, error: BaseException, where: str = "") -> None:
    """The same for an exception; RALPH_DEBUG=1 adds where in the code it came from."""
    text = str(error)
    note(folders, event, text if _is_told(error) else f"{type(error).__name__}: {text}", where)
    if os.environ.get("RALPH_DEBUG", "0") not in ("", "0"):
        import traceback

        from ralph.text.redact import redact

        trace = redact("".join(traceback.format_exception(error)))
        for folder in folders:
            if _written(folder, trace.encode("utf-8", "replace")):
                return


def _is_told(error: BaseException) -> bool:
    """Whether it is one of Ralph's own, which say everything themselves; loads nothing."""
    errors = sys.modules.get("ralph.errors")
    return errors is not None and isinstance(error, errors.RalphError)


def _written(folder: str, data: bytes) -> bool:
    file = os.path.join(folder, NAME)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(fd).st_size
            os.write(fd, data)
        finally:
            os.close(fd)
        if size > _MOST_BYTES:
            os.replace(file, file + ".1")
    except OSError:
        return False
    return True


# -- Whether the journals are on a server, found out without loading anything.


_SETTING = "journal_url"


def on_a_server(home: str) -> bool:
    """Whether an address is set; what it is, whoever opens the journals reads for himself."""
    variable = os.environ.get(f"RALPH_{_SETTING.upper()}")
    if variable is not None:
        return bool(variable)
    try:
        return _SETTING.encode() in read(os.path.join(home, "config.json"))
    except OSError:
        return False
