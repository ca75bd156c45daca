"""Conversations: what a person asked, what an assistant answered, and later notes about both.

Nothing is rewritten: a summary, label or rating is a separate record that names its target.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

import msgspec

from ralph.records import Record, now, read_body, short_id, to_json, utc, write_body
from ralph.records.iteration import CheckRun, Decision, ErrorSeen, FileTouched
from ralph.records.note import NOTE, Note

CONVERSATION = "conversation"
EXCHANGE = "exchange"
SUMMARY = "summary"
LABEL = "label"
RATING = "rating"
DOCUMENT = "document"

# The `by` of a summary that was made without a model.
EXTRACTIVE = "extractive"

Role = Literal["user", "assistant", "tool"]
Status = Literal["complete", "interrupted", "failed"]
SummaryTarget = Literal["conversation", "exchange"]

# Ids must be the same on every machine forever, so this namespace never changes.
_NAMESPACE = uuid.UUID("0d6f2a53-9d0b-5c0e-8f52-6a5f4f1b7c33")


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step inside an exchange.

    For a tool, `content` is the call and, on the next line, the beginning of its answer.
    """

    role: Role
    content: str = ""
    tool: str = ""
    failed: bool = False


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A series of exchanges; `source` is the client it was held in, `project` the project."""

    title: str = ""
    source: str = "api"
    project: str = ""
    id: str = ""
    created: str | None = None


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One question and its answer, with the steps in between."""

    conversation: str
    user: str = ""
    assistant: str = ""
    status: Status = "complete"
    started: str | None = None
    tokens_used: int | None = None
    cost_usd: float | None = None
    model: str | None = None
    errors: tuple[ErrorSeen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    files_touched: tuple[FileTouched, ...] = ()
    # Calls that the client itself turned down, by what they have in common ("Unknown skill: x").
    stumbles: dict[str, int] = {}
    # The tests, builds, linters and starts of the project that were run, the last one last.
    checks: tuple[CheckRun, ...] = ()
    messages: tuple[Message, ...] = ()
    completed: str | None = None
    id: str = ""
    number: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name, including empty ones."""
        return to_json(self)


class Summary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One to three sentences about a conversation or an exchange; `by` is what wrote them.

    `covers` is how many exchanges the conversation had at the time.
    """

    of: SummaryTarget
    target: str
    text: str
    by: str = EXTRACTIVE
    covers: int = 1
    tokens_used: int | None = None
    cost_usd: float | None = None


class Label(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Labels added to a conversation or removed from it; a `title` replaces the old one.

    `source` and `project` belong to a conversation whose own record was forgotten along with its
    title.
    """

    target: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    title: str | None = None
    source: str = ""
    project: str = ""


class Rating(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether an exchange was worth finding: 1, -1, or 0 to withdraw an earlier rating."""

    target: str
    value: Literal[-1, 0, 1]


class Document(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One section of a document that the user added."""

    path: str
    heading: str = ""
    text: str
    title: str = ""
    line: int = 1
    id: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name, including empty ones."""
        return to_json(self)


Annotation = Summary | Label | Rating | Document | Note
_TYPES: dict[str, type[msgspec.Struct]] = {
    CONVERSATION: Conversation,
    EXCHANGE: Exchange,
    SUMMARY: Summary,
    LABEL: Label,
    RATING: Rating,
    DOCUMENT: Document,
    NOTE: Note,
}
_KINDS = {content: kind for kind, content in _TYPES.items()}
_DECODERS = {kind: msgspec.json.Decoder(content).decode for kind, content in _TYPES.items()}
# The fields of each kind that the envelope holds, and their names there.
_ENVELOPES = {
    CONVERSATION: {"id": "id", "created": "at"},
    EXCHANGE: {"id": "id", "completed": "at", "number": "number"},
    DOCUMENT: {"id": "id"},
    NOTE: {"id": "id", "at": "at"},
}


def conversation_id(source: str, session: str) -> str:
    """Return the id that a session of this source always gets."""
    return short_id(_NAMESPACE, CONVERSATION, source, session)


def exchange_id(conversation: str, key: str) -> str:
    """Return the id that the exchange with this key (its prompt's id) always gets."""
    return short_id(_NAMESPACE, EXCHANGE, conversation, key)


def renewed_id(exchange: str) -> str:
    """Return the id of an exchange that was read again and then held more."""
    return short_id(_NAMESPACE, EXCHANGE, exchange)


def summary_id(target: str, covers: int) -> str:
    """Return the id of the summary of this many exchanges of a target: it is made once."""
    return said_id(SUMMARY, target, str(covers))


def said_id(kind: str, target: str, *words: str) -> str:
    """Return the id that an annotation of this kind, target and words always gets."""
    return short_id(_NAMESPACE, kind, target, *words)


def document_id(path: str, heading: str, text: str, place: int) -> str:
    """Return the id that a section always gets; a changed section gets a new id."""
    return short_id(_NAMESPACE, DOCUMENT, path, heading, text, str(place))


def record_of(content: Conversation | Exchange | Annotation, *, id: str = "") -> Record:
    """Return a value in its envelope, with its own time or now; the journal sets the number."""
    kind = _KINDS[type(content)]
    envelope = _ENVELOPES.get(kind, {})
    times = [(name, getattr(content, name)) for name, of in envelope.items() if of == "at"]
    at = next((utc(at, field=name) for name, at in times if at), None) or now()
    empty = {name: "" if name == "id" else None for name in envelope}
    return Record(id or getattr(content, "id", ""), kind, 0, at, write_body(content, **empty))


def content_of(record: Record) -> Any:
    """Return the value inside a record; None for a kind that this module does not know."""
    if record.kind not in _DECODERS:
        return None
    said = {name: getattr(record, of) for name, of in _ENVELOPES.get(record.kind, {}).items()}
    return read_body(_DECODERS[record.kind], record, **said)
