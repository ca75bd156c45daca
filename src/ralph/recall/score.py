"""How sure we are: a score 0-1 that means the same for every query, collection and embedder.

A logistic over absolute evidence: the share of the question's weight (its words, each by its
rarity) that stands in the passage, how much weight that is, and the cosine, which counts for what
the words leave open: either is enough, and both together are not twice as sure. 0.40 is the floor,
from 0.55 on a hit is relevant; between them it is possibly relevant.

The score is meant as a probability: of the hits with 0.7 about 70 in 100 are what was asked for,
where half of what is judged is. `scripts/bench calibrate` finds the constants and tells how well
they hold on questions they were not found on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from ralph.text.tokens import spellings, stem

FLOOR = 0.40
RELEVANT = 0.55

_SHOWN = 6

# In a memory of five records every word is rare, so a word's rarity starts from what is known of
# it beforehand and gives way to the collection's own counts. As if so many passages had been read:
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

# A rarity of 3.3 nats and more points at something: a word of one passage in 27.
_POINTED = 3.3
# From here on a cosine says more and more that two texts are the same, whatever their words.
_ALIKE = 0.6
# Matched weight, times the share of the question it is: from about so much on it is enough. One
# common word is nothing, one rare word much when it is the whole question, and of a long question
# a few rare words are as much as a few words that are all of a short one.
_ENOUGH = 3.5


class Constants(msgspec.Struct, frozen=True):
    """What the evidence counts: in nats, beside the cosines of unrelated and of related texts.

    Words must count for at least as much as meaning, or more words could lower a score.
    """

    intercept: float
    per_words: float
    per_meaning: float = 0.0
    unrelated: float = 0.0
    related: float = 1.0


WORDS_ALONE = Constants(-2.99, 5.39)
# By the longest prefix of the embedder's identity, because cosines mean different things with
# different embedders. Found by `scripts/bench calibrate` on all its sources, except those of "",
# which is for embedders nobody has measured: MiniLM's, which ask most of the words, and higher
# cosines, because some embedders give 0.4 to texts that have nothing to do with each other.
CONSTANTS = {
    "static:": Constants(-4.36, 6.67, 5.06, 0.05, 0.45),
    "minilm:": Constants(-4.54, 6.80, 5.94, 0.10, 0.55),
    "": Constants(-4.54, 6.80, 5.94, 0.30, 0.75),
}


class Evidence(msgspec.Struct, frozen=True):
    """What speaks for a hit, in absolute terms."""

    matched: tuple[str, ...]
    asked: int
    coverage: float
    weight: float
    rarest: float
    cosine: float | None


def weigh(
    query: Sequence[str],
    passage: Collection[str],
    *,
    frequencies: Mapping[str, int],
    count: int,
    cosine: float | None = None,
) -> Evidence:
    """The evidence for one passage.

    `query`: its query_tokens(); `passage`: the set of the passage's tokens(); `frequencies`: in how
    many of the `count` passages of the collection each query token stands; `cosine`: None without
    vectors.
    """
    rarities = {token: rarity(token, frequencies.get(token, 0), count) for token in query}
    matched = tuple(token for token in rarities if token in passage)
    total = sum(rarities.values())
    weight = sum(rarities[token] for token in matched)
    coverage = weight / total if total else 0.0
    rarest = max(rarities.values(), default=0.0)
    return Evidence(matched, len(rarities), coverage, weight, rarest, cosine)


@functools.lru_cache(maxsize=4096)
def rarity(token: str, frequency: int, count: int) -> float:
    """What finding the token says: the negative logarithm of its share of the passages."""
    number = len(token) == 1 or (token.isdigit() and len(token) < 3)
    prior = _SHARE_OF_NUMBERS if number else _common_shares().get(token, _SHARE_UNKNOWN)
    # A word that stands nowhere weighs what it would weigh if it stood here.
    seen = max(frequency, 1) + prior * _PRIOR_PASSAGES
    share = seen / (max(count, 1) + _PRIOR_PASSAGES)
    # A word everybody uses says little, even where few have used it yet; and a word of one's own
    # (`login` where everything is about the login) keeps saying something.
    return -math.log(min(max(share, prior), prior * _OWN_WORD, 1.0))


@functools.cache
def _common_shares() -> dict[str, float]:
    shares = {stem(word): _SHARE_COMMON for word in _COMMON.split()}
    return shares | {stem(word): _SHARE_EVERYWHERE for word in _EVERYWHERE.split()}


def score(evidence: Evidence, embedder: str | None = None) -> float:
    """How likely the hit is what was asked for, 0-1; by words alone when it has no cosine.

    `embedder` is the identity of what made the vectors.
    """
    alone = evidence.cosine is None
    return score_by(evidence, WORDS_ALONE if alone else constants_of(embedder or ""))


def score_by(evidence: Evidence, constants: Constants) -> float:
    """The score these constants give."""
    words, meaning = features(evidence, constants)
    odds = constants.intercept + constants.per_words * words + constants.per_meaning * meaning
    return 1.0 / (1.0 + math.exp(-odds))


def features(evidence: Evidence, constants: Constants) -> tuple[float, float]:
    """What the words say, and what the meaning adds to it; both 0-1."""
    # A question of nothing but common words points nowhere, whatever is near it.
    pointed = min(1.0, evidence.rarest / _POINTED) ** 3
    held = evidence.weight * evidence.coverage
    words = math.sqrt(pointed) * held / math.hypot(held, _ENOUGH)
    if evidence.cosine is None:
        return words, 0.0
    nearness = (evidence.cosine - constants.unrelated) / (constants.related - constants.unrelated)
    # What is all but the same text needs no rare word: in a memory about one topic there is none.
    twin = min(1.0, max(0.0, (evidence.cosine - _ALIKE) / (1.0 - _ALIKE)))
    return words, (1.0 - words) * max(pointed, twin) * min(1.0, max(0.0, nearness))


@functools.lru_cache(maxsize=64)
def constants_of(embedder: str) -> Constants:
    """What holds for the embedder of this identity."""
    return CONSTANTS[max((p for p in CONSTANTS if embedder.startswith(p)), key=len)]


def why(evidence: Evidence, question: str = "") -> str:
    """One line for a person: which words matched, as the question writes them, and how near."""
    written = spellings(question)
    matched = ", ".join(written.get(token, token) for token in evidence.matched[:_SHOWN])
    if len(evidence.matched) > _SHOWN:
        matched += ", ..."
    counted = f"({len(evidence.matched)} of {evidence.asked})"
    words = f"words: {matched} {counted}" if matched else "words: none"
    return words if evidence.cosine is None else f"{words}; meaning {evidence.cosine:.2f}"
