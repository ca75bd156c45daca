"""The conversations of one project as a stream: what the journal holds, folded and cut."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime

from ralph.errors import BadRecord
from ralph.index import Passage
from ralph.index.sync import Target
from ralph.journal.fold import Fold
from ralph.kinds.conversation import (
    CONVERSATION,
    EXCHANGE,
    Conversation,
    Exchange,
    conversation_from,
    exchange_from,
)
from ralph.kinds.iteration import cut
from ralph.memories.shelf import Shelf, short_hash
from ralph.recall import Found, Hit
from ralph.record import Complaint, Record

_CUT_VERSION = "exchange-1"
_TITLE_CHARS = 80


class Series:
    """The conversations of one project: a stream of the shelf."""

    def __init__(self, name: str, shelf: Shelf) -> None:
        self.name = name
        self._shelf = shelf
        self.journal = shelf.journals.journal(name)
        self._fold = Fold(self.journal)

    def target(self) -> Target:
        """What the index needs to know to follow these conversations."""
        max_chars = self._shelf.settings.embedding_max_chars

        def passages(record: Record) -> Sequence[Passage]:
            return _passages(record, max_chars)

        return Target(
            name=f"{short_hash('conversations')}-{short_hash(self.name)}",
            stream=self.name,
            journal=self.journal,
            cut=passages,
            cut_version=f"{_CUT_VERSION}-{max_chars}",
            embedder=self._shelf.embedder,
        )

    def records(self) -> list[Record]:
        """Every living record, whatever its kind."""
        return [located.record for located in self._fold.records()]

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten here."""
        return self._fold.forgotten()

    def hits(self, found: Sequence[Found], last_number: int) -> list[Hit]:
        """What recall found, as an answer."""
        return [
            Hit(
                id=one.record.id,
                kind=one.record.kind,
                score=one.score,
                relevance=one.relevance,
                when=when(one.record.at),
                why=one.why,
                record=exchange_from(one.record),
                parts=one.parts,
            )
            for one in found
        ]

    def conversations(self) -> dict[str, Conversation]:
        """Every conversation by its id; the first that was written counts.

        One that was forgotten and went on, or whose record is damaged, is called after the first
        exchange that is there.
        """
        held: dict[str, Conversation] = {}
        for record in self.records():
            if record.kind == CONVERSATION and record.id not in held:
                with contextlib.suppress(BadRecord):  # left to `verify`
                    held[record.id] = conversation_from(record)
        for one in self.exchanges():
            if one.conversation not in held:
                held[one.conversation] = _without_record(one)
        return held

    def bound_to(self, ids: set[str]) -> set[str]:
        """These records and those that cannot stay without them."""
        held: dict[str, set[str]] = {}
        for one in self.exchanges():
            held.setdefault(one.conversation, set()).add(one.id)
        for conversation, exchanges in held.items():
            if conversation in ids:
                ids |= exchanges
            elif exchanges <= ids:
                ids.add(conversation)
        return ids

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong in the journal."""
        count, complaints = self.journal.verify()
        readers = {CONVERSATION: conversation_from, EXCHANGE: exchange_from}
        for located in self._fold.records():
            reader = readers.get(located.record.kind)
            try:
                if reader is not None:
                    reader(located.record)
            except BadRecord as error:
                complaints.append(Complaint(located.file, located.line, error.what))
                count -= 1
        return count, sorted(complaints, key=lambda complaint: complaint.line)

    def exchanges(self) -> list[Exchange]:
        """Every readable exchange in journal order; an id that is there twice counts once."""
        held: dict[str, Exchange] = {}
        for record in self.records():
            if record.kind == EXCHANGE and record.id not in held:
                try:
                    held[record.id] = exchange_from(record)
                except BadRecord:
                    continue  # left to `verify`
        return list(held.values())


def _without_record(one: Exchange) -> Conversation:
    title = cut(" ".join((one.user or one.assistant).split()), _TITLE_CHARS)
    return Conversation(id=one.conversation, title=title, created=one.started or one.completed)


def _passages(record: Record, max_chars: int) -> Sequence[Passage]:
    if record.kind != EXCHANGE:
        return ()
    try:
        one = exchange_from(record)
    except BadRecord:
        return ()
    parts = [one.user, one.assistant]
    for error in one.errors:
        parts += [error.message, error.resolution or ""]
    whole = "\n".join(part for part in parts if part)[:max_chars]
    places = "\n".join(file.path for file in one.files_touched)
    return [Passage(title="", text=whole, places=places, embed=whole)] if whole else ()


def when(at: str, *, today: datetime | None = None) -> str:
    """The day of a moment, and how long ago that is."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return "at an unknown time"
    days = ((today or datetime.now(UTC)).date() - moment.date()).days
    if days < -1:  # whoever wrote it had another clock
        return moment.date().isoformat()
    ago = "today" if days <= 0 else "yesterday" if days == 1 else f"{days} days ago"
    return f"{moment.date().isoformat()}, {ago}"
