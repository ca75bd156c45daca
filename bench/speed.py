"""`scripts/bench speed`: every measure at every size, each beside its reference."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import bulk, processes, reads, writes
from bench.arguments import sizes_of, teller
from bench.ground import Ground, Tell, build
from bench.report import Row, to_json, to_markdown, write_table
from ralph.errors import BadInput

Measure = Callable[[Ground, int], list[Row]]

# In this order: what looks at the memory as it was built comes before what adds to it.
MEASURES: dict[str, Measure] = {
    "start": processes.version,
    "ingest": bulk.ingest,
    "disk": bulk.disk,
    "memory": processes.memory,
    "cold": processes.cold,
    "search": reads.search,
    "remember": writes.remember,
    "lag": writes.lag,
    "rebuild": bulk.rebuild,
}
_ONCE = "start"
_SIZES = "1000,10000,100000"


def main(args: Sequence[str]) -> int:
    """Measure, and show or write what came out; 2 for arguments that make no sense."""
    try:
        options = _parser().parse_args(args)
    except SystemExit as end:
        return int(end.code or 0)
    sizes = sizes_of(options.sizes, example=_SIZES)
    rows = run(
        sizes,
        repeat=max(1, options.repeat),
        only=_only(options.only),
        folder=options.folder,
        tell=teller(),
    )
    if options.out:
        options.out.write_text(to_markdown(rows), encoding="utf-8")
    if options.json:
        sys.stdout.write(json.dumps(to_json(rows, sizes=sizes), indent=2) + "\n")
    else:
        write_table(rows, sys.stdout.write)
    return 0


def run(
    sizes: Sequence[int],
    *,
    repeat: int,
    only: Sequence[str] = tuple(MEASURES),
    folder: Path | None = None,
    tell: Tell = lambda text: None,
) -> list[Row]:
    """The rows of all measures; without a folder nothing is left behind."""
    rows: list[Row] = []
    for place, size in enumerate(sizes):
        with _ground(folder, size, tell) as ground:
            for name in MEASURES:
                if name in only and (name != _ONCE or place == 0):
                    tell(f"{size:,}: {name}")
                    rows += MEASURES[name](ground, repeat)
    return rows


@contextmanager
def _ground(folder: Path | None, size: int, tell: Tell) -> Iterator[Ground]:
    if folder is not None:
        yield build(folder.resolve() / f"speed-{size}", size, tell)
        return
    temporary = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    try:
        yield build(temporary, size, tell)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench speed", description=__doc__)
    parser.add_argument("--sizes", default=_SIZES, help=f"how many records (default {_SIZES})")
    parser.add_argument("--only", default="", help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--repeat", type=int, default=5, help="more of it, steadier figures")
    parser.add_argument("--folder", type=Path, help="keep the built memories there, and reuse them")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write a Markdown table to this file too")
    return parser


def _only(text: str) -> list[str]:
    chosen = [one.strip() for one in text.split(",") if one.strip()]
    unknown = [one for one in chosen if one not in MEASURES]
    if unknown:
        raise BadInput(
            f"there is no measure {', '.join(unknown)}", todo=f"There are: {', '.join(MEASURES)}."
        )
    return chosen or list(MEASURES)
