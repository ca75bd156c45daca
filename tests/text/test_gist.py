"""Extractive summaries: ten exchanges that were looked at, and what holds for every text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.text.sentences import Piece, pieces, sentences
from ralph.text.summary import TITLE_CHARS, conversation_gist, exchange_gist, is_telling, title_of
from ralph.text.tokens import shorten

FLAKY = (
    "Hi Claude! Can you please fix the login test in /home/dev/shop/tests/auth/test_login.py? It"
    " fails about once in ten runs.",
    "I'll start by reading the test.\n\nThe login test was flaky because it compared a token's"
    " expiry with the wall clock. I fixed it by freezing the clock in `conftest.py`.\n\n"
    "```python\n@pytest.fixture\ndef clock(): ...\n```\n\nLet me know if you want more.",
)
METRICS = (
    "What are some key metrics to track for a tech startup?",
    "1. User acquisition: the number of new users.\n\n2. Churn rate: the share of customers who"
    " leave.\n\n3. Monthly recurring revenue: income.\n\n4. **Net promoter score** - fame.",
)
AIRPORT = (
    "Can you suggest cheaper ways from the airport to the city than a taxi?",
    "Yes, there are several ways to the city that cost less than a taxi. Here are a few:\n\n"
    "1. **Local trains**: two stations are near.\n2. **Express bus**: every half hour.\n"
    "3. **Shared shuttle**: ask at the desk.\n\nI hope this helps. Enjoy your trip!",
)
QUEUE = (
    "Should we use SQLite or Postgres for the job queue? Two processes write at once.",
    "Great question! Use SQLite in WAL mode for the job queue. Two writers on one machine are well"
    " within what it can do. Move to Postgres when a second machine has to write.",
)
CRASH = (
    "```\nTraceback (most recent call last):\n  File \"app.py\", line 3, in <module>\nKeyError: 'P'"
    "\n```\nwhy does this crash on the server but not on my laptop?",
    "The crash is caused by a missing environment variable: `PORT` is set in your shell profile,"
    " but not in the service's unit file.\n\nAdd `Environment=PORT=8000` to the unit.",
)
FLAG = (
    "Add a --json flag to `ralph search`, with tests.",
    "Done. Now `ralph search --json` prints one object a hit, and 14 tests cover it.\n\n"
    "| check | result |\n| --- | --- |\n| ruff | pass |",
)
LISBON = (
    "I'm trying to plan a trip to Lisbon in autumn. By the way, I just sold my old camera for 200"
    " euros. What should I see in three days?",
    "That sounds exciting! Three days are enough for the old town, Belém and a day in Sintra."
    " Start with Alfama in the morning. Would you like a plan by the hour?",
)
THANKS = ("thanks!", "You're welcome! Let me know if there's anything else.")
REVIEW = (
    "You are a reviewer for the payments team.\n\nReview the diff in src/pay/refund.py and tell me"
    " whether refunds can be issued twice.\n\n- look at locking\n- look at retries",
    "Refunds can be issued twice: the retry in `refund.py` runs outside of the lock. There is no"
    " test for it. Take the lock before the first attempt.",
)
BACKUP = (
    "Wie richte ich das Backup ein?",
    "Das Backup wird mit einem Cronjob eingerichtet, der jede Nacht um drei Uhr läuft. Die Ziele"
    " stehen in `backup.toml`.",
)

LOOKED_AT = [
    (
        FLAKY,
        "Fix the login test in test_login.py",
        "Can you please fix the login test in /home/dev/shop/tests/auth/test_login.py? The login"
        " test was flaky because it compared a token's expiry with the wall clock. I fixed it by"
        " freezing the clock in conftest.py.",
    ),
    (
        METRICS,
        "What are some key metrics to track for a tech startup?",
        "What are some key metrics to track for a tech startup? User acquisition: the number of new"
        " users; Churn rate: the share of customers who leave; Monthly recurring revenue: income;"
        " Net promoter score - fame.",
    ),
    (
        AIRPORT,
        "Suggest cheaper ways from the airport to the city than a taxi",
        "Can you suggest cheaper ways from the airport to the city than a taxi? There are several"
        " ways to the city that cost less than a taxi. Local trains: two stations are near; Express"
        " bus: every half hour; Shared shuttle: ask at the desk.",
    ),
    (
        QUEUE,
        "Should we use SQLite or Postgres for the job queue?",
        "Should we use SQLite or Postgres for the job queue? Use SQLite in WAL mode for the job"
        " queue. Two writers on one machine are well within what it can do.",
    ),
    (
        CRASH,
        "Why does this crash on the server but not on my laptop?",
        "Why does this crash on the server but not on my laptop? The crash is caused by a missing"
        " environment variable: PORT is set in your shell profile, but not in the service's unit"
        " file. Add Environment=PORT=8000 to the unit.",
    ),
    (
        FLAG,
        "Add a --json flag to ralph search, with tests",
        "Add a --json flag to ralph search, with tests. Now ralph search --json prints one object a"
        " hit, and 14 tests cover it.",
    ),
    (
        LISBON,
        "Plan a trip to Lisbon in autumn",
        "I'm trying to plan a trip to Lisbon in autumn. Three days are enough for the old town,"
        " Belém and a day in Sintra. Start with Alfama in the morning.",
    ),
    (THANKS, "Thanks", "Thanks!"),
    (
        REVIEW,
        "Review the diff in refund.py and tell me whether refunds can be issued twice",
        "Review the diff in src/pay/refund.py and tell me whether refunds can be issued twice."
        " Refunds can be issued twice: the retry in refund.py runs outside of the lock. There is no"
        " test for it.",
    ),
    (
        BACKUP,
        "Wie richte ich das Backup ein?",
        "Wie richte ich das Backup ein? Das Backup wird mit einem Cronjob eingerichtet, der jede"
        " Nacht um drei Uhr läuft. Die Ziele stehen in backup.toml.",
    ),
]


@pytest.mark.parametrize(("exchange", "title", "summary"), LOOKED_AT)
def test_an_exchange_is_what_was_asked_and_what_came_out(
    exchange: tuple[str, str], title: str, summary: str
) -> None:
    assert exchange_gist(*exchange) == summary
    assert title_of(exchange[0]) == title


def test_a_conversation_is_how_it_began_what_came_between_and_how_it_ended() -> None:
    assert conversation_gist([QUEUE, LISBON, CRASH, THANKS]) == (
        "Should we use SQLite or Postgres for the job queue? Then: I'm trying to plan a trip to"
        " Lisbon in autumn. In the end: The crash is caused by a missing environment variable: PORT"
        " is set in your shell profile, but not in the service's unit file. Add"
        " Environment=PORT=8000 to the unit."
    )


def test_a_conversation_of_one_exchange_is_that_exchange() -> None:
    assert conversation_gist([QUEUE]) == exchange_gist(*QUEUE)


def test_a_title_leads_when_it_says_something_else() -> None:
    told = conversation_gist([QUEUE], title="Quarterly planning")
    assert told.startswith("Quarterly planning: Should we use SQLite")
    assert conversation_gist([QUEUE], title="SQLite for the job queue") == conversation_gist(
        [QUEUE]
    )


def test_a_conversation_without_words_has_its_title() -> None:
    assert conversation_gist([], title="Empty") == "Empty"
    assert conversation_gist([]) == ""
    assert conversation_gist([("", "")]) == ""


TEXT = (
    "The index is built from the journal. It can be deleted at any time. Sure! Nobody loses"
    " anything by that, because the journal is the truth and the index only follows the journal."
    " Rebuilding takes a minute. I hope this helps."
)


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("", ""),
        ("<command-name>/compact</command-name>", ""),
        ("ok, now please refactor it", "Refactor it"),
        ("Could you help me with writing a regex for dates?", "Writing a regex for dates"),
        (
            "I'd like you to look at https://example.org/a/b and compare",
            "Look at example.org and compare",
        ),
        ("Rename C:\\work\\shop\\cart.ts to basket.ts", "Rename cart.ts to basket.ts"),
        ("fix it", "Fix it"),
        ("/review-pr\n\ncheck the export of orders", "Check the export of orders"),
        ("Review https://example.org/shop/pull/12 please", "Review PR #12 please"),
        ("\x1b[2mAdd a form\x1b[22m [Image #1]", "Add a form"),
        ("update @docs/guide/start.md", "Update start.md"),
        ("have a look at order 12\n\nlet's debug this", "Have a look at order 12"),
        ("add a form. never log the token", "Add a form"),
        ("update @.claude/skills/debug/SKILL.md please", "Update SKILL.md please"),
        ("Review https://shop.example.org/gh/acme/shop/trails/7", "Review trails/7"),
        ("See https://example.org/acme/shop/docs/payment-rules.md", "See payment-rules.md"),
        ("check https://shop.example.org/cart", "Check shop.example.org/cart"),
        ("\u2705 \U0001f4cb Story 2 is done", "Story 2 is done"),
        ("\u274c Story 2 is not done", "\u274c Story 2 is not done"),
        (
            "Add orders to the export. Make sure the tests of the export pass.",
            "Add orders to the export",
        ),
        ("Here is what I need:\n\nAdd a column for the tax", "Add a column for the tax"),
        ("the cart is slow..lets look at it", "The cart is slow, lets look at it"),
        ("no one likes the cart", "No one likes the cart"),
        ("main.py fails", "main.py fails"),
        ("Scope: review the cart", "Review the cart"),
        ("<task>Review the cart.</task>", "Review the cart"),
        ("There is a mistake in the cart", "There is a mistake in the cart"),
        ("All tests of the cart fail", "All tests of the cart fail"),
        ("Hi all, fix the cart", "Fix the cart"),
        (
            "In a new folder, can we take this\n\n/a/b/c\n\nand add it to the cart",
            "Add it to the cart",
        ),
        ("lead: You are shop-lint on the shop team. You clean up warnings.", "Clean up warnings"),
        ("You are the cart agent. Your task is to tune the cart.", "Tune the cart"),
        ("You are building a small shop. Read the code first.", "You are building a small shop"),
        (
            "Study the cart\nReview the design of the orders in it",
            "Review the design of the orders in it",
        ),
        ("Study the cart of the\nReview team", "Study the cart of the Review team"),
        ("Orders need a view. Should clearly be labelled and named well.", "Orders need a view"),
        ("The cart fails [10:22:31.030] [API] GET /cart", "The cart fails"),
        ("2) add a form", "Add a form"),
        ("merge this PR https://example.org/shop/pull/12", "Merge this PR #12"),
        ("why did https://example.org/runs/7/job/84641515103 fail", "Why did job fail"),
        ("https://example.org/runs/84641515103 the build is slow", "The build is slow"),
        ("I'd like us to show the tax", "Show the tax"),
        (
            "Say what to do with the tax if:\n\n- it is 0\n- it is missing",
            "Say what to do with the tax",
        ),
        ("I got this feedback for the branch: the tax is wrong", "The tax is wrong"),
        ("I think the orders had no tax, but\n```\ntax: 0\n```", "I think the orders had no tax"),
    ],
)
def test_a_title_has_no_courtesies_and_no_folders(prompt: str, title: str) -> None:
    assert title_of(prompt) == title


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        (
            "Rebuild the page of the cart with the new components and make it light, review the"
            " list of orders as well because it is slow on phones",
            "Rebuild the page of the cart with the new components and make it light, review the"
            " list of orders as well",
        ),
        (
            "Before we go on with the export of the orders from the last year, check that all of"
            " the orders have an address in the table",
            "Check that all of the orders have an address in the table",
        ),
        (
            "Read the default time limit of every request of the cart from an environment variable"
            " CART_TIMEOUT_MS (falling back to the constant of today)",
            "Read the default time limit of every request of the cart from an environment variable"
            " CART_TIMEOUT_MS",
        ),
    ],
)
def test_a_long_title_ends_where_a_clause_ends(prompt: str, title: str) -> None:
    assert title_of(prompt) == title


@pytest.mark.parametrize("title", ["Y", "check this", "/review", "ok, do it now", "Exit status 1"])
def test_words_that_name_nothing_are_no_title(title: str) -> None:
    assert not is_telling(title)


def test_sentences_do_not_end_at_abbreviations_versions_and_initials() -> None:
    assert sentences('Use e.g. Foo 3.12. See Dr. J. Smith! "Really?" Yes (indeed.) 好的。 So.') == [
        "Use e.g. Foo 3.12.",
        "See Dr. J. Smith!",
        '"Really?"',
        "Yes (indeed.)",
        "好的。",
        "So.",
    ]


def test_code_traces_and_tags_are_no_words() -> None:
    text = """## Why

