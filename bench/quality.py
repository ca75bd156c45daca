"""`scripts/bench quality`: how often the right thing is found, by words, by meaning and by both."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import datasets
from bench.datasets import Ask, Corpus, Dataset, Document, Task
from bench.measure import Compared, in_turns
from bench.naive import Naive
from bench.quality_index import WHOLE, CorpusIndex, Cutting, corpus_index
from bench.ranking import DEPTH, MEASURES, Mean, differences, first_of_each, means, measured
from bench.report import (
    NO_TARGET,
    Row,
    Target,
    Tell,
    aligned,
    count,
    parser,
    print_json,
    print_lines,
    row_of,
    short,
    teller,
)
from ralph.errors import BadInput
from ralph.index import Collection, Embedder, IndexView
from ralph.index.sync import live_of
from ralph.memory.ralph import open_ralph
from ralph.recall import Hit
from ralph.recall.score import FLOOR
from ralph.recall.search import Question, find, judge

if TYPE_CHECKING:
    from ralph.index import Vectors

TELL_EVERY_S = 2.0


def main(args: Sequence[str]) -> int:
    """Measure, and show the results."""
    parse = parser("quality", __doc__)
    parse.add_argument("--dataset", required=True, choices=datasets.READERS, help="its format")
    parse.add_argument(
        "--file", required=True, type=Path, help="the dataset's file (gzipped or not) or folder"
    )
    parse.add_argument("--embedder", help="as in `ralph config embedder` (default: the setting)")
    parse.add_argument("--half", choices=("a", "b"), help="only this half of the questions")
    parse.add_argument(
        "--seed", type=int, default=0, help="draws the halves and the intervals (default 0)"
    )
    parse.add_argument("--limit", type=count, help="only the first so many questions of each task")
    parse.add_argument("--records", type=count, help="cost of a question at so many records")
    parse.add_argument("--cache", type=Path, help="keep vectors and indexes there for other runs")
    parse.add_argument("--details", action="store_true", help="in the JSON every question too")
    options = parse.parse_args(args)
    outcome = run(options)
    if options.json:
        return print_json("quality", **to_json(outcome, details=options.details))
    return print_lines(lines_of(outcome))


def run(options: argparse.Namespace) -> Outcome:
    """Read the dataset, choose the questions, and ask them all."""
    whole = datasets.read(options.dataset, options.file)
    chosen = datasets.chosen(whole, half=options.half, seed=options.seed, limit=options.limit)
    if not any(task.asks for task in chosen.tasks):
        raise BadInput(
            f"half {options.half} holds no question", where=str(options.file), todo="Ask it whole."
        )
    embedder = embedder_named(options.embedder)
    tell = teller(TELL_EVERY_S)
    report = evaluate(chosen, embedder, cache=options.cache, seed=options.seed, tell=tell)
    paid = None
    if embedder is not None:
        paid = cost(chosen, embedder, records=options.records, cache=options.cache)
    return Outcome(report, options.half, options.seed, paid)


def embedder_named(name: str | None) -> Embedder | None:
    """Return the embedder with this name, or that of the settings; raise if it does not work."""
    settings: dict[str, Any] = {} if name is None else {"embedder": name}
    with tempfile.TemporaryDirectory(prefix="ralph-quality-") as folder:
        with open_ralph(folder, **settings) as ralph:
            embedder = ralph.store.embedder
        if embedder is not None:
            embedder.check()
    return embedder


# -- asking every question in several ways

# This many passages cover 20 conversations, or all there are.
_GROUP_DEPTH = 200
_SPARE = 3


class Asked(msgspec.Struct, frozen=True):
    """A question for a way of ranking: its text, when it was asked, how many to return."""

    text: str
    at: str
    depth: int
    embedder: str


# A way of ranking returns document ids, best first. The vector is None without an embedder.
Rank = Callable[[IndexView, Sequence[Collection], Asked, "Vectors | None"], Sequence[str]]


def by_words(
    view: IndexView, collections: Sequence[Collection], asked: Asked, vector: Vectors | None
) -> list[str]:
    """Rank by Ralph's search without a vector."""
    return by_mix(view, collections, asked, None)


def by_mix(
    view: IndexView, collections: Sequence[Collection], asked: Asked, vector: Vectors | None
) -> list[str]:
    """Rank by Ralph's search as the product runs it, but without the minimum score."""
    return ranked(view, collections, Question(asked.text, asked.depth, 0.0), asked.embedder, vector)


def ranked(
    view: IndexView,
    collections: Sequence[Collection],
    question: Question,
    embedder: str,
    vector: Vectors | None,
) -> list[str]:
    """Return the ids of the documents in the order of Ralph's search."""
    found = find(view, collections, question, vector=vector, embedder=embedder)
    for one in found.candidates:
        one.read = lambda one: Hit(one.record.id, "passage", None, None, "", None, None)
    return [one.record.id for one in judge(question, found)[: question.limit]]


