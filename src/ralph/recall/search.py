"""A search: find candidates by words and by meaning, judge them, and order them.

    find -> mix words and meaning -> judge relevance -> lift      (each memory by itself)
    merge -> fold near-twins -> each conversation once -> floor, limit

`find` and `find_plainly` collect the candidates of one memory, with and without an index. `judge`
gives each of them its relevance. `conclude` merges the memories. A memory is judged by itself, so a
record has the same relevance whatever else is searched with it.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.index import Collection, Cut, IndexView, NearPassages, Only, fits
from ralph.recall import Hit, Parts, Twins
from ralph.recall.kinds import KINDS, WRITTEN
from ralph.recall.score import (
    ENOUGH_NEW_NATS,
    FLOOR,
    Asked,
    Evidence,
    answered_by,
    best_two,
    evidence_in_order,
    most_relevance,
    new_nats,
    own_relevance,
    relevance,
    relevance_word,
    talk_relevance,
    what_the_answer_adds,
    why,
)
from ralph.recall.words import (
    ENOUGH_NATS,
    Weighed,
    best_by_both,
    best_places,
    joined,
    meaning_share,
    mix,
    rarity,
    weigh_words,
)
from ralph.records import Record
from ralph.records.conversation import EXCHANGE, SUMMARY
from ralph.text.questions import denies, is_question, is_yes_or_no, question_and_rest
from ralph.text.tokens import PassageWords, query_tokens, spellings, tokens

if TYPE_CHECKING:
    from ralph.index import Vectors


# -- Candidates.


_CANDIDATES = 100
# How many passages of a memory are compared, unless a caller wants more.
PASSAGES_COMPARED = 60


class Question(msgspec.Struct, frozen=True):
    """A question: its text, how many answers to return, their minimum score, and filters.

    `days` is the start and end of the days that the question names; `rest` is the question without
    them. Answers must be `within` these two times. With `every`, near-twins are kept, to count how
    often something happened; otherwise they are folded into one hit. With `spread`, a conversation
    appears once before it is repeated. `vectors` has its vector for each embedder, by its identity.
    """

    text: str
    limit: int
    min_score: float
    only: Only = None
    days: tuple[str, str] | None = None
    rest: str = ""
    within: tuple[str, str] | None = None
    every: bool = False
    spread: bool = False
    vectors: dict[str, Vectors] = msgspec.field(default_factory=dict)

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


# What was said, or what sums it up.
_TALK = frozenset({EXCHANGE, SUMMARY})


class Candidate(msgspec.Struct, dict=True, eq=False):
    """A record that may be the answer, found by one of its passages.

    `value` combines words and meaning, 0-1. `relevance` is judged from it and from the candidate's
    own evidence. `rank_value` is the value after a lift: it decides the order. A lift may also set
    `hit`, to show another record instead of this one, and `home`, its conversation.
    """

    record: Record
    stream: str
    text: PassageWords
    words: float
    cosine: float | None
    read: Callable[[Candidate], Hit] | None = None
    value: float = 0.0
    rank_value: float = 0.0
    in_time: bool = False
    rating: int = 0
    home: str = ""
    # What it needs to tell its relevance: the question, how many passages have its most frequent
    # word, what it adds and whether it may repeat the question, its value as a share of the best
    # one, how likely the list answers, and a relevance that needs no evidence.
    asked: Asked = Asked({})
    embedder: str | None = None
    crowd: int = 0
    adds: float = 1.0
    may_repeat: bool = False
    share: float = 1.0
    answered: float = 0.0
    fixed: float | None = None

    @functools.cached_property
    def hit(self) -> Hit:
        """The record as an answer without a score; read when first needed."""
        assert self.read is not None
        return self.read(self)

    @functools.cached_property
    def evidence(self) -> Evidence:
        """What speaks for it; most candidates are never shown, so it is weighed when needed."""
        adds = 1.0 if self.may_repeat else self.adds
        return self.asked.weigh(self.text, cosine=self.cosine, in_time=self.in_time, adds=adds)

    @functools.cached_property
    def own(self) -> float:
        """How relevant it is by its own evidence."""
        if self.asked.is_empty:
            return 0.0
        return own_relevance(
            self.evidence,
            self.embedder,
            talk=self.record.kind == EXCHANGE,
            crowd=self.crowd,
        )

    @functools.cached_property
    def relevance(self) -> float:
        """How relevant it is, compared with the others of its memory."""
        if self.fixed is not None:
            return self.fixed
        if self.record.kind not in _TALK:
            return min(relevance(self.own, self.share), self.evidence.adds)
        value = relevance(self.own, self.share, sure=self.own * self.adds)
        # It is no more relevant than what it adds.
        return talk_relevance(min(value, self.evidence.adds))

    def may_reach(self, score: float) -> bool:
        """Whether it may be this relevant: cheaper, because it needs no evidence."""
        if self.fixed is not None or self.record.kind in _TALK:
            return True
        return round(most_relevance(self.share), 4) >= score

    @property
    def alone(self) -> float:
        """How likely the list would answer if it had no other hit."""
        return answered_by(self.own) * self.asked.pointed

    @property
    def conversation(self) -> str:
        """Its conversation; a record without one stands for itself."""
        return self.home or self.record.id


# Changes the order of a memory's candidates by their `rank_value`, leaves some out, or replaces
# their hits by others. It does not change how relevant they are. A lift must not refer to its
# `Found`, or only the garbage collector could free them both: it is given `Found.words_held`.
WordsHeld = Callable[[Iterable[Candidate]], float]
Lift = Callable[[list[Candidate], WordsHeld], list[Candidate]]


class Found(msgspec.Struct, dict=True):
    """What one memory found for a question; `embedder` is None if it searched only by words.

    `days` are the days that the question names, as this memory understands it; `in_days` of its
    `dated` records are in them. `talk`: it holds exchanges of conversations.
    """

    asked: Sequence[str] = ()
    candidates: list[Candidate] = []
    embedder: str | None = None
    # How many passages were searched, and how many of them have each word of the question.
    count: int = 0
    frequencies: Counter[str] = msgspec.field(default_factory=Counter)
    by_words: Weighed = Weighed()
    days: tuple[str, str] | None = None
    in_days: int = 0
    dated: int = 0
    talk: bool = False
    lift: Lift | None = None
    notes: tuple[str, ...] = ()

    def weigh(self, times: Sequence[Any], sizes: Sequence[Any]) -> list[float]:
        """Return the weights of passages by words, given in several tables: how often each word
        occurs in them, and their sizes."""
        self.by_words = weigh_words(
            self.asked,
            joined(times, len(self.asked)),
            joined(sizes, 2),
            frequencies=self.frequencies,
            count=self.count,
        )
        return self.by_words.weights

    def words_held(self, candidates: Iterable[Candidate]) -> float:
        """Return the total weight of the question's words that occur in any of these candidates."""
        texts = "".join([candidate.text.padded for candidate in candidates])
        return sum([weight for needle, weight in self._needles if needle in texts])

    @functools.cached_property
    def _needles(self) -> list[tuple[str, float]]:
        """Each word of the question as it stands in a padded text, and its weight."""
        return [
            (f" {word} ", rarity(word, self.frequencies[word], self.count)) for word in self.asked
        ]


