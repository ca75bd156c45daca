"""The order of candidates, and the score of a hit: how likely it answers the question, 0-1.

Pure functions of numbers. The index finds the candidates with its own BM25. Here they are weighed
again, with more weight on rare words, and words and meaning are combined.

Two logistic models score the whole list. `SURE` gives the probability that the first hit is right,
from its matching words, how near its meaning is, and how far it stands out from the next hits.
`THERE` gives the probability that the answer is among the first hits at all; it also looks at how
much nearer the nearest of them is than the crowd. If that is likely enough, the list is shown: its
first hit scores at least the floor. Later hits are scored by their share of the first hit's value,
so the order of a list is the order of its scores. `scripts/bench calibrate` fits the constants;
docs/quality.md says on which data.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ralph.recall import Relevance
from ralph.text.tokens import STOP_WORDS, PassageWords, spellings, stem

# Scores from which a hit is possibly right, relevant, and sure enough to give to a model unasked.
FLOOR = 0.40
RELEVANT = 0.55
INJECTED = 0.70

# -- How much a word says.

# In a memory of five records every word is rare. So a word's rarity starts from a prior, which the
# collection's own counts outweigh as it grows. The prior counts like this many passages:
_PRIOR_PASSAGES = 60
_SHARE_EVERYWHERE = 0.25
_SHARE_COMMON = 0.06
_SHARE_OF_NUMBERS = 0.10
_SHARE_UNKNOWN = 0.004
_OWN_WORD = 20
_EVERYWHERE = """
add all bug case change check class code create data done error example expect fail file fix
function get help implement issue line list look make method name need new no not now object one
output pass problem project remove result return run see set task test thing time true try type
update use user value want work write
"""
_COMMON = """
able again allow app argument array back base behavior branch break build call cause clean close
command comment commit complete config configuration content context correct count current day
default define delete describe detail different directory doc document edit empty enable end ensure
entry exception exist explain false feature field final find first follow format found full give
good great group handle happen id idea import improve include index info input install instead
invalid item keep key know large last learn length level like link load local log long main manage
map match mean message miss model module move node null number old open option order page parameter
part path place plan point print process provide query question read reason recent refactor refer
related release replace report request require resolve response right save script second section
send service show simple small something source specific start state status step still stop store
string style success suggest support switch system table text think title tool track two under
understand unit version view warning way week within without wrong
api browser client com css database db github go html http https java js json linux md org py
python server sql src ts tsx txt url web windows www yaml yml
"""


@functools.lru_cache(maxsize=4096)
def rarity(token: str, frequency: int, count: int) -> float:
    """Return how much a match of this token says: minus the log of its share of passages."""
    prior = _prior_share(token)
    # A word that occurs nowhere weighs as much as one that occurs once.
    seen = max(frequency, 1) + prior * _PRIOR_PASSAGES
    share = seen / (max(count, 1) + _PRIOR_PASSAGES)
    # A common word says little, even in a memory where it is still rare. A project's own word still
    # says something, even if every passage has it (`login` in a project about logins).
    return -math.log(min(max(share, prior), prior * _OWN_WORD, 1.0))


def _prior_share(token: str) -> float:
    """Return the share of texts that contain the token, in general."""
    number = len(token) == 1 or (token.isdigit() and len(token) < 3)
    return _SHARE_OF_NUMBERS if number else _common_shares().get(token, _SHARE_UNKNOWN)


@functools.cache
def _common_shares() -> dict[str, float]:
    shares = {stem(word): _SHARE_COMMON for word in _COMMON.split()}
    return shares | {stem(word): _SHARE_EVERYWHERE for word in _EVERYWHERE.split()}


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
    `length` the average number of words.
    """

    weights: list[float] = []
    coverage: float = 0.0
    nats: float = 0.0
    rarest: float = 0.0
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
    total, whole = sum(sharp) or 1.0, 1.0 / max(1, len(asked))
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
        often, factors = np.asarray(times, dtype=np.float64), np.array((sharp, nats))
        lengths = np.asarray(sizes, dtype=np.float64)
        average, length = (lengths.sum(axis=0) / len(lengths)).tolist()
        norms = _norm(lengths[:, :1] / average)
        parts = often * factors[0] * (_SATURATION + 1.0) / (often + norms)
        has = (often > 0.0) @ factors.T
        weights = (parts.sum(axis=1) * (has[:, 0] / total) ** whole).tolist()
        best, most = has.max(axis=0).tolist()
    return Weighed(weights, best / total, most, max(nats, default=0.0), length + 1)


