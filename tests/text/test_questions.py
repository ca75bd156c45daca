"""Which texts ask, which say yes or no, and which say that their writer doesn't know."""

from __future__ import annotations

import pytest

from ralph.text.questions import denies, is_question, is_yes_or_no


@pytest.mark.parametrize(
    "text",
    [
        "What encoding do we use",
        "Which port?",
        'the port, "which one?"',
        "\u30dd\u30fc\u30c8\uff1f",
    ],
)
def test_a_question_has_its_mark_or_opens_like_one(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize("text", ["We never use floats for money.", "", "Add a discount"])
def test_a_statement_and_an_order_are_no_questions(text: str) -> None:
    assert not is_question(text)


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "I\u2019m not sure.",
        "Sorry, I have no record of that.",
        "I couldn't find anything about it. Could you tell me more?",
    ],
)
def test_an_answer_denies_if_it_begins_with_what_its_writer_does_not_know(answer: str) -> None:
    assert denies(answer)


@pytest.mark.parametrize(
    "answer",
    ["", "We don't use floats.", "Use the index. I did not change it.", "It is not finished."],
)
def test_an_answer_that_says_what_is_not_denies_nothing(answer: str) -> None:
    assert not denies(answer)


@pytest.mark.parametrize(
    ("question", "answer", "said"),
    [
        ("Do we use floats for money?", "No, never.", True),
        ("It hangs. Is that known?", "Yes - since May.", True),
        ("Which port?", "No.", False),
        ("Is it done?", "No response requested.", False),
    ],
)
def test_yes_and_no_answer_a_question_that_wants_to_know_that(
    question: str, answer: str, said: bool
) -> None:
    assert is_yes_or_no(question, answer) is said
