"""The port to a language model: the turns of a conversation in, one answer out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ralph.errors import BadInput

Role = Literal["system", "user", "assistant", "tool"]
OnText = Callable[[str], None]


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool on offer; its parameters are a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model wants a tool to be used.

    Arguments that are no JSON object are kept in `unread` as they came, for the model to be told.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    unread: str = ""


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a conversation; a tool's answers the call that `call_id` names."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    failed: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. What nobody told (tokens, cost) is None, not nothing.

    `stop` is why it ended: end, tools, length, refused, or the server's own word.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    model: str
    stop: str = "end"

    def turn(self) -> Turn:
        """The answer as the next turn of its conversation."""
        return Turn("assistant", self.text, self.calls)


class Model(Protocol):
    """A language model; nothing is loaded or reached before its first question."""

    @property
    def name(self) -> str:
        """As the settings name it."""
        ...

    @property
    def takes_tools(self) -> bool:
        """Whether tools that are offered reach it; it may turn out only with an answer."""
        ...

    @property
    def costs(self) -> str:
        """What it costs, or why nobody knows, in a few words."""
        ...

    def answer(
        self,
        messages: Sequence[Turn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> Said:
        """The answer to the last turn, its text given to `on_text` as it comes; or ModelOff."""
        ...


def check(messages: Sequence[Turn]) -> None:
    """Refuse a conversation that leaves nothing to answer."""
    if not messages or messages[-1].role not in ("user", "tool"):
        raise BadInput("there is nothing to answer: the last turn must be a user's or a tool's")


def tool_call(id: str, name: str, arguments: str) -> ToolCall:
    """A call from what a model sent, whatever it sent."""
    try:
        # No arguments at all are sent as an empty text.
        given = msgspec.json.decode(arguments.strip() or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return ToolCall(id or new_id(), name, unread=arguments)
    return ToolCall(id or new_id(), name, given)


def new_id() -> str:
    """An id for a call that came without one."""
    return f"call_{uuid.uuid4().hex[:16]}"
