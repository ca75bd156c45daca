"""Measure an operation and its reference in turns, so that both meet the same noise.

It also creates the temporary projects to measure in. The start of a process is measured with fresh
processes; every process ends before its measurement does.
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
    """The seconds that an operation and its reference took in each round."""

    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ours_median(self) -> float:
        """The median time of the operation."""
        return statistics.median(self.ours)

    @property
    def reference_median(self) -> float:
        """The median time of the reference."""
        return statistics.median(self.reference)

    @property
    def ratio(self) -> float:
        """The time of the operation as a multiple of the reference."""
        return ratio(self.ours_median, self.reference_median)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and highest ratio of the middle half of the rounds."""
        return middle_half(
            [ratio(mine, theirs) for mine, theirs in zip(self.ours, self.reference, strict=False)]
        )


def ratio(ours: float, reference: float) -> float:
    """Return a multiple of the reference; infinite if there is nothing to compare with."""
    return ours / reference if reference > 0 else float("inf")


def middle_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def taken(operation: Operation) -> float:
    """Return the seconds that one call takes."""
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


def in_turns(
    operations: Mapping[str, Operation], *, rounds: int, warm_up: int = 1
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of every operation in every round; each round begins with another one."""
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
    """Measure one operation and its reference in turns."""
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
    """Compare the seconds per item for keeping a chunk with writing it with one flush."""
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
    """Return an operation that passes the next value to `ask` with each call."""
    left = iter(values)
    return lambda: ask(next(left))


# -- processes


def fresh(
    command: Sequence[str],
    *,
    home: Path,
    given: str = "",
    environment: Mapping[str, str] | None = None,
) -> Callable[[], str]:
    """Return an operation that runs a command in a new process and returns its output.

    `given` is its input, `environment` more variables.
    """
    environment = child_environment(home) | dict(environment or {})

    def run() -> str:
        done = subprocess.run(
            command,
            env=environment,
            input=given,
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
    """Return this process's environment with the bench's own home."""
    return os.environ | {"RALPH_HOME": str(home), "PYTHONIOENCODING": "utf-8"}


def python(code: str, *args: str) -> list[str]:
    """Return the command that runs this code with the current interpreter."""
    return [sys.executable, "-P", "-c", code, *args]


def ralph_command() -> list[str]:
    """Return the installed command if it is beside the interpreter, else the package itself."""
    script = Path(sys.executable).with_name("ralph.exe" if sys.platform == "win32" else "ralph")
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "ralph"]


# -- projects


class BenchProject(msgspec.Struct, frozen=True):
    """A project with its own home, the size of its memory, and how filling it went."""

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
        """Open the memory."""
        with open_ralph(self.project, home=self.home) as ralph:
            yield ralph


@contextmanager
def temporary_project(size: int = 0) -> Iterator[BenchProject]:
    """Create an empty project with `init`; leave nothing behind."""
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
    """Create a project whose memory has this many made-up iterations.

    A project that is built in a given folder stays there and is used again. Measuring adds some
    records to it, and they stay.
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
    """Add iterations to the memory, chunk by chunk."""
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
