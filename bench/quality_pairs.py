"""Labelled pairs for calibration: what speaks for a document, and whether it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.datasets import Ask, Corpus, Dataset, Task
from bench.quality import Asked, Rank, by_mix
from bench.quality_index import WHOLE, CorpusIndex, Cutting, corpus_index, records_of
from bench.report import Tell
from ralph.index import Collection, Embedder, IndexView, Passage
from ralph.index.sync import live_of
from ralph.recall.search import Evidence, score, weigh
from ralph.text.tokens import query_tokens, tokens

if TYPE_CHECKING:
    from ralph.index import Vectors

TOP = 10


class Pair(msgspec.Struct, frozen=True):
    """A question, a document, whether it answers, and everything a score may be made of.

    `rank` is the place the search gave it, None where it stands below the first ones; `judged`
    says that a person marked it, and did not merely leave it unmarked; `score` is today's.
    """

    dataset: str
    task: str
    ask: str
    question: str
    document: str
    label: bool
    judged: bool
    rank: int | None
    evidence: Evidence
    score: float


def labelled(
    dataset: Dataset,
    embedder: Embedder | None,
    *,
    top: int = TOP,
    rank: Rank = by_mix,
    cutting: Cutting = WHOLE,
    cache: Path | None = None,
    tell: Tell = lambda text: None,
) -> Iterator[Pair]:
    """Of every question its first hits, its answers wherever they are, and its distractors.

    Tasks that ask for groups are left out: nobody said which of a group's documents answers.
    """
    with corpus_index(embedder, cutting=cutting, cache=cache) as place:
        for number, corpus in enumerate(dataset.corpora, 1):
            asks = [
                (task, ask)
                for task in dataset.tasks
                if task.unit == "document"
                for ask in task.asks
                if ask.corpus == corpus.name
            ]
            if asks:
                yield from _of_corpus(place, dataset.name, corpus, asks, rank, top)
            tell(f"{dataset.name}: {number} of {len(dataset.corpora)} corpora asked")


def _of_corpus(
    place: CorpusIndex,
    dataset: str,
    corpus: Corpus,
    asks: Sequence[tuple[Task, Ask]],
    rank: Rank,
    top: int,
) -> Iterator[Pair]:
    name = place.built(corpus)
    identity = "none" if place.embedder is None else place.embedder.identity
    with place.store.state() as view:
        collection = live_of(view, name)
        if collection is None:
            return
        weighing = _Weighing(view, collection, corpus, place)
        for task, ask in asks:
            vector = None if place.embedder is None else place.embedder.embed_query(ask.text)
            asked = Asked(ask.text, ask.at, top, identity)
            first = list(rank(view, [collection], asked, vector))[:top]
            marked = ask.relevant | ask.distractors
            words = weighing.words(ask.text)
            for document in dict.fromkeys([*first, *sorted(marked)]):
                evidence = weighing.evidence(words, document, vector)
                yield Pair(
                    dataset=dataset,
                    task=task.name,
                    ask=ask.id,
                    question=ask.text,
                    document=document,
                    label=document in ask.relevant,
                    judged=document in marked,
                    rank=first.index(document) + 1 if document in first else None,
                    evidence=evidence,
                    score=score(evidence, None if evidence.cosine is None else identity),
                )


class _Weighing:
    """The evidence for any document of a collection, found by the search or not."""

    def __init__(
        self, view: IndexView, collection: Collection, corpus: Corpus, place: CorpusIndex
    ) -> None:
        self._view = view
        self._collection = collection
        self._count = view.size(collection).passages
        self._embedder = place.embedder
        self._passages = {one.id: place.cutting.cut(one) for one in records_of(corpus)}
        self._tokens: dict[str, list[frozenset[str]]] = {}

    def words(self, question: str) -> dict[str, int]:
        """The question's words, each with how many of the passages hold it."""
        asked = query_tokens(question)
        frequencies = self._view.words(self._collection, asked, 0).frequencies
        return {token: frequencies[token] for token in asked}

    def evidence(self, words: Mapping[str, int], document: str, vector: Vectors | None) -> Evidence:
        """Of the document's passage that has most to say for itself."""
        passages = self._passages[document] or [Passage(title="", text="")]
        if document not in self._tokens:
            self._tokens[document] = [
                frozenset(tokens(f"{one.title}\n{one.text}\n{one.places}")) for one in passages
            ]
        found = [
            weigh(
                list(words),
                passage_tokens,
                frequencies=words,
                count=self._count,
                cosine=self._cosine(one, vector),
            )
            for one, passage_tokens in zip(passages, self._tokens[document], strict=True)
        ]
        return max(found, key=lambda one: (one.coverage, one.cosine or 0.0))

    def _cosine(self, passage: Passage, vector: Vectors | None) -> float | None:
        if vector is None or self._embedder is None or not passage.embed:
            return None
        pieces = self._embedder.pieces(passage.embed)
        return float((self._embedder.embed_passages(pieces) @ vector).max())