def find(
    view: IndexView,
    collections: Sequence[Collection],
    question: Question,
    *,
    vector: Vectors | None,
    embedder: str,
    depth: int = PASSAGES_COMPARED,
    talk: bool = False,
) -> Found:
    """Return the candidates in these collections, from about `depth` passages.

    `vector` is the question's; without one, and in a collection with another embedder, only words
    count.
    """
    asked = query_tokens(question.text)
    most = max(depth, 4 * question.limit)
    # A collection has at most this many candidates by words, and as many by meaning.
    each = min(most, _CANDIDATES)
    found = Found(question.asked(), [], days=question.days, talk=talk)
    times: list[Any] = []
    sizes: list[Any] = []
    matched: list[list[int]] = []
    timed: list[set[int]] = []
    for collection in collections:
        matches = view.words(collection, asked, each, only=question.only)
        found.count += matches.passages
        found.frequencies.update(matches.frequencies)
        rows = [*matches.scores]
        dated = list[int]()
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
        if vector is not None and collection.manifest.embedder == embedder:
            # Passages without a word of the question are candidates only if among the nearest.
            [near] = view.nearest(collection, vector[None, :], each, also=rows, only=question.only)
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
        share = meaning_share(found.by_words, talk=talk)
        best, near_by = best_by_both(words, cosines, share, most)
    if any(timed):
        best += [at for at, (n, row, _) in enumerate(passages) if row in timed[n]]
    chosen: list[dict[int, tuple[float, float | None]]] = [{} for _ in collections]
    for at in best:
        n, row, _ = passages[at]
        chosen[n][row] = words[at], None if math.isnan(near_by[at]) else near_by[at]
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
    records: Iterable[tuple[str, Record]],
    cuts: Mapping[str, Cut],
    question: Question,
    *,
    talk: bool = False,
) -> Found:
    """Return candidates by words, from records with their streams. Slower, but needs no index."""
    found = Found(question.asked(), [], days=question.days, talk=talk)
    wanted = dict.fromkeys(query_tokens(question.text))
    frequencies = found.frequencies
    passages: list[tuple[str, Record, PassageWords]] = []
    count = in_days = dated = 0
    first, end = question.days or ("", "")
    for stream, record in records:
        if not question.allows(record):
            continue
        timely = first <= record.at < end
        in_days = in_days + timely
        dated = dated + 1
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
    found.count = count
    found.in_days = in_days
    found.dated = dated
    texts = [words for _, _, words in passages]
    sizes = [one.size for one in texts]
    weights = found.weigh([[one.times(found.asked) for one in texts]], [sizes])
    found.candidates = [
        Candidate(record, stream, words, weight, None)
        for (stream, record, words), weight in zip(passages, weights, strict=True)
    ]
    return found


