"""HTTP to a model's server: one deadline for the whole answer, kept connections, no redirects.

The standard library's client, because importing a larger one takes longer than a search. A request
runs in a thread of its own, so that nothing (a name server, a handshake, an answer that comes byte
by byte) holds the caller beyond the deadline.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from ralph.errors import EmbedderOff

if TYPE_CHECKING:
    from http.client import HTTPConnection

_LARGEST_BYTES = 32 * 1024 * 1024
_SHOWN_CHARS = 200
_LOOK = "Look into the server's log; its URL and model are settings: ralph config"
# Statuses of a server that may answer later, and how long it is left alone when it does not say.
_BUSY = frozenset({429, 500, 502, 503, 504, 529})
# Statuses that speak of the texts: one is too long, or they are too many.
UNWANTED = frozenset({400, 413, 422})
_WAITS_S = (0.5, 1.0, 2.0, 4.0)


class Deadline:
    """A moment by which something must be over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that remain, never less than none."""
        return max(0.0, self._end - time.monotonic())

    def within(self, seconds: float) -> Deadline:
        """The sooner one of this and so many seconds from now."""
        return Deadline(min(self.left(), seconds))


class Reply(msgspec.Struct, frozen=True):
    """What the server answered, whatever it was."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def complaint(self, *secrets: str) -> str:
        """What the server itself says is wrong, short, on one line, and without our secrets."""
        try:
            told = msgspec.json.decode(self.body, type=dict[str, object]).get("error", "")
        except msgspec.MsgspecError:
            return ""
        text = str(told.get("message", "")) if isinstance(told, dict) else str(told)
        for secret in secrets:
            text = text.replace(secret, "[key]")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 3] + "..."

    def told(self, *secrets: str) -> str:
        """The status, and what the server said with it."""
        said = self.complaint(*secrets)
        return f"{self.status}: {said}" if said else str(self.status)


class Refused(Exception):
    """The server is well but does not want these texts; others it may want."""

    def __init__(self, error: EmbedderOff) -> None:
        super().__init__(str(error))
        self.error = error


