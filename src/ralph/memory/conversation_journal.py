"""Conversations as they are written and looked up: the journal's side of the memory."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ralph.config import Settings
from ralph.errors import BadInput, BadRecord, NotFound
from ralph.index import Embedder
from ralph.index.sync import IndexSpec, Progress, Synced, open_index
from ralph.journal import Draft
from ralph.memory.conversation_history import homes
from ralph.memory.conversation_stream import ConversationStream, when
from ralph.memory.store import CONVERSATIONS, Store, Stream, home_journals, short_hash
from ralph.recall import Answer, Hit
from ralph.recall.search import Question
from ralph.records import Complaint, Record, Source, Tombstone, now, utc
from ralph.records.clean import clean, clean_text
from ralph.records.conversation import (
    DOCUMENT,
    EXCHANGE,
    Conversation,
    Exchange,
    Label,
    Message,
    Rating,
    Said,
    Summary,
    conversation_id,
    conversation_record,
    exchange_from,
    exchange_id,
    exchange_record,
    said_from,
    said_record,
)
from ralph.records.iteration import (
    DECISION_CHARS,
    ERROR_CHARS,
    MOST_ERRORS,
    MOST_FILES,
    FileTouched,
    cut,
    strongest,
)
from ralph.text.marks import strip_marked
from ralph.text.redact import redact

# -- What a conversation goes through before it is kept: secrets out, our own words out, limits on.


_TITLE_CHARS = 200
_SHORT_FIELD_CHARS = 300
_EXCHANGE_CHARS = 20_000


def prepared_conversation(one: Conversation) -> Conversation:
    """The conversation as it may be written."""
    if not one.id:
        raise BadRecord("a conversation needs an id")
    return msgspec.structs.replace(
        one,
        title=_clean(" ".join(one.title.split()), _TITLE_CHARS),
        source=_clean(one.source, _SHORT_FIELD_CHARS),
        project=_clean(one.project, _SHORT_FIELD_CHARS),
        created=utc(one.created, field="created") if one.created else None,
    )


def prepared_exchange(one: Exchange, conversation: str) -> Exchange:
    """The exchange as it may be written: nothing secret, nothing that was recalled, no excess."""
    if one.conversation not in ("", conversation):
        raise BadRecord(f"exchange {one.id} belongs to conversation {one.conversation}")
    if not one.id:
        raise BadRecord("an exchange needs an id")
    most = _EXCHANGE_CHARS
    ready = msgspec.structs.replace(
        one,
        conversation=conversation,
        user=_clean(strip_marked(one.user).strip(), most),
        assistant=_clean(strip_marked(one.assistant).strip(), most),
        started=utc(one.started, field="started") if one.started else None,
        completed=utc(one.completed, field="completed") if one.completed else None,
        model=_clean(one.model, _SHORT_FIELD_CHARS) if one.model else None,
        errors=tuple(
            msgspec.structs.replace(
                error,
                message=_clean(error.message, ERROR_CHARS),
                resolution=(_clean(error.resolution, DECISION_CHARS) if error.resolution else None),
                file_path=redact(error.file_path) if error.file_path else None,
            )
            for error in one.errors[:MOST_ERRORS]
        ),
        files_touched=tuple(
            FileTouched(redact(file.path), file.action)
            for file in strongest(one.files_touched)[:MOST_FILES]
        ),
        messages=_messages(one.messages, most),
    )
    if not (ready.user or ready.assistant):
        raise BadRecord("there is nothing in this exchange to remember")
    return ready


def _messages(messages: tuple[Message, ...], max_chars: int) -> tuple[Message, ...]:
    """The first steps, as many as fit."""
    kept: list[Message] = []
    for message in messages:
        clean = msgspec.structs.replace(
            message,
            content=_clean(message.content, max_chars),
            tool=_clean(message.tool, _SHORT_FIELD_CHARS) if message.tool else "",
        )
        max_chars -= len(clean.content)
        if max_chars < 0:
            break
        kept.append(clean)
    return tuple(kept)


def _clean(text: str, max_chars: int) -> str:
    # Half a surrogate pair cannot be written as UTF-8; it is damage, not content.
    return cut(clean_text(text.encode("utf-8", "replace").decode("utf-8")), max_chars)


# Where conversations go that belong to no project.
GENERAL = "general"
_SHORTEST_ID = 4
_ID_CHARS = 16
# How many passages are looked at: they are grouped, filtered and lifted afterwards.
_DEPTH = 60
_T = TypeVar("_T")


class SavedExchange(msgspec.Struct, frozen=True):
    """An exchange as memory has it now, and whether it was new."""

    id: str
    record: Exchange
    fresh: bool


class ConversationSummary(msgspec.Struct, frozen=True):
    """A conversation, how many exchanges it has, and when the last one ended."""

    conversation: Conversation
    exchanges: int
    last: str
    tags: tuple[str, ...] = ()
    summary: str = ""


class ConversationShelf(Store):
    """The shelf of conversations: a hit is told of only with the conversation it belongs to."""

    def ask(
        self,
        streams: Sequence[Stream],
        question: Question,
        *,
        meaning: bool = True,
        budget_s: float | None = None,
    ) -> Answer:
        """Search these streams as one, with what is there."""
        found = super().ask(streams, question, meaning=meaning, budget_s=budget_s)
        if self.journals.trouble() is None:
            return found
        # The index may know more than can be read of a journal whose server is away.
        histories = [one.history for one in streams if isinstance(one, ConversationStream)]
        home = homes(found, histories)
        there = {"", *(name for history in histories for name in history.conversations)}
        return Answer([hit for hit in found if home[hit.id] in there], found.notes)


class ConversationJournal:
    """The conversations of one project, or of none; those of others can be looked up too."""

    def __init__(
        self,
        *,
        home: Path,
        settings: Settings,
        embedder: Embedder | None,
        project_id: str | None = None,
        project: str = "",
        progress: Progress | None = None,
    ) -> None:
        scope = f"{short_hash('conversations')}-"
        index = open_index(
            settings, [home / "cache" / "conversations"], home=home, scope=lambda: scope
        )
        journals = home_journals(CONVERSATIONS, settings, home)
        self.shelf = ConversationShelf(journals, index, embedder, settings, progress=progress)
        self.home = home
        self._own = project_id or GENERAL
        self._project = project
        self._series: dict[str, ConversationStream] = {}

    @property
    def exist(self) -> bool:
        """Whether anything was said in this project yet."""
        return self._own in self.shelf.journals.names()

    # -- writing

    def start(self, title: str = "", *, session: str | None = None, source: str = "api") -> str:
        """Begin a conversation and give its id; a session that is known goes on."""
        identity = conversation_id(source, session or uuid.uuid4().hex)
        one = Conversation(id=identity, title=title, source=source, created=now())
        self.add(one, [])
        return identity

    def exchange(
        self,
        conversation: str,
        *,
        user: str,
        assistant: str,
        key: str | None = None,
        **more: Any,
    ) -> SavedExchange:
        """Keep one exchange of a conversation that was begun; the same key twice is one."""
        begun = True
        try:
            held = self.conversation(conversation)
        except NotFound:
            if self.shelf.journals.trouble() is None or len(conversation) < _ID_CHARS:
                raise
            # Its server is away: the conversation is there, and what is said in it waits here.
            held, begun = Conversation(id=conversation), False
        identity = exchange_id(held.id, key or uuid.uuid4().hex)
        try:
            one = Exchange(
                id=identity, conversation=held.id, user=user, assistant=assistant, **more
            )
        except TypeError as error:
            raise BadInput(f"not an exchange: {error}") from None
        return self.add(held, [one], begins=begun)[0]

    def add(
        self,
        conversation: Conversation,
        exchanges: Sequence[Exchange],
        *,
        sources: Sequence[Source | None] | None = None,
        begins: bool = True,
    ) -> list[SavedExchange]:
        """Keep a conversation and many of its exchanges with one flush: all of them, or none.

        `begins` says whether the conversation itself is kept too, where it is not known here.

        What is known by its id is not written again, nor is what was forgotten.
        """
        named = msgspec.structs.replace(
            prepared_conversation(conversation),
            project=conversation.project or self._project,
        )
        given = sources or [None] * len(exchanges)
        ready = [
            (prepared_exchange(one, named.id), source)
            for one, source in zip(exchanges, given, strict=True)
        ]
        series = self._mine()
        known = series.history.records
        buried = series.forgotten()
        drafts: list[Record | Draft] = []
        if begins and named.id not in known and named.id not in buried:
            drafts.append(renumbered(conversation_record(named, number=0)))
        fresh: dict[str, Exchange] = {}
        for one, source in ready:
            if one.id not in known and one.id not in buried and one.id not in fresh:
                fresh[one.id] = one
                drafts.append(renumbered(exchange_record(one, number=0, source=source)))
        series.journal.append(drafts)
        return [self._kept(one, known.get(one.id), fresh=one.id in fresh) for one, _ in ready]

    def met(self, ids: Collection[str]) -> set[str]:
        """Those of the ids that were kept here before, though they may be forgotten by now."""
        series = self._mine()
        return set(ids) & (series.forgotten() | series.history.records.keys())

    def _kept(self, one: Exchange, known: Record | None, *, fresh: bool) -> SavedExchange:
        return SavedExchange(one.id, exchange_from(known) if known else one, fresh)

    def forget(
        self, ids: Collection[str], *, reason: str | None = None, titles: Collection[str] = ()
    ) -> list[str]:
        """Take conversations and exchanges out of journal and index for good: a conversation goes
        with its exchanges, and with the last of them. `titles` names those that only lose theirs.
        """
        series = self._mine()
        gone = series.forget(ids, reason=clean(reason), titles=titles)
        if gone:
            self.shelf.erase_soon(series.target())
        return gone

    def bound_to(self, ids: Sequence[str]) -> list[str]:
        """These records, and after them those that are forgotten with them."""
        return [*ids, *sorted(self._mine().bound_to(set(ids)) - set(ids))]

    def talks(self) -> dict[str, list[str]]:
        """The conversations of this project with the ids of what was said in each."""
        return self._mine().history.of

    def known(self) -> set[str]:
        """The ids of this project's conversations and everything said in them and of them."""
        history = self._mine().history
        return history.records.keys() | history.conversations.keys()

    def bury(self, ids: Collection[str], *, reason: str) -> None:
        """See to it that what has these ids is never kept, whether it was or not."""
        series = self._mine()
        at = now()
        stones = [Tombstone(one, at, reason) for one in ids if one not in series.forgotten()]
        if stones and series.journal.forget((), stones=stones):
            self.shelf.erase_soon(series.target())

    def count(self) -> int:
        """How many records this project's journal has."""
        return len(self._mine().records()) if self.exist else 0

    def target(self) -> IndexSpec:
        """What the index needs to know to follow this project's conversations."""
        return self._mine().target()

    def standing(self) -> list[Record]:
        """Every record that stands in this project's journal, forgotten ones that a merge brought
        back too."""
        return [located.record for located in self._mine().journal.read().records]

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read, and everything that looks wrong in the journal."""
        return self._mine().verify()

    def sync(self, *, budget_s: float | None = None, afresh: bool = False) -> Synced:
        """Bring the index up to this project's conversations, or build it anew."""
        return self.shelf.index.sync(
            self._mine().target(), budget_s=budget_s, afresh=afresh, progress=self.shelf.progress
        )

    # -- what is said of them later

    def tag(
        self, conversation: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """Put words on a conversation, or take them off."""
        # Redacted first: in lower case many a secret is no longer known for one.
        words = [" ".join(clean_text(word).split()).casefold() for word in (*add, *remove)]
        if not words or not all(words):
            raise BadInput(
                "a tag needs a word", todo="For example: ralph conversations tag ID auth"
            )
        label = Label(
            target=self.conversation(conversation).id,
            add=tuple(words[: len(add)]),
            remove=tuple(words[len(add) :]),
        )
        self.say(label)

    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title; it must say something."""
        if not title.strip():
            raise BadInput("the title is empty", todo="Give it some words.")
        held = self.conversation(conversation)
        clean = prepared_conversation(msgspec.structs.replace(held, title=title)).title
        self.say(Label(target=held.id, title=clean))

    def rate(self, exchange: str, value: Literal[-1, 0, 1]) -> None:
        """Say that an exchange was worth finding (1), was not (-1), or take that back (0)."""
        self.say(Rating(target=self.get(exchange).id, value=value))

    def say(self, said: Said, *, id: str | None = None) -> str:
        """Keep a record about a conversation or an exchange, once for an id, and give its id."""
        identity = id or uuid.uuid4().hex[:16]
        self.say_all([(said, identity)])
        return identity

    def say_all(self, said: Sequence[tuple[Said, str]]) -> list[bool]:
        """Keep many with one flush: all of them, or none; tells which were new.

        What was forgotten once stays so.
        """
        series = self._mine()
        met = series.history.records.keys() | series.forgotten()
        fresh = [identity not in met for _, identity in said]
        drafts: list[Record | Draft] = [
            renumbered(said_record(one, id=identity, number=0))
            for (one, identity), new in zip(said, fresh, strict=True)
            if new
        ]
        series.journal.append(drafts)
        return fresh

    def said(self, kind: str) -> list[Record]:
        """Every record of one kind in this project, as they were written."""
        return [one for one in self._mine().history.records.values() if one.kind == kind]

    def buried(self) -> dict[str, str]:
        """Why everything that was forgotten here went, by its id."""
        stones = self._mine().journal.read().tombstones
        return {stone.id: stone.reason or "" for stone in stones}

    def summary(self, target: str, *, everywhere: bool = False) -> Summary | None:
        """The newest summary of a conversation or an exchange."""
        found = (one.history.summaries.get(target) for one in self._within(everywhere))
        return next((one for one in found if one is not None), None)

    # -- looking up

    def conversation(self, wanted: str, *, everywhere: bool = False) -> Conversation:
        """A conversation by its id or the beginning of it."""
        held = {
            one.id: one
            for series in self._within(everywhere)
            for one in series.conversations().values()
            if one.id.startswith(wanted.lower())
        }
        return _the_one(list(held.values()), wanted, "conversation")

    def exchanges(self, conversation: str, *, everywhere: bool = False) -> list[Exchange]:
        """A conversation's exchanges, in the order they were held."""
        held = self.conversation(conversation, everywhere=everywhere).id
        told = [one for series in self._within(everywhere) for one in series.exchanges(held)]
        return sorted(told, key=lambda one: (one.started or one.completed or "", one.number or 0))

    def get(self, wanted: str, *, everywhere: bool = False) -> Hit:
        """One exchange by its id or the beginning of it."""
        held = {
            name: one
            for series in self._within(everywhere)
            for name in series.history.records
            if name.startswith(wanted.lower()) and (one := series.exchange(name)) is not None
        }
        one = _the_one(list(held.values()), wanted, "exchange")
        return Hit(one.id, EXCHANGE, None, None, when(one.completed or ""), None, one)

    def document(self, wanted: str, *, everywhere: bool = False) -> Hit:
        """One section of a document by its id or the beginning of it."""
        held = {
            record.id: record
            for series in self._within(everywhere)
            for name, record in series.history.records.items()
            if name.startswith(wanted.lower()) and record.kind == DOCUMENT
        }
        one = _the_one(list(held.values()), wanted, "document")
        return Hit(one.id, DOCUMENT, None, None, when(one.at), None, said_from(one))

    def close(self) -> None:
        """Let go of files; nothing is lost without it."""
        self.shelf.index.close()
        self.shelf.journals.close()

    def _mine(self) -> ConversationStream:
        return self._one(self._own)

    def _within(self, everywhere: bool) -> Sequence[ConversationStream]:
        if not everywhere:
            return [self._mine()]
        return [self._one(name) for name in self.shelf.journals.names()]

    def _one(self, name: str) -> ConversationStream:
        if name not in self._series:
            self._series[name] = ConversationStream(name, self.shelf, foreign=name != self._own)
        return self._series[name]


def renumbered(record: Record) -> Draft:
    """The record under the number it is given; asked again, it is the same one but for that."""
    return lambda number: msgspec.structs.replace(record, number=number)


def _the_one(found: Sequence[_T], wanted: str, what: str) -> _T:
    if not found or len(wanted) < _SHORTEST_ID:
        raise NotFound(
            f"there is no {what} {wanted!r}",
            todo="Listing, showing and searching conversations gives the ids.",
        )
    if len(found) > 1:
        raise BadInput(f"{wanted} is the beginning of {len(found)} ids; give more of it")
    return found[0]
