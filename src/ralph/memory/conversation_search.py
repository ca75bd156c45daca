"""Search past conversations: which hits a question may have, their order, and their conversations.

An exchange is lifted by its conversation. A conversation is found by its summary or by any of its
exchanges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from ralph.memory.conversation_stream import ConversationStates
from ralph.recall import Hit
from ralph.recall.score import RELEVANT
from ralph.recall.search import Candidate
from ralph.records import conversation as schema
from ralph.records import utc
from ralph.records.conversation import Conversation, Exchange
from ralph.text.tokens import spellings

# How much the best other hit of its conversation lifts an exchange: enough to decide between
# equals. More helps where evidence is spread over a conversation and hurts where it is not.
_LIFT = 0.05
_LIKED, _DISLIKED = 1.1, 0.8
_MANY = 3
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


class SearchFilter(msgspec.Struct, frozen=True):
    """What a question may be answered with: days, both included, tags, and what is left out.

    Days that the question itself names are no limit: people misremember, and a limit that is wrong
    hides the answer.
    """

    first: str = ""
    last: str = ""
    tags: frozenset[str] = frozenset()
    exclude: str | None = None
    without: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        *,
        tags: Collection[str] = (),
        since: str | None = None,
        until: str | None = None,
        **more: Any,
    ) -> Self:
        """The filter for days and tags as a person gives them."""
        first = utc(since, field="since")[:10] if since else ""
        last = utc(until, field="until")[:10] if until else ""
        return cls(first, last, frozenset(tag.casefold() for tag in tags), **more)

    def allows(self, hit: Hit, home: str, histories: Sequence[ConversationStates]) -> bool:
        """Whether this may be shown; `home` is its conversation."""
        if hit.kind in self.without or (self.exclude and home == self.exclude):
            return False
        if hit.kind == schema.EXCHANGE and (self.first or self.last):
            day = (hit.record.completed or "")[:10]
            if not day or day < self.first or (self.last and day > self.last):
                return False
        states = [one.conversations[home] for one in histories if home in one.conversations]
        return not self.tags or any(self.tags.issubset(state.tags) for state in states)


def homes(hits: Sequence[Hit], histories: Sequence[ConversationStates]) -> dict[str, str]:
    """The conversation that each hit belongs to, by the hit's id; "" for a document."""
    found: dict[str, str] = {}
    for hit in hits:
        if hit.kind == schema.SUMMARY and hit.record.of == "conversation":
            found[hit.id] = hit.record.target
        else:
            exchange = hit.record if hit.kind == schema.EXCHANGE else _summarized(hit, histories)
            found[hit.id] = exchange.conversation if exchange else ""
    return found


def _summarized(hit: Hit, histories: Sequence[ConversationStates]) -> Exchange | None:
    """The exchange that a summary is about."""
    target = hit.record.target if hit.kind == schema.SUMMARY else ""
    found = [one.records[target] for one in histories if target in one.records]
    return next((schema.content_of(one) for one in found if one.kind == schema.EXCHANGE), None)


def show_exchanges(
    candidates: Sequence[Candidate], histories: Sequence[ConversationStates]
) -> list[Candidate]:
    """Exchanges, documents and notes; an exchange that was found by its summary takes its place."""
    found: dict[str, Candidate] = {}
    for one in sorted(candidates, key=lambda one: -one.value):
        if one.hit.kind == schema.SUMMARY:
            exchange = _summarized(one.hit, histories)
            if exchange is None:
                continue
            fields = {"id": exchange.id, "kind": schema.EXCHANGE, "record": exchange}
            one.hit = msgspec.structs.replace(one.hit, **fields)
        found.setdefault(one.hit.id, one)
    return list(found.values())


