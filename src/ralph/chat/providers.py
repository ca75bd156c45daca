"""Language models over HTTP: two dialects, one way to stream, one mapping of errors.

`OpenAIDialect` speaks `/v1/chat/completions` (OpenAI, Ollama, and most other servers),
`AnthropicDialect` speaks `/v1/messages`. Both read a streamed answer into an `AnswerStream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from ralph.chat import model as models
from ralph.chat.model import FREE, ChatTurn, ModelAnswer, OnText, Tools, Turns, ignore_text
from ralph.errors import ModelOff
from ralph.wire import Deadline, Reply, Wire, with_version

_MAKERS = {
    "openai": ("OpenAI", "https://api.openai.com/v1"),
    "anthropic": ("Anthropic", "https://api.anthropic.com"),
    "ollama": ("Ollama", "http://127.0.0.1:11434/v1"),
}
_STOPS = {
    **{"stop": "end", "end_turn": "end", "stop_sequence": "end"},
    **{"tool_calls": "tools", "function_call": "tools", "tool_use": "tools"},
    **{"max_tokens": "length", "model_context_window_exceeded": "length"},
    **{"content_filter": "refused", "refusal": "refused"},
}
# The new and the old name of OpenAI's token limit; some servers know only one of them, or none.
_LIMITS = ("max_completion_tokens", "max_tokens")
_TOO_LONG = (
    *("context_length_exceeded", "maximum context length", "prompt is too long"),
    *("context size", "context window", "too many tokens", "request_too_large"),
)
_NO_CREDIT = ("insufficient_quota", "credit balance", "insufficient balance")


# -- an answer as it streams in


class EventReader:
    """Reads server-sent events from bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._line, self._data = bytearray(), list[bytes]()
        self.plain, self.seen = bytearray(), False  # `plain`: the body, if there are no events

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of every event that this piece completes."""
        self.plain += b"" if self.seen else piece
        self._line += piece
        if b"\n" not in piece:
            return
        *lines, self._line = self._line.split(b"\n")
        for line in lines:
            text = bytes(line).removesuffix(b"\r")
            if not text and self._data:
                yield b"\n".join(self._data)
                self._data = []
            elif text.startswith(b"data:"):
                self.seen = True
                self.plain.clear()
                self._data.append(text[5:].removeprefix(b" "))


class StreamFailed(Exception):
    """The server reported an error in the middle of its answer."""


class _StreamedCall(msgspec.Struct):
    place: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


class AnswerStream:
    """The part of an answer that has arrived. `stop` is empty until it is complete."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    model = ""
    stop = ""
    over = False  # nothing more will come

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._calls: list[_StreamedCall] = []
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def calls(self) -> tuple[models.ToolCall, ...]:
        return tuple(models.tool_call(c.id, c.name, c.arguments) for c in self._calls)

    def add_text(self, piece: str) -> None:
        """Add a piece of text."""
        if piece:
            self._texts.append(piece)
            self._on_text(piece)

    def add_call(self, place: int | None, id: str, name: str, arguments: str) -> None:
        """Add a piece of a tool call.

        Servers identify the call by its place or its id, or just send one after another; some give
        all calls the same place.
        """
        last = next((c for c in reversed(self._calls) if place is None or c.place == place), None)
        if last is None or (id and last.id and id != last.id) or (place is None and name):
            last = _StreamedCall(place)
            self._calls.append(last)
        last.id = last.id or id
        last.name = last.name or name
        last.arguments += arguments


# -- OpenAI


class _OpenAIFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _OpenAICall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _OpenAIFunction | None = None


class _OpenAIDelta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_OpenAICall] | None = None


class _OpenAIChoice(msgspec.Struct):
    delta: _OpenAIDelta | None = None
    message: _OpenAIDelta | None = None  # if the answer arrives in one piece
    finish_reason: str | None = None


class _OpenAIUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _OpenAIChunk(msgspec.Struct):
    choices: list[_OpenAIChoice] | None = None
    usage: _OpenAIUsage | None = None
    model: str | None = None
    error: Any = None


