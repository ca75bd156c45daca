"""The two numbers of a search, each 0-1: how relevant a hit is, and whether the list answers.

*Relevance* of a hit is the probability that it is about what was asked. It comes from the hit's own
evidence: the words it shares with the question (by how rare they are in general), how near its
meaning is, and what it says beyond the question. It is compared with the best hit of its memory by
ratio, never with the next one, so another relevant record does not make it less relevant.

*Answered* is the probability that the answer is among the hits. It rises with every relevant hit.
Whether something is told unasked depends on it.

Pure functions of numbers. docs/quality.md says how the constants were fitted, and on which data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import msgspec

from ralph.recall import Relevance
from ralph.text.rarity import is_chatter, usual_rarity
from ralph.text.tokens import PassageWords

# A hit is possibly relevant from the floor on. Where nobody asked for it, it must be a little more.
# A list that is answered this surely is told unasked.
FLOOR = 0.40
WORTH_TELLING = 0.44
RELEVANT = 0.55
TOLD = 0.70

_SHOWN_WORDS = 6
# Typical cosines of unrelated texts and of texts on the same subject. Looked up by the longest
# prefix of the embedder's identity; "" is for embedders that were not measured.
_COSINES = {
    "static:": (0.12, 0.32),
    "minilm:": (0.20, 0.55),
    "": (0.35, 0.75),
}
# A question whose words weigh less than this says too little to be answered unasked. One word that
# names a subject needs less than several that everybody uses ("sync with main").
_POINTED_NATS = 7.5
_POINTED_WORD_NATS = 5.3
# An answer says something new if its words beyond the question weigh this much, counting only what
# each weighs more than a common word. One that begins with what its writer doesn't know must say
# more. An exchange that says nothing new keeps this share of its relevance. One that says a word or
# two keeps more, because they may be an answer.
_COMMON_NATS = 2.0
_NEW_NATS = 4.0
ENOUGH_NEW_NATS = 16.0
_NOTHING_NEW = 0.15
_WORD_OR_TWO = 0.5
_FEW_CHARS = 300
# A question of fewer words is judged as one of so many: that its words are missing says as much.
_FEW_WORDS = 2


class Evidence(msgspec.Struct, frozen=True):
    """The evidence for one hit, independent of the other hits.

    `weight` is how much the matching words say, `coverage` their share of the question, `missing`
    how much the rarest word says that does not match. `adds` is what an answer says beyond the
    question: 1 if enough, less if it repeats the question.
    """

    matched: tuple[str, ...]
    asked: int
    coverage: float
    weight: float
    missing: float
    cosine: float | None
    adds: float = 1.0


class Asked(msgspec.Struct, dict=True, frozen=True):
    """The words of a question with how much each says, and the weight of the days it names."""

    rarities: dict[str, float]
    time_weight: float = 0.0

    @classmethod
    def of(cls, tokens: Iterable[str], time_weight: float = 0.0) -> Asked:
        """Weigh the words by how rare they are in general."""
        return cls({token: usual_rarity(token) for token in tokens}, time_weight)

    @functools.cached_property
    def is_empty(self) -> bool:
        """Whether the question says nothing about a subject ("yes", "commit and push")."""
        return not self.time_weight and not self._subjects

    @functools.cached_property
    def pointed(self) -> float:
        """How much the question says, 0-1: a word or two that everybody uses say little."""
        enough = _POINTED_NATS if self._subjects > 1 else _POINTED_WORD_NATS
        return min(1.0, self._nats / enough)

    @functools.cached_property
    def _nats(self) -> float:
        """How much all words and days say."""
        return sum(self.rarities.values()) + self.time_weight

    @functools.cached_property
    def _subjects(self) -> int:
        """The number of words that say something about a subject."""
        return sum(not is_chatter(token) for token in self.rarities)

    @functools.cached_property
    def _needles(self) -> list[tuple[str, str, float]]:
        """Each word as it stands in a padded text, the word, and how much it says."""
        return [(f" {token} ", token, nats) for token, nats in self.rarities.items()]

    def weigh(
        self, passage: PassageWords, *, cosine: float | None, in_time: bool, adds: float
    ) -> Evidence:
        """Return the evidence for one passage. A time that was named counts like one more word."""
        text = passage.padded
        matched: list[str] = []
        weight = 0.0
        missing = 0.0
        for needle, token, nats in self._needles:
            if needle in text:
                matched.append(token)
                weight += nats
            elif nats > missing:
                missing = nats
        if in_time:
            weight += self.time_weight
        else:
            missing = max(missing, self.time_weight)
        coverage = weight / self._nats if self._nats else 0.0
        return Evidence(tuple(matched), len(self.rarities), coverage, weight, missing, cosine, adds)


def new_nats(question: str, answer: str) -> float:
    """Return how much an answer says beyond its question, both as tokens between blanks; at most
    ENOUGH_NEW_NATS.

    A word that is asked for and that only the answer has is new, too.
    """
    seen = {*question.split()}
    nats = 0.0
    # The first words are nearly always enough, so a long text is not split as a whole.
    for part in (answer[:_FEW_CHARS], answer[_FEW_CHARS:]):
        for word in part.split():
            if word not in seen:
                seen.add(word)
                nats += max(0.0, usual_rarity(word) - _COMMON_NATS)
                if nats >= ENOUGH_NEW_NATS:
                    return ENOUGH_NEW_NATS
    return nats


def what_the_answer_adds(nats: float, *, denies: bool) -> float:
    """Return 1 if an answer with these `new_nats` says something new, less if it says little.

    `denies`: it begins with what its writer doesn't know, have or find.
    """
    share = min(1.0, nats / (ENOUGH_NEW_NATS if denies else _NEW_NATS))
    adds = _NOTHING_NEW + (1.0 - _NOTHING_NEW) * share
    return adds if denies or not nats else max(_WORD_OR_TWO, adds)


# -- Relevance of a hit by itself.


class Fit(msgspec.Struct, frozen=True):
    """A logistic model of how likely a passage is about a question, by nothing but itself.

    `meaning` weighs the cosine (0 for unrelated texts, 1 for the same subject), `words` the words
    that match, `missing` the rarest one that does not, `length` the number of words in the
    question: a longer one matches more by chance.
    """

    base: float
    meaning: float
    words: float
    missing: float
    length: float

    def odds(self, evidence: Evidence, embedder: str | None) -> float:
        """Return the logarithm of the odds."""
        words = math.log1p(evidence.weight * evidence.coverage / 3.0)
        return (
            self.base
            + self.meaning * nearness(evidence, embedder)
            + self.words * words
            + self.missing * evidence.missing
            + self.length * math.log(max(_FEW_WORDS, evidence.asked))
        )


# Exchanges of a talk are long and say many things, so the same evidence says less there.
_TALK = Fit(-1.75, 1.3, 2.2, -0.15, -0.9)
_RECORD = Fit(-2.5, 2.2, 2.6, -0.15, -0.9)
# For searches without vectors.
_BY_WORDS = Fit(-2.2, 0.0, 3.4, -0.15, -0.9)
# Where many passages have a word of the question, more of them fit by chance: what each e-fold of
# them costs, from this many on.
_CROWD = -0.5
_FEW = 30


def nearness(evidence: Evidence, embedder: str | None) -> float:
    """Return how near the meaning is: 0 for unrelated texts, about 1 for the same subject."""
    if evidence.cosine is None:
        return 0.0
    unrelated, related = _cosines(embedder or "")
    return max(0.0, (evidence.cosine - unrelated) / (related - unrelated))


def own_relevance(evidence: Evidence, embedder: str | None, *, talk: bool, crowd: int = 0) -> float:
    """Return how likely a passage is about the question, from its own evidence alone.

    `talk`: it is an exchange. `crowd`: how many passages of its memory have the question's most
    frequent word. Records without a word of the question change nothing.
    """
    if not evidence.weight and not nearness(evidence, embedder):
        return 0.0  # it shares no word, and its meaning is no nearer than that of any text
    if evidence.cosine is None:
        fit = _BY_WORDS
    elif talk:
        fit = _TALK
    else:
        fit = _RECORD
    by_chance = _CROWD * math.log(max(crowd, _FEW) / _FEW)
    return _probability(fit.odds(evidence, embedder) + by_chance) * evidence.adds


@functools.cache
def _cosines(embedder: str) -> tuple[float, float]:
    return _COSINES[max((prefix for prefix in _COSINES if embedder.startswith(prefix)), key=len)]


# -- Whether a list answers, and the relevance of its hits.

# Of exchanges that this much evidence speaks for, fewer are about the question than one would
# think: of those at 0.6 a third. Below the floor and above it, the distance from the floor shrinks
# with these powers, so the number is a probability, and the same hits pass the floor.
_BELOW_FLOOR = 3.0
_ABOVE_FLOOR = 2.0


# Relevance from the odds of a hit's own evidence, and the power of its share of the best value.
# Odds against a hit count more: most of what is found by chance has some evidence.
_SPREAD = 0.5
_SHIFT = 0.9
_AGAINST = 2.0
_SHARE_POWER = 0.6
# The surer an exchange is by itself, the less a better one makes it look worse.
_SHARE_POWER_IF_UNSURE = 0.8


def relevance(own: float, share: float, *, sure: float | None = None) -> float:
    """Return how relevant a hit is: by its own evidence, scaled by `share`, its value as a share of
    the best hit's. `sure`: how sure an exchange is by itself, and by what it adds."""
    if own <= 0.0:
        return 0.0
    odds = _SPREAD * _odds(own) + _SHIFT
    if odds < 0.0:
        odds *= _AGAINST
    power = _SHARE_POWER if sure is None else _SHARE_POWER_IF_UNSURE * (1.0 - sure)
    return _probability(odds) * math.pow(share, power)