def lift(
    candidates: list[Candidate],
    histories: Sequence[ConversationStates],
    *,
    allowed: SearchFilter,
    half_life_days: float,
    away: bool,
) -> list[Candidate]:
    """What may be shown, each lifted by the best other candidate of its conversation.

    Ratings move it, too; `half_life_days` of 0: nothing fades with time. `away`: the journals'
    server is, and the index may know more than can be read of them.
    """
    now = datetime.now(UTC)
    home = homes([one.hit for one in candidates], histories)
    readable = {"", *(name for history in histories for name in history.conversations)}
    chosen = [
        one
        for one in candidates
        if allowed.allows(one.hit, home[one.hit.id], histories)
        and not (away and home[one.hit.id] not in readable)
    ]
    ratings = {name: value for one in histories for name, value in one.ratings.items()}
    best: dict[str, list[tuple[float, str]]] = {}
    for one in chosen:
        hit = one.hit
        one.rating = ratings.get(hit.id, 0)
        if one.rating:
            one.value *= _LIKED if one.rating > 0 else _DISLIKED
        if half_life_days and hit.kind == schema.EXCHANGE and hit.record.completed:
            age = (now - datetime.fromisoformat(hit.record.completed)).total_seconds() / 86400
            one.value *= 0.5 ** (max(0.0, age) / half_life_days)
        if home[hit.id]:
            best.setdefault(home[hit.id], []).append((one.value, hit.id))
    for values in best.values():
        values.sort(reverse=True)
    for one in chosen:
        near = [value for value, name in best.get(home[one.hit.id], ())[:2] if name != one.hit.id]
        one.value += _LIFT * (near[0] if near else 0.0)
    return chosen


# -- Related conversations.


class RelatedExchange(msgspec.Struct, frozen=True):
    """An exchange that matches, and how surely."""

    exchange: Exchange
    similarity: float


class RelatedConversation(msgspec.Struct, frozen=True):
    """A past conversation that matches, and the exchanges in it that do."""

    conversation: Conversation
    similarity: float
    summary: str
    exchange_count: int
    exchanges: tuple[RelatedExchange, ...] = ()


class Related(msgspec.Struct, frozen=True):
    """What past conversations say on a question; `line` names a topic that comes up often."""

    conversations: tuple[RelatedConversation, ...] = ()
    line: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def exchanges(self) -> int:
        """How many exchanges were found in all."""
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
    """The best conversations and the best exchanges in each, none under the floor.

    A conversation is as similar as its summary or the best of its exchanges: one that its summary
    does not mention is found as well.
    """
    home = homes(hits, histories)
    # In the order of the hits, which knows more than the score alone.
    similarity: dict[str, float] = {}
    for hit in hits:
        if name := home[hit.id]:
            similarity[name] = max(similarity.get(name, 0.0), hit.score or 0.0)
    chosen = [name for name, value in similarity.items() if value >= floor][:conversations]
    shown = [
        hit
        for hit in hits
        if home[hit.id] in chosen and hit.kind == schema.EXCHANGE and (hit.score or 0.0) >= floor
    ]
    found: list[RelatedConversation] = []
    for name in chosen:
        state = next(one.conversations[name] for one in histories if name in one.conversations)
        best = [hit for hit in shown if hit.record.conversation == name][:exchanges]
        related = tuple(RelatedExchange(hit.record, hit.score or 0.0) for hit in best)
        value = round(similarity[name], 4)
        found.append(
            RelatedConversation(state.conversation, value, state.summary, state.exchanges, related)
        )
    relevant = [hit for hit in hits if (hit.score or 0.0) >= RELEVANT]
    topical = [hit for hit in relevant if hit.kind != schema.DOCUMENT]
    about = [
        history.conversations[name].conversation
        for name in dict.fromkeys(home[hit.id] for hit in topical)
        for history in histories
        if name in history.conversations
    ]
    return Related(tuple(found), _topic_line(question, topical, about), notes)


def _topic_line(
    question: str, hits: Sequence[Hit], conversations: Sequence[Conversation]
) -> str | None:
    """`This is the 5th conversation about authentication`: where a topic comes up often."""
    number = len(conversations) + 1
    counts: Counter[str] = Counter()
    for hit in hits:
        matched = hit.parts.matched if hit.parts is not None else ()
        counts.update(word for word in matched if word.isalpha() and len(word) > 3)
    if number < _MANY or not counts:
        return None
    topic = max(counts, key=lambda word: (counts[word], len(word), word))
    days = sorted(one.created[:10] for one in conversations if one.created)
    since = f", the first on {days[0]}" if days else ""
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    name = spellings(question).get(topic, topic)
    return f"This is the {number}{ending} conversation about {name}{since}."
