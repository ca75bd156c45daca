"""The bench of conversations: that it measures and reports; never how fast anything is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import bench
from bench import conversations
from bench.conversations import evaluate
from bench.datasets import longmemeval_rounds
from ralph.errors import BadInput


def turn(role: str, content: str, *, answers: bool = False) -> dict[str, Any]:
    return {"role": role, "content": content, "has_answer": answers}


QUESTION = {
    "question_id": "q1",
    "question": "What is the name of my cat?",
    "answer_session_ids": ["pets"],
    "haystack_session_ids": ["work", "pets"],
    "haystack_dates": ["2026/03/01 (Sun) 10:00", "2026/03/02 (Mon) 10:00"],
    "haystack_sessions": [
        [turn("user", "The printer jams every day."), turn("assistant", "Clean its rollers.")],
        [
            turn("assistant", "Welcome back."),
            turn("user", "My cat is called Minka.", answers=True),
            turn("assistant", "What a lovely name for a cat."),
            turn("user", "The garden needs water."),
        ],
    ],
}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    file = tmp_path / "set.json.gz"
    nothing = QUESTION | {"question_id": "q2_abs"}
    file.write_bytes(gzip.compress(json.dumps([QUESTION, nothing]).encode()))
    return file


@pytest.mark.slow
def test_every_measure_stands_beside_its_reference() -> None:
    rows = conversations.run([40], repeat=1, listed=20)

    assert [(row.what, row.size) for row in rows] == [
        ("keep an exchange, many at once", 40),
        ("related(), fresh process", 40),
        ("related(), warm", 40),
        ("search(), warm", 40),
        ("list all, journal read first", 20),
        ("list all, again", 20),
    ]
    assert all(row.ours > 0 and row.reference > 0 for row in rows)


def test_a_session_is_cut_into_rounds(dataset: Path) -> None:
    [one] = longmemeval_rounds(dataset)

    _, pets = one.sessions
    assert [(told.user, told.assistant, told.holds_answer) for told in pets.rounds] == [
        ("", "Welcome back.", False),
        ("My cat is called Minka.", "What a lovely name for a cat.", True),
        ("The garden needs water.", "", False),
    ]


def test_what_answers_is_looked_for_through_the_memory(dataset: Path) -> None:
    found = {one.what: one for one in evaluate(dataset)}

    assert found.keys() == {"round, by search", "session, by search", "session, by related"}
    assert all(one.questions == 1 for one in found.values())
    assert found["round, by search"].means["recall@10"].mean == 1.0
    assert found["session, by related"].means["any@5"].mean == 1.0


def test_quality_is_printed_for_people_and_programs(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main("conversations", ["--dataset", str(dataset)]) == 0
    assert "session, by search   1 question  recall@5 1.000" in capsys.readouterr().out

    assert bench.main("conversations", ["--dataset", str(dataset), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["questions"] for one in told["quality"]] == [1, 1, 1]


@pytest.mark.parametrize("args", [["--sizes", "many"], ["--sizes", "0"], ["--repeat", "0"]])
def test_arguments_that_make_no_sense_are_refused(args: list[str]) -> None:
    assert bench.main("conversations", args) == 2


def test_a_file_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "set.json"
    with pytest.raises(BadInput, match="cannot be read"):
        evaluate(file)
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="not a LongMemEval file"):
        evaluate(file)
