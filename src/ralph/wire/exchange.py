"""One request and its answer, in a thread of its own: it ends in time or is given up."""

from __future__ import annotations

import base64
import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from ralph.wire.deadline import Deadline

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

# Gets a piece of an answer; True when that was all the caller wants of it.
Take = Callable[[bytes], bool]

LARGEST_BYTES = 32 * 1024 * 1024
_PIECE_BYTES = 65536
_SHOWN_CHARS = 200


class Reply(msgspec.Struct, frozen=True):
    """What the server answered, whatever it was."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def complaint(self, *secrets: str) -> str:
        """What the server itself says is wrong, short, on one line, and without our secrets."""
        try:
            plain = msgspec.json.decode(self.body, type=dict[str, object])
        except (msgspec.MsgspecError, RecursionError):
            return ""
        told = next((plain[key] for key in ("error", "message", "detail") if plain.get(key)), "")
        text = str(told.get("message", "")) if isinstance(told, dict) else str(told)
        for secret in secrets:
            text = text.replace(secret, "[key]")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 3] + "..."

    def told(self, *secrets: str) -> str:
        """The status, and what the server said with it."""
        said = self.complaint(*secrets)
        return f"{self.status}: {said}" if said else str(self.status)


Request = tuple[str, str, bytes | None, dict[str, str]]


class TooLarge(Exception):
    """More bytes than any answer has."""


class Unfinished(TimeoutError):
    """The time was over in the middle of an answer."""


class Exchange:
    """A request under way in its own thread: either it ends in time or it is given up."""

    def __init__(
        self,
        connection: HTTPConnection,
        request: Request,
        deadline: Deadline,
        *,
        in_pieces: bool = False,
    ) -> None:
        self._connection = connection
        self._request = request
        self._in_pieces = in_pieces
        self._lock = threading.Lock()
        self._told: queue.SimpleQueue[bytes | Reply | BaseException] = queue.SimpleQueue()
        self._given_up = self._over = False
        self._sock: socket.socket | None = None
        # For a thread that nobody waits for any more.
        connection.timeout = max(deadline.left(), 0.001)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        threading.Thread(target=self._work, name="ralph-wire", daemon=True).start()

    def reply(self, deadline: Deadline, take: Take | None = None) -> Reply:
        """The answer, or what went wrong; TimeoutError when it is not over in time."""
        outcome: bytes | Reply | BaseException | None = None
        late: type[TimeoutError] = TimeoutError
        try:
            while isinstance(outcome := self._told.get(timeout=deadline.left()), bytes):
                late = Unfinished
                if take is not None and take(outcome):
                    return Reply(200, {}, b"")
        except queue.Empty:
            raise late from None
        finally:
            if not isinstance(outcome, Reply):
                self._give_up()
        if isinstance(outcome, TimeoutError):  # the socket's clock was the faster one
            raise late
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _work(self) -> None:
        outcome: Reply | BaseException
        try:
            outcome = self._converse()
        except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
            outcome = error
        with self._lock:
            self._over = True
            if self._given_up or self._in_pieces or not isinstance(outcome, Reply):
                self._connection.close()
        self._told.put(outcome)

    def _converse(self) -> Reply:
        method, target, body, headers = self._request
        connection = self._connection
        if connection.sock is None:
            connection.connect()
            with self._lock:
                if self._given_up:
                    raise TimeoutError
        # The connection forgets it where this is its last answer, and it may still have to be cut.
        self._sock = connection.sock
        connection.request(method, target, body, headers)
        with connection.getresponse() as response:
            told = {name.lower(): value for name, value in response.getheaders()}
            if self._in_pieces and response.status == 200:
                self._pass_on(response)
                return Reply(200, told, b"")
            data = response.read(LARGEST_BYTES + 1)
            if len(data) > LARGEST_BYTES:
                raise TooLarge
            return Reply(response.status, told, data)

    def _pass_on(self, response: HTTPResponse) -> None:
        size = 0
        while piece := response.read1(_PIECE_BYTES):
            size += len(piece)
            if size > LARGEST_BYTES:
                raise TooLarge
            self._told.put(piece)

    def _give_up(self) -> None:
        with self._lock:
            self._given_up = True
            if self._over:
                self._connection.close()
            else:
                self._cut()

    def _cut(self) -> None:
        opened = self._connection.sock or self._sock
        if opened is not None:
            with contextlib.suppress(OSError):
                # Of the socket below TLS: its own would first say good-bye.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)


def connection_to(parts: SplitResult, deadline: Deadline) -> HTTPConnection:
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
    headers = {"Proxy-Authorization": basic(proxy)} if proxy.username else {}
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


def basic(parts: SplitResult) -> str:
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()
