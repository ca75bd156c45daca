"""One line for everything that went wrong in a hook, in a file that does not grow for ever."""

from __future__ import annotations

import os
import sys
import time

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
