"""What is done at most once a day, and the file that notes when it was."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from ralph import disk
from ralph.errors import IndexOff

_EVERY = timedelta(days=1)


def is_due(stamp: Path, moment: datetime) -> bool:
    """Whether it was not done within a day; a stamp of the future is a clock that was wrong."""
    try:
        last = datetime.fromisoformat(stamp.read_text(encoding="ascii").strip())
        return not timedelta() <= moment - last < _EVERY
    except (OSError, ValueError, TypeError):
        return True  # never yet, or nobody knows when


def note_done(stamp: Path, moment: datetime) -> None:
    """Note that it was done now."""
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        disk.replace(stamp, moment.isoformat(timespec="seconds").encode() + b"\n")
    except OSError as error:
        raise IndexOff(
            f"when it was pruned cannot be noted ({error.strerror or error})",
            where=str(stamp),
            todo="Permit writing there, or set RALPH_HOME to a folder of yours.",
        ) from error
