"""The real PostgreSQL of the tests, and a way to it that can be cut.

RALPH_TEST_POSTGRES_URL points the tests at another server; RALPH_REQUIRE_POSTGRES makes it an
error that there is none.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from bench import postgres
from bench.postgres import PASSWORD, Server, programs

__all__ = ["PASSWORD", "Server", "programs"]

# Read now: every test takes RALPH_* out of its environment.
GIVEN_URL = os.environ.get("RALPH_TEST_POSTGRES_URL")
REQUIRED = bool(os.environ.get("RALPH_REQUIRE_POSTGRES"))
ENDURANCE_S = float(os.environ.get("RALPH_TEST_ENDURANCE_S", "3"))


def missing(why: str) -> None:
    """Skip the test for this reason, or fail where PostgreSQL is required."""
    if REQUIRED:
        pytest.fail(f"RALPH_REQUIRE_POSTGRES is set, but {why}")
    pytest.skip(why)


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """A server that may be stopped and started again; it is gone when the block is left."""
    if why := postgres.why_not():
        missing(why)
    with postgres.own_server() as server:
        yield server


def with_database(url: str, name: str) -> str:
    """The address of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


class Wire:
    """A way to a server that can be cut: right before a commit reaches it, or before its answer
    comes back. `cuts` says how often it does so; afterwards everything passes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._url = url
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.before_commit = 0
        self.after_commit = 0
        self.refuses = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the same database by way of this wire."""
        parts = urlsplit(self._url)
        login = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{self.port}"))

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            try:
                server = socket.create_connection(self._to)
            except OSError:  # the server is away; it may come back
                client.close()
                continue
            muted, answered = threading.Event(), threading.Event()
            ends = (client, server, muted, answered)
            threading.Thread(target=self._up, args=ends, daemon=True).start()
            threading.Thread(target=self._down, args=ends, daemon=True).start()

    def _up(
        self,
        client: socket.socket,
        server: socket.socket,
        muted: threading.Event,
        answered: threading.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if b"COMMIT\0" in data and self.before_commit:
                    self.before_commit -= 1
                    break
                if b"COMMIT\0" in data and self.after_commit:
                    self.after_commit -= 1
                    muted.set()
                    server.sendall(data)
                    answered.wait(30)
                    break
                server.sendall(data)
        _shut_quietly(client)
        _shut_quietly(server)

    def _down(
        self,
        client: socket.socket,
        server: socket.socket,
        muted: threading.Event,
        answered: threading.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if muted.is_set():
                    answered.set()
                else:
                    client.sendall(data)
        answered.set()
        _shut_quietly(client)


def _shut_quietly(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
