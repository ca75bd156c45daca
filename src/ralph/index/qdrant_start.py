"""Starting a Qdrant server on this machine when nothing answers where one should.

Only for an address of this machine, and only with a binary that is configured or on the PATH. Its
storage and its log lie in Ralph's home. It ends with the process that started it; whoever else
used it starts it again when it is missed.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ralph.errors import IndexOff

# -- The process between Ralph and a Qdrant server it started: the server ends when Ralph is gone.
#
# This file is also run as a script, `qdrant_start.py LOCK LOCK_TIMEOUT_S COMMAND...`, with the
# standard library alone: so nothing of Ralph is imported before it is used. Its
# standard input is a pipe that Ralph holds open; when it ends, for whatever reason, the server is
# asked to end, and then made to. The lock is held as long as the server lives, so that a second
# one never opens the same storage.


GRACE_S = 10.0
BUSY = 75
_POLL_S = 0.05


def main(arguments: list[str]) -> int:
    """Until the server ends, or Ralph does."""
    lock, timeout_s, *command = arguments
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    if not _locked(fd, time.monotonic() + float(timeout_s)):
        return BUSY
    gone = threading.Event()
    threading.Thread(target=_listen, args=(gone,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: gone.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ralph decides, and tells us by ending
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
            server.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            server.kill()
    return server.wait()


def _listen(gone: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    gone.set()


if sys.platform == "win32":
    import msvcrt

    def _locked(fd: int, deadline: float) -> bool:
        while True:
            with contextlib.suppress(OSError):
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)

    def _started(command: list[str], fd: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)

else:
    import fcntl

    def _locked(fd: int, deadline: float) -> bool:
        while True:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)

    def _started(command: list[str], fd: int) -> subprocess.Popen[bytes]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # The lock is inherited: whoever ends this process alone does not free it.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[fd], preexec_fn=_end_with_parent
        )

    def _end_with_parent() -> None:
        if sys.platform == "linux":
            import ctypes

            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


FOLDER = "qdrant"
LOG = "qdrant.log"
_DEFAULT_PORT = 6333
# How long a server may take until it is ready, and one that ends until its storage is free.
_READY_S = 20.0
_READY_POLL_S = 0.05
_LOOK_S = 1.0
_LARGEST_LOG_BYTES = 10 * 1024 * 1024
_LOOPBACK = ("localhost", "127.", "::1")
_OWN_GROUP = 0
if sys.platform == "win32":
    _OWN_GROUP = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW


class LocalServer:
    """A server that may have to be started."""

    def __init__(
        self,
        host: str,
        port: int,
        binary: Path,
        folder: Path,
        *,
        key: str | None = None,
        ready_s: float = _READY_S,
    ) -> None:
        self._host = host
        self._port = port
        self._binary = binary
        self._folder = folder
        self._key = key
        self._ready_s = ready_s
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Start it and wait until it is ready; False where something listens there. IndexOff."""
        from ralph import disk

        if self._listening():
            return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # One at a time: the others find it running.
            with disk.locked(self._folder / "start.lock", timeout_s=self._ready_s):
                if not self._listening():
                    self._start()
        except disk.Busy:
            raise self._off("another process is starting it", "Try again.") from None
        except OSError as error:
            raise self._off(f"cannot be started ({error.strerror or error})") from None
        return True

    def stop(self) -> None:
        """End it if it was started here, and return when it has ended."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        atexit.unregister(self.stop)
        assert keeper.stdin is not None
        with contextlib.suppress(OSError):
            keeper.stdin.close()
        try:
            keeper.wait(GRACE_S + _LOOK_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()

    @property
    def started(self) -> bool:
        """Whether it was started here and still runs."""
        return self._keeper is not None and self._keeper.poll() is None

    # -- inside

    def _start(self) -> None:
        self.stop()  # one that has ended by itself
        deadline = time.monotonic() + self._ready_s
        keeper = self._keeper = self._spawned()
        atexit.register(self.stop)
        while not self._ready():
            if keeper.poll() is not None:
                self._keeper = None
                atexit.unregister(self.stop)
                raise self._off(_ending(keeper.returncode), self._look)
            if time.monotonic() >= deadline:
                self.stop()
                raise self._off(f"was not ready within {self._ready_s:.0f} s", self._look)
            time.sleep(_READY_POLL_S)

    def _spawned(self) -> subprocess.Popen[bytes]:
        lock = self._folder / "server.lock"
        command = [sys.executable, "-I", "-S", __file__, str(lock), str(self._ready_s)]
        with self._log() as log:
            return subprocess.Popen(
                [*command, str(self._binary)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment(),
                # Ctrl-C is for us; what it means for the server we say by ending.
                start_new_session=True,
                creationflags=_OWN_GROUP,
            )

    @contextlib.contextmanager
    def _log(self) -> Iterator[IO[bytes]]:
        file = self._folder / LOG
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_size > _LARGEST_LOG_BYTES:
                file.replace(file.with_suffix(".log.1"))
        with file.open("ab") as log:
            yield log

    def _environment(self) -> dict[str, str]:
        """Ours without Ralph's settings, and what Qdrant reads from it."""
        plain = {key: value for key, value in os.environ.items() if not key.startswith("RALPH_")}
        told = {
            "QDRANT__SERVICE__HOST": "127.0.0.1" if self._host == "localhost" else self._host,
            "QDRANT__SERVICE__HTTP_PORT": str(self._port),
            "QDRANT__SERVICE__GRPC_PORT": str(self._port + 1),
            "QDRANT__STORAGE__STORAGE_PATH": str(self._folder / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self._folder / "snapshots"),
            "QDRANT__TELEMETRY_DISABLED": "true",
        }
        if self._key:
            told["QDRANT__SERVICE__API_KEY"] = self._key
        return plain | told

    def _listening(self) -> bool:
        try:
            socket.create_connection((self._host, self._port), timeout=_LOOK_S).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            pass  # slow or forbidden: starting another would not help
        return True

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_LOOK_S)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def _look(self) -> str:
        return f"Look into {self._folder / LOG}"

    def _off(self, what: str, todo: str | None = None) -> IndexOff:
        from ralph.errors import IndexOff

        where = f"http://{self._host}:{self._port}"
        return IndexOff(f"Qdrant ({self._binary}) {what}", where=where, todo=todo or self._look)


def _ending(code: int) -> str:
    if code == BUSY:
        return "still runs for somebody else, who does not let go of its storage"
    return f"ended at once ({code})"


def local_server(
    url: str, *, key: str | None, binary: str | None, home: Path
) -> LocalServer | None:
    """Who can start the server at this URL; None where it is elsewhere, or there is no binary."""
    from ralph.programs import find_program

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    except ValueError:
        return None
    if parts.scheme != "http" or not host.startswith(_LOOPBACK):
        return None
    found = binary or find_program("qdrant")
    if not found:
        return None
    return LocalServer(host, port, Path(found).expanduser(), home / FOLDER, key=key)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
