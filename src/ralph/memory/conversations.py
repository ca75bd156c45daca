"""Conversational memory: what a person and an assistant said, found again by asking."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ralph.config import Settings
from ralph.errors import BadInput, JournalError, NotFound
from ralph.journal import Draft
from ralph.memory.conversation_history import (
    Related,
    Scope,
    Weights,
    grouped,
    homes,
    in_order,
    without_summaries,
)
from ralph.memory.conversation_journal import (
    ConversationJournal,
    Listed,
    prepared_conversation,
    prepared_exchange,
    renumbered,
)
from ralph.memory.conversation_stream import Series
from ralph.recall import Answer, Hit
from ralph.recall.score import RELEVANT
from ralph.recall.search import Question
from ralph.records import Complaint, Record
from ralph.records.conversation import (
    DOCUMENT,
    EXCHANGE,
    Conversation,
    Document,
    Exchange,
    conversation_record,
    document_id,
    exchange_record,
    said_from,
)
from ralph.text.redact import redact
from ralph.text.sections import BETWEEN_HEADINGS, sections
from ralph.text.when import event_range

# How many passages are looked at: they are grouped, filtered and lifted afterwards.
_DEPTH = 60


class Conversations(ConversationJournal):
    """The conversations of one project, or of none; those of others can be asked for too."""

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        min_score: float | None = None,
        exclude: str | None = None,
        everywhere: bool = False,
        words_only: bool = False,
        budget_s: float | None = None,
        tags: Collection[str] = (),
        since: str | None = None,
        until: str | None = None,
        documents: bool = False,
    ) -> Answer:
        """The exchanges that answer the question, best first; `exclude` names a conversation.

        `since` and `until` are days, both included; else a time that the question plainly names
        counts. `documents` brings in sections of the user's own documents.
        """
        # A list to look through may hold more doubtful hits than what a prompt is given: doors that
        # tell an agent pass the floor that holds everywhere else.
        floor = self.shelf.settings.conversation_min_score if min_score is None else min_score
        question = self.shelf.question(query, limit=limit, min_score=floor)
        streams = self._within(everywhere)
        scope = Scope.of(question.text, tags=tags, since=since, until=until)
        scope = self._dated(scope, streams, meaning=not words_only, budget_s=budget_s)
        deeper = msgspec.structs.replace(question, text=scope.question, limit=_DEPTH)
        found = self.shelf.ask(streams, deeper, meaning=not words_only, budget_s=budget_s)
        hits = self._fitting(streams, found, scope, exclude=exclude, documents=documents)
        return Answer(hits[: question.limit], found.notes)

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
        budget_s: float | None = None,
    ) -> Related:
        """The past conversations that matter for a question, and their exchanges that do.

        `budget_s` bounds the catching up with the journal before it.
        """
        settings = self.shelf.settings
        floor = settings.rag_min_similarity if min_similarity is None else min_similarity
        asked = self.shelf.question(question, limit=1, min_score=min(floor, RELEVANT))
        streams = self._within(everywhere)
        scope = Scope.of(asked.text, tags=tags)
        scope = self._dated(scope, streams, meaning=True, budget_s=budget_s)
        deeper = msgspec.structs.replace(asked, text=scope.question, limit=_DEPTH)
        found = self.shelf.ask(streams, deeper, budget_s=budget_s)
        hits = self._fitting(streams, found, scope, exclude=exclude, summaries=True)
        return grouped(
            question,
            hits,
            [series.history for series in streams],
            floor=floor,
            conversations=conversations or settings.rag_conversation_limit,
            exchanges=exchanges or settings.rag_exchange_limit_per_conversation,
            notes=found.notes,
        )

    def _dated(
        self, scope: Scope, streams: Sequence[Series], *, meaning: bool, budget_s: float | None
    ) -> Scope:
        """`before the release`: the day is that of the exchange which tells of it most surely."""
        event = None if scope.first or scope.last else event_range(scope.question)
        if event is None:
            return scope
        side, phrase = event
        asked = Question(phrase, limit=_DEPTH, min_score=RELEVANT)
        found = self.shelf.ask(streams, asked, meaning=meaning, budget_s=budget_s)
        days = [hit.record.completed[:10] for hit in found if hit.kind == EXCHANGE]
        return scope.around(side, days[0]) if days else scope

    def _fitting(
        self,
        streams: Sequence[Series],
        found: Sequence[Hit],
        scope: Scope,
        *,
        exclude: str | None,
        documents: bool = False,
        summaries: bool = False,
    ) -> list[Hit]:
        histories = [series.history for series in streams]
        home = homes(found, histories)
        kept = [
            hit
            for hit in found
            if scope.holds(hit, home[hit.id], histories)
            and (not exclude or home[hit.id] != exclude)
            and (documents or hit.kind != DOCUMENT)
        ]
        half_life = self.shelf.settings.rag_recency_half_life_days
        ratings = {name: value for one in histories for name, value in one.ratings.items()}
        named = frozenset(hit.id for hit in kept if scope.named and scope.in_time(hit))
        weights = Weights(ratings, named, half_life, datetime.now(UTC))
        ordered = in_order(kept, home, weights)
        return ordered if summaries else without_summaries(ordered, histories)

    def list(
        self, limit: int | None = None, *, everywhere: bool = False, tags: Collection[str] = ()
    ) -> list[Listed]:
        """The conversations, those with the newest exchange first."""
        wanted = {tag.casefold() for tag in tags}
        listed = [
            Listed(
                held.conversation,
                held.exchanges,
                held.last or held.conversation.created or "",
                tuple(sorted(held.tags)),
                summary.text if (summary := history.summaries.get(name)) else "",
            )
            for history in (series.history for series in self._within(everywhere))
            for name, held in history.conversations.items()
            if wanted <= held.tags
        ]
        # Of those that ended in the same moment, the one begun later.
        return sorted(reversed(listed), key=lambda one: one.last, reverse=True)[:limit]


# -- One conversation, or one exchange of it, with all that was said of it later.


_SHORTEST_ID = 4


class Details(msgspec.Struct, frozen=True):
    """A conversation, the exchanges that were asked for, its tags, and summaries by what they
    are about."""

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
) -> Details:
    """What is known of a conversation or of one exchange, by its id or the beginning of it."""
    if (conversation is None) == (exchange is None):
        raise BadInput(
            "give a conversation_id or an exchange_id, one of them",
            todo='For example: fetch_conversation_details {"exchange_id": "3f2a9c1e"}',
        )
    wanted = _long_enough(exchange or conversation or "")
    # Another project's conversations do not exist here, unless all were asked for.
    try:
        if exchange is not None:
            exchanges = [memory.get(wanted, everywhere=everywhere).record]
            held = memory.conversation(exchanges[0].conversation, everywhere=everywhere)
        else:
            held = memory.conversation(wanted, everywhere=everywhere)
            exchanges = memory.exchanges(held.id, everywhere=everywhere)
    except NotFound:
        raise NotFound(
            f"there is no {wanted!r} here", todo="Take an id from search_conversations."
        ) from None
    listed = standing(memory, everywhere=everywhere).get(held.id)
    summaries = {
        one: told.text for one in (x.id for x in exchanges) if (told := memory.summary(one))
    }
    if listed is not None and listed.summary:
        summaries[held.id] = listed.summary
    return Details(held, exchanges, listed.tags if listed else (), summaries)


def standing(memory: Conversations, *, everywhere: bool = False) -> dict[str, Listed]:
    """Every conversation as it stands now, by its id."""
    return {one.conversation.id: one for one in memory.list(everywhere=everywhere)}


def _long_enough(wanted: str) -> str:
    plain = wanted.strip()
    if len(plain) < _SHORTEST_ID:
        raise BadInput(f"{wanted!r} is too short for an id", todo="Give 4 characters or more.")
    return plain


# -- Many conversations of one project kept at once: one reading of its journal, one flush.


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


# -- Documents of the user's own: cut by headings, kept beside the conversations, found with them.
#
# A section is one record, named by what it says. Adding a file again keeps what is unchanged, adds
# what is new and takes out what is gone. What a person forgot stays out until it says something
# else.


SUFFIXES = (".md", ".markdown", ".txt", ".rst")
MOST_BYTES = 4_000_000
# Why a section went that may come back: nobody wanted it forgotten.
REPLACED, REMOVED = "the document changed", "the document was removed"
# Folders of other people's files.
_NOT_OWN = frozenset({"node_modules", "site-packages", "__pycache__"})
_TITLE_CHARS = 200


class Refused(msgspec.Struct, frozen=True):
    """A file that was not taken in, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What adding came to, in sections; `vanished` files are still found until they are removed,
    `forgotten` sections stay out."""

    files: int = 0
    added: int = 0
    unchanged: int = 0
    taken_out: int = 0
    forgotten: int = 0
    vanished: list[str] = []
    refused: list[Refused] = []


class ListedDocument(msgspec.Struct, frozen=True):
    """A document, its title, and how many sections of it are kept since when."""

    path: str
    title: str
    sections: int
    added: str


def add_documents(memory: Conversations, paths: Sequence[Path], *, root: Path) -> Added:
    """Bring files, and every text in folders, into memory as they are now.

    No path at all means every document that is known.
    """
    kept = _kept(memory)
    files, refused = _files(paths or [_place(name, root) for name in kept], root)
    wanted: dict[str, list[Document]] = {}
    for name, file in files.items():
        try:
            wanted[name] = read_document(file, name)
        except BadInput as error:
            refused.append(Refused(name, error.what))
    vanished = [
        name
        for name in kept
        if name not in files
        and not _place(name, root).exists()
        and (not paths or any(_is_below(_place(name, root), one) for one in paths))
    ]
    fresh, stale, unchanged, forgotten = _compared(memory, wanted, kept)
    # The new first: killed in between, the next adding takes out what is left of the old.
    memory.say_all(fresh)
    taken_out = memory.forget(stale, reason=REPLACED) if stale else []
    return Added(
        files=len(wanted),
        added=len(fresh),
        unchanged=unchanged,
        taken_out=len(taken_out),
        forgotten=forgotten,
        vanished=sorted(vanished),
        refused=[one for one in refused if one.path not in vanished],
    )


def remove_documents(memory: Conversations, paths: Sequence[Path], *, root: Path) -> list[str]:
    """Take documents out of memory, those in folders too; the files themselves are left alone."""
    kept = _kept(memory)
    gone: dict[str, list[str]] = {}
    for path in paths:
        below = [name for name in kept if _is_below(_place(name, root), path)]
        if not below:
            raise NotFound(
                f"no document {path} is kept",
                todo="`ralph conversations add-document --list` shows them. Nothing was removed.",
            )
        gone |= {name: [one.id for one in kept[name]] for name in below}
    memory.forget([one for ids in gone.values() for one in ids], reason=REMOVED)
    return sorted(gone)


def list_documents(memory: Conversations) -> list[ListedDocument]:
    """Every document that is kept, by its path."""
    added: dict[str, str] = {}
    for record in memory.said(DOCUMENT):
        name = said_from(record).path
        added[name] = max(record.at, added.get(name, ""))
    return [
        ListedDocument(name, some[0].title, len(some), added[name])
        for name, some in sorted(_kept(memory).items())
    ]


def read_document(file: Path, name: str) -> list[Document]:
    """A file's sections without secrets; `name` is what its path is called."""
    text = _text(file)
    # Before it is cut: half a secret is not recognised as one.
    cut = [one for one in sections(redact(text)) if one.text.strip()]
    title = next((one.heading.split(BETWEEN_HEADINGS)[0] for one in cut if one.heading), "")
    return [
        Document(
            path=name,
            heading=one.heading,
            text=one.text,
            title=(title or file.name)[:_TITLE_CHARS],
            line=one.line,
        )
        for one in cut
    ]


