from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ralph.config import Settings
from ralph.index import WordMatches, ranking_tokens
from ralph.recall.score import (
    FLOOR,
    RELEVANT,
    TOLD,
    Asked,
    Evidence,
    answered_by,
    own_relevance,
    relevance,
    relevance_word,
    why,
)
from ralph.recall.words import best_by_both, best_places, mix, rarity
from ralph.text.tokens import PassageWords, query_tokens, tokens

STATIC = "static:table"


def fuse(
    words: dict[int, float], meaning: dict[int, float] | None = None, *, weight: float = 0.5
) -> dict[int, float]:
    """The values of rows by their words and cosines, best first."""
    rows = sorted({*words, *(meaning or {})})
    cosines = [(meaning or {}).get(row) for row in rows]
    values = mix([words.get(row, 0.0) for row in rows], cosines, weight)
    return {rows[place]: values[place] for place in best_places(values, len(rows))}


def test_words_and_meaning_are_mixed_each_as_a_share_of_its_best() -> None:
    fused = fuse({1: 8.0, 2: 4.0}, {2: 0.6, 3: 0.3}, weight=0.5)
    assert [*fused.items()] == [(2, 0.75), (1, 0.5), (3, 0.25)]


def test_without_vectors_the_words_decide() -> None:
    assert [*fuse({7: 2.0, 8: 4.0}).items()] == [(8, 1.0), (7, 0.5)]
    assert fuse({7: 2.0, 8: 4.0}, {}) == fuse({7: 2.0, 8: 4.0})


def test_without_matching_words_the_meaning_decides() -> None:
    assert [*fuse({}, {7: 0.2, 8: 0.4}).items()] == [(8, 1.0), (7, 0.5)]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(-2, 4)), max_size=40),
    st.floats(0.0, 1.0),
    st.integers(1, 50),
    st.integers(0, 40),
)
def test_arrays_give_the_same_order_as_lists(
    given: list[tuple[int, int | None]], weight: float, most: int, cut: int
) -> None:
    words = [word / 3 for word, _ in given]
    cosines = [None if near is None else near / 7 for _, near in given]
    arrays = np.array([np.nan if one is None else one for one in cosines], dtype=np.float64)
    best, near = best_by_both(words, [arrays[:cut], arrays[cut:]], weight, most)
    assert best == best_places(mix(words, cosines, weight), most)
    assert [None if math.isnan(one) else one for one in near] == cosines


def test_nothing_in_is_nothing_out() -> None:
    assert fuse({}) == {}
    assert fuse({}, {}) == {}


def test_equal_hits_are_in_the_order_of_their_rows() -> None:
    assert [*fuse({9: 1.0, 3: 1.0, 5: 1.0}, {5: 0.2, 9: 0.2, 3: 0.2})] == [3, 5, 9]


def test_the_best_comes_first() -> None:
    assert [*fuse({1: 1.0, 2: 3.0, 3: 2.0})] == [2, 3, 1]


def test_cosines_and_scores_not_above_zero_give_nothing() -> None:
    assert [*fuse({1: 0.0}, {1: -0.2, 2: -0.1}).items()] == [(1, 0.0), (2, 0.0)]


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
    assert [*fuse(*backwards).items()] == [*fuse(words, meaning).items()]


@given(BM25, COSINES, WEIGHT)
def test_every_candidate_comes_out_once_with_a_value_between_0_and_1(
    words: dict[int, float], meaning: dict[int, float], weight: float
) -> None:
    fused = fuse(words, meaning, weight=weight)
    assert fused.keys() == words.keys() | meaning.keys()
    assert all(0.0 <= value <= 1.0 + 1e-9 for value in fused.values())
    assert list(fused) == sorted(fused, key=lambda row: (-fused[row], row))


@given(BM25, COSINES, WEIGHT)
def test_a_row_at_least_as_good_in_both_parts_is_never_behind(
    words: dict[int, float], meaning: dict[int, float], weight: float
) -> None:
    fused = fuse(words, meaning, weight=weight)
    for ahead, behind in combinations(fused, 2):
        better = all(
            max(0.0, of.get(behind, 0.0)) >= max(0.0, of.get(ahead, 0.0)) for of in (words, meaning)
        )
        assert not better or fused[behind] >= fused[ahead] - 1e-12


@given(SOME_BM25, COSINES, st.floats(0.0, 20.0))
def test_more_words_never_lower_a_row(
    words: dict[int, float], meaning: dict[int, float], more: float
) -> None:
    row = min(words)
    before = [*fuse(words, meaning)].index(row)
    after = [*fuse(words | {row: words[row] + more}, meaning)].index(row)
    assert after <= before


# What a list is worth.

RECORD = (
    "Add login form validation. Client-side validation for the login form with zod: email must be"
    " well-formed, password at least 8 characters. Unit tests for LoginForm pass."
)


def evidence(query: str, *, cosine: float | None = None) -> Evidence:
    passage = PassageWords("", " ".join(tokens(RECORD)), "")
    return Asked.of(query_tokens(query)).weigh(passage, cosine=cosine, in_time=False, adds=1.0)


def own(query: str, cosine: float | None = None) -> float:
    embedder = None if cosine is None else STATIC
    return own_relevance(evidence(query, cosine=cosine), embedder, talk=False)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_fuller_match_and_a_nearer_meaning_are_never_less_relevant(
    near: float, nearer: float
) -> None:
    near, nearer = sorted((near, nearer))
    assert own("login form", near) <= own("login form", nearer)
    assert own("login kubernetes", near) <= own("login form", near)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2), st.floats(0.0, 1.0))
