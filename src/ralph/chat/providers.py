"""A language model on a server: asked once, followed as it speaks, and told of when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, Protocol

import msgspec

from ralph.chat.model import (
    FREE,
    ChatTurn,
    ModelAnswer,
    OnText,
    Price,
    ToolCall,
    ToolSpec,
    check_turns,
    list_price,
    tool_call,
)
from ralph.errors import ModelOff
from ralph.wire import Deadline, Reply, Wire, versioned

# -- What a streamed answer is made of: events out of bytes, and an answer out of events.


class EventReader:
    """Server-sent events, from bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._raw: list[bytes] = []
        self.seen = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of every event that this piece completes."""
        if not self.seen:
            self._raw.append(piece)
        head, *rest = piece.split(b"\n")
        self._line.append(head)
        for part in rest:
            line = b"".join(self._line).removesuffix(b"\r")
            self._line = [part]
            if not line and self._data:
                yield b"\n".join(self._data)
                self._data = []
            elif line.startswith(b"data:"):
                self.seen = True
                self._raw.clear()
                self._data.append(line[5:].removeprefix(b" "))

    @property
    def plain(self) -> bytes:
        """What came instead of events."""
        return b"".join(self._raw).strip()


class StreamFailed(Exception):
    """The server says in the middle of its answer that it cannot go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


class AnswerStream:
    """An answer as far as it has come."""

    def __init__(self, on_text: OnText | None) -> None:
        self._on_text = on_text
        self._texts: list[str] = []
        self._calls: list[_StreamedCall] = []
        self.tokens_in: int | None = None
        self.tokens_out: int | None = None
        self.model = ""
        # Why it ended; empty until it has.
        self.stop = ""
        # Nothing more will come.
        self.over = False

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(tool_call(c.id, c.name, "".join(c.arguments)) for c in self._calls)

    def say(self, piece: str) -> None:
        """A piece of text."""
        if piece:
            self._texts.append(piece)
            if self._on_text is not None:
                self._on_text(piece)

    def call(self, place: int | None, id: str, name: str, arguments: str) -> None:
        """A piece of a tool call.

        Servers tell which call it belongs to by its place, by its id, or by sending one after
        another; some give all of them the same place.
        """
        last = next((c for c in reversed(self._calls) if place is None or c.place == place), None)
        if last is None or (id and last.id and id != last.id) or (place is None and name):
            last = _StreamedCall(place)
            self._calls.append(last)
        last.id = last.id or id
        last.name = last.name or name
        last.arguments.append(arguments)


class _StreamedCall:
    def __init__(self, place: int | None) -> None:
        self.place = place
        self.id = self.name = ""
        self.arguments: list[str] = []


MAX_TOKENS = 4096
_TOO_LONG = (
    *("context_length_exceeded", "maximum context length", "prompt is too long"),
    *("context size", "context window", "too many tokens", "request_too_large"),
)
_NO_CREDIT = ("insufficient_quota", "credit balance", "insufficient balance")
_Fault = Literal["server", "setting", "prompt"]


