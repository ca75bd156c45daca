"""A time in a question: it lifts records of every kind, is no missing word, and lists a day."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from remembering import made

from ralph import open_ralph
from ralph.memory.ralph import Ralph
from ralph.memory.store import when
from ralph.recall import Hit
from ralph.records.conversation import Conversation, Exchange, conversation_id, exchange_id

TODAY = date(2026, 3, 18)  # a Wednesday

ITERATIONS = {
    "2026-03-17": ("Fix the login form", "The form broke on empty passwords; validation added."),
    "2026-03-10": ("Fix the login timeout", "Sessions expired after five minutes; now an hour."),
    "2026-03-12": ("Cache the price list", "Prices are cached for ten minutes in Redis."),
    "2026-02-20": ("Limit the login attempts", "Five attempts a minute, then a captcha."),
    "2026-02-03": ("Rename the orders table", "orders became purchases, with a migration."),
    "2026-01-20": ("Write the invoice export", "CSV export of invoices with totals."),
}
EXCHANGES = {
    "2026-03-17": ("Why is the start page blank?", "A bundle was missing."),
    "2026-02-21": ("Which port does the gateway use?", "8080."),
}


@pytest.fixture
def ralph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ralph]:
    """A memory with records of every kind, asked on the same day."""
    monkeypatch.setattr("ralph.text.times.local_today", lambda: TODAY)
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as opened:
        opened.remember_all(
            [
                made(text, feature="shop", task_title=title, session_id=day, timestamp=f"{day}T12Z")
                for day, (title, text) in ITERATIONS.items()
            ]
        )
        for day, (user, assistant) in EXCHANGES.items():
            talk = conversation_id("api", day)
            exchange = Exchange(
                id=exchange_id(talk, "0"),
                conversation=talk,
                user=user,
                assistant=assistant,
                completed=f"{day}T11:00:00Z",
            )
            opened.conversations.add(Conversation(id=talk, title=user), [exchange])
        opened.remember("Deploy on weekdays only")
        yield opened


def titles(hits: list[Hit]) -> list[str]:
    fields = ("task_title", "user", "text")
    return [next(text for one in fields if (text := getattr(h.record, one, ""))) for h in hits]


@pytest.mark.parametrize(
    "question",
    [
        "yesterday",
        "what happened yesterday?",
        "What did we do yesterday?",
        "what did we talk about yesterday",
        "2026-03-17",
        "what did we work on last Tuesday?",
    ],
)
def test_a_question_with_nothing_but_a_time_lists_it_newest_first(
    ralph: Ralph, question: str
) -> None:
    found = ralph.search(question)
    assert titles(found)[:2] == ["Fix the login form", "Why is the start page blank?"]
    assert {hit.relevance for hit in found} == {"relevant"}
    if "Tuesday" not in question:  # which may be the one of the week before
        assert len(found) == 2


def test_where_nothing_is_of_that_time_nothing_is_listed(ralph: Ralph) -> None:
    assert ralph.search("what happened in 2019?") == []
    assert ralph.search("what did we do on March 1?") == []


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("what did we do about the login last week?", "Fix the login timeout"),
        ("what did we do about the login in February?", "Limit the login attempts"),
        ("what did we do about the login four weeks ago", "Limit the login attempts"),
        ("what did we fix about the login yesterday?", "Fix the login form"),
        ("what did we do about the login before March?", "Limit the login attempts"),
        ("what broke yesterday?", "Fix the login form"),
        ("which port was asked for in February?", "Which port does the gateway use?"),
    ],
)
def test_what_is_of_the_time_asked_for_comes_first(ralph: Ralph, question: str, first: str) -> None:
    assert titles(ralph.search(question))[0] == first


def test_a_time_lifts_and_hides_nothing(ralph: Ralph) -> None:
    found = titles(ralph.search("what did we fix about the login yesterday?", min_score=0.0))
    assert {"Fix the login form", "Fix the login timeout", "Limit the login attempts"} < {*found}


def test_a_time_is_no_word_that_an_answer_could_lack(ralph: Ralph) -> None:
    [plain, *_] = ralph.search("invoice export totals")
    [timed, *_] = ralph.search("what did we do in January about invoice export totals?")
    [wrong, *_] = ralph.search("what did we do in 2019 about invoice export totals?")
    for hit in (timed, wrong):
        assert hit.id == plain.id
        assert hit.parts is not None
        assert hit.parts.coverage == pytest.approx(1.0)


def test_days_that_are_given_limit_every_kind_and_are_found_among_many(ralph: Ralph) -> None:
    many = [
        made(
            f"login login login attempt {n}", feature="shop", task_title="login", session_id=f"{n}"
        )
        for n in range(300)
    ]
    ralph.remember_all(many)
    found = ralph.search("login", since="2026-03-09", until="2026-03-15", min_score=0.0)
    assert set(titles(found)) == {"Fix the login timeout", "Cache the price list"}
    assert titles(found)[0] == "Fix the login timeout"
    on_day = ralph.search("start page blank", since="2026-03-17", min_score=0.0)
    assert titles(on_day)[0] == "Why is the start page blank?"


if sys.platform != "win32":

    @pytest.mark.parametrize(("zone", "found"), [("UTC", False), ("UTC-14", True)])
    def test_a_day_is_one_of_the_persons_own_time_zone(
        ralph: Ralph, monkeypatch: pytest.MonkeyPatch, zone: str, found: bool
    ) -> None:
        # At 12:00 in UTC the day after has begun fourteen hours further east.
        try:
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            hits = ralph.search("what happened on March 18?")
            assert ("Fix the login form" in titles(hits)) is found
            given = ralph.search("login form", since="2026-03-18", min_score=0.0)
            assert ("Fix the login form" in titles(given)) is found
            today = datetime(2026, 3, 17, 13, tzinfo=UTC)
            assert when("2026-03-17T12:00:00Z", today=today)[:10] == f"2026-03-{17 + found}"
            assert when("2026-03-17T12:00:00Z", today=today + timedelta(days=1)).endswith(
                "yesterday"
            )
        finally:
            monkeypatch.undo()
            time.tzset()


@pytest.mark.parametrize(
    "question", ["2026-03-17", "2000/01/1", "login in february", "what did we fix last week?"]
)
def test_a_process_that_was_asked_before_answers_alike(
    ralph: Ralph, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    monkeypatch.setattr("ralph.index.matrix._MANY_PASSAGES", 1)
    asked = [ralph.search(question, min_score=0.0) for _ in range(3)]
    assert asked[1] == asked[0] == asked[2]