def _norm(length: Any) -> Any:
    """Return how often a word must occur for half of its weight, by a passage's relative length."""
    return _SATURATION * (1.0 - _LENGTH + _LENGTH * length)


# The share of meaning if the words say enough, that is, if one passage matches words worth
# ENOUGH_NATS. One weak common word decides nothing, and a long passage matches many by chance.
_MEANING, _MEANING_IF_SHORT, _SHORT_WORDS = 0.65, 0.55, 60
ENOUGH_NATS = 12.0
# If one passage has all the words of a question (a name, an error message), it is the answer, if it
# is short, or if one of them is worth _NAME_NATS: a long passage has common words by chance.
_OF_WORDS_FOUND, _NAME_NATS = 0.7, 4.5


def shortness(length: float) -> float:
    """Return 1 for passages of a few words, 0 for long ones; `length` is the average in words."""
    return 1.0 / (1.0 + (length / _SHORT_WORDS) ** 2)


def meaning_share(by_words: Weighed) -> float:
    """Return the share of meaning, given how much the words weigh."""
    short = shortness(by_words.length)
    meaning = _MEANING + (_MEANING_IF_SHORT - _MEANING) * short
    named = max(short, min(1.0, by_words.rarest / _NAME_NATS)) * by_words.coverage**3
    meaning *= 1.0 - _OF_WORDS_FOUND * named
    words = (1.0 - meaning) * min(1.0, max(by_words.nats / ENOUGH_NATS, named))
    return meaning / (meaning + words)


def mix(words: Sequence[float], cosines: Sequence[float | None], weight: float) -> list[float]:
    """Return the value of each passage, 0-1, by its words (BM25, 0 for no match) and its meaning.

    `weight` is the share of meaning, 0-1. If only one of the two is known, it decides alone.
    """
    near = [0.0 if one is None or one < 0.0 else one for one in cosines]
    weight = _share(weight, any(words), cosines.count(None) < len(cosines))
    rest, best = 1.0 - weight, (max(words, default=0.0) or 1.0, max(near, default=0.0) or 1.0)
    both = zip(words, near, strict=True)
    return [rest * (word / best[0]) + weight * (cosine / best[1]) for word, cosine in both]


def best_by_both(
    words: Sequence[float], cosines: Sequence[Any], weight: float, most: int
) -> tuple[list[int], list[float]]:
    """Return the places of the best passages as `mix` and `best_places` would find them, and all
    cosines, which are given in several arrays. A passage without a vector has NaN."""
    import numpy as np

    by_words, by_meaning = np.array(words, dtype=np.float64), np.concatenate(cosines)
    near = np.where(by_meaning > 0.0, by_meaning, 0.0)
    weight = _share(weight, by_words.any(), not np.isnan(by_meaning).all())
    best = by_words.max(initial=0.0) or 1.0, near.max(initial=0.0) or 1.0
    values = (1.0 - weight) * (by_words / best[0]) + weight * (near / best[1])
    return (-values).argsort(kind="stable")[:most].tolist(), by_meaning.tolist()


def _share(weight: float, has_words: object, has_cosines: object) -> float:
    return 0.0 if not has_cosines else weight if has_words else 1.0


def best_places(values: Sequence[float], most: int) -> list[int]:
    """Return the places of the `most` largest values, best first; equal ones in order."""
    least = sorted(values)[-most] if most < len(values) else -math.inf
    places = [place for place, value in enumerate(values) if value >= least]
    return sorted(places, key=values.__getitem__, reverse=True)[:most]


