"""`scripts/bench quality`: how often the right thing is found, by words, by meaning and by both."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import datasets
from bench.quality_cost import cost
from bench.quality_report import Outcome, chart, to_json, write_table
from bench.quality_run import evaluate
from ralph.errors import BadInput
from ralph.index import Embedder
from ralph.memories import open_ralph

_TELL_EVERY_S = 2.0


def main(args: Sequence[str]) -> int:
    """Measure, and show or write what came out; 2 for arguments that make no sense."""
    try:
        options = _parser().parse_args(args)
    except SystemExit as end:
        return int(end.code or 0)
    for name in ("limit", "records"):
        given = getattr(options, name)
        if given is not None and given < 1:
            raise BadInput(f"--{name} must be at least 1, not {given}")
    outcome = run(options)
    if options.chart:
        _write(options.chart, chart(outcome))
    if options.json:
        plain = to_json(outcome, details=options.details)
        sys.stdout.write(json.dumps(plain, indent=2) + "\n")
    else:
        write_table(outcome, sys.stdout.write)
    return 0


def run(options: argparse.Namespace) -> Outcome:
    """Read, choose the questions, ask them all."""
    whole = datasets.read(options.dataset, options.file)
    some = datasets.chosen(whole, half=options.half, seed=options.seed, limit=options.limit)
    if not any(task.asks for task in some.tasks):
        raise BadInput(
            f"half {options.half} holds no question", where=str(options.file), todo="Ask it whole."
        )
    embedder = embedder_named(options.embedder)
    report = evaluate(some, embedder, cache=options.cache, seed=options.seed, tell=_teller())
    paid = None
    if embedder is not None:
        paid = cost(some, embedder, records=options.records, cache=options.cache)
    return Outcome(report, options.half, options.seed, paid)


def embedder_named(name: str | None) -> Embedder | None:
    """The embedder as the settings make it; it must be able to work now."""
    given: dict[str, Any] = {} if name is None else {"embedder": name}
    with tempfile.TemporaryDirectory(prefix="ralph-quality-") as folder:
        with open_ralph(folder, **given) as ralph:
            embedder = ralph.place.embedder
        if embedder is not None:
            embedder.check()
    return embedder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench quality", description=__doc__)
    parser.add_argument("--dataset", required=True, choices=datasets.names(), help="its format")
    parser.add_argument(
        "--file", required=True, type=Path, help="the dataset's file (gzipped or not) or folder"
    )
    parser.add_argument("--embedder", help="as in `ralph config embedder` (default: the setting)")
    parser.add_argument("--half", choices=("a", "b"), help="only this half of the questions")
    parser.add_argument(
        "--seed", type=int, default=0, help="draws the halves and the intervals (default 0)"
    )
    parser.add_argument("--limit", type=int, help="only the first so many questions of each task")
    parser.add_argument(
        "--records", type=int, help="measure the cost of a question at so many records"
    )
    parser.add_argument("--cache", type=Path, help="keep vectors and indexes there for other runs")
    parser.add_argument("--chart", type=Path, help="write a picture (SVG) to this file too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--details", action="store_true", help="in the JSON every question too")
    return parser


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"the chart cannot be written ({error.strerror or error})", where=str(file)
        ) from None


def _teller() -> Callable[[str], None]:
    last = begin = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _TELL_EVERY_S:
            last = time.monotonic()
            sys.stderr.write(f"[{last - begin:6.1f} s] {text}\n")
            sys.stderr.flush()

    return tell
