"""The conversations of one project: their state, computed from the journal, and changes to it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ralph.errors import BadRecord
from ralph.journal import Selection
from ralph.memory.anchors import AnchorStore, SavedAnchor
from ralph.memory.store import CONVERSATIONS, Store, Stream, numbered
from ralph.recall import Hit
from ralph.records import Complaint, JournalRecord, Record, clean_text, iteration, utc
from ralph.records import conversation as schema
from ralph.records.conversation import Conversation, Exchange, Label, Message, Rating, Summary
from ralph.records.iteration import EMBEDDING_CHARS, TRUNCATED, cut, fit, fit_texts
from ralph.records.note import NOTE
from ralph.text.sanitize import strip_marked
from ralph.text.tokens import tokens

_TITLE_CHARS = 80
_SAVED_TITLE_CHARS = 200
_SHORT_FIELD_CHARS = 300
_EXCHANGE_CHARS = 20_000
_SUMMARY_CHARS = 4000


# -- Preparing a conversation for saving: remove secrets and recalled text, apply limits.


def prepared_conversation(conversation: Conversation) -> Conversation:
    """Return the conversation, ready to be saved."""
    if not conversation.id:
        raise BadRecord("a conversation needs an id")
    return msgspec.structs.replace(
        conversation,
        title=fit(" ".join(conversation.title.split()), _SAVED_TITLE_CHARS),
        source=fit(conversation.source, _SHORT_FIELD_CHARS),
        project=fit(conversation.project, _SHORT_FIELD_CHARS),
        created=utc(conversation.created, field="created") if conversation.created else None,
    )


def prepared_exchange(exchange: Exchange, conversation: str) -> Exchange:
    """Return the exchange, ready to be saved: no secrets, no recalled text, limits applied."""
    if exchange.conversation not in ("", conversation):
        raise BadRecord(f"exchange {exchange.id} belongs to conversation {exchange.conversation}")
    if not exchange.id:
        raise BadRecord("an exchange needs an id")
    ready = msgspec.structs.replace(
        exchange,
        conversation=conversation,
        user=fit(strip_marked(exchange.user).strip(), _EXCHANGE_CHARS),
        assistant=fit(strip_marked(exchange.assistant).strip(), _EXCHANGE_CHARS),
        started=utc(exchange.started, field="started") if exchange.started else None,
        completed=utc(exchange.completed, field="completed") if exchange.completed else None,
        model=fit(exchange.model, _SHORT_FIELD_CHARS) or None,
        errors=tuple(
            msgspec.structs.replace(fit_texts(error), file_path=error.file_path)
            for error in exchange.errors[: iteration.MOST_ERRORS]
        ),
        decisions=tuple(map(fit_texts, exchange.decisions[: iteration.MOST_DECISIONS])),
        files_touched=iteration.strongest(exchange.files_touched)[: iteration.MOST_FILES],
        checks=tuple(map(fit_texts, exchange.checks[-iteration.MOST_CHECKS :])),
        messages=_messages(exchange.messages),
    )
    if not (ready.user or ready.assistant):
        raise BadRecord("there is nothing in this exchange to remember")
    return ready


def _messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the first steps, as many as fit."""
    max_chars = _EXCHANGE_CHARS
    shown: list[Message] = []
    for message in messages:
        content = fit(message.content, max_chars)
        tool = fit(message.tool, _SHORT_FIELD_CHARS)
        max_chars -= len(content)
        if max_chars < 0:
            break
        shown.append(msgspec.structs.replace(message, content=content, tool=tool))
    return tuple(shown)


def plain_tag(word: str) -> str:
    """Return a tag as it is stored."""
    # Redact first: in lower case, many secrets are not recognized.
    return " ".join(clean_text(word).split()).casefold()


# -- The state of the conversations of one journal.


class _Belonging(msgspec.Struct, frozen=True, gc=False):
    """The part of an exchange that names its conversation; the decoder skips the rest."""

    conversation: str


_belonging = msgspec.json.Decoder(_Belonging).decode


