"""Conversations: what a person asked, what an assistant answered, what was said of that later.

Nothing rewrites: a summary, a label, a rating is a record of its own that names what it is about.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

import msgspec

from ralph.records import (
    Record,
    Source,
    clean,
    now,
    read_body,
    short_id,
    to_json,
    utc,
    write_body,
)
from ralph.records.iteration import ErrorSeen, FileTouched

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
Summarised = Literal["conversation", "exchange"]

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

    of: Summarised
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


Said = Summary | Label | Rating | Document
_KINDS: dict[type, str] = {Summary: SUMMARY, Label: LABEL, Rating: RATING, Document: DOCUMENT}
_READERS: dict[str, Any] = {
    kind: msgspec.json.Decoder(said).decode for said, kind in _KINDS.items()
}

_decode_conversation = msgspec.json.Decoder(Conversation).decode
_decode_exchange = msgspec.json.Decoder(Exchange).decode


def conversation_id(source: str, session: str) -> str:
    """The id that a session of this source always gets."""
    return short_id(_NAMESPACE, CONVERSATION, source, session)


def exchange_id(conversation: str, key: str) -> str:
    """The id that the exchange with this key (its prompt's own name) always gets."""
    return short_id(_NAMESPACE, EXCHANGE, conversation, key)


def summary_id(target: str, covers: int) -> str:
    """The id that a summary of this, so far, always gets: it is made once."""
    return short_id(_NAMESPACE, SUMMARY, target, str(covers))


def document_id(path: str, heading: str, text: str, place: int) -> str:
    """The id that a section always gets; one that changed is another."""
    return short_id(_NAMESPACE, DOCUMENT, path, heading, text, str(place))


def conversation_record(conversation: Conversation, *, number: int) -> Record:
    """The conversation in its envelope."""
    at = utc(conversation.created, field="created") if conversation.created else now()
    body = write_body(conversation, id="", created=None)
    return Record(conversation.id, CONVERSATION, number, at, body)


def exchange_record(exchange: Exchange, *, number: int, source: Source | None = None) -> Record:
    """The exchange in its envelope; it stands at the time it was completed."""
    at = utc(exchange.completed, field="completed") if exchange.completed else now()
    body = write_body(exchange, id="", number=None, completed=None)
    return Record(exchange.id, EXCHANGE, number, at, body, clean(source or Source()))


def conversation_from(record: Record) -> Conversation:
    """The conversation inside a record."""
    found: Conversation = read_body(_decode_conversation, record, id=record.id, created=record.at)
    return found


def exchange_from(record: Record) -> Exchange:
    """The exchange inside a record."""
    found: Exchange = read_body(
        _decode_exchange, record, id=record.id, number=record.number, completed=record.at
    )
    return found


def said_record(said: Said, *, id: str, number: int, at: str | None = None) -> Record:
    """What was said of a conversation, in its envelope."""
    return Record(id, _KINDS[type(said)], number, at or now(), write_body(said))


def said_from(record: Record) -> Any:
    """The Summary, Label, Rating or Document inside a record."""
    envelope = {"id": record.id} if record.kind == DOCUMENT else {}
    return read_body(_READERS[record.kind], record, **envelope)
