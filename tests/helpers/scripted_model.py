"""A model behind loopback that plays a script, for the APIs of Anthropic, OpenAI and Gemini.

A conversation is given the first run of the script that no other has and whose `when` is found in
its prompt; within it, the number of the model's turns so far chooses the step, so a request that
is sent again gets the same answer. Everything that was asked is kept, for the tests to look at
what a model was shown; what the script has no answer to fails the test. As a program it serves
while a command runs:

    python scripted_model.py --port 8000 --script SCRIPT.json --log LOG.jsonl -- COMMAND...
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

# How often a stalled answer looks whether somebody still waits for it.
_LOOK_EVERY_S = 0.05


class Call(msgspec.Struct, frozen=True):
    """The model wants a tool to be used."""

    tool: str
    given: dict[str, Any] | str = {}  # a text: what a tool of Codex without a schema is given


class Refusal(msgspec.Struct, frozen=True):
    """The API says no instead of answering, the first `times` times or always."""

    status: int
    type: str
    message: str = "the script says no"
    times: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the model."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    refusal: Refusal | None = None
    stalls: bool = False  # says its text, then nothing until the client goes
    cut: bool = False  # the stream breaks off behind the text
    tokens_in: int = 100
    tokens_out: int = 20


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of one conversation; behind the last one there is none."""

    steps: tuple[Step, ...]
    when: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the model was shown."""

    path: str
    body: dict[str, Any]
    session: str = ""
    run: int | None = None  # which of the script's; none for what clients ask beside the work
    turn: int = 0
    complaint: str = ""

    @property
    def system(self) -> str:
        """Everything that stands above the conversation."""
        above = (self.body.get(key) for key in ("system", "instructions", "systemInstruction"))
        return _text(next(filter(None, above), ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation so far, in the API's own words."""
        kinds = (self.body.get(key) for key in ("messages", "input", "contents"))
        found: list[dict[str, Any]] = next(filter(None, kinds), [])
        return found

    @property
    def shown(self) -> str:
        """Every text of the conversation that is not the model's own."""
        return "\n".join(_text(one) for one in self.messages if not _is_models_own(one))

    @property
    def results(self) -> list[str]:
        """What tools answered, oldest first."""
        return [_text(one) for one in _results(self.messages)]

    @property
    def tools(self) -> dict[str, str]:
        """The names of the tools on offer, each with its description."""
        return dict(_tools(self.body.get("tools") or []))


