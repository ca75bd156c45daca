"""The workers as threads: started, woken, stopped, switched, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chat_server import ChatServer
from remembering import ToyEmbedder
from workers_ground import GOOD, Clock, add, fill, model, opener, status, until, written

from ralph.chat.embeddings import waiting_ids
from ralph.chat.workers import WORKER_NAMES, Workers
from ralph.config import store

if TYPE_CHECKING:
    from ralph.index import Vectors

# So long that whatever happens was not brought about by a poll.
NEVER_S = 3600.0


def idle(workers: Workers) -> bool:
    return all(one.state == "idle" for one in workers.statuses())


def completed(workers: Workers, name: str) -> int:
    return status(workers, name).completed


def test_a_block_starts_what_is_enabled_and_ends_it(project: Path) -> None:
    fill(project, [2])
    workers = Workers(opener(project, summarizer_exchange_enabled=False), poll_s=NEVER_S)
    assert [one.state for one in workers.statuses()] == ["stopped"] * 3
    with workers:
        until(lambda: completed(workers, "conversation") == 1, "a summary")
        until(lambda: completed(workers, "embedding") == 3, "its embedding, woken by it")
        assert status(workers, "exchange").state == "stopped"
        assert status(workers, "exchange").total == 2
    assert [one.state for one in workers.statuses()] == ["stopped"] * 3


def test_a_signal_wakes_them_at_once(project: Path) -> None:
    fill(project, [1])
    opened = opener(project)
    with Workers(opened, poll_s=NEVER_S) as workers:
        until(lambda: completed(workers, "embedding") == 3, "the first")
        until(lambda: idle(workers), "rest")
        with opened() as ralph:
            add(ralph, 1, 2)
        workers.signal()
        until(lambda: completed(workers, "exchange") == 3, "the new exchanges")
        until(lambda: completed(workers, "embedding") == 8, "their embeddings")


def test_a_poll_finds_what_nobody_has_told_of(project: Path) -> None:
    opened = opener(project)
    with Workers(opened, poll_s=0.02) as workers:
        until(lambda: idle(workers), "rest")
        with opened() as ralph:
            add(ralph, 1, 2)
        until(lambda: completed(workers, "exchange") == 2, "the new exchanges")
        until(lambda: completed(workers, "embedding") == 5, "their embeddings")


def test_one_worker_is_started_and_stopped_alone(project: Path) -> None:
    fill(project, [1])
    workers = Workers(opener(project), poll_s=NEVER_S)
    workers.start("exchange")
    workers.start("exchange")
    until(lambda: completed(workers, "exchange") == 1, "the summary")
    assert [one.state for one in workers.statuses() if one.name != "exchange"] == ["stopped"] * 2
    workers.stop("exchange")
    assert status(workers, "exchange").state == "stopped"
    assert status(workers, "exchange").completed == 1


def test_a_second_process_or_chat_waits_its_turn(project: Path) -> None:
    fill(project, [1])
    opened = opener(project)
    with Workers(opened, poll_s=NEVER_S) as first:
        until(lambda: completed(first, "embedding") == 3, "the first's work")
        with Workers(opened, poll_s=NEVER_S) as second:
            until(
                lambda: all("running elsewhere" in one.note for one in second.statuses()), "notes"
            )
            with opened() as ralph:
                add(ralph, 1, 1)
            second.signal()
            first.stop()
            second.signal()

            def own(name: str) -> int:
                """How much the second itself has done."""
                one = status(second, name)
                return 0 if "running elsewhere" in one.note else one.completed

            def waiting() -> list[str]:
                with opened() as ralph:
                    return waiting_ids(ralph.conversations)

            until(lambda: own("exchange") == own("conversation") == 1, "the second's turn")
            # The first may have embedded the new exchange just before it stopped.
            until(lambda: own("embedding") >= 2 and not waiting(), "its embeddings")
    assert len({one.target for one in written(project)}) == len(written(project)) == 4


def test_somebody_who_ends_does_not_wait_for_a_model_that_hangs(
    project: Path, server: ChatServer
) -> None:
    fill(project, [1])
    server.fail("hang")
    opened = opener(project)
    workers = Workers(opened, summarizer=model(server), grace_s=0.05, poll_s=NEVER_S)
    workers.start("exchange")
    until(lambda: server.requests, "a question")
    assert status(workers, "exchange").state == "running"
    assert status(workers, "exchange").current == f"exchange_id={0:016x}"
    workers.stop()
    assert server.released.is_set() is False
    # It is still there, and whoever starts now waits for its end instead of asking again.
    other = Workers(opened, summarizer=model(server), poll_s=NEVER_S)
    assert "running elsewhere" in status(other, "exchange").note
    server.released.set()
    until(lambda: status(other, "exchange").state == "stopped", "its end")


def test_what_failed_is_tried_again_when_its_time_has_come(
    project: Path, server: ChatServer
) -> None:
    fill(project, [1])
    clock = Clock()
    server.fail("500")
    opened = opener(project)
    workers = Workers(opened, summarizer=model(server), clock=clock, poll_s=NEVER_S)
    workers.start("exchange")
    until(lambda: status(workers, "exchange").retrying == 1, "a failure")
    until(lambda: status(workers, "exchange").state == "idle", "rest")
    server.fail(None)
    server.say(GOOD)
    clock.now += 1
    workers.signal()
    until(lambda: completed(workers, "exchange") == 1, "the summary")
    workers.stop()


def test_a_retry_that_somebody_orders_comes_at_once(project: Path, server: ChatServer) -> None:
    fill(project, [1])
    server.fail("500")
    opened = opener(project)
    workers = Workers(
        opened, summarizer=model(server), clock=Clock(), max_retries=0, poll_s=NEVER_S
    )
    workers.start("exchange")
    until(lambda: status(workers, "exchange").given_up == 1, "the end of patience")
    server.fail(None)
    server.say(GOOD)
    assert workers.retry() == 1
    until(lambda: completed(workers, "exchange") == 1, "the summary")
    workers.stop()


def test_settings_that_somebody_changes_are_followed(project: Path, home: Path) -> None:
    fill(project, [1])
    file = home / "config.json"
    with Workers(opener(project), poll_s=NEVER_S) as workers:
        until(lambda: completed(workers, "embedding") == 3, "the work")
        workers.follow()
        until(lambda: idle(workers), "rest")
        store(file, "summarizer_exchange_enabled", "false")
        workers.follow()
        until(lambda: status(workers, "exchange").state == "stopped", "the stop")
        until(lambda: status(workers, "conversation").state == "idle", "rest of the other")
        store(file, "summarizer_exchange_enabled", "true")
        workers.follow()
        until(lambda: idle(workers), "all three")


def test_a_model_that_is_set_later_is_asked_from_then_on(
    project: Path, home: Path, server: ChatServer
) -> None:
    fill(project, [1])
    opened = opener(project, summary_base_url=server.url)
    with Workers(opened, poll_s=NEVER_S) as workers:
        until(lambda: "extractive" in status(workers, "exchange").note, "the first note")
        until(lambda: idle(workers), "rest")
        server.say(*[GOOD] * 4)
        store(home / "config.json", "summary_model", "ollama:small-model")
        with opened() as ralph:
            add(ralph, 1, 1)
        workers.signal()
        until(lambda: completed(workers, "exchange") == 2, "the second summary")
        assert "ollama:small-model" in status(workers, "exchange").note


class Slow(ToyEmbedder):
    """A toy that works when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        self.begun.set()
        self.go_on.wait()
        return super().embed_passages(texts, budget_s=budget_s)


