"""The figures of a bench: one row a measure, as a table, as Markdown, as JSON."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from bench.measure import Compared

Unit = Literal["s", "s/record", "bytes", "bytes/record"]

COLUMNS = ("what", "size", "ours", "reference", "ratio", "target", "ok")


class Target(msgspec.Struct, frozen=True):
    """What a measure shall reach: a ratio, or where nothing compares, a value."""

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
        """Whether the target is reached; None where there is none."""
        if self.target.ratio is not None:
            return self.ratio <= self.target.ratio
        if self.target.value is not None:
            return self.ours <= self.target.value
        return None

    def to_json(self) -> dict[str, Any]:
        """Everything about the row; an infinite ratio is null."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain["ratio"] = self.ratio if math.isfinite(self.ratio) else None
        plain["spread"] = [one if math.isfinite(one) else None for one in self.spread]
        plain["target"] = {name: value for name, value in plain["target"].items() if value}
        return plain | {"ok": self.ok}

    def cells(self) -> tuple[str, ...]:
        """The row as a person reads it, in the order of COLUMNS."""
        return (
            self.what,
            f"{self.size:,}" if self.size is not None else "",
            shown(self.ours, self.unit),
            f"{shown(self.reference, self.unit)} {self.reference_is}",
            f"{self.ratio:.2f}x ({self.spread[0]:.2f}-{self.spread[1]:.2f})",
            _target(self),
            {True: "yes", False: "NO", None: ""}[self.ok],
        )


def of_times(
    what: str,
    size: int | None,
    both: Compared,
    reference_is: str,
    *,
    unit: Unit = "s",
    target: Target = NO_TARGET,
) -> Row:
    """The row of something measured in turns with its reference."""
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
    """A value with a unit that suits its size."""
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


def machine() -> dict[str, Any]:
    """What it ran on."""
    import sqlite3

    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def to_json(rows: Sequence[Row], *, sizes: Sequence[int], name: str = "speed") -> dict[str, Any]:
    """The whole report as JSON-like data."""
    return {
        "bench": name,
        "machine": machine(),
        "sizes": list(sizes),
        "rows": [row.to_json() for row in rows],
    }


def to_markdown(rows: Sequence[Row], *, name: str = "speed") -> str:
    """The report as a Markdown table."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in rows)]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"# scripts/bench {name}\n\n{_heading()}\n\n{body}\n"


def write_table(
    rows: Sequence[Row], write: Callable[[str], object], *, name: str = "speed"
) -> None:
    """The report for people: drawn on a terminal, plain columns anywhere else."""
    if sys.stdout.isatty():
        _draw(rows, name)
        return
    write(_heading() + "\n")
    for line in aligned([COLUMNS, *(row.cells() for row in rows)]):
        write(line + "\n")


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines with their cells in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _draw(rows: Sequence[Row], name: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*COLUMNS, title=f"scripts/bench {name}", caption=_heading())
    for row in rows:
        style = {True: "green", False: "bold red", None: ""}[row.ok]
        *most, verdict = row.cells()
        table.add_row(*map(Text, most), Text(verdict, style=style))
    Console().print(table)


def _heading() -> str:
    on = machine()
    return (
        f"Python {on['python']}, SQLite {on['sqlite']}, {on['system']} {on['machine']}, "
        f"{on['cpus']} cores; medians, the middle half of the ratios in brackets"
    )


def _target(row: Row) -> str:
    target = row.target
    parts = [f"<= {target.ratio:g}x"] if target.ratio is not None else []
    if target.value is not None:
        parts.append(f"<= {shown(target.value, row.unit)}")
    return ", ".join([*parts, *filter(None, [target.about])])
