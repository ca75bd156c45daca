from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.text.tokens import stem

# The examples of the published description, run through all of its steps.
PUBLISHED = """
caresses caress, ponies poni, ties ti, caress caress, cats cat, feed feed, agreed agre,
plastered plaster, bled bled, motoring motor, sing sing, conflated conflat, troubled troubl,
sized size, hopping hop, tanned tan, falling fall, hissing hiss, fizzed fizz, failing fail,
filing file, happy happi, sky sky, relational relat, conditional condit, rational ration,
digitizer digit, operator oper, feudalism feudal, decisiveness decis, hopefulness hope,
callousness callous, triplicate triplic, formative form, formalize formal, electrical electr,
hopeful hope, goodness good, revival reviv, allowance allow, inference infer, airliner airlin,
gyroscopic gyroscop, adjustable adjust, defensible defens, irritant irrit, replacement replac,
adjustment adjust, dependent depend, adoption adopt, communism commun, activate activ,
effective effect, bowdlerize bowdler, probate probat, rate rate, cease ceas, controll control,
roll roll, generalizations gener, oscillators oscil
"""
PAIRS = [tuple(pair.split()) for pair in PUBLISHED.replace("\n", " ").split(",")]


@pytest.mark.parametrize(("word", "expected"), PAIRS)
def test_the_published_examples_come_out_as_published(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    "family",
    [
        ("fail", "fails", "failed", "failing"),
        ("migration", "migrations", "migrate", "migrated", "migrating"),
        ("validate", "validated", "validation", "validating"),
        ("connect", "connected", "connection", "connections", "connecting"),
        ("retry", "retries", "retried"),
        ("query", "queries"),
    ],
)
def test_the_forms_of_a_word_are_one(family: tuple[str, ...]) -> None:
    assert len({stem(word) for word in family}) == 1


@pytest.mark.parametrize("word", ["as", "go", "utf8", "café", "Fails", "3.11", "a_b", ""])
def test_short_words_and_what_is_not_a_lower_case_ascii_word_stay(word: str) -> None:
    assert stem(word) == word


def test_y_is_a_vowel_after_a_consonant_only() -> None:
    assert stem("syzygy") == "syzygi"
    assert stem("dying") == "dy"
    assert stem("trying") == "try"
    assert stem("says") == "sai"


def test_a_word_that_is_nothing_but_an_ending_keeps_a_letter() -> None:
    assert stem("eing") == "e"


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", max_size=40))
def test_a_stem_is_never_empty_nor_longer_than_the_word(word: str) -> None:
    stemmed = stem(word)
    assert len(stemmed) <= len(word)
    assert bool(stemmed) == bool(word)
