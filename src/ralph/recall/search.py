"""A search: find candidates by words and by meaning, order them, and score the whole list.

    find (each memory) -> mix words and meaning -> lift -> fold near-twins -> score -> floor, limit

`find` and `find_plainly` collect the candidates of one memory, with and without an index.
`conclude` does the rest for the candidates of all memories together, so that their scores are
comparable.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.index import Collection, Cut, IndexView, NearPassages, Only, fits
from ralph.recall import KINDS, WRITTEN, Hit, Parts, Twins
from ralph.recall.score import (
    BEST,
    ENOUGH_NATS,
    FLOOR,
    LISTED,
    NEXT,
    Clues,
    Evidence,
    Outstanding,
    Weighed,
    best_by_both,
    best_places,
    is_below_floor,
    joined,
    meaning_share,
    mix,
    pointedness,
    rarity,
    relevance,
    scores,
    taken,
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
# How many passages of a memory are compared, unless a caller wants more.
_DEPTH = 60
# How many of the nearest cosines are kept, and after how many of them the crowd begins.
_NEARBY, _CROWD = 40, 20


class Question(msgspec.Struct, frozen=True):
    """A question: its text, how many answers to return, their minimum score, and filters.

    `days` is the start and end of the days that the question names; `rest` is the question without
    them. Answers must be `within` these two times. With `every`, near-twins are kept, to count how
    often something happened; otherwise they are folded into one hit. It was `asked_at` this time of
    `time.monotonic()`; answers have everything written before, so questions that waited meanwhile
    need only one look at the journals. `ahead` are the texts of the next questions. `vectors` has,
    for each embedder, by its identity, the vectors of all of them.
    """

    text: str
    limit: int
    min_score: float
    only: Only = None
    days: tuple[str, str] | None = None
    rest: str = ""
    within: tuple[str, str] | None = None
    every: bool = False
    asked_at: float = math.inf
    ahead: tuple[str, ...] = ()
    vectors: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def lists_days(self) -> bool:
        """Whether the question names only days, and asks for everything from them."""
        return self.days is not None and not self.rest

    def allows(self, record: Record) -> bool:
        """Whether the record is in the allowed time."""
        return self.within is None or self.within[0] <= record.at < self.within[1]

    def asked(self) -> list[str]:
        """Return the words an answer should contain; the words for a time are not among them."""
        return query_tokens(self.rest if self.days else self.text)


class Candidate(msgspec.Struct, dict=True, eq=False):
    """A record that may be the answer, found by one of its passages.

    Candidates are ordered by `value`: words and meaning combined, 0-1, then changed by a lift. A
    lift may also set `hit`, to show another record instead of this one.
    """

    record: Record
    stream: str
    text: PassageWords
    # Its row in the memory's table of words; -1 if it was found only by meaning.
    held: int
    words: float
    cosine: float | None
    read: Callable[[Candidate], Hit] | None = None
    value: float = 0.0
    in_time: bool = False
    rating: int = 0

    @functools.cached_property
    def hit(self) -> Hit:
        """The record as an answer without a score; read when first needed."""
        assert self.read is not None
        return self.read(self)


# Changes the values of a memory's candidates, leaves some out, or replaces their hits by others.
# The best value is restored afterwards, so that a lift gives no memory an advantage over others.
# A lift must not refer to its `Found`, or only the garbage collector could free them both: it is
# given `Found.words_held`.
WordsHeld = Callable[[Iterable[Candidate]], float]
Lift = Callable[[list[Candidate], WordsHeld], list[Candidate]]


class Found(msgspec.Struct, dict=True):
    """What one memory found for a question; `embedder` is None if it searched only by words.

    `days` are the days that the question names, as this memory understands it; `in_days` of its
    `dated` records are in them. `least` is how likely an answer must be for the whole list to be
    shown.
    """

    asked: Sequence[str] = ()
    candidates: list[Candidate] = []
    embedder: str | None = None
    # How many passages were searched, and how many of them have each word of the question.
    count: int = 0
    frequencies: Counter[str] = msgspec.field(default_factory=Counter)
    by_words: Weighed = Weighed()
    # How often each word of the question (a column) occurs in each passage (a row), and its size.
    times: Any = ()
    sizes: Any = ()
    # The cosines of the nearest passages, the largest first.
    cosines: list[float] = []
    days: tuple[str, str] | None = None
    in_days: int = 0
    dated: int = 0
    lift: Lift | None = None
    least: float = LISTED
    notes: tuple[str, ...] = ()

    def weigh(self, times: Sequence[Any], sizes: Sequence[Any]) -> list[float]:
        """Return the weights of passages by words, given in several tables: how often each word
        occurs in them, and their sizes."""
        self.times, self.sizes = joined(times, len(self.asked)), joined(sizes, 2)
        self.by_words = weigh_words(
            self.asked, self.times, self.sizes, frequencies=self.frequencies, count=self.count
        )
        return self.by_words.weights

    def words_held(self, candidates: Iterable[Candidate]) -> float:
        """Return the total weight of the question's words that occur in any of these candidates."""
        texts = "".join([one.text.padded for one in candidates])
        return sum([weight for needle, weight in self._needles if needle in texts])

    @functools.cached_property
    def rarities(self) -> dict[str, float]:
        """The weight of each word of the question."""
        return {one: rarity(one, self.frequencies[one], self.count) for one in self.asked}

    @functools.cached_property
    def _needles(self) -> list[tuple[str, float]]:
        """Each word of the question as it stands in a padded text, and its weight."""
        return [(f" {word} ", weight) for word, weight in self.rarities.items()]


