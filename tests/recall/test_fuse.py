from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.recall.search import (
    CONSTANTS,
    FLOOR,
    RELEVANT,
    Evidence,
    Fused,
    fuse,
    rarity,
    relevance,
    score,
    telling,
    weigh,
    why,
)
from ralph.text.tokens import query_tokens, tokens

STATIC = "static:table"
EMBEDDERS = [STATIC, "minilm:model", "somebody:else"]


def rows(fused: list[Fused]) -> list[int]:
    return [hit.row for hit in fused]


def test_words_and_meaning_are_mixed_each_as_a_share_of_its_best() -> None:
    fused = fuse({1: 8.0, 2: 4.0}, {2: 0.6, 3: 0.3}, weight=0.5)
    assert fused == [Fused(2, 0.5, 1.0, 0.75), Fused(1, 1.0, 0.0, 0.5), Fused(3, 0.0, 0.5, 0.25)]


def test_without_vectors_the_words_decide() -> None:
    assert fuse({7: 2.0, 8: 4.0}) == [Fused(8, 1.0, 0.0, 1.0), Fused(7, 0.5, 0.0, 0.5)]
    assert fuse({7: 2.0, 8: 4.0}, {}) == fuse({7: 2.0, 8: 4.0})


def test_without_matching_words_the_meaning_decides() -> None:
    assert fuse({}, {7: 0.2, 8: 0.4}) == [Fused(8, 0.0, 1.0, 1.0), Fused(7, 0.0, 0.5, 0.5)]


def test_nothing_in_is_nothing_out() -> None:
    assert fuse({}) == []
    assert fuse({}, {}) == []


def test_equal_hits_are_in_the_order_of_their_rows() -> None:
    assert rows(fuse({9: 1.0, 3: 1.0, 5: 1.0}, {5: 0.2, 9: 0.2, 3: 0.2})) == [3, 5, 9]


def test_the_best_comes_first() -> None:
    assert rows(fuse({1: 1.0, 2: 3.0, 3: 2.0})) == [2, 3, 1]


def test_cosines_and_scores_not_above_zero_give_nothing() -> None:
    assert fuse({1: 0.0}, {1: -0.2, 2: -0.1}) == [Fused(1, 0.0, 0.0, 0.0), Fused(2, 0.0, 0.0, 0.0)]


ROWS = st.integers(0, 30)
BM25 = st.dictionaries(ROWS, st.floats(0.001, 60.0), max_size=12)
SOME_BM25 = st.dictionaries(ROWS, st.floats(0.001, 60.0), min_size=1, max_size=12)
COSINES = st.dictionaries(ROWS, st.floats(-1.0, 1.0), max_size=12)
WEIGHT = st.floats(0.0, 1.0)


@given(BM25, COSINES, st.sampled_from([0.25, 0.5, 2.0, 1024.0]))
def test_the_scale_of_bm25_does_not_matter(
    words: dict[int, float], meaning: dict[int, float], scale: float
) -> None:
    assert fuse({row: value * scale for row, value in words.items()}, meaning) == fuse(
        words, meaning
    )


@given(BM25, COSINES)
def test_the_order_in_which_candidates_come_does_not_matter(
    words: dict[int, float], meaning: dict[int, float]
) -> None:
    backwards = dict(reversed(words.items())), dict(reversed(meaning.items()))
    assert fuse(*backwards) == fuse(words, meaning)


@given(BM25, COSINES, WEIGHT)
def test_every_candidate_comes_out_once_with_parts_between_0_and_1(
    words: dict[int, float], meaning: dict[int, float], weight: float
) -> None:
    fused = fuse(words, meaning, weight=weight)
    assert sorted(rows(fused)) == sorted(words.keys() | meaning.keys())
    for hit in fused:
        assert all(0.0 <= part <= 1.0 + 1e-9 for part in (hit.words, hit.meaning, hit.mixed))
    assert fused == sorted(fused, key=lambda hit: (-hit.mixed, hit.row))


