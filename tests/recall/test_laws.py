"""What holds for every memory: knowledge never silences knowledge, and a question is no answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralph import Iteration, open_ralph
from ralph.memory.ralph import Ralph
from ralph.recall import Hit
from ralph.recall.score import relevance
from ralph.recall.telling import worth_telling
from ralph.records.conversation import (
    Conversation,
    Exchange,
    Summary,
    conversation_id,
    exchange_id,
)

PRICES = "Prices are integer cents everywhere; we never use floats for money."
RELATED = [
    "The invoice PDF shows prices in euros with two decimals.",
    "Prices of old orders are never changed.",
    "Discounts are applied to prices before tax.",
]
UNRELATED = [
    "The login page shows a spinner when the identity provider is slow.",
    "Thumbnails moved to a content delivery network.",
    "The nightly backup is copied to another region.",
    "Emails are sent by a queue with three retries.",
]
QUESTION = "how do we store prices?"
CSV = "Excel shows accents wrong. Decision: we write CSV files as UTF-8 with a BOM (utf-8-sig)."
CSV_QUESTION = "what encoding do we use for the csv files and why?"


@pytest.fixture
def ralph(tmp_path: Path) -> Iterator[Ralph]:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as opened:
        yield opened


def hold(ralph: Ralph, name: str, *pairs: tuple[str, str]) -> None:
    identity = conversation_id("api", name)
    exchanges = [
        Exchange(
            id=exchange_id(identity, str(n)),
            conversation=identity,
            user=user,
            assistant=assistant,
            completed="2026-03-01T10:00:00Z",
        )
        for n, (user, assistant) in enumerate(pairs)
    ]
    ralph.conversations.add(Conversation(id=identity, title=name), exchanges)


def save(ralph: Ralph, kind: str, text: str) -> None:
    if kind == "note":
        ralph.remember(text)
    elif kind == "iteration":
        ralph.feature("shop").remember(Iteration(summary=text))
    else:
        hold(ralph, text[:20], (text, "Understood."))


def text_of(hit: Hit) -> str:
    record = hit.record
    return str(getattr(record, "text", "") or getattr(record, "summary", "") or record.user)


def told(ralph: Ralph, question: str) -> dict[str, float]:
    hits = worth_telling(ralph.search(question), conversations=3)
    return {text_of(hit): hit.score or 0.0 for hit in hits}


@pytest.mark.parametrize("kind", ["note", "iteration", "exchange"])
def test_related_knowledge_never_silences_what_was_told(ralph: Ralph, kind: str) -> None:
    save(ralph, kind, PRICES)
    assert PRICES in told(ralph, QUESTION)
    for text in RELATED:
        save(ralph, kind, text)
        assert PRICES in told(ralph, QUESTION)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kinds=st.lists(st.sampled_from(["note", "iteration", "exchange"]), min_size=4, max_size=4),
    order=st.permutations([PRICES, *UNRELATED[:3]]),
)
def test_unrelated_records_change_nothing_that_is_told(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], order: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("laws")
    kind_of = dict(zip(order, kinds, strict=True))
    with open_ralph(folder / "alone", home=folder / "home1") as ralph:
        save(ralph, kind_of[PRICES], PRICES)
        alone = told(ralph, QUESTION)
    with open_ralph(folder / "among", home=folder / "home2") as ralph:
        for text in order:
            save(ralph, kind_of[text], text)
        among = told(ralph, QUESTION)
    assert alone.keys() == among.keys() == {PRICES}
    assert among[PRICES] == pytest.approx(alone[PRICES], abs=0.03)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I don't know.",
        "I do not know what encoding the csv files use.",
        "Unknown.",
        "No idea.",
        "Nothing found.",
        "That has not been decided yet.",
        "Could you give me more context?",
        "You are asking which encoding we use for the csv files.",
    ],
)
def test_a_question_without_an_answer_neither_outranks_nor_hides_one_that_answers(
    ralph: Ralph, answer: str
) -> None:
    hold(ralph, "decision", (CSV, "Done."))
    before = told(ralph, CSV_QUESTION)
    for n in range(3):
        hold(ralph, f"asked {n}", (CSV_QUESTION, answer))
    first = ralph.search(CSV_QUESTION)[0]
    assert text_of(first) == CSV
    assert before.keys() <= told(ralph, CSV_QUESTION).keys()


def test_a_summary_makes_no_answer_of_a_question(ralph: Ralph) -> None:
    hold(ralph, "decision", (CSV, "Done."))
    hold(ralph, "asked", (CSV_QUESTION, "I don't know."))
    talk = conversation_id("api", "asked")
    asked = exchange_id(talk, "0")
    text = f"The user asked: {CSV_QUESTION} The assistant did not know."
    ralph.conversations.say(Summary(of="exchange", target=asked, text=text))
    ralph.conversations.say(Summary(of="conversation", target=talk, text=text))

    assert text_of(ralph.search(CSV_QUESTION)[0]) == CSV
    found = ralph.conversations.related(CSV_QUESTION)
    assert found.conversations[0].conversation.title == "decision"


@pytest.mark.parametrize(
    "note", ["How do we store prices?", "Should prices be floats or integer cents?"]
)
def test_a_note_that_only_asks_never_hides_one_that_answers(ralph: Ralph, note: str) -> None:
    ralph.remember(PRICES)
    ralph.remember(note)
    assert text_of(ralph.search(QUESTION)[0]) == PRICES
    assert PRICES in told(ralph, QUESTION)


def test_a_short_answer_is_an_answer(ralph: Ralph) -> None:
    hold(ralph, "ports", ("Which port does the gateway listen on?", "8080."))
    hold(ralph, "money", ("Do we use floats for money?", "No, never."))
    assert told(ralph, "which port does the gateway listen on?")
    assert told(ralph, "do we use floats for money?")


def test_what_surely_answers_is_told_beside_a_better_answer(ralph: Ralph) -> None:
    reason = "We replaced GraphQL by REST because a CDN cannot cache POST queries."
    hold(ralph, "meeting", ("Write down what we agreed on", reason))
    question = "why did we drop GraphQL?"
    assert len(told(ralph, question)) == 1
    ended = "The last GraphQL client was switched off in May."
    hold(ralph, "clients", ("Do we still have GraphQL clients?", ended))
    assert "Write down what we agreed on" in told(ralph, question)


def test_nothing_is_shown_that_fits_in_no_way(ralph: Ralph) -> None:
    hold(
        ralph,
        "a talk",
        ("Add a discount function to orders.py", "Added."),
        (CSV_QUESTION, "UTF-8 with a BOM, because accounting opens them in Excel."),
        ("what's the weather like", "I can't see the weather."),
    )
    shown = [text_of(hit) for hit in ralph.search("csv encoding")]
    assert shown == [CSV_QUESTION]


def test_a_record_is_as_relevant_in_its_folder_as_everywhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_ralph(tmp_path / "shop", home=home) as shop:
        hold(shop, "prices", (QUESTION, "As integer cents, never as floats."))
    with open_ralph(tmp_path / "bank", home=home) as bank:
        for n, text in enumerate([*RELATED, PRICES]):
            hold(bank, f"talk {n}", (text, "Understood, prices it is."))
    with open_ralph(tmp_path / "shop", home=home) as shop:
        [here] = shop.search(QUESTION)
        everywhere = {hit.id: hit.score for hit in shop.search(QUESTION, everywhere=True)}
    assert len(everywhere) > 1
    assert everywhere[here.id] == here.score


def test_records_that_share_no_word_with_the_question_change_nothing(ralph: Ralph) -> None:
    hold(ralph, "prices", (PRICES, "Understood."))
    [alone] = ralph.search(QUESTION)
    others = [(f"{UNRELATED[n % len(UNRELATED)]} Ticket {n}.", "Noted.") for n in range(300)]
    hold(ralph, "others", *others)
    [among] = ralph.search(QUESTION)
    assert alone.parts
    assert among.parts
    assert among.parts.answered == alone.parts.answered
    assert among.score == pytest.approx(alone.score, abs=0.03)


def test_how_many_are_shown_does_not_change_whether_they_answer(ralph: Ralph) -> None:
    for text in [PRICES, *RELATED, *UNRELATED]:
        ralph.remember(text)
    answered = set()
    for limit in (1, 2, 5, 20):
        parts = ralph.search(QUESTION, limit=limit)[0].parts
        assert parts
        answered.add(parts.answered)
    assert len(answered) == 1


def test_a_better_answer_hides_none_that_answers_too(ralph: Ralph) -> None:
    hold(ralph, "decision", (CSV, "Understood."))
    assert [text_of(hit) for hit in ralph.search("csv encoding")] == [CSV]
    hold(
        ralph, "asked", (CSV_QUESTION, "UTF-8 with a BOM, because accounting opens them in Excel.")
    )
    assert [text_of(hit) for hit in ralph.search("csv encoding")] == [CSV_QUESTION, CSV]


@settings(max_examples=200, deadline=None)
@given(
    own=st.floats(0.0, 1.0),
    surer=st.floats(0.0, 1.0),
    share=st.floats(0.01, 1.0),
    nearer=st.floats(0.01, 1.0),
)
def test_relevance_rises_with_evidence_and_with_the_share_of_the_best(
    own: float, surer: float, share: float, nearer: float
) -> None:
    own, surer = sorted((own, surer))
    share, nearer = sorted((share, nearer))
    assert relevance(own, share) <= relevance(surer, share) <= relevance(surer, nearer)
    # The surer a hit is by itself, the less a better one takes from it.
    if own > 0.0:
        kept = relevance(own, share) / relevance(own, 1.0)
        assert kept <= relevance(surer, share) / relevance(surer, 1.0) + 1e-9


@pytest.mark.parametrize("answer", ["I do not know.", "I don't know.", "No idea.", ""])
def test_a_question_without_an_answer_is_not_shown_when_it_is_asked_again(
    ralph: Ralph, answer: str
) -> None:
    question = "How did we fix the timeout issue?"
    hold(ralph, "asked", (question, answer))
    assert ralph.search(question) == []
    assert ralph.search("how was the timeout fixed?") == []


def test_ten_conversations_about_a_subject_are_told_no_worse_than_one(ralph: Ralph) -> None:
    question = "How does our authentication work?"
    hold(ralph, "first", ("Explain the authentication", "Cookies signed with a rotating key."))
    one = ralph.conversations.related(question)
    for n in range(9):
        hold(ralph, f"talk {n}", (f"The authentication of client {n}", f"Client {n} sends a key."))
    ten = ralph.conversations.related(question)
    assert len(one.conversations) == 1
    assert len(ten.conversations) == 3


def test_a_better_answer_does_not_lower_how_often_a_subject_came_up(ralph: Ralph) -> None:
    talks = [
        ("Add JWT authentication to the API", "Tokens are signed with RS256."),
        ("Rotate the keys of our authentication service", "They rotate every 30 days."),
        ("Authentication fails behind the proxy", "It dropped the Authorization header."),
        ("Write tests for the authentication flow", "Twelve tests cover login and logout."),
        ("Document how authentication works", "See docs/auth.md: login, refresh, logout."),
    ]
    ordinals: list[int] = []
    for n, talk in enumerate(talks):
        hold(ralph, f"talk {n}", talk)
        line = ralph.conversations.related("How does our authentication work?").line
        ordinals.append(int(line.split("th ")[0].split("rd ")[0].split()[-1]) if line else 0)
    assert ordinals == sorted(ordinals)
    assert ordinals[-1] >= 5


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("The colour of the badge is grey.", "which color has the badge?"),
        ("The license check runs before the build.", "when does the licence check run?"),
        ("We serialise the catalogue with msgspec.", "how is the catalog serialized?"),
    ],
)
def test_american_and_british_spelling_find_each_other(ralph: Ralph, kept: str, asked: str) -> None:
    ralph.remember(kept)
    for text in UNRELATED:
        ralph.remember(text)
    assert [*told(ralph, asked)] == [kept]


def test_the_order_of_saving_does_not_matter(tmp_path: Path) -> None:
    scores: list[dict[str, float | None]] = []
    for n, texts in enumerate(([PRICES, *RELATED, *UNRELATED], [*UNRELATED, *RELATED, PRICES])):
        with open_ralph(tmp_path / f"shop{n}", home=tmp_path / f"home{n}") as ralph:
            for text in texts:
                save(ralph, "iteration", text)
            hits = ralph.search(QUESTION, min_score=0.0)
            scores.append({text_of(hit): hit.score for hit in hits})
    assert scores[0] == scores[1]


def test_a_question_that_repeats_the_words_keeps_no_answer_from_its_place(ralph: Ralph) -> None:
    hold(ralph, "decision", (CSV, "Done."))
    ralph.remember("The encoding of the video on the home page is H.264.")
    assert text_of(ralph.search("csv encoding", min_score=0.0)[0]) == CSV
    hold(ralph, "asked", (CSV_QUESTION, "I don't know."))
    assert text_of(ralph.search("csv encoding", min_score=0.0)[0]) == CSV


def test_the_best_evidence_comes_first_in_a_talk(ralph: Ralph) -> None:
    # The rarest word alone is in a long answer about something else.
    hold(ralph, "long", ("Describe the release", "The checkpoint of the release. " * 40))
    about = "Worktrees at the same commit collide, because branches are named after the commit."
    hold(ralph, "short", ("Why do sessions of two worktrees collide?", about))
    for n, text in enumerate(UNRELATED):
        hold(ralph, f"talk {n}", (text, "Noted."))
    hits = ralph.search("why do checkpoints of two worktrees collide?")
    assert text_of(hits[0]) == "Why do sessions of two worktrees collide?"
