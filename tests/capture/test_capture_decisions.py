"""What counts as a decision of the agent, and what does not."""

from __future__ import annotations

import pytest
from timing import assert_linear

from ralph.capture.decisions import LONGEST, decisions_in

# fmt: off
DECISIONS: dict[str, tuple[str, str | None]] = {
    "I decided to use SQLite because it needs no server.":
        ("I decided to use SQLite", "it needs no server"),
    "I'll use httpx instead of requests because it has timeouts.":
        ("I'll use httpx instead of requests", "it has timeouts"),
    "I chose msgspec over pydantic since it starts faster.":
        ("I chose msgspec over pydantic", "it starts faster"),
    "Decision: keep the YAML file as the truth": ("keep the YAML file as the truth", None),
    "**Decision:** store prices in cents to avoid rounding":
        ("store prices in cents", "to avoid rounding"),
    "Going with Redis over Memcached since it persists.":
        ("Going with Redis over Memcached", "it persists"),
    "I switched from threads to asyncio to avoid the lock.":
        ("I switched from threads to asyncio", "to avoid the lock"),
    "Used React Hook Form instead of controlled inputs for form state":
        ("Used React Hook Form instead of controlled inputs for form state", None),
    "I have decided against caching because the data changes.":
        ("I have decided against caching", "the data changes"),
    "I opted for a tagged switch rather than if/else to keep the linter quiet.":
        ("I opted for a tagged switch rather than if/else", "to keep the linter quiet"),
    "I decided to inline the helper as it is used once.":
        ("I decided to inline the helper", "as it is used once"),
    "I decided to keep the API because clients depend on it.":
        ("I decided to keep the API", "clients depend on it"),
    "We have decided to avoid globals since tests share them.":
        ("We have decided to avoid globals", "tests share them"),
    "We chose optimistic locking because conflicts are rare.":
        ("We chose optimistic locking", "conflicts are rare"),
    "After measuring both, I decided to drop the index since it was never used.":
        ("I decided to drop the index", "it was never used"),
    "- I decided not to retry, because the call is not idempotent.":
        ("I decided not to retry", "the call is not idempotent"),
    "Root cause: the reader never closes the file. It keeps 900 handles open at the end.":
        ("Root cause: the reader never closes the file", "It keeps 900 handles open at the end"),
    "**Root Cause:** nginx had no block for that host":
        ("Root Cause: nginx had no block for that host", None),
    "Found the root cause. **Orders go to `old.example.org`**, which routes all to the shop.":
        ("Root cause: Orders go to `old.example.org`, which routes all to the shop", None),
    "Found it \u2014 the option lives on branch `docs/lists`, which was never merged":
        ("Root cause: the option lives on branch `docs/lists`, which was never merged", None),
    "The bug is that the label is read before the page is drawn":
        ("The bug is that the label is read before the page is drawn", None),
    "Root cause: the linter failed on [app/cart.ts](/srv/shop/app/cart.ts:12) because it sorts":
        ("Root cause: the linter failed on app/cart.ts", "it sorts"),
    "I'm adding it to `mise.toml` so CI installs it instead of what is on a machine":
        ("I'm adding it to `mise.toml`", "so CI installs it instead of what is on a machine"),
    "Added a flush at the end of each host instead of one for each file":
        ("Added a flush at the end of each host instead of one for each file", None),
}
NO_DECISIONS = [
    "You're right, that is unnecessary duplication.",
    "You're right to question this!",
    "The root cause is clear and the fix is surgical.",
    "Root cause: Same `entire rewind` issue",
    "Found it! The command is defined in session.go.",
    "I changed it because it failed",
    "We decided on:",
    "Should I use SQLite instead of Postgres because it is simpler?",
    "I could use Redis instead of Memcached because it persists.",
    "Maybe I'll use httpx instead of requests because it has timeouts.",
    "If that fails, I'll use threads instead of asyncio because they are simpler.",
    "I haven't decided to use SQLite because of the lock.",
    "We need to decide whether to use SQLite or Postgres.",
    "The README says I decided to use SQLite because it needs no server.",
    'The comment reads "I chose SQLite because it needs no server".',
    "> I decided to use SQLite because it needs no server.",
    "```\nI decided to use SQLite because it needs no server.\n```",
    "```\nDecision: use SQLite\nnever closed",
    "The user decided to keep the old form because it is familiar.",
    "Let me use a Perl one-liner instead of sed because it handles many lines.",
    "I'll use the Grep tool instead of Bash because it is faster.",
    "I'll use jwt.",
    "The real issue is deeper though, because the lock is not the only cause of it.",
    "Changed [app/settings.json](/srv/shop/app/settings.json) so the settings now use:",
    "I'm reading the log now so we fix the line instead of guessing",
    "I'll use the `stack` skill here because you asked for a stack",
    "I'll look at the tests first because they say what is expected.",
    "I went over the logs.",
    "The function is used instead of the class.",
    "Would you rather I chose Postgres because it scales?",
]
# fmt: on


@pytest.mark.parametrize("text", DECISIONS)
def test_a_plain_statement_of_a_choice_is_a_decision(text: str) -> None:
    assert [(d.description, d.rationale) for d in decisions_in(text)] == [DECISIONS[text]]


@pytest.mark.parametrize("text", NO_DECISIONS)
def test_doubt_quotation_code_and_talk_about_tools_are_no_decisions(text: str) -> None:
    assert decisions_in(text) == []


def test_a_decision_stands_among_other_sentences() -> None:
    text = "Done.\n\n- Added a form.\n- I chose cents over floats because of rounding. Next: tests."
    assert [d.description for d in decisions_in(text)] == ["I chose cents over floats"]


@pytest.mark.parametrize(
    "piece",
    ["I decided ", "I'll use ", "over ", "`", "I decided. ", "over. ", "[a](", "I'll use a "],
)
def test_a_hostile_text_takes_no_longer_than_its_length(piece: str) -> None:
    assert_linear(decisions_in, lambda size: piece * (size // len(piece)), 60_000)


def test_a_long_decision_is_cut() -> None:
    said = "I decided to " + "rename it and " * 40 + "because " + "names matter and " * 10
    (decision,) = decisions_in(said)
    assert len(decision.description) <= LONGEST
    assert len(decision.rationale or "") <= LONGEST


def test_a_cause_in_a_list_is_the_item_that_says_what_is_wrong() -> None:
    text = """Root cause:

- An order is saved with its tax.
- `tax()` returns 0 for an order without an address, but the view treats 0 as missing.
- The list shows the same.
"""
    [cause] = decisions_in(text)
    assert cause.description.startswith("Root cause: `tax()` returns 0 for an order")
    assert decisions_in("Root cause:\n\nLook at the list of orders.\n\n- It is not there.\n") == []
