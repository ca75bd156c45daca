"""Tokens that a terminal, an editor or a mail wrapped over several lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ralph.text.assignments import Span, wordy
from ralph.text.secrets import compiled

# What stands between the parts of a token: closing quotes, a line break, and what begins a line.
_BREAK = r"[\"'\\]{0,2}[ \t]{0,8}(?:\+[ \t]{0,8})?(?:\r?\n|\\n)[ \t>|#*+\"']{0,40}"
_PART = r"[\w.+/=~%-]{1,400}"
_PART_END = r"[\"'`,;)\]}>]{0,4}[ \t]{0,8}(?:\+[ \t]{0,8})?(?:\\?\r?\n|\\n|\Z)"
# The first line of a JWT, if its claims begin on the next one.
_JWT_HEAD = rf"ey[JIK](?<![\w-]ey.)[\w-]{{20,}}\.?[\w-]{{0,9}}(?={_BREAK})"
_JWT = r"ey[\w-]{20,}\.e[yw][\w-]{8,}"
# A shorter line is not full, so what follows it is not the rest of a token.
_LEAST_WIDTH = 60
_LEAST_JWT_WIDTH = 40
_LEAST_AFTER_SHORT = 16
_MOST_LINES = 200


def continued(text: str, known: Sequence[Span]) -> Iterator[Span]:
    """Yield what of these tokens, and of JWTs, stands on the lines after the first."""
    starts = {start for start, _, _ in known}
    for start, end, kind in known:
        least = _LEAST_JWT_WIDTH if kind == "jwt" else _LEAST_WIDTH
        last, _ = _rest(text, start, end, starts, least)
        if last > end:
            yield start, last, kind
    done = 0
    for head in compiled(_JWT_HEAD).finditer(text) if "ey" in text else ():
        if head.start() < done:
            continue
        done, joined = _rest(text, head.start(), head.end(), starts, _LEAST_JWT_WIDTH)
        if compiled(_JWT).match(joined):
            yield head.start(), done, "jwt"


def _rest(text: str, start: int, end: int, starts: set[int], least: int) -> tuple[int, str]:
    """Return where the last line of a token ends, and the whole token."""
    joined = text[start:end]
    first = end - start
    short = False
    width = end - max(text.rfind("\n", 0, start), text.rfind("\\n", 0, start) + 1) - 1
    if width < least:
        return end, joined
    for _ in range(_MOST_LINES):
        gap = compiled(_BREAK).match(text, end)
        if gap is None or gap.end() in starts:
            break
        part = compiled(_PART).match(text, gap.end())
        if part is None or wordy(part[0]) or not compiled(_PART_END).match(text, part.end()):
            break
        joined += part[0]
        # After a short line only what is surely no word can be the rest.
        if short and len(part[0]) < _LEAST_AFTER_SHORT:
            break
        short = len(part[0]) < first / 2
        end = part.end()
    return end, joined
