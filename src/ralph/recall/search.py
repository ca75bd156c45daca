"""A search: candidates by words and by meaning, one order, calibrated scores. Or by words alone,
from the journal, when there is no index.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.index import Collection, Cut, IndexView, Only, StoredPassage, WordMatches
from ralph.index.matrix import fits
from ralph.recall import Parts, Relevance, ScoredRecord
from ralph.records import Record
from ralph.text.tokens import query_tokens, spellings, stem, tokens

if TYPE_CHECKING:
    from ralph.index import Vectors


# -- The score: 0-1, and it means the same for every query, collection and embedder.
#
# A logistic over absolute evidence: the share of the question's weight (its words, each by its
# rarity) that stands in the passage, how much weight that is, and the cosine, which counts for
# what the words leave open: either is enough, and both together are not twice as sure. 0.40 is
# the floor, from 0.55 on a hit is relevant; between them it is possibly relevant.
#
# The score is meant as a probability: of the hits with 0.7 about 70 in 100 are what was asked for,
# where half of what is judged is. `scripts/bench calibrate` finds the constants and tells how well
# they hold on questions they were not found on.


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
    passage: Set[str],
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


# -- The order of candidates: BM25 with more weight on rare words, then words and meaning together.
#
# Pure. The index finds the candidates with its own BM25; here they are weighed again.


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
    """How well each passage fits by its words, and the largest share of the question that one of
    them holds."""

    weights: dict[int, float]
    coverage: float


def weigh_words(
    asked: Sequence[str], passages: Mapping[int, Fields], *, frequencies: Counts, count: int
) -> Weighed:
    """Weigh passages; `frequencies`: in how many of `count` passages a token stands.

    A passage's fields are its tokens, separated by blanks.
    """
    if not passages:
        return Weighed({}, 0.0)
    shares = {t: (count - frequencies[t] + 0.5) / (frequencies[t] + 0.5) for t in asked}
    rarity = {t: math.log(1.0 + max(share, 0.0)) ** _SHARPNESS for t, share in shares.items()}
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
            times = _TITLE * title.count(needle) + _TEXT * text.count(needle)
            if times := times + _PLACES * places.count(needle):
                held += weight
                total += weight * times * (_SATURATION + 1.0) / (times + norm)
        weights[row] = total
        most = max(most, held)
    return Weighed(weights, most / whole if whole else 0.0)


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

    row: Any
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


_CANDIDATES = 100
# How many fused rows are weighed for each hit wanted: some fall under the floor, and a record
# may be there with several passages.
_SPARE = 3
# From so many passages on, a word that so large a share of them holds is not ranked by: it weighs
# next to nothing, and ranking by it is most of the time a search takes.
_LARGE = 1000
_COMMON_SHARE = 0.3


class Question(msgspec.Struct, frozen=True):
    """What is asked, how many answers are wanted, how sure they must be, and of what."""

    text: str
    limit: int
    min_score: float
    only: Only = None


def telling(asked: Sequence[str], frequencies: Mapping[str, int], count: int) -> list[str]:
    """The words to rank by: in a large collection those that a third of it holds only cost."""
    if count < _LARGE:
        return list(asked)
    rare = [token for token in asked if frequencies[token] <= count * _COMMON_SHARE]
    return rare or list(asked)


def relevance(value: float) -> Relevance | None:
    """What a score means in words; nothing when only a lower floor let it through."""
    if value < FLOOR:
        return None
    return "relevant" if value >= RELEVANT else "possibly"


# The id of a collection and the number of a passage in it.
_Place = tuple[int, int]


def search(
    view: IndexView,
    collections: Sequence[Collection],
    question: Question,
    *,
    vector: Vectors | None,
    embedder: str,
) -> list[ScoredRecord]:
    """The best records of these collections, in order, none under the floor.

    A collection built with another embedder than the question's vector is searched by words.
    """
    candidates = _Candidates(view, query_tokens(question.text), question.only)
    for collection in collections:
        near = vector if collection.manifest.embedder == embedder else None
        candidates.add(collection, near)
    fused = fuse(
        candidates.words,
        candidates.meaning if vector is not None else None,
        weight=meaning_share(candidates.average_words(), candidates.coverage, embedder),
    )
    order = _settled(candidates, fused, question.limit * _SPARE)
    candidates.fetch_records(one.row for one in order)
    return _weighed(candidates, order, question, embedder)


def _settled(candidates: _Candidates, fused: Sequence[Fused], wanted: int) -> list[Fused]:
    """The first ones, the newest first among equals: rows are numbered anew by every rebuild."""

    def newest_first(one: Fused) -> tuple[int, str, str]:
        record = candidates.record(one.row)
        return -record.number, record.id, record.digest

    order: list[Fused] = []
    for _, group in itertools.groupby(fused, key=lambda one: one.mixed):
        if len(order) >= wanted:
            break
        equals = list(group)
        if len(equals) > 1:
            candidates.fetch_records(one.row for one in equals)
            equals.sort(key=newest_first)
        order += equals
    return order[:wanted]


def _weighed(
    candidates: _Candidates, order: Sequence[Fused], question: Question, embedder: str
) -> list[ScoredRecord]:
    word_ranks, meaning_ranks = _ranks(candidates.words), _ranks(candidates.meaning)
    found: dict[tuple[int, str, str], ScoredRecord] = {}
    for fused in order:
        if len(found) == question.limit:
            break
        place, cosine = fused.row, candidates.meaning.get(fused.row)
        evidence, record = candidates.evidence(place), candidates.record(place)
        value = round(score(evidence, None if cosine is None else embedder), 4)
        key = (place[0], record.id, record.digest)
        if value < question.min_score or key in found:
            continue
        stages = {"words": round(fused.words, 4), "mixed": round(fused.mixed, 4)}
        ranks = {"words_rank": word_ranks.get(place), "meaning_rank": meaning_ranks.get(place)}
        meaning = None if cosine is None else round(cosine, 4)
        stream = candidates.collections[place[0]].stream
        parts = _parts(evidence, value, **stages, **ranks, meaning=meaning)
        found[key] = _scored(record, stream, question, evidence, parts)
    return list(found.values())


def _parts(evidence: Evidence, value: float, **stages: Any) -> Parts:
    matched, coverage = evidence.matched, round(evidence.coverage, 4)
    return Parts(matched=matched, asked=evidence.asked, coverage=coverage, score=value, **stages)


def _scored(
    record: Record, stream: str, question: Question, evidence: Evidence, parts: Parts
) -> ScoredRecord:
    value, reason = parts.score, why(evidence, question.text)
    return ScoredRecord(record, stream, value, relevance(value), reason, parts)


class _Candidates:
    """The passages that words or meaning find; what is known of them is asked for once."""

    def __init__(self, view: IndexView, asked: Sequence[str], only: Only) -> None:
        self._view = view
        self._asked = asked
        self._only = only
        self._matches: dict[int, WordMatches] = {}
        self._passages: dict[_Place, StoredPassage] = {}
        self.collections: dict[int, Collection] = {}
        self.words: dict[_Place, float] = {}
        self.meaning: dict[_Place, float] = {}
        self.coverage = 0.0

    def add(self, collection: Collection, vector: Vectors | None) -> None:
        """The passages of this collection that fit best by their words, and the nearest."""
        n, facts = collection.id, self._view.words(collection, self._asked, 0)
        self.collections[n], self._matches[n] = collection, facts
        ranked = telling(self._asked, facts.frequencies, facts.passages)
        rows = self._view.words(collection, ranked, _CANDIDATES, only=self._only).scores
        found = self._view.fetch(collection, rows)
        self._passages |= {(n, row): passage for row, passage in found.items()}
        fields = {row: passage.fields for row, passage in found.items()}
        weighed = weigh_words(
            self._asked, fields, frequencies=facts.frequencies, count=facts.passages
        )
        self.coverage = max(self.coverage, weighed.coverage)
        self.words |= {(n, row): weight for row, weight in weighed.weights.items()}
        if vector is not None:
            also = list(weighed.weights)
            [near] = self._view.nearest(
                collection, vector[None, :], _CANDIDATES, also=also, only=self._only
            )
            self.meaning |= {(n, row): cosine for row, cosine in near.items()}

    def average_words(self) -> float:
        """How long the passages are that the words found."""
        lengths = [words_of(passage.fields) for passage in self._passages.values()]
        return sum(lengths) / len(lengths) if lengths else 0.0

    def evidence(self, place: _Place) -> Evidence:
        facts, cosine = self._matches[place[0]], self.meaning.get(place)
        words = frozenset(" ".join(self._passages[place].fields).split())
        return weigh(
            self._asked, words, frequencies=facts.frequencies, count=facts.passages, cosine=cosine
        )

    def fetch_records(self, places: Iterable[_Place]) -> None:
        """Fetch what will be looked at one by one: a server is better asked once."""
        rows: dict[int, list[int]] = {}
        for n, row in places:
            passage = self._passages.get((n, row))
            if passage is None or passage.record is None:
                rows.setdefault(n, []).append(row)
        for n, some in rows.items():
            found = self._view.fetch(self.collections[n], some, records=True)
            self._passages |= {(n, row): passage for row, passage in found.items()}

    def record(self, place: _Place) -> Record:
        record = self._passages[place].record
        assert record is not None
        return record


def _ranks(values: Scores) -> dict[Any, int]:
    """The place of each value among all, the same for equal ones."""
    order = sorted(values.values(), reverse=True)
    first: dict[float, int] = {}
    for rank, value in enumerate(order, 1):
        first.setdefault(value, rank)
    return {place: first[value] for place, value in values.items()}


# -- Search without an index: by words, straight over records. Slower, and always there.


def search_plainly(
    records: Iterable[tuple[str, Record]], cuts: Mapping[str, Cut], question: Question
) -> list[ScoredRecord]:
    """The records (each with its stream) whose words answer best, none under the floor."""
    asked = query_tokens(question.text)
    wanted = frozenset(asked)
    held: list[tuple[str, Record, frozenset[str]]] = []
    frequencies: Counter[str] = Counter()
    for stream, record in records:
        for passage in cuts[stream](record):
            if not fits(passage.facets, question.only):
                continue
            words = frozenset(tokens(f"{passage.title}\n{passage.text}\n{passage.places}"))
            held.append((stream, record, words))
            frequencies.update(words & wanted)
    found: list[ScoredRecord] = []
    for stream, record, words in held:
        if not words & wanted:
            continue
        evidence = weigh(asked, words, frequencies=frequencies, count=len(held))
        value = round(score(evidence), 4)
        if value >= question.min_score:
            parts = _parts(evidence, value, words=round(evidence.coverage, 4), mixed=value)
            found.append(_scored(record, stream, question, evidence, parts))
    found.sort(key=lambda hit: (-hit.score, hit.record.id))
    best = {(hit.record.id, hit.record.digest): hit for hit in reversed(found)}
    return sorted(best.values(), key=lambda hit: (-hit.score, hit.record.id))[: question.limit]
