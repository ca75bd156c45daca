"""Which of the agent's sentences is quoted as the reason of a solution."""

from __future__ import annotations

import time

import pytest

from ralph.capture.reasons import Subject, reason, reason_after


def quoted(*texts: str, message: str, change: str = "", comment: str = "") -> str:
    """Return the reason; `texts` are what the agent said, oldest first."""
    return reason(texts[::-1], Subject(message, change, comment), lambda text: False)


def test_a_sentence_that_names_what_the_error_names_is_quoted() -> None:
    assert (
        quoted(
            "Good, `--json` and `--verbose` are mutually exclusive. Let me fix that.",
            message="Only one output format can be specified: --json, --verbose, --count",
        )
        == "`--json` and `--verbose` are mutually exclusive."
    )
    assert (
        quoted(
            "Two lint errors.",
            "The `sessionID` variable conflicts with the parameter.",
            message="no new variables on left side of :=",
            change="edited a.go: -`sessionID := first` +`found := first`",
        )
        == "The `sessionID` variable conflicts with the parameter."
    )


def test_a_sentence_about_something_else_is_not_quoted() -> None:
    foreign = "The brand guidelines are explicit: the logo must be monochrome."
    assert quoted(foreign, message="rg: unrecognized flag --(brand|accent)") == ""
    other_test = "TestSave fails because the file is never closed."
    assert quoted(other_test, message="TestLoad: the file is missing") == ""


@pytest.mark.parametrize(
    "sentence",
    [
        "All tests in `parse_config` pass now.",
        "The `parse_config` test now finds zero errors.",
        "`parse_config` still is called, and it works.",
        "If `parse_config` fails too, the cache is not the cause.",
        "Does `parse_config` not see the cache?",
        "Now let me see why `parse_config` does not see it.",
        "`parse_config` now:",
        "No calls of `parse_config` remain.",
        "The linter already fixed the missing `parse_config`.",
        "After that I'll lock in what `parse_config` needs.",
    ],
)
def test_a_sentence_that_says_how_it_goes_is_no_reason(sentence: str) -> None:
    assert quoted(sentence, message="NameError: parse_config") == ""


def test_a_reason_may_lead_to_a_change_that_follows() -> None:
    said = "The `auth.Method` warnings come up because the list has the old path:"
    assert quoted(said, message="returns interface (auth.Method)") == f"{said[:-1]}."


def test_failures_from_before_the_session_are_a_reason_only_with_their_cause() -> None:
    message = "commit: cannot auto-sign commit: disable commit.gpgSign"
    assert quoted("The `commit.gpgSign` failures are pre-existing.", message=message) == ""
    cause = "These are pre-existing, because your global `commit.gpgSign` is not off."
    assert quoted(cause, message=message) == cause


def test_in_another_language_a_shared_name_is_enough() -> None:
    said = "`.work` は gitignore 対象でした。"
    message = "The following paths are ignored by one of your .gitignore files: .work"
    assert quoted(said, message=message) == said
    assert quoted("テストを実行します。", message=message) == ""


def test_after_a_success_only_a_stated_cause_counts() -> None:
    subject = Subject("NameError: parse_config", "edited app.py: +`parse_config = load`")
    said = "I renamed `parse_config`. It failed because `parse_config` was never imported."
    assert reason_after(said, subject, lambda text: False) == (
        "It failed because `parse_config` was never imported."
    )
    assert reason_after("`parse_config` was not there.", subject, lambda text: False) == ""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("The new test hit a plain package issue. Let me fix it.",
         "The new test hit a plain package issue."),
        ("The code is fine; the failure was just the cache being blocked. I'm rerunning.",
         "The code is fine; the failure was just the cache being blocked."),
        ("`mise` needs quoted keys for tasks, so I'm fixing that now.",
         "`mise` needs quoted keys for tasks."),
        ("The linter isn't on `PATH` in this shell; I'll call it by its path.",
         "The linter isn't on `PATH` in this shell."),
        ("Need to import `os/exec` in the test.", "Need to import `os/exec` in the test."),
    ],
)  # fmt: skip
def test_what_is_said_right_after_a_failure_is_about_it(said: str, why: str) -> None:
    message = "exit status 2: E0099"
    assert quoted(said, message=message, comment=said) == why
    assert quoted(said, message=message, comment="") == ""


def test_a_comment_that_names_no_cause_is_not_quoted() -> None:
    for said in ("The project shows that pushes are enabled.", "I found a very small app."):
        assert quoted(said, message="exit status 2: E0099", comment=said) == ""


@pytest.mark.parametrize(
    "piece",
    [
        "so I'm ",
        ", so ",
        "the a error is ",
        "; I'm ",
        "now no ",
        "all ",
        "a_",
        "-",
        "`",
        "because ",
        "it x y ",
        "--a",
    ],
)
def test_hostile_words_take_no_longer_than_their_length(piece: str) -> None:
    text = piece * (64_000 // len(piece))
    start = time.process_time()
    reason([text, text], Subject(text, text, text), lambda text: False)
    assert time.process_time() - start < 5
