"""What belongs together among hits: exchanges lifted by their conversation, conversations found
by their summary or by any of their exchanges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from ralph.kinds.conversation import EXCHANGE, SUMMARY, Conversation, Exchange
from ralph.recall import Hit
from ralph.text.tokens import spellings

# How much the best other hit of its conversation lifts an exchange: enough to decide between
# equals. More helps where evidence is spread over a conversation and hurts where it is not.
_LIFT = 0.05
_LIKED, _DISLIKED = 1.1, 0.8
# What lies in the days that the question names comes before what matches it equally well.
_IN_TIME = 0.2
_MANY = 3
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


class RelatedExchange(msgspec.Struct, frozen=True):
    """An exchange that matches, and how surely."""

    exchange: Exchange
    similarity: float
    summary: str = ""


class RelatedConversation(msgspec.Struct, frozen=True):
    """A past conversation that matches, and the exchanges in it that do."""

    conversation: Conversation
    similarity: float
    summary: str
    exchange_count: int
    exchanges: tuple[RelatedExchange, ...] = ()
    tags: tuple[str, ...] = ()


class Related(msgspec.Struct, frozen=True):
    """What past conversations have to say on a question; `line` tells of a topic that comes up
    again and again."""

    conversations: tuple[RelatedConversation, ...] = ()
    line: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def exchanges(self) -> int:
        """How many exchanges were found in all."""
        return sum(len(one.exchanges) for one in self.conversations)


class Weights(msgspec.Struct, frozen=True):
    """What else moves a hit up or down: ratings, the days the question names, and how fast hits
    fade (0: never)."""

    ratings: Mapping[str, int] = {}
    in_time: frozenset[str] = frozenset()
    half_life_days: float = 0.0
    now: datetime | None = None


def belongs_to(hit: Hit, targets: Mapping[str, str]) -> str:
    """The conversation a hit belongs to; `targets`: of exchanges that summaries are about."""
    if hit.kind == EXCHANGE:
        return str(hit.record.conversation)
    if hit.kind == SUMMARY:
        target: str = hit.record.target
        return target if hit.record.of == "conversation" else targets.get(target, "")
    return ""


def in_order(hits: Sequence[Hit], home: Mapping[str, str], weights: Weights) -> list[Hit]:
    """The hits by how well they match, each lifted by the best other one of its conversation."""
    own = {hit.id: _weighed(hit, weights) for hit in hits}
    best: dict[str, list[tuple[float, str]]] = {}
    for hit in hits:
        if home[hit.id]:
            best.setdefault(home[hit.id], []).append((own[hit.id], hit.id))
    for some in best.values():
        some.sort(reverse=True)

    def lifted(hit: Hit) -> float:
        others = [value for value, name in best.get(home[hit.id], ())[:2] if name != hit.id]
        return own[hit.id] + _LIFT * (others[0] if others else 0.0)

    return sorted(hits, key=lambda hit: -lifted(hit))


def _weighed(hit: Hit, weights: Weights) -> float:
    value = hit.parts.mixed if hit.parts is not None else hit.score or 0.0
    rating = weights.ratings.get(hit.id, 0)
    if rating:
        value *= _LIKED if rating > 0 else _DISLIKED
    if hit.id in weights.in_time:
        value += _IN_TIME
    if weights.half_life_days and weights.now is not None and hit.kind == EXCHANGE:
        at = hit.record.completed
        if at:
            age = (weights.now - datetime.fromisoformat(at)).total_seconds() / 86400
            value *= 0.5 ** (max(0.0, age) / weights.half_life_days)
    return value


def topic_line(
    question: str, hits: Sequence[Hit], conversations: Sequence[Conversation]
) -> str | None:
    """`This is the 5th conversation about authentication`: where a topic comes up often."""
    if len(conversations) + 1 < _MANY:
        return None
    written = spellings(question)
    counts: Counter[str] = Counter()
    for hit in hits:
        matched = hit.parts.matched if hit.parts is not None else ()
        counts.update(word for word in matched if word.isalpha() and len(word) > 3)
    if not counts:
        return None
    topic = max(counts, key=lambda word: (counts[word], len(word), word))
    days = sorted(one.created[:10] for one in conversations if one.created)
    since = f", the first on {days[0]}" if days else ""
    nth = _ordinal(len(conversations) + 1)
    return f"This is the {nth} conversation about {written.get(topic, topic)}{since}."


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{_ENDINGS.get(number % 10, 'th')}"
