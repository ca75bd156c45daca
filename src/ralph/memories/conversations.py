"""Conversational memory: what a person and an assistant said, found again by asking."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import msgspec

from ralph.kinds.conversation import DOCUMENT, EXCHANGE
from ralph.memories.conversation_journal import GENERAL, ConversationJournal, Kept, Listed
from ralph.memories.related import Related, Weights, in_order
from ralph.memories.scope import Scope, grouped, homes, without_summaries
from ralph.memories.series import Series
from ralph.recall import Answer, Hit
from ralph.recall.calibration import RELEVANT
from ralph.recall.search import Question
from ralph.text.when import event_range

__all__ = ["GENERAL", "Conversations", "Kept", "Listed"]

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
        floor = self.shelf.settings.conversation_min_score if min_score is None else min_score
        question = self.shelf.question(query, limit=limit, min_score=floor)
        streams = self._within(everywhere)
        scope = Scope.of(question.text, tags=tags, since=since, until=until)
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
        scope = Scope.of(asked.text, tags=tags)
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
        self, scope: Scope, streams: Sequence[Series], *, meaning: bool, budget_s: float | None
    ) -> Scope:
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
        streams: Sequence[Series],
        found: Sequence[Hit],
        scope: Scope,
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
    ) -> list[Listed]:
        """The conversations, those with the newest exchange first."""
        wanted = {tag.casefold() for tag in tags}
        listed = [
            Listed(
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
