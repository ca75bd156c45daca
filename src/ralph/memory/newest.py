"""The newest sessions and all notes: what moments and the inbox are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph.records.note import NOTE, Note

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.records.conversation import Exchange

_SESSIONS_READ = 200


def newest_exchanges(ralph: Ralph) -> list[Exchange]:
    """Return the exchanges of the newest sessions, in time order."""
    if not ralph.conversations.exist:
        return []
    history = ralph.conversations.stream.history
    talks = sorted(history.conversations.items(), key=lambda item: item[1].last)
    names = [name for name, _ in talks[-_SESSIONS_READ:]]
    exchanges = history.read_exchanges(names)
    return sorted(exchanges, key=lambda exchange: exchange.completed or "")


def notes_of(ralph: Ralph) -> list[Note]:
    """Return the notes of the project and the private ones."""
    notes = [content for _, content in ralph.notes.contents() if isinstance(content, Note)]
    if ralph.conversations.exist:
        stream = ralph.conversations.stream
        notes += [stream.content(record) for record in ralph.conversations.said(NOTE)]
    return notes
