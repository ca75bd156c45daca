"""Many conversations of one project kept at once: one reading of its journal, one flush."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ralph.config import Settings
from ralph.errors import JournalError
from ralph.journal import Draft
from ralph.kinds.conversation import (
    Conversation,
    Exchange,
    conversation_record,
    exchange_record,
)
from ralph.memories.conversation_journal import renumbered
from ralph.memories.exchange_intake import prepared_conversation, prepared_exchange
from ralph.memories.series import Series
from ralph.record import Complaint, Record


class Talk(msgspec.Struct, frozen=True):
    """A conversation and exchanges of it, in the order they were held."""

    conversation: Conversation
    exchanges: Sequence[Exchange]


class Came(msgspec.Struct, frozen=True):
    """What came of it: conversations that grew, new exchanges, and those that were known.

    What was forgotten once is known, too, and stays forgotten.
    """

    conversations: frozenset[str] = frozenset()
    exchanges: int = 0
    known: int = 0


class Imported(msgspec.Struct, frozen=True, kw_only=True):
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


def keep_many(series: Series, talks: Sequence[Talk], settings: Settings) -> Came:
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
            ready = prepared_exchange(exchange, conversation.id, settings)
            drafts.append(renumbered(exchange_record(ready, number=0)))
    if drafts:
        _make_folder(series)
        series.journal.append(drafts)
    return Came(frozenset(grown), len(fresh), known)


def _make_folder(series: Series) -> None:
    try:
        series.journals.prepare()
    except OSError as error:
        raise JournalError(
            f"conversations cannot be kept ({error.strerror or error})",
            where=series.journals.where,
            todo="Permit writing there, or set RALPH_HOME to a folder of yours.",
        ) from error
