"""How well passages fit a question by their words: BM25 in which rare words count for more.

Pure. The index finds the candidates with its own BM25; here they are weighed again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

# What a word counts where it stands: title, text, places.
FIELD_WEIGHTS = (2.0, 1.0, 0.5)

_SATURATION = 1.6
_LENGTH = 0.85
# Plain BM25 weighs a word by its rarity; a power of it tells near twins apart by their rarest word.
_SHARPNESS = 1.6

Fields = tuple[str, str, str]


def words_of(fields: Fields) -> int:
    """How many tokens a passage has; its places are only names for it."""
    return fields[0].count(" ") + fields[1].count(" ") + 2


def weigh_words(
    asked: Sequence[str],
    passages: Mapping[int, Fields],
    *,
    frequencies: Mapping[str, int],
    count: int,
) -> dict[int, float]:
    """The weight of each passage; `frequencies`: in how many of `count` passages a token stands.

    A passage's fields are its tokens, separated by blanks.
    """
    if not passages:
        return {}
    rarity = {token: _rarity(frequencies[token], count) for token in asked if frequencies[token]}
    lengths = {row: words_of(fields) for row, fields in passages.items()}
    average = sum(lengths.values()) / len(lengths)
    weights: dict[int, float] = {}
    for row, fields in passages.items():
        padded = [f" {field} " for field in fields]
        norm = _SATURATION * (1.0 - _LENGTH + _LENGTH * lengths[row] / average)
        total = 0.0
        for token, weight in rarity.items():
            needle = f" {token} "
            times = sum(
                factor * field.count(needle)
                for factor, field in zip(FIELD_WEIGHTS, padded, strict=True)
            )
            if times:
                total += weight * times * (_SATURATION + 1.0) / (times + norm)
        weights[row] = total
    return weights


def _rarity(frequency: int, count: int) -> float:
    share = (count - frequency + 0.5) / (frequency + 0.5)
    return float(math.log(1.0 + max(share, 0.0)) ** _SHARPNESS)