def test_a_pipeline_that_is_stopped_ends_after_its_batch_and_nothing_has_failed(
    project: Path,
) -> None:
    fill(project, [60])
    slow = Slow()
    opened = opener(project, slow)
    workers = Workers(opened, grace_s=0.05, poll_s=NEVER_S)
    workers.start("embedding")
    slow.begun.wait()
    assert status(workers, "embedding").current == "batch of 100"
    workers.stop()
    slow.go_on.set()
    until(lambda: "ralph-embedding" not in {t.name for t in threading.enumerate()}, "its end")
    told = status(workers, "embedding")
    assert told.state == "stopped"
    assert (told.retrying, told.given_up, told.failed) == (0, 0, 0)
    assert len(slow.embedded) == 100
    assert Workers(opened).run_once(["embedding"])[0].completed == 10


class Broken(ToyEmbedder):
    """A toy with a fault of its own."""

    broken = True

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        if self.broken:
            raise ZeroDivisionError("nobody foresaw this")
        return super().embed_passages(texts, budget_s=budget_s)


def test_an_unforeseen_error_ends_one_worker_and_is_told(project: Path) -> None:
    fill(project, [1])
    broken = Broken()
    with Workers(opener(project, broken), poll_s=NEVER_S) as workers:
        until(lambda: "nobody foresaw this" in status(workers, "embedding").note, "the note")
        assert status(workers, "embedding").state == "stopped"
        until(lambda: completed(workers, "exchange") == 1, "the others' work")
        broken.broken = False
        workers.start("embedding")
        until(lambda: completed(workers, "embedding") == 3, "the embeddings")


def test_every_worker_has_a_setting_of_its_own(project: Path) -> None:
    off: dict[str, Any] = {
        "summarizer_conversation_enabled": False,
        "summarizer_exchange_enabled": False,
        "embedding_pipeline_enabled": False,
    }
    fill(project, [1])
    workers = Workers(opener(project, **off), poll_s=NEVER_S)
    assert workers.run_once() == []
    assert workers.run_once(WORKER_NAMES)[0].completed == 1