def line_of(one: Document, root: Path) -> int:
    """The line where the section begins now, as far as the file still tells."""
    try:
        text = _text(_place(one.path, root)).replace("\r\n", "\n")
    except BadInput:
        return one.line
    at = text.find(one.text)
    # Text that stands there more than once says nothing about where.
    if at < 0 or text.find(one.text, at + 1) >= 0:
        return one.line
    return text.count("\n", 0, at) + 1


def _compared(
    memory: Conversations, wanted: dict[str, list[Document]], kept: dict[str, list[Document]]
) -> tuple[list[tuple[Document, str]], list[str], int, int]:
    """What is new with its ids, the ids of what is gone, how many stay and how many stay out."""
    buried = memory.buried()
    fresh: list[tuple[Document, str]] = []
    stale: list[str] = []
    unchanged = forgotten = 0
    for name, found in wanted.items():
        living = {one.id for one in kept.get(name, ())}
        used: set[str] = set()
        for section in found:
            identity = _identity(section, used, buried)
            if identity is None:
                forgotten += 1
                continue
            used.add(identity)
            if identity in living:
                unchanged += 1
            else:
                fresh.append((section, identity))
        stale += living - used
    return fresh, stale, unchanged, forgotten


def _identity(one: Document, used: Collection[str], buried: dict[str, str]) -> str | None:
    """The id of a section: the first that is free; None for what a person forgot."""
    place = 0
    while True:
        identity = document_id(one.path, one.heading, one.text, place)
        reason = buried.get(identity)
        if reason is not None and reason not in (REPLACED, REMOVED):
            return None
        if reason is None and identity not in used:
            return identity
        place += 1  # a twin in the same file, or it was here before