class OpenAIDialect:
    """Builds requests and reads answers for OpenAI and compatible servers."""

    path = "/chat/completions"

    def __init__(self, model: str, max_tokens: int, *, of_openai: bool) -> None:
        self.model = model
        self._max_tokens = max_tokens
        # The names to try, best first. If none works, the server's own limit applies.
        self._limits = list(_LIMITS if of_openai else reversed(_LIMITS))
        self._left_out: set[str] = set()

    @property
    def takes_tools(self) -> bool:
        """Whether the server accepts tools, as far as we know."""
        return "tools" not in self._left_out

    def body(self, messages: Turns, tools: Tools) -> dict[str, Any]:
        """Return the request for an answer to these turns."""
        functions = [{"type": "function", "function": msgspec.to_builtins(t)} for t in tools]
        body = {
            "model": self.model,
            "messages": [_openai_message(turn) for turn in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: self._max_tokens for name in self._limits[:1]},
            **({"tools": functions} if tools else {}),
        }
        return {key: value for key, value in body.items() if key not in self._left_out}

    def learn(self, complaint: str) -> bool:
        """Adapt to what the server complained about; return whether a new try makes sense."""
        before = len(self._limits), len(self._left_out)
        if "stream_options" in complaint:
            self._left_out.add("stream_options")
        elif "does not support tools" in complaint:
            self._left_out.add("tools")
        elif any(name in complaint for name in _LIMITS):
            del self._limits[:1]
        return (len(self._limits), len(self._left_out)) != before

    def read(self, data: bytes, into: AnswerStream) -> None:
        """Read one event, or a whole answer; raises MsgspecError or StreamFailed."""
        if data == b"[DONE]":
            into.over = True
            return
        chunk = msgspec.json.decode(data, type=_OpenAIChunk)
        if chunk.error is not None:
            raise StreamFailed
        into.model = chunk.model or into.model
        if chunk.usage is not None:
            into.tokens_in = chunk.usage.prompt_tokens
            into.tokens_out = chunk.usage.completion_tokens
        for choice in (chunk.choices or ())[:1]:
            delta = choice.delta or choice.message or _OpenAIDelta()
            into.add_text(delta.content or "")
            into.add_text(delta.refusal or "")
            for call in delta.tool_calls or ():
                function = call.function or _OpenAIFunction()
                arguments = function.arguments or ""
                if isinstance(arguments, dict):
                    arguments = msgspec.json.encode(arguments).decode()
                into.add_call(call.index, call.id or "", function.name or "", arguments)
            if delta.refusal:
                into.stop = "refused"
            elif choice.finish_reason and into.stop != "refused":
                stop = _STOPS.get(choice.finish_reason, choice.finish_reason)
                into.stop = "tools" if stop == "end" and into.calls else stop


def _openai_message(turn: ChatTurn) -> dict[str, Any]:
    if turn.role == "tool":
        return {"role": "tool", "tool_call_id": turn.call_id, "content": turn.text}
    if not turn.calls:
        return {"role": turn.role, "content": turn.text}
    calls = []
    for call in turn.calls:
        arguments = call.unread or msgspec.json.encode(call.arguments).decode()
        function = {"name": call.name, "arguments": arguments}
        calls.append({"id": call.id, "type": "function", "function": function})
    return {"role": turn.role, "content": turn.text or None, "tool_calls": calls}


# -- Anthropic


class _AnthropicBlock(msgspec.Struct):
    """A block of a message, or an event's addition to one."""

    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    partial_json: str = ""
    stop_reason: str | None = None


class _AnthropicEvent(msgspec.Struct):
    type: str = ""
    index: int | None = None
    message: _AnthropicEvent | None = None
    content_block: _AnthropicBlock | None = None
    delta: _AnthropicBlock | None = None
    usage: models.AnthropicUsage | None = None
    # The fields of a whole message, if the answer is not streamed.
    content: list[_AnthropicBlock] = []
    stop_reason: str | None = None
    model: str = ""


class AnthropicDialect:
    """Builds requests and reads answers for Anthropic's API."""

    path = "/v1/messages"
    takes_tools = True

    def __init__(self, model: str, max_tokens: int) -> None:
        self.model = model
        self._max_tokens = max_tokens

    def body(self, messages: Turns, tools: Tools) -> dict[str, Any]:
        """Return the request for an answer to these turns."""
        system = "\n\n".join(t.text for t in messages if t.role == "system" and t.text.strip())
        names = ("name", "description", "input_schema")
        offered = [dict(zip(names, msgspec.structs.astuple(t), strict=True)) for t in tools]
        head = {"model": self.model, "max_tokens": self._max_tokens, "stream": True}
        more = {"system": system, "messages": _anthropic_messages(messages), "tools": offered}
        return head | {key: value for key, value in more.items() if value or key == "messages"}

    def learn(self, complaint: str) -> bool:
        return False  # there is only one server, and our requests are right for it

    def read(self, data: bytes, into: AnswerStream) -> None:
        """Read one event, or a whole answer; raises MsgspecError or StreamFailed."""
        event = msgspec.json.decode(data, type=_AnthropicEvent)
        if event.type == "error":
            raise StreamFailed
        into.over = into.over or event.type == "message_stop"
        message = event.message or event
        into.model = message.model or into.model
        blocks = [event.content_block] if event.content_block else event.content
        for place, block in enumerate(blocks, start=event.index or 0):
            if block.type == "text":
                into.add_text(block.text)
            elif block.type == "tool_use":
                arguments = msgspec.json.encode(block.input).decode() if block.input else ""
                into.add_call(place, block.id, block.name, arguments)
        delta = event.delta or _AnthropicBlock()
        into.add_text(delta.text)
        if delta.partial_json:
            into.add_call(event.index, "", "", delta.partial_json)
        if usage := event.usage or message.usage:
            known_in = usage.tokens_in
            known_out = usage.output_tokens
            into.tokens_in = into.tokens_in if known_in is None else known_in
            into.tokens_out = into.tokens_out if known_out is None else known_out
        if stop := delta.stop_reason or event.stop_reason:
            into.stop = _STOPS.get(stop, stop)


