"""What all benchmarks share on the command line: options, progress, and results for people and
programs."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from bench.measure import Compared

Unit = Literal["s", "s/record", "bytes", "bytes/record"]
Tell = Callable[[str], None]

COLUMNS = ("what", "size", "ours", "reference", "ratio", "target", "ok")


# -- options and progress


def parser(
    name: str, about: str | None, *, sizes: str = "", repeat: int = 0
) -> argparse.ArgumentParser:
    """Return the options of a benchmark: `--json`, and sizes and rounds if it measures time."""
    options = argparse.ArgumentParser(prog=f"scripts/bench {name}", description=about)
    options.add_argument("--json", action="store_true", help="print JSON")
    if sizes:
        options.add_argument(
            "--sizes", type=counts, default=sizes, help=f"how many records (default {sizes})"
        )
        options.add_argument(
            "--repeat", type=count, default=repeat, help=f"rounds (default {repeat})"
        )
        options.add_argument("--out", type=Path, help="write a Markdown table to this file too")
    return options


def count(text: str) -> int:
    """Read a number from 1 upwards, `10_000` or `10000`."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 upwards")
    return number


def counts(text: str) -> list[int]:
    """Read comma-separated numbers."""
    return [count(part) for part in text.split(",")]


def teller(every_s: float = 0.0) -> Tell:
    """Return a function that reports progress on stderr, with a time, at most every `every_s`."""
    begin = time.monotonic()
    last = begin if every_s else -math.inf

    def tell(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every_s:
            last = now
            sys.stderr.write(f"[{now - begin:6.1f} s] {text}\n")
            sys.stderr.flush()

    return tell


# -- rows: one measure and its reference


class Target(msgspec.Struct, frozen=True):
    """What a measure must reach: a ratio, or a value if there is nothing to compare with."""

    ratio: float | None = None
    value: float | None = None
    about: str = ""


NO_TARGET = Target()


class Row(msgspec.Struct, frozen=True):
    """One measure and its reference."""

    what: str
    size: int | None
    unit: Unit
    ours: float
    reference: float
    reference_is: str
    ratio: float
    spread: tuple[float, float]
    rounds: int
    target: Target = NO_TARGET

    @property
    def ok(self) -> bool | None:
        """Whether the target is reached; None if there is none."""
        if self.target.ratio is not None:
            return self.ratio <= self.target.ratio
        if self.target.value is not None:
            return self.ours <= self.target.value
        return None

    def to_json(self) -> dict[str, Any]:
        """Return everything about the row; an infinite ratio is null."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain["ratio"] = self.ratio if math.isfinite(self.ratio) else None
        plain["spread"] = [one if math.isfinite(one) else None for one in self.spread]
        plain["target"] = {name: value for name, value in plain["target"].items() if value}
        return plain | {"ok": self.ok}

    def cells(self) -> tuple[str, ...]:
        """Return the row for people, in the order of COLUMNS."""
        target = [f"<= {self.target.ratio:g}x"] if self.target.ratio is not None else []
        if self.target.value is not None:
            target.append(f"<= {shown(self.target.value, self.unit)}")
        return (
            self.what,
            f"{self.size:,}" if self.size is not None else "",
            shown(self.ours, self.unit),
            f"{shown(self.reference, self.unit)} {self.reference_is}",
            f"{self.ratio:.2f}x ({self.spread[0]:.2f}-{self.spread[1]:.2f})",
            ", ".join([*target, *filter(None, [self.target.about])]),
            {True: "yes", False: "NO", None: ""}[self.ok],
        )


def row_of(
    what: str,
    size: int | None,
    both: Compared,
    reference_is: str,
    *,
    unit: Unit = "s",
    target: Target = NO_TARGET,
) -> Row:
    """Return the row of something measured with its reference."""
    return Row(
        what=what,
        size=size,
        unit=unit,
        ours=both.ours_median,
        reference=both.reference_median,
        reference_is=reference_is,
        ratio=both.ratio,
        spread=both.spread,
        rounds=len(both.ours),
        target=target,
    )


def shown(value: float, unit: Unit) -> str:
    """Return a value with a unit that suits its size."""
    suffix = "/record" if unit.endswith("/record") else ""
    if unit.startswith("bytes"):
        for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}{suffix}"
        return f"{value:.0f} B{suffix}"
    rate = f" = {1 / value:,.0f}/s" if suffix and value > 0 else ""
    for name, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:.{0 if value * factor >= 100 else 2}f} {name}{suffix}{rate}"
    return f"{value * 1e6:.0f} us{suffix}{rate}"


# -- printing


def show_rows(name: str, rows: Sequence[Row], options: argparse.Namespace) -> int:
    """Print the rows as the options say; return the exit code."""
    if options.out:
        options.out.write_text(to_markdown(rows, name=name), encoding="utf-8")
    if options.json:
        return print_json(name, sizes=options.sizes, rows=[row.to_json() for row in rows])
    return print_lines([_heading(), *aligned([COLUMNS, *(row.cells() for row in rows)])])


def print_json(name: str, **report: Any) -> int:
    """Print a report with the machine it ran on; return the exit code."""
    plain = {"bench": name, "machine": machine(), **report}
    return print_lines([json.dumps(plain, indent=2)])


def print_lines(lines: Sequence[str]) -> int:
    """Print the lines; return the exit code."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines with their cells in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def short(value: float | None, digits: int) -> str:
    """Return a number as `.918`, `-.021` or `1.000`; `-` for None."""
    if value is None:
        return "-"
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if value >= 0 else text.replace("-0", "-", 1)


def to_markdown(rows: Sequence[Row], *, name: str) -> str:
    """Return the rows as a Markdown table."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in rows)]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"# scripts/bench {name}\n\n{_heading()}\n\n{body}\n"


def machine() -> dict[str, Any]:
    """Return facts about the machine."""
    import sqlite3

    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def _heading() -> str:
    on = machine()
    return (
        f"Python {on['python']}, SQLite {on['sqlite']}, {on['system']} {on['machine']}, "
        f"{on['cpus']} cores; medians, the middle half of the ratios in brackets"
    )