# -- From candidates to hits.


# The lift for records in the days that a question names: without other words, and with enough.
_TIME = 1.0
_TIME_BESIDE_WORDS = 0.3
# The weight of those days as a word of the question: at least this, at most that, and more if few
# records are in them.
_TIME_NATS = 5.0
_MOST_TIME_NATS = 10.0
# A record that a person wrote ranks this much above an extracted one that matches as well.
_BY_PERSON = 1.05
# The relevance of a record if the question asks only for its day.
_OF_DAYS = 0.75
# How many candidates are weighed to say whether a list answers, and put in their final order. It
# does not depend on how many are shown.
_JUDGED = 20
# The value from which a candidate is checked for whether it only repeats the question.
_MAY_REPEAT = 0.4


def conclude(
    question: Question, parts: Sequence[Found], fits: Callable[[Hit], bool] | None = None
) -> list[Hit]:
    """Return the best records of these memories, in order, folded, none below the floor.

    `fits` tells which hits may be shown.
    """
    judged = [judge(question, part) for part in parts]
    every = [*itertools.chain(*judged)]
    if question.lists_days:
        order = sorted(every, key=lambda one: one.record.at, reverse=True)
    else:
        order = _merged(judged, question.min_score)
    answered = max([candidate.answered for candidate in every], default=0.0)
    chosen = _choose(order, question, fits)
    words = sorted([candidate.words for candidate in every])
    cosines = sorted([one.cosine for one in every if one.cosine is not None])
    return [_hit(candidate, like, question, answered, words, cosines) for candidate, like in chosen]


def judge(question: Question, part: Found) -> list[Candidate]:
    """Return the candidates of one memory that may be shown, in order, with their relevance."""
    if question.lists_days:
        part.candidates = [one for one in part.candidates if _of_days(one, part.days)]
    if not part.candidates:
        return []
    time_weight = _weigh_time(part)
    _mix(part, time_weight)
    candidates = _best_passages(part.candidates)
    if part.lift is not None:
        candidates = part.lift(candidates, part.words_held)
    candidates.sort(key=_order)
    _judge_relevance(question, part, candidates, time_weight)
    if part.talk and not question.lists_days:
        first = candidates[:_JUDGED]
        for candidate in first:
            # It answers no more surely than by what it adds.
            candidate.rank_value += evidence_in_order(min(candidate.own, candidate.adds))
        candidates[:_JUDGED] = sorted(first, key=_order)
    return candidates


def _order(candidate: Candidate) -> tuple[float, int, str]:
    """Return the key to sort candidates by, the best first; of equals, the newest first.

    Index rows cannot decide between equals: a rebuild changes them.
    """
    return -candidate.rank_value, -candidate.record.number, candidate.record.id


