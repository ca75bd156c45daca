"""Watching an agent on Windows: a job object holds its whole family and ends it with us."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    import subprocess
    from collections.abc import Mapping, Sequence
    from ctypes import wintypes
    from pathlib import Path
    from typing import IO

    from ralph.loop.environment import Started

    _KILL_ON_JOB_CLOSE = 0x2000
    _EXTENDED_LIMITS = 9

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
            ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _JobLimits(ctypes.Structure):
        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_ulonglong * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    class WindowsAgent:
        """An agent in a job; the system ends the job when its last handle, ours, is closed."""

        def __init__(
            self,
            command: Sequence[str],
            *,
            files: tuple[IO[bytes], IO[bytes], IO[bytes]],
            lock: IO[bytes],  # the job ends with us: nobody has to wait for it
            cwd: Path,
            env: Mapping[str, str],
            grace_s: float,
        ) -> None:
            self.started = Started()
            self._grace_s = grace_s
            self._job = _new_job()
            try:
                self._agent: subprocess.Popen[bytes] | None = subprocess.Popen(
                    list(command),
                    stdin=files[0],
                    stdout=files[1],
                    stderr=files[2],
                    cwd=cwd,
                    env=dict(env),
                    creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
                )
            except OSError as error:
                self._agent = None
                self.started = Started(failed=error.strerror or str(error))
                return
            handle = wintypes.HANDLE(int(self._agent._handle))  # type: ignore[attr-defined]
            if not ctypes.windll.kernel32.AssignProcessToJobObject(self._job, handle):
                self._agent.kill()
                raise ctypes.WinError()

        def ended(self, wait_s: float) -> bool:
            """Whether the agent has ended; waits a little. The rest of the job ends with it."""
            if self._agent is None:
                return True
            try:
                code = self._agent.wait(wait_s)
            except subprocess.TimeoutExpired:
                return False
            ctypes.windll.kernel32.TerminateJobObject(self._job, 1)
            self.started = Started(exit_code=code)
            return True

        def end(self) -> None:
            """End everyone. There is no polite way to ask a program without a window."""
            ctypes.windll.kernel32.TerminateJobObject(self._job, 1)
            self.ended(self._grace_s)

        def close(self) -> None:
            """Let go; the system ends whoever is left in the job."""
            ctypes.windll.kernel32.CloseHandle(self._job)
            if self._agent is not None:
                self._agent.wait()

    def _new_job() -> wintypes.HANDLE:
        create = ctypes.windll.kernel32.CreateJobObjectW
        create.restype = wintypes.HANDLE
        job = wintypes.HANDLE(create(None, None))
        limits = _JobLimits()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
        if not ctypes.windll.kernel32.SetInformationJobObject(
            job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
        ):
            raise ctypes.WinError()
        return job