# -- The score.

_SHOWN = 6
# Typical cosines of unrelated texts, of texts on the same subject, and from which on two texts are
# more and more the same. Looked up by the longest prefix of the embedder's identity; "" is for
# embedders that were not measured.
_COSINES = {
    "static:": (0.12, 0.32, 0.60),
    "minilm:": (0.20, 0.55, 0.75),
    "": (0.35, 0.75, 0.85),
}
# A question with fewer words than this has higher cosines with unrelated texts: the second number
# is added for each missing word.
_PLAIN_WORDS, _NOISE = 4, 0.03
# The largest part of a cosine that is explained by the words both texts share.
_MOST_SHARED = 0.3
# The nats from which a single word starts to say something, and from which it says enough.
_COMMONPLACE, _TELLING = 1.4, 4.0
# Standing out further than this says nothing more: in a small memory even wrong hits stand out.
_MOST_GAP, _MOST_REST = 0.6, 0.7
# A list is judged by its best hits, and a hit by those after it.
NEXT, BEST = 5, 3
# A later hit that fits as well as the first counts a little less.
_LATER = 0.7
# Smaller memories are treated as if they had this many passages, because none was measured.
_FEWEST = 8
# A list is shown if the probability of an answer is at least this; at least the second number among
# many exchanges, where something always sounds similar.
LISTED, _LISTED_IN_TALK, _MANY_EXCHANGES = 0.27, 0.54, 200
# Even in a shown list, hits below this share of the first hit's value stay below the floor.
_HALF = 0.5
_PER_SHARE = 0.30


class Logistic(msgspec.Struct, frozen=True):
    """A logistic model: the weight of each kind of evidence, in nats.

    `words` and `meaning` weigh how well the hit matches. `gap` weighs its distance from the next
    hit; for a list, how near the nearest hit is. The `rest_` weights are multiplied by the distance
    from the next five hits. `few` counts more in a smaller memory. `gap` and `few` count only as
    far as the hit fits.
    """

    base: float
    words: float
    meaning: float
    gap: float
    rest_words: float
    rest_meaning: float
    few: float
    rest_few: float

    def __call__(self, words: float, meaning: float, gap: float, rest: float, few: float) -> float:
        odds = self.base + self.words * words + self.meaning * meaning + self.gap * gap
        outstanding = self.rest_words * words + self.rest_meaning * meaning + self.rest_few * few
        return 1.0 / (1.0 + math.exp(-odds - self.few * few - rest * outstanding))


SURE = Logistic(-2.34, 0.0, 0.0, 2.4, 4.72, 0.17, 7.0, 6.99)
THERE = Logistic(-2.62, 0.79, 0.0, 1.07, 3.69, 0.66, 7.78, 3.98)
# The same for searches without vectors.
SURE_BY_WORDS = Logistic(-2.10, 0.00, 0.00, 2.89, 3.69, 0.00, 4.04, 2.94)
THERE_BY_WORDS = Logistic(-1.93, 1.68, 0.00, 0.00, 2.58, 0.00, 8.79, -1.39)


class Evidence(msgspec.Struct, frozen=True):
    """The evidence for a hit, independent of the other hits."""

    matched: tuple[str, ...]
    asked: int
    coverage: float
    weight: float
    cosine: float | None
    # The cosine that the shared words alone would give texts of this length.
    shared: float = 0.0


def weigh(
    rarities: Mapping[str, float],
    passage: PassageWords,
    *,
    cosine: float | None = None,
    time_weight: float = 0.0,
    in_time: bool = False,
) -> Evidence:
    """Return the evidence for one passage.

    `rarities` has the weight of each token of the question. `cosine` is None without vectors. A
    time that the question names counts like one more word.
    """
    text = passage.padded
    matched = tuple([token for token in rarities if f" {token} " in text])
    total = sum(rarities.values()) + time_weight
    weight = sum([rarities[token] for token in matched]) + time_weight * in_time
    coverage = weight / total if total else 0.0
    shared = len(matched) / math.sqrt(max(1, len(rarities) * passage.distinct))
    return Evidence(matched, len(rarities), coverage, weight, cosine, min(shared, _MOST_SHARED))


