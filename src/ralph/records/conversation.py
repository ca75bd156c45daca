"""Conversations: what a person asked, what an assistant answered, what was said of that later.

Nothing rewrites: a summary, a label, a rating is a record of its own that names what it is about.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

import msgspec

from ralph.records import Record, now, read_body, short_id, to_json, utc, write_body
from ralph.records.iteration import ErrorSeen, FileTouched
from ralph.records.note import NOTE, Note

CONVERSATION = "conversation"
EXCHANGE = "exchange"
SUMMARY = "summary"
LABEL = "label"
RATING = "rating"
DOCUMENT = "document"

# What a summary was made with when no model was.
EXTRACTIVE = "extractive"

Role = Literal["user", "assistant", "tool"]
Status = Literal["complete", "interrupted", "failed"]
SummaryTarget = Literal["conversation", "exchange"]

# Ids must be the same on every machine for ever, so this namespace never changes.
_NAMESPACE = uuid.UUID("0d6f2a53-9d0b-5c0e-8f52-6a5f4f1b7c33")


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step inside an exchange.

    Of a tool, `content` is what was asked of it and, on the next line, how its answer begins.
    """

    role: Role
    content: str = ""
    tool: str = ""
    failed: bool = False


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A series of exchanges; `source` says who held it, `project` where."""

    title: str = ""
    source: str = "api"
    project: str = ""
    id: str = ""
    created: str | None = None


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One question and its answer, with what was done in between."""

    conversation: str
    user: str = ""
    assistant: str = ""
    status: Status = "complete"
    started: str | None = None
    tokens_used: int | None = None
    cost_usd: float | None = None
    model: str | None = None
    errors: tuple[ErrorSeen, ...] = ()
    files_touched: tuple[FileTouched, ...] = ()
    messages: tuple[Message, ...] = ()
    completed: str | None = None
    id: str = ""
    number: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Every field under its published name, the empty ones too."""
        return to_json(self)


class Summary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One to three sentences about a conversation or an exchange, and what made them.

    `covers`: how many exchanges the conversation had by then.
    """

    of: SummaryTarget
    target: str
    text: str
    by: str = EXTRACTIVE
    covers: int = 1
    tokens_used: int | None = None
    cost_usd: float | None = None


class Label(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Words put on a conversation or taken off it; a title that takes the place of the old one.

    `source` and `project` are those of a conversation whose own record was forgotten with its
    title.
    """

    target: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    title: str | None = None
    source: str = ""
    project: str = ""


class Rating(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether an exchange was worth finding: 1, -1, or 0 to take an earlier rating back."""

    target: str
    value: Literal[-1, 0, 1]


class Document(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One section of a document of the user's own."""

    path: str
    heading: str = ""
    text: str
    title: str = ""
    line: int = 1
    id: str = ""

    def to_json(self) -> dict[str, Any]:
        """Every field under its published name, the empty ones too."""
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
# What the envelope of a record has of its content, and under which name.
_ENVELOPES = {
    CONVERSATION: {"id": "id", "created": "at"},
    EXCHANGE: {"id": "id", "completed": "at", "number": "number"},
    DOCUMENT: {"id": "id"},
    NOTE: {"id": "id", "at": "at"},
}


def conversation_id(source: str, session: str) -> str:
    """The id that a session of this source always gets."""
    return short_id(_NAMESPACE, CONVERSATION, source, session)


def exchange_id(conversation: str, key: str) -> str:
    """The id that the exchange with this key (its prompt's own name) always gets."""
    return short_id(_NAMESPACE, EXCHANGE, conversation, key)


def summary_id(target: str, covers: int) -> str:
    """The id that a summary of this, so far, always gets: it is made once."""
    return said_id(SUMMARY, target, str(covers))


def said_id(kind: str, target: str, *words: str) -> str:
    """The id that what was said of this in these words always gets."""
    return short_id(_NAMESPACE, kind, target, *words)


def document_id(path: str, heading: str, text: str, place: int) -> str:
    """The id that a section always gets; one that changed is another."""
    return short_id(_NAMESPACE, DOCUMENT, path, heading, text, str(place))


def record_of(content: Conversation | Exchange | Annotation, *, id: str = "") -> Record:
    """A value in its envelope, at the time that it says or now; the journal gives its number."""
    kind = _KINDS[type(content)]
    envelope = _ENVELOPES.get(kind, {})
    times = [(name, getattr(content, name)) for name, of in envelope.items() if of == "at"]
    at = next((utc(at, field=name) for name, at in times if at), None) or now()
    empty = {name: "" if name == "id" else None for name in envelope}
    return Record(id or getattr(content, "id", ""), kind, 0, at, write_body(content, **empty))


def content_of(record: Record) -> Any:
    """The value inside a record; None for a kind that is not known here."""
    if record.kind not in _DECODERS:
        return None
    said = {name: getattr(record, of) for name, of in _ENVELOPES.get(record.kind, {}).items()}
    return read_body(_DECODERS[record.kind], record, **said)
