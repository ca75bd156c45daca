"""HTTP to a server, with one deadline for the whole answer. Redirects are refused.

This uses the standard library's client, because importing a larger one takes longer than a search.
Each request runs in its own thread, so nothing (DNS, a handshake, an answer that drips in)
holds the caller beyond the deadline. An answer can be read piece by piece as it arrives; only the
caller's own thread sees the pieces.
"""

from __future__ import annotations

import base64
import contextlib
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from ralph.errors import MemoryOff

if TYPE_CHECKING:
    from http.client import HTTPConnection

Off = TypeVar("Off", bound=MemoryOff)
# Takes a piece of an answer; returns True when the caller needs no more. None: read it whole.
Take = Callable[[bytes], bool] | None

_LOOK = "Check the server's log. Its URL and model are settings: ralph config"
# Statuses of a server that may answer later, and how long to wait if it does not say.
BUSY = frozenset({429, 500, 502, 503, 504, 529})
_WAITS_S = (0.5, 1.0, 2.0, 4.0)
_BROKEN = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_LARGEST_BYTES = 32 * 1024 * 1024
_PIECE_BYTES = 65536
_SHOWN_CHARS = 200


class Deadline:
    """A moment by which something must be over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining_s(self) -> float:
        """Seconds that remain, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def within(self, seconds: float) -> Deadline:
        """The earlier of this deadline and `seconds` from now."""
        return Deadline(min(self.remaining_s(), seconds))


class Reply(msgspec.Struct, frozen=True):
    """An HTTP answer of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def complaint(
        self, *secrets: str, keys: Sequence[str] = ("error", "message", "detail", "status")
    ) -> str:
        """The server's own error message: short, on one line, without our secrets."""
        try:
            plain = msgspec.json.decode(self.body, type=dict[str, object])
        except (msgspec.MsgspecError, RecursionError):
            return ""
        error = next((plain[key] for key in keys if plain.get(key)), "")
        if isinstance(error, dict):  # the form of OpenAI or Qdrant
            error = error.get("message") or error.get("error") or ""
        text = str(error)
        for secret in filter(None, secrets):
            text = text.replace(secret, "[key]")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 3] + "..."

    def describe(self, *secrets: str) -> str:
        """The status, and the server's error message if there is one."""
        complaint = self.complaint(*secrets)
        return f"{self.status}: {complaint}" if complaint else str(self.status)


