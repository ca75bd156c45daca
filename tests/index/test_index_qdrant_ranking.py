"""The ranking on Qdrant agrees with the embedded index: the same hits, scores and order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from places import DATA
from qdrant import local_server, on

from bench.datasets import Dataset, read
from ralph import Iteration, open_ralph
from ralph.memory.ralph import Ralph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OWN: Dataset = read("own", DATA / "own_pairs.jsonl")
Answers = list[list[tuple[str, float]]]


@pytest.fixture(scope="module", params=["static", "none"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Answers, Answers]]:
    """What the embedded index answers, and what Qdrant does, to the same questions."""
    folder = tmp_path_factory.mktemp("both")
    with open_ralph(folder / "p", home=folder / "home", embedder=request.param) as memory:
        for corpus in OWN.corpora:
            memory.feature(corpus.name).remember_all(
                [
                    Iteration(task_title=one.title, summary=one.text, session_id=one.id)
                    for one in corpus.documents
                ]
            )
        embedded = _asked(memory)
        memory.store.index.close()
        with local_server() as server:
            on(server, memory)
            yield embedded, _asked(memory)


def _asked(memory: Ralph) -> Answers:
    answers: Answers = []
    for task in OWN.tasks:
        for ask in task.asks:
            # Of one feature, and of all at once.
            one = memory.feature(ask.corpus).search(ask.text, limit=10, min_score=0.0)
            every = memory.search(ask.text, limit=10, min_score=0.0)
            answers += [[(hit.id, hit.score or 0.0) for hit in some] for some in (one, every)]
    return answers


def test_the_ten_best_are_the_same(both: tuple[Answers, Answers]) -> None:
    overlaps = [
        len({one for one, _ in mine} & {one for one, _ in theirs}) / max(len(mine), len(theirs), 1)
        for mine, theirs in zip(*both, strict=True)
        if mine or theirs
    ]
    assert len(overlaps) > 200
    assert sum(overlaps) / len(overlaps) >= 0.95
    assert min(overlaps) >= 0.8


def test_the_first_and_the_order_are_the_same(both: tuple[Answers, Answers]) -> None:
    pairs = [pair for pair in zip(*both, strict=True) if pair[0]]
    first = [mine[0][0] == theirs[0][0] for mine, theirs in pairs]
    order = [[one for one, _ in mine] == [one for one, _ in theirs] for mine, theirs in pairs]
    assert sum(first) / len(first) >= 0.99
    assert sum(order) / len(order) >= 0.95


def test_the_scores_are_the_same(both: tuple[Answers, Answers]) -> None:
    for mine, theirs in zip(*both, strict=True):
        held = dict(theirs)
        common = [one for one, _ in mine if one in held]
        assert [held[one] for one in common] == pytest.approx(
            [dict(mine)[one] for one in common], abs=0.001
        )
