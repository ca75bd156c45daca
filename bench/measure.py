"""Measuring in turns: an operation and its reference alternately, so that both meet one noise.

What is a process start is measured on fresh processes; every process ends before its measure does.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ralph.errors import RalphError

Operation = Callable[[], object]
_T = TypeVar("_T")

_PROCESS_TIMEOUT_S = 600.0
_STATUS = Path("/proc/self/status")


class Compared(msgspec.Struct, frozen=True):
    """The seconds an operation and its reference took, round by round."""

    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ours_median(self) -> float:
        """What one of ours takes."""
        return statistics.median(self.ours)

    @property
    def reference_median(self) -> float:
        """What one of the reference takes."""
        return statistics.median(self.reference)

    @property
    def ratio(self) -> float:
        """How many times the reference ours takes."""
        return ratio(self.ours_median, self.reference_median)

    @property
    def spread(self) -> tuple[float, float]:
        """Between which ratios the middle half of the rounds lies."""
        return middle_half(
            [ratio(one, other) for one, other in zip(self.ours, self.reference, strict=False)]
        )


def ratio(ours: float, reference: float) -> float:
    """How many times the reference; infinite when there is nothing to compare with."""
    return ours / reference if reference > 0 else float("inf")


def middle_half(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def taken(operation: Operation) -> float:
    """The seconds one call takes."""
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


def in_turns(
    operations: Mapping[str, Operation], *, rounds: int, warm_up: int = 1
) -> dict[str, tuple[float, ...]]:
    """The seconds of every operation in every round; each round begins with another one."""
    names = list(operations)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warm_up, rounds):
        first = number % len(names)
        for name in itertools.chain(names[first:], names[:first]):
            seconds = taken(operations[name])
            if number >= 0:
                times[name].append(seconds)
    return {name: tuple(some) for name, some in times.items()}


def compared(ours: Operation, reference: Operation, *, rounds: int, warm_up: int = 1) -> Compared:
    """One operation beside its reference."""
    times = in_turns({"ours": ours, "reference": reference}, rounds=rounds, warm_up=warm_up)
    return Compared(times["ours"], times["reference"])


def each(ask: Callable[[_T], object], values: Sequence[_T]) -> Operation:
    """The same asked of one value after another, one a call."""
    left = iter(values)
    return lambda: ask(next(left))


# -- processes


def fresh(command: Sequence[str], *, home: Path) -> Callable[[], str]:
    """An operation that runs a command to its end in a process of its own, and gives its output."""
    environment = child_environment(home)

    def run() -> str:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PROCESS_TIMEOUT_S,
        )
        if done.returncode:
            told = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RalphError(
                f"a process of the bench failed with exit code {done.returncode}: {told}",
                where=" ".join(command[:4]),
            )
        return done.stdout

    return run


def child_environment(home: Path) -> dict[str, str]:
    """This process's environment, with a home of the bench's own."""
    return os.environ | {"RALPH_HOME": str(home), "PYTHONIOENCODING": "utf-8"}


def python(code: str, *args: str) -> list[str]:
    """The command that runs this code with the interpreter we run on."""
    return [sys.executable, "-P", "-c", code, *args]


def ralph_command() -> list[str]:
    """The installed command if it stands beside the interpreter, else the package itself."""
    script = Path(sys.executable).with_name("ralph.exe" if sys.platform == "win32" else "ralph")
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "ralph"]


def memory_bytes() -> tuple[int, int]:
    """This process's resident memory now and at its peak; zeros where the system does not tell."""
    try:
        status = _STATUS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0, 0
    lines = (line.split() for line in status.splitlines())
    sizes = {line[0]: int(line[1]) * 1024 for line in lines if line[0] in ("VmRSS:", "VmHWM:")}
    return sizes.get("VmRSS:", 0), sizes.get("VmHWM:", 0)
