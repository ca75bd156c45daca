"""Scores mean what they say: measured on records, questions and non-questions made for this."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from places import DATA

from bench.datasets import Ask, read
from ralph import Iteration, open_ralph
from ralph.memory.ralph import Ralph
from ralph.recall.score import FLOOR, RELEVANT, TOLD

OWN = read("own", DATA / "own_pairs.jsonl")
PAIRS = json.loads((DATA / "recall_pairs.json").read_text("utf-8"))
PROJECTS: dict[str, dict[str, Any]] = PAIRS["projects"]


@pytest.fixture(scope="module")
def ralph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ralph]:
    folder = tmp_path_factory.mktemp("pairs")
    with open_ralph(folder / "project", home=folder / "home") as opened:
        for name, project in PROJECTS.items():
            opened.feature(name).remember_all(
                [Iteration(task_title=r["title"], summary=r["summary"]) for r in project["records"]]
            )
        yield opened


def test_a_question_finds_the_record_it_asks_for(ralph: Ralph) -> None:
    asked = found = first = 0
    for name, project in PROJECTS.items():
        for record in project["records"]:
            for question in record["questions"]:
                titles = [hit.record.task_title for hit in ralph.feature(name).search(question)]
                asked += 1
                found += record["title"] in titles
                first += titles[:1] == [record["title"]]
    assert asked > 150
    assert found / asked >= 0.85
    assert first / asked >= 0.80


def over(ralph: Ralph, asked: list[tuple[str, str]], floor: float) -> float:
    """The share of questions to which a feature has anything as sure as this."""
    answered = [q for name, q in asked if ralph.feature(name).search(q, min_score=floor)]
    return len(answered) / len(asked)


# The figures beside the limits are those seen when they were set. Some of what is called unrelated
# is not quite: `zod schema` where a form is validated with zod.


def test_to_an_unrelated_question_next_to_nothing_is_relevant(ralph: Ralph) -> None:
    asked = [(name, question) for name in PROJECTS for question in PAIRS["unrelated"]]
    assert over(ralph, asked, FLOOR) <= 0.12  # seen: .11
    assert over(ralph, asked, TOLD) <= 0.04  # seen: .03


def test_a_question_on_the_topic_that_nothing_answers_is_seldom_called_answered(
    ralph: Ralph,
) -> None:
    absent = [(name, q) for name, project in PROJECTS.items() for q in project["absent"]]
    assert over(ralph, absent, FLOOR) <= 0.40  # seen: .34, at most possibly relevant
    assert over(ralph, absent, RELEVANT) <= 0.20  # seen: .15
    assert over(ralph, absent, TOLD) <= 0.08  # seen: .04


def test_the_whole_project_is_searched_as_one_and_the_right_feature_answers(ralph: Ralph) -> None:
    asked = right = 0
    for name, project in PROJECTS.items():
        for record in project["records"]:
            hits = ralph.search(record["questions"][0], limit=3)
            asked += 1
            right += any(hit.record.feature == name for hit in hits)
    assert right / asked >= 0.85


# The figures beside the limits are those seen when they were set. A better search moves them a
# little, so the limits leave a question or two of room, and no more.


class Judgement(NamedTuple):
    """What the product said of a record that somebody judged; no score is no hit."""

    right: bool
    score: float


@pytest.fixture(scope="module", params=["static", "none"])
def own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[Judgement]]:
    folder = tmp_path_factory.mktemp("own")
    asks: list[Ask] = [ask for task in OWN.tasks for ask in task.asks]
    told: list[Judgement] = []
    with open_ralph(folder / "p", home=folder / "home", embedder=request.param) as opened:
        for corpus in OWN.corpora:
            feature = opened.feature(corpus.name)
            feature.remember_all(
                [Iteration(task_title=one.title, summary=one.text) for one in corpus.documents]
            )
            titles = {one.id: one.title for one in corpus.documents}
            for ask in (one for one in asks if one.corpus == corpus.name):
                hits = feature.search(ask.text, limit=20, min_score=0.0)
                scores = {hit.record.task_title: hit.score or 0.0 for hit in hits}
                told += [
                    Judgement(document in ask.relevant, scores.get(titles[document], 0.0))
                    for document in sorted(ask.relevant | ask.distractors)
                ]
    return request.param, told


def share_over(told: list[Judgement], least: float, *, right: bool) -> float:
    some = [one for one in told if one.right == right]
    return sum(one.score >= least for one in some) / len(some)


def test_the_records_that_answer_pass_the_thresholds_and_hard_negatives_less_often(
    own: tuple[str, list[Judgement]],
) -> None:
    embedder, told = own
    assert len(told) > 300
    passing = [share_over(told, least, right=True) for least in (0.40, 0.55, 0.70)]
    misled = [share_over(told, least, right=False) for least in (0.40, 0.55, 0.70)]
    least, most = {
        # Hard negatives stand beside the right record: they are shown, and seldom as relevant.
        "static": ((0.94, 0.87, 0.78), (0.28, 0.19, 0.13)),
        "none": ((0.85, 0.77, 0.64), (0.31, 0.18, 0.11)),
    }[embedder]
    assert all(seen >= wanted for seen, wanted in zip(passing, least, strict=True)), passing
    assert all(seen <= allowed for seen, allowed in zip(misled, most, strict=True)), misled


def test_under_the_floor_few_are_right_above_it_about_half_and_from_070_on_most(
    own: tuple[str, list[Judgement]],
) -> None:
    _, told = own
    under, between, above = (
        sum(one.right for one in some) / len(some)
        for low, high in ((0.0, 0.40), (0.40, 0.70), (0.70, 1.01))
        for some in [[one for one in told if low <= one.score < high]]
    )
    assert under <= 0.18  # seen: .09 with the static table, .16 by words alone
    assert 0.28 <= between <= 0.65
    assert above >= 0.79  # seen: .81 and .87; half of these pairs are hard negatives
