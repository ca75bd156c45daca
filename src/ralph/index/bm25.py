"""BM25 as SQLite's FTS5 computes it, for the stores that have to do it themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ralph.text.tokens import FIELD_WEIGHTS

_SATURATION = 1.2
_LENGTH = 0.75
# The smallest rarity, of words in more than half of the passages.
_LEAST_RARITY = 1e-6


def weighted_counts(fields: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return how often each word occurs in a passage; a word in its title counts more."""
    counts: dict[str, float] = {}
    for words, weight in zip(fields, FIELD_WEIGHTS, strict=False):  # there may be no facets
        for word in words:
            counts[word] = counts.get(word, 0.0) + weight
    return counts


def share(count: float, relative_length: float) -> float:
    """Return a word's part of the score of a passage, without its rarity.

    `relative_length` is the passage's length as a share of the average one.
    """
    norm = _SATURATION * (1 - _LENGTH + _LENGTH * relative_length)
    return count * (_SATURATION + 1) / (count + norm)


def rarity(having: int, passages: int) -> float:
    """Return how much a word says that this many of the passages have."""
    ratio = (passages - having + 0.5) / (having + 0.5)
    return max(math.log(ratio), _LEAST_RARITY) if ratio > 0.0 else _LEAST_RARITY
