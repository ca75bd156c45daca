"""Write the table of how rare words are, from the vocabulary of the embedder.

    python embedder/rarities.py > src/ralph/text/rarities.txt

The vocabulary is in the order in which its training merged letters, so frequent words come first.
The rarity of a word is the logarithm of its place: the words of a language follow Zipf's law. Words
that are not in the table are as rare as its last row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ralph.index.embedders.static import StaticEmbedder
from ralph.text.rarity import HEADER, STEP
from ralph.text.tokens import tokens

# A word at this place says nothing; the logarithm starts a little later, so that it grows slowly.
_FIRST_PLACE = 60
_OFFSET = 50
# Words after this place are all equally rare.
_LAST_PLACE = 12_000


def places(words: Iterable[str]) -> dict[str, int]:
    """Return the first place of each stem."""
    first: dict[str, int] = {}
    for place, word in enumerate(words):
        if word.isascii() and word.isalpha():
            for token in tokens(word)[:1]:
                first.setdefault(token, place)
    return first


def rows(first: dict[str, int]) -> list[str]:
    """Return the stems of each step of rarity, in alphabetical order."""
    last = round(math.log((_LAST_PLACE + _OFFSET) / _FIRST_PLACE) / STEP)
    by_step: list[list[str]] = [[] for _ in range(last)]
    for token, place in first.items():
        step = max(1, round(math.log((place + _OFFSET) / _FIRST_PLACE) / STEP))
        if step < last:
            by_step[step].append(token)
    return [" ".join(sorted(words)) for words in by_step[1:]]


def main() -> None:
    """Print the table."""
    table = StaticEmbedder()._open()
    print(HEADER)
    print("\n".join(rows(places(table.vocabulary.words()))))


if __name__ == "__main__":
    main()
