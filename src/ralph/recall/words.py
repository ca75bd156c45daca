"""How well passages fit a question by their words: BM25 in which rare words count for more.

Pure. The index finds the candidates with its own BM25; here they are weighed again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

# What a word counts where it stands.
_TITLE, _TEXT, _PLACES = 2.0, 1.0, 0.5

_SATURATION = 1.6
_LENGTH = 0.85
# Plain BM25 weighs a word by its rarity; a power of it tells near twins apart by their rarest word.
_SHARPNESS = 1.6

Fields = tuple[str, str, str]


def words_of(fields: Fields) -> int:
    """How many tokens a passage has; its places are only names for it."""
    return fields[0].count(" ") + fields[1].count(" ") + 2


class Weighed(msgspec.Struct, frozen=True):
    """How well each passage fits by its words, and the largest share of the question that one of
    them holds."""

    weights: dict[int, float]
    coverage: float


def weigh_words(
    asked: Sequence[str],
    passages: Mapping[int, Fields],
    *,
    frequencies: Mapping[str, int],
    count: int,
) -> Weighed:
    """Weigh passages; `frequencies`: in how many of `count` passages a token stands.

    A passage's fields are its tokens, separated by blanks.
    """
    if not passages:
        return Weighed({}, 0.0)
    rarity = {token: _rarity(frequencies[token], count) for token in asked}
    whole = sum(rarity.values())
    needles = {f" {token} ": rarity[token] for token in rarity if frequencies[token]}
    lengths = {row: words_of(fields) for row, fields in passages.items()}
    average = sum(lengths.values()) / len(lengths)
    weights: dict[int, float] = {}
    most = 0.0
    for row, fields in passages.items():
        title, text, places = (f" {field} " for field in fields)
        norm = _SATURATION * (1.0 - _LENGTH + _LENGTH * lengths[row] / average)
        total = held = 0.0
        for needle, weight in needles.items():
            times = (
                _TITLE * title.count(needle)
                + _TEXT * text.count(needle)
                + _PLACES * places.count(needle)
            )
            if times:
                held += weight
                total += weight * times * (_SATURATION + 1.0) / (times + norm)
        weights[row] = total
        most = max(most, held)
    return Weighed(weights, most / whole if whole else 0.0)


def _rarity(frequency: int, count: int) -> float:
    share = (count - frequency + 0.5) / (frequency + 0.5)
    return float(math.log(1.0 + max(share, 0.0)) ** _SHARPNESS)