def pointedness(query: Sequence[str], time_weight: float = 0.0) -> float:
    """Return how specific a question is: 0 if it has only common words (`fix the error`), up to 1.

    The counts of this memory do not matter: `login` is specific even in a project about logins.
    """
    nats = (0.0 if token in STOP_WORDS else -math.log(_prior_share(token)) for token in query)
    pointed = (max(nats, default=0.0) - _COMMONPLACE) / (_TELLING - _COMMONPLACE)
    return min(1.0, max(0.0, pointed, time_weight / 3.0))


def nearness(one: Evidence, embedder: str) -> tuple[float, float]:
    """Return how related two texts are (0 to 1), and how far they are the same text (0 to 1).

    The fewer words a question has, the more cosines vary. The part of the cosine that comes from
    shared words is left out, because the words count already.
    """
    unrelated, related, alike = _cosines(embedder)
    noise = _NOISE * max(0, _PLAIN_WORDS - one.asked) + one.shared
    cosine, low, high = min(one.cosine or 0.0, 1.0), unrelated + noise, related + noise
    near = min(1.0, max(0.0, (cosine - low) / (high - low)))
    return near, max(0.0, (cosine - alike) / (1.0 - alike))


@functools.cache
def _cosines(embedder: str) -> tuple[float, float, float]:
    return _COSINES[max((prefix for prefix in _COSINES if embedder.startswith(prefix)), key=len)]


def closeness(first: Sequence[Evidence], crowd: float, embedder: str) -> float:
    """Return how near the nearest of the first hits is, also compared to the crowd."""
    unrelated, _, alike = _cosines(embedder)
    nearest = max((one.cosine or 0.0 for one in first), default=0.0)
    return max(0.0, 2.0 * nearest - unrelated - crowd) / (alike - unrelated)


def matched_words(evidence: Evidence) -> float:
    """Return how much a hit's matching words say: their weight and their share of the question."""
    return math.log1p(evidence.weight * evidence.coverage / 3.0)


class Outstanding(msgspec.Struct, frozen=True):
    """How far the first of some values stands above the next one, and above the next five."""

    gap: float
    rest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Outstanding:
        first = values[0] or 1e-9
        others = [value / first for value in values[1 : NEXT + 1]]
        gap = 1.0 - (others[0] if others else 0.0)
        rest = 1.0 - (sum(others) / len(others) if others else 0.0)
        return cls(min(gap, _MOST_GAP), min(rest, _MOST_REST))


# The inputs of a logistic model: words, meaning, gap, rest, few.
Clue = tuple[float, float, float, float, float]


