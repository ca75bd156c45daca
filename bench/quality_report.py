"""What `scripts/bench quality` found, as a table, as JSON and as a chart."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from bench.chart import Bar, Cluster, bars
from bench.quality_run import BASELINES, Report, TaskReport
from bench.ranking import MEASURES, Mean
from bench.report import Row, machine

# The baselines first, and what the product does last.
_ORDER = ("bm25", "words", "meaning", "naive", "mix")
_ABOUT = (
    "recall@k: the share of what is relevant that stands among the first k. "
    "MRR: one by the rank of the first of them, nothing below 20. [95 % bootstrap interval]. "
    "bm25 and naive are baselines: FTS5 as it comes, and half and half with the cosine."
)


class Outcome(msgspec.Struct, frozen=True):
    """A report, which questions it is about, and what a question costs."""

    report: Report
    half: str | None
    seed: int
    cost: Row | None = None


def to_json(outcome: Outcome, *, details: bool = False) -> dict[str, Any]:
    """Everything as JSON-like data; with details every question's measures too."""
    report = outcome.report
    return {
        "bench": "quality",
        "machine": machine(),
        "dataset": report.dataset,
        "embedder": report.embedder,
        "half": outcome.half,
        "seed": outcome.seed,
        "documents": report.documents,
        "corpora": report.corpora,
        "notes": list(report.notes),
        "tasks": [_task(task, details=details) for task in report.tasks],
        "cost": outcome.cost.to_json() if outcome.cost else None,
    }


def _task(task: TaskReport, *, details: bool) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": task.name,
        "questions": task.questions,
        "headline": list(task.headline),
        "ways": {way: msgspec.to_builtins(task.means[way]) for way in ways_of(task)},
    }
    return plain | {"values": task.values} if details else plain


def ways_of(task: TaskReport) -> list[str]:
    """The ways of ranking in the order they are shown; those nobody knows stand last."""
    known = [way for way in _ORDER if way in task.means]
    return known + [way for way in task.means if way not in known]


def write_table(outcome: Outcome, write: Callable[[str], object]) -> None:
    """The report for people: drawn on a terminal, plain columns anywhere else."""
    drawn = sys.stdout.isatty()
    write(_heading(outcome) + "\n")
    for task in outcome.report.tasks:
        title = f"{task.name}, {task.questions} questions"
        head, *lines = _cells(task)
        if drawn:
            _draw(title, head, lines)
        else:
            write(f"\n{title}\n")
            for line in _aligned([head, *lines]):
                write(line + "\n")
    write(f"\n{_ABOUT}\n")
    for note in outcome.report.notes:
        write(f"{note}\n")
    if outcome.cost:
        what, size, ours, reference, ratio, target, ok = outcome.cost.cells()
        write(f"{what} of {size}: {ours}, {reference}, {ratio} {target} {ok}".rstrip() + "\n")


def shown(mean: Mean) -> str:
    """`.918 [.84-.98]`."""
    return f"{_short(mean.mean, 3)} [{_short(mean.low, 2)}-{_short(mean.high, 2)}]"


def _short(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if value >= 0 else text.replace("-0", "-", 1)


def _cells(task: TaskReport) -> list[tuple[str, ...]]:
    ways = ways_of(task)
    lines = [
        (
            f"{measure} *" if measure in task.headline else measure,
            *(shown(task.means[way][measure]) for way in ways),
        )
        for measure in MEASURES
    ]
    return [("", *ways), *lines]


def _aligned(lines: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _draw(title: str, head: tuple[str, ...], lines: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, title=title)
    for line in lines:
        table.add_row(*map(Text, line), style="bold" if line[0].endswith("*") else "")
    Console().print(table)


def _heading(outcome: Outcome) -> str:
    report = outcome.report
    half = f", half {outcome.half} by seed {outcome.seed}" if outcome.half else ""
    corpora = f"in {report.corpora} corpora" if report.corpora > 1 else "in one corpus"
    return (
        f"{report.dataset}{half}: {report.documents:,} documents {corpora}, "
        f"embedder {report.embedder}"
    )


def chart(outcome: Outcome) -> str:
    """The measures that tell most, of every task, as an SVG picture."""
    clusters = [
        Cluster(
            f"{task.name}\n{measure}",
            tuple(_bar(way, task.means[way][measure]) for way in ways_of(task)),
        )
        for task in outcome.report.tasks
        for measure in task.headline
    ]
    return bars(clusters, title=_heading(outcome), pale=BASELINES)


def _bar(way: str, mean: Mean) -> Bar:
    return Bar(way, mean.mean, mean.low, mean.high)