def find(
    view: IndexView,
    collections: Sequence[Collection],
    question: Question,
    *,
    vectors: Sequence[Vectors],
    embedder: str,
    depth: int = _DEPTH,
) -> Found:
    """Return the candidates in these collections, from about `depth` passages.

    `vectors` are those of the question and of the next questions; without one, and in a collection
    with another embedder, only words count.
    """
    asked, most = query_tokens(question.text), max(depth, 4 * question.limit)
    # A collection has at most this many candidates by words, and as many by meaning.
    each = min(most, _CANDIDATES)
    found = Found(question.asked(), [], days=question.days)
    times: list[Any] = []
    sizes: list[Any] = []
    matched: list[list[int]] = []
    timed: list[set[int]] = []
    for collection in collections:
        matches = view.words(collection, asked, each, only=question.only)
        found.count += matches.passages
        found.frequencies.update(matches.frequencies)
        rows, dated = [*matches.scores], list[int]()
        for span in filter(None, () if question.only else (question.days, question.within)):
            of_days = view.dated(collection, *span, _CANDIDATES)
            if span is question.days:
                found.in_days += of_days.records
                found.dated += of_days.among
            dated += of_days.rows
        rows = list(dict.fromkeys([*rows, *dated])) if dated else rows
        if matches.times is None or found.asked != asked or len(rows) > len(matches.times):
            texts = [one.words for one in view.fetch(collection, rows).values()]
            times.append([one.times(found.asked) for one in texts])
            sizes.append([one.size for one in texts])
        else:
            times.append(matches.times)
            sizes.append(matches.sizes)
        matched.append(rows)
        timed.append({*dated})
    weights = [*found.weigh(times, sizes), 0.0]
    # Of each passage: its collection, its row there, and its place in the table (-1: in none).
    passages: list[tuple[int, int, int]] = []
    cosines: list[Any] = []
    first = 0
    for n, (collection, rows) in enumerate(zip(collections, matched, strict=True)):
        near = NearPassages(rows, [math.nan] * len(rows))
        if vectors and collection.manifest.embedder == embedder:
            # Passages without a word of the question are candidates only if among the nearest.
            how: dict[str, Any] = {"also": rows, "only": question.only, "ahead": vectors[1:]}
            [near] = view.nearest(collection, vectors[0][None, :], each, **how)
            found.embedder = embedder
        cosines.append(near.cosines)
        passages += zip(itertools.repeat(n), rows, range(first, first + len(rows)))
        passages += [(n, row, -1) for row in near.rows[len(rows) :]]
        first += len(rows)
    words = [weights[place] for _, _, place in passages]
    near_by = [math.nan] * len(words)
    if found.embedder is None:
        best = best_places(words, most)
    else:
        best, near_by = best_by_both(words, cosines, meaning_share(found.by_words), most)
        found.cosines = sorted([x for x in near_by if not math.isnan(x)], reverse=True)[:_NEARBY]
    if any(timed):
        best += [at for at, (n, row, _) in enumerate(passages) if row in timed[n]]
    chosen: list[dict[int, tuple[int, float, float | None]]] = [{} for _ in collections]
    for at in best:
        n, row, place = passages[at]
        chosen[n][row] = place, words[at], None if math.isnan(near_by[at]) else near_by[at]
    for collection, mine in zip(collections, chosen, strict=True):
        found.candidates += [
            Candidate(passage.record, collection.stream, passage.words, *mine[row])
            for row, passage in view.fetch(collection, mine, records=True).items()
            if passage.record is not None
        ]
    if question.within is not None:
        found.candidates = [one for one in found.candidates if question.allows(one.record)]
    return found