class ConversationState(msgspec.Struct):
    """A conversation now: how many exchanges, when the last one ended, tags and summary."""

    conversation: Conversation
    exchanges: int = 0
    last: str = ""
    tags: tuple[str, ...] = ()
    summary: str = ""
    titled: bool = False


class ConversationStates:
    """The conversations of one journal now. `exchanges` has the exchange ids of each."""

    def __init__(self) -> None:
        self.conversations: dict[str, ConversationState] = {}
        self.records: dict[str, Record] = {}
        self.exchanges: dict[str, list[str]] = {}
        # The conversation of each exchange, and the exchange's place in it.
        self.positions: dict[str, tuple[str, int]] = {}
        self.summaries: dict[str, Summary] = {}
        self.ratings: dict[str, Literal[-1, 0, 1]] = {}
        # Labels read before their conversation, whose first exchanges were forgotten.
        self._early: dict[str, list[Label]] = {}

    def add(self, record: Record) -> None:
        """Add the next record; of two with the same id, the first counts."""
        if record.id in self.records:
            return
        try:
            if record.kind == schema.EXCHANGE:
                self._add_exchange(record)
            else:
                self._add(schema.content_of(record))
        except (BadRecord, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # `verify` reports what cannot be read
        self.records[record.id] = record

    def _add_exchange(self, record: Record) -> None:
        name = _belonging(record.body).conversation
        state = self.conversations.get(name)
        if state is None:  # it was forgotten, and then continued
            said: Exchange = schema.content_of(record)
            title = cut(" ".join((said.user or said.assistant).split()), _TITLE_CHARS)
            state = self._begin(Conversation(id=name, title=title, created=record.at))
        state.last = max(state.last, record.at) if state.exchanges else record.at
        self.positions[record.id] = state.conversation.id, state.exchanges
        state.exchanges += 1
        self.exchanges.setdefault(name, []).append(record.id)

    def _begin(self, conversation: Conversation) -> ConversationState:
        name = conversation.id
        state = ConversationState(conversation, last=conversation.created or "")
        self.conversations[name] = state
        if name in self.summaries:
            state.summary = self.summaries[name].text
        for label in self._early.pop(name, ()):
            self._add_label(label)
        return state

    def _add(self, said: Any) -> None:
        if isinstance(said, Conversation):
            state = self.conversations.get(said.id)
            if state is None:
                self._begin(said).titled = bool(said.title)
            elif not state.titled:
                state.conversation = said
                state.titled = True
        elif isinstance(said, Summary):
            before = self.summaries.get(said.target)
            if before is None or before.covers <= said.covers:
                self.summaries[said.target] = said
                if said.target in self.conversations:
                    self.conversations[said.target].summary = said.text
        elif isinstance(said, Rating):
            self.ratings[said.target] = said.value
        elif isinstance(said, Label):
            self._add_label(said)

    def _add_label(self, label: Label) -> None:
        state = self.conversations.get(label.target)
        if state is None:
            self._early.setdefault(label.target, []).append(label)
            return
        state.tags = tuple(sorted({*state.tags, *label.add} - set(label.remove)))
        changes: dict[str, str] = {}
        if label.source:
            changes = {"source": label.source, "project": label.project}
        if label.title is not None:
            changes["title"] = label.title
            state.titled = True
        state.conversation = msgspec.structs.replace(state.conversation, **changes)

    def project_of(self, exchange: str) -> str:
        """Return the name of the project that an exchange belongs to, "" if it is unknown."""
        conversation, _ = self.positions[exchange]
        return self.conversations[conversation].conversation.project

    def read_exchanges(self, conversations: Iterable[str]) -> list[Exchange]:
        """Return the readable exchanges of these conversations, in journal order."""
        found: list[Exchange] = []
        for name in conversations:
            for record_id in self.exchanges.get(name, ()):
                with contextlib.suppress(BadRecord):  # `verify` reports it
                    found.append(schema.content_of(self.records[record_id]))
        return found


# -- The stream.


class ConversationContent(msgspec.Struct, frozen=True):
    """A conversation with exchanges in order, and its tags, summaries and ratings.

    Summaries and ratings name what they are about. `project_ids` is for another machine: the id
    the conversation is stored under, and the id made from the project's first commit.
    `no_exchanges` are ids of exchanges that an older reader made of what nobody asked. `anchors`
    are the lines that an exchange left in files, by its id.
    """

    conversation: Conversation
    exchanges: Sequence[Exchange]
    tags: Sequence[str] = ()
    summaries: Sequence[Summary] = ()
    ratings: Mapping[str, Literal[-1, 0, 1]] = {}
    project_ids: Sequence[str] = ()
    no_exchanges: Sequence[str] = ()
    anchors: Mapping[str, Sequence[SavedAnchor]] = {}


class SavedConversations(msgspec.Struct):
    """Which conversations grew, the new exchanges by id, and how many exchanges were known.

    Forgotten exchanges are known, too, and stay forgotten. `renewed` are the ids of exchanges that
    came again with more in them; they are among the new ones under another id.
    """

    conversations: set[str]
    exchanges: dict[str, Exchange]
    known: int = 0
    renewed: list[str] = []


# Why an exchange was forgotten that was read again.
RENEWED = "read again by a newer version, which read more"


class ConversationImport(msgspec.Struct, kw_only=True):
    """The result of an import; `conversations` counts those that are new or grew.

    `known` counts exchanges that were saved or forgotten before; `renewed` those of the new ones
    that replace what an older version read. `waiting` exchanges are still in progress and left for
    the next import. `files` were read, `unchanged` files have nothing new,
    and `unread` lists files that could not be read, and why. `elsewhere` counts sessions of other
    projects and `subagents` those of sub-agents, which are left out; `projects` counts other
    projects that got conversations. `drift` says which clients wrote much that this version of
    Ralph does not know.
    """

    conversations: int = 0
    exchanges: int = 0
    known: int = 0
    renewed: int = 0
    waiting: int = 0
    files: int = 0
    unchanged: int = 0
    elsewhere: int = 0
    subagents: int = 0
    projects: int = 0
    unread: list[Complaint] = []
    complaints: list[Complaint] = []
    drift: list[str] = []


class ConversationStream(Stream):
    """The conversations of one project: a stream of the index.

    A project may have more of them under other ids (`also`). For the index these `parts` are
    separate streams; everyone else sees one stream. New records go into this one.

    Notes in it are private: without `private_notes` only the index reads them.
    """

    cut_version = f"exchange-4-{EMBEDDING_CHARS}"

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        foreign: bool = False,
        also: Iterable[str] = (),
        private_notes: bool = True,
    ) -> None:
        super().__init__(name, store, store.journals.journal(name))
        self.label = CONVERSATIONS
        self.foreign = foreign
        self._private_notes = private_notes
        self.parts = [
            *(ConversationStream(one, store, private_notes=private_notes) for one in also),
            self,
        ]
        self._anchors = AnchorStore(store.home)
        self._states = ConversationStates()
        self._generations = self._seen = [0 for _ in self.parts]

    @property
    def history(self) -> ConversationStates:
        """The state of all conversations now. Reads only what is new in the journals."""
        folds = [part._fold for part in self.parts]
        new = [fold.after(seen) for fold, seen in zip(folds, self._seen, strict=True)]
        generations = [fold.generation for fold in folds]
        if generations != self._generations:
            self._states = ConversationStates()
            self._seen = [0 for _ in folds]
            self._generations = generations
            new = [fold.after(0) for fold in folds]
        for each in (one for records in new for one in records if self.shows(one.record)):
            self._states.add(each.record)
        self._seen = [seen + len(some) for seen, some in zip(self._seen, new, strict=True)]
        return self._states

    def shows(self, record: Record) -> bool:
        """Whether whoever asks may see this record."""
        return self._private_notes or record.kind != NOTE

    def records(self) -> list[Record]:
        """Every living record that may be seen."""
        return list(filter(self.shows, super().records()))

    def content(self, record: Record) -> Any:
        """Return a record's content: an exchange, a summary, a section of a document, and so on."""
        return schema.content_of(record)

    def hit(self, record: Record, last_number: int) -> Hit:
        """A record that recall found, as an answer without a score."""
        hit = super().hit(record, last_number)
        return msgspec.structs.replace(hit, private=record.kind == NOTE)

    def standing(self) -> list[Record]:
        """Return every record in the journals, even forgotten ones that a merge brought back."""
        found = [record for part in self.parts for record in part.records()]
        for part in self.parts:
            if gone := part.forgotten():
                records = [one.record for one in part.journal.read().records]
                found += [one for one in records if one.id in gone and self.shows(one)]
        return found

    def reasons(self) -> dict[str, str]:
        """Return why each forgotten record was forgotten, by id."""
        return {name: why for part in self.parts for name, why in part._fold.reasons().items()}

    def forgotten(self) -> frozenset[str]:
        """Return the ids of all forgotten records."""
        return frozenset(self.reasons())

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that were ever saved here, forgotten or not."""
        return {name for part in self.parts for name in part._fold.known(ids)}

    def select(self, selection: Selection) -> list[JournalRecord]:
        """Return some of the living records that may be seen, without reading long journals."""
        found = [located for part in self.parts for located in part._fold.select(selection)]
        return [located for located in found if self.shows(located.record)]

    def lately(self, exchanges: int) -> ConversationStates:
        """Return the conversations of the newest exchanges, with the tags and notes of all.

        A conversation that began earlier has only its newest exchanges.
        """
        if any(self._seen):
            return self.history  # all of it is read already
        newest = self.select(Selection(kinds=(schema.EXCHANGE,), newest=exchanges))
        names: set[str] = set()
        for located in newest:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                names.add(_belonging(located.record.body).conversation)
        about = self.select(Selection(kinds=(schema.LABEL, NOTE), ids=names))
        states = ConversationStates()
        for located in (*about, *newest):
            states.add(located.record)
        return states

    def save_again(self, talks: Sequence[ConversationContent]) -> SavedConversations:
        """Save them; an exchange that an older version of Ralph read replaces it if it holds more.

        A client changes what it writes, and a reader that does not know it keeps a question and an
        answer, but no errors and no files.
        """
        reasons = self.reasons()
        stale: list[str] = []
        renewed: list[str] = []
        ready: list[ConversationContent] = []
        changed: list[ConversationContent] = []
        for talk in talks:
            before = len(stale)
            stale += [name for name in talk.no_exchanges if self._is_question_alone(name)]
            exchanges: list[Exchange] = []
            ratings = dict(talk.ratings)
            anchors: dict[str, Sequence[SavedAnchor]] = {}
            for exchange in talk.exchanges:
                name = exchange.id
                while reasons.get(name) == RENEWED:
                    name = schema.renewed_id(name)
                if self._holds_less(name, exchange):
                    stale.append(name)
                    rating = self.history.ratings.get(name)
                    name = schema.renewed_id(name)
                    renewed.append(name)
                    if rating is not None:
                        ratings[name] = rating
                exchanges.append(msgspec.structs.replace(exchange, id=name))
                anchors[name] = [
                    anchor._replace(record=name) for anchor in talk.anchors.get(exchange.id, ())
                ]
            ready.append(
                msgspec.structs.replace(talk, exchanges=exchanges, ratings=ratings, anchors=anchors)
            )
            if len(stale) > before:
                changed.append(ready[-1])
        saved = self.save(ready)
        # First the new, then the old: nothing is lost if this ends in between.
        if stale:
            self.forget(stale, reason=RENEWED)
            self._title_again(changed)
        saved.renewed = renewed
        return saved

    def _holds_less(self, name: str, now: Exchange) -> bool:
        """Whether the saved exchange holds no files, or no errors either, and this one does."""
        if not _holds_work(now):
            return False
        saved = self._saved_exchange(name)
        if saved is None:
            return False
        if now.files_touched and not saved.files_touched:
            return True
        return bool(now.errors) and not _holds_work(saved)

    def _saved_exchange(self, name: str) -> Exchange | None:
        record = self.history.records.get(name)
        if record is None or record.kind != schema.EXCHANGE:
            return None
        with contextlib.suppress(BadRecord):  # `verify` reports it
            exchange: Exchange = schema.content_of(record)
            return exchange
        return None

    def _is_question_alone(self, name: str) -> bool:
        """Whether a saved exchange has neither an answer nor anything that was done."""
        saved = self._saved_exchange(name)
        return saved is not None and not (saved.assistant or saved.messages or _holds_work(saved))

    def _title_again(self, talks: Sequence[ConversationContent]) -> None:
        """Give conversations the title that is read now; one that a person gave stays."""
        history = self.history
        named: set[str] = set()
        for record in history.records.values():
            if record.kind == schema.LABEL:
                label: Label = schema.content_of(record)
                if label.title:
                    named.add(label.target)
        titles: list[Record] = []
        for talk in talks:
            title = prepared_conversation(talk.conversation).title
            state = history.conversations.get(talk.conversation.id)
            if state is None or state.conversation.id in named:
                continue
            if title and title != state.conversation.title:
                titled = Label(target=talk.conversation.id, title=title)
                titles.append(schema.record_of(titled, id=uuid.uuid4().hex[:16]))
        self.append(titles)

    def save(
        self, talks: Iterable[ConversationContent], *, begins: bool = True
    ) -> SavedConversations:
        """Save all of them with one flush, or none; known ids are not written again.

        `begins`: whether to save the conversations themselves, too.
        """
        talks = list(talks)
        named = {talk.conversation.id for talk in talks}
        named |= {exchange.id for talk in talks for exchange in talk.exchanges}
        met = self.known(named)
        records: list[Record] = []
        saved = SavedConversations(set(), {})
        for talk in talks:
            conversation = prepared_conversation(talk.conversation)
            if begins and conversation.id not in met and conversation.id not in saved.conversations:
                saved.conversations.add(conversation.id)
                records.append(schema.record_of(conversation))
            for exchange in talk.exchanges:
                if exchange.id in met or exchange.id in saved.exchanges:
                    saved.known += 1
                    continue
                ready = prepared_exchange(exchange, conversation.id)
                saved.exchanges[exchange.id] = ready
                saved.conversations.add(conversation.id)
                records.append(schema.record_of(ready))
            about = [schema.record_of(said, id=identity) for said, identity in self._about(talk)]
            said_before = self.known([one.id for one in about])
            records += [one for one in about if one.id not in said_before]
        self.append(records)
        self.save_anchors(talks)
        return saved

    def save_anchors(self, talks: Iterable[ConversationContent]) -> None:
        """Save the anchors of exchanges, but of none that is forgotten."""
        anchors = [saved for talk in talks for some in talk.anchors.values() for saved in some]
        if anchors:
            gone = self.forgotten()
            self._anchors.save(saved for saved in anchors if saved.record not in gone)

    def _about(self, talk: ConversationContent) -> Iterator[tuple[schema.Annotation, str]]:
        """Yield the conversation's tags, ratings and summaries that are new here, with ids."""
        if not (talk.tags or talk.ratings or talk.summaries):
            return
        history = self.history
        name = talk.conversation.id
        here = {name, *(one.id for one in talk.exchanges)} - self.forgotten()
        state = history.conversations.get(name)
        tags = {plain_tag(tag) for tag in talk.tags} - {"", *(state.tags if state else ())}
        if tags and name in here:
            ordered = tuple(sorted(tags))
            yield Label(target=name, add=ordered), schema.said_id(schema.LABEL, name, *ordered)
        for target, value in talk.ratings.items():
            if target in here and target not in history.ratings:
                identity = schema.said_id(schema.RATING, target, str(value))
                yield Rating(target=target, value=value), identity
        for one in talk.summaries:
            known = history.summaries.get(one.target)
            if one.target in here and (known is None or known.covers < one.covers):
                text = fit(one.text, _SUMMARY_CHARS)
                summary = msgspec.structs.replace(one, text=text, by=fit(one.by, _TITLE_CHARS))
                yield summary, schema.said_id(schema.SUMMARY, one.target, str(one.covers))

    def append(self, records: Sequence[Record]) -> None:
        """Append these records, all or none. The journal numbers them."""
        self.journal.append([numbered(record) for record in records])

    def bound_to(self, ids: Iterable[str]) -> set[str]:
        """Return these ids and those of records that cannot stay without them."""
        bound = set(ids)
        history = self.history
        for conversation, exchanges in history.exchanges.items():
            if conversation in bound:
                bound |= set(exchanges)
            elif bound.issuperset(exchanges):
                bound.add(conversation)
        # Labels, ratings and summaries of a forgotten record would reveal it. So would a summary
        # that covers it, of a conversation that stays.
        first = {
            name: next(place for place, one in enumerate(exchanges) if one in bound)
            for name, exchanges in history.exchanges.items()
            if not bound.isdisjoint(exchanges)
        }
        for record in history.records.values():
            if record.kind in (schema.SUMMARY, schema.LABEL, schema.RATING):
                said = schema.content_of(record)
                covers = said.covers if record.kind == schema.SUMMARY else 0
                if said.target in bound or covers > first.get(said.target, covers):
                    bound.add(record.id)
        return bound

    def forget(
        self, ids: Collection[str], *, reason: str | None = None, titles: Collection[str] = ()
    ) -> list[str]:
        """Delete these and what is bound to them for good; return the ids that existed.

        A conversation that stays loses its title if that reveals a deleted exchange, or if its id
        is in `titles`: its record is deleted, and the rest of it is written again.
        """
        gone = self.bound_to(ids)
        titled = [one for one in self._titled(gone, titles) if one.id not in gone]
        ids = gone | {one.id for one in titled}
        removed = [(part, part.journal.forget(ids, reason=reason)) for part in self.parts]
        self._anchors.forget(ids)
        labels = [Label(target=one.id, source=one.source, project=one.project) for one in titled]
        self.append([schema.record_of(one, id=uuid.uuid4().hex[:16]) for one in labels])
        for part, were_there in removed:
            if were_there:
                self.store.erase_soon(part.target())
        return [*dict.fromkeys(one for _, were_there in removed for one in were_there)]

    def _titled(self, gone: set[str], titles: Collection[str]) -> list[Conversation]:
        """Return the conversations that stay, but whose title must go."""
        history = self.history
        found: list[Conversation] = []
        for name, exchanges in history.exchanges.items():
            record = history.records.get(name)
            lost = gone.intersection(exchanges)
            if record is None or not (lost or name in titles):
                continue
            conversation: Conversation = schema.content_of(record)
            texts = {one: list(texts_of(history.records[one].body)) for one in exchanges}
            removed = [text for one in lost for text in texts.pop(one)]
            left = [text for some in texts.values() for text in some]
            if conversation.title and (
                name in titles or tells_of(conversation.title, removed, left)
            ):
                found.append(conversation)
        return found


def _holds_work(exchange: Exchange) -> bool:
    return bool(exchange.files_touched or exchange.errors)


# -- Which texts reveal what is forgotten.


def texts_of(body: bytes) -> Iterator[str]:
    """Yield every text in a record's body."""
    try:
        left: list[Any] = [msgspec.json.decode(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield body.decode("utf-8", "replace")
        return
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one


def tells_of(title: str, gone: Iterable[str], left: Iterable[str]) -> bool:
    """Return whether a title reveals deleted text: its beginning, or a word that only it has."""
    gone = list(gone)
    begins = folded(title.removesuffix(TRUNCATED))
    if begins and any(folded(text).startswith(begins) for text in gone):
        return True
    own = {word for text in gone for word in tokens(text)}
    return not (own - {word for text in left for word in tokens(text)}).isdisjoint(tokens(title))


def folded(text: str) -> str:
    """Return the text in lower case with single spaces, for comparison."""
    return " ".join(text.split()).casefold()
