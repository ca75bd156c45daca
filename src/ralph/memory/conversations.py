"""Conversational memory: save, search and show what a person and an assistant said."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal, TypeVar

import msgspec

from ralph.current_run import refuse_agent
from ralph.errors import BadInput, NotFound
from ralph.index.sync import Synced
from ralph.journal import Selection
from ralph.memory import conversation_search, store
from ralph.memory.anchors import AnchorStore
from ralph.memory.conversation_search import Related, SearchFilter
from ralph.memory.conversation_stream import (
    ConversationContent,
    ConversationState,
    ConversationStream,
    plain_tag,
    prepared_conversation,
    prepared_exchange,
)
from ralph.memory.part import Reach, SearchRequest
from ralph.memory.project import GENERAL
from ralph.memory.store import Answer, Store
from ralph.recall import Hit
from ralph.recall.score import FLOOR, WORTH_TELLING
from ralph.recall.search import Candidate, Found, Lift, Question, WordsHeld, conclude
from ralph.records import Record, Tombstone, clean, now, utc
from ralph.records import conversation as schema
from ralph.records.conversation import Annotation, Conversation, Exchange, Label, Rating, Summary
from ralph.records.note import NOTE, Note
from ralph.text.sanitize import plain_date
from ralph.text.times import TimeRange, event_range

_ID_CHARS = 16
_MIN_SCORE = 0.25
# How many hits to look at; they are grouped and filtered afterwards.
_DEPTH = 40
# A lift by neighbors needs more candidates than are shown.
_CANDIDATES = 200
_OPENED = (schema.EXCHANGE, schema.DOCUMENT, NOTE, schema.CONVERSATION)
_T = TypeVar("_T")


class SavedExchange(msgspec.Struct, frozen=True):
    """An exchange as it is saved, and whether it was new."""

    id: str
    record: Exchange
    fresh: bool


class ProjectCount(msgspec.Struct, frozen=True):
    """How much one project has in Ralph's home, and when the last exchange ended."""

    project: str
    conversations: int
    exchanges: int
    last: str


