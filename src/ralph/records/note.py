"""Note: something a person or an agent wrote down on purpose, for one feature or for the project."""

from __future__ import annotations

import uuid
from typing import Literal

import msgspec

from ralph.errors import BadRecord
from ralph.records import Record, now, read_body, short_id, to_json, utc, write_body

NOTE = "note"
MAX_CHARS = 2000

Author = Literal["human", "agent"]

# Ids must be the same on every machine for ever, so this namespace never changes.
_NAMESPACE = uuid.UUID("7c1de0a4-3a42-5a0e-9a39-0c52b7b1f2d6")


class Note(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A fact worth keeping; without a feature it is the whole project's."""

    text: str
    feature: str = ""
    by: Author = "human"
    id: str = ""
    at: str | None = None

    def to_json(self) -> dict[str, object]:
        """Every field under its published name, the empty ones too."""
        return to_json(self)


_decode = msgspec.json.Decoder(Note).decode


def note_record(note: Note, *, number: int) -> Record:
    """The note in its envelope; the same words for the same feature are one note."""
    text = note.text.strip()
    if not text:
        raise BadRecord("the note is empty", todo='Try: ralph remember "The API needs a token."')
    if len(text) > MAX_CHARS:
        raise BadRecord(
            f"the note has {len(text)} characters, at most {MAX_CHARS} are allowed",
            todo="Say it shorter, or add the text as a document: ralph conversations add-document",
        )
    at = utc(note.at, field="at") if note.at else now()
    body = write_body(msgspec.structs.replace(note, text=text), id="", at=None)
    return Record(short_id(_NAMESPACE, NOTE, note.feature, text), NOTE, number, at, body)


def note_from(record: Record) -> Note:
    """The note inside a record."""
    found: Note = read_body(_decode, record, id=record.id, at=record.at)
    return found