class Clues(msgspec.Struct, frozen=True):
    """The inputs for the scores of a list: for each hit its clue, whether it is nearly the text of
    the question, and whether it says the same as the first; and the clue for the whole list."""

    each: list[Clue]
    same: list[bool]
    near: list[bool]
    there: Clue

    @classmethod
    def of(
        cls,
        values: Sequence[float],
        evidence: Sequence[Evidence],
        near_first: Sequence[bool],
        *,
        count: int,
        pointed: float,
        embedder: str | None,
        crowd: float = 0.0,
    ) -> Clues:
        """Return the clues for hits in their order, as many as there is evidence for.

        `near_first`: whether each hit says the same as the first. `count`: how many passages were
        searched. `embedder`: None without vectors. `crowd`: the cosine of passages that are near,
        but too far down the list to be the answer.

        A hit that is nearly the text of the question needs neither rare words nor to stand out, and
        no hit needs to stand out from hits that say the same. Standing out and a small memory count
        only as far as the words or the meaning fit: in a small memory something always stands out.
        """
        rivals = [value for value, near in zip(values, near_first, strict=True) if not near]
        first = Outstanding.of([*values[:1], *rivals]) if values else Outstanding(0.0, 0.0)
        few = 1.0 / math.sqrt(max(count, _FEWEST))
        near = [nearness(one, embedder or "") for one in evidence]
        fit = [
            max(pointed, same) * max(one.coverage, meaning)
            for one, (meaning, same) in zip(evidence, near, strict=True)
        ]
        each: list[Clue] = []
        for place, (one, (meaning, same)) in enumerate(zip(evidence, near, strict=True)):
            out = Outstanding(0.0, 0.0) if place else first
            point = max(pointed, same)
            gap, rest = max(out.gap, same * _MOST_GAP), max(out.rest, same * _MOST_REST)
            words = math.sqrt(point) * matched_words(one)
            fits = fit[place] * (_LATER if place else 1.0)
            each.append((words, point * meaning, gap * fits, rest, few * fits))
        most = math.sqrt(pointed) * max(map(matched_words, evidence[:BEST]), default=0.0)
        nearest = pointed * max((meaning for meaning, _ in near[:BEST]), default=0.0)
        alike = [same > 0.0 for _, same in near]
        close = closeness(evidence[:BEST], crowd, embedder) if embedder else 0.0
        there = (most, nearest, close, first.rest, few * max(fit[:BEST], default=0.0))
        return cls(each, alike, list(near_first), there)


def scores(
    clues: Clues,
    values: Sequence[float],
    vectors: bool = True,
    least: float = LISTED,
    by: tuple[Logistic, Logistic] | None = None,
) -> list[float]:
    """Return the scores of the hits with clues, best first; hits are ordered by `values`.

    `least`: how likely an answer must be for the whole list to be shown.
    """
    if not values:
        return []
    sure, there = by or ((SURE, THERE) if vectors else (SURE_BY_WORDS, THERE_BY_WORDS))
    best = sure(*clues.each[0])
    listed = there(*clues.there) >= least
    found = [max(best, FLOOR) if listed else best]
    for place, value in enumerate(values[1 : len(clues.each)], 1):
        share = value / (values[0] or 1e-9)
        if not listed:
            level = min(best, FLOOR) * share * 0.99
        elif share >= _HALF:
            level = FLOOR + _PER_SHARE * (share - _HALF)
        else:
            level = FLOOR / _HALF * share * 0.99
        if clues.same[place]:
            level = max(level, sure(*clues.each[place]))
        if clues.near[place]:
            level = max(level, best * share)
        found.append(min(found[-1], level))
    return found


def is_below_floor(share: float, cosine: float | None, embedder: str | None) -> bool:
    """Whether a hit that has this share of the first one's value is certainly below the default
    floor, and with it all that follow; unless it says the same as the first."""
    return share < _HALF and (cosine or 0.0) <= _cosines(embedder or "")[2]


def least_in_talk(count: int) -> float:
    """Return how likely an answer must be for a list to be shown, among `count` exchanges."""
    return LISTED + (_LISTED_IN_TALK - LISTED) * min(1.0, count / _MANY_EXCHANGES)


def relevance(value: float) -> Relevance | None:
    """Return what a score means in words; None below the default floor."""
    if value < FLOOR:
        return None
    return "relevant" if value >= RELEVANT else "possibly"


def why(evidence: Evidence, question: str = "") -> str:
    """Return one line for people: which words matched, spelled as in the question, and how near."""
    written = spellings(question)
    matched = ", ".join(written.get(token, token) for token in evidence.matched[:_SHOWN])
    if len(evidence.matched) > _SHOWN:
        matched += ", ..."
    counted = f"({len(evidence.matched)} of {evidence.asked})"
    words = f"words: {matched} {counted}" if matched else "words: none"
    return words if evidence.cosine is None else f"{words}; meaning {evidence.cosine:.2f}"
