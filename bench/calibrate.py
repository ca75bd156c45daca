"""`scripts/bench calibrate`: what a score means, and the constants behind it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import chart
from bench.calibrate_evidence import Files, Judged, everything, halves, judged
from bench.calibrate_fit import fitted
from bench.calibrate_report import Way, diagram, measured, to_json, write_table
from bench.datasets import Dataset
from bench.quality import embedder_named
from ralph.errors import BadInput
from ralph.index import Embedder

_TELL_EVERY_S = 2.0


def main(args: Sequence[str]) -> int:
    """Ask, fit, and show or write what came out; 2 for arguments that make no sense."""
    try:
        options = _parser().parse_args(args)
    except SystemExit as end:
        return int(end.code or 0)
    files = Files(options.own, options.pairs, options.longmemeval, options.issue_fix)
    dataset = everything(files)
    embedder = embedder_named(options.embedder)
    ways = [run(dataset, one, options) for one in ([embedder, None] if embedder else [None])]
    if options.chart:
        chart.write(options.chart, diagram(ways))
    if options.json:
        plain = to_json(ways, half=options.half, seed=options.seed)
        sys.stdout.write(json.dumps(plain, indent=2) + "\n")
    else:
        write_table(ways, sys.stdout.write, half=options.half, seed=options.seed)
    return 0


def run(dataset: Dataset, embedder: Embedder | None, options: argparse.Namespace) -> Way:
    """Find the constants on one half of the questions and try them on the other."""
    hits = list(judged(dataset, embedder, cache=options.cache, tell=_teller()))
    first, second = halves(hits, options.seed)
    mine, others = (first, second) if options.half == "a" else (second, first)
    _need_questions(mine, others, options.own)
    identity = None if embedder is None else embedder.identity
    return measured(identity, others, found=fitted(mine), final=fitted(hits), fitted_on=len(mine))


def _need_questions(mine: Sequence[Judged], others: Sequence[Judged], file: Path) -> None:
    if not mine or not others:
        raise BadInput(
            "there are too few judged hits for two halves",
            where=str(file),
            todo="Give more questions, or other files too.",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench calibrate", description=__doc__)
    parser.add_argument("--own", required=True, type=Path, help="pairs labelled by hand (JSONL)")
    parser.add_argument(
        "--pairs", type=Path, help="records, questions for each, and questions nothing answers"
    )
    parser.add_argument("--longmemeval", type=Path, help="a LongMemEval file")
    parser.add_argument("--issue-fix", type=Path, help="issues and their fixes (JSONL)")
    parser.add_argument("--embedder", help="as in `ralph config embedder` (default: the setting)")
    parser.add_argument(
        "--half", choices=("a", "b"), default="a", help="fit on this half, tell of the other"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the halves (default 0)")
    parser.add_argument("--cache", type=Path, help="keep vectors and indexes there for other runs")
    parser.add_argument("--chart", type=Path, help="write a picture (SVG) to this file too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _teller() -> Callable[[str], None]:
    begin = last = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _TELL_EVERY_S:
            last = time.monotonic()
            sys.stderr.write(f"[{last - begin:6.1f} s] {text}\n")
            sys.stderr.flush()

    return tell
