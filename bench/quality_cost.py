"""What one question costs: Ralph's search beside the naive mix, over the same documents."""

from __future__ import annotations

import itertools
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from bench.datasets import Corpus, Dataset, Document
from bench.measure import Compared, in_turns
from bench.quality_ground import WHOLE, Cutting, ground
from bench.quality_naive import Naive
from bench.report import NO_TARGET, Row, Target, of_times
from ralph.index import Embedder
from ralph.recall.calibration import FLOOR
from ralph.recall.search import Question, search

LIMIT = 10
_QUESTIONS = 60
_TARGET, _TARGET_SIZE = Target(ratio=2.0), 10_000


def cost(
    dataset: Dataset,
    embedder: Embedder,
    *,
    records: int | None = None,
    cutting: Cutting = WHOLE,
    cache: Path | None = None,
) -> Row:
    """The median time of a question with both, in turns; both make the question's vector.

    Over the largest corpus, or over so many records drawn from all of them.
    """
    corpus = pooled(dataset, records) if records else largest(dataset)
    texts = list(dict.fromkeys(ask.text for task in dataset.tasks for ask in task.asks))
    some = texts[:: max(1, len(texts) // _QUESTIONS)][:_QUESTIONS]
    ours: list[float] = []
    theirs: list[float] = []
    with (
        ground(embedder, cutting=cutting, cache=cache) as place,
        closing(Naive(corpus.documents, place.embedder)) as naive,
    ):
        name = place.built(corpus)

        def ask(text: str) -> object:
            vector = embedder.embed_query(text)
            with place.store.reading() as view:
                found = [one for one in [view.live(name)] if one is not None]
                question = Question(text, LIMIT, FLOOR)
                return search(view, found, question, vector=vector, embedder=embedder.identity)

        def ask_naively(text: str) -> object:
            return naive.by_mix(text, embedder.embed_query(text), LIMIT, quick=True)

        for number, text in enumerate(some):
            both = {"ours": partial(ask, text), "naive": partial(ask_naively, text)}
            times = in_turns(both, rounds=2, warm_up=1 if number else 2)
            ours += times["ours"]
            theirs += times["naive"]
    return of_times(
        f"one question, best {LIMIT}",
        len(corpus.documents),
        Compared(tuple(ours), tuple(theirs)),
        "naive mix",
        target=_TARGET if len(corpus.documents) >= _TARGET_SIZE else NO_TARGET,
    )


def largest(dataset: Dataset) -> Corpus:
    """The corpus with the most documents."""
    return max(dataset.corpora, key=lambda corpus: len(corpus.documents))


def pooled(dataset: Dataset, count: int) -> Corpus:
    """So many documents of all corpora as one; where there are too few they come again."""
    documents: list[Document] = []
    for turn in itertools.count():
        for corpus in dataset.corpora:
            for one in corpus.documents:
                if len(documents) == count:
                    return Corpus(f"pooled-{count}", tuple(documents))
                name = f"{turn}/{corpus.name}/{one.id}"
                documents.append(msgspec.structs.replace(one, id=name))
    raise AssertionError("the counting above never ends")
