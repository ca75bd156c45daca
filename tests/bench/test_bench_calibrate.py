"""Fitting scores: the lists of the product, the logistics, the report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from places import DATA

from bench import datasets
from bench.calibrate import (
    UNSEEN,
    Case,
    Labels,
    calibration_error,
    case_of,
    fitted,
    logistic_fit,
    memory_of,
    pair_questions,
    question_of,
    tables,
)
from bench.datasets import MemoryRecord
from ralph.recall.score import Clues, Logistic

MEMORIES = datasets.memories(DATA / "memories.jsonl")


def case(name: str, half: str, value: float, right: bool) -> Case:
    """A list of two, the first of which stands out by so much and has words and meaning for it."""
    clue = (value, value, value / 2, value / 2, 0.2)
    clues = Clues([clue, clue], [False, False], [True, False], clue)
    return Case(
        name, half, "", [1.0, 1.0 - value / 2], clues, [right, False], [False, False], True, 0.1
    )


def test_the_memories_have_halves_that_are_never_fitted_on() -> None:
    halves = {one.half for one in MEMORIES}
    assert halves == {"dev", "held", *UNSEEN}
    asked = sum(len(one.questions) for one in MEMORIES)
    unseen = sum(len(one.questions) for one in MEMORIES if one.half in UNSEEN)
    assert asked > 500
    assert unseen > 190
    for one in MEMORIES:
        ids = {record.record for record in one.records}
        for question in one.questions:
            assert ids.issuperset({*question.answers, *question.also})
            assert not question.answers or question.kind != "absent"


def test_a_memory_is_kept_and_asked_as_the_product_does(tmp_path: Path) -> None:
    records = [
        MemoryRecord("i-1", "iteration", "2026-03-01", "Cache", "The cache is flushed at night."),
        MemoryRecord("n-1", "note", "2026-03-02", text="Only Ada may release on a Friday."),
        MemoryRecord(
            "e-1",
            "exchange",
            "2026-03-03",
            user="Why is DNS slow?",
            assistant="Five search domains.",
        ),
        MemoryRecord("d-1", "document", "2026-03-04", "Backup", "Restore with the blue script."),
    ]
    memory = memory_of(records, tmp_path, "static")
    asked = {
        "when is the cache flushed": "i-1",
        "who may release on a Friday": "n-1",
        "slow DNS search domains": "e-1",
        "restore a backup with the script": "d-1",
    }
    for text, answer in asked.items():
        found = memory.ask(text, Labels("memories", "dev", frozenset({answer})), "2026-03-10")
        assert found.right[0], text
        assert found.scores()[0] >= 0.4
    memory.ralph.close()


def test_a_time_in_a_question_is_read_on_the_day_it_is_asked() -> None:
    question = question_of("what broke yesterday", "2026-03-10")
    assert question.days is not None
    assert question_of("what broke yesterday").days is None


def test_nothing_found_is_a_list_without_hits() -> None:
    empty = case_of(None, Labels("memories", "dev"))
    assert (empty.values, empty.scores()) == ([], [])


def test_a_logistic_is_found_again() -> None:
    draw = np.random.default_rng(3)
    values = draw.uniform(0.0, 1.0, (4000, 7))
    odds = -1.0 + 2.0 * values[:, 0] + 3.0 * values[:, 2]
    right = (draw.uniform(size=4000) < 1.0 / (1.0 + np.exp(-odds))).astype(float)
    found = logistic_fit(values, right, np.ones(4000))
    assert found.base == pytest.approx(-1.0, abs=0.4)
    assert found.words == pytest.approx(2.0, abs=0.4)
    assert found.gap == pytest.approx(3.0, abs=0.4)
    assert found.meaning == pytest.approx(0.0, abs=0.4)


def test_a_fit_gives_more_to_what_is_right_and_reports_each_set() -> None:
    draw = np.random.default_rng(5)
    cases = []
    for n in range(600):
        value = float(draw.uniform())
        right = bool(draw.uniform() < value)
        cases.append(
            case(
                "memories" if n % 2 else "title", "dev" if n % 2 else "ab"[n % 4 // 2], value, right
            )
        )
    sure, there = fitted(cases)
    low, high = case("title", "a", 0.1, False), case("title", "a", 0.9, True)
    assert low.scores((sure, there))[0] < 0.4 < high.scores((sure, there))[0]
    rows = {one.set: one for one in tables(cases, lambda one: (sure, there))}
    assert set(rows) == {"title", "memories (dev)"}
    assert rows["title"].questions == 300
    assert rows["title"].error < 0.1


def test_the_calibration_error_is_what_was_promised_and_not_kept() -> None:
    promised, kept = np.full(10, 0.9), np.array([1.0] * 6 + [0.0] * 4)
    assert calibration_error(promised, kept) == pytest.approx(0.3)
    assert calibration_error(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0.0


def test_pairs_are_asked_with_answers_and_without(tmp_path: Path) -> None:
    file = tmp_path / "pairs.json"
    record = {"title": "A", "summary": "B", "questions": ["a?", "b?"]}
    plain = {"projects": {"p": {"records": [record], "absent": ["c?"]}}, "unrelated": ["d?"]}
    file.write_bytes(msgspec.json.encode(plain))
    asked = [(labels.set, len(labels.right), text) for labels, _, text in pair_questions(file)]
    assert asked == [
        ("pairs", 1, "a?"),
        ("pairs", 1, "b?"),
        ("pairs, absent", 0, "c?"),
        ("pairs, unrelated", 0, "d?"),
    ]


def test_the_shipped_logistics_rise_with_words_and_meaning() -> None:
    from ralph.recall.score import SURE, SURE_BY_WORDS, THERE, THERE_BY_WORDS

    for one in (SURE, THERE, SURE_BY_WORDS, THERE_BY_WORDS):
        assert isinstance(one, Logistic)
        plain = msgspec.structs.asdict(one)
        assert all(plain[name] >= 0.0 for name in ("words", "meaning", "gap", "rest_words"))
        assert plain["rest_meaning"] >= 0.0