@given(BM25, COSINES, WEIGHT)
def test_a_row_at_least_as_good_in_both_parts_is_never_behind(
    words: dict[int, float], meaning: dict[int, float], weight: float
) -> None:
    for ahead, behind in combinations(fuse(words, meaning, weight=weight), 2):
        better = behind.words >= ahead.words and behind.meaning >= ahead.meaning
        assert not better or behind.mixed >= ahead.mixed - 1e-12


@given(SOME_BM25, COSINES, st.floats(0.0, 20.0))
def test_more_words_never_lower_a_row(
    words: dict[int, float], meaning: dict[int, float], more: float
) -> None:
    row = min(words)
    before = rows(fuse(words, meaning)).index(row)
    after = rows(fuse(words | {row: words[row] + more}, meaning)).index(row)
    assert after <= before


# What a hit is worth: records as an agent leaves them, few of them, as is usual.

RECORDS = [
    "Add login form validation. Client-side validation for the login form with zod: email must be"
    " well-formed, password at least 8 characters. Unit tests for LoginForm pass.",
    "Fix crash in auth middleware. TypeError: Cannot read properties of undefined (reading 'user')"
    " at authMiddleware (src/middleware/auth.ts:42). Added a guard. Tests: 14 passed.",
    "Disk full during sort. The run failed with OSError: No space left on device (ENOSPC) while"
    " writing spill files. getUserById was not touched. Test file fixed.",
]


def evidence(query: str, record: int, *, count: int = 3, cosine: float | None = None) -> Evidence:
    """The evidence for a record among `count`: itself alone, the three, or as many others again."""
    asked = query_tokens(query)
    passages = [set(tokens(text)) for text in RECORDS]
    searched = [passages[record]] if count == 1 else passages
    frequencies = {token: sum(token in passage for passage in searched) for token in asked}
    return weigh(asked, passages[record], frequencies=frequencies, count=count, cosine=cosine)


COUNTS = pytest.mark.parametrize("count", [1, 3, 10, 1000])


@COUNTS
@pytest.mark.parametrize("word", ["error", "test", "file", "fix", "fix the test file", "run it"])
def test_common_words_alone_lift_nothing_over_the_floor(word: str, count: int) -> None:
    for record in range(3):
        for embedder in EMBEDDERS:
            assert score(evidence(word, record, count=count, cosine=0.35), embedder) < FLOOR
        assert score(evidence(word, record, count=count)) < FLOOR


@COUNTS
@pytest.mark.parametrize("word", ["ENOSPC", "getUserById", "get_user_by_id", "OSError"])
def test_an_exact_rare_word_needs_no_meaning(word: str, count: int) -> None:
    for embedder in EMBEDDERS:
        assert score(evidence(word, 2, count=count, cosine=0.0), embedder) >= RELEVANT
    assert score(evidence(word, 2, count=count)) >= RELEVANT
    assert score(evidence(word, 0, count=count)) < FLOOR


@COUNTS
def test_an_unrelated_question_finds_nothing(count: int) -> None:
    for query in ["kubernetes ingress annotations", "weather in Paris", "webrtc turn server"]:
        for record in range(3):
            for embedder in EMBEDDERS:
                assert score(evidence(query, record, count=count, cosine=0.2), embedder) < FLOOR
            assert score(evidence(query, record, count=count)) < FLOOR


@COUNTS
def test_a_question_in_the_records_words_is_relevant(count: int) -> None:
    assert score(evidence("login form validation", 0, count=count, cosine=0.6), STATIC) >= RELEVANT
    query = "TypeError user undefined auth middleware"
    assert score(evidence(query, 1, count=count, cosine=0.5), STATIC) >= RELEVANT
    assert score(evidence(query, 0, count=count, cosine=0.15), STATIC) < FLOOR


def test_meaning_alone_can_pass_the_floor() -> None:
    near = evidence("checking credentials typed by visitors", 0, cosine=0.5)
    assert near.matched == ()
    assert score(near, STATIC) >= FLOOR


def test_a_word_that_stands_everywhere_in_a_collection_still_finds_its_records() -> None:
    asked = query_tokens("login")
    everywhere = weigh(asked, {"login"}, frequencies={"login": 18}, count=20, cosine=0.45)
    assert score(everywhere, STATIC) >= FLOOR