class Wire(msgspec.Struct, Generic[Off], eq=False, weakref=True):
    """One server at a URL. Errors call it by the name that people know."""

    url: str
    name: str
    todo: str
    error: type[Off]
    slow: str = "Check the server."
    look: str = _LOOK
    key: str | None = None
    headers: dict[str, str] = {}
    sleep: Callable[[float], None] = time.sleep
    idle: list[HTTPConnection] = []

    def __post_init__(self) -> None:
        weakref.finalize(self, _close_connections, self.idle)

    def __repr__(self) -> str:
        return f"<{self.name} at {self.safe_url}>"  # never the key

    @property
    def safe_url(self) -> str:
        """The URL without a user name and password."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return self.url.rpartition("@")[2]
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")

    def off(self, what: str, todo: str | None = None) -> Off:
        """Return an error about this server: its name, what happened, where, and what to do."""
        return self.error(f"{self.name} {what}", where=self.safe_url, todo=todo or self.look)

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        deadline: Deadline,
        take: Take = None,
        busy: frozenset[int] = BUSY,
    ) -> Reply:
        """Send one request and return the answer. A busy server is asked again while time is left.

        With `take`, the body of an answer with status 200 goes to it as it arrives.
        """
        for wait_s in _WAITS_S:
            reply = self._once(method, path, body, deadline, take)
            # An account without quota looks like a busy server, but waiting does not help.
            if reply.status not in busy or b"insufficient_quota" in reply.body:
                return reply
            asked_s = _retry_after_s(reply.headers.get("retry-after"))
            pause_s = wait_s if asked_s is None else asked_s
            if pause_s >= deadline.remaining_s():
                return reply
            self.sleep(pause_s)
        return self._once(method, path, body, deadline, take)

    def _once(self, method: str, path: str, body: bytes, deadline: Deadline, take: Take) -> Reply:
        import http.client
        import ssl

        try:
            reply = self._send(method, path, body, deadline, take)
        except TimeoutError as error:
            seconds = deadline.seconds
            limit = f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"
            raise self.off(f"{error} within {limit} s", self.slow) from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or error
            raise self.off(f"failed the TLS check ({reason})") from None
        except (*_BROKEN, http.client.IncompleteRead):
            raise self.off("broke off the connection", self.todo) from None
        except http.client.HTTPException as error:
            raise self.off(f"sent an invalid HTTP response ({type(error).__name__})") from None
        except _TooLarge:
            raise self.off(f"sent more than {_LARGEST_BYTES >> 20} MB") from None
        except (OSError, UnicodeError):
            raise self.off("is not reachable", self.todo) from None
        if 300 <= reply.status < 400:
            raise self.off(
                f"redirected the request ({reply.status})", "Set the URL of the server itself."
            )
        return reply

    def _send(self, method: str, path: str, body: bytes, deadline: Deadline, take: Take) -> Reply:
        parts = usable_url(self.url)
        if parts is None:
            raise self.off("has no usable URL", "Set one like http://127.0.0.1:11434")
        headers = {"Accept": "application/json", "User-Agent": "ralph", **self.headers}
        if body:
            headers["Content-Type"] = "application/json"
        if self.key or parts.username:
            headers["Authorization"] = f"Bearer {self.key}" if self.key else _basic(parts)
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            # Checked here, because the library's own error would show the key.
            raise self.off("cannot be sent such a key", "A key is one line of plain characters.")
        request = method, parts.path.rstrip("/") + path, body, headers
        if take is not None:
            # A connection of its own: once an answer has begun, never send the request again.
            headers |= {"Accept": "text/event-stream, application/json", "Connection": "close"}
            return _Request(_connection(parts), request, deadline, take).reply()
        while self.idle:
            # The server may have closed a kept connection: then send the request again.
            with contextlib.suppress(ConnectionError, IndexError):
                return self._keep(_Request(self.idle.pop(), request, deadline, None))
        return self._keep(_Request(_connection(parts), request, deadline, None))

    def _keep(self, request: _Request) -> Reply:
        reply = request.reply()
        if request.connection.sock is not None:
            self.idle.append(request.connection)
        return reply


class _TooLarge(Exception):
    """The answer is larger than any answer should be."""


# Method, path, body and headers.
_Sent = tuple[str, str, bytes, dict[str, str]]


class _Request:
    """A request in its own thread. It ends in time, or its socket is shut down."""

    def __init__(self, link: HTTPConnection, sent: _Sent, deadline: Deadline, take: Take) -> None:
        self.connection = link
        self._request = sent
        self._deadline = deadline
        self._take = take
        self._lock = threading.Lock()
        self._outcomes: queue.SimpleQueue[bytes | Reply | BaseException] = queue.SimpleQueue()
        self._abandoned = self._over = False
        self._sock: socket.socket | None = None
        # This ends a thread that nobody waits for any more.
        link.timeout = max(deadline.remaining_s(), 0.001)
        if link.sock is not None:
            link.sock.settimeout(link.timeout)
        threading.Thread(target=self._work, name="ralph-wire", daemon=True).start()

    def reply(self) -> Reply:
        """Return the answer or raise the request's error; TimeoutError if it takes too long."""
        outcome: bytes | Reply | BaseException | None = None
        late = TimeoutError("gave no answer")
        try:
            get = self._outcomes.get
            remaining_s = self._deadline.remaining_s
            while isinstance(outcome := get(timeout=remaining_s()), bytes):
                late = TimeoutError("did not finish its answer")
                if self._take is not None and self._take(outcome):
                    return Reply(200, {}, b"")
        except queue.Empty:
            raise late from None
        finally:
            if not isinstance(outcome, Reply):
                self._abandon()
        if isinstance(outcome, TimeoutError):  # the socket's timeout came first
            raise late
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _work(self) -> None:
        outcome: Reply | BaseException
        try:
            outcome = self._converse()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            outcome = error
        with self._lock:
            self._over = True
            if self._abandoned or self._take is not None or not isinstance(outcome, Reply):
                self.connection.close()
        self._outcomes.put(outcome)

    def _converse(self) -> Reply:
        method, target, body, headers = self._request
        if self.connection.sock is None:
            self.connection.connect()
            with self._lock:
                if self._abandoned:
                    raise TimeoutError
        # The connection drops its socket with its last answer, but we may still have to shut it.
        self._sock = self.connection.sock
        self.connection.request(method, target, body or None, headers)
        with self.connection.getresponse() as response:
            reply_headers = {name.lower(): value for name, value in response.getheaders()}
            whole = self._take is None or response.status != 200
            size = 0
            read = response.read if whole else response.read1
            while data := read(_LARGEST_BYTES + 1 if whole else _PIECE_BYTES):
                size += len(data)
                if size > _LARGEST_BYTES:
                    raise _TooLarge
                if whole:
                    return Reply(response.status, reply_headers, data)
                self._outcomes.put(data)
            return Reply(response.status, reply_headers, b"")

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            opened = self.connection.sock or self._sock
            if self._over:
                self.connection.close()
            elif opened is not None:
                with contextlib.suppress(OSError):
                    # Shut down the socket below TLS: the TLS socket would first send a goodbye.
                    socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _connection(parts: SplitResult) -> HTTPConnection:
    import http.client
    import ssl

    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port)
    context = ssl.create_default_context()
    proxy = _proxy(host)
    if proxy is None:
        return http.client.HTTPSConnection(host, parts.port, context=context)
    tunnel = http.client.HTTPSConnection(proxy.hostname or "", proxy.port or 8080, context=context)
    headers = {"Proxy-Authorization": _basic(proxy)} if proxy.username else {}
    tunnel.set_tunnel(host, parts.port or 443, headers)
    return tunnel


def _proxy(host: str) -> SplitResult | None:
    """Return the proxy from the environment, or None; servers on this machine need none."""
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    from urllib.request import getproxies, proxy_bypass

    named = getproxies().get("https")
    if not named or proxy_bypass(host):
        return None
    parts = urlsplit(named if "//" in named else f"http://{named}")
    return parts if parts.hostname else None


def _basic(parts: SplitResult) -> str:
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _retry_after_s(text: str | None) -> float | None:
    """Return how long the server asks us to wait; the header has seconds or a date."""
    with contextlib.suppress(ValueError):
        seconds = float(text or "")
        return seconds if 0.0 <= seconds < float("inf") else None
    from email.utils import parsedate_to_datetime

    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(text or "").timestamp() - time.time())
    return None


def usable_url(url: str) -> SplitResult | None:
    """Return the parts of an HTTP URL, or None if it is not a valid one."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if valid else None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    import ipaddress  # few processes need it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def with_version(url: str) -> str:
    """Return the base URL, with `/v1` added if it has no path."""
    stripped = url.rstrip("/")
    try:
        path = urlsplit(stripped).path
    except ValueError:
        return stripped
    return stripped if path else f"{stripped}/v1"


def _close_connections(idle: list[HTTPConnection]) -> None:
    for connection in idle:
        connection.close()