# In a talk the best candidates are ordered by the odds of their own evidence, too. They count this
# much beside a value of 0 to 1.
_EVIDENCE = 0.4


def evidence_in_order(own: float) -> float:
    """Return what an exchange's own relevance adds to the value that orders it."""
    return _EVIDENCE * _odds(own)


def most_relevance(share: float) -> float:
    """Return how relevant a record is at most, whatever its evidence."""
    return math.pow(share, _SHARE_POWER)


def talk_relevance(value: float) -> float:
    """Return the relevance of an exchange as a probability, from its `relevance` by evidence."""
    if value < FLOOR:
        return FLOOR * math.pow(value / FLOOR, _BELOW_FLOOR)
    above = (value - FLOOR) / (1.0 - FLOOR)
    return FLOOR + (1.0 - FLOOR) * math.pow(above, _ABOVE_FLOOR)


# Whether the answer is somewhere among the hits, from the odds of the best one, and what the best
# hit from another conversation adds. None may be negative, so that another hit can only make the
# list more likely to answer.
_BEST = 1.8
_AMONG_HITS = 1.6
_SUPPORT = 0.25
# No list answers for certain.
_MOST = 0.99


def answered_by(best: float, second: float = 0.0) -> float:
    """Return how likely the answer is among the hits, by the own relevance of the two best."""
    if best <= 0.0:
        return 0.0
    among = _probability(_BEST * _odds(best) + _AMONG_HITS + _SUPPORT * second)
    return min(_MOST, max(among, relevance(best, 1.0)))


