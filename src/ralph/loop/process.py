"""One run of an agent's command: output to a file, a time limit, and no processes left behind.

On Linux and macOS a keeper process, which outlives us if need be, ends the agent and all its
descendants. On Windows they all belong to a job object, which ends them when we end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from ralph import disk
from ralph.errors import BadInput

LOCK = "lock"
_POLL_S = 0.05


class AgentEnd(msgspec.Struct, frozen=True):
    """How an agent's run ended."""

    exit_code: int | None = None
    timed_out: bool = False
    interrupted: bool = False
    duration_ms: int = 0
    stderr: str = ""
    left_behind: int = 0


class _AgentState:
    """What we know about an agent so far."""

    _grace_s: float
    _failed: str | None = None
    _exit_code: int | None = None
    _left_behind = 0


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _KILL_ON_JOB_CLOSE = 0x2000
    _EXTENDED_LIMITS = 9

    class _JobLimits(ctypes.Structure):
        """Windows's JOBOBJECT_EXTENDED_LIMIT_INFORMATION; we only use the flags."""

        _fields_ = (
            ("times", wintypes.LARGE_INTEGER * 2),
            ("flags", wintypes.DWORD),
            ("working_set", ctypes.c_size_t * 2),
            ("processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("priorities", wintypes.DWORD * 2),
            ("io", ctypes.c_ulonglong * 6),
            ("memory", ctypes.c_size_t * 4),
        )

    class _WindowsAgent(_AgentState):
        """An agent in a job; the system ends the job when its last handle, ours, is closed."""

        _agent: subprocess.Popen[bytes] | None = None

        def _start(self, command: list[str], lock: IO[bytes], options: dict[str, Any]) -> None:
            self._job = _new_job()  # it ends with us, so the lock is not needed
            group = subprocess.CREATE_NEW_PROCESS_GROUP
            try:
                self._agent = subprocess.Popen(command, creationflags=group, **options)
            except OSError as error:
                self._failed = error.strerror or str(error)
                return
            handle = wintypes.HANDLE(int(self._agent._handle))  # type: ignore[attr-defined]
            if not ctypes.windll.kernel32.AssignProcessToJobObject(self._job, handle):
                self._agent.kill()
                raise ctypes.WinError()

        def _ended(self, wait_s: float) -> bool:
            """Wait a little; return whether the agent and everything it started have ended."""
            if self._agent is None:
                return True
            try:
                self._exit_code = self._agent.wait(wait_s)
            except subprocess.TimeoutExpired:
                return False
            ctypes.windll.kernel32.TerminateJobObject(self._job, 1)
            return True

        def _end(self) -> None:
            # Windows cannot ask a program without a window to exit.
            ctypes.windll.kernel32.TerminateJobObject(self._job, 1)
            self._ended(self._grace_s)

        def _close(self) -> None:
            ctypes.windll.kernel32.CloseHandle(self._job)
            if self._agent is not None:
                self._agent.wait()

    def _new_job() -> wintypes.HANDLE:
        create = ctypes.windll.kernel32.CreateJobObjectW
        create.restype = wintypes.HANDLE
        job = wintypes.HANDLE(create(None, None))
        limits = _JobLimits()
        limits.flags = _KILL_ON_JOB_CLOSE
        if not ctypes.windll.kernel32.SetInformationJobObject(
            job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
        ):
            raise ctypes.WinError()
        return job

    _System = _WindowsAgent

else:
    import contextlib
    import fcntl
    import json
    import signal
    import socket

    _KEEPER = Path(__file__).with_name("keeper.py")
    _KEEPER_PATIENCE_S = 30.0

    class _PosixAgent(_AgentState):
        """An agent under a keeper that ends it, and all its descendants, when we are gone."""

        _unread = b""

        def _start(self, command: list[str], lock: IO[bytes], options: dict[str, Any]) -> None:
            self._said: dict[str, Any] = {}
            # We lock it here. The keeper inherits the lock and holds it until its work is done.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._control, theirs = socket.socketpair()
            start = [sys.executable, "-I", "-S", str(_KEEPER)]
            try:
                with theirs:
                    self._keeper = subprocess.Popen(
                        [*start, str(theirs.fileno()), str(self._grace_s), *command],
                        pass_fds=[theirs.fileno(), lock.fileno()],
                        start_new_session=True,
                        **options,
                    )
            except BaseException:
                self._control.close()
                raise

        def _ended(self, wait_s: float) -> bool:
            """Wait a little; return whether the agent and everything it started have ended."""
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
            self._failed = self._said.get("failed")
            self._exit_code = self._said.get("exit")
            self._left_behind = len(self._said.get("left", ()))
            return not data or "exit" in self._said or "failed" in self._said

        def _end(self) -> None:
            with contextlib.suppress(OSError):  # if the keeper is gone, the loop below notices
                self._control.sendall(b"end\n")
            deadline = time.monotonic() + self._grace_s + _KEEPER_PATIENCE_S
            while time.monotonic() < deadline and not self._ended(_POLL_S):
                pass

        def _close(self) -> None:
            self._control.close()  # this makes the keeper end all processes
            self._keeper.wait()
            if "pid" in self._said and "exit" not in self._said and self._keeper.returncode != 0:
                # Somebody killed the keeper itself. Kill what is left in the agent's own group.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._said["pid"], signal.SIGKILL)

    _System = _PosixAgent


class AgentProcess(_System):
    """A running agent, and everything it started."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        prompt: bytes,
        folder: Path,
        cwd: Path,
        env: Mapping[str, str],
        grace_s: float,
    ) -> None:
        """Start it. `folder` gets the run's files: prompt.txt, output.jsonl, stderr.txt and a lock.

        The lock is held until the agent and everything it started have ended.
        """
        self.output = folder / "output.jsonl"
        self._stderr = folder / "stderr.txt"
        self._program = command[0]
        self._grace_s = grace_s
        prompt_file = folder / "prompt.txt"
        disk.write(prompt_file, prompt)
        self._began = time.monotonic()
        with (
            prompt_file.open("rb") as stdin,
            disk.appending(self.output) as stdout,
            disk.appending(self._stderr) as stderr,
            disk.appending(folder / LOCK) as lock,
        ):
            files = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
            self._start([*command], lock, {**files, "cwd": cwd, "env": dict(env)})

    def wait(self, *, timeout_s: float, on_tick: Callable[[], bool]) -> AgentEnd:
        """Wait until the agent ends, time runs out, or `on_tick` (called often) returns False."""
        deadline = self._began + timeout_s
        timed_out = interrupted = False
        while not self._ended(_POLL_S):
            interrupted = not on_tick()
            timed_out = not interrupted and time.monotonic() >= deadline
            if interrupted or timed_out:
                self._end()
                break
        if self._failed:
            what = f"the agent's command {self._program!r} cannot be started: {self._failed}"
            raise BadInput(what, todo="Install it, or name another with --agent.")
        took_ms = int((time.monotonic() - self._began) * 1000)
        with self._stderr.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4000))
            stderr = file.read().decode("utf-8", "replace").strip()
        return AgentEnd(self._exit_code, timed_out, interrupted, took_ms, stderr, self._left_behind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
