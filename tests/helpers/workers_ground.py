"""What the tests of the workers share: conversations, a clock that is set, and a model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chat_server import MODEL, ChatServer, openai_model
from remembering import ToyEmbedder, open_toy

from ralph.chat.model import ChatModel, ModelAccess, Price
from ralph.chat.workers import Workers, WorkerStatus
from ralph.memory.ralph import Ralph, open_ralph
from ralph.records import Record
from ralph.records.conversation import SUMMARY, Conversation, Exchange, Summary, content_of

ASKED = "How do I fix the socket timeout of service {n}?"
ANSWERED = "Raise read_timeout to {n} seconds in config.toml; the tests pass now."
GOOD = "The user asked how to fix the socket timeout; read_timeout was raised in config.toml."
# One answer of the loopback server (120 tokens in, 30 out) then costs 15 cents.
PRICE = Price(1000.0, 1000.0)


class Clock:
    """A time that passes only when somebody says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def fill(root: Path, counts: list[int], **settings: Any) -> list[str]:
    """Conversations with so many exchanges, each newer than the one before; their ids."""
    with open_toy(root, **settings) as ralph:
        return [add(ralph, place, count) for place, count in enumerate(counts)]


def add(ralph: Ralph, place: int, count: int, *, first: int = 0) -> str:
    """Exchanges of one conversation, on a day of its own."""
    conversation = Conversation(id=f"c{place:015x}", title=f"Topic {place}")
    exchanges = [
        Exchange(
            id=f"{place:08x}{n:08x}",
            conversation=conversation.id,
            user=ASKED.format(n=n),
            assistant=ANSWERED.format(n=n),
            completed=f"2026-03-{place + 1:02}T10:{n:02}:00Z",
        )
        for n in range(first, first + count)
    ]
    ralph.conversations.add(conversation, exchanges)
    return conversation.id


def opener(root: Path, embedder: ToyEmbedder | None = None, **settings: Any) -> Callable[[], Ralph]:
    """Opens the project as often as it is asked, each time with the same toy."""
    toy = embedder or ToyEmbedder()
    return lambda: open_toy(root, toy, **settings)


def model(server: ChatServer, *, price: Price | None = PRICE) -> ChatModel:
    """The model of a loopback server; a busy one is asked again without a pause."""
    access = ModelAccess(role="summary", sleep=lambda pause_s: None)
    return openai_model(MODEL, url=server.url, access=access, price=price)


def written(root: Path) -> list[Summary]:
    """Every summary in the journal, in the order they were kept."""
    return [content_of(one) for one in records(root) if one.kind == SUMMARY]


def records(root: Path) -> list[Record]:
    """Every record in the journal, one that was written twice also twice."""
    with open_ralph(root) as ralph:
        return ralph.conversations.stream.standing()


def by_name(statuses: list[WorkerStatus]) -> dict[str, WorkerStatus]:
    """The statuses by their workers' names."""
    return {one.name: one for one in statuses}


def status(workers: Workers, name: str) -> WorkerStatus:
    """How one worker stands."""
    return by_name(workers.statuses())[name]


def until(true: Callable[[], object], what: str) -> None:
    """Wait until something has come true; a machine that is busy gets its time."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.01)
