"""Weighing passages by their words, and how much meaning counts beside them."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from ralph.recall.words import Weighed, meaning_share, weigh_words
from ralph.text.tokens import PassageWords

Fields = tuple[str, str, str]


def weighed(
    asked: list[str], *passages: Fields, frequencies: dict[str, int], count: int
) -> Weighed:
    words = [PassageWords(*fields) for fields in passages]
    times = [one.times(asked) for one in words]
    sizes = [one.size for one in words]
    by_numpy = weigh_words(asked, times, sizes, frequencies=frequencies, count=count)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "numpy")
        plainly = weigh_words(asked, times, sizes, frequencies=frequencies, count=count)
    assert plainly.weights == pytest.approx(by_numpy.weights)
    assert astuple(plainly)[1:] == pytest.approx(astuple(by_numpy)[1:])
    return plainly


def weights(asked: list[str], *passages: Fields, count: int = 100, **seen: int) -> list[float]:
    frequencies = {token: seen.get(token, 1) for token in asked}
    return weighed(asked, *passages, frequencies=frequencies, count=count).weights


def test_a_rare_word_counts_for_more_than_two_common_ones() -> None:
    rare, common = weights(
        ["pgbouncer", "time", "out"], ("", "pgbouncer", ""), ("", "time out", ""), time=40, out=40
    )
    assert rare > 2 * common


def test_a_word_in_the_title_counts_for_more_and_in_a_path_for_less() -> None:
    title, text, places = weights(
        ["login"], ("login", "a b", ""), ("a", "login b", ""), ("a", "b c", "login")
    )
    assert title > text > places > 0


def test_a_word_said_again_counts_less_each_time() -> None:
    once, twice, often = weights(
        ["lock"], ("", "lock a b c", ""), ("", "lock a lock c", ""), ("", "lock x lock x lock", "")
    )
    assert once < twice < often < 3 * once


def test_a_word_inside_another_is_not_found() -> None:
    assert weights(["log"], ("", "login blog log4j", "")) == [0.0]


def test_a_passage_with_the_whole_name_counts_for_more_than_one_that_repeats_its_parts() -> None:
    whole, parts = weights(
        ["oldbackend", "old", "backend"],
        ("", "oldbackend old backend a b c d e f g h", ""),
        ("", "old backend old backend old backend x", ""),
        old=4,
        backend=4,
    )
    assert whole > parts


def test_in_a_long_passage_a_word_says_less() -> None:
    short, long = weights(["lock"], ("", "lock a", ""), ("", "lock " + "a " * 200, ""))
    assert short > 2 * long


def test_the_coverage_is_the_largest_share_of_the_question_in_one_passage() -> None:
    def coverage(asked: list[str], *passages: str) -> float:
        given = [("", text, "") for text in passages]
        seen = {"alpha": 2, "beta": 1, "gamma": 0}
        return weighed(asked, *given, frequencies=seen, count=50).coverage

    assert coverage(["alpha", "beta"], "alpha", "alpha beta", "x") == 1.0
    assert 0.0 < coverage(["alpha", "beta"], "alpha") < 0.6
    assert coverage(["alpha", "beta", "gamma"], "alpha", "alpha beta", "x") < 0.7


def test_nothing_to_weigh_weighs_nothing() -> None:
    nothing = weighed(["a"], frequencies={"a": 0}, count=0)
    assert (nothing.weights, nothing.coverage) == ([], 0.0)
    assert weights([], ("", "a", "")) == [0.0]


@given(st.lists(st.sampled_from(["a", "b", "c", "dd"]), max_size=30), st.integers(0, 40))
def test_weights_and_coverage_are_never_out_of_bounds(words: list[str], seen: int) -> None:
    fields = ("a", " ".join(words), "")
    found = weighed(["a", "b"], fields, frequencies={"a": 1, "b": seen}, count=40)
    assert found.weights[0] > 0.0
    assert 0.0 < found.coverage <= 1.0


def test_words_are_counted_without_the_places() -> None:
    words = PassageWords("one two", "three", "src/a.py src/b.py")
    assert words.size == (3, 5)
    assert words.distinct == 5


def share(
    nats: float,
    coverage: float,
    length: float = 10.0,
    *,
    rarest: float = 0.0,
    asked: int = 3,
    talk: bool = False,
) -> float:
    by_words = Weighed([], coverage, nats, rarest, asked, length)
    return meaning_share(by_words, talk=talk)


def test_meaning_counts_more_where_the_words_say_little() -> None:
    assert share(0.0, 0.0) == 1.0
    assert share(3.0, 0.2) > share(12.0, 0.2) == share(40.0, 0.2) > 0.5


def test_where_one_short_passage_holds_all_words_meaning_hardly_counts() -> None:
    assert share(12.0, 1.0) < 0.2
    assert share(12.0, 0.5) > 0.45


def test_a_long_passage_holds_words_by_chance_so_meaning_counts_more() -> None:
    assert share(12.0, 1.0, 400.0) > share(12.0, 0.2, 400.0) - 0.05 > 0.55
    assert share(12.0, 0.2, 400.0) > share(12.0, 0.2)


def test_a_name_that_a_long_passage_has_counts_more_than_meaning() -> None:
    name, common = share(5.0, 1.0, 400.0, rarest=5.0), share(5.0, 1.0, 400.0, rarest=1.4)
    assert name < 0.25
    assert common > 0.6


def test_a_long_answer_has_the_words_of_a_long_question_by_chance() -> None:
    name = share(10.0, 1.0, 400.0, rarest=5.0, asked=2, talk=True)
    question = share(20.0, 1.0, 400.0, rarest=5.0, asked=8, talk=True)
    assert name < 0.25
    assert question > 0.6


def test_a_word_that_only_derived_texts_hold_still_finds_them() -> None:
    [weight] = weights(["pgbouncer"], ("", "pgbouncer", ""), pgbouncer=0)
    assert weight > 0.0