def by_meaning(
    view: IndexView, collections: Sequence[Collection], asked: Asked, vector: Vectors | None
) -> list[str]:
    """Rank by the nearest passages alone."""
    if vector is None:
        return []
    near: list[tuple[float, int, Collection]] = []
    for collection in collections:
        [found] = view.nearest(collection, vector[None, :], asked.depth * _SPARE)
        near += [(-cosine, row, collection) for row, cosine in zip(*found, strict=True)]
    near.sort(key=lambda one: one[:2])
    fetched = (view.fetch(place, [row], records=True)[row].record for _, row, place in near)
    return first_of_each(record.id for record in fetched if record)[: asked.depth]


# What is shown side by side; "bm25" and "naive" are the baselines of `bench.naive`.
WORDS: Mapping[str, Rank] = {"words": by_words}
WAYS: Mapping[str, Rank] = {"words": by_words, "meaning": by_meaning, "mix": by_mix}
BASELINES = ("bm25", "naive")

Values = dict[str, dict[str, float]]


class TaskReport(msgspec.Struct, frozen=True):
    """One task: for each way of ranking, the measures of every question and their means."""

    name: str
    headline: tuple[str, ...]
    questions: int
    values: dict[str, Values]
    means: dict[str, dict[str, Mean]]

    def better(self, way: str, other: str, *, seed: int = 0) -> dict[str, Mean]:
        """Return how much better one way is than another on the same questions, with intervals."""
        return differences(self.values[way], self.values[other], seed=seed)


class Report(msgspec.Struct, frozen=True):
    """The results for a dataset."""

    dataset: str
    embedder: str
    documents: int
    corpora: int
    tasks: tuple[TaskReport, ...]
    notes: tuple[str, ...] = ()

    def task(self, name: str) -> TaskReport:
        """Return the task with this name."""
        return next(one for one in self.tasks if one.name == name)


def evaluate(
    dataset: Dataset,
    embedder: Embedder | None,
    ranks: Mapping[str, Rank] | None = None,
    *,
    cutting: Cutting = WHOLE,
    cache: Path | None = None,
    baselines: bool = True,
    seed: int = 0,
    tell: Tell = lambda text: None,
) -> Report:
    """Ask everything in every way; `ranks` replaces the ways words, meaning and mix."""
    ways = ranks if ranks is not None else (WAYS if embedder is not None else WORDS)
    rankings: dict[tuple[str, str, str], Sequence[str]] = {}
    with corpus_index(embedder, cutting=cutting, cache=cache) as place:
        for number, corpus in enumerate(dataset.corpora, 1):
            asks = _asks(dataset, corpus)
            _rank_all(place, corpus, asks, ways, rankings, baselines=baselines)
            tell(f"{dataset.name}: {number} of {len(dataset.corpora)} corpora asked")
    shown = list(dict.fromkeys(way for way, _, _ in rankings))
    groups = {c.name: {one.id: one.group for one in c.documents} for c in dataset.corpora}
    return Report(
        dataset=dataset.name,
        embedder="none" if embedder is None else embedder.identity,
        documents=sum(len(corpus.documents) for corpus in dataset.corpora),
        corpora=len(dataset.corpora),
        tasks=tuple(
            _judged(task, shown, rankings, groups, seed)
            for task in dataset.tasks
            if any(ask.relevant for ask in task.asks)
        ),
        notes=dataset.notes,
    )


def _asks(dataset: Dataset, corpus: Corpus) -> dict[str, tuple[Ask, int]]:
    """Return the questions to this corpus by their text, each with how many results to look at."""
    found: dict[str, tuple[Ask, int]] = {}
    for task in dataset.tasks:
        depth = DEPTH if task.unit == "document" else _GROUP_DEPTH
        for ask in task.asks:
            if ask.corpus == corpus.name and ask.relevant:
                _, deepest = found.get(ask.text, (ask, 0))
                found[ask.text] = ask, max(depth, deepest)
    return found


def _rank_all(
    place: CorpusIndex,
    corpus: Corpus,
    asks: Mapping[str, tuple[Ask, int]],
    ways: Mapping[str, Rank],
    rankings: dict[tuple[str, str, str], Sequence[str]],
    *,
    baselines: bool,
) -> None:
    name = place.built(corpus)
    embedder = place.embedder
    identity = "none" if embedder is None else embedder.identity
    vectors = {text: None if embedder is None else embedder.embed_query(text) for text in asks}
    if baselines:
        with closing(Naive(corpus.documents, embedder)) as naive:
            for text, (_, depth) in asks.items():
                vector = vectors[text]
                rankings["bm25", corpus.name, text] = naive.by_words(text, depth)
                if vector is not None:
                    rankings["naive", corpus.name, text] = naive.by_mix(text, vector, depth)
    with place.store.state() as view:
        collections = [one for one in [live_of(view, name)] if one is not None]
        for text, (ask, depth) in asks.items():
            asked = Asked(text, ask.at, depth, identity)
            for way, rank in ways.items():
                rankings[way, corpus.name, text] = rank(view, collections, asked, vectors[text])


