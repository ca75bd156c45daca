"""Which of a person's words hold beyond their session."""

from __future__ import annotations

import pytest

from ralph.capture.lasting import choice_in, deferred_in, rules_in

# fmt: off
RULES = [
    "Never run the migrations here.",
    "Next time you change the code, let me commit.",
    "Use pnpm instead of npm.",
    "Standing order: never commit to main, code ends on main via PR only.",
    "The schema should not be edited, it is a snapshot.",
    "we don't ship playwright with the code",
    "i don't want `cargo update` in the release job",
    "ok, let's stick to camelCase",
    "From now on, answer in German.",
    "every new file must have a licence header",
    "Free tools are always preferred.",
    "don't touch the vendored files",
    "ensure that every commit has a changelog entry",
]
PASSING = [
    "Add tests to ensure that source and target must not be the same.",
    "always calls showUsage on the root command, so the help is wrong",
    "Before this change, the fallback always ran.",
    "The agents were never discovered.",
    "Should we always use pnpm?",
    "don't commit it yet",
    "fix the login form please",
    "this is not always true",
    "I don't think this is right.",
    "confirm that we can change the page to use the new API instead of the old one",
    "spawn an agent to move the runs, we no longer need the old folder",
]
DEFERRED = [
    "retries are 0 for now, meant to be reverted back to 3 before release",
    "this is only temporary",
    "we'll come back to the rest later",
]
# fmt: on


@pytest.mark.parametrize("text", RULES)
def test_a_rule_is_kept_as_it_was_put(text: str) -> None:
    assert rules_in(text) == [text]


@pytest.mark.parametrize("text", PASSING)
def test_a_report_a_question_or_a_request_is_no_rule(text: str) -> None:
    assert rules_in(text) == []


@pytest.mark.parametrize("text", DEFERRED)
def test_what_is_put_off_is_found(text: str) -> None:
    assert deferred_in(text) == [text]


def test_only_the_sentence_with_the_rule_is_kept() -> None:
    text = "Fix the header of the page. Never edit the generated files. Then run the tests."
    assert rules_in(text) == ["Never edit the generated files."]


def test_a_long_sentence_is_cut_to_the_clause_with_the_rule() -> None:
    text = "as always never push sensitive data, " + "the examples in the readme are generic " * 6
    assert rules_in(text) == ["as always never push sensitive data"]


def test_an_answer_that_outlives_the_session_is_a_choice() -> None:
    assert choice_in("Which database should it use? -> PostgreSQL") == (
        "Which database should it use?",
        "PostgreSQL",
    )


@pytest.mark.parametrize(
    "text",
    [
        "What would you like to do next? -> Work on the page of the user",
        "Which database should it use? -> Yes",
        "2 -> The second option of an earlier message",
        "Which one is it? -> what are the differences?",
        "Accepted plan: use a -> b",
    ],
)
def test_an_answer_for_the_moment_is_no_choice(text: str) -> None:
    assert choice_in(text) is None
