"""Small helpers for text: token estimates, plurals, shortening, patterns compiled on first use."""

from __future__ import annotations

import re
from functools import cache

# Long words are several tokens, punctuation and digits often one each, and scripts without
# spaces about one a character. Measured against public tokenisers this lies within a sixth.
_PIECES = re.compile(r"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]|\n+")
_LETTERS_A_TOKEN = 6


def estimate_tokens(text: str) -> int:
    """The number of tokens, estimated a little high rather than low."""
    total = 0
    for piece in _PIECES.findall(text):
        total += 1 + (len(piece) - 1) // _LETTERS_A_TOKEN if piece[0].isalpha() else 1
    return total


def first_tokens(text: str, count: int) -> str:
    """The beginning of a text, about `count` tokens of it, ending at a word."""
    total = 0
    for found in _PIECES.finditer(text):
        piece = found[0]
        total += 1 + (len(piece) - 1) // _LETTERS_A_TOKEN if piece[0].isalpha() else 1
        if total > count:
            return text[: found.start()].rstrip()
    return text


# -- Words for people.


def plural(number: int, word: str, words: str | None = None) -> str:
    """The number and its noun: `1 record`, `2 records`."""
    return f"{number} {word if number == 1 else words or word + 's'}"


def shorten(text: str, max_chars: int) -> str:
    """The text, or its beginning up to a word and an ellipsis."""
    if len(text) <= max_chars:
        return text
    head = text[: max(0, max_chars - 1)]
    if not text[len(head)].isspace() and " " in head:
        head = head[: head.rindex(" ")]
    return f"{head.rstrip(' ,;:-(')}\u2026" if max_chars > 0 else ""


# -- Regular expressions that cost nothing until they are used.


@cache
def compiled(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compile a pattern when it is first needed: hooks start often and need few of them."""
    return re.compile(pattern, flags)
