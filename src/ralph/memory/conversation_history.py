"""The state of a project's conversations, folded from its journal, and what a search filters by.

Nothing is read twice: what is new in the journal moves the state on. Only a rewrite begins anew.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Self

import msgspec

from ralph.errors import BadRecord
from ralph.recall import Hit
from ralph.recall.score import RELEVANT
from ralph.records import Located, Record, utc
from ralph.records.conversation import (
    CONVERSATION,
    DOCUMENT,
    EXCHANGE,
    LABEL,
    RATING,
    SUMMARY,
    Conversation,
    Exchange,
    Label,
    Rating,
    Summary,
    conversation_from,
    conversation_id,
    exchange_from,
    exchange_id,
    said_from,
)
from ralph.records.iteration import Iteration, cut
from ralph.text.times import time_range
from ralph.text.tokens import spellings

_TITLE_CHARS = 80


class _Glance(msgspec.Struct, frozen=True):
    """As much of an exchange as a list needs; the decoder skips the rest."""

    conversation: str
    user: str = ""
    assistant: str = ""


_glance = msgspec.json.Decoder(_Glance).decode


class ConversationState(msgspec.Struct):
    """A conversation as it stands now."""

    conversation: Conversation
    titled: bool = False
    exchanges: int = 0
    last: str = ""
    tags: set[str] = msgspec.field(default_factory=set)


class ConversationStates:
    """The conversations of one journal as they stand now."""

    def __init__(self) -> None:
        self._generation = -1
        self._seen = 0
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.conversations: dict[str, ConversationState] = {}
        self.records: dict[str, Record] = {}
        self.of: dict[str, list[str]] = {}
        self.summaries: dict[str, Summary] = {}
        self.ratings: dict[str, int] = {}
        self.documents: dict[str, list[str]] = {}
        # Labels of conversations whose first exchanges were forgotten.
        self._early: dict[str, list[Label]] = {}

    def follow(self, located: list[Located], generation: int) -> None:
        """Take in what the journal has more than before."""
        if generation != self._generation:
            self.clear()
            self._generation, self._seen = generation, 0
        for one in located[self._seen :]:
            self._take(one.record)
        self._seen = len(located)

    def _take(self, record: Record) -> None:
        if record.id in self.records:
            return  # the first that was written counts
        with contextlib.suppress(
            BadRecord, msgspec.DecodeError, UnicodeDecodeError, RecursionError
        ):  # what cannot be read is left to `verify`
            if record.kind == EXCHANGE:
                self._exchange(record)
            elif record.kind == CONVERSATION:
                self._conversation(conversation_from(record))
            elif record.kind in (SUMMARY, LABEL, RATING, DOCUMENT):
                self._said(record)
            self.records[record.id] = record

    def _exchange(self, record: Record) -> None:
        seen = _glance(record.body)
        held = self.conversations.get(seen.conversation)
        if held is None:  # forgotten, and then it went on
            title = cut(" ".join((seen.user or seen.assistant).split()), _TITLE_CHARS)
            made = Conversation(id=seen.conversation, title=title, created=record.at)
            held = self._begin(ConversationState(made))
        held.exchanges += 1
        held.last = max(held.last, record.at)
        self.of.setdefault(seen.conversation, []).append(record.id)

    def _conversation(self, one: Conversation) -> None:
        held = self.conversations.get(one.id)
        if held is None:
            self._begin(ConversationState(one, titled=bool(one.title)))
        elif not held.titled:
            held.conversation, held.titled = one, True

    def _begin(self, held: ConversationState) -> ConversationState:
        name = held.conversation.id
        self.conversations[name] = held
        for label in self._early.pop(name, ()):
            self._label(label)
        return held

    def _said(self, record: Record) -> None:
        said = said_from(record)
        if isinstance(said, Summary):
            before = self.summaries.get(said.target)
            if before is None or before.covers <= said.covers:
                self.summaries[said.target] = said
        elif isinstance(said, Rating):
            self.ratings[said.target] = said.value
        elif isinstance(said, Label):
            self._label(said)
        else:
            self.documents.setdefault(said.path, []).append(record.id)

    def _label(self, said: Label) -> None:
        held = self.conversations.get(said.target)
        if held is None:
            self._early.setdefault(said.target, []).append(said)
            return
        held.tags = (held.tags | set(said.add)) - set(said.remove)
        if said.source:
            held.conversation = msgspec.structs.replace(
                held.conversation, source=said.source, project=said.project
            )
        if said.title is not None:
            held.conversation = msgspec.structs.replace(held.conversation, title=said.title)
            held.titled = True

    def exchanges_of(self, conversations: Iterable[str]) -> list[Record]:
        """The records of these conversations' exchanges, as they were written."""
        return [self.records[one] for name in conversations for one in self.of.get(name, ())]


# -- What belongs together among hits: exchanges lifted by their conversation, conversations found
# by their summary or by any of their exchanges.


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


# -- Which hits a question about the past may have: by time, by tag, by conversation.


