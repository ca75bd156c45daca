"""A server on loopback that speaks OpenAI's and Anthropic's chat, and fails when told to.

It streams as the real ones do: in small pieces that end anywhere, with comments, pings and a
farewell. What it says next is a list of `Answer`s; with none left it repeats what it was told.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from ralph.chat.providers import HttpModel

KEY = "sk-loopback-0123456789abcdef"
MODEL = "small-model"
OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"
_PIECE_BYTES = 7


class Call(NamedTuple):
    """A tool the model wants; its arguments as they go over the wire."""

    name: str
    arguments: str
    id: str = "call_1"


class Answer(NamedTuple):
    """What the model says to one request."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: str = ""
    tokens_in: int = 120
    tokens_out: int = 30
    told_tokens: bool = True


class Asked(NamedTuple):
    """One request as it came in."""

    path: str
    body: Any
    headers: dict[str, str]


class ChatServer:
    """Set a fault and it fails; `requests` tells what it was asked."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.answers: list[Answer] = []
        # Servers differ in what they understand and in how they answer.
        self.unknown_fields: set[str] = set()
        self.streams = True
        self.farewell = True
        self.call_places = "counted"  # or "same", or "none"
        self.retry_after: str | None = None
        # A name of `_FAULTS`, and how many requests it still meets (None: all).
        self.fault: str | None = None
        self.fault_times: int | None = None
        self.requests: list[Asked] = []
        # Set when the server ends: whoever hangs goes on.
        self.released = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def say(self, *answers: Answer | str) -> None:
        """What the model says next."""
        self.answers += [Answer(one) if isinstance(one, str) else one for one in answers]

    def fail(self, fault: str | None, *, times: int | None = None) -> None:
        """Meet requests with this fault from now on, or answer them again."""
        self.fault, self.fault_times = fault, times

    def close(self) -> None:
        """End it, and everybody who waits in it."""
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def due(self) -> str | None:
        """The fault that this request meets."""
        if self.fault is None or self.fault_times == 0:
            return None
        if self.fault_times is not None:
            self.fault_times -= 1
        return self.fault

    def next(self, body: Any) -> Answer:
        """What the model says to this."""
        return self.answers.pop(0) if self.answers else Answer(f"You said: {_last_text(body)}")


@contextlib.contextmanager
def running() -> Iterator[ChatServer]:
    """A server for as long as the block lasts."""
    server = ChatServer()
    try:
        yield server
    finally:
        server.close()


def _last_text(body: Any) -> str:
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or part.get("content") or "") for part in content)


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append(Asked(self.path, body, headers))
            fault = server.due()
            with contextlib.suppress(OSError):  # the client has gone
                if fault is not None:
                    _FAULTS[fault](server, self, body)
                elif (refusal := self._refusal(body, headers)) is not None:
                    self.answer(*refusal)
                else:
                    self._speak(body)

        def _refusal(self, body: Any, headers: dict[str, str]) -> tuple[int, Any] | None:
            if self.path not in (OPENAI, ANTHROPIC):
                return 404, "404 page not found"
            given = headers.get("x-api-key") or headers.get("authorization", "")
            given = given.removeprefix("Bearer ")
            if server.key is not None and given != server.key:
                return 401, _error(f"Incorrect API key provided: {given}")
            if body["model"] != MODEL:
                return 404, _error(f'model "{body["model"]}" not found')
            for field in sorted(server.unknown_fields & body.keys()):
                if field == "tools":
                    return 400, _error(f"{MODEL} does not support tools")
                return 422, {"detail": [{"loc": ["body", field], "msg": "extra fields forbidden"}]}
            return None

        def _speak(self, body: Any) -> None:
            answer = server.next(body)
            if not server.streams:
                self.answer(200, _whole_openai(answer))
                return
            self.begin()
            self.stream(self.events(answer))
            self.wfile.write(b"0\r\n\r\n")

        def events(self, answer: Answer) -> bytes:
            told = _anthropic(answer) if self.path == ANTHROPIC else _openai(server, answer)
            return b"".join(told)

        def begin(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def stream(self, data: bytes) -> None:
            for at in range(0, len(data), _PIECE_BYTES):
                piece = data[at : at + _PIECE_BYTES]
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()

        def answer(self, status: int, plain: Any) -> None:
            data = plain.encode() if isinstance(plain, str) else json.dumps(plain).encode()
            self.send_response(status)
            if server.retry_after is not None:
                self.send_header("Retry-After", server.retry_after)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _error(message: str, **more: str) -> dict[str, Any]:
    return {"type": "error", "error": {"message": message, **more}}


def _cut_up(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


# -- OpenAI's stream


def _openai(server: ChatServer, answer: Answer) -> Iterator[bytes]:
    def data(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event({"model": f"{MODEL}-0613", "choices": [choice], "usage": None})

    yield b": PROCESSING\n\n"
    yield data({"role": "assistant", "content": ""})
    yield from (data({"content": piece}) for piece in _cut_up(answer.text))
    for number, call in enumerate(answer.calls):
        place = {"counted": {"index": number}, "same": {"index": 0}, "none": {}}[server.call_places]
        begun = {**place, "id": call.id, "type": "function"}
        yield data({"tool_calls": [{**begun, "function": {"name": call.name, "arguments": ""}}]})
        for piece in _cut_up(call.arguments):
            yield data({"tool_calls": [{**place, "function": {"arguments": piece}}]})
    yield data({}, answer.stop or ("tool_calls" if answer.calls else "stop"))
    if answer.told_tokens:
        usage = {"prompt_tokens": answer.tokens_in, "completion_tokens": answer.tokens_out}
        yield _event({"model": f"{MODEL}-0613", "choices": [], "usage": usage})
    if server.farewell:
        yield b"data: [DONE]\n\n"


def _whole_openai(answer: Answer) -> dict[str, Any]:
    calls = [
        {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    message = {"role": "assistant", "content": answer.text, "tool_calls": calls}
    stop = answer.stop or ("tool_calls" if answer.calls else "stop")
    return {
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": stop}],
        "usage": {"prompt_tokens": answer.tokens_in, "completion_tokens": answer.tokens_out},
    }


# -- Anthropic's stream


def _anthropic(answer: Answer) -> Iterator[bytes]:
    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\r\n".encode() + _event({"type": kind, **more}, b"\r\n")

    def usage(name: str, value: int) -> dict[str, Any]:
        return {"usage": {name: value}} if answer.told_tokens else {}

    message = {"model": f"{MODEL}-0613", **usage("input_tokens", answer.tokens_in)}
    yield event("message_start", message=message)
    yield event("ping")
    places = itertools.count()
    if answer.text:
        at = next(places)
        yield event("content_block_start", index=at, content_block={"type": "text", "text": ""})
        for piece in _cut_up(answer.text):
            delta = {"type": "text_delta", "text": piece}
            yield event("content_block_delta", index=at, delta=delta)
        yield event("content_block_stop", index=at)
    for call in answer.calls:
        at = next(places)
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield event("content_block_start", index=at, content_block=block)
        for piece in _cut_up(call.arguments):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield event("content_block_delta", index=at, delta=delta)
        yield event("content_block_stop", index=at)
    stops = {"length": "max_tokens", "content_filter": "refusal"}
    stop = stops.get(answer.stop, "tool_use" if answer.calls else "end_turn")
    used = usage("output_tokens", answer.tokens_out)
    yield event("message_delta", delta={"stop_reason": stop}, **used)
    yield event("message_stop")


def _event(plain: dict[str, Any], end: bytes = b"\n") -> bytes:
    # As it is, not escaped, so that a piece may end within a character.
    return b"data: " + json.dumps(plain, ensure_ascii=False).encode() + end + end


# -- faults


def _status(status: int, plain: Any) -> Callable[[ChatServer, Any, Any], None]:
    return lambda server, handler, body: handler.answer(status, plain)


def _hang(server: ChatServer, handler: Any, body: Any) -> None:
    server.released.wait()


def _half(server: ChatServer, handler: Any, body: Any) -> bytes:
    """The first half of an answer's stream, streamed."""
    handler.begin()
    whole: bytes = handler.events(server.next(body))
    handler.stream(whole[: len(whole) // 2])
    return whole


def _stall(server: ChatServer, handler: Any, body: Any) -> None:
    _half(server, handler, body)
    server.released.wait()


def _cut(server: ChatServer, handler: Any, body: Any) -> None:
    """The connection is gone in mid-answer."""
    _half(server, handler, body)
    handler.close_connection = True


def _ended(server: ChatServer, handler: Any, body: Any) -> None:
    """The stream ends well, the answer does not."""
    _half(server, handler, body)
    handler.wfile.write(b"0\r\n\r\n")


def _reset(server: ChatServer, handler: Any, body: Any) -> None:
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True
    handler.connection.close()


def _lingers(server: ChatServer, handler: Any, body: Any) -> None:
    """A whole answer, and then the server does not hang up."""
    handler.begin()
    handler.stream(handler.events(server.next(body)))
    server.released.wait()


def _fails_midway(server: ChatServer, handler: Any, body: Any) -> None:
    whole = _half(server, handler, body)
    # Up to the end of the event that was begun.
    half = len(whole) // 2
    end = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
    handler.stream(whole[half : whole.index(end, half) + len(end)])
    handler.stream(_event(_error(f"Overloaded for {KEY}")))
    handler.wfile.write(b"0\r\n\r\n")


def _garbled(server: ChatServer, handler: Any, body: Any) -> None:
    handler.begin()
    handler.stream(b"data: {nonsense\n\n")
    handler.wfile.write(b"0\r\n\r\n")


def _huge(server: ChatServer, handler: Any, body: Any) -> None:
    """A line that never ends."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    handler.wfile.write(b"data: ")
    while not server.released.is_set():
        handler.wfile.write(b"x" * (1 << 20))


def _redirect(server: ChatServer, handler: Any, body: Any) -> None:
    handler.send_response(307)
    handler.send_header("Location", server.url + "/elsewhere")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


_FAULTS: dict[str, Callable[[ChatServer, Any, Any], None]] = {
    "hang": _hang,
    "stall": _stall,
    "cut": _cut,
    "ended": _ended,
    "reset": _reset,
    "lingers": _lingers,
    "fails_midway": _fails_midway,
    "garbled": _garbled,
    "huge": _huge,
    "redirect": _redirect,
    "401": _status(401, _error(f"Incorrect API key provided: {KEY}")),
    "402": _status(402, _error("Payment required")),
    "413": _status(413, "too large"),
    "429": _status(429, _error("Rate limit reached")),
    "quota": _status(429, _error("You exceeded your quota", code="insufficient_quota")),
    "500": _status(500, _error("the runner has terminated")),
    "503": _status(503, "busy"),
    "529": _status(529, _error("Overloaded")),
    "400": _status(400, _error("the request is not what I expect")),
    "too_long": _status(400, _error("prompt is too long: 210000 tokens > 200000 maximum")),
    "not_json": _status(200, "<html>It works!</html>"),
    "other_json": _status(200, {"choices": 3, "type": 7}),
    "nothing": _status(200, ""),
}
FAULTS = sorted(_FAULTS)


openai_model = partial(HttpModel, "openai")
anthropic_model = partial(HttpModel, "anthropic")
ollama_model = partial(HttpModel, "ollama")