def find_plainly(
    records: Iterable[tuple[str, Record]], cuts: Mapping[str, Cut], question: Question
) -> Found:
    """Return candidates by words, from records with their streams. Slower, but needs no index."""
    found = Found(question.asked(), [], days=question.days)
    wanted, frequencies = dict.fromkeys(query_tokens(question.text)), found.frequencies
    passages: list[tuple[str, Record, PassageWords]] = []
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
            shared = [word for word in wanted if f" {word} " in words.padded]
            count += 1
            frequencies.update(shared)
            if shared or timely:
                passages.append((stream, record, words))
    found.count, found.in_days, found.dated = count, in_days, dated
    texts = [words for _, _, words in passages]
    sizes = [one.size for one in texts]
    weights = found.weigh([[one.times(found.asked) for one in texts]], [sizes])
    found.candidates = [
        Candidate(record, stream, words, row, weight, None)
        for row, ((stream, record, words), weight) in enumerate(zip(passages, weights, strict=True))
    ]
    return found


# -- From candidates to hits.


# The lift for records in the days that a question names: without other words, and with enough.
_TIME, _TIME_BESIDE_WORDS = 1.0, 0.3
# The weight of those days as a word of the question: at least this, at most that, and more if few
# records are in them.
_TIME_NATS, _MOST_TIME_NATS = 5.0, 10.0
# The share of its value that each further matching passage of a record adds, and how many count.
_PER_PASSAGE, _MOST_PASSAGES = 0.1, 2
# A record that a person wrote ranks this much above an extracted one that matches as well.
_BY_PERSON = 1.05
# The score of a record if the question asks only for its day.
_OF_DAYS = 0.75
# Scoring needs a few more candidates than are shown.
_SPARE = 6