class ModelAccess(msgspec.Struct, frozen=True):
    """How a model is reached: a key, the variable it comes from, and whose settings these are."""

    key: str | None = None
    variable: str = "RALPH_CHAT_API_KEY"
    role: Literal["chat", "summary"] = "chat"
    sleep: Callable[[float], None] = time.sleep

    def __repr__(self) -> str:
        return f"Access({self.variable} {'set' if self.key else 'not set'})"

    def wire(
        self,
        url: str,
        *,
        name: str,
        todo: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Wire[ModelOff]:
        """The way there; the key goes as a bearer's unless headers are given."""
        return Wire(
            url,
            name=name,
            todo=todo or f"Check {self.role}_base_url and the network.",
            error=ModelOff,
            slow=f"If it is only slow, raise {self.role}_timeout_s.",
            key=self.key if headers is None else None,
            headers=headers,
            sleep=self.sleep,
        )


class Dialect(Protocol):
    """How one kind of server is asked, and how its answers are read."""

    @property
    def path(self) -> str:
        """Where questions go, below the server's URL."""
        ...

    @property
    def model(self) -> str:
        """The model's name there."""
        ...

    @property
    def takes_tools(self) -> bool:
        """Whether it has tools in its requests, as far as is known."""
        ...

    def body(self, messages: Sequence[ChatTurn], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The request for an answer to these turns."""
        ...

    def learn(self, complaint: str) -> bool:
        """Whether a refusal tells how to ask this server so that it understands."""
        ...

    def read(self, data: bytes, into: AnswerStream) -> None:
        """One event of an answer, or a whole one; MsgspecError or Failed when it is none."""
        ...


class ServedModel:
    """A model behind a URL. Its key goes into a header and nowhere else."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        wire: Wire[ModelOff],
        *,
        access: ModelAccess,
        price: Price | None,
        missing: str,
        needs_key: bool = False,
    ) -> None:
        """`missing` says what to do when the server does not know the model."""
        self.name = name
        self._dialect = dialect
        self._wire = wire
        self._access = access
        self._price = price
        self._missing = missing
        self._needs_key = needs_key

    def __repr__(self) -> str:
        return f"<{self.name} at {self._wire.shown}>"

    @property
    def takes_tools(self) -> bool:
        """Whether tools that are offered reach it; it may turn out only with an answer."""
        return self._dialect.takes_tools

    @property
    def costs(self) -> str:
        """What it costs, or why nobody knows, in a few words."""
        if self._price is None:
            role = self._access.role
            return (
                f"price unknown: set {role}_price_in_usd and {role}_price_out_usd "
                "(per million tokens)"
            )
        return "free" if self._price == FREE else str(self._price)

    def answer(
        self,
        messages: Sequence[ChatTurn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> ModelAnswer:
        """The answer to the last turn, its text given to `on_text` as it comes; or ModelOff."""
        check_turns(messages)
        gathered = AnswerStream(on_text)
        try:
            self._follow(messages, tools, gathered, Deadline(timeout_s))
        except ModelOff as error:
            error.partial = gathered.text
            if not gathered.stop:  # else all had come, and only the good-bye was missing
                raise
        calls = gathered.calls
        if not calls and not gathered.text.strip():
            raise self._silent(gathered.stop)
        tokens = gathered.tokens_in, gathered.tokens_out
        return ModelAnswer(
            text=gathered.text,
            calls=calls,
            tokens_in=tokens[0],
            tokens_out=tokens[1],
            cost_usd=None if self._price is None else self._price.cost_usd(*tokens),
            model=gathered.model or self._dialect.model,
            stop=gathered.stop,
        )

    def _follow(
        self,
        messages: Sequence[ChatTurn],
        tools: Sequence[ToolSpec],
        gathered: AnswerStream,
        deadline: Deadline,
    ) -> None:
        if self._needs_key and not self._access.key:
            raise self._off("needs a key", f"Set {self._access.variable}.", "setting")
        events = EventReader()
        stopped: list[Exception] = []

        def take(piece: bytes) -> bool:
            try:
                for data in events.feed(piece):
                    self._read(data, gathered)
            except Exception as error:  # noqa: BLE001 - raised below: it is no fault of the wire
                stopped.append(error)
            return gathered.over or bool(stopped)

        while True:
            body = msgspec.json.encode(self._dialect.body(messages, tools))
            reply = self._wire.call("POST", self._dialect.path, body, deadline=deadline, take=take)
            # Each refusal teaches something new or is the last.
            told = reply.body.decode("utf-8", "replace")
            if reply.status not in (400, 422) or not self._dialect.learn(told):
                break
        for error in stopped:
            raise error
        if reply.status != 200:
            raise self._refused(reply)
        if not events.seen and events.plain:
            self._read(events.plain, gathered)
        if not gathered.stop:
            what = "broke off in the middle of its answer" if events.seen else "gave no answer"
            raise self._off(what, "Ask again; if it stays so, look into the server's log.")

    def _read(self, data: bytes, into: AnswerStream) -> None:
        try:
            self._dialect.read(data, into)
        except StreamFailed as failed:
            said = Reply(200, {}, failed.data).complaint(*self._secrets)
            what = f"failed in the middle of its answer ({said or 'it does not say why'})"
            raise self._off(what, "Ask again later.") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            told = str(error).partition(" - ")[0]
            todo = f"Check {self._access.role}_base_url: it must be the URL of a model's server."
            raise self._off(f"gave an answer that cannot be read ({told})", todo) from None

    def _silent(self, stop: str) -> ModelOff:
        role = self._access.role
        if stop == "length":
            todo = "Raise chat_max_tokens, or shorten what is asked."
            return self._off("reached its limit before it said a word", todo, "prompt")
        if stop == "refused":
            return self._off("refuses to answer this", "Ask otherwise.", "prompt")
        return self._off("gave an empty answer", f"Ask again, or change {role}_model.", "prompt")

    def _refused(self, reply: Reply) -> ModelOff:
        said = reply.describe(*self._secrets)
        body = reply.body.decode("utf-8", "replace").lower()
        role, variable = self._access.role, self._access.variable
        if any(word in body for word in _NO_CREDIT) or reply.status == 402:
            todo = "Look after the account of the key."
            return self._off(f"has no credit left for us ({said})", todo, "setting")
        if reply.status in (401, 403):
            if self._access.key:
                what, todo = "does not accept the key", f"Check {variable}."
            else:
                what, todo = "needs a key", f"Set {variable}."
            return self._off(f"{what} ({said})", todo, "setting")
        if reply.status == 404:
            what = f"does not know {self._dialect.model} ({said})"
            return self._off(what, self._missing, "setting")
        if reply.status == 413 or any(word in body for word in _TOO_LONG):
            todo = f"Send less, or set {role}_model to one with a larger window."
            return self._off(f"finds the prompt too long ({said})", todo, "prompt")
        if reply.status == 429:
            asks = reply.headers.get("retry-after", "")
            todo = f"Wait {asks} s." if asks.isdigit() else "Wait a while."
            return self._off(f"has enough of us for now ({said})", todo)
        if reply.status >= 500:
            return self._off(f"cannot answer now ({said})", "Try again later.")
        return self._off(f"refused the request ({said})", None, "prompt")

    def _off(self, what: str, todo: str | None, fault: _Fault = "server") -> ModelOff:
        error = self._wire.off(what, todo)
        error.fault = fault
        return error

    @property
    def _secrets(self) -> tuple[str, ...]:
        return (self._access.key,) if self._access.key else ()


# -- Chat over `/v1/chat/completions`: OpenAI, Ollama, and every server that speaks this dialect.


OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434/v1"
_OPENAI_STOPS = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refused",
}
_DONE = b"[DONE]"
# The same limit, as OpenAI calls it now and as it did; each is unknown to somebody.
_LIMITS = ("max_completion_tokens", "max_tokens")


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
    message: _OpenAIDelta | None = None  # where the answer comes in one piece
    finish_reason: str | None = None


class _OpenAIUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _OpenAIChunk(msgspec.Struct):
    choices: list[_OpenAIChoice] | None = None
    usage: _OpenAIUsage | None = None
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

    def body(self, messages: Sequence[ChatTurn], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The request for an answer to these turns."""
        asked = {
            "model": self.model,
            "messages": [_message(turn) for turn in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: self._max_tokens for name in self._limits[:1]},
            **({"tools": [_openai_tool(tool) for tool in tools]} if tools else {}),
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

    def read(self, data: bytes, into: AnswerStream) -> None:
        """One event of an answer, or a whole one; MsgspecError or Failed when it is none."""
        if data == _DONE:
            into.over = True
            return
        chunk = msgspec.json.decode(data, type=_OpenAIChunk)
        if bytes(chunk.error) not in (b"", b"null"):
            raise StreamFailed(data)
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
    access: ModelAccess | None = None,
    price: Price | None = None,
    max_tokens: int = MAX_TOKENS,
) -> ServedModel:
    """A model of OpenAI's, or of any server that speaks its dialect; by its base URL."""
    access = access or ModelAccess()
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
    access: ModelAccess | None = None,
    price: Price | None = None,
    max_tokens: int = MAX_TOKENS,
) -> ServedModel:
    """A model that an Ollama serves; it costs nothing unless a price is set."""
    access = access or ModelAccess()
    return ServedModel(
        f"ollama:{model}",
        OpenAIDialect(model, max_tokens=max_tokens, of_openai=False),
        access.wire(versioned(url or OLLAMA_URL), name="Ollama", todo="Start it: ollama serve"),
        access=access,
        price=price or FREE,
        missing=f"Run: ollama pull {model}",
    )


def _read_choice(choice: _OpenAIChoice, into: AnswerStream) -> None:
    delta = choice.delta or choice.message
    if delta is not None:
        into.say(delta.content or "")
        into.say(delta.refusal or "")
        for call in delta.tool_calls or ():
            function = call.function or _OpenAIFunction()
            arguments = function.arguments
            if isinstance(arguments, dict):
                arguments = msgspec.json.encode(arguments).decode()
            into.call(call.index, call.id or "", function.name or "", arguments or "")
        if delta.refusal:
            into.stop = "refused"
    if choice.finish_reason and into.stop != "refused":
        stop = _OPENAI_STOPS.get(choice.finish_reason, choice.finish_reason)
        into.stop = "tools" if stop == "end" and into.calls else stop


def _message(turn: ChatTurn) -> dict[str, Any]:
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


def _openai_tool(tool: ToolSpec) -> dict[str, Any]:
    told = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": told}


# -- Chat over `/v1/messages`: Anthropic's own dialect.


ANTHROPIC_URL = "https://api.anthropic.com"
_VERSION = {"anthropic-version": "2023-06-01"}
_ANTHROPIC_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_BEFORE = "[what was said before is left out]"


class _AnthropicUsage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _AnthropicBlock(msgspec.Struct):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class _AnthropicMessage(msgspec.Struct):
    model: str = ""
    usage: _AnthropicUsage | None = None


class _AnthropicDelta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _AnthropicEvent(msgspec.Struct):
    type: str
    index: int | None = None
    message: _AnthropicMessage | None = None
    content_block: _AnthropicBlock | None = None
    delta: _AnthropicDelta | None = None
    usage: _AnthropicUsage | None = None
    # A whole message, where the answer does not come as a stream.
    content: list[_AnthropicBlock] = []
    stop_reason: str | None = None
    model: str = ""


class AnthropicDialect:
    """How Anthropic's models are asked, and how their answers are read."""

    path = "/v1/messages"
    takes_tools = True

    def __init__(self, model: str, *, max_tokens: int) -> None:
        self.model = model
        self._max_tokens = max_tokens

    def body(self, messages: Sequence[ChatTurn], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The request for an answer to these turns."""
        system = "\n\n".join(t.text for t in messages if t.role == "system" and t.text.strip())
        return {
            "model": self.model,
            "max_tokens": self._max_tokens,
            "stream": True,
            **({"system": system} if system else {}),
            "messages": _messages(messages),
            **({"tools": [_anthropic_tool(tool) for tool in tools]} if tools else {}),
        }

    def learn(self, complaint: str) -> bool:
        """There is one server that speaks it, and it is asked as it wants to be."""
        return False

    def read(self, data: bytes, into: AnswerStream) -> None:
        """One event of an answer, or a whole one; MsgspecError or Failed when it is none."""
        event = msgspec.json.decode(data, type=_AnthropicEvent)
        match event.type:
            case "error":
                raise StreamFailed(data)
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
    access: ModelAccess | None = None,
    price: Price | None = None,
    max_tokens: int = MAX_TOKENS,
) -> ServedModel:
    """A model of Anthropic's, over its own dialect; by its base URL, with or without `/v1`."""
    access = access or ModelAccess()
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


def _begin(place: int | None, block: _AnthropicBlock, into: AnswerStream) -> None:
    if block.type == "text":
        into.say(block.text)
    elif block.type == "tool_use":
        given = msgspec.json.encode(block.input).decode() if block.input else ""
        into.call(place, block.id, block.name, given)


def _stop(reason: str | None, into: AnswerStream) -> None:
    if reason:
        into.stop = _ANTHROPIC_STOPS.get(reason, reason)


def _count(usage: _AnthropicUsage | None, into: AnswerStream) -> None:
    if usage is None:
        return
    if usage.input_tokens is not None:
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        into.tokens_in = usage.input_tokens + cached
    if usage.output_tokens is not None:
        into.tokens_out = usage.output_tokens


def _messages(turns: Sequence[ChatTurn]) -> list[dict[str, Any]]:
    """The turns as it wants them: user and assistant by turns, user first, nothing empty."""
    told = [(_side(t), list(_blocks(t))) for t in turns if t.role != "system"]
    if told and told[0][0] == "assistant":
        told.insert(0, ("user", [{"type": "text", "text": _BEFORE}]))
    by_side = groupby((one for one in told if one[1]), key=lambda one: one[0])
    return [
        {"role": s, "content": [b for _, blocks in same for b in blocks]} for s, same in by_side
    ]


def _side(turn: ChatTurn) -> str:
    return "assistant" if turn.role == "assistant" else "user"


def _blocks(turn: ChatTurn) -> Iterator[dict[str, Any]]:
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


def _anthropic_tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    }
