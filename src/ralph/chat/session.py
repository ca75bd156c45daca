"""Session: one conversation under way: what was said, what is kept of it, what a model is shown."""

from __future__ import annotations

import uuid

import msgspec

from ralph.chat.model import Turn
from ralph.memory.conversations import Conversations
from ralph.records import now
from ralph.records.conversation import Conversation, Exchange, Message, Status
from ralph.records.conversation import conversation_id as identity_of
from ralph.records.conversation import exchange_id as exchange_identity
from ralph.text.redact import redact
from ralph.text.summary import title_of
from ralph.text.words import estimate_tokens

SOURCE = "chat"
_BROKEN_OFF = "[the answer was broken off here]"


class Answer(msgspec.Struct):
    """An answer as far as it has come: its texts, its steps, and what they cost."""

    texts: list[str] = msgspec.field(default_factory=list)
    steps: list[Message] = msgspec.field(default_factory=list)
    tools: list[str] = msgspec.field(default_factory=list)
    tokens_used: int | None = None
    cost_usd: float | None = None
    model: str | None = None

    @property
    def text(self) -> str:
        """Everything that was said, in the order it was."""
        return "\n\n".join(text.strip() for text in self.texts if text.strip())

    def hear(self, piece: str) -> None:
        """A piece of the text under way."""
        self.texts[-1] += piece

    def count(self, *tokens: int | None, cost_usd: float | None) -> None:
        """Add what a call took; what nobody told adds nothing."""
        told = [some for some in tokens if some is not None]
        if told:
            self.tokens_used = (self.tokens_used or 0) + sum(told)
        if cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost_usd


class _Round(msgspec.Struct, frozen=True):
    user: str
    assistant: str
    status: Status
    kept: bool


class Session:
    """One conversation; it begins in the journal with its first exchange."""

    def __init__(
        self, memory: Conversations, *, wanted: str | None = None, title: str = ""
    ) -> None:
        """`wanted` is a conversation to go on with, by its id or the beginning of it."""
        self._rounds: list[_Round] = []
        self.title = title
        self.last_exchange: str | None = None
        self._begun: Conversation | None = None
        if wanted is None:
            self.id = identity_of(SOURCE, uuid.uuid4().hex)
            return
        self._begun = memory.conversation(wanted)
        self.id = self._begun.id
        self.title = title or self._begun.title
        if title and title != self._begun.title:
            memory.rename(self.id, title)
        for one in memory.exchanges(self.id):
            self._rounds.append(_Round(one.user, one.assistant, one.status, kept=True))
            self.last_exchange = one.id

    @property
    def begun(self) -> bool:
        """Whether anything of it is in the journal."""
        return self._begun is not None

    @property
    def exchanges(self) -> int:
        """How many exchanges of it are kept."""
        return sum(one.kept for one in self._rounds)

    def keep(
        self, memory: Conversations, *, user: str, answer: Answer, status: Status, started: str
    ) -> str:
        """Write the exchange down, the conversation with its first, and give its id."""
        if self._begun is None:
            # Of a secret that a title cuts in two, nobody would know the half.
            self.title = self.title or title_of(redact(user))
            begun = Conversation(id=self.id, title=self.title, source=SOURCE, created=started)
        else:
            begun = self._begun
        one = Exchange(
            id=exchange_identity(self.id, uuid.uuid4().hex),
            conversation=self.id,
            user=user,
            assistant=answer.text,
            status=status,
            started=started,
            completed=now(),
            tokens_used=answer.tokens_used,
            cost_usd=answer.cost_usd,
            model=answer.model,
            messages=tuple(answer.steps),
        )
        [kept] = memory.add(begun, [one])
        self._begun = begun
        self.last_exchange = kept.id
        return kept.id

    def went(self, *, user: str, assistant: str, status: Status, kept: bool) -> None:
        """Take in what was said; what is not kept is shown to the model while nothing is kept."""
        self._rounds.append(_Round(user, assistant, status, kept))

    def turns(self, *, budget_tokens: int, paused: bool) -> tuple[list[Turn], int]:
        """The newest exchanges that fit, as the model is shown them, and how many do not fit.

        Once exchanges are kept again, those that were not are left out: a kept answer could
        repeat them.
        """
        shown: list[tuple[Turn, Turn]] = []
        rounds = [one for one in self._rounds if (one.kept or paused) and one.assistant.strip()]
        for one in reversed(rounds):
            told = one.assistant
            if one.status != "complete":
                told = f"{told.rstrip()}\n\n{_BROKEN_OFF}"
            budget_tokens -= estimate_tokens(one.user) + estimate_tokens(told)
            if budget_tokens < 0:
                break
            shown.append((Turn("user", one.user), Turn("assistant", told)))
        left_out = len(rounds) - len(shown)
        return [turn for pair in reversed(shown) for turn in pair], left_out
