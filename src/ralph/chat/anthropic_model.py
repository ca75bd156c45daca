"""Chat over `/v1/messages`: Anthropic's own dialect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from ralph.chat.model import ToolSpec, Turn
from ralph.chat.prices import Price, list_price
from ralph.chat.served import MAX_TOKENS, Access, ServedModel
from ralph.chat.streaming import Failed, Gathered

ANTHROPIC_URL = "https://api.anthropic.com"
_VERSION = {"anthropic-version": "2023-06-01"}
_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_BEFORE = "[what was said before is left out]"


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class _Message(msgspec.Struct):
    model: str = ""
    usage: _Usage | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    # A whole message, where the answer does not come as a stream.
    content: list[_Block] = []
    stop_reason: str | None = None
    model: str = ""


class AnthropicDialect:
    """How Anthropic's models are asked, and how their answers are read."""

    path = "/v1/messages"
    takes_tools = True

    def __init__(self, model: str, *, max_tokens: int) -> None:
        self.model = model
        self._max_tokens = max_tokens

    def body(self, messages: Sequence[Turn], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The request for an answer to these turns."""
        system = "\n\n".join(t.text for t in messages if t.role == "system" and t.text.strip())
        return {
            "model": self.model,
            "max_tokens": self._max_tokens,
            "stream": True,
            **({"system": system} if system else {}),
            "messages": _messages(messages),
            **({"tools": [_tool(tool) for tool in tools]} if tools else {}),
        }

    def learn(self, complaint: str) -> bool:
        """There is one server that speaks it, and it is asked as it wants to be."""
        return False

    def read(self, data: bytes, into: Gathered) -> None:
        """One event of an answer, or a whole one; MsgspecError or Failed when it is none."""
        event = msgspec.json.decode(data, type=_Event)
        match event.type:
            case "error":
                raise Failed(data)
            case "message_start" if event.message is not None:
                into.model = event.message.model
                _count(event.message.usage, into)
            case "content_block_start" if event.content_block is not None:
                _begin(event.index, event.content_block, into)
            case "content_block_delta" if event.delta is not None:
                into.say(event.delta.text)
                if event.delta.type == "input_json_delta":
                    into.call(event.index, "", "", event.delta.partial_json)
            case "message_delta":
                _count(event.usage, into)
                if event.delta is not None:
                    _stop(event.delta.stop_reason, into)
            case "message_stop":
                into.over = True
            case "message":
                into.model = event.model
                for place, block in enumerate(event.content):
                    _begin(place, block, into)
                _count(event.usage, into)
                _stop(event.stop_reason, into)
            case _:
                pass  # a ping, or what a later version tells


def anthropic_model(
    model: str,
    *,
    url: str | None = None,
    access: Access | None = None,
    price: Price | None = None,
    max_tokens: int = MAX_TOKENS,
) -> ServedModel:
    """A model of Anthropic's, over its own dialect; by its base URL, with or without `/v1`."""
    access = access or Access()
    base = (url or ANTHROPIC_URL).rstrip("/").removesuffix("/v1")
    is_anthropic = base == ANTHROPIC_URL
    return ServedModel(
        f"anthropic:{model}",
        AnthropicDialect(model, max_tokens=max_tokens),
        access.wire(
            base,
            name="Anthropic" if is_anthropic else "the model's server",
            headers={**_VERSION, **({"x-api-key": access.key} if access.key else {})},
        ),
        access=access,
        price=price or (list_price("anthropic", model) if is_anthropic else None),
        missing=f"Check {access.role}_model and {access.role}_base_url.",
        needs_key=is_anthropic,
    )


def _begin(place: int | None, block: _Block, into: Gathered) -> None:
    if block.type == "text":
        into.say(block.text)
    elif block.type == "tool_use":
        given = msgspec.json.encode(block.input).decode() if block.input else ""
        into.call(place, block.id, block.name, given)


def _stop(reason: str | None, into: Gathered) -> None:
    if reason:
        into.stop = _STOPS.get(reason, reason)


def _count(usage: _Usage | None, into: Gathered) -> None:
    if usage is None:
        return
    if usage.input_tokens is not None:
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        into.tokens_in = usage.input_tokens + cached
    if usage.output_tokens is not None:
        into.tokens_out = usage.output_tokens


def _messages(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """The turns as it wants them: user and assistant by turns, user first, nothing empty."""
    told = [(_side(t), list(_blocks(t))) for t in turns if t.role != "system"]
    if told and told[0][0] == "assistant":
        told.insert(0, ("user", [{"type": "text", "text": _BEFORE}]))
    by_side = groupby((one for one in told if one[1]), key=lambda one: one[0])
    return [
        {"role": s, "content": [b for _, blocks in same for b in blocks]} for s, same in by_side
    ]


def _side(turn: Turn) -> str:
    return "assistant" if turn.role == "assistant" else "user"


def _blocks(turn: Turn) -> Iterator[dict[str, Any]]:
    if turn.role == "tool":
        yield {
            "type": "tool_result",
            "tool_use_id": turn.call_id,
            "content": turn.text,
            **({"is_error": True} if turn.failed else {}),
        }
        return
    if turn.text.strip():
        # It refuses white space at the end of its own last words.
        text = turn.text.rstrip() if turn.role == "assistant" else turn.text
        yield {"type": "text", "text": text}
    for call in turn.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    }
