"""Measuring in turns: an operation and its reference alternately, so that both meet one noise.

Also the temporary projects in which measuring happens. What is a process start is measured on fresh
processes; every process ends before its measure does.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bench import corpus
from ralph import disk
from ralph.errors import RalphError
from ralph.memory.ralph import Ralph, open_ralph

Operation = Callable[[], object]
_T = TypeVar("_T")

_PROCESS_TIMEOUT_S = 600.0
_BUILT_MARK = "built.json"
_CHUNKS = 10
FEATURE = "bench"


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
            [ratio(mine, theirs) for mine, theirs in zip(self.ours, self.reference, strict=False)]
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
    return {name: tuple(seconds) for name, seconds in times.items()}


def compared(ours: Operation, reference: Operation, *, rounds: int, warm_up: int = 1) -> Compared:
    """One operation beside its reference."""
    times = in_turns({"ours": ours, "reference": reference}, rounds=rounds, warm_up=warm_up)
    return Compared(times["ours"], times["reference"])


def in_chunks(
    size: int,
    chunk: int,
    make: Callable[[int, int], _T],
    keep: Callable[[_T], object],
    plain: Callable[[_T], list[Any]],
    file: Path,
) -> Compared:
    """The seconds that keeping one of so many takes, beside writing it with one flush."""
    ours: list[float] = []
    reference: list[float] = []
    with file.open("ab", buffering=0) as stream:
        for start in range(0, size, chunk):
            stop = min(start + chunk, size)
            made = make(start, stop)
            begin = time.perf_counter()
            keep(made)
            middle = time.perf_counter()
            lines = "".join(f"{json.dumps(line)}\n" for line in plain(made))
            disk.write_all(stream.fileno(), lines.encode())
            ours.append((middle - begin) / (stop - start))
            reference.append((time.perf_counter() - middle) / (stop - start))
    file.unlink()
    return Compared(tuple(ours), tuple(reference))


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
            reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RalphError(
                f"a process of the bench failed with exit code {done.returncode}: {reason}",
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


# -- projects


class BenchProject(msgspec.Struct, frozen=True):
    """A project with a home of its own, how much its memory holds, and how filling it went."""

    folder: Path
    size: int = 0
    ingest: Compared | None = None

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    @contextmanager
    def opened(self) -> Iterator[Ralph]:
        """The memory, open."""
        with open_ralph(self.project, home=self.home) as ralph:
            yield ralph


@contextmanager
def temporary_project(size: int = 0) -> Iterator[BenchProject]:
    """An empty project that `init` has made; nothing of it is left behind."""
    with tempfile.TemporaryDirectory(prefix="ralph-bench-", ignore_cleanup_errors=True) as folder:
        place = BenchProject(Path(folder), size)
        place.project.mkdir()
        place.scratch.mkdir()
        with place.opened() as ralph:
            ralph.project.init()
        yield place


@contextmanager
def filled_project(
    size: int, *, folder: Path | None = None, tell: Callable[[str], None] = lambda text: None
) -> Iterator[BenchProject]:
    """A project whose memory holds so many made-up iterations.

    One that is built in a given folder stays there and is used again. Measuring adds some records
    to it, and the folder keeps them.
    """
    if folder is None:
        with temporary_project(size) as place:
            yield fill(place, tell)
        return
    place = BenchProject(folder.resolve(), size)
    mark = place.folder / _BUILT_MARK
    built = {"corpus": corpus.VERSION, "seed": corpus.SEED, "size": size}
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == built:
        with place.opened() as ralph:
            ralph.feature(FEATURE).sync()
        yield place
        return
    for old in (place.project, place.home):
        shutil.rmtree(old, ignore_errors=True)
    for new in (place.project, place.scratch):
        new.mkdir(parents=True, exist_ok=True)
    place = fill(place, tell)
    mark.write_text(json.dumps(built), encoding="utf-8")
    yield place


def fill(place: BenchProject, tell: Callable[[str], None] = lambda text: None) -> BenchProject:
    """Put iterations into the memory, chunk by chunk."""
    with place.opened() as ralph:
        memory = ralph.feature(FEATURE)

        def keep(iterations: list[dict[str, Any]]) -> None:
            memory.remember_all(iterations)
            memory.sync()
            tell(f"{place.size:,}: {iterations[-1]['iteration_number']:,} records kept and indexed")

        ingest = in_chunks(
            place.size,
            max(1, place.size // _CHUNKS),
            lambda start, stop: list(corpus.iterations(start, stop)),
            keep,
            lambda iterations: iterations,
            place.scratch / "ingest.jsonl",
        )
    return msgspec.structs.replace(place, ingest=ingest)
