"""Searching past conversations: which hits are allowed, their order, and their conversations.

An exchange is lifted by its conversation. A conversation is found by its summary or by any of its
exchanges.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from ralph.memory.conversation_stream import ConversationStates
from ralph.recall import Hit
from ralph.recall.score import TOLD
from ralph.recall.search import Candidate, WordsHeld
from ralph.recall.telling import conversation_of, worth_telling
from ralph.recall.words import shortness
from ralph.records import Record
from ralph.records import conversation as schema
from ralph.records.conversation import Conversation, Exchange
from ralph.text.sanitize import plain_date
from ralph.text.tokens import spellings

# An exchange is lifted by its conversation: by the values of that one's three best exchanges. Short
# turns ("yes, it was great") say little by themselves, so they are lifted more, also by the better
# of their two neighbors and by the words of the question that occur anywhere in the conversation.
_CONVERSATION = 0.15
_SHORT_CONVERSATION = 0.40
_SHORT_NEIGHBOR = 0.25
_SHORT_HELD = 0.40
_BEST = 3
_FADING = 0.8
# Among passages that are not at least this short, only the conversation counts.
_LEAST_SHORT = 0.05
_LIKED = 1.1
_DISLIKED = 0.8
_MANY = 3
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_NO_EXCHANGES: Sequence[str] = ()
_value = operator.attrgetter("value")
_rank_value = operator.attrgetter("rank_value")


class SearchFilter(msgspec.Struct, frozen=True):
    """What may be shown: conversations with these tags, except one, and without some kinds."""

    tags: frozenset[str] = frozenset()
    exclude: str | None = None
    without: frozenset[str] = frozenset()

    def allows(self, record: Record, home: str, histories: Sequence[ConversationStates]) -> bool:
        """Whether a record may be shown; `home` is its conversation."""
        if record.kind in self.without or (self.exclude and home == self.exclude):
            return False
        if not self.tags:
            return True
        states = [one.conversations[home] for one in histories if home in one.conversations]
        return any(self.tags.issubset(state.tags) for state in states)


class Seat(msgspec.Struct):
    """A candidate and the exchanges of its conversation, with its own place among them."""

    candidate: Candidate
    exchanges: Sequence[str] = _NO_EXCHANGES
    place: int = 0


def _seated(candidates: Iterable[Candidate], histories: Sequence[ConversationStates]) -> list[Seat]:
    """Tell each candidate its conversation; documents and notes have none."""
    seats: list[Seat] = []
    for candidate in candidates:
        record = candidate.record
        seat = Seat(candidate)
        is_summary = record.kind == schema.SUMMARY
        target = schema.content_of(record).target if is_summary else record.id
        for history in histories:
            if (position := history.positions.get(target)) is not None:
                candidate.home = position[0]
                if not is_summary:
                    seat.exchanges = history.exchanges[position[0]]
                    seat.place = position[1]
                break
            if target in history.conversations:
                candidate.home = target
        seats.append(seat)
    return seats


def show_exchanges(
    candidates: Sequence[Candidate], histories: Sequence[ConversationStates], *, summaries: bool
) -> list[Candidate]:
    """Return exchanges, documents and notes. An exchange replaces the summary that found it.

    With `summaries`, the summary of a conversation stays if none of its exchanges was found. If
    some were, the best of them gets the summary's evidence if that is better.
    """
    found: dict[str, Candidate] = {}
    best: dict[str, Candidate] = {}
    talks: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=_rank_value, reverse=True):
        shown = candidate.record.id
        if candidate.record.kind == schema.SUMMARY:
            shown = candidate.hit.record.target
            records = (states.records[shown] for states in histories if shown in states.records)
            about = next((record for record in records if record.kind == schema.EXCHANGE), None)
            if about is None:
                talks.setdefault(shown, candidate)
                continue
            content = schema.content_of(about)
            candidate.hit = msgspec.structs.replace(
                candidate.hit, id=shown, kind=about.kind, record=content
            )
        found.setdefault(shown, candidate)
        for states in histories if summaries else ():
            if shown in states.positions:
                best.setdefault(states.positions[shown][0], candidate)
    if not summaries:
        return list(found.values())
    for name, summary in talks.items():
        if name in best and summary.value > best[name].value:
            for field in ("value", "rank_value", "text", "words", "cosine", "adds"):
                setattr(best[name], field, getattr(summary, field))
    alone = [summary for name, summary in talks.items() if name not in best]
    return [*found.values(), *alone]


def lift(
    candidates: list[Candidate],
    histories: Sequence[ConversationStates],
    *,
    words_held: WordsHeld,
    allowed: SearchFilter,
    half_life_days: float,
    away: bool,
) -> list[Candidate]:
    """Return the allowed candidates, each ranked higher by its conversation.

    `words_held` returns the total weight of the question's words in some candidates. Ratings count,
    too. With `half_life_days` of 0, values do not fade with time. `away`: the journals' server is
    down, so the index may have records that cannot be read.
    """
    ratings = {name: value for history in histories for name, value in history.ratings.items()}
    if ratings or half_life_days:
        _rate(candidates, ratings, half_life_days)
    seats = _seated(sorted(candidates, key=_value, reverse=True), histories)
    if allowed != SearchFilter():
        seats = [
            seat
            for seat in seats
            if allowed.allows(seat.candidate.record, seat.candidate.home, histories)
        ]
    if away:
        readable = {"", *(name for history in histories for name in history.conversations)}
        seats = [seat for seat in seats if seat.candidate.home in readable]
    if seats:
        _lift_by_conversation(seats, words_held)
    return [seat.candidate for seat in seats]


def _rate(
    candidates: Iterable[Candidate], ratings: Mapping[str, int], half_life_days: float
) -> None:
    """Change values by a person's ratings, and by age if that is set."""
    now = datetime.now(UTC)
    for candidate in candidates:
        record = candidate.record
        candidate.rating = ratings.get(record.id, 0)
        if candidate.rating:
            candidate.value *= _LIKED if candidate.rating > 0 else _DISLIKED
        if half_life_days and record.kind == schema.EXCHANGE:
            age_s = (now - datetime.fromisoformat(record.at)).total_seconds()
            candidate.value *= 0.5 ** (max(0.0, age_s / 86400) / half_life_days)