class Conversations:
    """The conversations of one project, or of none. Can also search those of other projects."""

    store: Store

    def __init__(
        self,
        *,
        ids: Sequence[str] = (GENERAL,),
        project: str = "",
        private_notes: bool = True,
        **opened: Any,
    ) -> None:
        name = store.CONVERSATIONS
        self.store = Store.in_home(name, f"{store.short_hash(name)}-", **opened)
        # Conversations of this project may also be stored under other ids.
        self._own, *self._other_ids = ids
        self._project = "" if self._own == GENERAL else project
        self._private_notes = private_notes
        self._streams: dict[str, ConversationStream] = {}

    @property
    def exist(self) -> bool:
        """Whether anything was said in this project yet."""
        return not {self._own, *self._other_ids}.isdisjoint(self.store.journals.names())

    @property
    def exist_elsewhere(self) -> bool:
        """Whether anything was said in other projects."""
        return not {self._own, *self._other_ids}.issuperset(self.store.journals.names())

    @property
    def stream(self) -> ConversationStream:
        """The conversations of this project as a stream, with its history and its index."""
        return self._stream(self._own)

    def _stream(self, name: str) -> ConversationStream:
        if name not in self._streams:
            also = set(self._other_ids) if name == self._own else set[str]()
            also &= set(self.store.journals.names()) - {name} if also else set()
            self._streams[name] = ConversationStream(
                name,
                self.store,
                foreign=name != self._own,
                also=sorted(also),
                private_notes=self._private_notes,
            )
        return self._streams[name]

    def within(self, everywhere: bool) -> Sequence[ConversationStream]:
        """Return the stream of this project; with `everywhere`, also those of all others."""
        own = {part.name for part in self.stream.parts}
        others = self.store.journals.names() if everywhere else ()
        return [self.stream, *(self._stream(name) for name in others if name not in own)]

    def sync(self, *, budget_s: float | None = None, afresh: bool = False) -> Synced:
        """Update the index of this project's conversations, or rebuild it."""
        return [part.sync(budget_s=budget_s, afresh=afresh) for part in self.stream.parts][-1]

    # -- writing

    def start(self, title: str = "", *, session: str | None = None, source: str = "api") -> str:
        """Start a conversation and return its id; a known session continues."""
        identity = schema.conversation_id(source, session or uuid.uuid4().hex)
        self.add(Conversation(id=identity, title=title, source=source, created=now()), [])
        return identity

    def exchange(
        self, conversation: str, *, user: str, assistant: str, key: str | None = None, **more: Any
    ) -> SavedExchange:
        """Save one exchange of a started conversation; the same key twice is one exchange."""
        begins = True
        try:
            talk = self.conversation(conversation)
        except NotFound:
            if self.store.journals.trouble() is None or len(conversation) < _ID_CHARS:
                raise
            # The server is down. It has the conversation, and new exchanges wait here.
            talk = Conversation(id=conversation)
            begins = False
        identity = schema.exchange_id(talk.id, key or uuid.uuid4().hex)
        try:
            exchange = Exchange(
                id=identity, conversation=talk.id, user=user, assistant=assistant, **more
            )
        except TypeError as error:
            raise BadInput(f"not an exchange: {error}") from None
        return self.add(talk, [exchange], begins=begins)[0]

    def add(
        self, conversation: Conversation, exchanges: Sequence[Exchange], *, begins: bool = True
    ) -> list[SavedExchange]:
        """Save a conversation and its exchanges with one flush: all of them, or none.

        Records with known or forgotten ids are not written again. `begins`: whether to save the
        conversation itself, too.
        """
        named = msgspec.structs.replace(conversation, project=conversation.project or self._project)
        fresh = self.stream.save([ConversationContent(named, exchanges)], begins=begins).exchanges
        before = [exchange.id for exchange in exchanges if exchange.id not in fresh]
        known = {
            located.record.id: located.record
            for located in reversed(self.stream.select(Selection(ids=before)) if before else [])
        }

        def saved(exchange: Exchange) -> SavedExchange:
            now_saved = fresh.get(exchange.id)
            if now_saved is None and exchange.id in known:
                now_saved = schema.content_of(known[exchange.id])
            now_saved = now_saved or prepared_exchange(exchange, named.id)
            return SavedExchange(exchange.id, now_saved, exchange.id in fresh)

        return [saved(exchange) for exchange in exchanges]

    def forget(
        self, ids: Collection[str], *, reason: str | None = None, titles: Collection[str] = ()
    ) -> list[str]:
        """Remove conversations and exchanges from journal and index for good.

        A conversation is removed with all its exchanges, or when its last exchange is. `titles` are
        the conversations that only lose their title.
        """
        refuse_agent("forget conversations")
        return self.stream.forget(ids, reason=clean(reason), titles=titles)

    def bury(self, ids: Collection[str], *, reason: str) -> None:
        """Make sure that records with these ids are never saved; delete those that exist."""
        refuse_agent("forget conversations")
        stream = self.stream
        at = now()
        stones = [Tombstone(one, at, reason) for one in ids if one not in stream.forgotten()]
        AnchorStore(self.store.home).forget(ids)
        for part in stream.parts if stones else ():
            own = stones if part is stream else ()
            if part.journal.forget(ids, reason=reason, stones=own):
                self.store.erase_soon(part.target())

    # -- annotations: tags, titles, ratings

    def tag(
        self, conversation: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """Put tags on a conversation, or remove them."""
        words = [plain_tag(word) for word in (*add, *remove)]
        if not words or not all(words):
            raise BadInput("a tag needs a word", todo="Try: ralph conversations tag ID auth")
        target = self.conversation(conversation).id
        count = len(add)
        self.say(Label(target=target, add=tuple(words[:count]), remove=tuple(words[count:])))

    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title, which must not be empty."""
        if not title.strip():
            raise BadInput("the title is empty", todo="Give it some words.")
        talk = msgspec.structs.replace(self.conversation(conversation), title=title)
        self.say(Label(target=talk.id, title=prepared_conversation(talk).title))

    def rate(self, exchange: str, value: Literal[-1, 0, 1]) -> None:
        """Rate an exchange as worth finding (1) or not (-1), or take that back (0)."""
        self.say(Rating(target=self.get(exchange).id, value=value))

    def say(self, said: Annotation, *, id: str | None = None) -> str:
        """Save a record about a conversation or an exchange, once for an id, and return its id."""
        identity = id or uuid.uuid4().hex[:16]
        self.say_all([(said, identity)])
        return identity

    def say_all(self, said: Sequence[tuple[Annotation, str]]) -> list[bool]:
        """Save many with one flush, all of them or none; return which were new.

        Forgotten records are not saved again.
        """
        met = self.stream.known([identity for _, identity in said])
        fresh = [(one, identity) for one, identity in said if identity not in met]
        self.stream.append([schema.record_of(one, id=identity) for one, identity in fresh])
        return [identity not in met for _, identity in said]

    # -- looking up

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that were ever saved here, forgotten or not."""
        return self.stream.known(ids)

    def states(self, *, everywhere: bool = False) -> dict[str, ConversationState]:
        """Return the state of every conversation, by its id."""
        found: dict[str, ConversationState] = {}
        for stream in self.within(everywhere):
            found |= stream.history.conversations
        return found

    def other_projects(self) -> list[ProjectCount]:
        """Return what each other project has in Ralph's home, the latest first."""
        counts = []
        for stream in self.within(True)[1:]:
            states = stream.history.conversations.values()
            if not states:
                continue
            latest = max(states, key=lambda state: state.last)
            exchanges = sum(state.exchanges for state in states)
            project = latest.conversation.project
            counts.append(ProjectCount(project, len(states), exchanges, latest.last))
        return sorted(counts, key=lambda count: count.last, reverse=True)

    def conversation(self, wanted: str, *, everywhere: bool = False) -> Conversation:
        """Return a conversation by its id or a prefix of it."""
        states = self.states(everywhere=everywhere)
        return the_only(states, wanted, schema.CONVERSATION).conversation

    def exchanges(self, conversation: str, *, everywhere: bool = False) -> list[Exchange]:
        """Return a conversation's exchanges, oldest first."""
        name = self.conversation(conversation, everywhere=everywhere).id
        streams = self.within(everywhere)
        found = [one for stream in streams for one in stream.history.read_exchanges([name])]
        return sorted(found, key=held_at)

    def get(self, wanted: str, *, everywhere: bool = False) -> Hit:
        """Return one exchange by its id or a prefix of it."""
        kind = schema.EXCHANGE
        hits = self.find(wanted, everywhere=everywhere)
        return the_only({hit.id: hit for hit in hits if hit.kind == kind}, wanted, kind)

    # -- as a part of all memories

    def answers(self, request: SearchRequest) -> list[Found]:
        """Return what may answer, for each project by itself."""
        return self.candidates(
            request.question,
            tags=request.tags,
            everywhere=request.everywhere,
            words_only=not request.meaning,
            exclude=request.exclude,
            documents=not (request.tags or request.dated),
            notes=not request.tags,
            budget_s=request.budget_s,
        )

    def is_forgotten(self, begins: str) -> bool:
        """Return False: which of these were forgotten is not told."""
        return False

    def journals(self, *, everywhere: bool = False) -> list[str]:
        """Return the names of this project's journals; `everywhere`: of all projects."""
        own = {part.name for part in self.stream.parts}
        return [name for name in self.store.journals.names() if everywhere or name in own]

    def stream_at(self, journal: str) -> ConversationStream:
        """Return the stream of a journal, whichever project has it."""
        return self._stream(journal)

    def forgettable(self, *, everywhere: bool = False) -> Iterator[tuple[str, list[Record]]]:
        """Yield all records of this project, even forgotten ones that a merge brought back."""
        yield self.stream.name, self.stream.standing()

    def find(
        self,
        record_id: str,
        *,
        reach: Reach | None = None,
        everywhere: bool = False,
        newest: int | None = None,
    ) -> list[Hit]:
        """Return all exchanges, documents, notes and conversations whose id begins like this.

        Each kind is ordered oldest first. `newest`: only this many of each kind, and no
        conversations.
        """
        begins = record_id.lower()
        found: list[Record] = []
        for stream in self.within(everywhere):
            history = stream.history
            by_kind: dict[str, list[Record]] = {}
            for record in history.records.values():
                if record.kind in _OPENED and record.id.startswith(begins):
                    by_kind.setdefault(record.kind, []).append(record)
            for records in by_kind.values():
                found += sorted(records, key=lambda one: one.at)[-newest if newest else 0 :]
        hits = [self.stream.hit(one, 0) for one in found]
        return [hit for hit in hits if hit.kind != schema.CONVERSATION or not newest]

    def remember(self, note: Note) -> tuple[Note, bool]:
        """Save a private note; return it as saved, and whether it is new."""
        if not self._private_notes:
            todo = "Leave out private. A folder that is not a project needs `ralph init` for notes."
            raise BadInput("a private note cannot be saved on a server", todo=todo)
        if note.id in self.stream.forgotten():  # written again after it was forgotten
            note = msgspec.structs.replace(note, id=uuid.uuid4().hex[:16])
        [fresh] = self.say_all([(note, note.id)])
        return schema.content_of(self.stream.history.records[note.id]), fresh

    def said(self, kind: str) -> list[Record]:
        """Return every record of one kind in this project, in journal order."""
        return [one for one in self.stream.history.records.values() if one.kind == kind]

    def summary(self, target: str, *, everywhere: bool = False) -> Summary | None:
        """Return the newest summary of a conversation or an exchange."""
        found = (one.history.summaries.get(target) for one in self.within(everywhere))
        return next((one for one in found if one is not None), None)

    # -- searching

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        min_score: float | None = None,
        since: str | None = None,
        until: str | None = None,
        **how: Any,
    ) -> Answer:
        """Return the exchanges that answer the question, best first.

        `since` and `until` are days, inclusive; without them, a time that the question clearly
        names counts. `exclude` is a conversation to leave out. `documents` includes sections of the
        user's own documents, `notes` private notes.
        """
        # A list for people may have more doubtful hits than a prompt: doors that answer agents pass
        # the floor used everywhere else.
        floor = _MIN_SCORE if min_score is None else min_score
        days = {"since": since, "until": until}
        question = self.store.question(query, limit=limit, min_score=floor, **days)
        found = self.candidates(question, **how)
        return Answer(conclude(question, found), _notes(found))

    def candidates(
        self,
        question: Question,
        *,
        exclude: str | None = None,
        everywhere: bool = False,
        words_only: bool = False,
        budget_s: float | None = None,
        tags: Collection[str] = (),
        documents: bool = False,
        notes: bool = False,
        summaries: bool = False,
    ) -> list[Found]:
        """Return what may answer the question, for each project by itself.

        With `summaries`, also those of conversations.
        """
        streams = self.within(everywhere)
        parts = [part for stream in streams for part in stream.parts]
        optional = {schema.DOCUMENT: documents, NOTE: notes}
        without = [kind for kind, shown in optional.items() if not shown]
        wanted = frozenset(tag.casefold() for tag in tags)
        allowed = SearchFilter(wanted, exclude, frozenset(without))
        how: dict[str, Any] = {"meaning": not words_only, "budget_s": budget_s}
        if question.days is None and (event := event_range(question.text)):
            # `before the release`: take the day of the exchange that matches the event best.
            side, phrase = event
            asked = Question(phrase, limit=_DEPTH, min_score=WORTH_TELLING)
            dated = self.store.ask(parts, asked, **how)
            days = [hit.record.completed for hit in dated if hit.kind == schema.EXCHANGE]
            if days:
                day = date.fromisoformat(plain_date(days[0]))
                around = TimeRange(None, day) if side == "before" else TimeRange(day, None)
                named: dict[str, Any] = {"days": around.moments(), "rest": question.text}
                question = msgspec.structs.replace(question, **named)
        found: list[Found] = []
        for stream in streams:
            part = self.store.find(
                stream.parts,
                question,
                depth=_CANDIDATES,
                talk=True,
                meaning=not words_only,
                budget_s=budget_s,
            )
            if not self._private_notes:
                # Before ranking, because the ranks of the others would reveal hidden notes.
                part.candidates = [one for one in part.candidates if stream.shows(one.record)]
            part.lift = self._lift_in(stream, question, allowed, summaries=summaries)
            found.append(part)
        return found

    def _lift_in(
        self,
        stream: ConversationStream,
        question: Question,
        allowed: SearchFilter,
        *,
        summaries: bool,
    ) -> Lift:
        """Return what orders the candidates of one project's conversations."""

        def lift(candidates: list[Candidate], words_held: WordsHeld) -> list[Candidate]:
            histories = [stream.history]
            lifted = conversation_search.lift(
                candidates,
                histories,
                words_held=words_held,
                allowed=allowed,
                half_life_days=self.store.settings.rag_recency_half_life_days,
                away=self.store.journals.trouble() is not None,
            )
            return conversation_search.show_exchanges(lifted, histories, summaries=summaries)

        return lift

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
    ) -> Related:
        """Return the past conversations that match a question, and their matching exchanges."""
        settings = self.store.settings
        floor = settings.rag_min_similarity if min_similarity is None else min_similarity
        asked = self.store.question(question, limit=_DEPTH, min_score=min(floor, FLOOR))
        found = self.candidates(
            asked, exclude=exclude, everywhere=everywhere, tags=tags, summaries=True
        )
        return conversation_search.grouped(
            question,
            conclude(asked, found),
            [stream.history for stream in self.within(everywhere)],
            floor=floor,
            conversations=conversations or settings.rag_conversation_limit,
            exchanges=exchanges or settings.rag_exchange_limit_per_conversation,
            notes=_notes(found),
        )

    def list(
        self, limit: int | None = None, *, everywhere: bool = False, tags: Collection[str] = ()
    ) -> list[ConversationState]:
        """Return the conversations; those with the newest exchange come first."""
        wanted = {tag.casefold() for tag in tags}
        states = self.states(everywhere=everywhere).values()
        listed = [state for state in states if wanted.issubset(state.tags)]
        # Of those that ended at the same time, the one that began later comes first.
        return sorted(reversed(listed), key=lambda state: state.last, reverse=True)[:limit]


