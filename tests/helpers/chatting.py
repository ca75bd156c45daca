"""What the tests of the chat share: a chat on a server's model, and a screen that remembers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from chat_server import MODEL, Asked, ChatServer, openai_model

from ralph.chat import open_memory
from ralph.chat.loop import Chat, ExchangeResult
from ralph.chat.model import ChatModel, ModelAccess, Price, ToolCall
from ralph.doors.cli.commands.slash import run_command
from ralph.memory.conversation_search import Related
from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Exchange

HEADING = "## Related Past Conversations"
QUESTION = "Why does the gateway time out after the deploy?"
SOLUTION = "The connection pool was exhausted; raising it to 50 solved the gateway timeout."


class Shown:
    """A screen that keeps what it was shown, and answers as it was told to."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.found: list[Related] = []
        self.tools: list[tuple[str, bool]] = []
        self.ended: list[ExchangeResult] = []
        self.answers: list[str] = []
        self.notes: list[str] = []
        self.typed: list[str] = []
        self.asked: list[str] = []

    def piece(self, text: str) -> None:
        self.pieces.append(text)

    def recalled(self, found: Related) -> None:
        self.found.append(found)

    def tool(self, call: ToolCall, failed: bool) -> None:
        self.tools.append((call.name, failed))

    def done(self, done: ExchangeResult) -> None:
        self.ended.append(done)

    def lines(self, lines: Sequence[str]) -> None:
        self.answers += lines

    def note(self, text: str) -> None:
        self.notes.append(text)

    def confirm(self, question: str) -> str:
        self.asked.append(question)
        return self.typed.pop(0) if self.typed else ""


class Talk:
    """A chat, its screen, and the server behind its model."""

    def __init__(self, chat: Chat, screen: Shown) -> None:
        self.chat = chat
        self.screen = screen

    def ask(self, prompt: str, **more: Any) -> ExchangeResult:
        return self.chat.ask(prompt, **more)

    def say(self, line: str) -> list[str]:
        """What a command answers."""
        self.screen.answers.clear()
        run_command(self.chat, line)
        return list(self.screen.answers)

    def kept(self) -> list[Exchange]:
        """What the journal has of this conversation."""
        return self.chat.memory.conversations.exchanges(self.chat.session.id)


@contextlib.contextmanager
def talking(
    project: Path,
    server: ChatServer | None = None,
    *,
    model: ChatModel | None = None,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> Iterator[Talk]:
    """A chat in a project, with the server's model or another."""
    if model is None:
        assert server is not None
        access = ModelAccess(sleep=lambda seconds: None)
        model = openai_model(MODEL, url=server.url, price=Price(1.0, 2.0), access=access)
    screen = Shown()
    chat = Chat(lambda: open_memory(project, **(settings or {})), model, screen, **more)
    try:
        yield Talk(chat, screen)
    finally:
        chat.memory.close()


def held_before(project: Path, *, user: str = QUESTION, assistant: str = SOLUTION) -> str:
    """An exchange of an earlier conversation; gives its id."""
    with open_ralph(project) as ralph:
        talk = ralph.conversations
        kept = talk.exchange(talk.start("Debug timeouts"), user=user, assistant=assistant)
        talk.sync()
    return kept.id


def sent(asked: Asked) -> str:
    """All that the model was shown in one request."""
    return "\n".join(str(message.get("content")) for message in asked.body["messages"])
