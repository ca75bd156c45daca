"""`scripts/bench knowledge`: what capturing, publishing and querying knowledge costs.

With `--dataset`, how well knowledge is found: each issue is captured as a failure with its fix as
the solution. The questions are its first line and the discussion before the fix. They are asked
through the memory and, for comparison, of the index alone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import corpus
from bench.datasets import Issue, read_issues
from bench.measure import (
    BenchProject,
    Compared,
    compared,
    each,
    python,
    taken,
    temporary_project,
)
from bench.ranking import DEPTH, FoundBy, first_of_each, means, measured, show_found
from bench.report import NO_TARGET, Row, Target, Tell, count, parser, row_of, show_rows, teller
from bench.speed import BareSearch, beside_numpy, warm_searches
from ralph import disk
from ralph.memory.knowledge import COLLECTION, TASK_MIN_SCORE, Knowledge
from ralph.memory.ralph import Ralph, open_ralph
from ralph.recall.search import Question
from ralph.records import Record
from ralph.records.knowledge import (
    Checkpoint,
    Entry,
    FailureSolution,
    PublishedEntry,
    checkpoint_id,
    entry_record,
    pattern_id,
)

_STAGED = 1000
_A_PROJECT = 1000
_TECHNOLOGIES = ("python", "typescript", "rust", "go")
_WARM_UP = 3
# A larger corpus repeats the first texts with other numbers.
_TEXTS = 20_000
_ASK = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    for one in ralph.knowledge.query_for_task(sys.argv[2], min_score=0.4):
        sys.stdout.write(one.id + "\\n")
"""


def main(args: Sequence[str]) -> int:
    """Measure, and show or write the results."""
    parse = parser("knowledge", __doc__, sizes="10000,100000", repeat=3)
    parse.add_argument(
        "--staged", type=count, default=_STAGED, help=f"how many to publish (default {_STAGED})"
    )
    parse.add_argument(
        "--dataset", type=Path, help="issues and their fixes (JSONL, gzipped or not)"
    )
    parse.add_argument("--embedder", default="static", help="for the dataset (default static)")
    parse.add_argument("--limit", type=count, help="only the first so many issues of the dataset")
    options = parse.parse_args(args)
    if options.dataset is not None:
        found = evaluate(
            options.dataset, embedder=options.embedder, limit=options.limit, tell=teller()
        )
        headlines = dict.fromkeys((one.what for one in found), _HEADLINE)
        return show_found("knowledge", found, headlines, as_json=options.json)
    rows = run(options.sizes, repeat=options.repeat, staged=options.staged, tell=teller())
    return show_rows("knowledge", rows, options)


# -- how fast


def run(
    sizes: Sequence[int], *, repeat: int, staged: int = _STAGED, tell: Tell = lambda text: None
) -> list[Row]:
    """Return the rows for every size; leave nothing behind."""
    rows: list[Row] = []
    for size in sizes:
        with _published(size) as place:
            tell(f"{size:,}: published and indexed")
            for measure in (_capture, _warm, _cold):
                rows += measure(place, repeat)
                tell(f"{size:,}: {rows[-1].what}")
            rows += _checkpoint(place, repeat, staged)
    return rows


@contextmanager
def _published(size: int) -> Iterator[BenchProject]:
    with temporary_project(size) as place:
        with place.opened() as ralph:
            publish_entries(ralph, size)
        yield place


def publish_entries(ralph: Ralph, size: int) -> None:
    """Publish and index this many entries of several projects."""
    for start in range(0, size, _A_PROJECT):
        name = f"project {start // _A_PROJECT}"
        entries = [_made_up(n, name) for n in range(start, min(start + _A_PROJECT, size))]
        _publish(ralph.knowledge, name, entries)
    ralph.knowledge.sync()


def _publish(memory: Knowledge, name: str, entries: Sequence[Entry]) -> None:
    """Publish them as they are, each as its own pattern: grouping is measured with checkpoints."""
    ids = [one.id for one in memory.capture_all(entries)]
    covers = tuple(PublishedEntry(one, pattern_id(one)) for one in ids)
    line = Checkpoint(project=name, why="manual", covers=covers)
    memory.write(name, functools.partial(_line, line, checkpoint_id(name, ids[0])))


def _line(line: Checkpoint, identity: str, number: int) -> Record:
    return entry_record(line, id=identity, number=number)


