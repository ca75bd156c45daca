"""Lines of a journal's file, and positions in it that notice when the file was replaced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, BinaryIO
from zlib import crc32

import msgspec

from ralph.journal import line as entries
from ralph.journal import read_position, write_position
from ralph.journal.line import Step, Unreadable, read_line
from ralph.records import Record, Tombstone

BUFFER_BYTES = 1024 * 1024
# Covers several whole lines: lines that differ only in their envelopes must not look the same.
TAIL_BYTES = 16 * 1024


def scan(
    file: BinaryIO, max_line_bytes: int, offset: int = 0, line: int = 0, crc: int = 0
) -> Iterator[Step]:
    """Yield each line from the offset on. Together the steps cover every byte of the file."""
    file.seek(offset)
    seen_crlf = False
    while raw := file.readline(max_line_bytes + 1):
        line += 1
        start = offset
        notes = list[str]()
        ended = raw.endswith(b"\n")
        offset += len(raw)
        crc = crc32(raw, crc)
        if not ended and len(raw) > max_line_bytes:  # skip the rest without loading it
            raw = b""
            while not ended and (more := file.readline(BUFFER_BYTES)):
                offset += len(more)
                crc = crc32(more, crc)
                ended = more.endswith(b"\n")
            notes.append(f"is {offset - start} bytes long, over the limit of {max_line_bytes}")
        if start == 0 and raw.startswith(entries.BOM):
            raw = raw[len(entries.BOM) :]
            notes.append("begins with a byte order mark; it was ignored")
        if raw.endswith(b"\r\n") and not seen_crlf:
            seen_crlf = True
            notes.append("ends with CRLF (other lines may too); it was read anyway")
        entry: Record | Tombstone | None = None
        digest = ""
        torn = False
        if text := raw.strip(b" \t\r\n"):
            try:
                entry, digest = read_line(text)
            except Unreadable as error:
                torn = not ended
                notes.append(f"is torn: it {error}" if torn else str(error))
        yield Step(line, start, offset, crc, entry, digest, "; ".join(notes) or None, torn, ended)
        if not ended:
            return  # anything a writer appends now is the rest of this line, not a new one


_Count = Annotated[int, msgspec.Meta(ge=0)]


class FilePosition(msgspec.Struct, frozen=True):
    """How far a file was read, and enough about it to notice that it was replaced.

    `line` counts the lines that end before the offset. `crc` covers all bytes before the offset,
    and `tail` is a hash of the last of them.
    """

    offset: _Count
    line: _Count
    inode: int
    size: int
    mtime_ns: int
    crc: int
    tail: str
    done: bool


NO_FILE = FilePosition(0, 0, 0, 0, 0, 0, "", done=True)


def position_at(
    stat: os.stat_result, offset: int, line: int, crc: int, tail: str, done: bool
) -> str:
    inode = stat.st_ino
    size = stat.st_size
    mtime_ns = stat.st_mtime_ns
    return write_position(FilePosition(offset, line, inode, size, mtime_ns, crc, tail, done))


def tail_hash(file: BinaryIO, offset: int) -> str:
    """A hash of the last bytes before the offset."""
    start = max(0, offset - TAIL_BYTES)
    file.seek(start)
    return entries.short_hash(file.read(offset - start))


def _crc_of(file: BinaryIO, end: int) -> int:
    """The crc of everything before the offset."""
    file.seek(0)
    crc = 0
    while (left := end - file.tell()) > 0 and (data := file.read(min(left, BUFFER_BYTES))):
        crc = crc32(data, crc)
    return crc


def resume(file: BinaryIO, position: str | None, stat: os.stat_result) -> FilePosition | None:
    """Return the position if the bytes before it are unchanged, else None."""
    at = read_position(position, FilePosition)
    if at is None:
        return None
    if at.inode == 0 and at.offset == 0:
        return at  # there was no file before: everything is new, nothing was removed
    if at.inode != stat.st_ino or at.offset > stat.st_size:
        return None
    if stat.st_size == at.size and stat.st_mtime_ns != at.mtime_ns:
        # Edited in place, or an append has just begun: the mtime changes before the size.
        return at if _crc_of(file, at.offset) == at.crc else None
    return at if tail_hash(file, at.offset) == at.tail else None
