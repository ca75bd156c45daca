"""The port to a language model, what its answers cost, and which one the settings choose.

`ChatModel` has three kinds of implementations: servers (`providers`), the `claude` command
(`claude_process`), and `EchoModel` here, which needs no model at all. Nothing is loaded or reached
before the first question.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ralph.config import Settings
from ralph.errors import BadInput, BadSetting
from ralph.wire import usable_url

TurnRole = Literal["system", "user", "assistant", "tool"]
ModelRole = Literal["chat", "summary"]
# A server may answer later; a setting must be changed by a person; another prompt may work now.
ModelFault = Literal["server", "setting", "prompt"]
OnText = Callable[[str], None]

_SERVED = ("openai", "anthropic", "ollama")
_NO_MODEL = ("", "none", "off")
_EXAMPLES = (
    ("openai:gpt-4o-mini", "OpenAI, or any server that speaks its protocol (chat_base_url)"),
    ("anthropic:claude-haiku-4-5", "Anthropic"),
    ("ollama:llama3.2", "a model on this machine; no key"),
    ("claude", "Claude Code, as installed and logged in here; no key"),
)
# A dated or floating version of a model costs what the model costs.
_VERSION = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
# USD per million tokens in and out: list prices at the end of 2025. Discounts (cached prompts,
# batches) are not counted, so a cost is at most too high. A model that is not listed has no price,
# rather than the price of one with a similar name.
_LIST_PRICES = {
    "openai": """
        gpt-5.1 1.25 10, gpt-5 1.25 10, gpt-5-mini 0.25 2, gpt-5-nano 0.05 0.4,
        gpt-4.1 2 8, gpt-4.1-mini 0.4 1.6, gpt-4.1-nano 0.1 0.4, gpt-4o 2.5 10,
        gpt-4o-mini 0.15 0.6, o3 2 8, o3-mini 1.1 4.4, o4-mini 1.1 4.4""",
    "anthropic": """
        claude-opus-4-5 5 25, claude-opus-4-1 15 75, claude-opus-4-0 15 75, claude-opus-4 15 75,
        claude-sonnet-4-5 3 15, claude-sonnet-4-0 3 15, claude-sonnet-4 3 15,
        claude-haiku-4-5 1 5, claude-3-7-sonnet 3 15, claude-3-5-sonnet 3 15,
        claude-3-5-haiku 0.8 4, claude-3-haiku 0.25 1.25""",
}
# The heading under which memory adds what it found to a prompt.
_FOUND = re.compile(r"^(?P<marks>#*) *Related Past Conversations\b", re.MULTILINE)
_ORDER = re.compile(r"!(\w+)\s*(.*)", re.DOTALL)


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool on offer; its parameters are a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model wants to use a tool. Arguments that are not a JSON object are in `unread`."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    unread: str = ""


class ChatTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a conversation. A tool's turn answers the call that `call_id` names."""

    role: TurnRole
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    failed: bool = False


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Tokens and cost are None when the model does not report them.

    `stop` is why it ended: end, tools, length, refused, or the server's own word.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    model: str
    stop: str = "end"

    def turn(self) -> ChatTurn:
        """The answer as the next turn of its conversation."""
        return ChatTurn("assistant", self.text, self.calls)


