"""Retention: what was said longer ago than the person wants to keep goes, everywhere.

Off unless `conversations_keep_days` says otherwise. Documents stay: nobody said them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from ralph.errors import BadInput, BadRecord
from ralph.kinds.conversation import CONVERSATION, EXCHANGE
from ralph.memories.daily import is_due, note_done
from ralph.memories.series import Series
from ralph.record import utc

if TYPE_CHECKING:
    from ralph.memories.conversations import Conversations
    from ralph.record import Record

REASON = "older than conversations_keep_days"
_STAMP = "pruned"


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What is older than `before`: how many exchanges, and conversations none of which is left."""

    before: str
    exchanges: int = 0
    conversations: int = 0


def prune(memory: Conversations, *, dry_run: bool = False, at: datetime | None = None) -> Pruned:
    """Forget what is too old, in every project; or only say what that would be."""
    days = memory.shelf.settings.conversations_keep_days
    if not days:
        raise BadInput(
            "conversations are kept for ever: conversations_keep_days is 0",
            todo="Say how long, for example: ralph config --user conversations_keep_days 365",
        )
    before = (at or datetime.now(UTC)) - timedelta(days=days)
    shelf = memory.shelf
    exchanges = conversations = 0
    for name in shelf.journals.names():
        series = Series(name, shelf)
        old = series.bound_to(_older(series, before))
        kinds = [one.kind for one in series.history.records.values() if one.id in old]
        exchanges += kinds.count(EXCHANGE)
        conversations += kinds.count(CONVERSATION)
        if old and not dry_run and series.forget(old, reason=REASON):
            shelf.erase_soon(series.target())
    told = utc(before.isoformat(timespec="seconds"))
    return Pruned(before=told, exchanges=exchanges, conversations=conversations)


def prune_if_due(memory: Conversations, *, at: datetime | None = None) -> Pruned | None:
    """Prune where that is wanted and the last time was a day ago; None when it was not."""
    if not memory.shelf.settings.conversations_keep_days:
        return None
    stamp = memory.home / "cache" / _STAMP
    moment = at or datetime.now(UTC)
    if not is_due(stamp, moment):
        return None
    pruned = prune(memory, at=moment)
    note_done(stamp, moment)
    return pruned


def _older(series: Series, before: datetime) -> set[str]:
    """Exchanges that ended before, and conversations begun before in which nothing was said."""
    history = series.history
    return {
        one.id
        for one in history.records.values()
        if (one.kind == EXCHANGE or (one.kind == CONVERSATION and one.id not in history.of))
        and _is_before(one, before)
    }


def _is_before(record: Record, before: datetime) -> bool:
    try:
        return datetime.fromisoformat(utc(record.at)) < before
    except BadRecord:  # nobody knows when it was, and `journal verify` says so
        return False
