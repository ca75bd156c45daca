"""What the commands about workers and retrieval answer, within a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer
from remembering import ToyEmbedder
from workers_ground import GOOD, Clock, fill, model, opener, status, until, written

from ralph.chat.commands import WorkerCommands
from ralph.chat.workers import WORKER_NAMES, WorkerName, Workers, WorkerStatus
from ralph.errors import BadInput, EmbedderOff, MemoryOff
from ralph.memory.ralph import Ralph, open_ralph

NEVER_S = 3600.0


@pytest.fixture
def opened(project: Path) -> Callable[[], Ralph]:
    return opener(project)


@pytest.fixture
def workers(opened: Callable[[], Ralph]) -> Iterator[Workers]:
    made = Workers(opened, poll_s=NEVER_S)
    yield made
    made.stop()


@pytest.fixture
def chat(workers: Workers, opened: Callable[[], Ralph]) -> WorkerCommands:
    return WorkerCommands(workers, opened)


def stored(home: Path) -> dict[str, object]:
    plain: dict[str, object] = json.loads((home / "config.json").read_bytes())
    return plain


def never(question: str) -> str:
    raise AssertionError(f"nobody should be asked: {question}")


def states(workers: Workers) -> list[str]:
    return [one.state for one in workers.statuses()]


class Showing(Workers):
    """Workers that stand as somebody says."""

    told: list[WorkerStatus]

    def statuses(self, names: Iterable[WorkerName] = WORKER_NAMES) -> list[WorkerStatus]:
        return [one for one in self.told if one.name in names]


@pytest.fixture
def showing(opened: Callable[[], Ralph]) -> Showing:
    made = Showing(opened)
    made.told = [
        WorkerStatus("conversation", "running", 10, 3, 0, "conversation_id=125", 0.15),
        WorkerStatus("exchange", "running", 50, 15, 0, "exchange_id=892", 0.42),
        WorkerStatus("embedding", "running", 150, 127, 0, "batch of 23", 0.19, 3, 4.2),
    ]
    return made


# -- summarizer


def test_summarizer_tells_of_both_at_work(showing: Showing, opened: Callable[[], Ralph]) -> None:
    assert WorkerCommands(showing, opened).summarizer([]) == [
        "Conversation Summarizer: RUNNING",
        "  Progress: 3/10 conversations",
        "  Completed: 3, Failed: 0",
        "  Current: conversation_id=125",
        "  Spend: $0.15",
        "Exchange Summarizer: RUNNING",
        "  Progress: 15/50 exchanges",
        "  Completed: 15, Failed: 0",
        "  Current: exchange_id=892",
        "  Spend: $0.42",
        "Embedding Pipeline: RUNNING (see /embeddings for details)",
    ]


def test_summarizer_tells_of_one_that_rests(showing: Showing, opened: Callable[[], Ralph]) -> None:
    showing.told[0] = WorkerStatus("conversation", "idle", 1247, 1247, spend_usd=2.31)
    assert WorkerCommands(showing, opened).summarizer(["conversation"]) == [
        "Conversation Summarizer: IDLE",
        "  Completed: 1,247, Failed: 0",
        "  Spend: $2.31",
        "  All conversations are summarized. Worker is idle.",
    ]


def test_summarizer_tells_of_what_failed(showing: Showing, opened: Callable[[], Ralph]) -> None:
    showing.told[1] = WorkerStatus(
        "exchange", "idle", 9, 5, 2, retrying=2, next_retry_s=4.0, given_up=2, note="it is off"
    )
    assert WorkerCommands(showing, opened).summarizer(["exchange"]) == [
        "Exchange Summarizer: IDLE",
        "  Completed: 5, Failed: 2",
        "  To do: 4",
        "  Spend: $0.00",
        "  Retrying: 2 items, next in 4 seconds",
        "  Given up: 2 items. List them: `ralph workers status`. "
        "Try again: `ralph conversations retry`",
        "  Note: it is off",
    ]


def test_summarizer_on_starts_all_three_and_stays_so(
    project: Path, home: Path, workers: Workers, chat: WorkerCommands
) -> None:
    fill(project, [2])
    assert chat.summarizer(["on"]) == [
        "Conversation Summarizer: ON",
        "Exchange Summarizer: ON",
        "Embedding Pipeline: ON",
    ]
    until(lambda: status(workers, "embedding").completed == 5, "the work")
    until(lambda: states(workers) == ["idle"] * 3, "rest")
    told = chat.summarizer(["exchange"])
    assert "  Note: summaries are extractive: no LLM is set (summary_model)" in told
    assert told[:2] == ["Exchange Summarizer: IDLE", "  Completed: 2, Failed: 0"]

    assert chat.summarizer(["off"]) == ["Conversation Summarizer: OFF", "Exchange Summarizer: OFF"]
    assert states(workers) == ["stopped", "stopped", "idle"]
    assert stored(home) == {
        "summarizer_conversation_enabled": False,
        "summarizer_exchange_enabled": False,
        "embedding_pipeline_enabled": True,
    }


@pytest.mark.parametrize("name", ["conversation", "exchange"])
def test_one_summarizer_is_switched_alone(
    project: Path, home: Path, workers: Workers, chat: WorkerCommands, name: str
) -> None:
    fill(project, [1])
    chat.summarizer([name, "on"])
    until(lambda: status(workers, name).completed == 1, "the summary")
    assert states(workers).count("stopped") == 2
    assert chat.summarizer([name, "off"]) == [f"{name.title()} Summarizer: OFF"]
    assert states(workers) == ["stopped"] * 3
    assert stored(home) == {f"summarizer_{name}_enabled": False}
    assert f"  Note: off. To switch it on: /summarizer {name} on" in chat.summarizer([name])
    # The next chat leaves it off.
    with workers:
        assert status(workers, name).state == "stopped"


@pytest.mark.parametrize(
    "words", [["start"], ["conversation", "maybe"], ["on", "off"], ["exchange", "on", "now"]]
)
def test_other_words_after_summarizer_are_refused(chat: WorkerCommands, words: list[str]) -> None:
    with pytest.raises(BadInput, match=r"/summarizer \[conversation\|exchange\] \[on\|off\]"):
        chat.summarizer(words)


# -- embeddings


def test_embeddings_tells_of_a_batch_and_what_waits(
    showing: Showing, opened: Callable[[], Ralph]
) -> None:
    assert WorkerCommands(showing, opened).embeddings([], never) == [
        "Embedding Pipeline: RUNNING",
        "  Progress: 127/150 embeddings",
        "  Completed: 127, Failed: 0",
        "  Current: batch of 23",
        "  Spend: $0.19 (estimated)",
        "  Retrying: 3 items, next in 4 seconds",
        "  Total embeddings: 0",
        "    - Conversation summaries: 0",
        "    - Exchange summaries: 0",
    ]


def test_embeddings_tells_what_there_is_and_what_waits_while_it_is_off(
    project: Path, workers: Workers, chat: WorkerCommands, opened: Callable[[], Ralph]
) -> None:
    fill(project, [2, 1])
    workers.run_once()
    chat.embeddings(["off"], never)
    fill(project, [2, 2])
    assert chat.embeddings([], never) == [
        "Embedding Pipeline: STOPPED",
        "  To do: 1",
        "  Note: off. To switch it on: /embeddings on",
        "  Warning: 1 item is awaiting embeddings (pipeline is OFF)",
        "  Total embeddings: 8",
        "    - Conversation summaries: 2",
        "    - Exchange summaries: 3",
        "    - Exchanges: 3",
    ]
    assert chat.embeddings(["on"], never) == ["Embedding Pipeline: ON"]
    until(lambda: status(workers, "embedding").total == 9, "the last one")
    until(lambda: states(workers)[2] == "idle", "rest")
    assert "  Total embeddings: 9" in chat.embeddings([], never)


REBUILT = {
    "": (8, ["2 conversation summaries", "3 exchange summaries", "3 exchanges"], "ALL"),
    "conversations": (2, ["2 conversation summaries"], "all conversation"),
    "exchanges": (6, ["3 exchange summaries", "3 exchanges"], "all exchange"),
}


@pytest.mark.parametrize("part", REBUILT)
@pytest.mark.parametrize("typed", ["no", "", "y", "yes please", "nein\n"])
def test_rebuild_without_a_typed_yes_does_nothing(
    project: Path, workers: Workers, chat: WorkerCommands, toy: ToyEmbedder, part: str, typed: str
) -> None:
    fill(project, [2, 1])
    workers.run_once()
    before = chat.embeddings([], never)
    asked: list[str] = []

    def confirm(question: str) -> str:
        asked.append(question)
        return typed

    words = ["rebuild", part] if part else ["rebuild"]
    assert chat.embeddings(words, confirm) == ["The answer was not yes: nothing was deleted."]
    count, made, what = REBUILT[part]
    assert asked == [
        "\n".join(
            [
                f"WARNING: This will delete and recreate {what} embeddings.",
                "This operation will:",
                f"  - Delete {count} existing embeddings",
                *(f"  - Re-embed {one}" for one in made),
                "  - Cost nothing (the embedder static is free)",
                "",
                "Type 'yes' to confirm: ",
            ]
        )
    ]
    assert chat.embeddings([], never) == before


@pytest.mark.parametrize("part", REBUILT)
@pytest.mark.parametrize("typed", ["yes", " YES\n"])
def test_after_a_typed_yes_the_pipeline_makes_them_anew(
    project: Path, home: Path, part: str, typed: str, opened: Callable[[], Ralph]
) -> None:
    fill(project, [2, 1])
    toy = ToyEmbedder()
    opened = opener(project, toy)
    workers = Workers(opened)
    workers.run_once()
    total = len(toy.embedded)
    chat = WorkerCommands(workers, opened)
    workers.start("embedding")
    until(lambda: status(workers, "embedding").state == "idle", "rest")
    count = REBUILT[part][0]
    words = ["rebuild", part] if part else ["rebuild"]
    assert chat.embeddings(words, lambda question: typed) == [
        "",
        "Embeddings cleared. Pipeline will recreate them.",
        f"Processing: 0/{count} completed...",
    ]
    until(lambda: status(workers, "embedding").completed == 8 + count, "the embeddings")
    workers.stop()
    before, anew = set(toy.embedded[:total]), set(toy.embedded[total:])
    of_conversations = {one.text for one in written(project) if one.of == "conversation"}
    wanted = {"": before, "conversations": of_conversations, "exchanges": before - of_conversations}
    assert anew == wanted[part]
    assert "  Total embeddings: 8" in chat.embeddings([], never)


def test_a_rebuild_while_the_pipeline_is_off_says_who_makes_them_anew(
    project: Path, workers: Workers, chat: WorkerCommands
) -> None:
    fill(project, [1])
    workers.run_once()
    lines = chat.embeddings(["rebuild"], lambda question: "yes")
    assert "The pipeline is off" in lines[1]
    assert "  Total embeddings: 0" in chat.embeddings([], never)


def test_what_cannot_be_made_anew_is_not_deleted(
    project: Path, home: Path, opened: Callable[[], Ralph]
) -> None:
    fill(project, [1])
    toy = ToyEmbedder()
    opened = opener(project, toy)
    workers = Workers(opened)
    workers.run_once()
    toy.off = True
    chat = WorkerCommands(workers, opened)
    with pytest.raises(EmbedderOff):
        chat.embeddings(["rebuild"], never)
    assert "  Total embeddings: 3" in chat.embeddings([], never)

    none = WorkerCommands(workers, lambda: open_ralph(project, embedder="none"))
    with pytest.raises(MemoryOff, match="embedder is none"):
        none.embeddings(["rebuild"], never)


@pytest.mark.parametrize(
    ("settings", "cost"),
    [
        ({}, "approximately $0.00 (OpenAI API)"),
        ({"openai_model": "new-model"}, "an unknown amount"),
        ({"openai_base_url": "http://127.0.0.1:9/v1"}, "approximately $0.00 (OpenAI API)"),
    ],
)
def test_the_cost_of_a_rebuild_is_told_as_far_as_it_is_known(
    project: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], cost: str
) -> None:
    fill(project, [1])
    told: list[str] = []

    def confirm(question: str) -> str:
        told.append(question)
        return ""

    monkeypatch.setenv("RALPH_EMBEDDER", "openai")
    for key, value in settings.items():
        monkeypatch.setenv(f"RALPH_{key.upper()}", value)
    opened = opener(project)
    WorkerCommands(Workers(opened), opened).embeddings(["rebuild"], confirm)
    assert f"  - Cost {cost}" in told[0]


@pytest.mark.parametrize("words", [["start"], ["rebuild", "all"], ["on", "off"], ["rebuild", "a"]])
def test_other_words_after_embeddings_are_refused(chat: WorkerCommands, words: list[str]) -> None:
    with pytest.raises(BadInput, match=r"/embeddings \[on\|off\|rebuild"):
        chat.embeddings(words, never)


def test_the_spend_of_a_session_is_shown(
    project: Path, server: ChatServer, opened: Callable[[], Ralph]
) -> None:
    fill(project, [2])
    server.say(*[GOOD] * 2)
    workers = Workers(opened, summarizer=model(server), clock=Clock())
    workers.start("exchange")
    until(lambda: status(workers, "exchange").completed == 2, "the summaries")
    until(lambda: status(workers, "exchange").state == "idle", "rest")
    assert "  Spend: $0.30" in WorkerCommands(workers, opened).summarizer([])
    workers.stop()
