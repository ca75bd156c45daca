"""Note: something a person, an agent or a model wrote down, for one feature or the project."""

from __future__ import annotations

import uuid
from typing import Any, Literal, get_args

import msgspec

from ralph.errors import BadRecord
from ralph.records import clean_text, short_id, to_json

NOTE = "note"
MAX_CHARS = 2000

# Who wrote it, the least trusted first. A model writes notes after it has read a session.
Author = Literal["model", "agent", "human"]
TRUSTED: tuple[str, ...] = get_args(Author)

# Ids must be the same on every machine forever, so this namespace never changes.
_NAMESPACE = uuid.UUID("7c1de0a4-3a42-5a0e-9a39-0c52b7b1f2d6")


class Note(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A fact worth keeping; without a feature it belongs to the whole project."""

    text: str
    feature: str = ""
    by: Author = "human"
    id: str = ""
    at: str | None = None
    # The id of the record whose words no longer hold.
    replaces: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name, including empty ones."""
        return to_json(self)


def make_note(text: str, *, feature: str = "", by: Author = "human", replaces: str = "") -> Note:
    """Create a note with its id, without secrets.

    The same words for the same feature are the same note.
    """
    words = text.encode(errors="replace").decode().strip()
    if not any(map(str.isalnum, words)):
        what = "the note has no letter or digit" if words else "the note is empty"
        raise BadRecord(what, todo='Try: ralph remember "The API needs a token."')
    if len(words) > MAX_CHARS:
        raise BadRecord(
            f"the note has {len(words)} characters, at most {MAX_CHARS} are allowed",
            todo="Shorten it, or add the text as a document: ralph conversations add-document",
        )
    words = clean_text(words)
    names = (feature, words, replaces) if replaces else (feature, words)
    identity = short_id(_NAMESPACE, NOTE, *names)
    return Note(text=words, feature=feature, by=by, id=identity, replaces=replaces)
