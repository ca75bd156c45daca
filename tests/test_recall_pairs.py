"""Scores mean what they say: measured on records, questions and non-questions made for this."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralph import Iteration, open_ralph
from ralph.memories.ralph import Ralph

PAIRS = json.loads((Path(__file__).parent / "data" / "recall_pairs.json").read_text("utf-8"))
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


def test_an_unrelated_question_finds_nothing(ralph: Ralph) -> None:
    noisy = {
        (name, question)
        for name in PROJECTS
        for question in PAIRS["unrelated"]
        if ralph.feature(name).search(question)
    }
    assert len(noisy) / (len(PROJECTS) * len(PAIRS["unrelated"])) <= 0.03


def test_a_question_on_the_topic_that_nothing_answers_is_mostly_left_unanswered(
    ralph: Ralph,
) -> None:
    absent = [(name, q) for name, project in PROJECTS.items() for q in project["absent"]]
    answered = [q for name, q in absent if ralph.feature(name).search(q)]
    assert len(answered) / len(absent) <= 0.15


def test_the_whole_project_is_searched_as_one_and_the_right_feature_answers(ralph: Ralph) -> None:
    asked = right = 0
    for name, project in PROJECTS.items():
        for record in project["records"]:
            hits = ralph.search(record["questions"][0], limit=3)
            asked += 1
            right += any(hit.record.feature == name for hit in hits)
    assert right / asked >= 0.85
