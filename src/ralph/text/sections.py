"""Cut documents into passages: by headings, then paragraphs, then sentences.

A passage is a run of the file's own lines, including its heading. A line itself is cut only if it
is longer than the limit: at a sentence, else at a word, else anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ralph.text.sentences import sentence_ends
from ralph.text.tokens import compiled, rule

BETWEEN_HEADINGS = " > "
# Sections shorter than this share of the limit are joined with their neighbor.
_TINY = 10
_LONGEST_HEADING = 120

_ATX = r" {0,3}(#{1,6})(?=[ \t]|\Z)"
_SETEXT = r" {0,3}(?:={3,}|-{3,})[ \t]*\Z"
# Lines that cannot be a heading when a line of dashes follows.
_NO_PARAGRAPH = r" {0,3}(?:[-*+]\s|\d{1,9}[.)]\s|>|\||#{1,6}\s|={3,}|-{3,})|\s{4}|\t"
_ENDS = (".", "!", "?", ":", "\u3002", '."', ".)")


class TextSection(NamedTuple):
    """A passage: the headings above it, its text, and the line of the file it begins in."""

    heading: str
    text: str
    line: int


class _HeadingPart(NamedTuple):
    """A heading and everything up to the next one; `path` ends with the heading itself."""

    path: tuple[str, ...]
    first: int
    lines: Sequence[str]
    bare: bool

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + len(self.lines)


def sections(text: str, *, max_chars: int = 2000, overlap_chars: int = 150) -> list[TextSection]:
    """Split a Markdown or plain text, every line of it, into passages of at most `max_chars`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    begin, title = _front_matter(lines)
    found = list[TextSection]()
    for part in _joined(_parts(lines, begin, title), max_chars):
        heading = BETWEEN_HEADINGS.join(part.path)
        for passage, line in _passages(part, max_chars, overlap_chars):
            found.append(TextSection(heading, passage, line))
    return found


def _front_matter(lines: Sequence[str]) -> tuple[int, str]:
    """Return the line where the document proper begins, and the title in its front matter."""
    mark = lines[0].rstrip()
    if mark not in {"---", "+++"}:
        return 0, ""
    ends = {mark, "..."} if mark == "---" else {mark}
    end = next((at for at in range(1, len(lines)) if lines[at].rstrip() in ends), 0)
    inside = [line for line in lines[1:end] if line.strip()]
    # Two rules with prose between them are not front matter.
    if not end or not all(compiled(r"[\w\"'#\s\-\]}]").match(line) for line in inside):
        return 0, ""
    if inside and not any(compiled(r"[\w\"'-]+\s*[:=]|\[").match(line) for line in inside):
        return 0, ""
    titles = (rule("title").match(line) for line in inside)
    title = next((found[1].strip("\"'") for found in titles if found), "")
    return end + 1, " ".join(title.split())[:_LONGEST_HEADING]


def _fenced(lines: Sequence[str]) -> Iterator[bool]:
    """Yield for every line whether it is in a code fence or is one of its marks."""
    fence = ""
    for line in lines:
        opened = rule("fence").match(line)
        closes = opened and opened[1].startswith(fence) and not line.strip().strip(fence[:1])
        yield bool(fence or opened)
        if opened and not fence:
            fence = opened[1]
        elif closes:
            fence = ""


def _headings(lines: Sequence[str], begin: int) -> Iterator[tuple[int, int, str]]:
    """Yield line, level and words of every heading outside code fences."""
    for at, fenced in enumerate(_fenced(lines[begin:]), begin):
        line = lines[at]
        if fenced or not line.strip():
            continue
        if found := compiled(_ATX).match(line):
            words = line[found.end() :].strip()
            closed = words.rstrip("#")
            yield at, len(found[1]), _plain(closed if closed[-1:] in {"", " ", "\t"} else words)
        elif at + 1 < len(lines) and compiled(_SETEXT).match(lines[at + 1]):
            alone = at == begin or not lines[at - 1].strip() or compiled(_ATX).match(lines[at - 1])
            if alone and not compiled(_NO_PARAGRAPH).match(line):
                yield at, 1 if "=" in lines[at + 1] else 2, _plain(line)


def _plain(heading: str) -> str:
    """Return the words of a heading, without links, marks or anchors."""
    heading = heading[: 4 * _LONGEST_HEADING]
    heading = compiled(r"!?\[([^\]]*)\]\([^)]*\)").sub(r"\1", heading)
    return " ".join(rule("marks").sub("", heading).split())[:_LONGEST_HEADING]


def _parts(lines: list[str], begin: int, title: str) -> list[_HeadingPart]:
    """Split the document at its headings; text before the first one belongs to the title."""
    headings = list(_headings(lines, begin))
    # A first-level heading is already the document's title.
    titles = (title,) if title else ()
    root = titles if all(level > 1 for _, level, _ in headings) else ()
    bounds = [at for at, _, _ in headings] + [len(lines)]
    found = [_part(titles, lines, begin, bounds[0], head=0)]
    above = list[tuple[int, str]]()
    for (at, level, words), end in zip(headings, bounds[1:], strict=True):
        above = [one for one in above if one[0] < level]
        above.append((level, words))
        path = (*root, *(name for _, name in above if name))
        is_atx = compiled(_ATX).match(lines[at]) is not None
        found.append(_part(path, lines, at, end, head=1 if is_atx else 2))
    return [part for part in found if part.lines]


