"""Going through a journal's lines whatever is on them: nothing raises, nothing is left unsaid."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from ralph.journal.line import BOM, Unreadable, read_line
from ralph.records import Complaint, Record, Tombstone

BUFFER_BYTES = 1024 * 1024


class Step(msgspec.Struct, frozen=True, gc=False):
    """One line as it was met: an entry, a complaint, or both; `crc` is of all up to its end."""

    line: int
    start: int
    end: int
    crc: int
    entry: Record | Tombstone | None = None
    digest: str = ""
    complaint: str | None = None
    torn: bool = False
    ended: bool = True


def scan(
    file: BinaryIO, max_line_bytes: int, offset: int = 0, line: int = 0, crc: int = 0
) -> Iterator[Step]:
    """Each line from the offset on; together the steps cover every byte of the file."""
    file.seek(offset)
    told_crlf = False
    while raw := file.readline(max_line_bytes + 1):
        line += 1
        start, notes = offset, list[str]()
        ended = raw.endswith(b"\n")
        offset += len(raw)
        crc = zlib.crc32(raw, crc)
        if not ended and len(raw) > max_line_bytes:
            more, ended, crc = _skip_line(file, crc)
            offset += more
            what = f"is {offset - start} bytes long, over the limit of {max_line_bytes}"
            yield Step(line, start, offset, crc, complaint=what, ended=ended)
            if not ended:
                return
            continue
        if start == 0 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
            notes.append("begins with a byte order mark; it was ignored")
        if raw.endswith(b"\r\n") and not told_crlf:
            told_crlf = True
            notes.append("ends in CRLF, as do maybe others; read all the same")
        entry: Record | Tombstone | None = None
        digest, torn = "", False
        if text := raw.strip(b" \t\r\n"):
            try:
                entry, digest = read_line(text)
            except Unreadable as error:
                torn = not ended
                notes.append(f"is torn: it {error}" if torn else str(error))
        yield Step(line, start, offset, crc, entry, digest, "; ".join(notes) or None, torn, ended)
        if not ended:
            return  # what a writer adds by now is the rest of this line, not a line of its own


def _skip_line(file: BinaryIO, crc: int) -> tuple[int, bool, int]:
    """Step over the rest of a line without holding it: its length, whether it ended, the crc."""
    size = 0
    while more := file.readline(BUFFER_BYTES):
        size += len(more)
        crc = zlib.crc32(more, crc)
        if more.endswith(b"\n"):
            return size, True, crc
    return size, False, crc


def judge(name: str, steps: Iterator[Step]) -> tuple[int, list[Complaint]]:
    """How many records the lines hold, and everything that looks wrong about them."""
    complaints: list[Complaint] = []
    first_line: dict[str, int] = {}
    contents: dict[str, set[str]] = {}
    lines: dict[str, list[int]] = {}
    buried: set[str] = set()
    for step in steps:
        if step.complaint:
            complaints.append(Complaint(name, step.line, step.complaint))
        if isinstance(step.entry, Tombstone):
            buried.add(step.entry.id)
        elif step.entry is not None:
            record = step.entry
            lines.setdefault(record.id, []).append(step.line)
            if step.digest and step.digest != record.digest:
                what = f"record {record.id} does not match its digest: changed after it was written"
                complaints.append(Complaint(name, step.line, what))
            known = contents.setdefault(record.id, set())
            if known and record.digest not in known:
                what = (
                    f"record {record.id} stands on line {first_line[record.id]} with other "
                    "content; both are kept"
                )
                complaints.append(Complaint(name, step.line, what))
            first_line.setdefault(record.id, step.line)
            known.add(record.digest)
    for record_id in sorted(buried & lines.keys()):
        what = f"record {record_id} was forgotten and is back, by a merge perhaps; forget it again"
        complaints += [Complaint(name, line, what) for line in lines[record_id]]
    complaints.sort(key=lambda complaint: complaint.line)
    return sum(len(known) for i, known in contents.items() if i not in buried), complaints