def _lift_by_conversation(seats: Sequence[Seat], words_held: WordsHeld) -> None:
    """Set the rank of candidates, given best first, by their values and their conversations."""
    talks: dict[str, list[Candidate]] = {}
    for seat in seats:
        talks.setdefault(seat.candidate.conversation, []).append(seat.candidate)
    lengths = [seat.candidate.text.size[1] for seat in seats]
    short = shortness(sum(lengths) / len(lengths))
    fades = [_FADING**place for place in range(_BEST)]
    best = {
        name: sum(fade * one.value for fade, one in zip(fades, talk, strict=False))
        for name, talk in talks.items()
    }
    most = max(best.values()) or 1.0
    by_conversation = _CONVERSATION + _SHORT_CONVERSATION * short
    held = {name: words_held(talk) for name, talk in talks.items()} if short > _LEAST_SHORT else {}
    most_held = max(held.values(), default=0.0) or 1.0
    values = {seat.candidate.record.id: seat.candidate.value for seat in seats}
    for seat in seats:
        candidate = seat.candidate
        name = candidate.conversation
        candidate.rank_value = candidate.value + by_conversation * best[name] / most
        if held:
            candidate.rank_value += short * _SHORT_HELD * held[name] / most_held
            candidate.rank_value += short * _SHORT_NEIGHBOR * _best_neighbor(seat, values)


def _best_neighbor(seat: Seat, values: Mapping[str, float]) -> float:
    """Return the better value of the exchanges before and after."""
    before = seat.exchanges[max(0, seat.place - 1) : seat.place]
    after = seat.exchanges[seat.place + 1 : seat.place + 2]
    return max([values.get(name, 0.0) for name in (*before, *after)], default=0.0)


# -- Related conversations.


class RelatedExchange(msgspec.Struct, frozen=True):
    """An exchange that matches, and its score."""

    exchange: Exchange
    similarity: float


class RelatedConversation(msgspec.Struct, frozen=True):
    """A past conversation that matches, and its matching exchanges."""

    conversation: Conversation
    similarity: float
    summary: str
    exchange_count: int
    exchanges: tuple[RelatedExchange, ...] = ()


class Related(msgspec.Struct, frozen=True):
    """Past conversations for a question; `line` is a sentence about a topic that is frequent."""

    conversations: tuple[RelatedConversation, ...] = ()
    line: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def exchanges(self) -> int:
        """The number of exchanges in all conversations."""
        return sum(len(one.exchanges) for one in self.conversations)


def grouped(
    question: str,
    hits: Sequence[Hit],
    histories: Sequence[ConversationStates],
    *,
    floor: float,
    conversations: int,
    exchanges: int,
    notes: tuple[str, ...],
) -> Related:
    """Return the best conversations and the best exchanges in each, if they probably answer.

    `floor`: how likely an answer must be. The similarity of a conversation is that of its summary
    or its best exchange, so exchanges that the summary does not mention are found, too.
    """
    talks = [hit for hit in hits if hit.kind in (schema.EXCHANGE, schema.SUMMARY)]
    chosen = worth_telling(talks, conversations=conversations, each=exchanges + 1, bar=floor)
    by_name: dict[str, list[Hit]] = {}
    for hit in chosen:
        by_name.setdefault(conversation_of(hit), []).append(hit)
    found: list[RelatedConversation] = []
    for name, best in by_name.items():
        state = next(one.conversations[name] for one in histories if name in one.conversations)
        said = [hit for hit in best if hit.kind == schema.EXCHANGE][:exchanges]
        found.append(
            RelatedConversation(
                conversation=state.conversation,
                similarity=max(round(hit.score or 0.0, 4) for hit in best),
                summary=state.summary,
                exchange_count=state.exchanges,
                exchanges=tuple(RelatedExchange(hit.record, hit.score or 0.0) for hit in said),
            )
        )
    # A better answer lowers their relevance, but not what they say by themselves.
    topical = [hit for hit in talks if hit.parts is not None and hit.parts.alone >= TOLD]
    names = dict.fromkeys(conversation_of(hit) for hit in topical)
    states = [one.conversations.get(name) for name in names for one in histories]
    about = [state.conversation for state in states if state]
    return Related(tuple(found), _topic_line(question, topical, about), notes)


def _topic_line(
    question: str, hits: Sequence[Hit], conversations: Sequence[Conversation]
) -> str | None:
    """Return `This is the 5th conversation about authentication.`, if a topic is frequent."""
    number = len(conversations) + 1
    counts: Counter[str] = Counter()
    for hit in hits:
        matched = hit.parts.matched if hit.parts is not None else ()
        counts.update(word for word in matched if word.isalpha() and len(word) > 3)
    if number < _MANY or not counts:
        return None
    topic = max(counts, key=lambda word: (counts[word], len(word), word))
    days = sorted(filter(None, (plain_date(one.created) for one in conversations)))
    since = f", the first on {days[0]}" if days else ""
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    name = spellings(question).get(topic, topic)
    return f"This is the {number}{ending} conversation about {name}{since}."
