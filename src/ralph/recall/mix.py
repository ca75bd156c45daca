"""The order of candidates: BM25 with more weight on rare words, then words and meaning together.

Pure: numbers in, an order out. The index finds the candidates with its own BM25; here they are
weighed again. What a hit is worth absolutely is the business of score.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ralph.recall.score import rarity

# What a word counts where it stands.
_TITLE, _TEXT, _PLACES = 2.0, 1.0, 0.5

_SATURATION = 1.6
_LENGTH = 0.85
# Plain BM25 weighs a word by its rarity; a power of it tells near twins apart by their rarest word.
_SHARPNESS = 1.6

Fields = tuple[str, str, str]
Counts = Mapping[str, int]
# What each passage is worth.
Scores = Mapping[Any, float]


def words_of(fields: Fields) -> int:
    """How many tokens a passage has; its places are only names for it."""
    return fields[0].count(" ") + fields[1].count(" ") + 2


class Weighed(msgspec.Struct, frozen=True):
    """How well each passage fits by its words, the largest share of the question that one of them
    holds, and the largest weight (in nats) of the words that one of them holds."""

    weights: dict[Any, float]
    coverage: float = 0.0
    nats: float = 0.0


def weigh_words(
    asked: Sequence[str], passages: Mapping[Any, Fields], *, frequencies: Counts, count: int
) -> Weighed:
    """Weigh passages; `frequencies`: in how many of `count` passages a token stands.

    A passage's fields are its tokens, separated by blanks.
    """
    if not passages:
        return Weighed({})
    shares = {t: (count - frequencies[t] + 0.5) / (frequencies[t] + 0.5) for t in asked}
    sharp = {t: math.log(1.0 + max(share, 0.0)) ** _SHARPNESS for t, share in shares.items()}
    whole = sum(sharp.values())
    needles = {
        f" {token} ": (sharp[token], rarity(token, frequencies[token], count)) for token in sharp
    }
    lengths = {row: words_of(fields) for row, fields in passages.items()}
    average = sum(lengths.values()) / len(lengths)
    weights: dict[Any, float] = {}
    most = most_nats = 0.0
    for row, fields in passages.items():
        title, text, places = (f" {field} " for field in fields)
        norm = _SATURATION * (1.0 - _LENGTH + _LENGTH * lengths[row] / average)
        total = held = held_nats = 0.0
        for needle, (weight, nats) in needles.items():
            times = _TITLE * title.count(needle) + _TEXT * text.count(needle)
            if times := times + _PLACES * places.count(needle):
                held += weight
                held_nats += nats
                total += weight * times * (_SATURATION + 1.0) / (times + norm)
        weights[row] = total
        most, most_nats = max(most, held), max(most_nats, held_nats)
    return Weighed(weights, most / whole if whole else 0.0, most_nats)


# -- Words and meaning, each normalized within the query, in one sum.


# The share of meaning beside words that say enough: matched words of so many nats in one passage.
# One weak word in common decides nothing.
_MEANING = 0.55
ENOUGH_NATS = 12.0
# Where one passage holds all the words of a question (a name, an error message), it is the one.
_OF_WORDS_FOUND = 0.7


class Fused(msgspec.Struct, frozen=True):
    """One row's place in the order and what each stage gave it (all 0-1)."""

    row: Any
    words: float
    meaning: float
    mixed: float


def meaning_share(nats: float, coverage: float) -> float:
    """How much meaning counts where one passage holds words of so many nats, and one of them so
    large a share of what was asked."""
    meaning = _MEANING * (1.0 - _OF_WORDS_FOUND * coverage**4)
    words = (1.0 - meaning) * min(1.0, nats / ENOUGH_NATS)
    return meaning / (meaning + words)


def fuse(words: Scores, meaning: Scores | None = None, *, weight: float = 0.5) -> list[Fused]:
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
    return fused


def _shares_of_best(values: Scores) -> dict[Any, float]:
    """Each value as a share of the best one; what is not above zero is zero."""
    best = max(values.values(), default=0.0)
    if best <= 0.0:
        return dict.fromkeys(values, 0.0)
    return {row: max(0.0, value) / best for row, value in values.items()}
