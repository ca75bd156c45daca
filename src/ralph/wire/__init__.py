"""HTTP to a model's server: one deadline for the whole answer, kept connections, no redirects.

The standard library's client, because importing a larger one takes longer than a search. A request
runs in a thread of its own, so that nothing (a name server, a handshake, an answer that comes byte
by byte) holds the caller beyond the deadline. An answer may also be taken piece by piece as it
comes; nobody but the caller's own thread ever sees it.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import SplitResult, urlsplit

from ralph.errors import MemoryOff
from ralph.wire.deadline import Deadline
from ralph.wire.exchange import (
    LARGEST_BYTES,
    Exchange,
    Reply,
    Request,
    Take,
    TooLarge,
    Unfinished,
    basic,
    connection_to,
)

if TYPE_CHECKING:
    from http.client import HTTPConnection

__all__ = ["Deadline", "Reply", "Take", "Wire", "versioned"]

Off = TypeVar("Off", bound=MemoryOff)

_LOOK = "Look into the server's log; its URL and model are settings: ralph config"
# Statuses of a server that may answer later, and how long it is left alone when it does not say.
_BUSY = frozenset({429, 500, 502, 503, 504, 529})
_WAITS_S = (0.5, 1.0, 2.0, 4.0)


class Wire(Generic[Off]):
    """One server by its URL. What is wrong with it is told under the name people know it by."""

    def __init__(
        self,
        url: str,
        *,
        name: str,
        todo: str,
        error: type[Off],
        slow: str = "Look after the server.",
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._name = name
        self._todo = todo
        self._error = error
        self._slow = slow
        self._key = key
        self._headers = dict(headers or {})
        self._sleep = sleep
        self._idle: list[HTTPConnection] = []
        weakref.finalize(self, _close_all, self._idle)

    @property
    def shown(self) -> str:
        """The URL as it may be told: without a user's name and password."""
        try:
            parts = urlsplit(self._url)
        except ValueError:
            return self._url.rpartition("@")[2]
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")

    def off(self, what: str, todo: str | None = None) -> Off:
        """An error about this server: its name, what, where, and what to do."""
        return self._error(f"{self._name} {what}", where=self.shown, todo=todo or _LOOK)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        deadline: Deadline,
        take: Take | None = None,
    ) -> Reply:
        """One answer; a server that is busy is asked again while there is time.

        With `take`, a body that comes with status 200 is given to it as it comes, not to the reply.
        """
        for wait_s in _WAITS_S:
            reply = self._once(method, path, body, deadline, take)
            if reply.status not in _BUSY or _never_again(reply):
                return reply
            asked_s = _retry_after_s(reply.headers.get("retry-after"))
            pause_s = wait_s if asked_s is None else asked_s
            if pause_s >= deadline.left():
                return reply
            self._sleep(pause_s)
        return self._once(method, path, body, deadline, take)

    def _once(
        self, method: str, path: str, body: bytes | None, deadline: Deadline, take: Take | None
    ) -> Reply:
        import http.client
        import ssl

        try:
            return self._asked(method, path, body, deadline, take)
        except Unfinished:
            what = f"did not finish its answer within {_spoken(deadline.seconds)} s"
            raise self.off(what, self._slow) from None
        except TimeoutError:
            what = f"gave no answer within {_spoken(deadline.seconds)} s"
            raise self.off(what, self._slow) from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or error
            raise self.off(f"cannot be trusted over TLS ({reason})") from None
        except (
            *(ConnectionResetError, ConnectionAbortedError, BrokenPipeError),
            http.client.IncompleteRead,
        ):
            raise self.off("broke off the connection", self._todo) from None
        except http.client.HTTPException as error:
            raise self.off(f"does not answer in HTTP ({type(error).__name__})") from None
        except TooLarge:
            raise self.off(f"answers with more than {LARGEST_BYTES >> 20} MB") from None
        except (OSError, UnicodeError):
            raise self.off("is not reachable", self._todo) from None

    def _asked(
        self, method: str, path: str, body: bytes | None, deadline: Deadline, take: Take | None
    ) -> Reply:
        parts = self._parts()
        headers = {"Accept": "application/json", "User-Agent": "ralph", **self._headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        elif parts.username:
            headers["Authorization"] = basic(parts)
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            # Told here, because the library's own error would show it.
            raise self.off("cannot be sent such a key", "A key is one line of plain characters.")
        target = parts.path.rstrip("/") + path
        request = method, target, body, headers
        if take is not None:
            # Over a connection of its own: what was begun must never be asked a second time.
            headers |= {"Accept": "text/event-stream, application/json", "Connection": "close"}
            return self._exchange(connection_to(parts, deadline), request, deadline, take)
        while self._idle:
            # The server may have closed what we kept: then it is simply asked anew.
            with contextlib.suppress(ConnectionError, IndexError):
                return self._exchange(self._idle.pop(), request, deadline)
        return self._exchange(connection_to(parts, deadline), request, deadline)

    def _exchange(
        self,
        connection: HTTPConnection,
        request: Request,
        deadline: Deadline,
        take: Take | None = None,
    ) -> Reply:
        exchange = Exchange(connection, request, deadline, in_pieces=take is not None)
        reply = exchange.reply(deadline, take)
        if take is None and connection.sock is not None:
            self._idle.append(connection)
        if 300 <= reply.status < 400:
            raise self.off(
                f"sends us elsewhere ({reply.status})", "Set the URL of the server itself."
            )
        return reply

    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(self._url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits:
            raise self.off("has no usable URL", "Set one like http://127.0.0.1:11434")
        return parts


def _retry_after_s(text: str | None) -> float | None:
    """How long the server asks us to wait, told in seconds or as a date."""
    if not text:
        return None
    with contextlib.suppress(ValueError):
        seconds = float(text)
        return seconds if 0.0 <= seconds < float("inf") else None
    from email.utils import parsedate_to_datetime

    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _never_again(reply: Reply) -> bool:
    """Whether waiting cannot help: an account that is used up answers like one that is busy."""
    return reply.status == 429 and b"insufficient_quota" in reply.body


def _spoken(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def versioned(url: str) -> str:
    """The base URL as people write it: with `/v1`, or only the server's."""
    stripped = url.rstrip("/")
    try:
        path = urlsplit(stripped).path
    except ValueError:
        return stripped
    return stripped if path else f"{stripped}/v1"


def _close_all(idle: list[HTTPConnection]) -> None:
    for connection in idle:
        connection.close()