def test_another_hit_never_makes_a_list_less_likely_to_answer(
    two: list[float], another: float
) -> None:
    best, second = sorted(two, reverse=True)
    more = sorted([best, second, another], reverse=True)
    assert answered_by(more[0], more[1]) >= answered_by(best, second)


@given(st.floats(0.0, 0.98), st.floats(0.0, 1.0))
def test_a_list_answers_as_likely_as_its_best_hit_is_relevant(best: float, second: float) -> None:
    assert answered_by(best, min(best, second)) >= relevance(best, 1.0)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_relevance_rises_with_its_own_evidence_and_its_share_of_the_best(
    own: float, better: float, share: float
) -> None:
    own, better = sorted((own, better))
    value = relevance(own, share)
    assert 0.0 <= value <= 1.0
    assert value <= relevance(better, share)
    assert value <= relevance(own, 1.0)


def test_the_rarest_word_that_is_missing_counts_most() -> None:
    """A question about Bitbucket is not answered by a text about logins in general."""
    assert evidence("login for bitbucket").missing > evidence("login for users").missing
    assert own("login for bitbucket", 0.3) < own("login for users", 0.3)


def test_passages_with_the_same_word_count_only_if_they_are_many_and_slowly() -> None:
    seen = evidence("login form", cosine=0.3)
    crowds = (1, 30, 60, 1500)
    alone, few, doubled, many = (
        relevance(own_relevance(seen, STATIC, talk=True, crowd=crowd), 1.0) for crowd in crowds
    )
    assert alone == few
    assert few > doubled > few - 0.05
    assert doubled > many > RELEVANT


def test_a_text_without_a_common_word_and_without_a_near_meaning_is_not_relevant() -> None:
    assert own("kubernetes", 0.02) == own("kubernetes", -0.04) == own("kubernetes") == 0.0


def test_a_question_of_words_that_everybody_uses_is_empty() -> None:
    for prompt in ("yes", "commit and push", "run the tests", "looks good, merge it", "ok do it"):
        assert Asked.of(query_tokens(prompt)).is_empty, prompt
    for question in ("login", "form", "slow restart", "no such table: users", "csv encoding"):
        assert not Asked.of(query_tokens(question)).is_empty, question


def test_a_word_that_everybody_uses_is_no_pointed_question() -> None:
    assert Asked.of(query_tokens("the build")).pointed < TOLD
    assert Asked.of(query_tokens("sync with main")).pointed < 0.9
    assert Asked.of(query_tokens("slow restart")).pointed == 1.0
    assert Asked.of(query_tokens("authentication")).pointed > TOLD


def test_a_question_that_names_a_time_is_not_empty() -> None:
    assert not Asked.of(["work"], time_weight=5.0).is_empty


def test_an_embedder_that_nobody_measured_is_trusted_less() -> None:
    seen = evidence("authentication of people", cosine=0.5)
    assert own_relevance(seen, "other:model", talk=False) < own_relevance(seen, STATIC, talk=False)


def test_a_time_in_the_question_is_no_missing_word() -> None:
    asked = Asked.of(["cooki"], time_weight=6.0)
    words = PassageWords("cooki", "", "")
    inside = asked.weigh(words, cosine=None, in_time=True, adds=1.0)
    outside = asked.weigh(words, cosine=None, in_time=False, adds=1.0)
    assert inside.coverage == 1.0 > outside.coverage
    assert inside.weight > outside.weight


def test_the_settings_have_the_same_floors() -> None:
    assert (Settings().min_score, Settings().rag_min_similarity) == (FLOOR, TOLD)


@given(st.integers(0, 500), st.integers(1, 500), st.sampled_from(["test", "zod", "ts2345", "42"]))
def test_a_word_of_more_passages_is_never_rarer(few: int, more: int, token: str) -> None:
    assert rarity(token, few, 1000) >= rarity(token, few + more, 1000) >= 0.0


def test_why_says_in_one_line_what_matched() -> None:
    three = evidence("login form validation", cosine=0.614)
    assert why(three, three.matched) == "words: login, form, valid (3 of 3); meaning 0.61"
    shown = why(three, ("login", "form", "validation"))
    assert shown == "words: login, form, validation (3 of 3); meaning 0.61"
    assert why(evidence("kubernetes"), ()) == "words: none"
    long = evidence("client validation login form email password zod")
    assert (
        why(long, long.matched)
        == "words: client, valid, login, form, email, password, ... (7 of 7)"
    )


def test_a_score_under_the_floor_is_not_called_relevant_in_any_way() -> None:
    scores = (0.0, FLOOR - 0.01, FLOOR, RELEVANT - 0.01, RELEVANT, 1.0)
    words = [relevance_word(value) for value in scores]
    assert words == [None, None, "possibly", "possibly", "relevant", "relevant"]


def test_words_that_a_third_of_a_large_collection_holds_are_not_ranked_by() -> None:
    def ranked(passages: int, **frequencies: int) -> list[str]:
        return ranking_tokens(WordMatches({}, frequencies, passages))

    assert ranked(2000, error=900, login=40) == ["login"]
    assert ranked(999, error=900, login=40) == ["error", "login"]
    assert ranked(2000, error=900) == ["error"]  # better than nothing
