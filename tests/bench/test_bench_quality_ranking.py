"""Measures of an order, worked out by hand, and the intervals of their means."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ranking import DEPTH, MEASURES, differences, first_of_each, means, measured


def values(**changed: float) -> dict[str, float]:
    return dict.fromkeys(MEASURES, 0.0) | changed


def test_a_question_with_two_answers_of_which_the_third_and_the_seventh_place_hold_one_each() -> (
    None
):
    found = measured(list("abXdefYhij"), {"X", "Y"})

    gain = 1 / math.log2(4) + 1 / math.log2(8)
    best = 1.0 + 1 / math.log2(3)
    assert found == pytest.approx(
        {
            "recall@1": 0.0,
            "recall@5": 0.5,
            "recall@10": 1.0,
            "recall@20": 1.0,
            "nDCG@10": gain / best,
            "MRR": 1 / 3,
            "any@5": 1.0,
            "all@5": 0.0,
        }
    )


def test_the_best_order_has_one_everywhere_but_in_the_first_place_of_two() -> None:
    assert measured(["X", "Y", "c"], {"X", "Y"}) == values(**dict.fromkeys(MEASURES, 1.0)) | {
        "recall@1": 0.5
    }


def test_what_was_not_found_counts_as_nothing() -> None:
    assert measured([], {"X"}) == values()
    assert measured(list("abc"), {"X"}) == values()


def test_nothing_below_the_twentieth_place_counts() -> None:
    ranking = [str(number) for number in range(DEPTH)]
    assert measured([*ranking, "X"], {"X"}) == values()
    assert measured([*ranking[1:], "X"], {"X"})["MRR"] == 1 / DEPTH


def test_more_answers_than_ten_can_still_reach_the_best_gain() -> None:
    answers = [str(number) for number in range(15)]
    found = measured(answers, frozenset(answers))
    assert found["nDCG@10"] == pytest.approx(1.0)
    assert found["recall@10"] == pytest.approx(10 / 15)
    assert found["all@5"] == 0.0


def test_without_anything_relevant_there_is_nothing_to_measure() -> None:
    with pytest.raises(ValueError, match="nothing is relevant"):
        measured(["a"], frozenset())


@given(st.lists(st.integers(0, 40), unique=True), st.sets(st.integers(0, 40), min_size=1))
def test_every_measure_lies_between_nothing_and_all(order: list[int], wanted: set[int]) -> None:
    found = measured([str(one) for one in order], {str(one) for one in wanted})
    assert list(found) == list(MEASURES)
    assert all(0.0 <= one <= 1.0 + 1e-9 for one in found.values())
    assert found["recall@1"] <= found["recall@5"] <= found["recall@10"] <= found["recall@20"]
    assert found["all@5"] <= found["any@5"]


def test_a_conversation_ranks_with_its_best_passage() -> None:
    assert first_of_each(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


# -- means


def test_a_mean_stands_inside_its_interval_and_the_interval_between_the_values() -> None:
    told = [values(MRR=1.0)] * 30 + [values(MRR=0.0)] * 10

    found = means(told, seed=1)

    assert found["MRR"].mean == 0.75
    # What the normal approximation gives: 0.75 +- 1.96 * sqrt(0.75 * 0.25 / 40) = 0.616-0.884.
    assert found["MRR"].low == pytest.approx(0.616, abs=0.03)
    assert found["MRR"].high == pytest.approx(0.884, abs=0.03)
    assert (found["any@5"].low, found["any@5"].high) == (0.0, 0.0)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    told = [values(MRR=one / 50) for one in range(50)]
    assert means(told, seed=3) == means(told, seed=3)
    assert means(told, seed=3)["MRR"] != means(told, seed=4)["MRR"]


def test_no_question_has_no_mean() -> None:
    assert means([]) == {}


def test_a_difference_is_drawn_question_by_question() -> None:
    """Each question is answered a tenth better, so that there is no doubt about it."""
    ours = {str(one): values(MRR=one / 20 + 0.1) for one in range(10)}
    theirs = {str(one): values(MRR=one / 20) for one in range(10)}

    better = differences(ours, theirs)["MRR"]

    assert better.mean == pytest.approx(0.1)
    assert [better.low, better.high] == pytest.approx([0.1, 0.1])


def test_only_questions_that_both_answered_are_compared() -> None:
    ours = {"a": values(MRR=1.0), "b": values(MRR=0.5)}
    theirs = {"b": values(MRR=0.5), "c": values(MRR=0.0)}
    assert differences(ours, theirs)["MRR"].mean == 0.0
    assert differences(ours, {}) == {}
