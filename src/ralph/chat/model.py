"""The port to a language model: the turns of a conversation in, one answer out."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from ralph.chat.providers import ModelAccess
from ralph.config import Settings
from ralph.errors import BadInput, BadSetting

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


class ChatTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a conversation; a tool's answers the call that `call_id` names."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    failed: bool = False


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
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

    def turn(self) -> ChatTurn:
        """The answer as the next turn of its conversation."""
        return ChatTurn("assistant", self.text, self.calls)


class ChatModel(Protocol):
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
        messages: Sequence[ChatTurn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> ModelAnswer:
        """The answer to the last turn, its text given to `on_text` as it comes; or ModelOff."""
        ...


def check_turns(messages: Sequence[ChatTurn]) -> None:
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


# -- What an answer costs, by a table of well-known models at their makers' own list prices.
#
# Discounts (cached prompts, batches) are not counted, so a cost is at most too high. A model that
# is not in the table has no price, rather than the price of one with a similar name.


_MILLION = 1_000_000
# A dated or floating version of a model costs what the model costs.
_VERSION = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")

# USD per million tokens, in and out, as listed at the end of 2025.
_LISTED = """
openai gpt-5.1 1.25 10
openai gpt-5 1.25 10
openai gpt-5-mini 0.25 2
openai gpt-5-nano 0.05 0.4
openai gpt-4.1 2 8
openai gpt-4.1-mini 0.4 1.6
openai gpt-4.1-nano 0.1 0.4
openai gpt-4o 2.5 10
openai gpt-4o-mini 0.15 0.6
openai o3 2 8
openai o3-mini 1.1 4.4
openai o4-mini 1.1 4.4
anthropic claude-opus-4-5 5 25
anthropic claude-opus-4-1 15 75
anthropic claude-opus-4-0 15 75
anthropic claude-opus-4 15 75
anthropic claude-sonnet-4-5 3 15
anthropic claude-sonnet-4-0 3 15
anthropic claude-sonnet-4 3 15
anthropic claude-haiku-4-5 1 5
anthropic claude-3-7-sonnet 3 15
anthropic claude-3-5-sonnet 3 15
anthropic claude-3-5-haiku 0.8 4
anthropic claude-3-haiku 0.25 1.25
"""


class Price(msgspec.Struct, frozen=True):
    """USD per million tokens."""

    in_usd: float
    out_usd: float

    def cost_usd(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """What so many tokens cost; None when it was not told how many there were."""
        if tokens_in is None or tokens_out is None:
            return None
        return (tokens_in * self.in_usd + tokens_out * self.out_usd) / _MILLION

    def __str__(self) -> str:
        return f"${self.in_usd:g} in, ${self.out_usd:g} out per million tokens"


FREE = Price(0.0, 0.0)


def list_price(maker: str, model: str) -> Price | None:
    """The maker's own price of a model; None when we do not know it."""
    return _table().get((maker, _VERSION.sub("", model)))


def _table() -> dict[tuple[str, str], Price]:
    rows = (line.split() for line in _LISTED.strip().splitlines())
    return {(maker, model): Price(float(i), float(o)) for maker, model, i, o in rows}


# -- A model that is none: it repeats what memory found, to try memory without a model and in tests.
#
# Asked `!TOOL {"argument": "value"}`, it calls that tool if it is on offer, and repeats its answer.


# The heading under which memory speaks, wherever it stands.
_FOUND = re.compile(r"^(?P<marks>#*) *Related Past Conversations\b", re.MULTILINE)
_ORDER = re.compile(r"!(\w+)\s*(.*)", re.DOTALL)


class EchoModel:
    """Says what it was shown; the same every time, at once, for nothing."""

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
        """What memory found, and what was said; or the call that was ordered, or its answer."""
        check_turns(messages)
        last = messages[-1]
        calls = _ordered(last, tools)
        text = "" if calls else _repeated(messages)
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


def _ordered(last: ChatTurn, tools: Sequence[ToolSpec]) -> tuple[ToolCall, ...]:
    order = _ORDER.fullmatch(_asked(last)) if last.role == "user" else None
    if order is None or order[1] not in {tool.name for tool in tools}:
        return ()
    return (tool_call("", order[1], order[2]),)


def _repeated(messages: Sequence[ChatTurn]) -> str:
    last = messages[-1]
    if last.role == "tool":
        return f"The tool {'failed' if last.failed else 'answered'}:\n{last.text}"
    # What it repeated before is said, not found.
    shown = [turn for turn in messages[:-1] if turn.role == "system"] + [last]
    found = "\n\n".join(filter(None, (_section(turn.text) for turn in shown)))
    told = f"Memory found:\n\n{found}" if found else "Memory found nothing."
    return f"{told}\n\nYou said: {_asked(last)}"


def _asked(turn: ChatTurn) -> str:
    """What the person said, without what memory said after it."""
    heading = _FOUND.search(turn.text)
    return (turn.text[: heading.start()] if heading else turn.text).strip()


def _section(text: str) -> str:
    """What memory found in this turn: from its heading to the next one like it."""
    begun = _FOUND.search(text)
    if begun is None:
        return ""
    rest = text[begun.start() :]
    marks = begun["marks"]
    ends = re.search(rf"^#{{1,{len(marks)}}} ", rest[begun.end() - begun.start() :], re.MULTILINE)
    if not marks or ends is None:
        return rest.strip()
    return rest[: begun.end() - begun.start() + ends.start()].strip()


