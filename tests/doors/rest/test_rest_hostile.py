"""A server that is sent what no client sends: it answers, stays up, and keeps no connection."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from teaming import OWN, Team, submit, team

from ralph.__main__ import _mcp_of
from ralph.doors.rest.app import ServerLimits, limited_connection, make_api
from ralph.doors.rest.main import McpSessions, Paths, bound

LIMITS = ServerLimits(per_second=10_000, burst=10_000, body_bytes=10_000)
DEEP = b'[{"feature": "auth", "errors": ' + b"[" * 900 + b"]" * 900 + b"}]"
CHUNK = b"2800\r\n" + b"a" * 0x2800 + b"\r\n"
_LONG_S = 50.0


class Listening:
    """The server of a team on a port."""

    def __init__(self, made: Team, port: int) -> None:
        self.team, self.port = made, port
        self.token = made.token()
        self.path = f"/v1/projects/{OWN}"

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """The head of a request with a token."""
        given = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {self.token}"]
        return "\r\n".join([*given, *lines, "", ""]).encode()

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=_LONG_S) as one:
            yield one

    def send(self, data: bytes) -> bytes:
        """What is answered, until the connection is closed or the answer is whole."""
        told = b""
        with self.connected() as one:
            one.sendall(data)
            while part := one.recv(65536):
                told += part
                head, found, body = told.partition(b"\r\n\r\n")
                length = next(
                    (int(x[15:]) for x in head.lower().split(b"\r\n") if x[:15] == _LENGTH), 0
                )
                if found and len(body) >= length:
                    break
        return told

    def is_well(self) -> bool:
        """Whether it answers as ever."""
        return self.send(self.head("GET", f"{self.path}/features")).startswith(b"HTTP/1.1 200")


_LENGTH = b"content-length:"


@contextlib.contextmanager
def listening(folder: Path, limits: ServerLimits) -> Iterator[Listening]:
    with team(folder, limits) as made, bound("127.0.0.1", 0) as opened:
        sessions = McpSessions(made.server, _mcp_of)
        connection = limited_connection(limits)
        app = Paths(make_api(made.server, sessions.route), None, sessions, connection)
        config = uvicorn.Config(
            app, http=connection, ws="none", log_config=None, log_level="critical"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            yield Listening(made, opened.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with listening(tmp_path_factory.mktemp("team"), LIMITS) as one:
        yield one


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONG_S
    while not holds():
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("method", "path", "lines", "body", "code"),
    [
        ("GET", "/records/%00%00%00%00", (), b"", 404),
        ("GET", "/records/%ff%fe%fd%fc", (), b"", 404),
        ("GET", "/records/%ed%a0%80%ed%a0%80", (), b"", 404),
        # A name like any other, which no feature has; it leads to no file.
        ("GET", "/features/..%2f..%2fetc/files", (), b"", 200),
        ("GET", "/search?q=" + "a" * 50_000, (), b"", 200),
        ("GET", "/search?q=" + "+".join(f"w{n}" for n in range(8000)), (), b"", 200),
        ("GET", "/search?q=login" + "&a=1" * 10_000, (), b"", 400),
        ("GET", "/recent?count=" + "9" * 5000, (), b"", 400),
        ("GET", "/status", ("x: " + "a" * 200_000,), b"", 400),
        ("POST", "/notes", ("transfer-encoding: chunked",), b"ZZZ\r\nabc", 400),
        ("POST", "/notes", ("content-length: -5",), b"", 400),
        ("POST", "/notes", ("content-length: 99999999999",), b"{", 413),
        ("POST", "/notes", ("content-length: 5", "transfer-encoding: chunked"), b"0\r\n\r\n", 400),
        ("POST", "/notes", ("transfer-encoding: chunked",), CHUNK, 413),
        ("POST", "/iterations", (f"content-length: {len(DEEP)}",), DEEP, 400),
        ("FOO", "/status", (), b"", 405),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_what_no_client_sends_is_refused(
    served: Listening, method: str, path: str, lines: tuple[str, ...], body: bytes, code: int
) -> None:
    told = served.send(served.head(method, served.path + path, *lines) + body)
    assert told.startswith(f"HTTP/1.1 {code} ".encode()), told[:500]
    assert served.is_well()


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00\x01" * 100, b"GET /\xff HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n"],
)
def test_what_is_no_http_is_refused(served: Listening, data: bytes) -> None:
    assert served.send(data)[:10] in (b"HTTP/1.1 4", b"")
    assert served.is_well()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"[]", b'{"jsonrpc": "2.0", "id": "\\ud83d"}', b"\xff"]
)
def test_what_is_no_mcp_is_refused(served: Listening, body: bytes) -> None:
    accept = "accept: application/json, text/event-stream"
    lines = (accept, "content-type: application/json", f"content-length: {len(body)}")
    told = served.send(served.head("POST", f"/projects/{OWN}/mcp", *lines) + body)
    assert told.startswith(b"HTTP/1.1 4"), told[:500]
    assert served.is_well()


def test_a_body_that_does_not_come_and_a_connection_without_a_request_are_given_up(
    tmp_path: Path,
) -> None:
    with listening(tmp_path, LIMITS._replace(request_s=0.5, idle_s=0.2)) as served:
        with served.connected() as one:
            one.sendall(served.head("POST", f"{served.path}/notes", "content-length: 100") + b"{")
            assert one.recv(12) == b"HTTP/1.1 408"
        for sent in (b"", b"GET / HT"):
            with served.connected() as one:
                one.sendall(sent)
                assert one.recv(1) == b""
        with served.connected() as one:  # the same after a request was answered
            one.sendall(served.head("GET", "/healthz") + b"GET / HT")
            told = b""
            while part := one.recv(65536):
                told += part
            assert b"ok" in told


def test_many_connections_do_not_keep_others_out(served: Listening) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(served.connected()).sendall(b"GET / HT")
        assert served.is_well()


def test_when_too_many_wait_the_next_one_is_refused(tmp_path: Path) -> None:
    goes_on = threading.Event()
    with listening(tmp_path, LIMITS._replace(threads=1, waiting=2)) as served:
        assert served.is_well()
        server = served.team.server
        with contextlib.ExitStack() as stack:
            stack.callback(goes_on.set)
            for _ in range(3):
                submit(server, lambda: goes_on.wait(_LONG_S))
            for path in (f"{served.path}/features", "/readyz"):
                told = served.send(served.head("GET", path))
                assert told.startswith(b"HTTP/1.1 503"), told
                assert b"retry-after" in told
            assert served.send(served.head("GET", "/healthz")).startswith(b"HTTP/1.1 200")
        until(served.is_well)