def _judge_relevance(
    question: Question, part: Found, candidates: Sequence[Candidate], time_weight: float
) -> None:
    """Set how likely the list answers, and what each candidate needs to tell its relevance."""
    asked = Asked.of(part.asked, time_weight)
    # Words may ask for a question of the past. It ranks after what answers it, but it is relevant.
    only_words = not is_question(question.text)
    best_value = max([one.value for one in candidates], default=0.0) or 1.0
    crowd = max([part.frequencies[token] for token in part.asked], default=0)
    for one in candidates:
        one.asked = asked
        one.embedder = part.embedder
        one.crowd = crowd
        one.may_repeat = only_words
        one.share = one.value / best_value
    best, second = best_two((one.own, one.conversation) for one in candidates[:_JUDGED])
    answered = answered_by(best, second) * asked.pointed
    for one in candidates:
        one.answered = answered
        one.fixed = _OF_DAYS if question.lists_days else None


def _adds(candidate: Candidate) -> float:
    """Return what a record adds to its question: 1, or less if it is only a question.

    A note can be a question, too. Other records are statements, and so is an exchange whose user
    asked nothing.
    """
    kind = candidate.record.kind
    if kind == EXCHANGE:
        text = candidate.text
        nats = new_nats(text.padded[: text.text_at], text.padded[text.text_at :])
        if nats >= ENOUGH_NEW_NATS:
            return 1.0
        exchange = candidate.hit.record
        if not is_question(exchange.user) or is_yes_or_no(exchange.user, exchange.assistant):
            return 1.0
        return what_the_answer_adds(nats, denies=denies(exchange.assistant))
    if kind in WRITTEN:
        question, rest = question_and_rest(candidate.hit.record.text)
        if question:
            nats = new_nats(" ".join(tokens(question)), " ".join(tokens(rest)))
            return what_the_answer_adds(nats, denies=denies(rest))
    return 1.0


def _set_adds(candidates: Sequence[Candidate]) -> None:
    """Set what each of these candidates adds. A summary adds no more than what it sums up."""
    for candidate in candidates:
        if candidate.record.kind != SUMMARY:
            candidate.adds = _adds(candidate)
    exchanges = [candidate for candidate in candidates if candidate.record.kind == EXCHANGE]
    if all(exchange.adds == 1.0 for exchange in exchanges):
        return
    for candidate in candidates:
        if candidate.record.kind != SUMMARY:
            continue
        target = candidate.hit.record.target
        summed_up = [
            exchange.adds
            for exchange in exchanges
            if target in (exchange.record.id, exchange.hit.record.conversation)
        ]
        candidate.adds = max(summed_up, default=1.0)


def _mix(part: Found, time_weight: float) -> None:
    """Set the value of each candidate: its words and meaning, and whether it is in time.

    A candidate that only repeats the question counts less, and does not make the others look worse.
    """
    share = meaning_share(part.by_words, talk=part.talk)
    words = [one.words for one in part.candidates]
    cosines = [one.cosine for one in part.candidates]
    values = mix(words, cosines, share)
    near = [place for place, value in enumerate(values) if value >= _MAY_REPEAT]
    _set_adds([part.candidates[place] for place in near])
    repeats: dict[int, float] = {}
    for place in near:
        candidate = part.candidates[place]
        if candidate.adds < 1.0:
            repeats[place] = candidate.adds * values[place]
            words[place] = 0.0
            cosines[place] = None if candidate.cosine is None else 0.0
    if repeats:
        values = mix(words, cosines, share)
    for place, value in repeats.items():
        values[place] = value
    lift = 0.0
    if time_weight:
        enough = min(1.0, part.by_words.nats / ENOUGH_NATS)
        lift = _TIME - (_TIME - _TIME_BESIDE_WORDS) * enough
    for one, value in zip(part.candidates, values, strict=True):
        one.value = value + lift * one.in_time


def _weigh_time(part: Found) -> float:
    """Mark the candidates in the days that the question names; return the weight of these days as
    a word of the question: the fewer records are in them, the more."""
    if part.days is None:
        return 0.0
    first, end = part.days
    for one in part.candidates:
        one.in_time = first <= one.record.at < end
    share = part.in_days / (part.dated or 1)
    if not 0.0 < share < 1.0:
        return 0.0
    return min(_MOST_TIME_NATS, _TIME_NATS - math.log(share))


def _of_days(one: Candidate, days: tuple[str, str] | None) -> bool:
    """Whether the record is of a daily kind, and from these days."""
    kind = KINDS.of(one.record.kind)
    return bool(kind and kind.daily and days and days[0] <= one.record.at < days[1])