def _notes(found: Sequence[Found]) -> tuple[str, ...]:
    """Return what the searches of several projects have to say, each thing once."""
    return tuple(dict.fromkeys(note for part in found for note in part.notes))


def the_only(found: Mapping[str, _T], wanted: str, what: str) -> _T:
    """Return the only one whose id starts with `wanted`, or raise an error that says what to do."""
    todo = "Listing, showing and searching conversations gives the ids."
    missing = NotFound(f"there is no {what} {wanted!r}", todo=todo)
    return found[store.find_id(wanted, found, missing, shortest=store.SHORTEST_ID)]


def held_at(exchange: Exchange) -> tuple[str, int]:
    """Return the sort key for the exchanges of a conversation."""
    return exchange.started or exchange.completed or "", exchange.number or 0


# -- One conversation, or one of its exchanges, with tags and summaries.


class ConversationDetails(msgspec.Struct, frozen=True):
    """A conversation, the requested exchanges, its tags, and summaries by the id of what they
    summarize."""

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
    """Return the details of a conversation or of one exchange, by its id or a prefix of it."""
    there: Any = memory
    if getattr(memory, "remote", False):
        return there.details(conversation, exchange)  # type: ignore[no-any-return]
    if (conversation is None) == (exchange is None):
        todo = 'For example: fetch_conversation_details {"exchange_id": "3f2a9c1e"}'
        raise BadInput("give a conversation_id or an exchange_id, one of them", todo=todo)
    wanted = (exchange or conversation or "").strip()
    if len(wanted) < store.SHORTEST_ID:
        raise BadInput(f"{wanted!r} is too short for an id", todo="Give 4 characters or more.")
    # Conversations of other projects count as missing, unless `everywhere` is set.
    exchanges: Sequence[Exchange] | None = None
    try:
        if exchange is not None:
            exchanges = [memory.get(wanted, everywhere=everywhere).record]
            wanted = exchanges[0].conversation
        talk = memory.conversation(wanted, everywhere=everywhere)
    except NotFound:
        todo = "Take an id from search_conversations."
        raise NotFound(f"there is no {wanted!r} here", todo=todo) from None
    if exchanges is None:
        exchanges = memory.exchanges(talk.id, everywhere=everywhere)
    summaries = {
        name: summary.text
        for name in (talk.id, *(one.id for one in exchanges))
        if (summary := memory.summary(name, everywhere=everywhere))
    }
    tags = memory.states(everywhere=everywhere)[talk.id].tags
    return ConversationDetails(talk, exchanges, tags, summaries)


