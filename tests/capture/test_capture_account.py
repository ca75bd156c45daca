"""The title, the summary and the proven outcome of a session."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

import pytest

from ralph.capture.decisions import Proof, SessionAccount, session_title, title_from
from ralph.records.iteration import Outcome

# fmt: off
OUTCOMES: list[tuple[list[Proof], bool, Outcome]] = [
    (["edited", "passed"], False, "success"), (["edited", "failed", "edited", "saved"], False, "success"),
    (["edited", "failed"], False, "partial"), (["edited", "passed", "failed"], False, "partial"),
    (["edited"], False, "unknown"), ([], False, "unknown"), (["passed"], False, "unknown"),
    (["edited", "passed", "edited"], False, "unknown"), (["edited", "refused"], False, "partial"),
    (["edited", "passed"], True, "partial"), (["edited", "saved"], True, "success"),
    (["refused"], False, "unknown"), (["failed"], False, "unknown"),
]
# fmt: on


@pytest.mark.parametrize(("proofs", "stopped", "outcome"), OUTCOMES)
def test_an_outcome_needs_proof_after_the_last_edit(
    proofs: list[Proof], stopped: bool, outcome: Outcome
) -> None:
    account = SessionAccount()
    for proof in proofs:
        account.prove(proof)
    assert account.outcome(stopped=stopped) == outcome


def test_a_title_is_the_clients_else_the_plans_else_the_request() -> None:
    account = SessionAccount()
    assert account.title == ""
    account.ask("can you please fix the login form")
    assert account.title == "Fix the login form"
    account.own_title = "Login form"
    assert account.title == "Login form"
    planned = SessionAccount()
    planned.own_title = "faster-login-form"
    planned.ask("Implement the following plan:\n\n# Plan: Faster login\n\nText")
    assert planned.title == "Faster login"
    planned.own_title = "Login in half the time"
    assert planned.title == "Login in half the time"
    assert title_from("just words", plans_only=True) == ""


@pytest.mark.parametrize(
    ("prompts", "own", "done", "title"),
    [
        (["commit all"], "", ["Add a form"], "Add a form"),
        (["fix the form"], "faster-login-form", [], "Faster login form"),
        (["fix the form"], "\x1b[1mThe form\x1b[0m", [], "The form"),
        (
            ["/create-story"],
            "",
            ["Hello!", "Story 2 is complete."],
            "/create-story: Story 2 is complete",
        ),
        (["/review", "nothing to add"], "", ["What next?"], "/review"),
        (["/review", "2", "add a test for the cart"], "", [], "/review: Add a test for the cart"),
        (["/effort high", "add a test for the cart"], "", [], "Add a test for the cart"),
        (
            ["can we fix this?"],
            "",
            ["The cart was empty, now fixed."],
            "The cart was empty, now fixed",
        ),
        (["check this"], "", [], "Check this"),
        (
            ["look at the PR comments :)"],
            "",
            ["", "All tests pass.", "Rounded the tax of an order."],
            "Look at the PR comments: Rounded the tax of an order",
        ),
        (
            ["look at the PR comments", "round the tax"],
            "",
            [],
            "Look at the PR comments: Round the tax",
        ),
        (["look at the PR comments"], "", ["All tests pass."], "Look at the PR comments"),
        (
            ["look at the PR comments"],
            "",
            ["Look at the PR comments: Rounded the tax of an order."],
            "Look at the PR comments: Rounded the tax of an order",
        ),
        (["y", "yes"], "", [], "Y"),
    ],
)
def test_a_title_names_what_the_session_is_about(
    prompts: list[str], own: str, done: list[str], title: str
) -> None:
    assert session_title(prompts, own=own, done=done) == title


def test_a_summary_tells_every_turn_and_its_commits() -> None:
    account = SessionAccount()
    account.ask("Add a form for the address.")
    account.say("The form is there, with a field for the street.")
    account.ask("commit")
    account.commit("Add an address form")
    account.say("Committed.")
    account.ask("Now make the button blue.")
    account.say("The button is blue now.")
    assert account.summary("The button is blue now.").split("\n") == [
        "Asked: Add a form for the address. The form is there, with a field for the street.",
        "Committed: Add an address form.",
        "Asked: Now make the button blue.",
        "The button is blue now.",
    ]


def test_a_session_of_one_turn_is_told_by_its_last_words() -> None:
    account = SessionAccount()
    account.ask("Add a form.")
    account.commit("Add a form")
    assert account.summary("Done.") == "Done.\nCommitted: Add a form."


def test_a_long_session_stays_within_the_limit() -> None:
    account = SessionAccount()
    for number in range(300):
        account.ask(f"Please do the thing number {number} " + "with care " * 50)
        account.say("It is done. " * 100)
    assert len(account.summary("the end " * 300)) < 2000
