"""How well passages match by their words, and their order by words and meaning together.

Pure functions of numbers. The index finds candidates with its own BM25. Here they are weighed
again, with more weight on rare words, and combined with the cosines of their vectors.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ralph.text.rarity import usual_rarity

# -- How much a word says in this memory.

# In a memory of five records every word is rare. So a word's rarity starts from how rare it is in
# general, which the collection's own counts outweigh as it grows. That counts like this many
# passages:
_PRIOR_PASSAGES = 60
# A project's own word still says something, even if every passage has it (`login` in a project
# about logins): its share of passages counts as at most this many times its usual share.
_OWN_WORD = 20


@functools.lru_cache(maxsize=4096)
def rarity(token: str, frequency: int, count: int) -> float:
    """Return how much a match of this token says: minus the log of its share of passages."""
    usual = math.exp(-usual_rarity(token))
    # A word that occurs nowhere weighs as much as one that occurs once.
    seen = max(frequency, 1) + usual * _PRIOR_PASSAGES
    share = seen / (max(count, 1) + _PRIOR_PASSAGES)
    # A common word says little, even in a memory where it is still rare.
    return -math.log(min(max(share, usual), usual * _OWN_WORD, 1.0))


# -- The order: by words, and by a weighted sum of words and meaning.


_SATURATION = 1.6
_LENGTH = 0.85
# Plain BM25 weighs a word by its rarity. A power of the rarity lets the rarest word decide between
# passages that are nearly the same.
_SHARPNESS = 1.6

Counts = Mapping[str, int]


class Weighed(msgspec.Struct, frozen=True):
    """How well passages fit by their words.

    `coverage` is the largest share of the question that one passage has, `nats` the largest weight
    of the words that match in one passage, `rarest` the weight of the question's rarest word,
    `asked` how many words the question has, `length` the average number of words in a passage.
    """

    weights: list[float] = []
    coverage: float = 0.0
    nats: float = 0.0
    rarest: float = 0.0
    asked: int = 0
    length: float = 0.0


def joined(tables: Sequence[Any], width: int) -> Any:
    """Join tables of `width` columns."""
    np = sys.modules.get("numpy")  # hooks start without numpy
    if np is None or not width or not tables:
        return [row for table in tables for row in table]
    return np.concatenate([np.asarray(one, dtype=np.float64).reshape(-1, width) for one in tables])


def taken(table: Any, rows: Sequence[int]) -> Any:
    """Return these rows of a table."""
    return [table[row] for row in rows] if isinstance(table, list) else table[rows]


def weigh_words(
    asked: Sequence[str],
    times: Any,
    sizes: Any,
    *,
    frequencies: Counts,
    count: int,
) -> Weighed:
    """Weigh passages by how often each token of the question occurs in them.

    `times` has a row per passage and a column per token, `sizes` the size of each passage.
    `frequencies`: how many of the `count` passages of the memory contain each token.
    """
    if not len(sizes):
        return Weighed()
    shares = [(count - frequencies[t] + 0.5) / (frequencies[t] + 0.5) for t in asked]
    sharp = [math.log(1.0 + max(share, 0.0)) ** _SHARPNESS for share in shares]
    nats = [rarity(t, frequencies[t], count) for t in asked]
    # A passage with a whole name ranks above one that repeats parts of it: weights are multiplied
    # with the share of the question that a passage has, which counts less in a longer question.
    total = sum(sharp) or 1.0
    whole = 1.0 / max(1, len(asked))
    if (np := sys.modules.get("numpy")) is None:  # hooks start without numpy
        average, length = (sum(column) / len(sizes) for column in zip(*sizes, strict=True))
        norms = [_norm(length / average) for length, _ in sizes]
        held = [
            tuple(sum(w for w, t in zip(each, row, strict=True) if t) for each in (sharp, nats))
            for row in times
        ]
        weights = [
            sum(w * t * (_SATURATION + 1.0) / (t + norm) for w, t in zip(sharp, row, strict=True))
            * (has / total) ** whole
            for row, norm, (has, _) in zip(times, norms, held, strict=True)
        ]
        best, most = map(max, zip(*held, strict=True))
    else:
        often = np.asarray(times, dtype=np.float64)
        factors = np.array((sharp, nats))
        lengths = np.asarray(sizes, dtype=np.float64)
        average, length = (lengths.sum(axis=0) / len(lengths)).tolist()
        norms = _norm(lengths[:, :1] / average)
        parts = often * factors[0] * (_SATURATION + 1.0) / (often + norms)
        has = (often > 0.0) @ factors.T
        weights = (parts.sum(axis=1) * (has[:, 0] / total) ** whole).tolist()
        best, most = has.max(axis=0).tolist()
    rarest = max(nats, default=0.0)
    return Weighed(weights, best / total, most, rarest, len(asked), length + 1)


def _norm(length: Any) -> Any:
    """Return how often a word must occur for half of its weight, by a passage's relative length."""
    return _SATURATION * (1.0 - _LENGTH + _LENGTH * length)


