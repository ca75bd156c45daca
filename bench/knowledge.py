"""`scripts/bench knowledge`: what capturing, publishing and asking for knowledge costs."""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from bench import corpus, knowledge_quality
from bench.arguments import sizes_of, teller
from bench.ground import Tell
from bench.measure import Compared, compared, each, fresh, in_turns, python, taken
from bench.reads import Bare
from bench.report import NO_TARGET, Row, Target, of_times, to_json, to_markdown, write_table
from ralph import disk
from ralph.errors import BadInput
from ralph.kinds.knowledge import (
    Checkpoint,
    Covered,
    Entry,
    FailureSolution,
    checkpoint_id,
    pattern_id,
    said_record,
)
from ralph.memories import Ralph, open_ralph
from ralph.memories.knowledge import Knowledge
from ralph.memories.knowledge_stream import COLLECTION
from ralph.record import Record

_SIZES = "10000,100000"
_STAGED = 1000
_A_PROJECT = 1000
_TECHNOLOGIES = ("python", "typescript", "rust", "go")
_WARM_UP = 3
# The texts of a larger corpus are the first ones again, under other numbers.
_TEXTS = 20_000
_NUMPY = 'python -c "import numpy"'
_SCAN = "NumPy scan + FTS5 query"
_BINARY = getattr(os, "O_BINARY", 0)
_LARGE = 100_000
_ASK = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    for one in ralph.knowledge.query_for_task(sys.argv[2], min_score=0.4):
        sys.stdout.write(one.id + "\\n")
"""


class Place(msgspec.Struct, frozen=True):
    """Where the knowledge lies, and how many entries there are."""

    entries: int
    project: Path
    home: Path

    @contextmanager
    def opened(self) -> Iterator[Ralph]:
        """The memory, open."""
        with open_ralph(self.project, home=self.home) as ralph:
            yield ralph


def main(args: Sequence[str]) -> int:
    """Measure, and show or write what came out; 2 for arguments that make no sense."""
    try:
        options = _parser().parse_args(args)
    except SystemExit as end:
        return int(end.code or 0)
    if options.repeat < 1 or options.staged < 1 or (options.limit or 1) < 1:
        raise BadInput("--repeat, --staged and --limit go from 1 upwards")
    tell = teller()
    if options.dataset is not None:
        found = knowledge_quality.evaluate(
            options.dataset, embedder=options.embedder, limit=options.limit, tell=tell
        )
        if options.json:
            plain = {"bench": "knowledge", "quality": knowledge_quality.to_json(found)}
            sys.stdout.write(json.dumps(plain, indent=2) + "\n")
        else:
            knowledge_quality.write_table(found, sys.stdout.write)
        return 0
    sizes = sizes_of(options.sizes, example=_SIZES)
    rows = run(sizes, repeat=options.repeat, staged=options.staged, tell=tell)
    if options.out:
        options.out.write_text(to_markdown(rows, name="knowledge"), encoding="utf-8")
    if options.json:
        sys.stdout.write(json.dumps(to_json(rows, sizes=sizes, name="knowledge"), indent=2) + "\n")
    else:
        write_table(rows, sys.stdout.write, name="knowledge")
    return 0


def run(
    sizes: Sequence[int], *, repeat: int, staged: int = _STAGED, tell: Tell = lambda text: None
) -> list[Row]:
    """The rows at every size; nothing is left behind."""
    rows: list[Row] = []
    for size in sizes:
        with _built(size, tell) as place:
            for measure in (_capture, _warm, _cold):
                rows += measure(place, repeat)
                tell(f"{size:,}: {rows[-1].what}")
            rows += _checkpoint(place, repeat, staged)
            tell(f"{size:,}: {rows[-1].what}")
    return rows


# -- knowledge made up


@contextmanager
def _built(size: int, tell: Tell) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    try:
        home, project = folder / "home", folder / "project"
        project.mkdir()
        with open_ralph(project, home=home) as ralph:
            ralph.project.init()
            for start in range(0, size, _A_PROJECT):
                name = f"project {start // _A_PROJECT}"
                some = [_entry(n, name) for n in range(start, min(start + _A_PROJECT, size))]
                _publish(ralph.knowledge, name, some)
            tell(f"{size:,}: published")
            ralph.knowledge.sync()
            tell(f"{size:,}: indexed")
        yield Place(size, project, home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _publish(memory: Knowledge, name: str, entries: Sequence[Entry]) -> None:
    """Publish them as they are, each a pattern of its own: putting them together is measured
    where a checkpoint is."""
    ids = [one.id for one in memory.capture_all(entries)]
    covers = tuple(Covered(one, pattern_id(one)) for one in ids)
    line = Checkpoint(project=name, why="manual", covers=covers)
    memory.write(name, functools.partial(_line, line, checkpoint_id(name, ids[0])))


def _line(line: Checkpoint, identity: str, number: int) -> Record:
    return said_record(line, id=identity, number=number)


def _entry(number: int, project: str) -> FailureSolution:
    told = corpus.iteration(number % _TEXTS)
    errors = told.get("errors") or [{"message": ""}]
    summary: str = told["summary"]
    middle = summary.find(". ", len(summary) // 2) + 2
    return FailureSolution(
        project=project,
        technology=_TECHNOLOGIES[number % len(_TECHNOLOGIES)],
        failure_description=f"{told['task_title']}, number {number}. {summary[:middle]}",
        error_message=errors[0]["message"],
        solution_steps=summary[middle:] or summary,
    )


# -- measures


def _capture(place: Place, repeat: int) -> list[Row]:
    """One capture into a project's journal that is open, beside one flushed append of its line."""
    rounds = 20 * repeat
    first = place.entries
    made = [_entry(n, "project 0") for n in range(first, first + rounds + _WARM_UP)]
    plain = place.home / "plain.jsonl"
    fd = os.open(plain, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)
    try:
        with place.opened() as ralph:
            memory = ralph.knowledge
            text = json.dumps(_entry(0, "project 0").to_json()).encode() + b"\n"
            both = compared(
                each(lambda one: memory.capture_all([one]), made),
                lambda: disk.write_all(fd, text),
                rounds=rounds,
                warm_up=_WARM_UP,
            )
    finally:
        os.close(fd)
    target = Target(about="a flushed append")
    return [of_times("one capture", place.entries, both, "one flushed append", target=target)]


