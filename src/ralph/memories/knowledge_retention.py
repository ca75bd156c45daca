"""Retention of knowledge: a year after it was published an entry goes, everywhere.

An outcome reported lately prolongs nothing: it is the entry that grows old.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from ralph.errors import BadRecord
from ralph.memories.daily import is_due, note_done
from ralph.memories.knowledge_journal import EXPIRED
from ralph.record import utc

if TYPE_CHECKING:
    from ralph.memories.knowledge import Knowledge

_STAMP = "pruned-knowledge"


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was published before `before`: its entries, and patterns none of which is left."""

    before: str
    entries: int = 0
    patterns: int = 0


def oldest_kept(keep_days: int, at: datetime | None = None) -> str:
    """What was published before this moment has had its time."""
    before = (at or datetime.now(UTC)) - timedelta(days=keep_days)
    return utc(before.isoformat(timespec="milliseconds"))


def is_expired(published: str, before: str) -> bool:
    """Whether something published then has had its time; what has no readable date has not."""
    try:
        return datetime.fromisoformat(utc(published)) < datetime.fromisoformat(before)
    except BadRecord:  # nobody knows when it was, and `journal verify` says so
        return False


def prune(memory: Knowledge, *, dry_run: bool = False, at: datetime | None = None) -> Pruned:
    """Forget what is too old, of every project; or only say what that would be."""
    before = oldest_kept(memory.shelf.settings.knowledge_keep_days, at)
    history = memory.ledger.history()
    old = {entry for entry, slot in history.slots.items() if is_expired(slot.at, before)}
    gone = sum(old.issuperset(entries) for entries in history.patterns.values())
    if old and not dry_run:
        memory.forget(old, reason=EXPIRED)
    return Pruned(before=before, entries=len(old), patterns=gone)


def prune_if_due(memory: Knowledge, *, at: datetime | None = None) -> Pruned | None:
    """Prune unless that was done within a day; None when it was."""
    stamp = memory.home / "cache" / _STAMP
    moment = at or datetime.now(UTC)
    if not is_due(stamp, moment):
        return None
    pruned = prune(memory, at=moment)
    note_done(stamp, moment)
    return pruned
