"""Commands within the chat: past conversations, this conversation, ratings, mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chatting import QUESTION, SOLUTION, Talk, held_before, talking

from ralph.chat.model import EchoModel
from ralph.doors.cli.commands.slash import COMMANDS
from ralph.errors import BadInput, NotFound


@pytest.fixture
def before(project: Path) -> str:
    return held_before(project)


@pytest.fixture
def talk(project: Path, before: str) -> Iterator[Talk]:
    with talking(project, model=EchoModel()) as held:
        yield held


def test_help_lists_every_command(talk: Talk) -> None:
    lines = talk.say("/help")
    assert [line.split()[0] for line in lines] == [f"/{name}" for name in COMMANDS]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("/serach x", "/search"), ("/tags x", "/tag"), ("/SUMARIZER", "/summarizer")],
)
def test_a_command_that_there_is_not_gets_its_likeliest_neighbour(
    talk: Talk, typed: str, meant: str
) -> None:
    with pytest.raises(BadInput, match=rf"Did you mean {meant}\?"):
        talk.say(typed)
    with pytest.raises(BadInput, match="/help lists them"):
        talk.say("/qqqqqqqq")


def test_a_search_finds_past_exchanges_but_not_this_conversation(talk: Talk, before: str) -> None:
    talk.ask(QUESTION)
    lines = talk.say("/search gateway timeout after the deploy")
    assert re.match(rf"{before[:8]}  [01]\.\d\d relevant", lines[0])
    assert lines[1].endswith(f"conversation {talk.screen.ended[0].related[0][:8]}")
    assert SOLUTION in lines[2]
    assert sum(line.startswith(" ") for line in lines) == len(lines) - 1
    assert talk.say("/search kubernetes horizontal autoscaling") == [
        "No results above 0.40. Try different words."
    ]
    with pytest.raises(BadInput, match="too short"):
        talk.say("/search")


def test_conversations_are_listed_and_shown(talk: Talk, before: str) -> None:
    talk.ask("A question about colours")
    _, mine, other = talk.say("/conversations")
    assert mine.endswith("A question about colours (this one)")
    assert other.endswith("Debug timeouts")

    shown = talk.say(f"/show {other.split()[0]}")
    assert shown[0] == "Debug timeouts"
    assert f"  {SOLUTION}" in shown
    assert f"  {SOLUTION}" in talk.say(f"/show {before[:8]}")
    with pytest.raises(NotFound):
        talk.say("/show ffffffff")


def test_a_conversation_gets_a_title_and_tags(talk: Talk) -> None:
    assert talk.say("/title") == ["(no title yet)"]
    with pytest.raises(BadInput, match="nothing of this conversation is saved yet"):
        talk.say("/tag auth")
    with pytest.raises(BadInput, match="needs a word"):
        talk.say("/tag")
    talk.say("/title Before the first word")
    talk.ask("A question about colours")
    held = talk.chat.memory.conversations.conversation(talk.chat.session.id)
    assert held.title == "Before the first word"

    talk.say("/title Colours")
    assert talk.say("/tag Auth design") == ["Tags: auth, design"]
    assert talk.say("/tag -auth") == ["Tags: design"]
    [one] = talk.chat.memory.conversations.list(tags=["design"])
    assert one.conversation.title == "Colours"


def test_the_last_answer_or_a_named_exchange_is_rated(talk: Talk, before: str) -> None:
    with pytest.raises(BadInput, match="Ask something first"):
        talk.say("/up")
    kept = talk.ask("A question about colours").exchange
    assert kept is not None
    assert talk.say("/up") == [f"{kept[:8]} is rated up."]
    assert talk.say(f"/down {before[:8]}") == [f"{before[:8]} is rated down."]
    ratings = talk.chat.memory.conversations.stream.history.ratings
    assert ratings == {kept: 1, before: -1}
    with pytest.raises(NotFound):
        talk.say("/down ffffffff")


def test_without_workers_their_commands_say_so(talk: Talk) -> None:
    for command in ("/rag", "/summarizer on", "/embeddings rebuild"):
        with pytest.raises(BadInput, match="no workers run"):
            talk.say(command)


def test_private_needs_something_to_ask(talk: Talk) -> None:
    with pytest.raises(BadInput, match="/private TEXT"):
        talk.say("/private")
    assert talk.screen.ended == []


def test_quit_ends_the_chat(talk: Talk) -> None:
    assert not talk.chat.over
    talk.say("/quit")
    assert talk.chat.over
