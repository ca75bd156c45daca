"""Searching past conversations: which hits are allowed, their order, and their conversations.

An exchange is lifted by its conversation. A conversation is found by its summary or by any of its
exchanges.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from ralph.memory.conversation_stream import ConversationStates
from ralph.recall import Hit
from ralph.recall.score import RELEVANT, shortness
from ralph.recall.search import Candidate, WordsHeld
from ralph.records import Record
from ralph.records import conversation as schema
from ralph.records.conversation import Conversation, Exchange
from ralph.text.sanitize import plain_date
from ralph.text.tokens import compiled, spellings

# An exchange is lifted by the better of its two neighbors and by its conversation: by the values of
# the conversation's best exchanges, each counting less than the one before, and by the words of the
# question that occur anywhere in it. Short turns ("yes, it was great") are lifted much; a long
# exchange speaks for itself.
_NEIGHBOR, _SHORT_NEIGHBOR = 0.05, 0.25
_CONVERSATION, _SHORT_CONVERSATION = 0.15, 0.40
_SHORT_HELD = 0.40
_LEAST_SHORT = 0.05
_BEST, _FADING = 12, 0.8
# If the question counts or lists, only the best exchange of each conversation is lifted.
_LISTS = (
    r"\bhow (?:many|much|often)\b|\b(?:all (?:the|my|our)|every|each|in total|altogether)\b"
    r"|\b(?:which|what) (?:\w+ ){0,2}\w+[^s\W]s (?:did|do|have|had) (?:I|we)\b|\A\W*list\b"
)
_LIKED, _DISLIKED = 1.1, 0.8
_MANY = 3
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_NO_EXCHANGES: Sequence[str] = ()
_value = operator.attrgetter("value")


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


# A candidate, its conversation, that one's exchanges, and the candidate's place among them.
Seated = tuple[Candidate, str, Sequence[str], int]


def _seated(
    candidates: Iterable[Candidate], histories: Sequence[ConversationStates]
) -> list[Seated]:
    """Return candidates with their conversations; documents have none."""
    seated: list[Seated] = []
    for one in candidates:
        record = one.record
        target, home, exchanges, place = record.id, "", _NO_EXCHANGES, 0
        if is_summary := record.kind == schema.SUMMARY:
            target = schema.content_of(record).target
        for history in histories:
            if (position := history.positions.get(target)) is not None:
                home = position[0]
                if not is_summary:
                    exchanges, place = history.exchanges[home], position[1]
                break
            if target in history.conversations:
                home = target
        seated.append((one, home, exchanges, place))
    return seated


def show_exchanges(
    candidates: Sequence[Candidate], histories: Sequence[ConversationStates], *, summaries: bool
) -> list[Candidate]:
    """Return exchanges, documents and notes. An exchange replaces the summary that found it.

    With `summaries`, the summary of a conversation stays if none of its exchanges was found. If
    some were, the best of them gets the summary's value if that is higher.
    """
    found: dict[str, Candidate] = {}
    best: dict[str, Candidate] = {}
    talks: dict[str, Candidate] = {}
    for one in sorted(candidates, key=_value, reverse=True):
        shown = one.record.id
        if one.record.kind == schema.SUMMARY:
            shown = one.hit.record.target
            records = (states.records[shown] for states in histories if shown in states.records)
            about = next((record for record in records if record.kind == schema.EXCHANGE), None)
            if about is None:
                talks.setdefault(shown, one)
                continue
            fields = {"id": shown, "kind": about.kind, "record": schema.content_of(about)}
            one.hit = msgspec.structs.replace(one.hit, **fields)
        found.setdefault(shown, one)
        for states in histories if summaries else ():
            if shown in states.positions:
                best.setdefault(states.positions[shown][0], one)
    if not summaries:
        return list(found.values())
    for name, one in talks.items():
        if name in best and one.value > best[name].value:
            for field in ("value", "text", "held", "words", "cosine"):
                setattr(best[name], field, getattr(one, field))
    return [*found.values(), *(one for name, one in talks.items() if name not in best)]


def lists(question: str) -> bool:
    """Whether the question counts or lists things, so its answer is in many conversations."""
    return compiled(_LISTS, re.I).search(question) is not None


def lift(
    candidates: list[Candidate],
    histories: Sequence[ConversationStates],
    *,
    words_held: WordsHeld,
    spread: bool,
    allowed: SearchFilter,
    half_life_days: float,
    away: bool,
) -> list[Candidate]:
    """Return the allowed candidates, each lifted by its neighbors and its conversation.

    `words_held` returns the total weight of the question's words in some candidates. `spread`: the
    best of each conversation comes before further hits from the same one. Ratings count, too. With
    `half_life_days` of 0, values do not fade with time. `away`: the journals' server is down, so
    the index may have records that cannot be read.
    """
    ratings = {name: value for one in histories for name, value in one.ratings.items()}
    now = datetime.now(UTC)
    for one in candidates if ratings or half_life_days else ():
        record = one.record
        one.rating = ratings.get(record.id, 0)
        if one.rating:
            one.value *= _LIKED if one.rating > 0 else _DISLIKED
        if half_life_days and record.kind == schema.EXCHANGE:
            age = (now - datetime.fromisoformat(record.at)).total_seconds() / 86400
            one.value *= 0.5 ** (max(0.0, age) / half_life_days)
    chosen = _seated(sorted(candidates, key=_value, reverse=True), histories)
    if allowed != SearchFilter():
        chosen = [one for one in chosen if allowed.allows(one[0].record, one[1], histories)]
    if away:
        readable = {"", *(name for history in histories for name in history.conversations)}
        chosen = [one for one in chosen if one[1] in readable]
    own = {one.record.id: one.value for one, _, _, _ in chosen}
    if chosen:
        _lift_by_conversation(chosen, own, words_held)
    if chosen and spread:
        _spread(chosen, own)
    return [each[0] for each in chosen]


def _lift_by_conversation(
    seated: Sequence[Seated], values: Mapping[str, float], words_held: WordsHeld
) -> None:
    """Lift candidates, given best first; `values` are theirs by id."""
    talks: dict[str, list[Seated]] = {}
    for each in seated:
        # A document or a note counts as a conversation of its own.
        talks.setdefault(each[1] or each[0].record.id, []).append(each)
    short = shortness(sum([each[0].text.size[1] for each in seated]) / len(seated))
    fades = [_FADING**place for place in range(_BEST)]
    best = [
        sum([f * one[0].value for f, one in zip(fades, t, strict=False)]) for t in talks.values()
    ]
    held = [0.0] * len(best)
    if short > _LEAST_SHORT:
        held = [words_held([each[0] for each in talk]) for talk in talks.values()]
    by_best = (_CONVERSATION + _SHORT_CONVERSATION * short) / (max(best) or 1.0)
    by_held = _SHORT_HELD * short / (max(held) or 1.0)
    beside = _NEIGHBOR + _SHORT_NEIGHBOR * short
    value_of = values.get
    for talk, its_best, its_held in zip(talks.values(), best, held, strict=True):
        lift = by_best * its_best + by_held * its_held
        for one, _, exchanges, place in talk:
            # The better value of the exchanges before and after.
            near = value_of(exchanges[place - 1], 0.0) if place else 0.0
            after = value_of(exchanges[place + 1], 0.0) if place + 1 < len(exchanges) else 0.0
            near = after if after > near else near
            one.value += lift + beside * near


def _spread(seated: Sequence[Seated], own: Mapping[str, float]) -> None:
    """Put the best of each conversation before further hits from the same one.

    `own` has the values without a lift: the best of a conversation does not need one, and further
    hits get none.
    """
    order = sorted(seated, key=lambda each: each[0].value, reverse=True)
    scale = order[0][0].value / (max(own.values()) or 1.0)
    seen: set[str] = set()
    for one, home, _, _ in order:
        name = home or one.record.id
        if name in seen:
            one.value = own[one.record.id]
        else:
            seen.add(name)
            one.value = max(one.value, scale * own[one.record.id])


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
    """Return the best conversations and the best exchanges in each, none below the floor.

    The similarity of a conversation is that of its summary or its best exchange, so exchanges that
    the summary does not mention are found, too.
    """
    home = {
        hit.id: hit.record.conversation if hit.kind == schema.EXCHANGE else hit.record.target
        for hit in hits
        if hit.kind in (schema.EXCHANGE, schema.SUMMARY)
    }
    similarity: dict[str, float] = {}
    for hit in hits:
        if name := home.get(hit.id):
            similarity[name] = max(similarity.get(name, 0.0), hit.score or 0.0)
    chosen = [name for name, value in similarity.items() if value >= floor][:conversations]
    sure = [hit for hit in hits if hit.kind == schema.EXCHANGE and (hit.score or 0.0) >= floor]
    shown = [hit for hit in sure if home.get(hit.id) in chosen]
    found: list[RelatedConversation] = []
    for name in chosen:
        state = next(one.conversations[name] for one in histories if name in one.conversations)
        best = [hit for hit in shown if hit.record.conversation == name][:exchanges]
        related = tuple(RelatedExchange(hit.record, hit.score or 0.0) for hit in best)
        value = round(similarity[name], 4)
        about_it = (state.conversation, value, state.summary, state.exchanges, related)
        found.append(RelatedConversation(*about_it))
    relevant = [hit for hit in hits if (hit.score or 0.0) >= RELEVANT]
    topical = [hit for hit in relevant if hit.id in home]
    names = dict.fromkeys(home[hit.id] for hit in topical)
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
