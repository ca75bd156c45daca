"""Many runs of the command line at the price of a fork each, every one a process of its own.

A server process loads Ralph once. For each run it forks a child that gets its own folder,
environment, streams and limit of memory, and that can hang, crash or eat memory without harm to
the tests. `python forking.py FD` is the server; `ForkServer` is the tests' end of it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

if sys.platform == "win32":
    pytest.skip("there is no fork on Windows", allow_module_level=True)

import resource

_MIB = 1024 * 1024
# Room for a child beyond what the server itself has taken. What it may really use is less, and
# judged by what it did use: a hook that runs into this limit ends silently.
_ROOM_BYTES = 1024 * _MIB
_UNUSUAL = ("ralph.index.qdrant",)


class End(NamedTuple):
    """How a child ended: its exit code (minus the number of a signal), and its largest size."""

    code: int
    peak_bytes: int
    hung: bool


class ForkServer:
    """Starts children and waits for them; used by one thread at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_plain_environment(),
            )

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        streams: tuple[int, int, int],
    ) -> int:
        """Start `ralph WORDS` with these streams, and give its process id."""
        wish = {"words": list(words), "cwd": str(cwd), "environ": dict(environ)}
        pid = self._ask(wish, streams)
        assert isinstance(pid, int)
        return pid

    def wait(self, pid: int, *, timeout_s: float) -> End:
        """Wait until the child has ended; after so many seconds it is killed."""
        return End(*self._ask({"wait": pid, "timeout_s": timeout_s}))

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        self._process.wait(timeout=60)

    def _ask(self, wish: dict[str, Any], streams: Sequence[int] = ()) -> Any:
        data = json.dumps(wish).encode() + b"\n"
        sent = socket.send_fds(self._socket, [data], streams) if streams else 0
        self._socket.sendall(data[sent:])
        return json.loads(_line(self._socket)[0])


def _plain_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    # Few threads and arenas: what they reserve would count against the limit.
    return {**kept, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


def _line(end: socket.socket) -> tuple[bytes, list[int]]:
    """The next line and the descriptors that came with it; b"" when the other end is gone."""
    data, fds, _, _ = socket.recv_fds(end, _MIB, 3)
    while data and not data.endswith(b"\n"):
        more = end.recv(_MIB)
        assert more, "the other end went away in the middle of a line"
        data += more
    return data, fds


def _serve(end: socket.socket) -> None:
    _load_everything()
    gc.freeze()  # a collection in a child would copy everything
    while True:
        data, fds = _line(end)
        if not data:
            return
        wish = json.loads(data)
        answer = (
            _waited(wish["wait"], wish["timeout_s"]) if "wait" in wish else _forked(wish, fds, end)
        )
        end.sendall(json.dumps(answer).encode() + b"\n")


def _load_everything() -> None:
    import ralph

    for found in pkgutil.walk_packages(ralph.__path__, "ralph."):
        if not found.name.startswith(_UNUSUAL) and not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # an extra that is not installed
                importlib.import_module(found.name)


def _forked(wish: dict[str, Any], fds: list[int], end: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        _become(wish, fds, end)
    for fd in fds:
        os.close(fd)
    return pid


def _become(wish: dict[str, Any], fds: list[int], end: socket.socket) -> NoReturn:
    os.setsid()
    end.close()
    for stream, fd in enumerate(fds):
        os.dup2(fd, stream)
        os.close(fd)
    os.environ.clear()
    os.environ.update(wish["environ"])
    os.chdir(wish["cwd"])
    _limit_memory()
    sys.argv = ["ralph", *wish["words"]]
    os._exit(_code_of_main())


def _code_of_main() -> int:
    """Run the command line to its end, as the interpreter would, but without taking it apart.

    Freeing everything the server has loaded would cost more than the run itself.
    """
    from ralph.__main__ import main

    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - the interpreter prints it too
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code if isinstance(code, int) else 1


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + _ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _waited(pid: int, timeout_s: float) -> End:
    deadline, pause_s, hung = time.monotonic() + timeout_s, 0.001, False
    while True:
        done, status, usage = os.wait4(pid, 0 if hung else os.WNOHANG)
        if done:
            unit = 1 if sys.platform == "darwin" else 1024
            return End(os.waitstatus_to_exitcode(status), usage.ru_maxrss * unit, hung)
        if time.monotonic() >= deadline:
            hung = True
            os.killpg(pid, signal.SIGKILL)  # the child leads a group of its own
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.02)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _end:
        _serve(_end)
