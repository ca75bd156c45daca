"""The conversations of one project as a stream of the index, and how long they are kept."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.errors import BadInput, BadRecord
from ralph.index import ASIDE, Passage
from ralph.index.sync import IndexSpec
from ralph.journal import Draft, Fold
from ralph.memory.conversation_history import ConversationStates
from ralph.memory.forgetting import tells_of, texts_of
from ralph.memory.store import Store, hit_of, is_due, note_done, short_hash, verify_records
from ralph.recall import Hit, ScoredRecord
from ralph.records import Complaint, Record, utc
from ralph.records.conversation import (
    CONVERSATION,
    DOCUMENT,
    EXCHANGE,
    LABEL,
    RATING,
    SUMMARY,
    Conversation,
    Document,
    Exchange,
    Label,
    Summary,
    conversation_from,
    exchange_from,
    said_from,
    said_record,
)

if TYPE_CHECKING:
    from ralph.memory.conversations import Conversations


_CUT_VERSION = "exchange-2"
_READERS: dict[str, Callable[[Record], Any]] = {
    CONVERSATION: conversation_from,
    EXCHANGE: exchange_from,
    **dict.fromkeys((SUMMARY, LABEL, RATING, DOCUMENT), said_from),
}


class ConversationStream:
    """The conversations of one project: a stream of the shelf."""

    def __init__(self, name: str, shelf: Store, *, foreign: bool = False) -> None:
        self.name = name
        self.foreign = foreign
        self._shelf = shelf
        self.journals = shelf.journals
        self.journal = shelf.journals.journal(name)
        self._fold = Fold(self.journal)
        self._history = ConversationStates()

    @property
    def history(self) -> ConversationStates:
        """Everything as it stands now."""
        located = self._fold.records()
        self._history.follow(located, self._fold.generation)
        return self._history

    def target(self) -> IndexSpec:
        """What the index needs to know to follow these conversations."""
        max_chars = self._shelf.settings.embedding_max_chars

        def passages(record: Record) -> Sequence[Passage]:
            return _passages(record, max_chars)

        return IndexSpec(
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

    def hit(self, found: ScoredRecord, last_number: int) -> Hit:
        """What recall found, as an answer: an exchange, a summary or a section of a document."""
        one = found.record
        return hit_of(found, when(one.at), _READERS[one.kind](one))

    def conversations(self) -> dict[str, Conversation]:
        """Every conversation by its id."""
        return {name: held.conversation for name, held in self.history.conversations.items()}

    def exchange(self, wanted: str) -> Exchange | None:
        """The exchange with this id, if it is there."""
        record = self.history.records.get(wanted)
        return exchange_from(record) if record is not None and record.kind == EXCHANGE else None

    def exchanges(self, conversation: str | None = None) -> list[Exchange]:
        """Every readable exchange, or those of one conversation, in journal order."""
        history = self.history
        names = history.conversations if conversation is None else [conversation]
        told: list[Exchange] = []
        for record in history.exchanges_of(names):
            with contextlib.suppress(BadRecord):  # left to `verify`
                told.append(exchange_from(record))
        return told

    def bound_to(self, ids: set[str]) -> set[str]:
        """These records and those that cannot stay without them."""
        history = self.history
        for conversation, exchanges in history.of.items():
            if conversation in ids:
                ids |= set(exchanges)
            elif ids.issuperset(exchanges):
                ids.add(conversation)
        # What was said of something forgotten would still tell of it; so would a summary that
        # covers it, of a conversation that goes on without it.
        first = {
            name: next(place for place, one in enumerate(exchanges) if one in ids)
            for name, exchanges in history.of.items()
            if not ids.isdisjoint(exchanges)
        }
        for record in history.records.values():
            if record.kind in (SUMMARY, LABEL, RATING):
                said = said_from(record)
                covers = said.covers if record.kind == SUMMARY else 0
                if said.target in ids or covers > first.get(said.target, covers):
                    ids.add(record.id)
        return ids

    def forget(
        self, ids: Collection[str], *, reason: str | None = None, titles: Collection[str] = ()
    ) -> list[str]:
        """Take these and what is bound to them out for good, and say which were there.

        A conversation that stays loses a title that tells of what goes, or is among `titles`: its
        record goes, and what else that said is written anew.
        """
        gone = self.bound_to(set(ids))
        titled = [one for one in self._titled(gone, titles) if one.id not in gone]
        were_there = self.journal.forget(gone | {one.id for one in titled}, reason=reason)
        labels = [Label(target=one.id, source=one.source, project=one.project) for one in titled]
        self.journal.append([_draft(one) for one in labels])
        return were_there

    def _titled(self, gone: set[str], titles: Collection[str]) -> list[Conversation]:
        """The conversations that go on under a title that must not stay."""
        history = self.history
        found: list[Conversation] = []
        for name, exchanges in history.of.items():
            record = history.records.get(name)
            lost = gone.intersection(exchanges)
            if record is None or not (lost or name in titles):
                continue
            one = conversation_from(record)
            texts = {place: list(texts_of(history.records[place].body)) for place in exchanges}
            told = [text for place in lost for text in texts[place]]
            left = [text for place in exchanges if place not in lost for text in texts[place]]
            if one.title and (name in titles or tells_of(one.title, told, left)):
                found.append(one)
        return found

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong in the journal."""
        return verify_records(self.journal, self._fold, _READERS)


