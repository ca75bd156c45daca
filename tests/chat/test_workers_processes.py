"""The workers as processes: killed in the middle, two at once, ended by a signal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chat_server
import embedding_server
import pytest
from chat_server import ChatServer
from embedding_server import EmbeddingServer
from workers_ground import GOOD, fill, records, until, written

from ralph.chat.embeddings import count_embeddings
from ralph.memory.ralph import open_ralph

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with chat_server.running() as started:
        yield started


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    with embedding_server.running() as started:
        yield started


@pytest.fixture
def start(project: Path) -> Iterator[Start]:
    """Starts `ralph workers run`; whatever still runs at the end is killed, by its own id."""
    with contextlib.ExitStack() as stack:

        def started(*words: str, **environ: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-m", "ralph", "workers", "run", *words],
                cwd=project,
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            stack.callback(ended, process)
            return process

        yield started


def ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


def by_llm(server: ChatServer) -> dict[str, str]:
    return {"RALPH_SUMMARY_MODEL": "ollama:small-model", "RALPH_SUMMARY_BASE_URL": server.url}


def prompts(server: ChatServer) -> list[str]:
    return [one.body["messages"][-1]["content"] for one in server.requests]


def embedded(project: Path, **settings: Any) -> int:
    with open_ralph(project, **settings) as ralph:
        return count_embeddings(ralph.conversations).total()


def test_killed_while_the_model_writes_nothing_is_lost_twice_or_stuck(
    project: Path, chat: ChatServer, start: Start
) -> None:
    fill(project, [3, 2])
    exchanges = [one.id for one in records(project) if one.kind == "exchange"]
    chat.say(*[GOOD] * 3)
    environ = by_llm(chat)
    first = start(**environ)
    until(lambda: len(written(project)) >= 3, "the first summaries")
    chat.fail("hang")
    asked = len(chat.requests)
    until(lambda: len(chat.requests) > asked, "a question without an answer")
    first.kill()
    first.wait()

    chat.fail(None)
    chat.say(*[GOOD] * 20)
    again = start("--once", "--json", **environ)
    told, complaint = again.communicate(timeout=60)
    assert again.returncode == 0, complaint
    assert [one["total"] - one["completed"] for one in json.loads(told)["workers"]] == [0, 0, 0]
    ids = [one.id for one in records(project) if one.kind == "summary"]
    assert len(ids) == len(set(ids)) == 7
    assert {one.target for one in written(project) if one.of == "exchange"} == set(exchanges)
    assert [one.id for one in records(project) if one.kind == "exchange"] == exchanges
    assert embedded(project) == 5 + 7


def test_killed_in_the_middle_of_a_batch_the_next_one_embeds_it_whole(
    project: Path, embeddings: EmbeddingServer, start: Start
) -> None:
    fill(project, [4])
    settings: dict[str, Any] = {"embedder": "ollama", "ollama_url": embeddings.url}
    environ = {f"RALPH_{key.upper()}": value for key, value in settings.items()}
    with open_ralph(project, **settings) as ralph:
        assert ralph.store.embedder is not None
        ralph.store.embedder.check()
    embeddings.fail("slow")
    asked = len(embeddings.asked("/api/embed"))
    first = start(**environ)
    until(lambda: len(embeddings.asked("/api/embed")) > asked, "a batch that is being made")
    first.kill()
    first.wait()
    assert embedded(project, **settings) == 0

    embeddings.fail(None)
    embeddings.go_on.set()
    again = start("--once", **environ)
    _, complaint = again.communicate(timeout=60)
    assert again.returncode == 0, complaint
    assert embedded(project, **settings) == 4 + 4 + 1


@pytest.mark.slow  # the second looks every 30 s
def test_of_two_at_once_one_works_and_the_other_takes_over(
    project: Path, chat: ChatServer, start: Start
) -> None:
    fill(project, [4])
    chat.say(*[GOOD] * 6)
    both = [start(**by_llm(chat)), start(**by_llm(chat))]
    until(lambda: len(written(project)) == 5, "all summaries")
    # Beside the summaries, each conversation is read once for what it teaches.
    told_to = [one for one in prompts(chat) if "outline of a coding session" not in one]
    assert len(told_to) == len(set(told_to)) == 5

    holder = working(project)
    [first] = [one for one in both if one.pid == holder]
    [second] = [one for one in both if one.pid != holder]
    assert second.stdout is not None
    told = iter(second.stdout.readline, b"")
    assert any(b"running elsewhere (process %d)" % first.pid in line for line in told)
    first.kill()
    first.wait()
    until(lambda: working(project) == second.pid, "the other's turn")
    chat.say(GOOD, GOOD, GOOD)
    with open_ralph(project) as ralph:
        conversation = ralph.conversations.start(title="Another")
        ralph.conversations.exchange(conversation, user="What is new?", assistant="A worker.")
    until(lambda: len(written(project)) == 7, "summaries by the other")
    second.send_signal(signal.SIGINT)
    _, complaint = second.communicate(timeout=60)
    assert (second.returncode, complaint) == (0, b"")


def working(project: Path) -> int | None:
    """The process that works as the exchange summariser."""
    from ralph.chat.workers import Workers

    [told] = [
        one for one in Workers(lambda: open_ralph(project)).statuses() if one.name == "exchange"
    ]
    if "(process " not in told.note:
        return None
    return int(told.note.partition("(process ")[2].partition(")")[0])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process in another way")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_though_the_model_hangs(
    project: Path, chat: ChatServer, start: Start, number: signal.Signals
) -> None:
    fill(project, [1])
    chat.fail("hang")
    process = start(**by_llm(chat))
    until(lambda: chat.requests, "a question")
    process.send_signal(number)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (0, b"")
    assert [one.kind for one in records(project) if one.kind == "summary"] == []