class Ranking(msgspec.Struct):
    """Candidates in order, a few more than wanted, and the inputs for the scores of the wanted."""

    chosen: list[Candidate]
    evidence: list[Evidence]
    count: int
    pointed: float
    embedder: str | None
    crowd: float
    least: float
    twins: Twins | None
    # For all candidates: the weights of their words, and their cosines; best last.
    words: list[float]
    cosines: list[float]
    timed: bool
    lists_days: bool

    @property
    def values(self) -> list[float]:
        """The values that the candidates are ordered by."""
        return [one.value for one in self.chosen]

    def scores(self) -> list[float]:
        """Return the score of each candidate that may be shown."""
        if self.lists_days:
            return [_OF_DAYS] * len(self.evidence)
        return scores(self.clues(), self.values, self.embedder is not None, self.least)

    def clues(self) -> Clues:
        """Return the inputs for the scores."""
        places = range(len(self.chosen))
        near_first = [not n or (self.twins is not None and self.twins.near(n)) for n in places]
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
    """Return the best records of these memories, in order, folded, none below the floor."""
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
    """Return the candidates of these memories as one list: mixed, lifted, near-twins folded.

    `fits` tells which hits may be shown. Returns None if there are no candidates.
    """
    if question.lists_days:
        for part in parts:
            part.candidates = [one for one in part.candidates if _of_days(one, part.days)]
    parts = [part for part in parts if part.candidates]
    candidates = [one for part in parts for one in part.candidates]
    if not candidates:
        return None
    whole = _pooled(parts)
    words, cosines = _mix(candidates, whole.by_words)
    time_weight = _weigh_time(parts, whole.by_words.nats)
    order: Iterable[Candidate] = _best_first([one for part in parts for one in _lifted(part)])
    if question.lists_days:
        order = sorted(order, key=lambda one: one.record.at, reverse=True)
    chosen, twins = _choose(order, question, fits, whole.embedder)
    crowd = whole.cosines[_CROWD:] or whole.cosines[-1:]
    return Ranking(
        chosen,
        [_evidence(one, whole, time_weight) for one in chosen[: max(question.limit, BEST)]],
        count=whole.count,
        pointed=pointedness(whole.asked, time_weight),
        embedder=whole.embedder,
        crowd=sum(crowd) / (len(crowd) or 1),
        least=max(part.least for part in parts),
        twins=None if question.every else twins,
        words=words,
        cosines=cosines,
        timed=time_weight > 0.0,
        lists_days=question.lists_days,
    )


def _choose(
    order: Iterable[Candidate],
    question: Question,
    fits: Callable[[Hit], bool] | None,
    embedder: str | None,
) -> tuple[list[Candidate], Twins]:
    """Return the candidates that may be shown, and those after them that their scores depend on."""
    twins, chosen = Twins(), list[Candidate]()
    most = wanted = question.limit + _SPARE
    rivals = 0  # how many say something else than the first
    is_cut = question.min_score >= FLOOR and not question.lists_days
    for one in order:
        if len(chosen) == most or (len(chosen) >= wanted and rivals >= NEXT):
            break
        if fits is not None and not fits(one.hit):
            continue
        if not question.every and twins.fold(one.hit):
            continue
        place = len(chosen)
        chosen.append(one)
        if place and (question.every or not twins.near(place)):
            rivals += 1
            share = one.value / (chosen[0].value or 1e-9)
            if is_cut and is_below_floor(share, one.cosine, embedder):
                wanted = min(wanted, place + NEXT)
    return chosen, twins


