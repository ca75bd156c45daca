"""The process between Ralph and a Qdrant server it started: the server ends when Ralph is gone.

Run as a script with the standard library alone: `keeper.py LOCK LOCK_TIMEOUT_S COMMAND...`. Its
standard input is a pipe that Ralph holds open; when it ends, for whatever reason, the server is
asked to end, and then made to. The lock is held as long as the server lives, so that a second one
never opens the same storage.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