def _text(value: Any) -> str:
    """The text in a block of any of the APIs, or in a list of them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        keys = ("text", "content", "output", "parts", "functionResponse", "response", "error")
        parts = (value.get(key) for key in keys)
        return "\n".join(filter(None, map(_text, filter(None, parts))))
    return ""


def _is_models_own(message: dict[str, Any]) -> bool:
    if message.get("role"):
        return message["role"] in ("assistant", "model")
    return str(message.get("type", "")).endswith("call") or message.get("type") == "reasoning"


def _turns(messages: list[dict[str, Any]]) -> int:
    """How often the model has spoken: a turn may be several items in a row."""
    return sum(own for own, _ in itertools.groupby(messages, key=_is_models_own))


def _results(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        if str(message.get("type", "")).endswith("call_output"):
            yield message
        elif isinstance(message.get("content"), list):
            yield from (part for part in message["content"] if part.get("type") == "tool_result")
        else:
            yield from (part for part in message.get("parts", []) if "functionResponse" in part)


def _tools(tools: list[dict[str, Any]], inside: str = "") -> Iterator[tuple[str, str]]:
    for tool in tools:
        if "functionDeclarations" in tool:
            yield from _tools(tool["functionDeclarations"])
            continue
        name = inside + str(tool.get("name") or tool.get("type"))
        if tool.get("type") == "namespace":
            yield from _tools(tool["tools"], f"{name}.")
        yield name, str(tool.get("description", ""))


class ScriptedModel:
    """The server, in a thread of its own; use it in a `with` block."""

    def __init__(self, *runs: Run, port: int = 0, log: Path | None = None) -> None:
        self.runs = runs
        self.closing = threading.Event()
        self._log = log
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._broken: list[str] = []
        self._given: dict[str, int] = {}
        self._refused: dict[tuple[int, int], int] = {}
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if error is None:
            assert not self.complaints, "\n".join(self.complaints)

    def asked(self, run: int) -> list[Request]:
        """The requests of one run of the script, in order."""
        with self._lock:
            return [one for one in self._requests if one.run == run]

    @property
    def complaints(self) -> list[str]:
        """What clients asked that the script has no answer to."""
        with self._lock:
            return [*self._broken, *(one.complaint for one in self._requests if one.complaint)]

    def complain(self, complaint: str) -> None:
        """Keep what went wrong in the server itself."""
        with self._lock:
            self._broken.append(complaint)

    def hear(self, request: Request) -> None:
        """Keep a request."""
        with self._lock:
            self._requests.append(request)
            if self._log:
                with self._log.open("ab") as file:
                    file.write(msgspec.json.encode(request) + b"\n")

    def run_of(self, session: str, prompt: str) -> int | None:
        """Which run this conversation plays; the same one whenever it is asked."""
        with self._lock:
            if session not in self._given:
                taken = set(self._given.values())
                for number, run in enumerate(self.runs):
                    if number not in taken and re.search(run.when, prompt):
                        self._given[session] = number
                        break
            return self._given.get(session)

    def step(self, run: int, turn: int) -> Step | None:
        """What the model does now; none when the script has ended."""
        steps = self.runs[run].steps
        if turn >= len(steps):
            return None
        step = steps[turn]
        if step.refusal and step.refusal.times is not None:
            with self._lock:
                count = self._refused[run, turn] = self._refused.get((run, turn), 0) + 1
            if count > step.refusal.times:
                return msgspec.structs.replace(step, refusal=None)
        return step


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that none outlives the `with` block
    model: ScriptedModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may go whenever it likes; everything else is a defect of ours."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.model.complain(f"the scripted model broke: {error!r}")


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the requests are kept."""

    def do_HEAD(self) -> None:
        """Clients look whether somebody is there."""
        self._send(200, {})

    def do_GET(self) -> None:
        """There is nothing to get."""
        self.server.model.hear(Request(path=self.path, body={}))
        self._refuse(Refusal(404, "not_found_error", f"there is no {self.path}"))

    def do_POST(self) -> None:
        """Answer with the script's step."""
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw or b"{}")
        path = self.path.partition("?")[0]
        dialect = _DIALECTS.get(path)
        if path.startswith(_GEMINI):
            model, _, verb = path.removeprefix(_GEMINI).partition(":")
            body |= {"model": model, "stream": verb == "streamGenerateContent"}
            dialect = _Gemini
        if path.endswith(("/count_tokens", ":countTokens")):
            self.server.model.hear(Request(path=path, body=body))
            self._send(200, {"input_tokens": len(raw) // 4 + 1, "totalTokens": len(raw) // 4 + 1})
        elif dialect is None:
            self.server.model.hear(Request(path=path, body=body))
            self._refuse(Refusal(404, "not_found_error", f"there is no {path}"))
        else:
            self._answer(path, body, dialect)

    def _answer(self, path: str, body: dict[str, Any], dialect: _Dialect) -> None:
        model = self.server.model
        if not body.get("tools"):  # a title for the session and the like
            model.hear(Request(path=path, body=body))
            self._play(Step(text="ok"), body, dialect)
            return
        heard = Request(path=path, body=body, session=dialect.session(body))
        turn = _turns(heard.messages)
        run = model.run_of(heard.session or _text(heard.messages[:1]), heard.shown)
        step = None if run is None else model.step(run, turn)
        told = f"turn {turn} of run {run}, where the last words were {heard.shown[-300:]!r}"
        complaint = "" if step else f"the script has no {told}"
        model.hear(msgspec.structs.replace(heard, run=run, turn=turn, complaint=complaint))
        self._play(step or Step(refusal=Refusal(400, "script_ended", complaint)), body, dialect)

    def _play(self, step: Step, body: dict[str, Any], dialect: _Dialect) -> None:
        if step.refusal:
            self._refuse(step.refusal)
        elif body.get("stream"):
            self._stream(step, dialect.events(step, str(body.get("model"))))
        elif not (step.stalls or step.cut):
            self._send(200, dialect.whole(step, str(body.get("model"))))
        if step.stalls:
            self._wait_for_the_end()

    def _refuse(self, refusal: Refusal) -> None:
        error = {"type": refusal.type, "message": refusal.message}
        self._send(refusal.status, {"type": "error", "error": error})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, step: Step, events: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.end_headers()
        broken = step.stalls or step.cut
        for event in events[: len(events) // 2] if broken else events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _wait_for_the_end(self) -> None:
        while not self.server.model.closing.is_set():
            said_something = select.select([self.connection], [], [], _LOOK_EVERY_S)[0]
            if said_something and not self.connection.recv(1, socket.MSG_PEEK):
                return


class _Messages:
    """Anthropic's Messages API."""

    @staticmethod
    def session(body: dict[str, Any]) -> str:
        """What tells this conversation from others."""
        return str((body.get("metadata") or {}).get("user_id", ""))

    @staticmethod
    def whole(step: Step, model: str) -> dict[str, Any]:
        """The answer in one piece."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": step.text}] if step.text else []
        for call in step.calls:
            name = {"name": call.tool, "input": call.given}
            blocks.append({"type": "tool_use", "id": _new("toolu"), **name})
        return {
            "id": _new("msg"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": blocks,
            "stop_reason": "tool_use" if step.calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": step.tokens_in, "output_tokens": step.tokens_out},
        }

    @staticmethod
    def events(step: Step, model: str) -> list[dict[str, Any]]:
        """The answer as it is streamed."""
        whole = _Messages.whole(step, model)
        begun = whole | {"content": [], "stop_reason": None}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
        for index, block in enumerate(whole["content"]):
            at = {"index": index}
            if block["type"] == "text":
                begun = block | {"text": ""}
                delta = {"type": "text_delta", "text": block["text"]}
            else:
                begun = block | {"input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            events.append({"type": "content_block_start", **at, "content_block": begun})
            events.append({"type": "content_block_delta", **at, "delta": delta})
            events.append({"type": "content_block_stop", **at})
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": stop, "usage": whole["usage"]})
        return [*events, {"type": "message_stop"}]


class _Responses:
    """OpenAI's Responses API."""

    @staticmethod
    def session(body: dict[str, Any]) -> str:
        """What tells this conversation from others."""
        return str(body.get("prompt_cache_key") or "")

    @staticmethod
    def whole(step: Step, model: str) -> dict[str, Any]:
        """The answer in one piece."""
        items: list[dict[str, Any]] = []
        if step.text:
            content = [{"type": "output_text", "text": step.text, "annotations": []}]
            items.append({"type": "message", "role": "assistant", "content": content})
        for call in step.calls:
            namespace, _, name = call.tool.rpartition(".")
            item = {"call_id": _new("call"), "name": name}
            if namespace:
                item["namespace"] = namespace
            if isinstance(call.given, str):
                item |= {"type": "custom_tool_call", "input": call.given}
            else:
                item |= {"type": "function_call", "arguments": json.dumps(call.given)}
            items.append(item)
        return {
            "id": _new("resp"),
            "object": "response",
            "status": "completed",
            "model": model,
            "output": [{"id": _new("item"), **item} for item in items],
            "usage": {
                "input_tokens": step.tokens_in,
                "output_tokens": step.tokens_out,
                "total_tokens": step.tokens_in + step.tokens_out,
            },
        }

    @staticmethod
    def events(step: Step, model: str) -> list[dict[str, Any]]:
        """The answer as it is streamed."""
        whole = _Responses.whole(step, model)
        begun = whole | {"status": "in_progress", "output": []}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(whole["output"]):
            events.append(
                {"type": "response.output_item.done", "output_index": index, "item": item}
            )
        return [*events, {"type": "response.completed", "response": whole}]


class _Gemini:
    """Gemini's API."""

    @staticmethod
    def session(body: dict[str, Any]) -> str:
        """Nothing tells a conversation from others but how it begins."""
        return ""

    @staticmethod
    def whole(step: Step, model: str) -> dict[str, Any]:
        """The answer in one piece."""
        parts: list[dict[str, Any]] = [{"text": step.text}] if step.text else []
        parts += ({"functionCall": {"name": c.tool, "args": c.given}} for c in step.calls)
        return {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
            ],
            "modelVersion": model,
            "usageMetadata": {
                "promptTokenCount": step.tokens_in,
                "candidatesTokenCount": step.tokens_out,
                "totalTokenCount": step.tokens_in + step.tokens_out,
            },
        }

    @staticmethod
    def events(step: Step, model: str) -> list[dict[str, Any]]:
        """The answer as it is streamed."""
        return [_Gemini.whole(step, model)]


_GEMINI = "/v1beta/models/"
_Dialect = type[_Messages] | type[_Responses] | type[_Gemini]
_DIALECTS: dict[str, _Dialect] = {"/v1/messages": _Messages, "/v1/responses": _Responses}
_numbers = itertools.count(1)


def _new(kind: str) -> str:
    return f"{kind}_{next(_numbers):06}"


def main(argv: Sequence[str]) -> int:
    """Serve while the command runs, and end as it does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(argv)
    runs = msgspec.json.decode(given.script.read_bytes(), type=tuple[Run, ...])
    with ScriptedModel(*runs, port=given.port, log=given.log):
        return subprocess.run(given.command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
