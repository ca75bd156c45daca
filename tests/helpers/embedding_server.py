"""A server on loopback that speaks Ollama's and OpenAI's wire formats, and fails when told to.

Its vectors are real: they come from the static table, so that what is found by them makes sense.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np

from ralph.index.embedders.served import recipe_for
from ralph.index.embedders.static import StaticEmbedder

OLLAMA_MODEL = "nomic-embed-text"
OPENAI_MODEL = "text-embedding-3-small"
KEY = "sk-loopback-0123456789abcdef"
_STATIC = StaticEmbedder()


class Asked(NamedTuple):
    """One request as it came in."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


class EmbeddingServer:
    """Set `fault` and it fails; `requests` tells what it was asked."""

    def __init__(self) -> None:
        self.digests = {f"{OLLAMA_MODEL}:latest": "sha256:0a109f422b47e3a30ba2b10eca18548e"}
        self.loaded = True
        self.dims = 256
        self.key: str | None = None
        self.numbered = True
        # A server may refuse a longer text instead of cutting it.
        self.longest_chars: int | None = None
        self.retry_after: str | None = None
        # A name of `_FAULTS`; how many requests it still meets (None: all), and which of them.
        self.fault: str | None = None
        self.fault_times: int | None = None
        self.fault_paths: tuple[str, ...] = ("/api/embed", "/v1/embeddings")
        self.requests: list[Asked] = []
        self.connections = 0
        # Set when the server ends: whoever hangs goes on.
        self.released = threading.Event()
        # Set by a test to let a slow answer out.
        self.go_on = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def fail(self, fault: str | None, *, times: int | None = None, paths: str = "") -> None:
        """Meet requests with this fault from now on, or answer them again."""
        self.fault, self.fault_times = fault, times
        if paths:
            self.fault_paths = tuple(paths.split())

    def asked(self, path: str) -> list[Asked]:
        """The requests for this path."""
        return [one for one in self.requests if one.path == path]

    def texts(self) -> list[str]:
        """Every text it was given, in order."""
        return [t for one in self.requests if one.method == "POST" for t in one.body["input"]]

    def close(self) -> None:
        """End it, and everybody who waits in it."""
        self.released.set()
        self.go_on.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def due(self, path: str) -> str | None:
        """The fault that this request meets."""
        if self.fault is None or path not in self.fault_paths:
            return None
        if self.fault_times is not None:
            if self.fault_times <= 0:
                return None
            self.fault_times -= 1
        return self.fault

    def vectors(self, texts: list[str], model: str, dims: int | None) -> list[list[float]]:
        """What the model makes of these texts; like a real one it looks through the prefixes."""
        recipe = recipe_for(model)
        bare = [t.removeprefix(recipe.query).removeprefix(recipe.passage) for t in texts]
        rows = _STATIC.embed_passages(bare)[:, : dims or self.dims]
        # Servers need not give vectors of length one.
        return [[float(x) for x in row * np.float32(3.0)] for row in rows]


@contextlib.contextmanager
def running() -> Iterator[EmbeddingServer]:
    """A server for as long as the block lasts."""
    server = EmbeddingServer()
    try:
        yield server
    finally:
        server.close()