# -- From settings to the language model they name; nothing is reached before its first question.


_EXAMPLES = (
    ("openai:gpt-4o-mini", "OpenAI, or any server that speaks its protocol (chat_base_url)"),
    ("anthropic:claude-haiku-4-5", "Anthropic"),
    ("ollama:llama3.2", "a model on this machine; no key"),
    ("claude", "Claude Code, as it is installed and logged in here; no key"),
)
_SERVED = ("openai", "anthropic", "ollama")
_NO_MODEL = ("", "none", "off")

_Role = Literal["chat", "summary"]


class _ModelChoice(msgspec.Struct, frozen=True):
    """The settings of one role."""

    role: _Role
    kind: str
    model: str
    url: str | None
    access: ModelAccess
    price: Price | None


def choose_model(settings: Settings) -> ChatModel | None:
    """The model of the chat; None where none is set."""
    return _made(settings, "chat", settings.chat_model)


def choose_summarizer(settings: Settings) -> ChatModel | None:
    """The model that writes summaries; None where they are to be extracts."""
    return _made(settings, "summary", settings.summary_model)


def how_to_configure() -> str:
    """What to do when no model is set, for people."""
    width = max(len(name) for name, _ in _EXAMPLES)
    lines = [
        f"  ralph config --user chat_model {name:<{width}}  {told}" for name, told in _EXAMPLES
    ]
    return "\n".join(
        [
            "No language model is set. Choose one:",
            *lines,
            "A key goes into RALPH_CHAT_API_KEY, or: ralph config --user chat_api_key KEY",
            "Another server: ralph config --user chat_base_url http://127.0.0.1:8080/v1",
            "Or try memory without a model: ralph chat --echo",
        ]
    )


def _made(settings: Settings, role: _Role, name: str | None) -> ChatModel | None:
    if name is None or name.strip().lower() in _NO_MODEL:
        return None
    kind, model = _read_name(role, name)
    if kind == "echo":
        return EchoModel()
    if kind == "claude":
        from ralph.chat.claude_process import ClaudeModel

        return ClaudeModel(
            model or None, role=role, also=settings.agent_env, grace_s=settings.agent_grace_s
        )
    return _served(settings, _chosen(settings, role, kind, model))


def _served(settings: Settings, chosen: _ModelChoice) -> ChatModel:
    # Not in a table of functions: each loads its own module only.
    if chosen.kind == "anthropic":
        from ralph.chat.providers import anthropic_model as make
    elif chosen.kind == "ollama":
        from ralph.chat.providers import ollama_model as make
    else:
        from ralph.chat.providers import openai_model as make
    return make(
        chosen.model,
        url=chosen.url,
        access=chosen.access,
        price=chosen.price,
        max_tokens=settings.chat_max_tokens,
    )


def _read_name(role: _Role, name: str) -> tuple[str, str]:
    kind, colon, model = (part.strip() for part in name.partition(":"))
    kind = kind.lower()
    alone = kind == "claude" or (kind == "echo" and role == "chat")
    if (kind in _SERVED and model) or (alone and (model or not colon)):
        return kind, model
    examples = ", ".join(example for example, _ in _EXAMPLES)
    raise BadSetting(
        f"{name!r} names no model",
        where=f"{role}_model",
        todo=f"Write one like {examples}.",
    )


def _chosen(settings: Settings, role: _Role, kind: str, model: str) -> _ModelChoice:
    owner = _owner(settings, role, kind)
    url: str | None = getattr(settings, f"{owner}_base_url") or None
    key: str | None = (getattr(settings, f"{owner}_api_key") or "").strip() or None
    variable = f"RALPH_{owner.upper()}_API_KEY"
    if url is not None:
        _check_url(f"{owner}_base_url", url)
    elif kind == "ollama":
        url = settings.ollama_url
    if kind == "openai" and key is None and url is None and settings.openai_api_key:
        # The one for embeddings is for the same server.
        key, variable = settings.openai_api_key.strip(), "RALPH_OPENAI_API_KEY"
    if key is not None and not (key.isascii() and key.isprintable()):
        raise BadSetting(
            "the key holds characters that no key has", where=variable, todo="Set it anew."
        )
    prices = getattr(settings, f"{role}_price_in_usd"), getattr(settings, f"{role}_price_out_usd")
    price = None if prices == (None, None) else Price(prices[0] or 0.0, prices[1] or 0.0)
    return _ModelChoice(role, kind, model, url, ModelAccess(key, variable, role), price)


def _owner(settings: Settings, role: _Role, kind: str) -> _Role:
    """Whose URL and key count: the chat's serve for summaries only where they are for the same
    kind of server, because a key must never be sent to anybody else."""
    if role == "chat" or settings.summary_base_url or settings.summary_api_key:
        return role
    named = (settings.chat_model or kind).partition(":")[0].strip().lower()
    return "chat" if named == kind else "summary"


def _check_url(key: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise BadSetting(
            "this is no URL", where=key, todo="Write one like http://127.0.0.1:8080/v1"
        )
