"""Conversations out to plain JSON, and in again here or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ralph.errors import BadInput, BadRecord, NotFound
from ralph.kinds.conversation import Exchange
from ralph.memories.many_conversations import Imported, Talk, keep_many
from ralph.memories.plain_conversations import read_conversations
from ralph.memories.series import Series
from ralph.memories.shelf import Shelf
from ralph.record import utc

_SHORTEST_ID = 4


def import_conversations(
    shelf: Shelf, stream: str, data: bytes, *, name: str, project: str = ""
) -> Imported:
    """Bring in the conversations of a file: all of it, or nothing when some of it is bad."""
    talks = read_conversations(data, name=name, project=project)
    came = keep_many(Series(stream, shelf), talks, shelf.settings)
    return Imported(
        conversations=len(came.conversations),
        exchanges=came.exchanges,
        known=came.known,
        files=1,
    )


def export_conversations(
    shelf: Shelf,
    streams: Sequence[str],
    *,
    conversations: Sequence[str] = (),
    since: str | None = None,
) -> list[Talk]:
    """The conversations of these streams, oldest first: all, or those whose ids begin so.

    `since` leaves out exchanges that ended before, and conversations that have none left.
    """
    begun = _moment(utc(since, field="since")) if since else None
    wanted = [one.lower() for one in conversations]
    found: dict[str, Talk] = {}
    for stream in streams:
        for one in _exported(Series(stream, shelf), begun):
            if not wanted or any(one.conversation.id.startswith(start) for start in wanted):
                found.setdefault(one.conversation.id, one)
    for start in wanted:
        _refuse_unclear(start, [identity for identity in found if identity.startswith(start)])
    return sorted(found.values(), key=lambda one: one.conversation.created or "")


def _exported(series: Series, begun: datetime | None) -> list[Talk]:
    said: dict[str, list[Exchange]] = {}
    for one in series.exchanges():
        if begun is None or _moment(one.completed or "") >= begun:
            said.setdefault(one.conversation, []).append(one)
    return [
        Talk(one, sorted(said.get(one.id, ()), key=_held_at))
        for one in series.conversations().values()
        if one.id in said or begun is None
    ]


def _moment(at: str) -> datetime:
    try:
        return datetime.fromisoformat(utc(at))
    except BadRecord:  # nobody knows when it was, and `journal verify` says so
        return datetime.min.replace(tzinfo=UTC)


def _held_at(one: Exchange) -> tuple[str, int]:
    return one.started or one.completed or "", one.number or 0


def _refuse_unclear(wanted: str, found: Sequence[str]) -> None:
    if not found or len(wanted) < _SHORTEST_ID:
        raise NotFound(
            f"there is no conversation {wanted!r}",
            todo="`ralph conversations list` shows their ids.",
        )
    if len(found) > 1:
        raise BadInput(f"{wanted} is the beginning of {len(found)} ids; give more of it")
