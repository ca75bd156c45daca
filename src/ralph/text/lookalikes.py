"""Letters and signs that look like ASCII ones, read as those.

Marks and removed lessons are found however they are spelled: fullwidth, mathematical, circled,
small capitals, with accents or strokes, or with letters of another alphabet.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

from ralph.text.patterns import compiled

# What no normal form brings back: Cyrillic, Greek, Armenian, Cherokee, and signs.
_ALIKE = str.maketrans(
    "аеорсухіјѕԁһӏԛԝѵкмтпгАВЕКМНОРСТУХІЈЅԌԚԜѴ"
    "αβγεηικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ"
    "ɑɩօսհցոԱՍՏᎪᏴᏟᎠᎬᏀᎻᎫᏦᏞᎷᏢᏒᏚᎢᏙᎳᏃ"
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2018\u2019\u02bc\u201c\u201d"
    "\ua789\u02d0\u02f8\u2236\u205a\u0589\u2044\u2215\u29f8\u2223\u01c0\u2502"
    "\u3010\u3011\u3014\u3015\u27e6\u27e7",
    "aeopcyxijsdhlqwvkmtnrABEKMHOPCTYXIJSGQWV"
    "abyenikvoptuxwABEZHIKMNOPTYXcj"
    "aiouhgnUUSABCDEGHJKLMPRSTVWZ"
    "-------'''\"\"::::::///|||[][][]",
)
_LATIN = (
    r"(?:LATIN|REGIONAL INDICATOR)(?: SMALL| CAPITAL| SYMBOL)*? LETTER"
    r"(?: SMALL CAPITAL| SMALL| CAPITAL| DOTLESS| SCRIPT| TURNED| REVERSED| OPEN)? ([A-Z])(?: |\Z)"
)


def folded(text: str) -> str:
    """The text as it looks, in ASCII as far as it looks like that."""
    return text if text.isascii() else text.translate(_table(text))


class Shadow:
    """A text as it looks, and in small letters; what is found there is replaced in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._from: list[int] | None = None
        if text.isascii():
            self.plain = text
        else:
            table = _table(text)
            self.plain = text.translate(table)
            if any(len(new) != 1 for new in table.values()):
                self._from = [
                    i for i, char in enumerate(text) for _ in table.get(ord(char), char)
                ] + [len(text)]
        lower = self.plain.lower()
        if len(lower) != len(self.plain):  # a few letters become two
            lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in self.plain)
        self.lower = lower

    def piece(self, start: int, end: int) -> str:
        """The text itself where its plain form has this stretch."""
        return self.text[slice(*self._original(start, end))]

    def edited(self, edits: Sequence[tuple[int, int, str]]) -> Shadow:
        """The text with these stretches of its plain form, in order, replaced."""
        if not edits:
            return self
        kept, at = list[str](), 0
        for start, end, new in edits:
            start, end = self._original(start, end)
            kept += [self.text[at:start], new]
            at = end
        return Shadow("".join([*kept, self.text[at:]]))

    def _original(self, start: int, end: int) -> tuple[int, int]:
        if self._from is None:
            return start, end
        return self._from[start], self._from[end - 1] + 1 if end > start else self._from[start]


def _table(text: str) -> dict[int, str]:
    return {ord(char): _plain(char) for char in set(text) if not char.isascii()}


@functools.cache
def _plain(char: str) -> str:
    """What a character looks like: ASCII, nothing for an accent of its own, else itself."""
    if alike := _ALIKE.get(ord(char)):
        return chr(alike)
    if unicodedata.category(char) in ("Mn", "Me"):
        return ""
    apart = unicodedata.normalize("NFKD", char)
    plain = "".join(c for c in apart if unicodedata.category(c) not in ("Mn", "Me"))
    plain = plain.translate(_ALIKE)
    if plain.isascii():
        return plain
    latin = compiled(_LATIN).search(unicodedata.name(char, ""))
    if latin is None:
        return char
    return latin[1] if "CAPITAL LETTER" in unicodedata.name(char) else latin[1].lower()
