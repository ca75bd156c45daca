"""How far each session's file was brought in. Derived: what is lost is only read again."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

import msgspec

from ralph import disk

_VERSION = 1
_BEGINNING = 256


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a file is kept, and how the file looked then.

    `waits_s`: its last exchange was under way; it counts as over once the file was left alone for
    so long.
    """

    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    line: int = 0
    crc: int = 0
    title: str = ""
    waits_s: float = 0.0


class _Marks(msgspec.Struct):
    version: int
    files: dict[str, Mark]


def read_marks(path: Path) -> dict[str, Mark]:
    """The marks by file; none where they are missing, damaged or of another version."""
    try:
        marks = msgspec.json.decode(path.read_bytes(), type=_Marks)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return marks.files if marks.version == _VERSION else {}


def write_marks(path: Path, files: dict[str, Mark]) -> None:
    """Put the marks on disk, whole."""
    disk.replace(path, msgspec.json.encode(_Marks(_VERSION, files)))


def still_fits(mark: Mark, file: BinaryIO, size: int) -> bool:
    """Whether the file still begins with what was read, and reading can go on at a line."""
    if not 0 < mark.offset <= size or beginning(file, mark.offset) != mark.crc:
        return False
    file.seek(mark.offset - 1)
    return file.read(1) == b"\n"


def beginning(file: BinaryIO, offset: int) -> int:
    """A number that tells the beginning of one file from another's."""
    file.seek(0)
    return zlib.crc32(file.read(min(offset, _BEGINNING)))
