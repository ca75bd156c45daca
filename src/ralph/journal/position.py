"""A place in a journal's file, and how to tell that the file before it is still the same."""

from __future__ import annotations

import hashlib
import os
import zlib
from typing import Annotated, BinaryIO

import msgspec

from ralph.journal.scan import BUFFER_BYTES

# Several lines, heads and all: lines that differ only there must not look the same.
TAIL_BYTES = 16 * 1024
_Count = Annotated[int, msgspec.Meta(ge=0)]


class FilePosition(msgspec.Struct, frozen=True):
    """How far was read, and enough about the file to notice that it is another one now.

    `line` counts the lines that ended before the offset; `crc` is of all bytes before it, `tail`
    a hash of the last of them.
    """

    offset: _Count
    line: _Count
    inode: int
    size: int
    mtime_ns: int
    crc: int
    tail: str
    done: bool


_decode = msgspec.json.Decoder(FilePosition).decode
_encode = msgspec.json.Encoder().encode


def mark(stat: os.stat_result, offset: int, line: int, crc: int, tail: str, *, done: bool) -> str:
    """The position as it is given out and kept by others."""
    position = FilePosition(
        offset=offset,
        line=line,
        inode=stat.st_ino,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        crc=crc,
        tail=tail,
        done=done,
    )
    return _encode(position).decode()


def no_file() -> str:
    """The position in a file that is not there."""
    nothing = FilePosition(offset=0, line=0, inode=0, size=0, mtime_ns=0, crc=0, tail="", done=True)
    return _encode(nothing).decode()


def known_position(position: str | None) -> FilePosition | None:
    """The position read; None for none, and for one that another version of Ralph wrote."""
    try:
        return None if position is None else _decode(position)
    except (msgspec.DecodeError, UnicodeError):
        return None


def tail_hash(file: BinaryIO, offset: int) -> str:
    """A hash of the last bytes before the offset."""
    start = max(0, offset - TAIL_BYTES)
    file.seek(start)
    return short_hash(file.read(offset - start))


def crc_of(file: BinaryIO, end: int) -> int:
    """The crc of everything before the offset."""
    file.seek(0)
    crc = 0
    while (left := end - file.tell()) > 0 and (data := file.read(min(left, BUFFER_BYTES))):
        crc = zlib.crc32(data, crc)
    return crc


def short_hash(data: bytes) -> str:
    """A hash of these bytes, short enough to be kept in a position."""
    return hashlib.sha256(data).hexdigest()[:16]
