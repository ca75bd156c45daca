"""A server on loopback that speaks Qdrant's REST interface, and fails when told to.

Behind it stands the local mode of Qdrant's own client, so that what it answers is real. Run as a
script it stands for the `qdrant` binary: it reads the same environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pydantic
from qdrant_client import QdrantClient, models

KEY = "qd-loopback-0123456789abcdef"
VERSION = "1.15.4"


class Asked(NamedTuple):
    """One request as it came in."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


class QdrantServer:
    """Set a fault and it fails; `requests` tells what it was asked."""

    def __init__(self, port: int = 0, client: Any = None) -> None:
        self.client = client or QdrantClient(":memory:")
        self.version = VERSION
        self.title = "qdrant - vector search engine"
        self.key: str | None = None
        self.requests: list[Asked] = []
        # Set when the server ends: whoever hangs goes on.
        self.released = threading.Event()
        self._fault: tuple[str, int | None, re.Pattern[str]] | None = None
        # Called after each request that was carried out, before it is answered.
        self.after: Callable[[Asked], None] = lambda asked: None
        # Local mode is not made for several threads.
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def fail(self, fault: str | None, *, times: int | None = None, paths: str = "") -> None:
        """Meet requests (`METHOD /path` matched by a pattern) with this fault from now on."""
        self._fault = None if fault is None else (fault, times, re.compile(paths))

    def asked(self, pattern: str) -> list[Asked]:
        """The requests whose `METHOD /path` fits."""
        return [one for one in self.requests if re.search(pattern, f"{one.method} {one.path}")]

    def due(self, asked: Asked) -> str | None:
        """The fault that this request meets."""
        if self._fault is None:
            return None
        fault, times, paths = self._fault
        if not paths.search(f"{asked.method} {asked.path}") or times == 0:
            return None
        if times is not None:
            self._fault = fault, times - 1, paths
        return fault

    def close(self) -> None:
        """End it, and everybody who waits in it."""
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def running(client: Any = None) -> Iterator[QdrantServer]:
    """A server for as long as the block lasts."""
    server = QdrantServer(client=client)
    try:
        yield server
    finally:
        server.close()


def _handler(server: QdrantServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._serve("GET")

        def do_PUT(self) -> None:
            self._serve("PUT")

        def do_POST(self) -> None:
            self._serve("POST")

        def do_DELETE(self) -> None:
            self._serve("DELETE")

        def _serve(self, method: str) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            path = unquote(urlsplit(self.path).path)
            asked = Asked(method, path, json.loads(data) if data else None, headers)
            server.requests.append(asked)
            with contextlib.suppress(OSError):  # the client has gone
                fault = server.due(asked)
                if fault is None or not _FAULTS[fault](server, self, asked):
                    self.answer(*_made(server, asked))

        def answer(self, status: int, plain: Any) -> None:
            data = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

    return Handler


def _made(server: QdrantServer, asked: Asked) -> tuple[int, Any]:
    if asked.path in ("/readyz", "/healthz"):
        return 200, b"all shards are ready"
    if asked.path == "/":
        return 200, {"title": server.title, "version": server.version}
    if server.key is not None and asked.headers.get("api-key") != server.key:
        return 401, b"Must provide an API key or an Authorization bearer token"
    try:
        with server.lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = _carried_out(server.client, asked)
    except (ValueError, KeyError) as error:
        missing = "not found" in str(error) or isinstance(error, KeyError)
        taken = "already exists" in str(error)
        return (404 if missing else 409 if taken else 400), {"status": {"error": str(error)}}
    server.after(asked)
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Any)
    plain = adapter.dump_python(result, mode="json")
    return 200, {"result": plain, "status": "ok", "time": 0.001}


def _carried_out(client: QdrantClient, asked: Asked) -> Any:
    match asked.method, asked.path.strip("/").split("/"):
        case "GET", ["collections"]:
            return client.get_collections()
        case "GET", ["aliases"]:
            return client.get_aliases()
        case "POST", ["collections", "aliases"]:
            changes = models.ChangeAliasesOperation(**asked.body).actions
            return client.update_collection_aliases(changes)
        case "PUT", ["collections", name]:
            made = models.CreateCollection(**asked.body)
            return client.create_collection(
                name,
                vectors_config=made.vectors,
                sparse_vectors_config=made.sparse_vectors,
                hnsw_config=made.hnsw_config,
                on_disk_payload=made.on_disk_payload,
            )
        case "GET", ["collections", name]:
            return client.get_collection(name)
        case "GET", ["collections", name, "exists"]:
            return {"exists": client.collection_exists(name)}
        case "DELETE", ["collections", name]:
            return client.delete_collection(name)
        case method, ["collections", name, *rest]:
            return _of_points(client, name, f"{method} {'/'.join(rest)}", asked.body)
    raise ValueError(f"{asked.path} not found")


