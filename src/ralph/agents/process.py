"""One run of an agent's command: output to a file, a wall clock, and an end for everyone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ralph import disk
from ralph.agents.watch import Watched
from ralph.errors import BadInput

if sys.platform == "win32":
    from ralph.agents.windows import KeptAgent
else:
    from ralph.agents.posix import KeptAgent

LOCK = "lock"
_POLL_S = 0.05
_STDERR_TAIL_BYTES = 4000


class Ended(msgspec.Struct, frozen=True):
    """How an agent's run ended."""

    exit_code: int | None
    timed_out: bool
    interrupted: bool
    duration_ms: int
    stderr: str
    left_behind: int


class AgentProcess:
    """An agent that runs now. Leaving the `with` block ends it, whatever happened."""

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
        """The folder keeps the run's files: prompt.txt, output.jsonl, stderr.txt, and a lock.

        The lock is held until the agent and everything it started have ended.
        """
        self.output = folder / "output.jsonl"
        self._stderr = folder / "stderr.txt"
        self._program = command[0]
        prompt_file = folder / "prompt.txt"
        disk.write(prompt_file, prompt)
        self._began = time.monotonic()
        with (
            prompt_file.open("rb") as stdin,
            self.output.open("ab") as stdout,
            self._stderr.open("ab") as stderr,
            (folder / LOCK).open("ab") as lock,
        ):
            self._agent: Watched = KeptAgent(
                command,
                files=(stdin, stdout, stderr),
                lock=lock,
                cwd=cwd,
                env=env,
                grace_s=grace_s,
            )

    def wait(self, *, timeout_s: float, on_tick: Callable[[], bool]) -> Ended:
        """Until the agent ends, its time is over, or `on_tick` (called often) says to stop."""
        deadline = self._began + timeout_s
        timed_out = interrupted = False
        while not self._agent.ended(_POLL_S):
            interrupted = not on_tick()
            timed_out = not interrupted and time.monotonic() >= deadline
            if interrupted or timed_out:
                self._agent.end()
                break
        started = self._agent.started
        if started.failed:
            raise BadInput(
                f"the agent's command {self._program!r} cannot be started: {started.failed}",
                todo="Install it, or name another with --agent.",
            )
        return Ended(
            exit_code=started.exit_code,
            timed_out=timed_out,
            interrupted=interrupted,
            duration_ms=int((time.monotonic() - self._began) * 1000),
            stderr=self._stderr_tail(),
            left_behind=started.left_behind,
        )

    def _stderr_tail(self) -> str:
        with self._stderr.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _STDERR_TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._agent.close()
