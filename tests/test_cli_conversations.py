"""What was said in a project, at the command line: searched, listed, shown, forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanding import Line

from ralph import open_ralph


@pytest.fixture
def ralph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path
) -> Line:
    monkeypatch.chdir(project)
    return Line(capsys, monkeypatch)


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


def test_conversations_are_searched_on_demand_only(ralph: Line, said: dict[str, str]) -> None:
    assert ralph.well("search", "checkout times out", "--json").json == []

    [hit] = ralph.well("search", "checkout times out", "--conversations", "--json").json

    assert hit["id"] == said["pool"]
    assert hit["kind"] == "exchange"
    assert hit["record"]["conversation"] == said["one"]
    shown = ralph.well("search", "checkout times out", "--conversations").out
    assert "The connection pool was exhausted" in shown
    assert said["one"][:8] in shown


@pytest.mark.parametrize("words", [("--feature", "a", "--conversations"), ("--everywhere",)])
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
    assert "no exchange" in ralph("conversations", "show", "ffffffff").complaint


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