def _judged(
    task: Task,
    ways: Sequence[str],
    rankings: Mapping[tuple[str, str, str], Sequence[str]],
    groups: Mapping[str, Mapping[str, str]],
    seed: int,
) -> TaskReport:
    values: dict[str, Values] = {}
    for way in ways:
        of_way: Values = {}
        for ask in task.asks:
            if not ask.relevant:
                continue
            ranking = rankings[way, ask.corpus, ask.text]
            if task.unit == "group":
                ranking = first_of_each(groups[ask.corpus][one] for one in ranking)
            of_way[ask.id] = measured(ranking, ask.relevant)
        values[way] = of_way
    return TaskReport(
        name=task.name,
        headline=task.headline,
        questions=len(task.asks),
        values=values,
        means={way: means(list(scores.values()), seed=seed) for way, scores in values.items()},
    )


# -- what one question costs, compared with the naive mix over the same documents

LIMIT = 10
_QUESTIONS = 60
_TARGET = Target(ratio=2.0)
_TARGET_SIZE = 10_000


def cost(
    dataset: Dataset,
    embedder: Embedder,
    *,
    records: int | None = None,
    cutting: Cutting = WHOLE,
    cache: Path | None = None,
) -> Row:
    """Measure the median time of a question with both, in turns; both embed the question.

    It uses the largest corpus, or this many records taken from all of them.
    """
    corpus = pooled(dataset, records) if records else largest(dataset)
    texts = list(dict.fromkeys(ask.text for task in dataset.tasks for ask in task.asks))
    questions = texts[:: max(1, len(texts) // _QUESTIONS)][:_QUESTIONS]
    ours: list[float] = []
    theirs: list[float] = []
    with (
        corpus_index(embedder, cutting=cutting, cache=cache) as place,
        closing(Naive(corpus.documents, place.embedder)) as naive,
    ):
        name = place.built(corpus)

        def ask(text: str) -> object:
            vector = embedder.embed_query(text)
            with place.store.state() as view:
                found = [one for one in [live_of(view, name)] if one is not None]
                return ranked(view, found, Question(text, LIMIT, FLOOR), embedder.identity, vector)

        def ask_naively(text: str) -> object:
            return naive.by_mix(text, embedder.embed_query(text), LIMIT, quick=True)

        for number, text in enumerate(questions):
            both = {"ours": partial(ask, text), "naive": partial(ask_naively, text)}
            times = in_turns(both, rounds=2, warm_up=1 if number else 2)
            ours += times["ours"]
            theirs += times["naive"]
    return row_of(
        f"one question, best {LIMIT}",
        len(corpus.documents),
        Compared(tuple(ours), tuple(theirs)),
        "naive mix",
        target=_TARGET if len(corpus.documents) >= _TARGET_SIZE else NO_TARGET,
    )


def largest(dataset: Dataset) -> Corpus:
    """Return the corpus with the most documents."""
    return max(dataset.corpora, key=lambda corpus: len(corpus.documents))


def pooled(dataset: Dataset, count: int) -> Corpus:
    """Return this many documents of all corpora as one; if there are too few, they repeat."""
    documents: list[Document] = []
    for turn in itertools.count():
        for corpus in dataset.corpora:
            for one in corpus.documents:
                if len(documents) == count:
                    return Corpus(f"pooled-{count}", tuple(documents))
                name = f"{turn}/{corpus.name}/{one.id}"
                documents.append(msgspec.structs.replace(one, id=name))
    raise AssertionError("the counting above never ends")


# -- the report

# The order of the columns; what the product does comes last.
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
    """Return everything as JSON-like data; with `details`, every question's measures, too."""
    report = outcome.report
    return {
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
    """Return the ways of ranking in the order they are shown; unknown ones come last."""
    ordered = [way for way in _ORDER if way in task.means]
    return ordered + [way for way in task.means if way not in ordered]


def lines_of(outcome: Outcome) -> list[str]:
    """Return the report for people."""
    lines = [_heading(outcome)]
    for task in outcome.report.tasks:
        lines += ["", f"{task.name}, {task.questions} questions", *aligned(_cells(task))]
    lines += ["", _ABOUT, *outcome.report.notes]
    if outcome.cost:
        what, size, ours, reference, ratio, target, ok = outcome.cost.cells()
        lines.append(f"{what} of {size}: {ours}, {reference}, {ratio} {target} {ok}".rstrip())
    return lines


def shown(mean: Mean) -> str:
    """Return a mean as `.918 [.84-.98]`."""
    return f"{short(mean.mean, 3)} [{short(mean.low, 2)}-{short(mean.high, 2)}]"


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


def _heading(outcome: Outcome) -> str:
    report = outcome.report
    half = f", half {outcome.half} by seed {outcome.seed}" if outcome.half else ""
    corpora = f"in {report.corpora} corpora" if report.corpora > 1 else "in one corpus"
    return (
        f"{report.dataset}{half}: {report.documents:,} documents {corpora}, "
        f"embedder {report.embedder}"
    )
