"""Private keys: blocks of lines between frames, whole or cut off, however each line is prefixed.

A log, `grep -n` or a diff puts something before each line; JSON escapes the newlines; some tools
print a key without its frame, or encode the block once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ralph.text.randomness import decoded, likeness
from ralph.text.secrets import compiled

_TYPE: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?: ?-{1,5})?"
_BEGIN: Final = rf"-{{4,5}} ?BEGIN {_TYPE}|Private-Lines: ?\d+"
_END: Final = rf"-{{4,5}} ?END {_TYPE}"
# How base64 of a frame and of keys begins (PKCS #1, #8 and #12, SEC 1, OpenSSH); a part of each.
_HEADS: Final = (
    r"(?<![A-Za-z0-9+/])(?:LS0tLS1CRUdJTiB(?!D)|b3BlbnNzaC1rZXktdjE|MC4CAQAwBQYDK2V"
    r"|MII[A-Za-z0-9+/]{3}(?:IBADANBgkqhkiG9w0B|IBAAK[BC]|IBAzCC)|MH[A-Za-z0-9]CAQEEI"
    r"|MI[GH][A-Za-z0-9]AgE(?:BB[DE]|AMB[AM]GByqGSM49))"
)
_HINTS: Final = (
    "LS0tLS1CRUdJTiB b3BlbnNzaC1rZXktdjE CAQAwBQYDK2V IBADANBgkqhkiG9w0B IBAAK IBAzCC CAQEEI AgEBB"
    " AgEAMB"
).split()
# What ends a line, also inside a string, a URL or a page.
_BREAK: Final = r"\r?\n|\\[rn]|%0[AD]|&#(?:10|x[aA]);|<br ?/?>"
_LONGEST_LINE: Final = 1000
_FULL: Final = r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]|%2[BF]){40,}(?:=|%3D){0,2}"
_ALONE: Final = (
    r"[^A-Za-z0-9]*(?:\d{1,6}[\u2192\t:|.)-] *)?([A-Za-z0-9+/]{5,39}={0,2})[^A-Za-z0-9]*\Z"
)
# All on the line of the frame.
_RUNS: Final = r"(?:[ \t\"'+,]{0,8}[A-Za-z0-9+/=]{16,})*"
# Lines without a part of the key that may stand between two with one: fields, what a log adds.
_FIELDS, _ADDED = 8, 2


def key_blocks(text: str, words: str) -> Iterator[tuple[int, int]]:
    """Where private keys are; `words` are its long words, none where none is doubtful."""
    if "PRIVATE KEY" in text or "Private-Lines" in text:
        closed = 0
        for begin in compiled(_BEGIN).finditer(text):
            if begin.start() >= closed and (end := _end(text, begin.end(), _FIELDS)):
                closed = end
                yield begin.start(), end
        closed = 0
        for final in compiled(_END).finditer(text):
            start = _start(text, final.start(), closed)
            closed = final.end()
            if start is not None:
                yield start, closed
    if words and any(hint in words for hint in _HINTS):
        for head in compiled(_HEADS).finditer(text):
            frame = decoded(text[head.start() : head.start() + 64]) if head[0][0] == "L" else None
            if head[0][0] != "L" or "PRIVATE" in (frame or ""):
                yield head.start(), _end(text, head.start(), 0) or head.end()


def _end(text: str, at: int, most: int) -> int | None:
    """Where a key ends that begins here: after its last line, or after the frame that closes it."""
    runs = compiled(_RUNS).match(text, at)
    end = runs.end() if runs else at
    size, others = end - at, 0
    for start, stop in _lines_after(text, end):
        if text.find("BEGIN", start, stop) >= 0:
            break
        final = compiled(_END).search(text, start, stop)
        part = _part(text, start, final.start() if final else stop)
        if part:
            size, end, others, most = size + part[1] - part[0], part[1], 0, _ADDED
        if final:
            return final.end() if size >= 20 else None
        if part:
            continue
        if compiled(r"[A-Za-z0-9]").search(text, start, stop):
            others += 1
            if others > most:
                break
    return end if size >= 20 else None


def _start(text: str, at: int, closed: int) -> int | None:
    """Where a key begins that ends here and whose frame is missing."""
    start, size, others = at, 0, -1  # the frame's own line may have something before it
    for first, stop in _lines_before(text, at):
        if first < closed or compiled(_BEGIN).search(text, first, stop):
            break
        if part := _part(text, first, stop):
            start, size, others = part[0], size + part[1] - part[0], 0
        elif compiled(r"[A-Za-z0-9]").search(text, first, stop):
            others += 1
            if others > _ADDED:
                break
    return start if size >= 40 else None


def _part(text: str, start: int, stop: int) -> tuple[int, int] | None:
    """Where in a line a part of a key is: one of the usual width, or a shorter one alone."""
    line = text[start:stop]
    hashes = r"[0-9a-f]+\Z|[A-Z]+\Z"
    full = [one for one in compiled(_FULL).finditer(line) if not compiled(hashes).match(one[0])]
    if full:
        return start + full[0].start(), start + full[-1].end()
    alone = compiled(_ALONE).match(line)
    if alone and (likeness(alone[1]) < -0.25 or alone[1].endswith("=")):
        return start + alone.start(1), start + alone.end(1)
    return None


def _lines_after(text: str, at: int) -> Iterator[tuple[int, int]]:
    while at < len(text):
        line = compiled(_BREAK).search(text, at, at + _LONGEST_LINE)
        end = line.start() if line else min(len(text), at + _LONGEST_LINE)
        yield at, end
        at = line.end() if line else end


def _lines_before(text: str, at: int) -> Iterator[tuple[int, int]]:
    while at:
        first = max(0, at - _LONGEST_LINE)
        lines = list(compiled(_BREAK).finditer(text, first, at))
        yield lines[-1].end() if lines else first, at
        at = lines[-1].start() if lines else first