# The share of meaning if the words say enough: long passages, short ones.
_MEANING = 0.65
_MEANING_IF_SHORT = 0.55
# Passages of about this many words count as short.
_SHORT_WORDS = 60
# How much the words that match in one passage must weigh to say enough. A long answer in a talk
# matches many words by chance, so there they must weigh more.
ENOUGH_NATS = 12.0
_ENOUGH_IN_LONG_TALK = 16.0
# If one passage has all the words of a question (a name, an error message), it is the answer, if it
# is short, or if one of them is worth _NAME_NATS: a long passage has common words by chance. In a
# long answer of a talk more than _NAME_WORDS words can be there by chance, too.
_OF_WORDS_FOUND = 0.7
_NAME_NATS = 4.5
_NAME_WORDS = 2


def shortness(length: float) -> float:
    """Return 1 for passages of a few words, 0 for long ones; `length` is the average in words."""
    return 1.0 / (1.0 + (length / _SHORT_WORDS) ** 2)


def meaning_share(by_words: Weighed, *, talk: bool = False) -> float:
    """Return the share of meaning, given how much the words weigh; `talk`: among exchanges."""
    short = shortness(by_words.length)
    meaning = _MEANING + (_MEANING_IF_SHORT - _MEANING) * short
    rare = min(1.0, by_words.rarest / _NAME_NATS)
    enough = ENOUGH_NATS
    if talk:
        rare *= min(1.0, _NAME_WORDS / max(1, by_words.asked)) ** 2
        enough = _ENOUGH_IN_LONG_TALK + (ENOUGH_NATS - _ENOUGH_IN_LONG_TALK) * short
    named = max(short, rare) * by_words.coverage**3
    meaning *= 1.0 - _OF_WORDS_FOUND * named
    words = (1.0 - meaning) * min(1.0, max(by_words.nats / enough, named))
    return meaning / (meaning + words)


def mix(words: Sequence[float], cosines: Sequence[float | None], weight: float) -> list[float]:
    """Return the value of each passage, 0-1, by its words (BM25, 0 for no match) and its meaning.

    `weight` is the share of meaning, 0-1. If only one of the two is known, it decides alone.
    """
    near = [max(0.0, cosine or 0.0) for cosine in cosines]
    weight = _usable_share(weight, any(words), cosines.count(None) < len(cosines))
    most_words = max(words, default=0.0) or 1.0
    nearest = max(near, default=0.0) or 1.0
    return [
        (1.0 - weight) * (word / most_words) + weight * (cosine / nearest)
        for word, cosine in zip(words, near, strict=True)
    ]


def best_by_both(
    words: Sequence[float], cosines: Sequence[Any], weight: float, most: int
) -> tuple[list[int], list[float]]:
    """Return the places of the best passages as `mix` and `best_places` would find them, and all
    cosines, which are given in several arrays. A passage without a vector has NaN."""
    import numpy as np

    by_words = np.array(words, dtype=np.float64)
    by_meaning = np.concatenate(cosines)
    near = np.where(by_meaning > 0.0, by_meaning, 0.0)
    weight = _usable_share(weight, by_words.any(), not np.isnan(by_meaning).all())
    most_words = by_words.max(initial=0.0) or 1.0
    nearest = near.max(initial=0.0) or 1.0
    values = (1.0 - weight) * (by_words / most_words) + weight * (near / nearest)
    return (-values).argsort(kind="stable")[:most].tolist(), by_meaning.tolist()


def _usable_share(weight: float, has_words: object, has_cosines: object) -> float:
    if not has_cosines:
        return 0.0
    return weight if has_words else 1.0


def best_places(values: Sequence[float], most: int) -> list[int]:
    """Return the places of the `most` largest values, best first; equal ones in order."""
    least = sorted(values)[-most] if most < len(values) else -math.inf
    places = [place for place, value in enumerate(values) if value >= least]
    return sorted(places, key=values.__getitem__, reverse=True)[:most]