def _of_points(client: QdrantClient, name: str, what: str, body: Any) -> Any:
    match what:
        case "PUT index":
            return client.create_payload_index(name, body["field_name"], body["field_schema"])
        case "PUT points":
            return client.upsert(name, [models.PointStruct(**one) for one in body["points"]])
        case "PUT points/vectors":
            return client.update_vectors(name, [models.PointVectors(**o) for o in body["points"]])
        case "POST points":
            return client.retrieve(
                name, body["ids"], body.get("with_payload", True), body.get("with_vector", False)
            )
        case "POST points/count":
            having = models.CountRequest(**body).filter
            return client.count(name, having, exact=True)
        case "POST points/scroll":
            page = models.ScrollRequest(**body)
            points, after = client.scroll(
                name,
                page.filter,
                limit=page.limit or 10,
                order_by=page.order_by,
                offset=page.offset,
                with_payload=True if page.with_payload is None else page.with_payload,
                with_vectors=page.with_vector or False,
            )
            return {"points": points, "next_page_offset": after}
        case "POST points/query":
            return _answered(client, name, models.QueryRequest(**body))
        case "POST points/query/batch":
            return [_answered(client, name, models.QueryRequest(**o)) for o in body["searches"]]
        case "POST points/payload":
            return client.set_payload(name, body["payload"], body["points"])
        case "POST points/payload/delete":
            return client.delete_payload(name, body["keys"], body["points"])
        case "POST points/delete":
            if "points" in body:
                return client.delete(name, body["points"])
            return client.delete(name, models.Filter(**body["filter"]))
    raise ValueError(f"{what} not found")


def _answered(client: QdrantClient, name: str, request: models.QueryRequest) -> Any:
    query: Any = request.query
    return client.query_points(
        name,
        query=query,
        using=request.using,
        limit=request.limit or 10,
        query_filter=request.filter,
        with_payload=request.with_payload or False,
    )


# -- faults: each says whether it has answered; if not, the right answer follows


def _status(status: int, plain: Any) -> Callable[[QdrantServer, Any, Asked], bool]:
    def fault(server: QdrantServer, handler: Any, asked: Asked) -> bool:
        handler.answer(status, plain)
        return True

    return fault


def _hang(server: QdrantServer, handler: Any, asked: Asked) -> bool:
    server.released.wait()
    return True


def _drip(server: QdrantServer, handler: Any, asked: Asked) -> bool:
    """A promised answer that comes blank by blank and never ends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not server.released.wait(0.01):
        handler.wfile.write(b" ")
        handler.wfile.flush()
    return True


def _reset(server: QdrantServer, handler: Any, asked: Asked) -> bool:
    """The connection is lost before the request was looked at."""
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True
    handler.connection.close()
    return True


def _half(server: QdrantServer, handler: Any, asked: Asked) -> bool:
    """Everything is carried out; the answer breaks off in the middle."""
    _, plain = _made(server, asked)
    data = json.dumps(plain).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.wfile.flush()
    handler.close_connection = True
    return True


def _some(server: QdrantServer, handler: Any, asked: Asked) -> bool:
    """Half of the points are written, then the server fails."""
    points = asked.body["points"]
    _made(server, asked._replace(body={"points": points[: len(points) // 2]}))
    handler.answer(500, {"status": {"error": "Service internal error: disk is full"}})
    return True


def _unfinished(server: QdrantServer, handler: Any, asked: Asked) -> bool:
    handler.answer(200, {"result": {"operation_id": 1, "status": "acknowledged"}, "status": "ok"})
    return True


_FAULTS: dict[str, Callable[[QdrantServer, Any, Asked], bool]] = {
    "hang": _hang,
    "drip": _drip,
    "reset": _reset,
    "half": _half,
    "some": _some,
    "unfinished": _unfinished,
    "500": _status(500, {"status": {"error": "Service internal error: no space"}}),
    "503": _status(503, b"busy"),
    "400": _status(400, {"status": {"error": "Wrong input: something is wrong"}}),
    "not_json": _status(200, b"<html>It works!</html>"),
    "other_json": _status(200, {"hello": "world"}),
    "redirect": _status(307, b""),
}
FAULTS = sorted(_FAULTS)
# What only some requests can be answered with.
_FAULTS["taken"] = _status(400, {"status": {"error": "Wrong input: it already exists!"}})


def main() -> None:
    """As the binary would: the port and the storage stand in the environment."""
    storage = Path(os.environ["QDRANT__STORAGE__STORAGE_PATH"])
    (storage / "collections").mkdir(parents=True, exist_ok=True)
    with (storage / "pids").open("a") as told:
        told.write(f"{os.getpid()}\n")
    client = QdrantClient(path=str(storage / "local"), force_disable_check_same_thread=True)
    server = QdrantServer(int(os.environ["QDRANT__SERVICE__HTTP_PORT"]), client)
    server.key = os.environ.get("QDRANT__SERVICE__API_KEY")
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    while not ended.wait(0.1):
        pass  # a signal that comes right before the wait does not end it
    server.close()
    client.close()
    sys.exit(0)


if __name__ == "__main__":
    main()