class ChatModel(Protocol):
    """A language model: the turns of a conversation in, one answer out."""

    @property
    def name(self) -> str:
        """The name in the settings."""
        ...

    @property
    def takes_tools(self) -> bool:
        """Whether it can use tools; a server may only show that with its first answer."""
        ...

    @property
    def costs(self) -> str:
        """Its price in a few words, or why the price is unknown."""
        ...

    def answer(
        self,
        messages: Sequence[ChatTurn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> ModelAnswer:
        """Answer the last turn, or raise ModelOff. Text goes to `on_text` as it arrives."""
        ...


class ModelAccess(msgspec.Struct, frozen=True):
    """How to reach a model: a key, the variable it comes from, and the role it is used for."""

    key: str | None = None
    variable: str = "RALPH_CHAT_API_KEY"
    role: ModelRole = "chat"
    sleep: Callable[[float], None] = time.sleep

    def __repr__(self) -> str:
        return f"ModelAccess({self.variable} {'set' if self.key else 'not set'})"


def check_turns(messages: Sequence[ChatTurn]) -> None:
    """Refuse a conversation that leaves nothing to answer."""
    if not messages or messages[-1].role not in ("user", "tool"):
        raise BadInput("there is nothing to answer: the last turn must be a user's or a tool's")


def tool_call(id: str, name: str, arguments: str) -> ToolCall:
    """A call from the text that a model sent as its arguments."""
    identity = id or f"call_{uuid.uuid4().hex[:16]}"
    try:
        # No arguments at all are sent as an empty text.
        decoded = msgspec.json.decode(arguments.strip() or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return ToolCall(identity, name, unread=arguments)
    return ToolCall(identity, name, decoded)


# -- prices


class Price(msgspec.Struct, frozen=True):
    """USD per million tokens."""

    in_usd: float
    out_usd: float

    def cost_usd(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """The cost of so many tokens; None when a count is unknown."""
        if tokens_in is None or tokens_out is None:
            return None
        return (tokens_in * self.in_usd + tokens_out * self.out_usd) / 1_000_000

    def __str__(self) -> str:
        return f"${self.in_usd:g} in, ${self.out_usd:g} out per million tokens"


FREE = Price(0.0, 0.0)


def list_price(maker: str, model: str) -> Price | None:
    """The maker's list price of a model; None when it is not in our table."""
    name = _VERSION.sub("", model)
    rows = (row.split() for row in _LIST_PRICES.get(maker, "").split(",") if row)
    return next((Price(float(row[1]), float(row[2])) for row in rows if row[0] == name), None)


# -- without a model


class EchoModel:
    """Repeats what memory found, to try memory without a model and in tests.

    Asked `!TOOL {"argument": "value"}`, it calls that tool if offered, and repeats its answer.
    """

    name = "echo"
    takes_tools = True
    costs = "free"

    def answer(
        self,
        messages: Sequence[ChatTurn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> ModelAnswer:
        """What memory found and what the user said; or the call that was ordered, or its answer."""
        check_turns(messages)
        last = messages[-1]
        order = _ORDER.fullmatch(_question(last)) if last.role == "user" else None
        calls: tuple[ToolCall, ...] = ()
        if order is not None and order[1] in {tool.name for tool in tools}:
            calls = (tool_call("", order[1], order[2]),)
        text = "" if calls else _echo(messages)
        if on_text is not None:
            for line in text.splitlines(keepends=True):
                on_text(line)
        return ModelAnswer(
            text=text,
            calls=calls,
            tokens_in=sum(len(turn.text.split()) for turn in messages),
            tokens_out=len(text.split()),
            cost_usd=0.0,
            model=self.name,
            stop="tools" if calls else "end",
        )


def _echo(messages: Sequence[ChatTurn]) -> str:
    last = messages[-1]
    if last.role == "tool":
        return f"The tool {'failed' if last.failed else 'answered'}:\n{last.text}"
    # Its own earlier answers are left out: they repeat what memory found then.
    shown = [turn.text for turn in messages[:-1] if turn.role == "system"] + [last.text]
    found = "\n\n".join(filter(None, map(_found_section, shown)))
    memory = f"Memory found:\n\n{found}" if found else "Memory found nothing."
    return f"{memory}\n\nYou said: {_question(last)}"


def _question(turn: ChatTurn) -> str:
    """The user's own words, without what memory added after them."""
    heading = _FOUND.search(turn.text)
    return (turn.text[: heading.start()] if heading else turn.text).strip()


def _found_section(text: str) -> str:
    """What memory added to this text: from its heading to the next one of that level."""
    heading = _FOUND.search(text)
    if heading is None:
        return ""
    level = len(heading["marks"])
    rest = text[heading.end() :]
    end = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE) if level else None
    return (heading[0] + (rest[: end.start()] if end else rest)).strip()


# -- from settings to a model


def choose_model(settings: Settings) -> ChatModel | None:
    """The model of the chat; None when none is set."""
    return _make_model(settings, "chat", settings.chat_model)


def choose_summarizer(settings: Settings) -> ChatModel | None:
    """The model that writes summaries; None when they are extracts."""
    return _make_model(settings, "summary", settings.summary_model)


def how_to_configure() -> str:
    """What to do when no model is set, for people."""
    width = max(len(name) for name, _ in _EXAMPLES)
    return "\n".join(
        [
            "No language model is set. Choose one:",
            *(f"  ralph config --user chat_model {n:<{width}}  {what}" for n, what in _EXAMPLES),
            "A key goes into RALPH_CHAT_API_KEY, or: ralph config --user chat_api_key KEY",
            "Another server: ralph config --user chat_base_url http://127.0.0.1:8080/v1",
            "Or try memory without a model: ralph chat --echo",
        ]
    )


def _make_model(settings: Settings, role: ModelRole, name: str | None) -> ChatModel | None:
    if name is None or name.strip().lower() in _NO_MODEL:
        return None
    kind, colon, model = (part.strip() for part in name.partition(":"))
    kind = kind.lower()
    if kind in _SERVED and model:
        from ralph.chat.providers import served_model

        url, access = _access(settings, role, kind)
        return served_model(
            kind, model, url=url, access=access, max_tokens=settings.chat_max_tokens
        )
    if kind == "claude" and (model or not colon):
        from ralph.chat.claude_process import ClaudeModel

        return ClaudeModel(model or None, role=role, also=settings.agent_env)
    if kind == "echo" and role == "chat":
        return EchoModel()
    examples = ", ".join(example for example, _ in _EXAMPLES)
    raise BadSetting(
        f"{name!r} names no model", where=f"{role}_model", todo=f"Write one like {examples}."
    )


def _access(settings: Settings, role: ModelRole, kind: str) -> tuple[str | None, ModelAccess]:
    """The URL of a model's server, and its key.

    The chat's URL and key are used for summaries only where both are for the same kind of server,
    because a key must never be sent to anyone else.
    """
    owner = role
    if role == "summary" and not (settings.summary_base_url or settings.summary_api_key):
        chat_kind = (settings.chat_model or kind).partition(":")[0].strip().lower()
        owner = "chat" if chat_kind == kind else role
    url: str | None = getattr(settings, f"{owner}_base_url") or None
    key: str | None = (getattr(settings, f"{owner}_api_key") or "").strip() or None
    variable = f"RALPH_{owner.upper()}_API_KEY"
    if url is not None and usable_url(url) is None:
        raise BadSetting(
            "not a URL", where=f"{owner}_base_url", todo="Write one like http://127.0.0.1:8080/v1"
        )
    if kind == "openai" and key is None and url is None and settings.openai_api_key:
        # The key for embeddings is for the same server.
        key, variable = settings.openai_api_key.strip(), "RALPH_OPENAI_API_KEY"
    if key is not None and not (key.isascii() and key.isprintable()):
        raise BadSetting(
            "the key contains characters that no key has", where=variable, todo="Set it again."
        )
    if url is None and kind == "ollama":
        url = settings.ollama_url
    return url, ModelAccess(key, variable, role)
