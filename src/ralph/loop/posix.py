"""Watching an agent on Linux and macOS, through a keeper process that outlives us if need be."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ralph.loop.environment import Started

assert sys.platform != "win32"  # which has jobs for this: see windows.py

_KEEPER = Path(__file__).with_name("keeper.py")
_KEEPER_PATIENCE_S = 30.0
_POLL_S = 0.05


class PosixAgent:
    """An agent under a keeper that ends it, and all its descendants, when we are gone."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        files: tuple[IO[bytes], IO[bytes], IO[bytes]],
        lock: IO[bytes],
        cwd: Path,
        env: Mapping[str, str],
        grace_s: float,
    ) -> None:
        self.started = Started()
        self._grace_s = grace_s
        self._unread = b""
        self._said: dict[str, Any] = {}
        # Locked here and inherited there: the lock is the keeper's as long as it has work to do.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._control, theirs = socket.socketpair()
        start = [sys.executable, "-I", "-S", str(_KEEPER), str(theirs.fileno()), str(grace_s)]
        try:
            with theirs:
                self._keeper = subprocess.Popen(
                    [*start, *command],
                    stdin=files[0],
                    stdout=files[1],
                    stderr=files[2],
                    cwd=cwd,
                    env=dict(env),
                    pass_fds=[theirs.fileno(), lock.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            self._control.close()
            raise

    def ended(self, wait_s: float) -> bool:
        """Whether the agent and everything it started have ended; waits a little."""
        self._control.settimeout(wait_s)
        try:
            data = self._control.recv(65536)
        except TimeoutError:
            return False
        except ConnectionError:
            data = b""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._said.update(json.loads(line))
        self.started = Started(
            failed=self._said.get("failed"),
            exit_code=self._said.get("exit"),
            left_behind=len(self._said.get("left", ())),
        )
        return not data or "exit" in self._said or "failed" in self._said

    def end(self) -> None:
        """End everyone, and return when it is done."""
        with contextlib.suppress(OSError):  # a keeper that is gone has told so, or is found below
            self._control.sendall(b"end\n")
        deadline = time.monotonic() + self._grace_s + _KEEPER_PATIENCE_S
        while time.monotonic() < deadline and not self.ended(_POLL_S):
            pass

    def close(self) -> None:
        """Let go; a keeper that nobody listens to ends everyone."""
        self._control.close()
        self._keeper.wait()
        if "pid" in self._said and "exit" not in self._said and self._keeper.returncode != 0:
            # Somebody ended the keeper itself. What stayed in the agent's own group goes with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._said["pid"], signal.SIGKILL)