def _anthropic_messages(turns: Turns) -> list[dict[str, Any]]:
    """Return the turns as the API requires: user first, then alternating, none empty."""
    blocks = [(t.role, b) for t in turns if t.role != "system" for b in _anthropic_blocks(t)]
    sides = [("assistant" if role == "assistant" else "user", block) for role, block in blocks]
    if sides and sides[0][0] == "assistant":
        sides.insert(0, ("user", {"type": "text", "text": "[earlier messages are left out]"}))
    by_side = groupby(sides, key=lambda pair: pair[0])
    return [{"role": side, "content": [block for _, block in same]} for side, same in by_side]


def _anthropic_blocks(turn: ChatTurn) -> Iterator[dict[str, Any]]:
    if turn.role == "tool":
        result = {"type": "tool_result", "tool_use_id": turn.call_id, "content": turn.text}
        yield {**result, "is_error": True} if turn.failed else result
        return
    if turn.text.strip():
        # The API refuses white space at the end of the assistant's last text.
        text = turn.text.rstrip() if turn.role == "assistant" else turn.text
        yield {"type": "text", "text": text}
    for call in turn.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


# -- a model on a server


class HttpModel:
    """A model on a server with OpenAI's, Anthropic's or Ollama's API.

    The key goes into a header and nowhere else.
    """

    def __init__(
        self,
        kind: str,
        model: str,
        *,
        url: str | None = None,
        access: models.ModelAccess | None = None,
        price: models.Price | None = None,
        max_tokens: int = 4096,
    ) -> None:
        self.name = f"{kind}:{model}"
        self._access = access = access or models.ModelAccess()
        self._secrets = (access.key,) if access.key else ()
        maker, home = _MAKERS[kind]
        base = (url or home).rstrip("/").removesuffix(OpenAIDialect.path)
        base = base.removesuffix("/v1") if kind == "anthropic" else with_version(base)
        own = base == home
        local = kind == "ollama"
        self._price = price or (FREE if local else models.list_price(kind, model))
        self._needs_key = own and not local
        self._dialect: OpenAIDialect | AnthropicDialect
        headers: dict[str, str] = {}
        if kind == "anthropic":
            self._dialect = AnthropicDialect(model, max_tokens)
            headers = {"anthropic-version": "2023-06-01"}
            headers |= {"x-api-key": access.key} if access.key else {}
        else:
            self._dialect = OpenAIDialect(model, max_tokens, of_openai=own and not local)
        check = f"Check {access.role}_base_url and the network."
        self._wire = Wire(
            base,
            name=maker if own or local else "the model's server",
            todo="Start it: ollama serve" if local else check,
            error=ModelOff,
            slow="If it is just slow, raise chat_timeout_s.",
            key=None if headers else access.key,
            headers=headers,
            sleep=access.sleep,
        )

    def __repr__(self) -> str:
        return f"<{self.name} at {self._wire.safe_url}>"

    @property
    def takes_tools(self) -> bool:
        """Whether it can use tools; a server may only show that with its first answer."""
        return self._dialect.takes_tools

    @property
    def costs(self) -> str:
        """Its price in a few words, or why the price is unknown."""
        if self._price is None:
            return "price unknown: not in Ralph's price list, so no cost is counted"
        return "free" if self._price == FREE else str(self._price)

    def answer(
        self, messages: Turns, *, tools: Tools = (), on_text: OnText = ignore_text, timeout_s: float
    ) -> ModelAnswer:
        """Answer the last turn, or raise ModelOff. Text goes to `on_text` as it arrives."""
        models.check_turns(messages)
        stream = AnswerStream(on_text)
        try:
            self._stream(messages, tools, stream, Deadline(timeout_s))
        except ModelOff as error:
            error.partial = stream.text
            if not stream.stop:  # otherwise the answer is complete, only the end marker is missing
                raise
        if not stream.calls and not stream.text.strip():
            raise self._empty(stream.stop)
        price = self._price
        names = ("text", "calls", "tokens_in", "tokens_out", "stop")
        return ModelAnswer(
            **{name: getattr(stream, name) for name in names},
            cost_usd=price.cost_usd(stream.tokens_in, stream.tokens_out) if price else None,
            model=stream.model or self._dialect.model,
        )

    def _stream(self, turns: Turns, tools: Tools, stream: AnswerStream, deadline: Deadline) -> None:
        if self._needs_key and not self._access.key:
            raise self._off("needs a key", f"Set {self._access.variable}.", "setting")
        events = EventReader()
        errors: list[Exception] = []

        def take(piece: bytes) -> bool:
            try:
                for data in events.feed(piece):
                    self._read(data, stream)
            except Exception as error:  # noqa: BLE001 - raised below: it is not a network error
                errors.append(error)
            return stream.over or bool(errors)

        while True:
            body = msgspec.json.encode(self._dialect.body(turns, tools))
            reply = self._wire.call("POST", self._dialect.path, body, deadline=deadline, take=take)
            # Each refusal either teaches us something new or ends the loop.
            complaint = reply.body.decode("utf-8", "replace")
            if reply.status not in (400, 422) or not self._dialect.learn(complaint):
                break
        for error in errors:
            raise error
        if reply.status != 200:
            raise self._refusal(reply)
        if plain := bytes(events.plain).strip():
            self._read(plain, stream)
        if not stream.stop:
            what = "broke off in the middle of its answer" if events.seen else "gave no answer"
            raise self._off(what, "Ask again. If that does not help, check the server's log.")

    def _read(self, data: bytes, stream: AnswerStream) -> None:
        try:
            self._dialect.read(data, stream)
        except StreamFailed:
            why = Reply(200, {}, data).complaint(*self._secrets) or "no reason given"
            raise self._off(f"failed in the middle of its answer ({why})", "Ask later.") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            todo = f"Check {self._access.role}_base_url: it must be the URL of a model server."
            why = str(error).partition(" - ")[0]
            raise self._off(f"sent an answer that cannot be read ({why})", todo) from None

    def _empty(self, stop: str) -> ModelOff:
        reasons = {
            "length": ("reached its token limit before any text", "Raise chat_max_tokens."),
            "refused": ("refuses to answer this", "Rephrase the question."),
        }
        again = f"Ask again, or change {self._access.role}_model."
        return self._off(*reasons.get(stop, ("gave an empty answer", again)), "prompt")

    def _refusal(self, reply: Reply) -> ModelOff:
        """Return the error for a status. This is the only place that maps them."""
        why = reply.describe(*self._secrets)
        body = reply.body.decode("utf-8", "replace").lower()
        role = self._access.role
        variable = self._access.variable
        if any(word in body for word in _NO_CREDIT) or reply.status == 402:
            todo = "Check the account that the key belongs to."
            return self._off(f"has no credit left ({why})", todo, "setting")
        if reply.status in (401, 403):
            what = "rejected the key" if self._access.key else "needs a key"
            todo = f"{'Check' if self._access.key else 'Set'} {variable}."
            return self._off(f"{what} ({why})", todo, "setting")
        if reply.status == 404:
            model = self._dialect.model
            check = f"Check {role}_model and {role}_base_url."
            todo = f"Run: ollama pull {model}" if self.name.startswith("ollama:") else check
            return self._off(f"does not know {model} ({why})", todo, "setting")
        if reply.status == 413 or any(word in body for word in _TOO_LONG):
            todo = f"Send less, or set {role}_model to one with a larger window."
            return self._off(f"says the prompt is too long ({why})", todo, "prompt")
        if reply.status == 429:
            wait = reply.headers.get("retry-after", "")
            todo = f"Wait {wait} s." if wait.isdigit() else "Wait a while."
            return self._off(f"is rate limiting us ({why})", todo)
        if reply.status >= 500:
            return self._off(f"cannot answer now ({why})", "Try again later.")
        return self._off(f"refused the request ({why})", None, "prompt")

    def _off(self, what: str, todo: str | None, fault: models.ModelFault = "server") -> ModelOff:
        error = self._wire.off(what, todo)
        error.fault = fault
        return error
