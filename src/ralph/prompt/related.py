"""The section "Related Past Conversations": what memory holds on a question, for a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ralph.kinds.conversation import Conversation, Exchange
from ralph.prompt.template import render
from ralph.text.estimate import estimate_tokens
from ralph.text.marks import mark
from ralph.text.sanitise import plain_date, plain_id, sanitised_line

SIDE_CHARS = 200
_TITLE_CHARS = 200
_SUMMARY_CHARS = 800
_EXCHANGES = "#### Relevant Exchanges:"


class _FoundExchange(Protocol):
    @property
    def exchange(self) -> Exchange: ...
    @property
    def similarity(self) -> float: ...


class _FoundConversation(Protocol):
    @property
    def conversation(self) -> Conversation: ...
    @property
    def similarity(self) -> float: ...
    @property
    def summary(self) -> str: ...
    @property
    def exchange_count(self) -> int: ...
    @property
    def exchanges(self) -> Sequence[_FoundExchange]: ...


class Found(Protocol):
    """What memory found on a question: conversations, and perhaps a line about the topic."""

    @property
    def conversations(self) -> Sequence[_FoundConversation]:
        """The best first."""
        ...

    @property
    def line(self) -> str | None:
        """That the topic comes up again and again."""
        ...


def related_text(found: Found, *, budget_tokens: int, tools: bool = True) -> str:
    """The section, fenced and within the budget; empty where nothing was found or fits.

    `tools` says whether the model can ask for more with `fetch_conversation_details`.
    """

    def whole(body: str) -> str:
        line = f"{sanitised_line(found.line)}\n\n" if found.line else ""
        tool = render("related_tool") if tools else ""
        return render("related", tool=tool, memory=mark(line + body))

    body = _fitted(found, lambda body: estimate_tokens(whole(body)) <= budget_tokens)
    return whole(body) if body else ""


def chat_system(*, today: str, project: str, memory: bool) -> str:
    """What a chat's model is told before everything else; of memory only where there is one."""
    place = f" The conversation is held in the project {sanitised_line(project)}."
    return render(
        "chat_system",
        today=today,
        project=place if project else "",
        memory=render("related_use") if memory else "",
    )


def _fitted(found: Found, fits: Callable[[str], bool]) -> str:
    """As many as fit: conversations before exchanges, of both the most similar first."""
    body = ""
    for one in found.conversations:
        longer = "\n\n".join(filter(None, (body, _conversation(one))))
        if not fits(longer):
            return body
        body = longer
    heading = _EXCHANGES
    exchanges = [some for one in found.conversations for some in one.exchanges]
    for some in sorted(exchanges, key=lambda one: -one.similarity):
        longer = "\n\n".join(filter(None, (body, heading, _exchange(some))))
        if not fits(longer):
            break
        body, heading = longer, ""
    return body


def _conversation(one: _FoundConversation) -> str:
    held = one.conversation
    title = _cut(held.title, _TITLE_CHARS).replace('"', "'") or "(no title)"
    day = plain_date(held.created) or "unknown"
    return "\n".join(
        [
            f'### Conversation: "{title}" '
            f"(ID: {plain_id(held.id)}, Date: {day}, Similarity: {one.similarity:.2f})",
            f"Summary: {_cut(one.summary, _SUMMARY_CHARS) or '(none yet)'}",
            f"Exchanges: {one.exchange_count}",
        ]
    )


def _exchange(one: _FoundExchange) -> str:
    said = one.exchange
    return "\n".join(
        [
            f"**Exchange ID: {plain_id(said.id)}** "
            f"(Conversation: {plain_id(said.conversation)}, Similarity: {one.similarity:.2f})",
            f"- User: {_cut(said.user, SIDE_CHARS)}",
            f"- Assistant: {_cut(said.assistant, SIDE_CHARS)}",
        ]
    )


def _cut(text: str, max_chars: int) -> str:
    """One line with every attempt to instruct broken, cut as the section's readers know it."""
    plain = sanitised_line(text)
    return plain if len(plain) <= max_chars else f"{plain[:max_chars]}..."