def _part(path: tuple[str, ...], lines: list[str], first: int, end: int, head: int) -> _HeadingPart:
    while first < end and not lines[first].strip():
        first += 1
    while end > first and not lines[end - 1].strip():
        end -= 1
    return _HeadingPart(path, first, lines[first:end], bare=end - first <= head)


def _joined(parts: list[_HeadingPart], max_chars: int) -> list[_HeadingPart]:
    """Join tiny parts with the next of the same parent, and a bare heading with the part below."""
    found = list[_HeadingPart]()
    for part in parts:
        before = found[-1] if found else None
        # Join only neighbors: there are only blank lines between them.
        if before and before.size + part.size + 1 <= max_chars:
            below = before.bare and part.path[: len(before.path)] == before.path
            beside = part.path[:-1] == before.path[:-1] and part.path and before.path
            if below or (beside and before.size * _TINY < max_chars):
                blank = part.first - before.first - len(before.lines)
                lines = (*before.lines, *[""] * blank, *part.lines)
                path = part.path
                if not below and path != before.path:
                    path = (*before.path[:-1], f"{before.path[-1]}, {path[-1]}")
                found[-1] = _HeadingPart(path, before.first, lines, bare=before.bare and part.bare)
                continue
        found.append(part)
    return found


def _passages(part: _HeadingPart, max_chars: int, overlap_chars: int) -> Iterator[tuple[str, int]]:
    """Yield the part whole or cut at the best places; each piece repeats the end of the last."""
    if part.size - 1 <= max_chars:
        yield "\n".join(part.lines).rstrip(), part.first + 1
        return
    room = max_chars - overlap_chars - 1 if overlap_chars else max_chars
    held = list[str]()
    size = line = 0
    before = ""
    for at, block in [*_blocks(part.lines, room, max_chars), (0, None)]:
        if held and (block is None or size + len(block) > room):
            text = "\n".join(held).rstrip()
            # A piece that needs the whole room repeats less, or nothing.
            again = _tail(before, min(overlap_chars, max_chars - len(text) - 1))
            yield (f"{again}\n{text}" if again else text), line
            before = text
            held = []
            size = 0
        if block is None or not (held or block.strip()):
            continue
        if not held:
            blank = next(n for n, one in enumerate(block.split("\n")) if one.strip())
            block = block.split("\n", blank)[blank]
            line = part.first + 1 + at + blank
        held.append(block)
        size += len(block) + 1


def _tail(text: str, max_chars: int) -> str:
    """Return the last sentences or lines of a passage, as many as fit."""
    if max_chars < 1 or len(text) <= max_chars:
        return ""
    tail = text[-max_chars:]
    lines, words = (tail.find(blank) + 1 or max_chars for blank in ("\n", " "))
    start = min([*sentence_ends(tail), lines])
    return tail[start if start < max_chars else words :].strip()


def _blocks(lines: Sequence[str], room: int, max_chars: int) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, lists, tables and fences: whole if they fit, else in lines, else cut."""
    start = 0
    for end in _block_ends(lines):
        block = "\n".join(lines[start:end])
        if len(block) <= max_chars:
            yield start, block
        else:
            yield from _smaller(lines, start, end, room, max_chars)
        start = end


def _block_ends(lines: Sequence[str]) -> Iterator[int]:
    """Yield where each block ends: after a blank line, unless a list goes on."""
    for at, fenced in enumerate(_fenced(lines)):
        if not fenced and not lines[at].strip():
            after = next((one for one in lines[at + 1 : at + 3] if one.strip()), "")
            head = at > 0 and rule("continues").match(lines[at - 1])
            if not (head and rule("continues").match(after)):
                yield at + 1
    yield len(lines)


def _smaller(
    lines: Sequence[str], start: int, end: int, room: int, max_chars: int
) -> Iterator[tuple[int, str]]:
    """Yield a block that is too long as runs of lines that end with a sentence if possible."""
    at = start
    while at < end:
        if len(lines[at]) > max_chars:
            for piece in _cut(lines[at], room):
                yield at, piece
            at += 1
            continue
        stop = at + 1
        size = len(lines[at])
        while stop < end and size + 1 + len(lines[stop]) <= room:
            size += 1 + len(lines[stop])
            stop += 1
        if stop < end:
            ends = (one for one in range(stop, at, -1) if lines[one - 1].rstrip().endswith(_ENDS))
            whole = next(ends, stop)
            # But not if that would leave less than half of the lines.
            stop = whole if whole - at > (stop - at) // 2 else stop
        yield at, "\n".join(lines[at:stop])
        at = stop


def _cut(line: str, room: int) -> Iterator[str]:
    """Yield the pieces of a line that is too long, cut at sentences, words, or anywhere."""
    ends = sentence_ends(line)
    at = 0
    while len(line) - at > room:
        sentence = ends[after - 1] if (after := bisect_right(ends, at + room)) else 0
        word = line.rfind(" ", at, at + room) + 1
        stop = next(end for end in (sentence, word, at + room) if end > at)
        yield line[at:stop].rstrip() or line[at:stop]
        at = stop
    if line[at:].strip():
        yield line[at:]