class Wire:
    """One server by its URL. What is wrong with it is told under the name people know it by."""

    def __init__(
        self,
        url: str,
        *,
        name: str,
        todo: str,
        key: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._name = name
        self._todo = todo
        self._key = key
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

    def off(self, what: str, todo: str | None = None) -> EmbedderOff:
        """An error about this server: its name, what, where, and what to do."""
        return EmbedderOff(f"{self._name} {what}", where=self.shown, todo=todo or _LOOK)

    def call(
        self, method: str, path: str, body: bytes | None = None, *, deadline: Deadline
    ) -> Reply:
        """One answer; a server that is busy is asked again while there is time."""
        for wait_s in _WAITS_S:
            reply = self._once(method, path, body, deadline)
            if reply.status not in _BUSY or _never_again(reply):
                return reply
            asked_s = _retry_after_s(reply.headers.get("retry-after"))
            pause_s = wait_s if asked_s is None else asked_s
            if pause_s >= deadline.left():
                return reply
            self._sleep(pause_s)
        return self._once(method, path, body, deadline)

    def _once(self, method: str, path: str, body: bytes | None, deadline: Deadline) -> Reply:
        import http.client
        import ssl

        try:
            return self._asked(method, path, body, deadline)
        except TimeoutError:
            raise self.off(
                f"gave no answer within {deadline.seconds:.2g} s",
                "Look after the server; if it is only slow, raise embed_query_timeout_s.",
            ) from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or error
            raise self.off(f"cannot be trusted over TLS ({reason})") from None
        except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError):
            raise self.off("broke off the connection", self._todo) from None
        except http.client.HTTPException as error:
            raise self.off(f"does not answer in HTTP ({type(error).__name__})") from None
        except _TooLarge:
            raise self.off(f"answers with more than {_LARGEST_BYTES >> 20} MB") from None
        except (OSError, UnicodeError):
            raise self.off("is not reachable", self._todo) from None

    def _asked(self, method: str, path: str, body: bytes | None, deadline: Deadline) -> Reply:
        parts = self._parts()
        headers = {"Accept": "application/json", "User-Agent": "ralph"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        elif parts.username:
            headers["Authorization"] = _basic(parts)
        target = parts.path.rstrip("/") + path
        request = method, target, body, headers
        while self._idle:
            # The server may have closed what we kept: then it is simply asked anew.
            with contextlib.suppress(ConnectionError, IndexError):
                return self._exchange(self._idle.pop(), request, deadline)
        return self._exchange(_connection(parts, deadline), request, deadline)

    def _exchange(self, connection: HTTPConnection, request: _Request, deadline: Deadline) -> Reply:
        reply = _Exchange(connection, request, deadline).reply(deadline)
        if connection.sock is not None:
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


_Request = tuple[str, str, bytes | None, dict[str, str]]


class _TooLarge(Exception):
    """More bytes than any answer has."""


class _Exchange:
    """A request under way in its own thread: either it ends in time or it is given up."""

    def __init__(self, connection: HTTPConnection, request: _Request, deadline: Deadline) -> None:
        self._connection = connection
        self._request = request
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._given_up = False
        self._outcome: Reply | BaseException | None = None
        # For a thread that nobody waits for any more.
        connection.timeout = max(deadline.left(), 0.001)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        threading.Thread(target=self._work, name="ralph-wire", daemon=True).start()

    def reply(self, deadline: Deadline) -> Reply:
        """The answer, or what went wrong; TimeoutError when it is not over in time."""
        try:
            self._over.wait(deadline.left())
        finally:
            with self._lock:
                self._given_up = self._outcome is None
                if self._given_up:
                    self._cut()
        if isinstance(self._outcome, Reply):
            return self._outcome
        raise self._outcome or TimeoutError

    def _work(self) -> None:
        outcome: Reply | BaseException
        try:
            outcome = self._converse()
        except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
            outcome = error
        with self._lock:
            self._outcome = outcome
            if self._given_up or not isinstance(outcome, Reply):
                self._connection.close()
        self._over.set()

    def _converse(self) -> Reply:
        method, target, body, headers = self._request
        connection = self._connection
        if connection.sock is None:
            connection.connect()
            with self._lock:
                if self._given_up:
                    raise TimeoutError
        connection.request(method, target, body, headers)
        with connection.getresponse() as response:
            data = response.read(_LARGEST_BYTES + 1)
            if len(data) > _LARGEST_BYTES:
                raise _TooLarge
            told = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, told, data)

    def _cut(self) -> None:
        opened = self._connection.sock
        if opened is not None:
            with contextlib.suppress(OSError):
                # Of the socket below TLS: its own would first say good-bye.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _connection(parts: SplitResult, deadline: Deadline) -> HTTPConnection:
    import http.client
    import ssl

    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=deadline.left())
    context = ssl.create_default_context()
    proxy = _proxy(host)
    if proxy is None or not proxy.hostname:
        return http.client.HTTPSConnection(
            host, parts.port, timeout=deadline.left(), context=context
        )
    through = http.client.HTTPSConnection(
        proxy.hostname, proxy.port or 8080, timeout=deadline.left(), context=context
    )
    headers = {"Proxy-Authorization": _basic(proxy)} if proxy.username else {}
    through.set_tunnel(host, parts.port or 443, headers)
    return through


def _proxy(host: str) -> SplitResult | None:
    """The proxy the environment names; what runs on this machine is always asked directly."""
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return None
    from urllib.request import getproxies, proxy_bypass

    named = getproxies().get("https")
    if not named or proxy_bypass(host):
        return None
    return urlsplit(named if "//" in named else f"http://{named}")


def _basic(parts: SplitResult) -> str:
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


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


def _close_all(idle: list[HTTPConnection]) -> None:
    for connection in idle:
        connection.close()
