"""What `scripts/bench calibrate` found, as tables, as JSON and as a reliability diagram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bench.calibrate_evidence import OWN, Judged
from bench.calibrate_fit import BINS, OVER, Table, table, weights
from bench.chart import Curve, Dot, Square, reliability
from bench.report import machine
from ralph.recall.calibration import Constants, score, score_by

ALL = "all sources"
_ABOUT = (
    "A cell: how many hits have such a score, and the share of them that was right. "
    f"{ALL}: each counts the same, our own double, the right hits as much as the wrong ones. "
    "Hits that nobody judged are left out."
)


class Way(msgspec.Struct, frozen=True):
    """Scores with one embedder, or by words alone, on hits they were not fitted on.

    `now` and `after` are tables of the same hits: scored as the product does, and with the
    constants `found` on the other half; `final` are the constants fitted on everything.
    """

    embedder: str | None
    fitted_on: int
    questions: int
    found: Constants
    final: Constants
    now: tuple[Table, ...]
    after: tuple[Table, ...]


def measured(
    embedder: str | None,
    hits: Sequence[Judged],
    *,
    found: Constants,
    final: Constants,
    fitted_on: int,
) -> Way:
    """Every source and all of them together, as scored now and with the constants found."""

    def tables(value: Callable[[Judged], float]) -> tuple[Table, ...]:
        sources = dict.fromkeys(one.source for one in hits)
        each = [table(s, [one for one in hits if one.source == s], value) for s in sources]
        return (table(ALL, hits, value, weights(hits)), *each)

    return Way(
        embedder=embedder,
        fitted_on=fitted_on,
        questions=len({one.question for one in hits}),
        found=found,
        final=final,
        now=tables(lambda one: score(one.evidence, embedder)),
        after=tables(lambda one: score_by(one.evidence, found)),
    )


def to_json(ways: Sequence[Way], *, half: str, seed: int) -> dict[str, Any]:
    """Everything as JSON-like data."""
    return {
        "bench": "calibrate",
        "machine": machine(),
        "fitted_on_half": half,
        "seed": seed,
        "ways": msgspec.to_builtins(ways),
    }


def write_table(
    ways: Sequence[Way], write: Callable[[str], object], *, half: str, seed: int
) -> None:
    """The report for people."""
    for way in ways:
        hits = way.after[0].right + way.after[0].wrong
        write(
            f"{_named(way)}: fitted on {way.fitted_on:,} judged hits (half {half} by seed {seed}), "
            f"told of the other {hits:,} of {way.questions:,} questions\n\n"
        )
        for line in _aligned([("", "log loss", "error", f"log loss {OWN}"), *_losses(way)]):
            write(f"{line}\n")
        write("\n")
        for line in _aligned([_head(), *map(_cells, way.after)]):
            write(f"{line}\n")
        write(f"\nfitted on half {half}: {_written(way.found)}\n")
        write(f"fitted on all, for calibration.py: {_written(way.final)}\n\n")
    write(_ABOUT + "\n")


def diagram(ways: Sequence[Way]) -> str:
    """Share that was right over score, on the half nothing was fitted on."""
    squares = [
        Square(
            "with meaning" if way.embedder else "words alone",
            tuple(_curve(one) for one in way.after if one.source in (ALL, OWN)),
        )
        for way in ways
    ]
    title = f"What scores are worth: {ways[0].embedder or 'words alone'}"
    return reliability(squares, title=title, marks=OVER)


def _curve(one: Table) -> Curve:
    dots = [Dot(b.score, b.right, b.low, b.high, b.count) for b in one.bins if b.count]
    return Curve(one.source, tuple(dots))


def _named(way: Way) -> str:
    return f"with {way.embedder}" if way.embedder else "words alone"


def _losses(way: Way) -> list[tuple[str, ...]]:
    return [
        (name, _short(one[0].log_loss, 3), _short(one[0].error, 3), _short(_own(one), 3))
        for name, one in (("as scored now", way.now), ("as fitted", way.after))
    ]


def _own(tables: Sequence[Table]) -> float | None:
    return next((one.log_loss for one in tables if one.source == OWN), None)


def _head() -> tuple[str, ...]:
    bins = (f"{_plain(begin)}-{_plain(end)}" for begin, end in BINS)
    over = " ".join(_short(least, 2) for least in OVER)
    return ("source", *bins, f"right over {over}", f"wrong over {over}")


def _cells(one: Table) -> tuple[str, ...]:
    bins = (f"{b.count} {_short(b.right, 2)}" if b.count else "-" for b in one.bins)
    return (one.source, *bins, _shares(one.right_over), _shares(one.wrong_over))


def _shares(shares: Sequence[float] | None) -> str:
    return "-" if shares is None else " ".join(_short(one, 3) for one in shares)


def _written(constants: Constants) -> str:
    return f"Constants({', '.join(f'{one:.2f}' for one in msgspec.structs.astuple(constants))})"


def _plain(value: float) -> str:
    return f"{value:g}".replace("0.", ".", 1)


def _short(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}".removeprefix("0")


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
