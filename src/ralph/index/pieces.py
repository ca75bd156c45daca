"""Cutting a long text into overlapping pieces that a model with a short window reads whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The same as text/words.py counts, one match a token.
_ABOUT_A_TOKEN = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|[^\sA-Za-z0-9]|\n+")


def about_tokens(text: str) -> list[tuple[int, int]]:
    """Where tokens begin and end, estimated for a model whose tokeniser is elsewhere."""
    return [found.span() for found in _ABOUT_A_TOKEN.finditer(text)]


def cut(text: str, tokens: Sequence[tuple[int, int]], *, size: int, overlap: int) -> list[str]:
    """Pieces of at most `size` tokens; each begins a little before the one ahead of it ends.

    Inside the overlap a piece begins at a word, where there is one.
    """
    if len(tokens) <= size:
        return [text]
    found: list[str] = []
    first = 0
    while True:
        end = first + size
        if end >= len(tokens):
            found.append(text[tokens[first][0] :])
            return found
        found.append(text[tokens[first][0] if found else 0 : tokens[end - 1][1]])
        first = _word(text, tokens, range(end - overlap, end))


def ends(pieces: Sequence[str]) -> Sequence[str]:
    """The first piece and the last: where somebody who pastes a long text says what he wants."""
    return pieces if len(pieces) < 3 else (pieces[0], pieces[-1])


def _word(text: str, tokens: Sequence[tuple[int, int]], among: range) -> int:
    for place in among:
        if text[tokens[place][0] - 1].isspace():
            return place
    return among.start
