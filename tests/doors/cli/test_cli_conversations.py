"""What was said in a project, at the command line: searched, listed, shown, forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanding import Line

from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Summary


@pytest.fixture
def said(project: Path) -> dict[str, str]:
    """A project in which two conversations were held; their ids and those of the exchanges."""
    with open_ralph(project) as opened:
        talk = opened.conversations
        one, two = talk.start("Timeouts", source="claude-code"), talk.start("Logo")
        kept = talk.exchange(
            one,
            user="The checkout times out under load, why?",
            assistant="The connection pool was exhausted; its size is 20 now.",
        )
        other = talk.exchange(two, user="Rename the logo file", assistant="It is logo.svg now.")
    return {"one": one, "two": two, "pool": kept.id, "logo": other.id}


def test_conversations_are_found_by_every_search_or_alone(
    ralph: Line, said: dict[str, str]
) -> None:
    ralph.record("shop", {"summary": "Wrote docs on why the checkout times out."})
    both = ralph.well("search", "checkout times out", "--json").json
    assert {hit["kind"] for hit in both} == {"iteration", "exchange"}

    [hit] = ralph.well("search", "checkout times out", "--conversations", "--json").json

    assert hit["id"] == said["pool"]
    assert hit["kind"] == "exchange"
    assert hit["record"]["conversation"] == said["one"]
    shown = ralph.well("search", "checkout times out", "--conversations").out
    assert "The connection pool was exhausted" in shown
    assert said["one"][:8] in shown


@pytest.mark.parametrize(
    "words", [("--feature", "a", "--conversations"), ("--knowledge", "--conversations")]
)
def test_scopes_that_exclude_each_other_are_refused(ralph: Line, words: tuple[str, ...]) -> None:
    assert ralph("search", "something", *words).code == 2


def test_conversations_are_listed_and_shown(ralph: Line, said: dict[str, str]) -> None:
    listed = ralph.well("conversations", "list", "--json").json
    assert [(one["title"], one["exchanges"]) for one in listed] == [("Logo", 1), ("Timeouts", 1)]
    assert "Timeouts" in ralph.well("conversations", "list").out

    whole = ralph.well("conversations", "show", said["one"][:8], "--json").json
    assert whole["title"] == "Timeouts"
    assert whole["exchanges"][0]["id"] == said["pool"]
    assert "its size is 20 now" in ralph.well("conversations", "show", said["pool"][:8]).out
    assert "its size is 20 now" in ralph.well("show", said["pool"][:8]).out
    assert ralph.well("show", said["pool"], "--json").json["kind"] == "exchange"
    assert "no record" in ralph("conversations", "show", "ffffffff").complaint


def test_nothing_said_yet_is_told(ralph: Line) -> None:
    assert "No conversation" in ralph.well("conversations", "list").out


def test_a_forgotten_exchange_takes_its_emptied_conversation_with_it(
    ralph: Line, said: dict[str, str]
) -> None:
    gone = ralph.well("forget", said["pool"][:8], "--json").json

    assert gone["forgotten"] == 2
    assert [one["title"] for one in ralph.well("conversations", "list", "--json").json] == ["Logo"]
    assert ralph.well("search", "checkout times out", "--conversations", "--json").json == []


def test_a_forgotten_conversation_takes_its_exchanges_with_it(
    ralph: Line, said: dict[str, str], home: Path
) -> None:
    ralph.well("forget", "--match", "Timeouts", "--yes")

    [journal] = (home / "journal" / "conversations").glob("*.jsonl")
    assert "connection pool" not in journal.read_text(encoding="utf-8")
    assert "logo.svg" in journal.read_text(encoding="utf-8")
    assert ralph.well("journal", "verify", "--json").json["records"] == 2


def test_forgetting_the_project_forgets_what_was_said_in_it(
    ralph: Line, said: dict[str, str]
) -> None:
    ralph.record("auth", {"summary": "moved to Redis"})

    shown = ralph.well("forget", "--project", "--yes").out

    assert "the conversations" in shown
    assert "Rename the logo file" in shown
    assert ralph.well("conversations", "list", "--json").json == []


def test_a_feature_is_forgotten_without_the_conversations(
    ralph: Line, said: dict[str, str]
) -> None:
    ralph.record("auth", {"summary": "moved to Redis"})

    ralph.well("forget", "--feature", "auth", "--yes")

    assert len(ralph.well("conversations", "list", "--json").json) == 2


def test_the_index_of_conversations_is_rebuilt_with_the_rest(
    ralph: Line, said: dict[str, str], home: Path
) -> None:
    ralph.well("search", "logo file", "--conversations")
    for file in (home / "cache" / "conversations").iterdir():
        file.unlink()

    ralph.well("index", "rebuild")

    assert list((home / "cache" / "conversations").glob("*.sqlite3"))
    assert ralph.well("search", "logo file", "--conversations", "--json").json


def test_a_conversation_is_tagged_and_found_by_its_tags(ralph: Line, said: dict[str, str]) -> None:
    assert ralph.well("conversations", "tag", said["one"][:8], "Load", "db").out.endswith(
        "db, load\n"
    )

    [tagged] = ralph.well("conversations", "list", "--tag", "load", "--json").json
    assert (tagged["id"], tagged["tags"]) == (said["one"], ["db", "load"])
    assert "#load" in ralph.well("conversations", "list").out
    words = ("search", "the file or the pool", "--conversations", "--min-score", "0", "--json")
    assert len(ralph.well(*words).json) == 2
    assert [hit["id"] for hit in ralph.well(*words, "--tag", "load").json] == [said["pool"]]

    left = ralph.well("conversations", "tag", said["one"], "load", "--remove", "--json").json
    assert left == {"id": said["one"], "tags": ["db"]}
    assert "No conversation here has the tag load" in (
        ralph.well("conversations", "list", "--tag", "load").out
    )


def test_a_conversation_gets_another_title(ralph: Line, said: dict[str, str]) -> None:
    ralph.well("conversations", "rename", said["one"][:8], "The pool", "was", "empty")

    shown = ralph.well("conversations", "show", said["one"], "--json").json
    assert shown["title"] == "The pool was empty"
    assert "no conversation" in ralph("conversations", "rename", "ffffffff", "x").complaint


def test_an_exchange_is_rated_and_the_rating_taken_back(
    ralph: Line, said: dict[str, str], project: Path
) -> None:
    told = ralph.well("conversations", "rate", said["pool"][:8], "down", "--json").json
    assert told == {"id": said["pool"], "rating": -1}
    assert "Rated up" in ralph.well("conversations", "rate", said["pool"], "up").out
    assert "Rating removed" in ralph.well("conversations", "rate", said["pool"], "none").out
    assert ralph("conversations", "rate", said["pool"], "great").code == 2


def test_a_private_exchange_is_gone_for_good(
    ralph: Line, said: dict[str, str], project: Path, home: Path
) -> None:
    assert "Forgot 1 exchange" in ralph.well("conversations", "private", said["pool"][:8]).out

    assert ralph.well("search", "checkout times out", "--conversations", "--json").json == []
    [journal] = (home / "journal" / "conversations").glob("*.jsonl")
    assert "connection pool" not in journal.read_text(encoding="utf-8")
    with open_ralph(project) as opened:
        assert opened.conversations.stream.reasons()[said["pool"]] == "private"
    assert "no exchange" in ralph("conversations", "private", said["pool"]).complaint


def test_summaries_and_tags_are_shown(ralph: Line, said: dict[str, str], project: Path) -> None:
    with open_ralph(project) as opened:
        talk = opened.conversations
        talk.say(Summary(of="conversation", target=said["one"], text="About a pool."))
        talk.say(Summary(of="exchange", target=said["pool"], text="The pool was too small."))
        talk.tag(said["one"], add=["load"])

    shown = ralph.well("conversations", "show", said["one"]).out
    whole = ralph.well("conversations", "show", said["one"], "--json").json

    assert "summary (extractive) About a pool." in shown
    assert "summary The pool was too small." in shown
    assert "tags load" in shown
    assert (whole["summary"], whole["tags"]) == ("About a pool.", ["load"])
    assert whole["exchanges"][0]["summary"] == "The pool was too small."
    assert ralph.well("conversations", "list", "--json").json[-1]["summary"] == "About a pool."


def test_a_search_is_limited_to_days(ralph: Line, project: Path) -> None:
    with open_ralph(project) as opened:
        talk = opened.conversations.start("Timeouts")
        for day in ("2026-03-01", "2026-04-01"):
            opened.conversations.exchange(
                talk, user=f"Timeout on {day}?", assistant="Yes.", completed=f"{day}T10:00:00Z"
            )
    words = ("search", "timeout", "--conversations", "--json")

    def days(*more: str) -> list[str]:
        return [hit["record"]["completed"][:10] for hit in ralph.well(*words, *more).json]

    assert sorted(days()) == ["2026-03-01", "2026-04-01"]
    assert days("--since", "2026-03-15") == ["2026-04-01"]
    assert days("--until", "2026-03-01") == ["2026-03-01"]
    assert "since" in ralph(*words, "--since", "soon").complaint
    [hit] = ralph.well("search", "timeout", "--since", "2026-03-15", "--json").json
    assert hit["record"]["completed"][:10] == "2026-04-01"


def test_only_conversations_are_forgotten_where_that_is_said(
    ralph: Line, said: dict[str, str]
) -> None:
    ralph.record("auth", {"summary": "the connection pool of the login was exhausted"})

    ralph.well("forget", "--match", "connection pool", "--conversations", "--yes")

    assert ralph.well("search", "connection pool", "--conversations", "--json").json == []
    assert len(ralph.well("recent", "--feature", "auth", "--json").json) == 1
    assert ralph("forget", "--feature", "auth", "--conversations").code == 2


def test_conversations_are_forgotten_by_their_date(ralph: Line, project: Path) -> None:
    with open_ralph(project) as opened:
        for day in ("2026-03-01", "2026-04-01"):
            talk = opened.conversations.start(f"Of {day}")
            opened.conversations.exchange(
                talk, user=f"Timeout on {day}?", assistant="Yes.", completed=f"{day}T10:00:00Z"
            )

    ralph.well("forget", "--before", "2026-03-15", "--conversations", "--yes")

    [left] = ralph.well("conversations", "list", "--json").json
    assert left["title"] == "Of 2026-04-01"


def test_nothing_given_up_is_nothing_to_retry(ralph: Line, said: dict[str, str]) -> None:
    assert ralph.well("conversations", "retry", "--json").json == {"retried": 0}


def test_outside_a_project_what_belongs_to_none_is_listed_searched_and_looked_after(
    ralph: Line, said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    assert ralph.well("conversations", "list", "--json").json == []
    everywhere = ralph.well("conversations", "list", "--everywhere", "--json").json
    assert {one["id"] for one in everywhere} == {said["one"], said["two"]}
    shown = ralph.well("conversations", "show", said["one"], "--everywhere", "--json").json
    assert [one["id"] for one in shown["exchanges"]] == [said["pool"]]

    talk = '{"exchanges": [{"user": "Which tyres fit?", "assistant": "The 28 mm ones."}]}'
    (outside / "talk.json").write_text(talk)
    ralph.well("conversations", "import", "talk.json")
    [mine] = ralph.well("conversations", "list", "--json").json
    ralph.well("conversations", "tag", mine["id"], "bike")
    ralph.well("conversations", "rename", mine["id"], "Tyres")
    [hit] = ralph.well("search", "--conversations", "which tyres", "--tag", "bike", "--json").json
    assert hit["record"]["conversation"] == mine["id"]
    ralph.well("conversations", "rate", hit["id"], "up")
    assert ralph.well("conversations", "retry", "--json").json == {"retried": 0}
    ralph.well("forget", "--conversations", "--match", "tyres", "--yes")

    assert ralph.well("conversations", "list", "--json").json == []
    assert not (outside / ".ralph").exists()
    assert ralph.well("search", "tyres", "--json").json == []


def test_an_empty_title_is_refused(ralph: Line, said: dict[str, str]) -> None:
    refused = ralph("conversations", "rename", said["one"], " ")

    assert refused.code == 1
    assert "the title is empty" in refused.err
    assert "Timeouts" in ralph.well("conversations", "list").out


def test_what_goes_with_a_forgotten_exchange_is_counted_and_named_before(
    ralph: Line, said: dict[str, str], project: Path
) -> None:
    with open_ralph(project) as opened:
        summary = Summary(of="exchange", target=said["pool"], text="A short one.")
        opened.conversations.say(summary)

    told = ralph.well("forget", "--conversations", "--match", "exhausted", "--yes").out

    assert told.startswith("To be forgotten: 3 records of the conversations\n")
    assert f"{said['one'][:8]}  conversation  Timeouts\n" in told
    assert "  summary\n" in told
    assert "\nForgot 3 records, in journal and index.\n" in told