def test_an_unknown_embedder_is_trusted_less() -> None:
    near = evidence("checking credentials typed by visitors", 0, cosine=0.5)
    assert score(near, "somebody:else") < score(near, STATIC)
    assert score(near, None) == score(near, "somebody:else")


def test_a_question_without_tokens_is_worth_nothing() -> None:
    assert score(weigh([], {"a"}, frequencies={}, count=0)) < FLOOR


def test_of_a_long_question_a_few_rare_words_are_much_and_of_a_short_one_a_third_is_little() -> (
    None
):
    short = Evidence(("grid",), 3, 1 / 3, 4.0, 4.0, 0.1)
    long = Evidence(("a", "b", "c", "d", "e", "f", "g"), 20, 1 / 3, 30.0, 5.0, 0.1)
    for embedder in EMBEDDERS:
        assert score(short, embedder) < FLOOR < RELEVANT <= score(long, embedder)


def test_meaning_adds_less_the_more_the_words_have_said() -> None:
    def odds(coverage: float, cosine: float) -> float:
        value = score(Evidence((), 3, coverage, 12 * coverage, 5.0, cosine), STATIC)
        return math.log(value / (1.0 - value))

    gains = [odds(coverage, 0.4) - odds(coverage, 0.1) for coverage in (0.0, 0.3, 0.6, 1.0)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0.0


def test_no_constants_let_more_words_lower_a_score() -> None:
    for constants in CONSTANTS.values():
        assert constants.per_words >= constants.per_meaning > 0.0
        assert constants.related > constants.unrelated


SHARE = st.floats(0.0, 1.0)
MASS = st.floats(0.0, 100.0)


@given(SHARE, MASS, MASS, st.floats(-1.0, 1.0), st.floats(0.0, 1.0), st.sampled_from(EMBEDDERS))
def test_a_score_is_a_probability_that_rises_with_each_kind_of_evidence(
    coverage: float, weight: float, rarest: float, cosine: float, more: float, embedder: str
) -> None:
    def value(coverage: float, weight: float, cosine: float | None) -> float:
        return score(Evidence((), 3, coverage, weight, rarest, cosine), embedder)

    base = value(coverage, weight, cosine) - 1e-12
    assert 0.0 <= base + 1e-12 <= 1.0
    assert value(coverage, weight, cosine + more) >= base
    assert value(min(1.0, coverage + more), weight, cosine) >= base
    assert value(coverage, weight + more, cosine) >= base
    assert value(coverage, weight + more, None) >= value(coverage, weight, None) - 1e-12


@given(st.integers(0, 500), st.integers(1, 500), st.sampled_from(["test", "zod", "ts2345", "42"]))
def test_a_word_of_more_passages_is_never_rarer(few: int, more: int, token: str) -> None:
    assert rarity(token, few, 1000) >= rarity(token, few + more, 1000) >= 0.0


def test_why_says_in_one_line_what_matched() -> None:
    three = evidence("login form validation", 0, cosine=0.614)
    assert why(three) == "words: login, form, valid (3 of 3); meaning 0.61"
    shown = why(three, "Login form validation")
    assert shown == "words: login, form, validation (3 of 3); meaning 0.61"
    assert why(evidence("kubernetes", 0)) == "words: none"
    long = evidence("client validation login form email password zod", 0)
    assert why(long) == "words: client, valid, login, form, email, password, ... (7 of 7)"


def test_a_score_under_the_floor_is_not_called_relevant_in_any_way() -> None:
    scores = (0.0, FLOOR - 0.01, FLOOR, RELEVANT - 0.01, RELEVANT, 1.0)
    words = [relevance(value) for value in scores]
    assert words == [None, None, "possibly", "possibly", "relevant", "relevant"]


def test_words_that_a_third_of_a_large_collection_holds_are_not_ranked_by() -> None:
    frequencies = {"error": 900, "login": 40}
    assert telling(["error", "login"], frequencies, 2000) == ["login"]
    assert telling(["error", "login"], frequencies, 999) == ["error", "login"]
    assert telling(["error"], frequencies, 2000) == ["error"]  # better than nothing
