"""Found when it is there, silent when it is not: through the product, on examples of their own."""

from __future__ import annotations

import gc
import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import corpus
from ralph import Iteration, open_ralph
from ralph.memory.ralph import Ralph
from ralph.recall.score import FLOOR, RELEVANT, TOLD
from ralph.recall.search import Candidate
from ralph.records.conversation import (
    Conversation,
    Exchange,
    Summary,
    conversation_id,
    exchange_id,
    summary_id,
)
from ralph.records.iteration import Decision, ErrorSeen

LOGIN = [
    "The login page shows a spinner forever when the identity provider is slow.",
    "Login with an expired invitation now explains what to do.",
    "Moved the login throttle from memory to Redis, so that two workers share it.",
    "Login on the tablet app failed because the keyboard covered the button.",
    "Added a remember-me box to the login form, off by default.",
    "The login mail had the wrong sender after the domain move.",
    "Wrote end-to-end tests for login with and without single sign-on.",
    "Login sessions were dropped by the nightly restart; they live in the database now.",
]
OTHERS = [
    "How do I knead sourdough?",
    "cheapest flight to Lisbon in May",
    "Kubernetes ingress annotations",
    "what is the offside rule?",
]


@pytest.fixture
def ralph(tmp_path: Path) -> Iterator[Ralph]:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as opened:
        yield opened


def told(ralph: Ralph, *summaries: str, feature: str = "auth") -> None:
    ralph.feature(feature).remember_all([Iteration(summary=one) for one in summaries])


def found(ralph: Ralph, question: str) -> list[str]:
    return [hit.record.summary for hit in ralph.search(question) if hit.kind == "iteration"]


def test_a_memory_about_one_topic_answers_questions_on_it(ralph: Ralph) -> None:
    told(ralph, *LOGIN)
    assert len(found(ralph, "login problems")) >= 3
    assert found(ralph, "why were people logged out every night?")[0] == LOGIN[7]
    assert found(ralph, "login throttle redis")[0] == LOGIN[2]


def test_the_one_long_record_with_a_name_is_found_by_the_name_alone(ralph: Ralph) -> None:
    draw = random.Random(7)
    names = ["zq" + "".join(draw.choices(string.ascii_lowercase, k=10)) for _ in range(60)]
    sentences = " ".join(LOGIN).replace(". ", ".\n").splitlines()
    told(ralph, *(" ".join([*draw.choices(sentences, k=20), name]) for name in names))
    for name in names:
        first, *others = ralph.search(name)
        assert name in first.record.summary
        assert first.score is not None
        assert first.score > RELEVANT
        assert all(one.score is not None and one.score < first.score for one in others)


@pytest.mark.parametrize("question", ["throttle", "____", "\N{SHRUG}"])
def test_many_records_that_fit_equally_well_are_searched(ralph: Ralph, question: str) -> None:
    told(ralph, *(f"Raised the throttle of tenant {n}" for n in range(500)))
    for _ in range(3):  # a first search, then with cached words
        assert len(found(ralph, question)) == (10 if question == "throttle" else 0)
    assert ralph.feature("auth").search(question, min_score=0.0)


@pytest.mark.parametrize("question", OTHERS)
def test_a_question_about_something_else_finds_nothing(ralph: Ralph, question: str) -> None:
    told(ralph, *LOGIN)
    assert ralph.search(question) == []


@pytest.mark.parametrize(
    "question",
    [
        "Kubernetes ingress annotations for sticky sessions",
        "redis cluster failover in production",
        "how does the mail server rotate DKIM keys",
        "keyboard shortcuts in vim",
        "domain registration renewal",
    ],
)
def test_one_word_in_common_is_never_enough_to_be_given_unasked(
    ralph: Ralph, question: str
) -> None:
    told(ralph, *LOGIN)
    assert all((hit.score or 0.0) < TOLD for hit in ralph.search(question, min_score=0.0))


@pytest.mark.parametrize("question", ["fix the error", "what is it", "run the test", "the file"])
def test_a_question_of_words_that_everybody_uses_finds_nothing(ralph: Ralph, question: str) -> None:
    told(ralph, *LOGIN)
    assert ralph.search(question) == []


def test_other_words_for_the_same_thing_find_it(ralph: Ralph) -> None:
    told(
        ralph,
        "Invoices are emailed as PDF attachments on the first of each month.",
        "The dog walker app crashes when location permission is revoked.",
        "Database backups are copied to another region every hour.",
        "Moved image thumbnails to a content delivery network.",
    )
    question = "when do customers get their bills by email?"
    assert found(ralph, question)[:1] == [
        "Invoices are emailed as PDF attachments on the first of each month."
    ]


def test_the_displayed_order_is_the_order_of_scores(ralph: Ralph) -> None:
    told(ralph, *LOGIN)
    ralph.remember("People call the login page the front door.")
    talk = conversation_id("api", "one")
    pairs = [("Is the login slow?", "Only the first time."), ("And logout?", "Never.")]
    exchanges = [
        Exchange(id=exchange_id(talk, str(n)), conversation=talk, user=user, assistant=answer)
        for n, (user, answer) in enumerate(pairs)
    ]
    ralph.conversations.add(Conversation(id=talk), exchanges)
    for question in ("login problems", "slow login", "login sessions dropped", "front door"):
        hits = ralph.search(question, min_score=0.0, limit=20)
        assert len(hits) > 5
        scores = [hit.score for hit in hits if hit.score and hit.score >= FLOOR]
        assert scores == sorted(scores, reverse=True)