def _hit(ranking: Ranking, place: int, value: float, question: Question) -> Hit:
    one, known = ranking.chosen[place], ranking.evidence[place]
    out = Outstanding.of(ranking.values[place:])
    written = spellings(question.text)
    parts = Parts(
        words=round(one.words / ranking.words[-1], 4) if one.words else 0.0,
        words_rank=_rank(ranking.words, one.words) if one.words else None,
        matched=tuple(written.get(token, token) for token in known.matched),
        asked=known.asked,
        coverage=round(known.coverage, 4),
        meaning=None if one.cosine is None else round(one.cosine, 4),
        meaning_rank=None if one.cosine is None else _rank(ranking.cosines, one.cosine),
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


def _rank(values: Sequence[float], value: float) -> int:
    """Return the rank of a value, 1 for the best; equal values have the same rank."""
    return len(values) - bisect.bisect_right(values, value) + 1


def _pooled(parts: Sequence[Found]) -> Found:
    """Return the facts of all memories together; weigh their words again, on one scale."""
    if len(parts) == 1:
        return parts[0]
    whole = Found(parts[0].asked)
    whole.embedder = next((part.embedder for part in parts if part.embedder), None)
    for part in parts:
        whole.count += part.count
        whole.frequencies.update(part.frequencies)
        whole.cosines = sorted([*whole.cosines, *part.cosines], reverse=True)[:_NEARBY]
    by_words: list[Candidate] = []
    times: list[Any] = []
    sizes: list[Any] = []
    for part in parts:
        mine = [one for one in part.candidates if one.words]
        held = [one.held for one in mine]
        times.append(taken(part.times, held))
        sizes.append(taken(part.sizes, held))
        by_words += mine
    weights = whole.weigh(times, sizes)
    for one, weight in zip(by_words, weights, strict=True):
        one.words = weight
    return whole


def _of_days(one: Candidate, days: tuple[str, str] | None) -> bool:
    """Whether the record is of a daily kind, and from these days."""
    kind = KINDS.get(one.record.kind)
    return bool(kind and kind.daily and days and days[0] <= one.record.at < days[1])


def _mix(candidates: Sequence[Candidate], by_words: Weighed) -> tuple[list[float], list[float]]:
    """Set the value of each candidate; return the weights of words and the cosines, best last."""
    words, cosines = [one.words for one in candidates], [one.cosine for one in candidates]
    values = mix(words, cosines, meaning_share(by_words))
    for one, value in zip(candidates, values, strict=True):
        one.value = value
    return sorted(filter(None, words)), sorted([one for one in cosines if one is not None])


def _weigh_time(parts: Sequence[Found], nats: float) -> float:
    """Lift candidates in the days that the question names.

    Return the weight of these days as a word of the question: the fewer records are in them, the
    more.
    """
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


_value = operator.attrgetter("value")


def _lifted(part: Found) -> list[Candidate]:
    """Return the best passage of each record of one memory, after the lift."""
    best = sorted(part.candidates, key=_value, reverse=True)
    if len({one.record.id for one in best}) < len(best):
        by_record: dict[tuple[str, str, bytes], list[Candidate]] = {}
        for one in best:
            by_record.setdefault((one.stream, one.record.id, one.record.body), []).append(one)
        best = [same[0] for same in by_record.values()]
        for same in by_record.values():
            for other in same[1 : _MOST_PASSAGES + 1]:
                same[0].value += _PER_PASSAGE * other.value
    if part.lift is None or not best:
        return best
    before = {id(one): one.value for one in best}
    lifted = part.lift(best, part.words_held)
    most = max([before[id(one)] for one in lifted], default=0.0)
    scale = most / (max(map(_value, lifted), default=0.0) or 1.0)
    for one in lifted:
        one.value *= scale
    return lifted


def _best_first(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield candidates in order. Whether a person wrote a record is checked only when its turn may
    have come, because the record must be read for that."""
    ready: list[tuple[float, int, str, bytes, int, Candidate]] = []
    # Upper bounds: as if a person had written every record that a person can write.
    hopes = [one.value * (_BY_PERSON if one.record.kind in WRITTEN else 1.0) for one in candidates]
    for n in sorted(range(len(hopes)), key=hopes.__getitem__, reverse=True):
        while ready and -ready[0][0] > hopes[n]:
            yield heapq.heappop(ready)[-1]
        one = candidates[n]
        if one.record.kind in WRITTEN and KINDS[one.record.kind].by_person(one.hit.record):
            one.value *= _BY_PERSON
        # Among equals the newest comes first. Index rows cannot decide: a rebuild changes them.
        record = one.record
        heapq.heappush(ready, (-one.value, -record.number, record.id, record.body, n, one))
    while ready:
        yield heapq.heappop(ready)[-1]


def _evidence(one: Candidate, whole: Found, time_weight: float) -> Evidence:
    return weigh(
        whole.rarities,
        one.text,
        cosine=one.cosine,
        time_weight=time_weight,
        in_time=one.in_time,
    )
