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
from pathlib import Path

from ralph import disk
from ralph.errors import IndexOff
from ralph.programs import find_program, python
from ralph.wire import usable_url

_FOLDER = "qdrant"
_LOG = "qdrant.log"
_DEFAULT_PORT = 6333
_BUSY = 75
# How long a server may take until it is ready, and one that ends until its storage is free.
_READY_S = 20.0
_GRACE_S = 10.0
_POLL_S = 0.05
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
            keeper.wait(_GRACE_S + _LOOK_S)
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
            code = keeper.poll()
            if code is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            self.stop()
            if code == _BUSY:
                raise self._off("still runs for somebody else, who keeps its storage")
            if code is not None:
                raise self._off(f"ended at once ({code})")
            raise self._off(f"was not ready within {self._ready_s:.0f} s")

    def _spawned(self) -> subprocess.Popen[bytes]:
        """The server's keeper: the environment is ours without Ralph's settings."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("RALPH_")}
        env |= {
            "QDRANT__SERVICE__HOST": "127.0.0.1" if self._host == "localhost" else self._host,
            "QDRANT__SERVICE__HTTP_PORT": str(self._port),
            "QDRANT__SERVICE__GRPC_PORT": str(self._port + 1),
            "QDRANT__STORAGE__STORAGE_PATH": str(self._folder / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self._folder / "snapshots"),
            "QDRANT__TELEMETRY_DISABLED": "true",
        }
        if self._key:
            env["QDRANT__SERVICE__API_KEY"] = self._key
        file = self._folder / _LOG
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_size > _LARGEST_LOG_BYTES:
                file.replace(file.with_suffix(".log.1"))
        words = [str(self._folder / "server.lock"), str(self._ready_s), str(self._binary)]
        with file.open("ab") as log:
            return subprocess.Popen(
                [*python(), "-m", __name__, *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=env,
                # Ctrl-C is for us; what it means for the server we say by ending.
                start_new_session=True,
                creationflags=_OWN_GROUP,
            )

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

    def _off(self, what: str, todo: str | None = None) -> IndexOff:
        return IndexOff(
            f"Qdrant ({self._binary}) {what}",
            where=f"http://{self._host}:{self._port}",
            todo=todo or f"Look into {self._folder / _LOG}",
        )


def local_server(
    url: str, *, key: str | None, binary: str | None, home: Path
) -> LocalServer | None:
    """Who can start the server at this URL; None where it is elsewhere, or there is no binary."""
    parts = usable_url(url)
    host = (parts.hostname or "") if parts else ""
    if parts is None or parts.scheme != "http" or not host.startswith(_LOOPBACK):
        return None
    found = binary or find_program("qdrant")
    if not found:
        return None
    port, program = parts.port or _DEFAULT_PORT, Path(found).expanduser()
    return LocalServer(host, port, program, home / _FOLDER, key=key)


# -- The process between Ralph and a Qdrant server it started: the server ends when Ralph is gone.
#
# Its standard input is a pipe that Ralph holds open; when it ends, for whatever reason, the server
# is asked to end, and then made to. The lock is held as long as the server lives, so that a second
# one never opens the same storage.


def main(arguments: list[str]) -> int:
    """`LOCK LOCK_TIMEOUT_S COMMAND...`, until the server ends, or Ralph does."""
    lock, timeout_s, *command = arguments
    try:
        with disk.locked(Path(lock), timeout_s=float(timeout_s)) as fd:
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
            server.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            server.kill()
    return server.wait()


def _started(command: list[str], fd: int) -> subprocess.Popen[bytes]:
    if sys.platform == "win32":
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
