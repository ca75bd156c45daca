"""Files of a model that come inside a package: found, and checked to be the ones we know."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ralph.errors import EmbedderOff


def check_file(file: Path, expected: tuple[str, ...], *, stamps: Path | None, todo: str) -> None:
    """Hash the file once for each installed copy; a stamp remembers that it was right."""
    stat = file.stat()
    seen = os.fsencode(f"{file}\n{stat.st_size}\n{stat.st_mtime_ns}\n{expected[0]}\n")
    stamp = stamps / f"{file.name}.checked" if stamps else None
    if stamp and _content(stamp) == seen:
        return
    if hashlib.sha256(file.read_bytes()).hexdigest() not in expected:
        raise EmbedderOff(
            "this is not the file Ralph's vectors are made with (its SHA-256 differs)",
            where=str(file),
            todo=todo,
        )
    if stamp:
        try:
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_bytes(seen)
        except OSError:
            return  # nowhere to write: it is checked again next time


def _content(stamp: Path) -> bytes | None:
    try:
        return stamp.read_bytes()
    except OSError:
        return None
