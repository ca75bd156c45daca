"""Benchmarks: what Ralph costs, compared with what it is made of, and how well it finds things.

The speed of one machine says nothing about a program. So every figure is compared with a reference
operation that ran in turns with it, and the ratio is what counts. Quality is measured on questions
with known answers, and compared with plain baselines.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from ralph.errors import BadInput, RalphError

BENCHES = {
    "speed": "start, search, remember, lag, ingest, rebuild, disk and memory per record",
    "loop": "what an iteration costs besides its agent",
    "start": "how long hooks delay a client, and how soon the MCP server answers",
    "quality": "how often the right thing is found: by words, by meaning, by both",
    "conversations": "related, search, list and import of conversations; with a dataset, quality",
    "knowledge": "capture, checkpoint and queries of knowledge; with a dataset, quality",
    "everything": "one search over iterations, conversations and knowledge together",
    "page": "start, every view and memory of the page in the browser",
    "server": "searches per second of two servers on one PostgreSQL, compared with an echo",
    "replay": "what hooks would have told the model in real sessions",
    "paths": "how many files and functions each data path crosses",
}


def main(name: str | None, args: Sequence[str]) -> int:
    """Run one benchmark with its arguments, or list them all; return the exit code."""
    if name is None:
        for bench, what in BENCHES.items():
            sys.stdout.write(f"{bench:<13} {what}\n")
        return 0
    if name not in BENCHES:
        raise BadInput(f"there is no benchmark {name!r}", todo=f"There is: {', '.join(BENCHES)}.")
    try:
        code: int = import_module(f"bench.{name}").main(args)
    except SystemExit as end:  # argparse has printed help, or what is wrong
        return int(end.code or 0)
    return code


def run(argv: Sequence[str]) -> int:
    """Run the benchmark named on the command line; an error becomes one line and exit code 1."""
    try:
        return main(argv[0] if argv else None, argv[1:])
    except RalphError as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
