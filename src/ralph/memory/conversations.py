"""Conversational memory: save, search and show what a person and an assistant said."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from ralph.config import Settings
from ralph.errors import BadInput, NotFound
from ralph.journal import Draft
from ralph.memory.conversation_history import (
    Related,
    SearchFilter,
    Weights,
    grouped,
    homes,
    in_order,
    without_summaries,
)
from ralph.memory.conversation_journal import (
    ConversationJournal,
    ConversationSummary,
    prepared_conversation,
    prepared_exchange,
    renumbered,
)
from ralph.memory.conversation_stream import ConversationStream
from ralph.recall import Answer, Hit
from ralph.recall.score import RELEVANT
from ralph.recall.search import Question
from ralph.records import Complaint, Record
from ralph.records.conversation import (
    DOCUMENT,
    EXCHANGE,
    Conversation,
    Exchange,
    conversation_record,
    exchange_record,
)
from ralph.text.times import event_range

_MIN_SCORE = 0.20

# How many passages are looked at: they are grouped, filtered and lifted afterwards.
_DEPTH = 60


class Conversations(ConversationJournal):
    """The conversations of one project, or of none; those of others can be asked for too."""

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        min_score: float | None = None,
        exclude: str | None = None,
        everywhere: bool = False,
        words_only: bool = False,
        budget_s: float | None = None,
        tags: Collection[str] = (),
        since: str | None = None,
        until: str | None = None,
        documents: bool = False,
    ) -> Answer:
        """The exchanges that answer the question, best first; `exclude` names a conversation.

        `since` and `until` are days, both included; else a time that the question plainly names
        counts. `documents` brings in sections of the user's own documents.
        """
        # A list to look through may hold more doubtful hits than what a prompt is given: doors that
        # tell an agent pass the floor that holds everywhere else.
        floor = _MIN_SCORE if min_score is None else min_score
        question = self.shelf.question(query, limit=limit, min_score=floor)
        streams = self._within(everywhere)
        scope = SearchFilter.of(question.text, tags=tags, since=since, until=until)
        scope = self._dated(scope, streams, meaning=not words_only, budget_s=budget_s)
        deeper = msgspec.structs.replace(question, text=scope.question, limit=_DEPTH)
        found = self.shelf.ask(streams, deeper, meaning=not words_only, budget_s=budget_s)
        hits = self._fitting(streams, found, scope, exclude=exclude, documents=documents)
        return Answer(hits[: question.limit], found.notes)

    def related(
        self,
        question: str,
        *,
        exclude: str | None = None,
        everywhere: bool = False,
        conversations: int | None = None,
        exchanges: int | None = None,
        min_similarity: float | None = None,
        tags: Collection[str] = (),
        budget_s: float | None = None,
    ) -> Related:
        """The past conversations that matter for a question, and their exchanges that do.

        `budget_s` bounds the catching up with the journal before it.
        """
        settings = self.shelf.settings
        floor = settings.rag_min_similarity if min_similarity is None else min_similarity
        asked = self.shelf.question(question, limit=1, min_score=min(floor, RELEVANT))
        streams = self._within(everywhere)
        scope = SearchFilter.of(asked.text, tags=tags)
        scope = self._dated(scope, streams, meaning=True, budget_s=budget_s)
        deeper = msgspec.structs.replace(asked, text=scope.question, limit=_DEPTH)
        found = self.shelf.ask(streams, deeper, budget_s=budget_s)
        hits = self._fitting(streams, found, scope, exclude=exclude, summaries=True)
        return grouped(
            question,
            hits,
            [series.history for series in streams],
            floor=floor,
            conversations=conversations or settings.rag_conversation_limit,
            exchanges=exchanges or settings.rag_exchange_limit_per_conversation,
            notes=found.notes,
        )

    def _dated(
        self,
        scope: SearchFilter,
        streams: Sequence[ConversationStream],
        *,
        meaning: bool,
        budget_s: float | None,
    ) -> SearchFilter:
        """`before the release`: the day is that of the exchange which tells of it most surely."""
        event = None if scope.first or scope.last else event_range(scope.question)
        if event is None:
            return scope
        side, phrase = event
        asked = Question(phrase, limit=_DEPTH, min_score=RELEVANT)
        found = self.shelf.ask(streams, asked, meaning=meaning, budget_s=budget_s)
        days = [hit.record.completed[:10] for hit in found if hit.kind == EXCHANGE]
        return scope.around(side, days[0]) if days else scope

    def _fitting(
        self,
        streams: Sequence[ConversationStream],
        found: Sequence[Hit],
        scope: SearchFilter,
        *,
        exclude: str | None,
        documents: bool = False,
        summaries: bool = False,
    ) -> list[Hit]:
        histories = [series.history for series in streams]
        home = homes(found, histories)
        kept = [
            hit
            for hit in found
            if scope.holds(hit, home[hit.id], histories)
            and (not exclude or home[hit.id] != exclude)
            and (documents or hit.kind != DOCUMENT)
        ]
        half_life = self.shelf.settings.rag_recency_half_life_days
        ratings = {name: value for one in histories for name, value in one.ratings.items()}
        named = frozenset(hit.id for hit in kept if scope.named and scope.in_time(hit))
        weights = Weights(ratings, named, half_life, datetime.now(UTC))
        ordered = in_order(kept, home, weights)
        return ordered if summaries else without_summaries(ordered, histories)

    def list(
        self, limit: int | None = None, *, everywhere: bool = False, tags: Collection[str] = ()
    ) -> list[ConversationSummary]:
        """The conversations, those with the newest exchange first."""
        wanted = {tag.casefold() for tag in tags}
        listed = [
            ConversationSummary(
                held.conversation,
                held.exchanges,
                held.last or held.conversation.created or "",
                tuple(sorted(held.tags)),
                summary.text if (summary := history.summaries.get(name)) else "",
            )
            for history in (series.history for series in self._within(everywhere))
            for name, held in history.conversations.items()
            if wanted <= held.tags
        ]
        # Of those that ended in the same moment, the one begun later.
        return sorted(reversed(listed), key=lambda one: one.last, reverse=True)[:limit]


# -- One conversation, or one exchange of it, with all that was said of it later.


_SHORTEST_ID = 4


class ConversationDetails(msgspec.Struct, frozen=True):
    """A conversation, the exchanges that were asked for, its tags, and summaries by what they
    are about."""

    conversation: Conversation
    exchanges: Sequence[Exchange]
    tags: tuple[str, ...] = ()
    summaries: Mapping[str, str] = {}


def details(
    memory: Conversations,
    *,
    conversation: str | None = None,
    exchange: str | None = None,
    everywhere: bool = False,
) -> ConversationDetails:
    """What is known of a conversation or of one exchange, by its id or the beginning of it."""
    if (conversation is None) == (exchange is None):
        raise BadInput(
            "give a conversation_id or an exchange_id, one of them",
            todo='For example: fetch_conversation_details {"exchange_id": "3f2a9c1e"}',
        )
    wanted = _long_enough(exchange or conversation or "")
    # Another project's conversations do not exist here, unless all were asked for.
    try:
        if exchange is not None:
            exchanges = [memory.get(wanted, everywhere=everywhere).record]
            held = memory.conversation(exchanges[0].conversation, everywhere=everywhere)
        else:
            held = memory.conversation(wanted, everywhere=everywhere)
            exchanges = memory.exchanges(held.id, everywhere=everywhere)
    except NotFound:
        raise NotFound(
            f"there is no {wanted!r} here", todo="Take an id from search_conversations."
        ) from None
    listed = standing(memory, everywhere=everywhere).get(held.id)
    summaries = {
        one: told.text for one in (x.id for x in exchanges) if (told := memory.summary(one))
    }
    if listed is not None and listed.summary:
        summaries[held.id] = listed.summary
    return ConversationDetails(held, exchanges, listed.tags if listed else (), summaries)


def standing(memory: Conversations, *, everywhere: bool = False) -> dict[str, ConversationSummary]:
    """Every conversation as it stands now, by its id."""
    return {one.conversation.id: one for one in memory.list(everywhere=everywhere)}


def _long_enough(wanted: str) -> str:
    plain = wanted.strip()
    if len(plain) < _SHORTEST_ID:
        raise BadInput(f"{wanted!r} is too short for an id", todo="Give 4 characters or more.")
    return plain


# -- Many conversations of one project kept at once: one reading of its journal, one flush.


class ConversationContent(msgspec.Struct, frozen=True):
    """A conversation and exchanges of it, in the order they were held."""

    conversation: Conversation
    exchanges: Sequence[Exchange]


class SavedConversations(msgspec.Struct, frozen=True):
    """What came of it: conversations that grew, new exchanges, and those that were known.

    What was forgotten once is known, too, and stays forgotten.
    """

    conversations: frozenset[str] = frozenset()
    exchanges: int = 0
    known: int = 0


class ConversationImport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import came to; `conversations` counts those that are new or grew.

    `known` are exchanges that were kept, or forgotten, before. `waiting` are still under way and
    left for the next import. `files` were read, `unchanged` were not: nothing is new in them;
    `unread` are those of which nothing could be read, and why. `elsewhere` were held in other
    projects, and left out.
    """

    conversations: int = 0
    exchanges: int = 0
    known: int = 0
    waiting: int = 0
    files: int = 0
    unchanged: int = 0
    elsewhere: int = 0
    unread: list[Complaint] = []
    complaints: list[Complaint] = []


def keep_many(
    series: ConversationStream, talks: Sequence[ConversationContent], settings: Settings
) -> SavedConversations:
    """Keep all of them or none; what is known by its id is neither prepared nor written again."""
    met = series.forgotten() | {record.id for record in series.records()}
    drafts: list[Record | Draft] = []
    grown: set[str] = set()
    fresh: set[str] = set()
    known = 0
    for one in talks:
        conversation = prepared_conversation(one.conversation)
        if conversation.id not in met and conversation.id not in grown:
            grown.add(conversation.id)
            drafts.append(renumbered(conversation_record(conversation, number=0)))
        for exchange in one.exchanges:
            if exchange.id in met or exchange.id in fresh:
                known += 1
                continue
            fresh.add(exchange.id)
            grown.add(conversation.id)
            ready = prepared_exchange(exchange, conversation.id)
            drafts.append(renumbered(exchange_record(ready, number=0)))
    if drafts:
        series.journal.append(drafts)
    return SavedConversations(frozenset(grown), len(fresh), known)