It **fails** with [a link](https://example.org):

- [x] first `item`
  goes on

| a | b |
~~~
code
~~~
Traceback (most recent call last):
  File "a.py", line 3
ValueError: no
    at Object.run (a.js:3)
2026-03-05 10:00:01 ERROR boom
<system-reminder>
not this
</system-reminder>
> quoted
"""
    assert pieces(text) == [
        Piece("heading", ("Why",)),
        Piece("prose", ("It fails with a link:",)),
        Piece("item", ("first item goes on",)),
        Piece("code", ()),
        Piece("prose", ("quoted",)),
    ]


texts = st.lists(
    st.sampled_from(
        [
            "The index follows.",
            "Why?",
            "- item one",
            "\n\n",
            "```\n",
            "| a |",
            "# Head",
            "Sure!",
            "x" * 70,
        ]
    )
    | st.text(max_size=80),
    max_size=20,
).map("\n".join)


@given(user=texts, answer=texts)
def test_any_exchange_has_a_gist_and_a_title(user: str, answer: str) -> None:
    assert len(exchange_gist(user, answer)) <= 500
    assert len(conversation_gist([(user, answer), (answer, user)])) <= 700
    assert len(title_of(user)) <= TITLE_CHARS


@given(text=st.text(max_size=100), chars=st.integers(0, 60))
def test_a_shortened_text_is_its_beginning(text: str, chars: int) -> None:
    found = shorten(text, chars)
    assert len(found) <= chars
    assert found == text or text.startswith(found[:-1])
