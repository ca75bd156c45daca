"""Many clients of a server in one process, each with its own connection.

`python -m bench.load` reads a `Load` as JSON from stdin and prints a `Loaded`. A client that gets
no answer sends the same request to the next address, and tries its own one again after a second, as
a proxy would; after a 429, 503 or 504 it tries again. Writes have ids, so the server saves a
repeated one once.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import quote_plus

import msgspec

_PATIENCE_S = 120.0
_PAUSE_S = 0.05
_AWAY_S = 1.0
# The fields that contain the text of a note, an iteration and an exchange.
TEXTS = ("text", "summary", "assistant")
_AGAIN = (429, 503, 504)


class Load(msgspec.Struct, frozen=True):
    """What to send and where: one client per token, for this many seconds."""

    ports: list[int]
    tokens: list[str]
    path: str
    questions: list[str]
    seconds: float
    # One in this many requests is a write.
    write_every: int = 10
    seed: int = 20


class Loaded(msgspec.Struct):
    """How long each request took, what was acknowledged, and how many retries it took."""

    searches_s: list[float] = []
    writes_s: list[float] = []
    acknowledged: list[str] = []
    retries: int = 0
    seconds: float = 0.0


class _Connection(asyncio.Protocol):
    """A connection for one request at a time. Streams would take more of the servers' time."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._head = b""
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError())

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head, end, data = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                return
            length = self._head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._missing = int(length or 0)
        self._missing -= len(data)
        if not self._missing and self._answer is not None and not self._answer.done():
            self._answer.set_result(self._head)

    async def ask(self, request: bytes) -> bytes:
        """Send a request; return the head of the answer when all of it is here."""
        if self._transport.is_closing():
            raise EOFError
        self._answer = asyncio.get_running_loop().create_future()
        self._head = b""
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class _Client:
    """One client; it reconnects when its connection breaks."""

    def __init__(self, load: Load, number: int, result: Loaded) -> None:
        self._load = load
        self._number = number
        self._result = result
        self._rng = random.Random(f"{load.seed} {number}")
        self._at = number
        self._back_at = 0.0
        self._connection: _Connection | None = None
        self._written = 0

    async def run(self, end: float) -> None:
        while time.monotonic() < end:
            if self._rng.randrange(self._load.write_every):
                question = quote_plus(self._rng.choice(self._load.questions))
                self._result.searches_s.append(await self._send("GET", f"/search?q={question}"))
            else:
                await self._write()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    async def _write(self) -> None:
        self._written += 1
        key = f"{self._load.seed}-{self._number}-{self._written}"
        text = f"Client {key} deploys the {self._rng.choice(self._load.questions)}."
        second = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._written)
        iteration = {"feature": "load", "summary": text, "timestamp": second.isoformat()}
        exchange = {"user": f"What does {key} do?", "assistant": text, "key": key}
        path, body = [
            ("/notes", {"text": text}),
            ("/iterations", [iteration]),
            ("/conversations", {"session": f"s{self._number}", "exchanges": [exchange]}),
        ][self._written % 3]
        self._result.writes_s.append(await self._send("POST", path, msgspec.json.encode(body)))
        self._result.acknowledged.append(text)

    async def _send(self, method: str, path: str, body: bytes = b"") -> float:
        """Send until it succeeds; return how many seconds that took."""
        begin = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(30):
                    status = await self._ask(method, path, body)
            except (OSError, EOFError, TimeoutError):
                status = 0
            if 200 <= status < 300:
                return time.monotonic() - begin
            if status not in (0, *_AGAIN):
                raise SystemExit(f"{method} {path}: the server answered {status}")
            if time.monotonic() - begin > _PATIENCE_S:
                raise SystemExit(f"{method} {path}: no good answer within {_PATIENCE_S:g} s")
            self._result.retries += 1
            if not status:
                self._at, self._back_at = self._at + 1, time.monotonic() + _AWAY_S
                self._disconnect()
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, method: str, path: str, body: bytes) -> int:
        if self._at != self._number and time.monotonic() > self._back_at:
            self._at = self._number
            self._disconnect()
        if self._connection is None:
            port = self._load.ports[self._at % len(self._load.ports)]
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(_Connection, "127.0.0.1", port)
        token = self._load.tokens[self._number]
        head = await self._connection.ask(
            f"{method} {self._load.path}{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            f"authorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        if b"\r\nconnection: close" in head.lower():
            self._disconnect()
        return int(head[9:12])


async def drive(load: Load) -> Loaded:
    """Run all clients until the time is up."""
    result = Loaded()
    begin = time.monotonic()
    clients = [_Client(load, number, result) for number in range(len(load.tokens))]
    await asyncio.gather(*(one.run(begin + load.seconds) for one in clients))
    result.seconds = time.monotonic() - begin
    return result


def main() -> None:
    """Read a `Load` from stdin, run it, and print the result."""
    load = msgspec.json.decode(sys.stdin.buffer.read(), type=Load)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(drive(load))))


if __name__ == "__main__":
    main()