def _handler(server: EmbeddingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def setup(self) -> None:
            server.connections += 1
            super().setup()

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._serve("GET", None)

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            self._serve("POST", json.loads(data))

        def _serve(self, method: str, body: Any) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append(Asked(method, self.path, body, headers))
            fault = server.due(self.path)
            with contextlib.suppress(OSError):  # the client has gone
                if fault is None or not _FAULTS[fault](server, self, body):
                    self.answer(*self._made(body))

        def _made(self, body: Any) -> tuple[int, Any]:
            longest = server.longest_chars
            if body and longest and any(len(text) > longest for text in body["input"]):
                return 413, {"error": "the input is longer than the context"}
            match self.path:
                case "/api/tags":
                    return 200, {"models": [_listed(*one) for one in server.digests.items()]}
                case "/api/ps":
                    loaded = server.digests.items() if server.loaded else ()
                    return 200, {"models": [_listed(*one) for one in loaded]}
                case "/api/embed":
                    return self._ollama(body)
                case "/v1/embeddings":
                    return self._openai(body)
            return 404, "404 page not found"

        def _ollama(self, body: Any) -> tuple[int, Any]:
            model = body["model"]
            if f"{model}:latest" not in server.digests:
                return 404, {"error": f'model "{model}" not found, try pulling it first'}
            rows = server.vectors(body["input"], model, None)
            return 200, {"model": model, "embeddings": rows, "total_duration": 1}

        def _openai(self, body: Any) -> tuple[int, Any]:
            given = self.headers.get("Authorization", "")
            if server.key is not None and given != f"Bearer {server.key}":
                said = f"Incorrect API key provided: {given.removeprefix('Bearer ')}"
                return 401, {"error": {"message": said, "code": "invalid_api_key"}}
            if body["model"] != OPENAI_MODEL:
                return 404, {"error": {"message": "The model does not exist"}}
            if any(not text.strip() for text in body["input"]):
                return 400, {"error": {"message": "'input' cannot hold an empty string"}}
            rows = server.vectors(body["input"], body["model"], body.get("dimensions"))
            data: list[dict[str, object]] = [
                {"object": "embedding", "index": place, "embedding": row}
                for place, row in enumerate(rows)
            ]
            if server.numbered:
                data.reverse()  # the order is told by the index
            else:
                data = [{"embedding": row} for row in rows]
            return 200, {"object": "list", "data": data, "usage": {"total_tokens": 1}}

        def answer(self, status: int, plain: Any, **headers: str) -> None:
            data = plain.encode() if isinstance(plain, str) else json.dumps(plain).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

    return Handler


def _listed(name: str, digest: str) -> dict[str, object]:
    return {"name": name, "model": name, "size": 274302450, "digest": digest}


# -- faults: each says whether it has answered; if not, the right answer follows


def _status(status: int, plain: Any) -> Callable[[EmbeddingServer, Any, Any], bool]:
    def fault(server: EmbeddingServer, handler: Any, body: Any) -> bool:
        more = {} if server.retry_after is None else {"Retry_After": server.retry_after}
        handler.answer(status, plain, **more)
        return True

    return fault


def _rows(change: Callable[[list[Any]], Any]) -> Callable[[EmbeddingServer, Any, Any], bool]:
    """An answer in the right format whose vectors are not."""

    def fault(server: EmbeddingServer, handler: Any, body: Any) -> bool:
        rows = change(server.vectors(body["input"], body["model"], None))
        data = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
        # One answer that both dialects read.
        handler.answer(200, {"embeddings": rows, "data": data})
        return True

    return fault


def _hang(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    server.released.wait()
    return True


def _slow(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    server.go_on.wait()
    return False


def _drip(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    """A promised answer that comes blank by blank and never ends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not server.released.wait(0.01):
        handler.wfile.write(b" ")
        handler.wfile.flush()
    return True


def _drip_head(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    """A head that never ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not server.released.wait(0.01):
        handler.wfile.write(b"x")
        handler.wfile.flush()
    return True


def _reset(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True
    handler.connection.close()
    return True


def _no_http(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    handler.wfile.write(b"+OK this is another service\r\n\r\n")
    handler.close_connection = True
    return True


def _huge(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    """More bytes than any answer has."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    while not server.released.is_set():
        handler.wfile.write(b" " * (1 << 20))
    return True


def _redirect(server: EmbeddingServer, handler: Any, body: Any) -> bool:
    handler.answer(307, "", Location=server.url + "/elsewhere")
    return True


_QUOTA = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
_FAULTS: dict[str, Callable[[EmbeddingServer, Any, Any], bool]] = {
    "hang": _hang,
    "slow": _slow,
    "drip": _drip,
    "drip_head": _drip_head,
    "reset": _reset,
    "no_http": _no_http,
    "huge": _huge,
    "redirect": _redirect,
    "429": _status(429, {"error": {"message": "Rate limit reached"}}),
    "quota": _status(429, _QUOTA),
    "500": _status(500, {"error": "llama runner process has terminated"}),
    "503": _status(503, "busy"),
    "400": _status(400, {"error": "the input is not what I expect"}),
    "not_json": _status(200, "<html>It works!</html>"),
    "other_json": _status(200, {"embedding": [0.1, 0.2]}),
    "half": _rows(lambda rows: rows[: len(rows) // 2]),
    "more": _rows(lambda rows: [*rows, rows[0]]),
    "dims": _rows(lambda rows: [row[:128] for row in rows]),
    "ragged": _rows(lambda rows: [row[: 256 - place] for place, row in enumerate(rows)]),
    "empty": _rows(lambda rows: [[] for _ in rows]),
    "nan": _rows(lambda rows: [[float("nan"), *row[1:]] for row in rows]),
    "infinite": _rows(lambda rows: [[1e300, *row[1:]] for row in rows]),
    "words": _rows(lambda rows: [["one", *row[1:]] for row in rows]),
}
FAULTS = sorted(_FAULTS)
