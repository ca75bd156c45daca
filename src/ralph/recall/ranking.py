"""The order of candidates: BM25 with more weight on rare words, then words and meaning together.

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


# -- The order of the hits: words and meaning, each normalised within the query, in one sum.
#
# Pure: numbers in, an ordered list out. What a hit is worth absolutely is `calibration`'s
# business.


# The share of meaning, among short and among long passages. With a table of words the vector of a
# long text is a mean of many things, and its words tell more; a model reads it in pieces instead.
_SHORT_WORDS, _LONG_WORDS = 80, 180
_SHARES = {"static:": (0.65, 0.40), "": (0.50, 0.60)}
# Where one passage holds all the words of a question (a name, an error message), it is the one.
_OF_WORDS_FOUND = 0.7


class Fused(msgspec.Struct, frozen=True):
    """One row's place in the order and what each stage gave it (all 0-1)."""

    row: int
    words: float
    meaning: float
    mixed: float


def meaning_share(average_words: float, coverage: float, embedder: str) -> float:
    """How much the meaning this embedder sees counts, among passages of this length, when one of
    them holds so large a share of what was asked."""
    short, long = _SHARES[max((p for p in _SHARES if embedder.startswith(p)), key=len)]
    longness = (average_words - _SHORT_WORDS) / (_LONG_WORDS - _SHORT_WORDS)
    share = short + (long - short) * min(1.0, max(0.0, longness))
    return share * (1.0 - _OF_WORDS_FOUND * coverage**4)


def fuse(
    words: Mapping[int, float],
    meaning: Mapping[int, float] | None = None,
    *,
    weight: float = 0.5,
    limit: int | None = None,
) -> list[Fused]:
    """Rows in order, best first; equal ones by row.

    `words`: BM25 of the rows that matched, larger is better (SQLite's bm25() negated). `meaning`:
    cosines of the candidates (the nearest rows, and those in `words`), or None without vectors.
    `weight`: the share of meaning, 0-1; where only one of the two has anything, it decides alone.
    """
    by_words = _shares_of_best(words)
    by_meaning = _shares_of_best(meaning or {})
    if not by_meaning:
        weight = 0.0
    elif not by_words:
        weight = 1.0
    fused = [
        Fused(row, w, m, (1.0 - weight) * w + weight * m)
        for row in by_words.keys() | by_meaning.keys()
        for w, m in [(by_words.get(row, 0.0), by_meaning.get(row, 0.0))]
    ]
    fused.sort(key=lambda hit: (-hit.mixed, hit.row))
    return fused[:limit]


def _shares_of_best(values: Mapping[int, float]) -> dict[int, float]:
    """Each value as a share of the best one; what is not above zero is zero."""
    best = max(values.values(), default=0.0)
    if best <= 0.0:
        return dict.fromkeys(values, 0.0)
    return {row: max(0.0, value) / best for row, value in values.items()}