class SearchFilter(msgspec.Struct, frozen=True):
    """What a question asks for besides its words: days, both included, and tags.

    Days that were given are a limit. Days that the question itself names only lift what lies in
    them (`named`): people misremember, and a limit that is wrong hides the answer.
    """

    question: str
    first: str = ""
    last: str = ""
    tags: frozenset[str] = frozenset()
    named: bool = False

    @classmethod
    def of(
        cls,
        question: str,
        *,
        tags: Collection[str] = (),
        since: str | None = None,
        until: str | None = None,
        today: date | None = None,
    ) -> Self:
        """The scope that was given, or else the time that the question plainly names."""
        wanted = frozenset(tag.casefold() for tag in tags)
        if since or until:
            first = utc(since, field="since")[:10] if since else ""
            last = utc(until, field="until")[:10] if until else ""
            return cls(question, first, last, wanted)
        found = time_range(question, today or datetime.now(UTC).date())
        if found is None:
            return cls(question, tags=wanted)
        first, last = (day.isoformat() if day else "" for day in found)
        return cls(question, first, last, wanted, named=True)

    def around(self, side: str, day: str) -> Self:
        """The same, for what was said on this side of a day."""
        first, last = ("", day) if side == "before" else (day, "")
        return msgspec.structs.replace(self, first=first, last=last, named=True)

    def in_time(self, hit: Hit) -> bool:
        """Whether an exchange was held in the days that were asked for."""
        day = (hit.record.completed or "")[:10] if hit.kind == EXCHANGE else ""
        return bool(day) and day >= self.first and (not self.last or day <= self.last)

    def holds(self, hit: Hit, home: str, histories: Sequence[ConversationStates]) -> bool:
        """Whether the hit lies in the days that are a limit, and has the tags."""
        limited = (self.first or self.last) and not self.named
        if hit.kind == EXCHANGE and limited and not self.in_time(hit):
            return False
        if not self.tags:
            return True
        held = [one.conversations[home] for one in histories if home in one.conversations]
        return any(self.tags <= one.tags for one in held)


def homes(hits: Sequence[Hit], histories: Sequence[ConversationStates]) -> dict[str, str]:
    """The conversation that each hit belongs to, by the hit's id; "" for a document."""
    about = [hit.record.target for hit in hits if hit.kind == SUMMARY]
    targets = {
        target: exchange_from(record).conversation
        for target in about
        for history in histories
        if (record := history.records.get(target)) is not None and record.kind == EXCHANGE
    }
    return {hit.id: belongs_to(hit, targets) for hit in hits}


def without_summaries(hits: Sequence[Hit], histories: Sequence[ConversationStates]) -> list[Hit]:
    """Exchanges and documents; one that was found by its summary stands for itself."""
    kept: dict[str, Hit] = {}
    for hit in hits:
        if hit.kind != SUMMARY:
            kept.setdefault(hit.id, hit)
            continue
        for history in histories:
            record = history.records.get(hit.record.target)
            if record is not None and record.kind == EXCHANGE:
                told = exchange_from(record)
                kept.setdefault(
                    record.id,
                    msgspec.structs.replace(hit, id=record.id, kind=EXCHANGE, record=told),
                )
    return list(kept.values())


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
    similarity: dict[str, float] = {}
    for hit in hits:
        if home[hit.id]:
            value = hit.score or 0.0
            similarity[home[hit.id]] = max(similarity.get(home[hit.id], 0.0), value)
    # In the order of the hits, which knows more than the score alone.
    order = list(dict.fromkeys(home[hit.id] for hit in hits if home[hit.id]))
    chosen = [name for name in order if similarity[name] >= floor][:conversations]
    shown = without_summaries([hit for hit in hits if home[hit.id] in chosen], histories)
    told = [
        _conversation(name, similarity[name], shown, histories, floor=floor, exchanges=exchanges)
        for name in chosen
    ]
    topical = [hit for hit in hits if hit.kind != DOCUMENT and (hit.score or 0.0) >= RELEVANT]
    about = [
        history.conversations[name].conversation
        for name in dict.fromkeys(home[hit.id] for hit in topical)
        for history in histories
        if name in history.conversations
    ]
    return Related(tuple(told), topic_line(question, topical, about), notes)


def _conversation(
    name: str,
    similarity: float,
    hits: Sequence[Hit],
    histories: Sequence[ConversationStates],
    *,
    floor: float,
    exchanges: int,
) -> RelatedConversation:
    history = next(one for one in histories if name in one.conversations)
    held = history.conversations[name]
    summaries: Mapping[str, str] = {
        target: summary.text for target, summary in history.summaries.items()
    }
    fitting = [
        hit
        for hit in hits
        if hit.kind == EXCHANGE and hit.record.conversation == name and (hit.score or 0.0) >= floor
    ]
    return RelatedConversation(
        held.conversation,
        round(similarity, 4),
        summaries.get(name, ""),
        held.exchanges,
        tuple(
            RelatedExchange(hit.record, hit.score or 0.0, summaries.get(hit.id, ""))
            for hit in fitting[:exchanges]
        ),
        tuple(sorted(held.tags)),
    )


# -- How what happened once in a person's session is named, as an exchange and as an iteration.


CLAUDE_CODE = "claude-code"


def run_name(session: str, key: str) -> str:
    """The run that one exchange of a session was."""
    return f"{session}#{key}"


def held_in(record: Iteration | Exchange, session: str) -> bool:
    """Whether this person's session is where it happened."""
    if isinstance(record, Exchange):
        return record.conversation == conversation_id(CLAUDE_CODE, session)
    return (record.session_id or "").rpartition("#")[0] == session != ""


def event_of(hit: Hit) -> str:
    """The id of what happened: the exchange's, also for the iteration that it was."""
    session, apart, key = (getattr(hit.record, "session_id", None) or "").rpartition("#")
    return exchange_id(conversation_id(CLAUDE_CODE, session), key) if apart else hit.id