def _kept(memory: Conversations) -> dict[str, list[Document]]:
    """The sections that memory has, by their file."""
    kept: dict[str, list[Document]] = {}
    for record in memory.said(DOCUMENT):
        one: Document = said_from(record)
        kept.setdefault(one.path, []).append(one)
    return kept


# -- files


def _files(paths: Sequence[Path], root: Path) -> tuple[dict[str, Path], list[Refused]]:
    """Every text in these files and folders, each once, by the name it is kept under."""
    found: dict[str, Path] = {}
    refused: list[Refused] = []
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            refused.append(Refused(_name(path, root), "there is no such file"))
            continue
        for file in _texts_in(path) if path.is_dir() else [path]:
            real = file.resolve()
            if real not in seen:
                seen.add(real)
                found[_name(file, root)] = file
    return found, refused


def _texts_in(folder: Path) -> Iterator[Path]:
    """The texts below a folder, in order. Links to folders, and out of it, are not followed."""
    base = folder.resolve()
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one[0] != "." and one not in _NOT_OWN)
        for name in sorted(files):
            file = Path(above, name)
            if name[0] == "." or file.suffix.lower() not in SUFFIXES or not file.is_file():
                continue
            if file.resolve().is_relative_to(base):
                yield file


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"it cannot be read ({error.strerror or error})", where=str(file)) from None
    if len(data) > MOST_BYTES:
        raise BadInput(f"it is longer than {MOST_BYTES:,} bytes", where=str(file))
    if b"\0" in data:
        raise BadInput("it is no text", where=str(file))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not UTF-8 text (byte {error.start})", where=str(file)) from None


def _name(path: Path, root: Path) -> str:
    """How a file is called: within the project by its way from there, else by its whole path."""
    whole, base = path.resolve(), root.resolve()
    return (whole.relative_to(base) if whole.is_relative_to(base) else whole).as_posix()


def _place(name: str, root: Path) -> Path:
    return root.resolve() / name  # a whole path stays what it is


def _is_below(place: Path, path: Path) -> bool:
    return place.is_relative_to(path.resolve())
