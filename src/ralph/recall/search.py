"""A search: candidates by words and by meaning, one order, calibrated scores. Or by words alone,
from the journal, when there is no index.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ralph.index import Collection, Cut, IndexView, Only, StoredPassage, WordMatches
from ralph.index.matrix import fits
from ralph.recall import Parts, Relevance, ScoredRecord
from ralph.recall.score import FLOOR, RELEVANT, Evidence, score, weigh, why
from ralph.records import Record
from ralph.text.tokens import query_tokens, tokens

if TYPE_CHECKING:
    from ralph.index import Vectors


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
    only: Only | None = None


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


class _Candidate(msgspec.Struct, frozen=True):
    collection: Collection
    row: int
    cosine: float | None


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
    asked = query_tokens(question.text)
    facts = _QuestionWords(view, asked, question.only)
    candidates: list[_Candidate] = []
    words: dict[int, float] = {}
    meaning: dict[int, float] = {}
    for collection in collections:
        by_words = facts.by_words(collection)
        near: dict[int, float] = {}
        if vector is not None and collection.manifest.embedder == embedder:
            also = list(by_words)
            [near] = view.nearest(
                collection, vector[None, :], _CANDIDATES, also=also, only=question.only
            )
        for row in by_words.keys() | near.keys():
            place = len(candidates)
            candidates.append(_Candidate(collection, row, near.get(row)))
            if row in by_words:
                words[place] = by_words[row]
            if row in near:
                meaning[place] = near[row]
    fused = fuse(
        words,
        meaning if vector is not None else None,
        weight=meaning_share(facts.average_words(), facts.coverage, embedder),
    )
    order = _settled(facts, candidates, fused, question.limit * _SPARE)
    facts.fetch_records(candidates[one.row] for one in order)
    ranks = _ranks(words), _ranks(meaning)
    return _weighed(facts, candidates, order, ranks, question, embedder)


def _settled(
    facts: _QuestionWords, candidates: Sequence[_Candidate], fused: Sequence[Fused], wanted: int
) -> list[Fused]:
    """The first ones, the newest first among equals: rows are numbered anew by every rebuild."""

    def newest_first(one: Fused) -> tuple[int, str, str]:
        record = facts.record(candidates[one.row])
        return -record.number, record.id, record.digest

    order: list[Fused] = []
    for _, group in itertools.groupby(fused, key=lambda one: one.mixed):
        if len(order) >= wanted:
            break
        equals = list(group)
        if len(equals) > 1:
            facts.fetch_records(candidates[one.row] for one in equals)
            equals.sort(key=newest_first)
        order += equals
    return order[:wanted]


def _weighed(
    facts: _QuestionWords,
    candidates: Sequence[_Candidate],
    order: Sequence[Fused],
    ranks: tuple[dict[int, int], dict[int, int]],
    question: Question,
    embedder: str,
) -> list[ScoredRecord]:
    found: list[ScoredRecord] = []
    seen: set[tuple[int, str, str]] = set()
    for fused in order:
        if len(found) == question.limit:
            break
        candidate = candidates[fused.row]
        evidence = facts.evidence(candidate)
        value = round(score(evidence, embedder if candidate.cosine is not None else None), 4)
        if value < question.min_score:
            continue
        record = facts.record(candidate)
        key = (candidate.collection.id, record.id, record.digest)
        if key in seen:
            continue
        seen.add(key)
        found.append(
            ScoredRecord(
                record=record,
                stream=candidate.collection.stream,
                score=value,
                relevance=relevance(value),
                why=why(evidence, question.text),
                parts=Parts(
                    words=round(fused.words, 4),
                    words_rank=ranks[0].get(fused.row),
                    matched=evidence.matched,
                    asked=evidence.asked,
                    coverage=round(evidence.coverage, 4),
                    meaning=None if candidate.cosine is None else round(candidate.cosine, 4),
                    meaning_rank=ranks[1].get(fused.row),
                    mixed=round(fused.mixed, 4),
                    score=value,
                ),
            )
        )
    return found


class _QuestionWords:
    """What is known of the question's words and of its candidates, asked for once."""

    def __init__(self, view: IndexView, asked: Sequence[str], only: Only | None) -> None:
        self._view = view
        self._asked = asked
        self._only = only
        self._matches: dict[int, WordMatches] = {}
        self._passages: dict[tuple[int, int], StoredPassage] = {}
        self.coverage = 0.0

    def by_words(self, collection: Collection) -> dict[int, float]:
        """The passages of this collection that fit best by their words, and how well."""
        matches = self._words(collection)
        ranked = telling(self._asked, matches.frequencies, matches.passages)
        rows = self._view.words(collection, ranked, _CANDIDATES, only=self._only).scores
        found = self._view.fetch(collection, rows)
        self._passages.update(((collection.id, row), passage) for row, passage in found.items())
        fields = {row: passage.fields for row, passage in found.items()}
        weighed = weigh_words(
            self._asked, fields, frequencies=matches.frequencies, count=matches.passages
        )
        self.coverage = max(self.coverage, weighed.coverage)
        return weighed.weights

    def average_words(self) -> float:
        """How long the passages are that the words found."""
        lengths = [words_of(passage.fields) for passage in self._passages.values()]
        return sum(lengths) / len(lengths) if lengths else 0.0

    def evidence(self, candidate: _Candidate) -> Evidence:
        matches = self._words(candidate.collection)
        passage = self._passages[candidate.collection.id, candidate.row]
        return weigh(
            self._asked,
            frozenset(" ".join(passage.fields).split()),
            frequencies=matches.frequencies,
            count=matches.passages,
            cosine=candidate.cosine,
        )

    def _words(self, collection: Collection) -> WordMatches:
        if collection.id not in self._matches:
            self._matches[collection.id] = self._view.words(collection, self._asked, 0)
        return self._matches[collection.id]

    def fetch_records(self, candidates: Iterable[_Candidate]) -> None:
        """Fetch what will be looked at one by one: a server is better asked once."""
        rows: dict[Collection, list[int]] = {}
        for candidate in candidates:
            passage = self._passages.get((candidate.collection.id, candidate.row))
            if passage is None or passage.record is None:
                rows.setdefault(candidate.collection, []).append(candidate.row)
        for collection, some in rows.items():
            found = self._view.fetch(collection, some, records=True)
            self._passages.update(((collection.id, row), one) for row, one in found.items())

    def record(self, candidate: _Candidate) -> Record:
        record = self._passages[candidate.collection.id, candidate.row].record
        assert record is not None
        return record


def _ranks(values: dict[int, float]) -> dict[int, int]:
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
            parts = Parts(
                words=round(evidence.coverage, 4),
                words_rank=None,
                matched=evidence.matched,
                asked=evidence.asked,
                coverage=round(evidence.coverage, 4),
                meaning=None,
                meaning_rank=None,
                mixed=value,
                score=value,
            )
            found.append(
                ScoredRecord(
                    record, stream, value, relevance(value), why(evidence, question.text), parts
                )
            )
    found.sort(key=lambda hit: (-hit.score, hit.record.id))
    best = {(hit.record.id, hit.record.digest): hit for hit in reversed(found)}
    return sorted(best.values(), key=lambda hit: (-hit.score, hit.record.id))[: question.limit]