_value = operator.attrgetter("value")


def _best_passages(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best passage of each record."""
    best: dict[tuple[str, str, bytes], Candidate] = {}
    for one in sorted(candidates, key=_value, reverse=True):
        best.setdefault((one.stream, one.record.id, one.record.body), one)
    for one in best.values():
        if one.record.kind in WRITTEN and KINDS[one.record.kind].by_person(one.hit.record):
            one.value *= _BY_PERSON
        one.rank_value = one.value
    return list(best.values())


def _that_may_reach(min_score: float, candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates up to the last one that may reach this score.

    The others need no evidence, which takes long to weigh. Those before the last one are needed to
    order the memories.
    """
    for end in range(len(candidates), 0, -1):
        if candidates[end - 1].may_reach(min_score):
            return candidates[:end]
    return []


def _merged(judged: Sequence[list[Candidate]], min_score: float) -> list[Candidate]:
    """Merge the memories by relevance; each keeps its own order. Leave out what cannot reach this
    score."""
    filled = [_that_may_reach(min_score, candidates) for candidates in judged if candidates]
    if len(filled) == 1:
        return filled[0]
    ranked: list[tuple[float, int, str, Candidate]] = []
    for candidates in filled:
        # A candidate that its memory ranks below another is no better than that one.
        level = 1.0
        for one in candidates:
            level = min(level, one.relevance)
            ranked.append((-level, -one.record.number, one.record.id, one))
    ranked.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in ranked]


# A candidate, and the ids of the records that say the same.
Folded = tuple[Candidate, tuple[str, ...]]


def _choose(
    order: Iterable[Candidate], question: Question, fits: Callable[[Hit], bool] | None
) -> list[Folded]:
    """Return the candidates to show, near-twins folded into the first of them.

    What is doubtful comes last, so it takes no place from what is relevant. If the question wants
    them spread, the best hit of each conversation comes before further hits from the same one, so
    the limit counts conversations.
    """
    if question.min_score < FLOOR:
        order = sorted(order, key=lambda one: round(one.relevance, 4) < FLOOR)
    twins = Twins()
    chosen: list[Candidate] = []
    first: list[int] = []
    again: list[int] = []
    seen: set[str] = set()
    for one in order:
        if len(first) == question.limit:
            break
        if round(one.relevance, 4) < question.min_score:
            continue
        if fits is not None and not fits(one.hit):
            continue
        if not question.every and twins.fold(one.hit):
            continue
        if question.spread and one.conversation in seen:
            again.append(len(chosen))
        else:
            first.append(len(chosen))
            seen.add(one.conversation)
        chosen.append(one)
    places = [*first, *again][: question.limit]
    return [(chosen[at], () if question.every else twins.like(at)) for at in places]


def _hit(
    candidate: Candidate,
    like: tuple[str, ...],
    question: Question,
    answered: float,
    words: Sequence[float],
    cosines: Sequence[float],
) -> Hit:
    """Return the hit; `words` and `cosines` are those of all candidates, the smallest first."""
    evidence = candidate.evidence
    score = round(candidate.relevance, 4)
    written = spellings(question.text)
    matched = tuple([written.get(token, token) for token in evidence.matched])
    cosine = candidate.cosine
    parts = Parts(
        words=round(candidate.words / (words[-1] or 1.0), 4),
        words_rank=_rank(words, candidate.words) if candidate.words else None,
        matched=matched,
        asked=evidence.asked,
        coverage=round(evidence.coverage, 4),
        meaning=None if cosine is None else round(cosine, 4),
        meaning_rank=None if cosine is None else _rank(cosines, cosine),
        mixed=round(candidate.value, 4),
        adds=round(evidence.adds, 4),
        score=score,
        answered=round(answered, 4),
        alone=round(candidate.alone, 4),
        in_time=candidate.in_time if question.days else None,
        rating=candidate.rating,
    )
    return msgspec.structs.replace(
        candidate.hit,
        score=score,
        relevance=relevance_word(score),
        why=why(evidence, matched),
        parts=parts,
        like=like,
    )


def _rank(values: Sequence[float], value: float) -> int:
    """Return the rank of one of these sorted values, 1 for the largest; equal ones share it."""
    return 1 + len(values) - bisect.bisect_right(values, value)
