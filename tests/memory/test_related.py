"""What belongs to a question among past conversations: related(), tags, ratings, time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ralph import open_ralph
from ralph.errors import BadInput
from ralph.memory.ralph import Ralph
from ralph.records.conversation import (
    Conversation,
    Exchange,
    Summary,
    conversation_id,
    exchange_id,
    summary_id,
)

TALKS = {
    "pool": [
        ("The checkout times out under load, why?", "The connection pool was exhausted."),
        ("How large should the connection pool be for the checkout?", "20, twice the workers."),
        ("And the checkout's statement timeout?", "Five seconds; the pool waits no longer."),
    ],
    "logo": [("Rename the logo file please", "It is logo.svg now.")],
    "mail": [("Why are mails sent twice?", "The job was retried after the timeout of the queue.")],
    "cookie": [("The session cookie is lost after login", "SameSite was strict.")],
}


@pytest.fixture
def talks(tmp_path: Path) -> Iterator[Ralph]:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        ralph.project.init()
        for n, (name, pairs) in enumerate(TALKS.items(), 1):
            hold(ralph, name, pairs, day=f"2026-03-{n:02}")
        yield ralph


def hold(ralph: Ralph, name: str, pairs: list[tuple[str, str]], *, day: str = "2026-03-01") -> str:
    identity = conversation_id("api", name)
    exchanges = [
        Exchange(
            id=exchange_id(identity, str(n)),
            conversation=identity,
            user=user,
            assistant=assistant,
            completed=f"{day}T10:{n:02}:00Z",
        )
        for n, (user, assistant) in enumerate(pairs)
    ]
    ralph.conversations.add(
        Conversation(id=identity, title=name, created=f"{day}T10:00:00Z"), exchanges
    )
    return identity


def titles(ralph: Ralph, question: str, **more: object) -> list[str]:
    found = ralph.conversations.related(question, **more)  # type: ignore[arg-type]
    return [one.conversation.title for one in found.conversations]


def test_the_conversation_and_its_best_exchanges_are_found(talks: Ralph) -> None:
    asked = "checkout connection pool timeout under load"
    assert [len(one.exchanges) for one in talks.conversations.related(asked).conversations] == [2]
    found = talks.conversations.related(asked, min_similarity=0.4)

    best = found.conversations[0]
    assert best.conversation.title == "pool"
    assert best.exchange_count == 3
    assert len(best.exchanges) == 2  # at most two of each
    assert best.exchanges[0].similarity >= best.exchanges[1].similarity >= 0.40
    assert best.similarity >= best.exchanges[0].similarity
    assert found.exchanges == sum(len(one.exchanges) for one in found.conversations)


def test_nothing_unsure_is_related(talks: Ralph) -> None:
    assert titles(talks, "what shall we have for lunch today?") == []
    assert titles(talks, "rename the logo file", min_similarity=1.0) == []


def test_the_conversation_under_way_is_never_returned(talks: Ralph) -> None:
    own = conversation_id("api", "pool")
    assert "pool" not in titles(talks, "checkout connection pool", exclude=own)
    assert "pool" not in titles(talks, "checkout connection pool", exclude=own, min_similarity=0.0)


def test_how_many_is_a_matter_of_the_settings(tmp_path: Path) -> None:
    with open_ralph(
        tmp_path / "shop",
        home=tmp_path / "home",
        rag_conversation_limit=1,
        rag_exchange_limit_per_conversation=1,
        rag_min_similarity=0.3,
    ) as ralph:
        for name in ("a", "b", "c"):
            hold(ralph, name, [("the checkout pool is exhausted", f"raise its limit {name} first")])
        found = ralph.conversations.related("the checkout pool is exhausted")
        assert [len(one.exchanges) for one in found.conversations] == [1]
        more = ralph.conversations.related("the checkout pool is exhausted", conversations=3)
        assert len(more.conversations) == 3


def test_a_conversation_is_found_by_its_summary_and_an_exchange_by_its_own(talks: Ralph) -> None:
    memory = talks.conversations
    logo = conversation_id("api", "logo")
    memory.say(
        Summary(of="conversation", target=logo, text="Corporate redesign: zebra branding assets."),
        id=summary_id(logo, 1),
    )
    mail = exchange_id(conversation_id("api", "mail"), "0")
    memory.say(
        Summary(of="exchange", target=mail, text="Duplicate newsletters by a flaky cron daemon."),
        id=summary_id(mail, 1),
    )

    [one] = memory.related("zebra branding redesign").conversations
    assert one.conversation.title == "logo"
    assert one.summary.startswith("Corporate redesign")
    [hit] = memory.search("duplicate newsletters cron daemon", min_score=0.55)
    assert (hit.id, hit.kind) == (mail, "exchange")
    assert hit.record.user == "Why are mails sent twice?"


def test_a_summary_is_kept_once_and_the_newest_counts(talks: Ralph) -> None:
    memory = talks.conversations
    pool = conversation_id("api", "pool")

    def told(covers: int, text: str) -> list[bool]:
        summary = Summary(of="conversation", target=pool, text=text, covers=covers)
        return memory.say_all([(summary, summary_id(pool, covers))])

    assert told(2, "first") == [True]
    assert told(2, "again") == [False]
    assert told(3, "grown") == [True]
    summary = memory.summary(pool)
    assert summary is not None
    assert summary.text == "grown"


def test_a_forgotten_exchange_takes_what_was_said_of_it(talks: Ralph, tmp_path: Path) -> None:
    memory = talks.conversations
    mail = conversation_id("api", "mail")
    exchange = exchange_id(mail, "0")
    memory.say(Summary(of="exchange", target=exchange, text="secretive newsletters"))
    memory.rate(exchange, 1)
    memory.tag(mail, add=["post"])

    memory.forget([exchange])

    [journal] = (tmp_path / "home" / "journal" / "conversations").glob("*.jsonl")
    assert "secretive" not in journal.read_text(encoding="utf-8")
    assert memory.search("secretive newsletters") == []
    assert "mail" not in [one.conversation.title for one in memory.list()]


def test_tags_are_put_on_taken_off_and_asked_for(talks: Ralph) -> None:
    memory = talks.conversations
    pool, logo = conversation_id("api", "pool"), conversation_id("api", "logo")
    memory.tag(pool, add=["Database", "load test"])
    memory.tag(logo, add=["design"])
    memory.tag(pool, remove=["load test"])

    [one] = memory.list(tags=["database"])
    assert (one.conversation.title, one.tags) == ("pool", ("database",))
    assert titles(talks, "checkout connection pool timeout", tags=["design"]) == []
    assert memory.search("checkout connection pool", tags=["DATABASE"])
    assert memory.search("checkout connection pool", tags=["design"]) == []
    with pytest.raises(BadInput, match="a tag needs a word"):
        memory.tag(pool, add=["  "])
    with pytest.raises(BadInput, match="a tag needs a word"):
        memory.tag(pool)


def test_a_title_can_be_changed(talks: Ralph) -> None:
    memory = talks.conversations
    memory.rename(conversation_id("api", "pool"), "  Timeouts of   the checkout ")
    assert memory.conversation(conversation_id("api", "pool")).title == "Timeouts of the checkout"


def test_a_rating_decides_between_equals_and_can_be_taken_back(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        first = hold(ralph, "a", [("why does the export fail?", "a comma in a name")])
        second = hold(ralph, "b", [("why does the export fail?", "a comma in a name")])
        memory = ralph.conversations

        def best() -> str:
            return str(memory.search("why does the export fail?")[0].record.conversation)

        liked = second if best() == first else first
        memory.rate(exchange_id(liked, "0"), 1)
        assert best() == liked
        memory.rate(exchange_id(liked, "0"), -1)
        assert best() != liked
        memory.rate(exchange_id(liked, "0"), 0)
        assert memory.stream.history.ratings[exchange_id(liked, "0")] == 0


def test_recency_counts_only_when_it_is_switched_on(tmp_path: Path) -> None:
    def order(**settings: Any) -> list[str]:
        with open_ralph(tmp_path / "shop", home=tmp_path / "home", **settings) as ralph:
            question = "why does the nightly export of orders fail?"
            found = ralph.conversations.search(question, min_score=0.0)
            return [hit.record.assistant.partition(":")[0] for hit in found]

    now = datetime.now(UTC)
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        old = (now - timedelta(days=400)).date().isoformat()
        question = "why does the nightly export of orders fail?"
        hold(ralph, "old", [(question, "old: the exporter's disk was full of logs")], day=old)
        said = ("the export fails", "new: the certificate of the bucket expired")
        hold(ralph, "new", [said], day=now.date().isoformat())

    assert order() == ["old", "new"]
    assert order(rag_recency_half_life_days=30.0) == ["new", "old"]


def test_days_that_are_given_are_a_limit(talks: Ralph) -> None:
    memory = talks.conversations
    asked = "checkout connection pool timeout"

    assert memory.search(asked, since="2026-03-01", until="2026-03-01")
    assert memory.search(asked, since="2026-03-02", until="2026-03-02") == []
    assert {hit.record.completed[:10] for hit in memory.search(asked, until="2026-03-01")} == {
        "2026-03-01"
    }


def test_days_that_the_question_names_lift_and_hide_nothing(tmp_path: Path) -> None:
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        hold(ralph, "then", [("why does the export fail?", "long ago")], day="2024-05-05")
        hold(ralph, "now", [("why does the export fail?", "yesterday")], day=yesterday)
        memory = ralph.conversations

        found = memory.search("what did we say yesterday about why the export fails?")

    assert [hit.record.assistant for hit in found] == ["yesterday", "long ago"]


def test_what_was_given_is_a_limit_whatever_the_question_names(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        hold(
            ralph, "one", [("why is the cache cold?", "its server was replaced")], day="2026-02-05"
        )
        hold(ralph, "two", [("why is the cache cold?", "it was flushed")], day="2026-03-05")
        asked = "what did we say in February 2026 about why the cache is cold?"
        found = [hit.record.assistant for hit in ralph.conversations.search(asked, min_score=0.0)]
        limited = ralph.conversations.search(asked, since="2026-03-01", min_score=0.0)

    assert found == ["its server was replaced", "it was flushed"]
    assert [hit.record.assistant for hit in limited] == ["it was flushed"]


def test_an_exchange_that_was_repeated_is_shown_once(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        for name in ("a", "b", "c"):
            hold(ralph, name, [("the checkout pool is exhausted", "raise it")])
        found = ralph.conversations.related("the checkout pool is exhausted")
        [hit] = ralph.conversations.search("the checkout pool is exhausted")

    assert [len(one.exchanges) for one in found.conversations] == [1]
    assert len(hit.like) == 2


def test_a_topic_that_comes_up_again_is_told(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        for n in range(4):
            pairs = [(f"authentication fails with a token, case {n}", "renew the token")]
            hold(ralph, f"talk {n}", pairs, day=f"2026-03-0{n + 1}")
        line = ralph.conversations.related("authentication with a token fails").line
        none = ralph.conversations.related("what is for lunch?").line

    assert line == "This is the 5th conversation about authentication, the first on 2026-03-01."
    assert none is None


def test_what_is_new_is_folded_in_and_what_was_forgotten_folded_out(tmp_path: Path) -> None:
    with (
        open_ralph(tmp_path / "shop", home=tmp_path / "home") as one,
        open_ralph(tmp_path / "shop", home=tmp_path / "home") as other,
    ):
        first = hold(one, "a", [("first question", "1")])
        assert [told.exchanges for told in other.conversations.list()] == [1]
        hold(one, "a", [("first question", "1"), ("second question", "2")])
        assert [told.exchanges for told in other.conversations.list()] == [2]
        one.conversations.forget([exchange_id(first, "0")])
        assert [told.exchanges for told in other.conversations.list()] == [1]
        assert [told.user for told in other.conversations.exchanges(first)] == ["second question"]


def test_a_memory_that_knows_one_topic_only_still_recalls_it(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        for n in range(6):
            hold(ralph, f"t{n}", [(f"how did we fix the socket timeout? case {n}", "120 s")])
        found = ralph.conversations.related("how did we fix the socket timeout?")

    assert len(found.conversations) == 3


def test_an_event_that_the_question_names_is_dated_by_the_exchange_that_tells_of_it(
    tmp_path: Path,
) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        pairs = [("how is the cache configured?", "in memory")]
        hold(ralph, "early", pairs, day="2026-01-05")
        hold(ralph, "event", [("the migration to Redis is done", "well")], day="2026-02-01")
        hold(ralph, "late", [("how is the cache configured?", "in Redis")], day="2026-03-01")
        memory = ralph.conversations

        def told(question: str) -> list[str]:
            found = memory.search(question, min_score=0.0)
            return [hit.record.assistant for hit in found if "cache" in hit.record.user]

        before = told("how was the cache configured before the migration to Redis?")
        after = told("how was the cache configured after the migration to Redis?")

    assert before == ["in memory", "in Redis"]
    assert after == ["in Redis", "in memory"]


def said(ralph: Ralph, question: str, **more: Any) -> list[str]:
    return [hit.record.user for hit in ralph.conversations.search(question, min_score=0.0, **more)]


CHAT = {
    "pottery": ["Did you go to the pottery class?", "Yes, it was great.", "Nice, tell me more."],
    "film": ["Did you see the film?", "Yes, it was great.", "Which one was it?"],
    "bike": ["The bike has a flat tire.", "Oh no.", "It was great before that."],
}


def test_a_short_turn_is_found_by_its_neighbors_and_its_conversation(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        # The newest first among equals: the wrong one, were it not for what stands around it.
        for name in ("pottery", "film", "bike"):
            hold(ralph, name, [(f"{n}: {turn}", "") for n, turn in enumerate(CHAT[name])])
        found = ralph.conversations.search("was the pottery class great?", min_score=0.0)

    turns = [(hit.record.conversation, hit.record.user) for hit in found]
    pottery = conversation_id("api", "pottery")
    assert turns.index((pottery, "1: Yes, it was great.")) < 2


def test_a_long_exchange_speaks_for_itself(tmp_path: Path) -> None:
    filler = " ".join(f"detail{n} of the answer" for n in range(120))
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        hold(ralph, "one", [("the pool is exhausted", filler), ("and the weather?", filler)])
        hold(ralph, "two", [("the pool needs a larger limit", filler)])
        found = said(ralph, "pool limit")

    assert found == ["the pool needs a larger limit", "the pool is exhausted", "and the weather?"]


VISITS = {
    "march": ["I saw a doctor about my knee, doctor Smith.", "The doctor said rest.", "Doctor ok?"],
    "april": ["The eye doctor gave me glasses."],
    "may": ["A skin doctor looked at my arm."],
}


def test_a_search_shows_each_conversation_once_before_one_comes_again(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        for name, turns in VISITS.items():
            hold(ralph, name, [(turn, "") for turn in turns])
        found = ralph.search("doctor")
        few = ralph.search("doctor", limit=3)

    homes = [hit.record.conversation for hit in found]
    assert len({*homes[:3]}) == 3
    assert len(homes) > 3
    assert [hit.record.conversation for hit in few] == homes[:3]


PARAPHRASES = {
    "How do we keep people from guessing passwords?": "brute force attack on the sign-in",
    "The nightly backup fills the disk": "storage is full after the dump ran",
    "Users see prices in the wrong currency": "euros are shown as dollars",
    "The build takes twenty minutes": "compilation is slow on the CI machine",
    "Emails land in the spam folder": "our messages are marked as junk",
    "The chart does not load on phones": "graph is missing in the mobile app",
}


def test_a_paraphrase_without_a_shared_word_is_related(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        for n, user in enumerate(PARAPHRASES):
            hold(ralph, user, [(user, "We looked into it.")], day=f"2026-03-{n + 1:02}")
        found = {
            user: user in titles(ralph, asked, min_similarity=0.4)
            for user, asked in PARAPHRASES.items()
        }

    assert sum(found.values()) >= 3, found


TOKEN_TALKS = {
    "Sign tokens": [
        (
            "How should we implement JWT authentication in the API?",
            "Sign the token with RS256 and check it in a middleware before each route.",
        ),
        (
            "How long should a JWT authentication token live?",
            "15 minutes, with a refresh token in an http-only cookie.",
        ),
        ("Where do we put the middleware file?", "src/middleware/auth.ts"),
    ],
    "Refresh tokens": [
        (
            "JWT authentication: how do refresh tokens rotate?",
            "Each refresh issues a new JWT and revokes the old refresh token.",
        ),
        (
            "What happens in JWT authentication when a refresh token is reused?",
            "The whole family is revoked and the user signs in again.",
        ),
    ],
    "Test the login": [
        (
            "How do we test JWT authentication in integration tests?",
            "A fixture signs a token with a test key.",
        ),
        (
            "Our JWT authentication tests fail with an expired token, why?",
            "The clock was frozen after the token was signed.",
        ),
    ],
}


@pytest.mark.parametrize(
    "question",
    [
        "What did we decide about JWT authentication tokens?",
        "How does our JWT authentication work?",
        "authentication",
    ],
)
def test_three_conversations_with_two_exchanges_each_are_returned_by_default(
    talks: Ralph, question: str
) -> None:
    for n, (name, pairs) in enumerate(TOKEN_TALKS.items(), 11):
        hold(talks, name, pairs, day=f"2026-03-{n:02}")

    found = talks.conversations.related(question)

    assert {one.conversation.title for one in found.conversations} == TOKEN_TALKS.keys()
    assert [len(one.exchanges) for one in found.conversations] == [2, 2, 2]
    assert all(one.similarity >= 0.55 for one in found.conversations)
    assert found.line is not None
    assert found.line.startswith("This is the 4th conversation about authentication")
