"""The chat and the workers behind it: woken, steered, and kept off the conversation under way."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer
from chatting import HEADING, QUESTION, Talk, held_before, sent, talking
from commanding import process

from ralph.chat import open_memory
from ralph.chat.commands import WorkerCommands
from ralph.chat.workers import Workers
from ralph.errors import BadInput, BadSetting
from ralph.memory.ralph import open_ralph


class Watched(WorkerCommands):
    """The commands of the chat, and how often they were told of something new."""

    signals = 0

    def signal(self) -> None:
        self.signals += 1
        super().signal()


@contextlib.contextmanager
def steered(project: Path, server: ChatServer) -> Iterator[tuple[Talk, Workers, Watched]]:
    """A chat whose workers do one pass when they are told to, and nothing by themselves."""
    with talking(project, server) as talk:
        opened = lambda: open_memory(project, waits=True)  # noqa: E731
        workers = Workers(opened, current=lambda: talk.chat.session.id)
        commands = Watched(workers, opened)
        talk.chat.workers = commands
        try:
            yield talk, workers, commands
        finally:
            workers.stop()


def test_every_kept_exchange_wakes_the_workers(project: Path, server: ChatServer) -> None:
    with steered(project, server) as (talk, _, commands):
        talk.ask("A question about colours")
        assert commands.signals == 1
        talk.ask("Something private", private=True)
        talk.say("/pause")
        talk.ask("Said in a pause")
        assert commands.signals == 1


def test_the_conversation_under_way_is_summarised_when_it_is_over(
    project: Path, server: ChatServer
) -> None:
    server.say("The connection pool was exhausted. Raising it to 50 solved it.")
    with steered(project, server) as (talk, workers, _):
        talk.ask(QUESTION)
        first = talk.chat.session.id
        workers.run_once()
        assert talk.chat.memory.conversations.summary(first) is None
    with steered(project, server) as (talk, workers, _):
        workers.run_once()
        talk.ask(QUESTION)

    shown = sent(server.requests[-1])
    assert f"ID: {first}" in shown
    assert "\nSummary: " in shown
    assert "(none yet)" not in shown


def test_retrieval_is_switched_off_and_on_and_stays_so(
    project: Path, server: ChatServer, home: Path
) -> None:
    held_before(project)
    with steered(project, server) as (talk, _, _):
        assert talk.say("/rag off")[0].startswith("RAG Status: DISABLED")
        talk.ask(QUESTION)
    with steered(project, server) as (talk, _, _):
        talk.ask(QUESTION)
        assert talk.say("/rag on") == ["RAG Status: ENABLED"]
        talk.ask(QUESTION)
        assert talk.say("/rag")[-1].startswith("Last retrieval: ")

    assert [HEADING in sent(one) for one in server.requests] == [False, False, True]
    assert json.loads((home / "config.json").read_text())["rag_enabled"] is True


def test_retrieval_that_a_flag_switched_off_is_told_and_can_be_switched_on(
    project: Path, server: ChatServer
) -> None:
    held_before(project)
    with steered(project, server) as (talk, _, _):
        talk.chat.rag = False
        assert talk.say("/rag")[-1] == "In this chat nothing is recalled. To change that: /rag on"
        talk.ask(QUESTION)
        talk.say("/rag on")
        talk.ask(QUESTION)

    assert [HEADING in sent(one) for one in server.requests] == [False, True]


def test_a_changed_setting_counts_for_the_next_question(project: Path, server: ChatServer) -> None:
    held_before(project)
    held_before(project, user="The gateway does time out after each deploy, again, but why?")
    with steered(project, server) as (talk, _, _):
        assert len(talk.ask(QUESTION).related) == 2
        assert talk.say("/rag set rag_conversation_limit 1")[0] == (
            "Updated: rag_conversation_limit = 1"
        )
        assert len(talk.ask(QUESTION).related) == 1
        with pytest.raises(BadSetting):
            talk.say("/rag set rag_min_similarity 2")
        with pytest.raises(BadInput):
            talk.say("/rag please")


def test_rebuilding_asks_for_a_typed_yes(project: Path, server: ChatServer) -> None:
    held_before(project)
    with steered(project, server) as (talk, workers, _):
        workers.run_once()
        talk.screen.typed = ["no"]
        assert talk.say("/embeddings rebuild") == ["The answer was not yes: nothing was deleted."]
        [question] = talk.screen.asked
        assert "Type 'yes' to confirm" in question
        talk.screen.typed = ["yes"]
        assert "Embeddings cleared" in "\n".join(talk.say("/embeddings rebuild"))
        # Nothing is lost: the journal has it all.
        assert len(talk.ask(QUESTION).related) == 1


def test_summarisers_are_switched_off_for_the_next_chat_too(
    project: Path, server: ChatServer, home: Path
) -> None:
    with steered(project, server) as (talk, _, _):
        assert talk.say("/summarizer conversation off") == ["Conversation Summarizer: OFF"]
        assert "Conversation Summarizer: STOPPED" in talk.say("/summarizer")
    assert json.loads((home / "config.json").read_text()) == {
        "summarizer_conversation_enabled": False
    }


def test_the_command_has_workers_behind_it_that_end_with_it(project: Path, home: Path) -> None:
    lines = f"{QUESTION}\n/summarizer exchange\n/embeddings rebuild\nyes\n/quit\nnever read\n"
    ran = process(["chat", "--echo"], cwd=project, stdin=lines.encode())

    assert ran.returncode == 0, ran.stderr
    assert b"Exchange Summarizer: " in ran.stdout
    assert b"Exchange Summarizer: STOPPED" not in ran.stdout
    assert b"Type 'yes' to confirm" in ran.stdout
    assert b"Embeddings cleared" in ran.stdout
    assert b"never read" not in ran.stdout
    with open_ralph(project) as ralph:
        [one] = ralph.conversations.list()
        assert one.exchanges == 1


def test_a_chat_is_held_without_workers_where_they_cannot_be_had(project: Path) -> None:
    ran = process(
        ["chat", "--echo"],
        cwd=project,
        stdin=b"A question about colours\n",
        environ={"RALPH_SUMMARY_MODEL": "nonsense"},
    )

    assert ran.returncode == 0, ran.stderr
    assert b"You said: A question about colours" in ran.stdout
    [line] = ran.stderr.splitlines()
    assert b"nothing is summarized or indexed in the background" in line