def _made_up(number: int, project: str) -> FailureSolution:
    plain = corpus.iteration(number % _TEXTS)
    errors = plain.get("errors") or [{"message": ""}]
    summary: str = plain["summary"]
    middle = summary.find(". ", len(summary) // 2) + 2
    return FailureSolution(
        project=project,
        technology=_TECHNOLOGIES[number % len(_TECHNOLOGIES)],
        failure_description=f"{plain['task_title']}, number {number}. {summary[:middle]}",
        error_message=errors[0]["message"],
        solution_steps=summary[middle:] or summary,
    )


def _capture(place: BenchProject, repeat: int) -> list[Row]:
    """Compare one capture into an open journal with one flushed append of its line."""
    rounds = 20 * repeat
    first = place.size
    made = [_made_up(n, "project 0") for n in range(first, first + rounds + _WARM_UP)]
    text = json.dumps(_made_up(0, "project 0").to_json()).encode() + b"\n"
    plain = place.scratch / "plain.jsonl"
    with place.opened() as ralph, plain.open("ab", buffering=0) as file:
        memory = ralph.knowledge
        both = compared(
            each(lambda entry: memory.capture_all([entry]), made),
            lambda: disk.write_all(file.fileno(), text),
            rounds=rounds,
            warm_up=_WARM_UP,
        )
    target = Target(about="a flushed append")
    return [row_of("one capture", place.size, both, "one flushed append", target=target)]


def _warm(place: BenchProject, repeat: int) -> list[Row]:
    questions = corpus.queries(10 * repeat + _WARM_UP, size=min(place.size, _TEXTS))
    with place.opened() as ralph:
        memory = ralph.knowledge
        return warm_searches(
            {
                "query for a task, warm": memory.query_for_task,
                "the same, one technology": lambda text: memory.query_for_task(
                    text, technology="python"
                ),
                "query for a failure, warm": memory.query_for_failure,
                "context for a task, warm": memory.context_for_task,
            },
            BareSearch(memory.store.index, memory.store.embedder, COLLECTION),
            questions,
            place.size,
            Target(about="about 60 ms") if place.size == 100_000 else NO_TARGET,
        )


def _cold(place: BenchProject, repeat: int) -> list[Row]:
    query = corpus.queries(1, size=min(place.size, _TEXTS))[0]
    command = python(_ASK, str(place.project), query)
    return beside_numpy(place, {"query, fresh process": (command, NO_TARGET)}, rounds=2 * repeat)


def _checkpoint(place: BenchProject, repeat: int, staged: int) -> list[Row]:
    """Compare a checkpoint of `staged` entries with embedding their texts once."""
    ours: list[float] = []
    reference: list[float] = []
    with place.opened() as ralph:
        memory = ralph.knowledge
        embedder = memory.store.embedder
        for turn in range(repeat):
            name = f"staged {turn}"
            first = 2 * place.size + turn * staged
            entries = [_made_up(n, name) for n in range(first, first + staged)]
            memory.capture_all(entries)
            texts = [f"{one.failure_description}\n{one.solution_steps}" for one in entries]
            ours.append(taken(functools.partial(memory.checkpoint, name)))
            if embedder is not None:
                reference.append(taken(functools.partial(embedder.embed_passages, texts)))
    target = Target(about="seconds") if staged == _STAGED else NO_TARGET
    what = f"checkpoint of {staged:,} staged"
    both = Compared(tuple(ours), tuple(reference) or (0.0,))
    return [row_of(what, place.size, both, "embedding their texts once", target=target)]


# -- how well

_HEADLINE = ("recall@1", "recall@5", "recall@10", "MRR")
_PROJECT = "dataset"


def evaluate(
    file: Path,
    *,
    embedder: str = "static",
    limit: int | None = None,
    tell: Tell = lambda text: None,
) -> list[FoundBy]:
    """Capture every issue of a file, publish them, and ask for each."""
    issues = read_issues(file)[:limit]
    with (
        temporary_project() as place,
        open_ralph(place.project, home=place.home, embedder=embedder) as ralph,
    ):
        memory = ralph.knowledge
        captured = memory.capture_all([_entry(issue) for issue in issues])
        done = memory.checkpoint(_PROJECT)
        tell(f"{len(issues)} issues published as {done.new_patterns} patterns")
        ids = [entry.id for entry in captured]
        titles = [(issue.title, name) for issue, name in zip(issues, ids, strict=True)]
        talk = [(issue.discussion, name) for issue, name in zip(issues, ids, strict=True)]
        return [*_asked(memory, "title", titles, tell), *_asked(memory, "discussion", talk, tell)]


def _asked(
    memory: Knowledge, what: str, pairs: Sequence[tuple[str, str]], tell: Tell
) -> list[FoundBy]:
    """Ask for each entry with its text, unless that is empty."""
    by_memory: list[dict[str, float]] = []
    by_index: list[dict[str, float]] = []
    above = 0
    floor = TASK_MIN_SCORE
    asked = [(text, wanted) for text, wanted in pairs if text]
    for number, (text, wanted) in enumerate(asked, 1):
        patterns = memory.query_for_task(text, max_results=DEPTH, min_score=0.0)
        right = [one for one in patterns if wanted in one.entries]
        by_memory.append(measured([one.id for one in patterns], {one.id for one in right} or {""}))
        above += any((one.score or 0.0) >= floor for one in right)
        hits = memory.store.ask([memory], Question(text, DEPTH, 0.0))
        by_index.append(measured(first_of_each(hit.id for hit in hits), {wanted}))
        if number % 100 == 0:
            tell(f"{what}: {number} of {len(asked)} asked")
    if not asked:
        return []
    return [
        FoundBy(f"by {what}", len(asked), means(by_memory), above / len(asked)),
        FoundBy(f"by {what}, index alone", len(asked), means(by_index)),
    ]


def _entry(issue: Issue) -> FailureSolution:
    return FailureSolution(
        project=_PROJECT,
        failure_description=issue.problem_statement,
        solution_steps=issue.gold_patch,
    )
