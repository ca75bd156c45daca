"""Asking every question of a dataset in several ways, and how often each found the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.datasets import Ask, Corpus, Dataset, Task
from bench.quality_ground import WHOLE, Cutting, Ground, Tell, ground
from bench.quality_naive import Naive
from bench.ranking import DEPTH, Mean, differences, first_of_each, means, measured
from ralph.index import Embedder
from ralph.index.tables import Collection
from ralph.index.view import View
from ralph.recall.search import Question, search

if TYPE_CHECKING:
    from ralph.index import Vectors

# So many passages hold 20 conversations, or all there are.
_GROUP_DEPTH = 200
_SPARE = 3


class Asked(msgspec.Struct, frozen=True):
    """A question as a way of ranking gets it: its words, when it was asked, how many to give."""

    text: str
    at: str
    depth: int
    embedder: str


# A way of ranking: the ids of the documents, best first. The vector is None without an embedder.
Rank = Callable[[View, Sequence[Collection], Asked, "Vectors | None"], Sequence[str]]


def by_words(
    view: View, collections: Sequence[Collection], asked: Asked, vector: Vectors | None
) -> list[str]:
    """Ralph's search without a vector."""
    return by_mix(view, collections, asked, None)


def by_mix(
    view: View, collections: Sequence[Collection], asked: Asked, vector: Vectors | None
) -> list[str]:
    """Ralph's search as the product asks it, without the floor."""
    question = Question(asked.text, asked.depth, 0.0)
    found = search(view, collections, question, vector=vector, embedder=asked.embedder)
    return [one.record.id for one in found]


def by_meaning(
    view: View, collections: Sequence[Collection], asked: Asked, vector: Vectors | None
) -> list[str]:
    """The nearest passages alone."""
    if vector is None:
        return []
    near: list[tuple[float, int, Collection]] = []
    for collection in collections:
        cosines = view.nearest(collection, vector, asked.depth * _SPARE, [])
        near += [(-cosine, row, collection) for row, cosine in cosines.items()]
    near.sort(key=lambda one: one[:2])
    ids = (view.records(place, [row])[row][1].id for _, row, place in near)
    return first_of_each(ids)[: asked.depth]


# What is shown side by side; "bm25" and "naive" are the baselines of `quality_naive`.
WORDS: Mapping[str, Rank] = {"words": by_words}
WAYS: Mapping[str, Rank] = {"words": by_words, "meaning": by_meaning, "mix": by_mix}
BASELINES = ("bm25", "naive")

Values = dict[str, dict[str, float]]


class TaskReport(msgspec.Struct, frozen=True):
    """Of one task: for each way of ranking the measures of every question, and their means."""

    name: str
    headline: tuple[str, ...]
    questions: int
    values: dict[str, Values]
    means: dict[str, dict[str, Mean]]

    def better(self, way: str, other: str, *, seed: int = 0) -> dict[str, Mean]:
        """How much better one way is than another on the same questions, with intervals."""
        return differences(self.values[way], self.values[other], seed=seed)


class Report(msgspec.Struct, frozen=True):
    """What came out for a dataset."""

    dataset: str
    embedder: str
    documents: int
    corpora: int
    tasks: tuple[TaskReport, ...]
    notes: tuple[str, ...] = ()

    def task(self, name: str) -> TaskReport:
        """The task of this name."""
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
    """Ask everything in every way; `ranks` are other ways than words, meaning and the mix."""
    ways = ranks if ranks is not None else (WAYS if embedder is not None else WORDS)
    rankings: dict[tuple[str, str, str], Sequence[str]] = {}
    with ground(embedder, cutting=cutting, cache=cache) as place:
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
    """The questions to this corpus by their words, each with how deep somebody looks."""
    found: dict[str, tuple[Ask, int]] = {}
    for task in dataset.tasks:
        depth = DEPTH if task.unit == "document" else _GROUP_DEPTH
        for ask in task.asks:
            if ask.corpus == corpus.name and ask.relevant:
                _, known = found.get(ask.text, (ask, 0))
                found[ask.text] = ask, max(depth, known)
    return found


def _rank_all(
    place: Ground,
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
    with place.store.reading() as view:
        collections = [one for one in [view.live(name)] if one is not None]
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
        means={way: means(list(some.values()), seed=seed) for way, some in values.items()},
    )
