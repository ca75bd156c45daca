"""Opening an index on a Qdrant server, and starting a local server if none answers.

A server is started only for an address of this machine, and only with a binary that is configured
or on the PATH. Its storage and its log are in Ralph's home. It ends with the process that started
it; other processes that use it start it again when they need it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import http.client
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ralph import disk
from ralph.errors import IndexOff
from ralph.programs import find_program, python
from ralph.wire import is_loopback, usable_url

if TYPE_CHECKING:
    from ralph.index.qdrant import QdrantConnection, QdrantStore

_FOLDER = "qdrant"
_ID_NAME = "machine"
# The timeout of a write, as a multiple of `wait_s`.
_TIMEOUT_SHARE = 2.5
_LOG = "qdrant.log"
_DEFAULT_PORT = 6333
_BUSY = 75
# How long a server may take to become ready, and to stop and release its storage.
_READY_S = 20.0
_GRACE_S = 10.0
_POLL_S = 0.05
_LOOK_S = 1.0
_LARGEST_LOG_BYTES = 10 * 1024 * 1024
# Ctrl-C must not reach the server: it stops when this process ends.
_APART: dict[str, Any] = {"start_new_session": True, "umask": 0o077}
if sys.platform == "win32":
    _APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}


class LocalServer(msgspec.Struct, eq=False):
    """A Qdrant server on this machine that Ralph may start."""

    host: str
    port: int
    binary: Path
    folder: Path
    key: str = ""
    ready_s: float = _READY_S
    keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Start it and wait until it is ready; False if something listens there already."""
        if self._listening():
            return False
        busy = self._off("another process is starting it", "Try again.")
        try:
            disk.make_folder(self.folder)
            # One process at a time; the others then find it running.
            with disk.lock(self.folder / "start.lock", timeout_s=self.ready_s, busy=busy):
                if not self._listening():
                    self._start()
        except OSError as error:
            raise self._off(f"cannot be started ({error.strerror or error})") from None
        return True

    def stop(self) -> None:
        """Stop the server if it was started here, and wait until it has ended."""
        keeper = self.keeper
        self.keeper = None
        if keeper is None:
            return
        atexit.unregister(self.stop)
        assert keeper.stdin is not None
        with contextlib.suppress(OSError):
            keeper.stdin.close()
        try:
            keeper.wait(_GRACE_S + _LOOK_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()

    # -- inside

    def _start(self) -> None:
        self.stop()  # clean up after one that has ended by itself
        deadline = time.monotonic() + self.ready_s
        keeper = self.keeper = self._spawned()
        atexit.register(self.stop)
        while not self._ready():
            code = keeper.poll()
            if code is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            self.stop()
            late = f"was not ready within {self.ready_s:.0f} s"
            busy = "still runs for somebody else, who keeps its storage"
            raise self._off({None: late, _BUSY: busy}.get(code, f"ended at once ({code})"))

    def _spawned(self) -> subprocess.Popen[bytes]:
        """Start the server's keeper, with our environment except for Ralph's settings."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("RALPH_")}
        settings = {
            "SERVICE__HOST": "127.0.0.1" if self.host == "localhost" else self.host,
            "SERVICE__HTTP_PORT": self.port,
            "SERVICE__GRPC_PORT": self.port + 1,
            "STORAGE__STORAGE_PATH": self.folder / "storage",
            "STORAGE__SNAPSHOTS_PATH": self.folder / "snapshots",
            "TELEMETRY_DISABLED": "true",
            **({"SERVICE__API_KEY": self.key} if self.key else {}),
        }
        env |= {f"QDRANT__{name}": str(value) for name, value in settings.items()}
        file = self.folder / _LOG
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_size > _LARGEST_LOG_BYTES:
                file.replace(file.with_suffix(".log.1"))
        words = [str(self.folder / "server.lock"), str(self.ready_s), str(self.binary)]
        command = [*python(), "-m", __name__, *words]
        with disk.appending(file) as log:
            output: dict[str, Any] = {"stdout": log, "stderr": log, "cwd": self.folder, "env": env}
            return subprocess.Popen(command, stdin=subprocess.PIPE, **output, **_APART)

    def _listening(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=_LOOK_S).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            pass  # slow or forbidden: starting another would not help
        return True

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_LOOK_S)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _off(self, what: str, todo: str | None = None) -> IndexOff:
        where = f"http://{self.host}:{self.port}"
        todo = todo or f"Look into {self.folder / _LOG}"
        return IndexOff(f"Qdrant ({self.binary}) {what}", where=where, todo=todo)


def local_server(url: str, *, key: str, binary: str, home: Path) -> LocalServer | None:
    """Return the server to start for this URL; None if it is remote or there is no binary."""
    parts = usable_url(url)
    host = (parts.hostname or "") if parts else ""
    if parts is None or parts.scheme != "http" or not is_loopback(host):
        return None
    if not (found := binary or find_program("qdrant")):
        return None
    port = parts.port or _DEFAULT_PORT
    program = Path(found).expanduser()
    return LocalServer(host, port, program, home / _FOLDER, key=key)


# -- A store on a server: the names of its collections, and who owns them.


_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,120}")
_PHYSICAL = re.compile(r"(.+)-g[0-9a-f]+")


class CollectionNames(msgspec.Struct, frozen=True):
    """The names of one memory's collections on a server (F18).

    `scope` returns how the names begin. It is a function because a project's id may not exist yet.
    `place` separates clones, homes and databases that share a scope but not their journals.
    """

    scope: Callable[[], str]
    place: str = ""

    def alias(self, name: str) -> str:
        """Return the alias of the live collection."""
        plain = name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._before + plain

    def building(self, name: str) -> str:
        """Return the alias of the collection that will replace the live one."""
        return f"{self.alias(name)}-next"

    def new_physical(self, name: str) -> str:
        """Return an unused name for a collection."""
        return f"{self.alias(name)}-g{uuid.uuid4().hex[:8]}"

    def owns(self, physical: str, name: str | None = None) -> bool:
        """Whether this collection is ours and, if `name` is given, has that name."""
        found = _PHYSICAL.fullmatch(physical)
        if found is None:
            return False
        if name is not None:
            return found[1] == self.alias(name)
        return found[1].startswith(self._before + self.scope())

    @property
    def _before(self) -> str:
        return f"ralph-{self.place}-" if self.place else "ralph-"


def open_store(settings: Any, folder: Path, home: Path, scope: Callable[[], str]) -> QdrantStore:
    """Open one memory's collections on the server from the settings.

    If the journals are files, the collections belong only to this folder on this machine: clones
    share an id, and machines may share a path, but not their journals. If the journals are in a
    database, the collections belong to everyone who uses it.
    """
    from ralph.index.qdrant import QdrantStore

    url = settings.journal_url
    timeout_s = _TIMEOUT_SHARE * settings.wait_s
    key = settings.qdrant_api_key or ""
    binary = settings.qdrant_binary or ""
    place = _database(url) if url else f"{_own_id(home / _ID_NAME)} {folder}"
    short = hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:8]
    server = _server(settings.qdrant_url, key, timeout_s, binary, home)
    return QdrantStore(server, CollectionNames(scope, short))


@functools.cache
def _server(url: str, key: str, timeout_s: float, binary: str, home: Path) -> QdrantConnection:
    """Return the one connection of a process: after a failure, other indexes need not try."""
    from ralph.index.qdrant import QdrantConnection

    local = local_server(url, key=key, binary=binary, home=home)
    start = local.start if local else lambda: False
    return QdrantConnection(url, key=key, timeout_s=timeout_s, start=start)


def _database(url: str) -> str:
    """Return a name for the database in this URL, without user and password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""  # the journal reports the bad URL
    names = {"host", "hostaddr", "port", "dbname", "service"}
    more = sorted(pair for pair in parse_qsl(parts.query) if pair[0] in names)
    host = parts.netloc.rpartition("@")[2].lower().removesuffix(":5432")
    return f"{host}/{parts.path.strip('/')} {more}"


def _own_id(file: Path) -> str:
    """Return an id that tells this home from one at the same path on another machine."""
    try:
        disk.create(file, uuid.uuid4().hex.encode())
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.node()  # better than nothing if no file can be written


# -- The keeper: a process between Ralph and a Qdrant server that stops the server when Ralph ends.
#
# Its standard input is a pipe that Ralph holds open. When the pipe closes, for whatever reason, the
# keeper asks the server to stop, and then kills it. It holds a lock as long as the server runs, so
# that a second server never opens the same storage.


def main(arguments: list[str]) -> int:
    """Run `LOCK LOCK_TIMEOUT_S COMMAND...` until the server or Ralph ends."""
    lock, timeout_s, *command = arguments
    try:
        with disk.lock(Path(lock), timeout_s=float(timeout_s)) as fd:
            return _keep(command, fd)
    except disk.Busy:
        return _BUSY


def _keep(command: list[str], fd: int) -> int:
    gone = threading.Event()

    def listen() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        gone.set()

    threading.Thread(target=listen, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: gone.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ralph decides, by closing the pipe
    try:
        server = _started(command, fd)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror or error}\n")
        return 127
    while server.poll() is None and not gone.wait(_POLL_S):
        pass
    if server.poll() is None:
        with contextlib.suppress(OSError):
            server.terminate()
        try:
            server.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            server.kill()
    return server.wait()


def _started(command: list[str], fd: int) -> subprocess.Popen[bytes]:
    if sys.platform == "win32":
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The server inherits the lock, so killing only this process does not release it.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[fd], preexec_fn=_end_with_parent
    )


def _end_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