def best_two(own: Iterable[tuple[float, str]]) -> tuple[float, float]:
    """Return the best own relevance, and the best of another conversation. Each comes with its
    conversation, or with the record's id where it belongs to none."""
    by_home: dict[str, float] = {}
    for value, home in own:
        by_home[home] = max(value, by_home.get(home, 0.0))
    best, second, *_ = [*sorted(by_home.values(), reverse=True), 0.0, 0.0]
    return best, second


def _probability(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))


def _odds(probability: float) -> float:
    inside = min(max(probability, 1e-6), 1.0 - 1e-6)
    return math.log(inside / (1.0 - inside))


# -- In words.


def relevance_word(value: float) -> Relevance | None:
    """Return what a score means in words; None below the default floor."""
    if value < FLOOR:
        return None
    return "relevant" if value >= RELEVANT else "possibly"


def why(evidence: Evidence, matched: Sequence[str]) -> str:
    """Return one line for people: which words matched, spelled as in the question, and how near."""
    shown = ", ".join(matched[:_SHOWN_WORDS])
    if len(matched) > _SHOWN_WORDS:
        shown += ", ..."
    counted = f"({len(matched)} of {evidence.asked})"
    words = f"words: {shown} {counted}" if matched else "words: none"
    return words if evidence.cosine is None else f"{words}; meaning {evidence.cosine:.2f}"