# -- Retention: old conversations are forgotten, in all projects.
#
# Off unless `conversations_keep_days` is set. Documents stay, because they are not conversations.


REASON = "older than conversations_keep_days"


class PrunedConversations(msgspec.Struct, frozen=True, kw_only=True):
    """How many exchanges are older than `before`, and how many conversations have none left."""

    before: str
    exchanges: int = 0
    conversations: int = 0


def prune(
    memory: Conversations, *, dry_run: bool = False, at: datetime | None = None
) -> PrunedConversations:
    """Forget what is too old, in every project; with `dry_run`, only count it."""
    if not dry_run:
        refuse_agent("forget conversations")
    days = memory.store.settings.conversations_keep_days
    if not days:
        raise BadInput(
            "conversations are kept for ever: conversations_keep_days is 0",
            todo="Say how long, for example: ralph config --user conversations_keep_days 365",
        )
    before = store.days_before(days, at)
    kinds: list[str] = []
    for name in memory.store.journals.names():
        stream = ConversationStream(name, memory.store)
        history = stream.history
        # Old exchanges, and old conversations without any exchange.
        records = history.records.values()
        silent = {x.id for x in records if x.kind == schema.CONVERSATION} - set(history.exchanges)
        held = [x for x in records if x.kind == schema.EXCHANGE or x.id in silent]
        old = stream.bound_to(x.id for x in held if store.is_before(x.at, before))
        kinds += [one.kind for one in records if one.id in old]
        if old and not dry_run:
            stream.forget(old, reason=REASON)
    return PrunedConversations(
        before=utc(before.isoformat(timespec="seconds")),
        exchanges=kinds.count(schema.EXCHANGE),
        conversations=kinds.count(schema.CONVERSATION),
    )


def prune_if_due(
    memory: Conversations, *, at: datetime | None = None
) -> PrunedConversations | None:
    """Prune if that is set and the last time was a day ago or more; otherwise return None."""
    if not memory.store.settings.conversations_keep_days:
        return None
    stamp = memory.store.home / "cache" / "pruned"
    return store.once_a_day(stamp, at, lambda moment: prune(memory, at=moment))