def _warm(place: Place, repeat: int) -> list[Row]:
    """Each round asks another question, both sides the same one."""
    rounds = 10 * repeat
    questions = corpus.queries(rounds + _WARM_UP, size=min(place.entries, _TEXTS))
    target = Target(about="about 60 ms") if place.entries == _LARGE else NO_TARGET
    rows: list[Row] = []
    with place.opened() as ralph:
        memory = ralph.knowledge
        shelf = memory.shelf
        with closing(Bare(shelf.index, shelf.embedder, COLLECTION)) as bare:
            prepared = [(bare.match(one), bare.vector(one)) for one in questions]
            asking: dict[str, Callable[[str], object]] = {
                "query for a task, warm": memory.query_for_task,
                "the same, one technology": lambda one: memory.query_for_task(
                    one, technology="python"
                ),
                "query for a failure, warm": memory.query_for_failure,
                "context for a task, warm": memory.context_for_task,
            }
            for what, ask in asking.items():
                both = compared(
                    each(ask, questions),
                    each(lambda one: bare.search(*one), prepared),
                    rounds=rounds,
                    warm_up=_WARM_UP,
                )
                rows.append(of_times(what, place.entries, both, _SCAN, target=target))
    return rows


def _cold(place: Place, repeat: int) -> list[Row]:
    query = corpus.queries(1, size=min(place.entries, _TEXTS))[0]
    times = in_turns(
        {
            "ours": fresh(python(_ASK, str(place.project), query), home=place.home),
            "reference": fresh(python("import numpy"), home=place.home),
        },
        rounds=2 * repeat,
    )
    both = Compared(times["ours"], times["reference"])
    return [of_times("query, fresh process", place.entries, both, _NUMPY)]


def _checkpoint(place: Place, repeat: int, staged: int) -> list[Row]:
    """A checkpoint of so many staged entries, beside embedding their texts once."""
    ours: list[float] = []
    reference: list[float] = []
    with place.opened() as ralph:
        memory = ralph.knowledge
        embedder = memory.shelf.embedder
        for turn in range(repeat):
            name = f"staged {turn}"
            first = 2 * place.entries + turn * staged
            some = [_entry(n, name) for n in range(first, first + staged)]
            memory.capture_all(some)
            texts = [f"{one.failure_description}\n{one.solution_steps}" for one in some]
            ours.append(taken(functools.partial(memory.checkpoint, name)))
            if embedder is not None:
                reference.append(taken(functools.partial(embedder.embed_passages, texts)))
    target = Target(about="seconds") if staged == _STAGED else NO_TARGET
    what = f"checkpoint of {staged:,} staged"
    both = Compared(tuple(ours), tuple(reference) or (0.0,))
    return [of_times(what, place.entries, both, "embedding their texts once", target=target)]


# -- arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench knowledge", description=__doc__)
    parser.add_argument("--sizes", default=_SIZES, help=f"how many entries (default {_SIZES})")
    parser.add_argument(
        "--staged", type=int, default=_STAGED, help=f"how many to publish (default {_STAGED})"
    )
    parser.add_argument("--repeat", type=int, default=3, help="more of it, steadier figures")
    parser.add_argument(
        "--dataset",
        type=Path,
        help="a file of issues and their fixes (gzipped or not): how well, not how fast",
    )
    parser.add_argument("--embedder", default="static", help="for the dataset (default static)")
    parser.add_argument("--limit", type=int, help="of the dataset only the first so many issues")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write a Markdown table to this file too")
    return parser
