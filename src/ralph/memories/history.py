"""History: what a journal of conversations comes to, folded step by step.

Nothing is read twice: what is new in the journal moves the state on. Only a rewrite begins anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from ralph.errors import BadRecord
from ralph.kinds.conversation import (
    CONVERSATION,
    DOCUMENT,
    EXCHANGE,
    LABEL,
    RATING,
    SUMMARY,
    Conversation,
    Label,
    Rating,
    Summary,
    conversation_from,
    said_from,
)
from ralph.kinds.iteration import cut
from ralph.record import Located, Record

_TITLE_CHARS = 80


class _Glance(msgspec.Struct, frozen=True):
    """As much of an exchange as a list needs; the decoder skips the rest."""

    conversation: str
    user: str = ""
    assistant: str = ""


_glance = msgspec.json.Decoder(_Glance).decode


class Held(msgspec.Struct):
    """A conversation as it stands now."""

    conversation: Conversation
    titled: bool = False
    exchanges: int = 0
    last: str = ""
    tags: set[str] = msgspec.field(default_factory=set)


class History:
    """The conversations of one journal as they stand now."""

    def __init__(self) -> None:
        self._generation = -1
        self._seen = 0
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.conversations: dict[str, Held] = {}
        self.records: dict[str, Record] = {}
        self.of: dict[str, list[str]] = {}
        self.summaries: dict[str, Summary] = {}
        self.ratings: dict[str, int] = {}
        self.documents: dict[str, list[str]] = {}
        # Labels of conversations whose first exchanges were forgotten.
        self._early: dict[str, list[Label]] = {}

    def follow(self, located: list[Located], generation: int) -> None:
        """Take in what the journal has more than before."""
        if generation != self._generation:
            self.clear()
            self._generation, self._seen = generation, 0
        for one in located[self._seen :]:
            self._take(one.record)
        self._seen = len(located)

    def _take(self, record: Record) -> None:
        if record.id in self.records:
            return  # the first that was written counts
        with contextlib.suppress(
            BadRecord, msgspec.DecodeError, UnicodeDecodeError, RecursionError
        ):  # what cannot be read is left to `verify`
            if record.kind == EXCHANGE:
                self._exchange(record)
            elif record.kind == CONVERSATION:
                self._conversation(conversation_from(record))
            elif record.kind in (SUMMARY, LABEL, RATING, DOCUMENT):
                self._said(record)
            self.records[record.id] = record

    def _exchange(self, record: Record) -> None:
        seen = _glance(record.body)
        held = self.conversations.get(seen.conversation)
        if held is None:  # forgotten, and then it went on
            title = cut(" ".join((seen.user or seen.assistant).split()), _TITLE_CHARS)
            made = Conversation(id=seen.conversation, title=title, created=record.at)
            held = self._begin(Held(made))
        held.exchanges += 1
        held.last = max(held.last, record.at)
        self.of.setdefault(seen.conversation, []).append(record.id)

    def _conversation(self, one: Conversation) -> None:
        held = self.conversations.get(one.id)
        if held is None:
            self._begin(Held(one, titled=bool(one.title)))
        elif not held.titled:
            held.conversation, held.titled = one, True

    def _begin(self, held: Held) -> Held:
        name = held.conversation.id
        self.conversations[name] = held
        for label in self._early.pop(name, ()):
            self._label(label)
        return held

    def _said(self, record: Record) -> None:
        said = said_from(record)
        if isinstance(said, Summary):
            before = self.summaries.get(said.target)
            if before is None or before.covers <= said.covers:
                self.summaries[said.target] = said
        elif isinstance(said, Rating):
            self.ratings[said.target] = said.value
        elif isinstance(said, Label):
            self._label(said)
        else:
            self.documents.setdefault(said.path, []).append(record.id)

    def _label(self, said: Label) -> None:
        held = self.conversations.get(said.target)
        if held is None:
            self._early.setdefault(said.target, []).append(said)
            return
        held.tags = (held.tags | set(said.add)) - set(said.remove)
        if said.source:
            held.conversation = msgspec.structs.replace(
                held.conversation, source=said.source, project=said.project
            )
        if said.title is not None:
            held.conversation = msgspec.structs.replace(held.conversation, title=said.title)
            held.titled = True

    def exchanges_of(self, conversations: Iterable[str]) -> list[Record]:
        """The records of these conversations' exchanges, as they were written."""
        return [self.records[one] for name in conversations for one in self.of.get(name, ())]
