"""Chat over `/v1/chat/completions`: OpenAI, Ollama, and every server that speaks this dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ralph.chat.model import ToolCall, ToolSpec, Turn
from ralph.chat.prices import FREE, Price, list_price
from ralph.chat.served import MAX_TOKENS, Access, ServedModel
from ralph.chat.streaming import Failed, Gathered
from ralph.wire import versioned

OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434/v1"
_STOPS = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refused",
}
_DONE = b"[DONE]"
# The same limit, as OpenAI calls it now and as it did; each is unknown to somebody.
_LIMITS = ("max_completion_tokens", "max_tokens")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None  # where the answer comes in one piece
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw = msgspec.Raw()


class OpenAIDialect:
    """How OpenAI and its many like are asked, and how their answers are read."""

    path = "/chat/completions"

    def __init__(self, model: str, *, max_tokens: int, of_openai: bool) -> None:
        self.model = model
        self._max_tokens = max_tokens
        # Which to try, best first; with none left the server's own limit holds.
        self._limits = list(_LIMITS if of_openai else reversed(_LIMITS))
        self._left_out: set[str] = set()

    @property
    def takes_tools(self) -> bool:
        """Whether it has tools in its requests, as far as is known."""
        return "tools" not in self._left_out

    def body(self, messages: Sequence[Turn], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The request for an answer to these turns."""
        asked = {
            "model": self.model,
            "messages": [_message(turn) for turn in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: self._max_tokens for name in self._limits[:1]},
            **({"tools": [_tool(tool) for tool in tools]} if tools else {}),
        }
        return {key: value for key, value in asked.items() if key not in self._left_out}

    def learn(self, complaint: str) -> bool:
        """Whether a refusal tells how to ask this server so that it understands."""
        before = len(self._limits), len(self._left_out)
        if "stream_options" in complaint:
            self._left_out.add("stream_options")
        elif "does not support tools" in complaint:
            self._left_out.add("tools")
        elif any(name in complaint for name in _LIMITS):
            del self._limits[:1]
        return (len(self._limits), len(self._left_out)) != before

    def read(self, data: bytes, into: Gathered) -> None:
        """One event of an answer, or a whole one; MsgspecError or Failed when it is none."""
        if data == _DONE:
            into.over = True
            return
        chunk = msgspec.json.decode(data, type=_Chunk)
        if bytes(chunk.error) not in (b"", b"null"):
            raise Failed(data)
        into.model = chunk.model or into.model
        if chunk.usage is not None:
            into.tokens_in = chunk.usage.prompt_tokens
            into.tokens_out = chunk.usage.completion_tokens
        for choice in (chunk.choices or ())[:1]:
            _read_choice(choice, into)


def openai_model(
    model: str,
    *,
    url: str | None = None,
    access: Access | None = None,
    price: Price | None = None,
    max_tokens: int = MAX_TOKENS,
) -> ServedModel:
    """A model of OpenAI's, or of any server that speaks its dialect; by its base URL."""
    access = access or Access()
    base = versioned((url or OPENAI_URL).rstrip("/").removesuffix(OpenAIDialect.path))
    is_openai = base == OPENAI_URL
    return ServedModel(
        f"openai:{model}",
        OpenAIDialect(model, max_tokens=max_tokens, of_openai=is_openai),
        access.wire(base, name="OpenAI" if is_openai else "the model's server"),
        access=access,
        price=price or (list_price("openai", model) if is_openai else None),
        missing=f"Check {access.role}_model and {access.role}_base_url.",
        needs_key=is_openai,
    )


def ollama_model(
    model: str,
    *,
    url: str | None = None,
    access: Access | None = None,
    price: Price | None = None,
    max_tokens: int = MAX_TOKENS,
) -> ServedModel:
    """A model that an Ollama serves; it costs nothing unless a price is set."""
    access = access or Access()
    return ServedModel(
        f"ollama:{model}",
        OpenAIDialect(model, max_tokens=max_tokens, of_openai=False),
        access.wire(versioned(url or OLLAMA_URL), name="Ollama", todo="Start it: ollama serve"),
        access=access,
        price=price or FREE,
        missing=f"Run: ollama pull {model}",
    )


def _read_choice(choice: _Choice, into: Gathered) -> None:
    delta = choice.delta or choice.message
    if delta is not None:
        into.say(delta.content or "")
        into.say(delta.refusal or "")
        for call in delta.tool_calls or ():
            function = call.function or _Function()
            arguments = function.arguments
            if isinstance(arguments, dict):
                arguments = msgspec.json.encode(arguments).decode()
            into.call(call.index, call.id or "", function.name or "", arguments or "")
        if delta.refusal:
            into.stop = "refused"
    if choice.finish_reason and into.stop != "refused":
        stop = _STOPS.get(choice.finish_reason, choice.finish_reason)
        into.stop = "tools" if stop == "end" and into.calls else stop


def _message(turn: Turn) -> dict[str, Any]:
    if turn.role == "tool":
        return {"role": "tool", "tool_call_id": turn.call_id, "content": turn.text}
    if not turn.calls:
        return {"role": turn.role, "content": turn.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": _arguments(call)},
        }
        for call in turn.calls
    ]
    return {"role": turn.role, "content": turn.text or None, "tool_calls": calls}


def _arguments(call: ToolCall) -> str:
    return call.unread or msgspec.json.encode(call.arguments).decode()


def _tool(tool: ToolSpec) -> dict[str, Any]:
    told = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": told}