def test_an_error_a_decision_and_the_summary_of_an_iteration_are_each_found(ralph: Ralph) -> None:
    told(ralph, *LOGIN)
    ralph.feature("export").remember(
        Iteration(
            task_title="Nightly export",
            summary="Rows are streamed to object storage instead of being built in memory.",
            errors=(
                ErrorSeen(
                    "botocore.exceptions.EndpointConnectionError: could not connect",
                    resolution="the proxy needed the bucket's host in its allow list",
                ),
            ),
            decisions=(Decision("Parquet over CSV", "columns keep their types"),),
        )
    )
    for question in (
        "streaming rows to object storage",
        "EndpointConnectionError could not connect",
        "proxy allow list for the bucket",
        "why parquet and not csv?",
    ):
        [first, *_] = ralph.search(question)
        assert first.record.task_title == "Nightly export", question
        assert (first.score or 0.0) >= RELEVANT, question


def test_what_is_shown_does_not_depend_on_how_much_below_it_was_looked_at(ralph: Ralph) -> None:
    told(ralph, *(one["summary"] for one in corpus.iterations(0, 150)))
    # Near-twins of the first, and others that say exactly the same.
    told(ralph, *(f"{one} Run {n}." for n in range(9) for one in (LOGIN[2], LOGIN[5])), *LOGIN)
    counts: set[int] = set()
    for question in (*corpus.queries(40, size=150), *LOGIN, "login problems", "login throttle"):
        for limit in (1, 3, 10):
            everything = ralph.search(question, limit=limit, min_score=0.0)
            shown = [hit for hit in everything if hit.score is not None and hit.score >= FLOOR]
            assert list(ralph.search(question, limit=limit)) == shown
            counts.add(len(shown))
    assert counts >= {1, 3}


def test_what_a_search_made_goes_without_the_garbage_collector(ralph: Ralph) -> None:
    told(ralph, *LOGIN)
    ralph.conversations.exchange(
        ralph.conversations.start("Login"), user="Why does the login fail?", assistant=LOGIN[0]
    )
    assert ralph.search("login problems")
    gc.collect()
    gc.disable()
    try:
        assert {hit.kind for hit in ralph.search("login problems")} == {"exchange", "iteration"}
        assert not any(isinstance(one, Candidate) for one in gc.get_objects())
    finally:
        gc.enable()


def test_near_twins_are_folded_before_the_limit(ralph: Ralph) -> None:
    told(ralph, *LOGIN)
    ralph.feature("auth").remember_all(
        [
            Iteration(summary="Rotated the signing key of the webhook receiver.", session_id=str(n))
            for n in range(4)
        ]
    )
    hits = ralph.search("signing key of the webhook receiver", limit=2, min_score=0.0)
    assert len(hits) == 2
    assert len(hits[0].like) == 3
    assert (hits[0].score or 0.0) >= TOLD


def test_what_was_summarized_is_found_as_surely_as_before(ralph: Ralph) -> None:
    pairs = {
        "pool": ("The checkout times out under load", "The connection pool was exhausted."),
        "hooks": ("Payment hooks come twice", "We now store the id of each event."),
        "css": ("The header jumps on scroll", "It was sticky inside an overflow container."),
        "mail": ("Mails land in spam", "The sending domain lacked a DKIM record."),
    }
    memory = ralph.conversations
    for name, (user, answer) in pairs.items():
        talk = conversation_id("api", name)
        one = Exchange(id=exchange_id(talk, "0"), conversation=talk, user=user, assistant=answer)
        memory.add(Conversation(id=talk), [one])
    question = "how did we solve the connection pool issue of the checkout?"
    [before, *_] = memory.search(question)
    for name, (user, answer) in pairs.items():
        talk, exchange = (
            conversation_id("api", name),
            exchange_id(conversation_id("api", name), "0"),
        )
        text = f"{user}. {answer}"
        memory.say(Summary(of="conversation", target=talk, text=text), id=summary_id(talk, 1))
        memory.say(Summary(of="exchange", target=exchange, text=text), id=summary_id(exchange, 1))
    [after, *_] = memory.search(question)
    assert before.id == after.id
    assert (after.score or 0.0) >= (before.score or 0.0) - 0.05
    assert (after.score or 0.0) >= TOLD
    related = memory.related(question).conversations
    assert related[0].conversation.id == conversation_id("api", "pool")


def test_a_fuller_match_never_scores_lower(ralph: Ralph) -> None:
    told(ralph, *LOGIN, "The cart loses its voucher when the currency changes.")
    scores = [
        ralph.search(question, min_score=0.0)[0].score or 0.0
        for question in ("cart", "cart voucher", "cart loses voucher when currency changes")
    ]
    assert scores == sorted(scores)
    assert scores[0] >= FLOOR


def test_without_vectors_words_alone_find_and_stay_silent(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "p", home=tmp_path / "home", embedder="none") as ralph:
        told(ralph, *LOGIN)
        assert found(ralph, "login throttle redis")[0] == LOGIN[2]
        for question in OTHERS:
            assert ralph.search(question) == []