def _draft(label: Label) -> Draft:
    identity = uuid.uuid4().hex[:16]
    record = said_record(label, id=identity, number=0)
    return lambda number: msgspec.structs.replace(record, number=number)


def _passages(record: Record, max_chars: int) -> Sequence[Passage]:
    try:
        if record.kind == EXCHANGE:
            return _of_exchange(exchange_from(record), max_chars)
        if record.kind == SUMMARY:
            said: Summary = said_from(record)
            return [Passage(title="", text=said.text, embed=said.text)]
        if record.kind == DOCUMENT:
            section: Document = said_from(record)
            whole = f"{section.heading}\n{section.text}".strip()[:max_chars]
            return [
                Passage(
                    title=section.heading,
                    text=section.text[:max_chars],
                    places=section.path,
                    embed=whole,
                )
            ]
    except BadRecord:
        return ()
    return ()


def _of_exchange(one: Exchange, max_chars: int) -> Sequence[Passage]:
    """What a person asked says what an exchange is about; the answer holds much besides."""
    asked, answered = one.user[:max_chars], one.assistant[:max_chars]
    told: list[str] = []
    for error in one.errors:
        told += [error.message, error.resolution or ""]
    told += [file.path for file in one.files_touched]
    embed = f"{asked}{ASIDE}{answered}" if answered else asked
    if not asked:
        embed = answered
    if not embed:
        return ()
    text = "\n".join(part for part in told if part)
    return [Passage(title=asked, text=text, places=answered, embed=embed)]


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


# -- Retention: what was said longer ago than the person wants to keep goes, everywhere.
#
# Off unless `conversations_keep_days` says otherwise. Documents stay: nobody said them.


REASON = "older than conversations_keep_days"
_STAMP = "pruned"


class PrunedConversations(msgspec.Struct, frozen=True, kw_only=True):
    """What is older than `before`: how many exchanges, and conversations none of which is left."""

    before: str
    exchanges: int = 0
    conversations: int = 0


def prune(
    memory: Conversations, *, dry_run: bool = False, at: datetime | None = None
) -> PrunedConversations:
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
        series = ConversationStream(name, shelf)
        old = series.bound_to(_older(series, before))
        kinds = [one.kind for one in series.history.records.values() if one.id in old]
        exchanges += kinds.count(EXCHANGE)
        conversations += kinds.count(CONVERSATION)
        if old and not dry_run and series.forget(old, reason=REASON):
            shelf.erase_soon(series.target())
    told = utc(before.isoformat(timespec="seconds"))
    return PrunedConversations(before=told, exchanges=exchanges, conversations=conversations)


def prune_if_due(
    memory: Conversations, *, at: datetime | None = None
) -> PrunedConversations | None:
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


def _older(series: ConversationStream, before: datetime) -> set[str]:
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
