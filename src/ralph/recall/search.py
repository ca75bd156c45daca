"""A search: candidates by words and by meaning, one order, one score for the whole list.

    find (each memory) -> mix words and meaning -> lift -> fold near-twins -> score -> floor, limit

`find` gathers the candidates of one memory, with an index or without. `conclude` does the rest over
the candidates of all memories that were asked, so that their scores mean the same.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.index import Collection, Cut, IndexView, Only
from ralph.index.matrix import fits
from ralph.recall import KINDS, WRITTEN, Hit, Parts, Twins
from ralph.recall.score import (
    ENOUGH_NATS,
    LISTED,
    Clues,
    Evidence,
    HeldWords,
    Outstanding,
    Weighed,
    fuse,
    meaning_share,
    mix,
    pointedness,
    relevance,
    scores,
    weigh,
    weigh_words,
    why,
)
from ralph.records import Record
from ralph.text.tokens import PassageWords, query_tokens, spellings, tokens

if TYPE_CHECKING:
    from ralph.index import Vectors


# -- Candidates.


_CANDIDATES = 100
# So many passages of a memory are weighed against each other, if nobody asks for more.
_DEPTH = 60
# From so many passages on, a word that so large a share of them holds is not ranked by: it weighs
# next to nothing, and ranking by it is most of the time a search takes.
_LARGE = 1000
_COMMON_SHARE = 0.15
# How many of the nearest passages are looked at, and after how many of them the crowd begins.
_NEARBY, _CROWD = 40, 20


class Question(msgspec.Struct, frozen=True):
    """What is asked, how many answers are wanted, how sure they must be, and of what.

    `days` are the moments in which the days begin and end that the question names; `rest` is what
    it asks besides. Only what lies `within` two moments is an answer. `every` hit is wanted where
    it counts how often something was met: else near-twins are folded into one. `vectors` are the
    text's, by the identity of the embedder.
    """

    text: str
    limit: int
    min_score: float
    only: Only = None
    days: tuple[str, str] | None = None
    rest: str = ""
    within: tuple[str, str] | None = None
    every: bool = False
    vectors: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def lists_days(self) -> bool:
        """Whether it asks for nothing but what there is of some days."""
        return self.days is not None and not self.rest

    def allows(self, record: Record) -> bool:
        """Whether the record lies in the time that was given."""
        return self.within is None or self.within[0] <= record.at < self.within[1]

    def asked(self) -> list[str]:
        """The words an answer should hold: a time is no word that it could lack."""
        return query_tokens(self.rest if self.days else self.text)


class Candidate(msgspec.Struct, dict=True, eq=False):
    """A record that may be the answer, found by one of its passages.

    `value` orders the candidates: words and meaning mixed, 0-1, and then what a lift makes of it. A
    lift may also set `hit`, where another record is shown in this one's place.
    """

    record: Record
    stream: str
    text: PassageWords
    # The words of the question that it holds; None where it was found by its meaning alone.
    held: HeldWords | None
    words: float
    cosine: float | None
    read: Callable[[Candidate], Hit] | None = None
    value: float = 0.0
    in_time: bool = False
    rating: int = 0

    @functools.cached_property
    def hit(self) -> Hit:
        """The record as an answer, without a score; read when it is first needed."""
        assert self.read is not None
        return self.read(self)


# Changes the values of a memory's candidates, leaves some out, or shows other records in their
# place. The best value of a memory stays as it was, so that no memory gains by its lift.
Lift = Callable[[list[Candidate]], list[Candidate]]


class Found(msgspec.Struct):
    """What one memory has on a question; `embedder` is None where it was searched by words alone.

    `days` are those that the question names, as far as this memory knows; `in_days` of its `dated`
    records are of these days. `least` is how likely an answer must be before a list is shown for
    the list's sake.
    """

    asked: Sequence[str] = ()
    candidates: list[Candidate] = []
    embedder: str | None = None
    # The passages searched, and how many of them hold each word of the question.
    count: int = 0
    frequencies: Counter[str] = msgspec.field(default_factory=Counter)
    by_words: Weighed = Weighed({})
    # The cosines of the nearest passages, the largest first.
    cosines: list[float] = []
    days: tuple[str, str] | None = None
    in_days: int = 0
    dated: int = 0
    lift: Lift | None = None
    least: float = LISTED
    notes: tuple[str, ...] = ()

    def weigh(self, held: Mapping[Any, HeldWords]) -> dict[Any, float]:
        """How well these passages fit by their words."""
        self.by_words = weigh_words(
            self.asked, held, frequencies=self.frequencies, count=self.count
        )
        return self.by_words.weights


def telling(asked: Sequence[str], frequencies: Mapping[str, int], count: int) -> list[str]:
    """The words to rank by: in a large collection those that many passages hold only cost."""
    if count < _LARGE:
        return list(asked)
    rare = [token for token in asked if frequencies[token] <= count * _COMMON_SHARE]
    return rare or list(asked)


# The id of a collection and the number of a passage in it.
_Place = tuple[int, int]


def find(
    view: IndexView,
    collections: Sequence[Collection],
    question: Question,
    *,
    vector: Vectors | None,
    embedder: str,
    depth: int = _DEPTH,
) -> Found:
    """The candidates that these collections have, at most about so many passages.

    A collection built with another embedder than the question's vector is searched by words.
    """
    asked, most = query_tokens(question.text), max(depth, 4 * question.limit)
    found = Found(question.asked(), [], days=question.days)
    by_id = {one.id: one for one in collections}
    held: dict[_Place, HeldWords] = {}
    also: dict[int, list[int]] = {}
    timed: list[_Place] = []
    for n, collection in by_id.items():
        facts = view.words(collection, asked, 0)
        found.count += facts.passages
        found.frequencies.update(facts.frequencies)
        ranked = telling(asked, facts.frequencies, facts.passages)
        by_words = view.words(collection, ranked, _CANDIDATES, only=question.only)
        matches = [*by_words.scores]
        for span in filter(None, () if question.only else (question.days, question.within)):
            of_days = view.dated(collection, *span, _CANDIDATES)
            if span is question.days:
                found.in_days += of_days.records
                found.dated += of_days.among
            matches = list(dict.fromkeys([*matches, *of_days.rows]))
            timed += [(n, row) for row in of_days.rows]
        common = [token for token in found.asked if token not in ranked]
        known = {} if question.days else by_words.times  # a day's words are not asked for
        for row, one in view.fetch(collection, matches).items():
            times = known.get(row)
            left = found.asked if times is None else common
            held[n, row] = HeldWords((times or []) + one.words.times(left), one.words)
        also[n] = matches
    words = {place: weight for place, weight in found.weigh(held).items() if weight}
    meaning: dict[_Place, float] = {}
    nearest = min(most, _CANDIDATES)
    for n, collection in by_id.items():
        if vector is not None and collection.manifest.embedder == embedder:
            # What holds no word of the question is no candidate unless it is among the nearest.
            [near] = view.nearest(
                collection, vector[None, :], nearest, also=also[n], only=question.only
            )
            meaning |= {(n, row): cosine for row, cosine in near.items()}
            found.embedder = embedder
    found.cosines = sorted(meaning.values(), reverse=True)[:_NEARBY]
    share = meaning_share(found.by_words)
    best = fuse(words, meaning, weight=share, most=most)
    for n, collection in by_id.items():
        rows = [row for m, row in dict.fromkeys([*best, *timed]) if m == n]
        for row, passage in view.fetch(collection, rows, records=True).items():
            assert passage.record is not None
            if not question.allows(passage.record):
                continue
            found.candidates.append(
                Candidate(
                    passage.record,
                    collection.stream,
                    passage.words,
                    held.get((n, row)),
                    words.get((n, row), 0.0),
                    meaning.get((n, row)),
                )
            )
    return found


def find_plainly(
    records: Iterable[tuple[str, Record]], cuts: Mapping[str, Cut], question: Question
) -> Found:
    """The candidates among records, each with its stream, by words: slower, and always there."""
    found = Found(question.asked(), [], days=question.days)
    wanted, frequencies = dict.fromkeys(query_tokens(question.text)), found.frequencies
    passages: list[tuple[str, Record]] = []
    held: dict[int, HeldWords] = {}
    count = in_days = dated = 0
    first, end = question.days or ("", "")
    for stream, record in records:
        if not question.allows(record):
            continue
        timely = first <= record.at < end
        in_days, dated = in_days + timely, dated + 1
        for passage in cuts[stream](record):
            if not fits(passage.facets, question.only):
                continue
            fields = (passage.title, passage.text, passage.places)
            words = PassageWords(*(" ".join(tokens(one)) for one in fields))
            shared = words.times(wanted)
            count += 1
            frequencies.update(word for word, _ in shared)
            if shared or timely:
                held[len(passages)] = HeldWords(words.times(found.asked), words)
                passages.append((stream, record))
    found.count, found.in_days, found.dated = count, in_days, dated
    weights = found.weigh(held)
    found.candidates = [
        Candidate(record, stream, held[row].of, held[row], weights[row], None)
        for row, (stream, record) in enumerate(passages)
    ]
    return found


# -- From candidates to hits.


# The time that a question names decides the more, the less the rest of the question says.
_TIME, _TIME_BESIDE_WORDS = 1.0, 0.3
# What being of those days weighs as a word of the question: at least, and by how few are.
_TIME_NATS, _MOST_TIME_NATS = 5.0, 10.0
# What each further passage of a record that matches adds, and how many of them count.
_PER_PASSAGE, _MOST_PASSAGES = 0.1, 2
# What a person wrote down stands this much above what was extracted and matches as well.
_BY_PERSON = 1.05
# How surely a record of a day is meant where the day is all that was asked for.
_OF_DAYS = 0.75
# The score needs a few more than are shown.
_SPARE = 6


class Ranking(msgspec.Struct):
    """Candidates in order, a few more than are wanted, and what their scores are made of."""

    chosen: list[Candidate]
    evidence: list[Evidence]
    count: int
    pointed: float
    embedder: str | None
    crowd: float
    least: float
    twins: Twins | None
    # What is shown of each stage: the best weight of words, and the ranks by words and by meaning.
    most_words: float
    ranks: tuple[dict[float, int], dict[float, int]]
    timed: bool
    lists_days: bool

    @property
    def values(self) -> list[float]:
        """What the candidates are ordered by."""
        return [one.value for one in self.chosen]

    def scores(self) -> list[float]:
        """The score of each candidate."""
        if self.lists_days:
            return [_OF_DAYS] * len(self.chosen)
        return scores(self.clues(), self.values, self.embedder is not None, self.least)

    def near(self, place: int) -> bool:
        """Whether the candidate at this place says what the first one does."""
        return self.twins is not None and self.twins.near(place)

    def clues(self) -> Clues:
        """What the scores are made of."""
        near_first = [place == 0 or self.near(place) for place in range(len(self.chosen))]
        return Clues.of(
            self.values,
            self.evidence,
            near_first,
            count=self.count,
            pointed=self.pointed,
            embedder=self.embedder,
            crowd=self.crowd,
        )


def conclude(
    question: Question, parts: Sequence[Found], fits: Callable[[Hit], bool] | None = None
) -> list[Hit]:
    """The best records of these memories, in order, near-twins folded, none under the floor."""
    ranking = rank(question, parts, fits)
    hits: list[Hit] = []
    if ranking is None:
        return hits
    for place, exact in enumerate(ranking.scores()):
        value = round(exact, 4)
        if len(hits) == question.limit or value < question.min_score:
            break
        hits.append(_hit(ranking, place, value, question))
    return hits


def rank(
    question: Question, parts: Sequence[Found], fits: Callable[[Hit], bool] | None = None
) -> Ranking | None:
    """The candidates of these memories as one list: mixed, lifted, near-twins folded.

    `fits` says what may be shown; None where there is nothing.
    """
    if question.lists_days:
        for part in parts:
            part.candidates = [one for one in part.candidates if _of_days(one, part.days)]
    parts = [part for part in parts if part.candidates]
    candidates = [one for part in parts for one in part.candidates]
    if not candidates:
        return None
    whole = _pooled(parts)
    ranks = _mix(candidates, whole.by_words)
    time_weight = _weigh_time(parts, whole.by_words.nats)
    order: Iterable[Candidate] = _best_first([one for part in parts for one in _lifted(part)])
    if question.lists_days:
        order = sorted(order, key=lambda one: one.record.at, reverse=True)
    twins, chosen = Twins(), list[Candidate]()
    for one in order:
        if len(chosen) == question.limit + _SPARE:
            break
        if fits is not None and not fits(one.hit):
            continue
        if question.every or not twins.fold(one.hit):
            chosen.append(one)
    crowd = whole.cosines[_CROWD:] or whole.cosines[-1:]
    return Ranking(
        chosen,
        [_evidence(one, whole, time_weight) for one in chosen],
        count=whole.count,
        pointed=pointedness(whole.asked, time_weight),
        embedder=whole.embedder,
        crowd=sum(crowd) / (len(crowd) or 1),
        least=max(part.least for part in parts),
        twins=None if question.every else twins,
        most_words=max(one.words for one in candidates) or 1.0,
        ranks=ranks,
        timed=time_weight > 0.0,
        lists_days=question.lists_days,
    )


def _hit(ranking: Ranking, place: int, value: float, question: Question) -> Hit:
    one, known = ranking.chosen[place], ranking.evidence[place]
    out = Outstanding.of(ranking.values[place:])
    by_words, by_meaning = ranking.ranks
    written = spellings(question.text)
    parts = Parts(
        words=round(one.words / ranking.most_words, 4),
        words_rank=by_words.get(one.words),
        matched=tuple(written.get(token, token) for token in known.matched),
        asked=known.asked,
        coverage=round(known.coverage, 4),
        meaning=None if one.cosine is None else round(one.cosine, 4),
        meaning_rank=None if one.cosine is None else by_meaning.get(one.cosine),
        mixed=round(one.value, 4),
        score=value,
        gap=round(out.gap, 4),
        rest=round(out.rest, 4),
        in_time=one.in_time if ranking.timed else None,
        rating=one.rating,
    )
    return msgspec.structs.replace(
        one.hit,
        score=value,
        relevance=relevance(value),
        why=why(known, question.text),
        parts=parts,
        like=() if ranking.twins is None else ranking.twins.like(place),
    )


def _pooled(parts: Sequence[Found]) -> Found:
    """What is known of all memories together; their words are weighed anew, on one scale."""
    if len(parts) == 1:
        return parts[0]
    whole = Found(parts[0].asked)
    whole.embedder = next((part.embedder for part in parts if part.embedder), None)
    for part in parts:
        whole.count += part.count
        whole.frequencies.update(part.frequencies)
        whole.cosines = sorted([*whole.cosines, *part.cosines], reverse=True)[:_NEARBY]
    by_words = [one for part in parts for one in part.candidates if one.words]
    held = {n: one.held for n, one in enumerate(by_words) if one.held}
    for place, weight in whole.weigh(held).items():
        by_words[place].words = weight
    return whole


def _of_days(one: Candidate, days: tuple[str, str] | None) -> bool:
    """Whether it is work of these days."""
    kind = KINDS.get(one.record.kind)
    return bool(kind and kind.daily and days and days[0] <= one.record.at < days[1])


def _mix(
    candidates: Sequence[Candidate], by_words: Weighed
) -> tuple[dict[float, int], dict[float, int]]:
    """Give each candidate its value; returns the ranks by words and by meaning."""
    words = {row: one.words for row, one in enumerate(candidates) if one.words}
    meaning = {row: one.cosine for row, one in enumerate(candidates) if one.cosine is not None}
    for row, value in mix(words, meaning, meaning_share(by_words)).items():
        candidates[row].value = value
    return _ranks(words.values()), _ranks(meaning.values())


def _weigh_time(parts: Sequence[Found], nats: float) -> float:
    """Lift what lies in the days that the question names; returns what they weigh as a word of it:
    the more, the fewer lie in them."""
    timed = [(one, part.days) for part in parts if part.days for one in part.candidates]
    for one, (first, end) in timed:
        one.in_time = first <= one.record.at < end
    share = sum(part.in_days for part in parts) / (sum(part.dated for part in parts) or 1)
    if not 0.0 < share < 1.0:
        return 0.0
    lift = _TIME - (_TIME - _TIME_BESIDE_WORDS) * min(1.0, nats / ENOUGH_NATS)
    for one, _ in timed:
        one.value += lift * one.in_time
    return min(_MOST_TIME_NATS, _TIME_NATS - math.log(share))


def _lifted(part: Found) -> list[Candidate]:
    """The records of one memory by their best passage, after its lift."""
    by_record: dict[tuple[str, str, bytes], list[Candidate]] = {}
    for one in sorted(part.candidates, key=lambda one: -one.value):
        by_record.setdefault((one.stream, one.record.id, one.record.body), []).append(one)
    best: list[Candidate] = []
    for one, *others in by_record.values():
        one.value += _PER_PASSAGE * sum(other.value for other in others[:_MOST_PASSAGES])
        best.append(one)
    if part.lift is None or not best:
        return best
    before = {id(one): one.value for one in best}
    lifted = part.lift(best)
    most = max((before[id(one)] for one in lifted), default=0.0)
    scale = most / (max((one.value for one in lifted), default=0.0) or 1.0)
    for one in lifted:
        one.value *= scale
    return lifted


def _best_first(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """In their order. Who wrote a record is looked up when its turn may have come: it is read for
    that."""
    # At first as if a person had written everything that a person may have.
    waiting = [
        (_order(one, _BY_PERSON if one.record.kind in WRITTEN else 1.0), n, one)
        for n, one in enumerate(candidates)
    ]
    heapq.heapify(waiting)
    while waiting:
        _, n, one = heapq.heappop(waiting)
        if one.record.kind in WRITTEN and n >= 0:
            if KINDS[one.record.kind].by_person(one.hit.record):
                one.value *= _BY_PERSON
            heapq.heappush(waiting, (_order(one), -1 - n, one))
        else:
            yield one


def _order(one: Candidate, lift: float = 1.0) -> tuple[float, int, str, bytes]:
    """Best first, the newest first among equals: rows are numbered anew by every rebuild."""
    return -lift * one.value, -one.record.number, one.record.id, one.record.body


def _evidence(one: Candidate, whole: Found, time_weight: float) -> Evidence:
    return weigh(
        whole.asked,
        frozenset(one.text.padded.split()),
        frequencies=whole.frequencies,
        count=whole.count,
        cosine=one.cosine,
        time_weight=time_weight,
        in_time=one.in_time,
    )


def _ranks(values: Iterable[float]) -> dict[float, int]:
    """The place of each value among all, the same for equal ones."""
    first: dict[float, int] = {}
    for rank, value in enumerate(sorted(values, reverse=True), 1):
        first.setdefault(value, rank)
    return first
