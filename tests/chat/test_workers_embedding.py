"""The embedding pipeline: whole batches, failing embedders, and what only waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import embedding_server
import pytest
from embedding_server import KEY, EmbeddingServer
from remembering import ToyEmbedder
from workers_ground import Clock, add, by_name, fill, opener, status, until

from ralph.chat.embeddings import clear_embeddings, count_embeddings
from ralph.chat.workers import WorkerName, Workers
from ralph.errors import EmbedderOff, IndexOff
from ralph.memory.ralph import Ralph, open_ralph

if TYPE_CHECKING:
    from ralph.index import Vectors

EMBEDDING: list[WorkerName] = ["embedding"]


class Poisoned(ToyEmbedder):
    """A toy that fails at every batch in which one word stands."""

    poison = "service 2"

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        if any(self.poison in text for text in texts):
            raise EmbedderOff("a number that is none came out")
        return super().embed_passages(texts, budget_s=budget_s)


class Counting(ToyEmbedder):
    """A toy that tells how large its batches were."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        self.sizes.append(len(texts))
        return super().embed_passages(texts, budget_s=budget_s)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server.running() as started:
        started.key = KEY
        yield started


def served(project: Path, server: EmbeddingServer, **more: Any) -> Any:
    """Opens the project with the loopback server for its embedder."""
    settings = {
        "embedder": "openai",
        "openai_base_url": f"{server.url}/v1",
        "openai_api_key": KEY,
        "remember_budget_s": 0.3,
        **more,
    }
    return lambda: open_ralph(project, **settings)


def embedded(ralph: Ralph) -> int:
    """How many passages have a vector."""
    return count_embeddings(ralph.conversations).total()


def in_index(opened: Any) -> int:
    with opened() as ralph:
        return embedded(ralph)


def test_it_brings_the_index_up_to_the_journal(project: Path) -> None:
    fill(project, [2, 3])
    opened = opener(project)
    told = by_name(Workers(opened).run_once())
    assert told["embedding"].completed == 5 + 5 + 2  # exchanges, their summaries, conversations'
    assert in_index(opened) == 12

    again = by_name(Workers(opened).run_once())
    assert (again["embedding"].completed, again["embedding"].total) == (0, 0)


def test_no_batch_is_larger_than_100_texts(project: Path) -> None:
    fill(project, [60, 60])
    counting = Counting()
    opened = opener(project, counting)
    Workers(opened).run_once(EMBEDDING)
    assert max(counting.sizes) <= 100
    assert in_index(opened) == 120


def test_labels_alone_are_no_embeddings(project: Path) -> None:
    [conversation] = fill(project, [1])
    opened = opener(project)
    Workers(opened).run_once(EMBEDDING)
    with opened() as ralph:
        ralph.conversations.tag(conversation, add=["auth"])
    workers = Workers(opened)
    assert status(workers, "embedding").total == 0
    assert workers.run_once(EMBEDDING)[0].completed == 0


@pytest.mark.parametrize("fault", ["half", "dims", "nan", "500", "not_json", "reset", "hang"])
def test_a_batch_that_fails_is_not_stored_and_is_tried_again(
    project: Path, server: EmbeddingServer, clock: Clock, fault: str
) -> None:
    fill(project, [4])
    opened = served(project, server)
    with opened() as ralph:
        ralph.store.embedder.check()
    server.fail(fault)
    workers = Workers(opened, clock=clock)
    [told] = workers.run_once(EMBEDDING)
    assert (told.completed, told.retrying, told.next_retry_s) == (0, 4, 1.0)
    assert told.note
    assert in_index(opened) == 0

    server.fail(None)
    assert workers.run_once(EMBEDDING)[0].retrying == 4  # not before its time
    clock.now += 1
    [told] = workers.run_once(EMBEDDING)
    assert (told.completed, told.retrying, told.note) == (4, 0, "")
    assert in_index(opened) == 4


def test_a_retry_really_asks_a_server_that_is_else_left_alone_for_a_while(
    project: Path, server: EmbeddingServer, clock: Clock
) -> None:
    fill(project, [2])
    opened = served(project, server)
    with opened() as ralph:
        ralph.store.embedder.check()
    server.fail("not_json")
    workers = Workers(opened, clock=clock)
    workers.start("embedding")
    until(lambda: status(workers, "embedding").retrying == 2, "a failure")
    until(lambda: status(workers, "embedding").state == "idle", "rest")
    server.fail(None)
    clock.now += 1
    workers.signal()
    until(lambda: status(workers, "embedding").completed == 2, "the embeddings")
    workers.stop()


def test_what_was_done_before_a_batch_failed_is_kept(project: Path, clock: Clock) -> None:
    fill(project, [60])
    counting = Counting()
    opened = opener(project, counting)

    class Breaking(Counting):
        def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
            if len(self.sizes) == 1:
                raise EmbedderOff("it went away")
            return super().embed_passages(texts, budget_s=budget_s)

    breaking = opener(project, Breaking())
    [told] = Workers(breaking, clock=clock).run_once(EMBEDDING)
    assert 0 < told.completed == in_index(opened) < 60
    assert told.retrying == 60 - told.completed

    clock.now += 1
    assert Workers(opened, clock=clock).run_once(EMBEDDING)[0].completed == 60 - told.completed
    assert sum(counting.sizes) == 2 * (60 - told.completed)  # questions and answers


def test_after_six_retries_it_is_given_up_until_somebody_says_so(
    project: Path, clock: Clock
) -> None:
    fill(project, [2])
    toy = ToyEmbedder()
    toy.off = True
    opened = opener(project, toy)
    workers = Workers(opened, clock=clock)
    for wait_s in (1, 2, 4, 8, 16, 32):
        assert workers.run_once(EMBEDDING)[0].next_retry_s == wait_s
        clock.now += wait_s
    [told] = workers.run_once(EMBEDDING)
    assert (told.retrying, told.given_up, told.failed) == (0, 2, 2)
    assert {one.item for one in workers.given_up()} == {f"{n:016x}" for n in range(2)}
    assert "switched off" in workers.given_up()[0].error

    toy.off = False
    assert workers.run_once(EMBEDDING)[0].completed == 0
    assert workers.retry() == 2
    assert workers.run_once(EMBEDDING)[0].completed == 2
    assert workers.given_up() == []


def test_what_is_new_is_tried_though_the_rest_was_given_up(project: Path, clock: Clock) -> None:
    fill(project, [2])
    toy = ToyEmbedder()
    toy.off = True
    opened = opener(project, toy)
    workers = Workers(opened, clock=clock, max_retries=0)
    assert workers.run_once(EMBEDDING)[0].given_up == 2

    toy.off = False
    with opened() as ralph:
        add(ralph, 1, 1)
    [told] = workers.run_once(EMBEDDING)
    assert (told.completed, told.given_up) == (3, 0)


def test_one_text_that_the_embedder_chokes_on_holds_up_no_other(
    project: Path, clock: Clock
) -> None:
    fill(project, [5])
    poisoned = Poisoned()
    opened = opener(project, poisoned)
    workers = Workers(opened, clock=clock)
    for wait_s in (1, 2, 4, 8, 16, 32):
        assert workers.run_once(EMBEDDING)[0].completed == 0
        clock.now += wait_s
    [told] = workers.run_once(EMBEDDING)
    assert (told.retrying, told.given_up, told.failed) == (0, 1, 1)
    [given_up] = workers.given_up()
    assert given_up.item == f"{2:016x}"
    with opened() as ralph:
        found = ralph.conversations.search("socket timeout service", min_score=0.0)
        assert len(found) == 5

    poisoned.poison = "nothing"
    before = len(poisoned.embedded)
    assert workers.retry() == 1
    workers.run_once(EMBEDDING)
    assert "How do I fix the socket timeout of service 2?" in poisoned.embedded[before:]
    assert workers.given_up() == []


def test_another_model_means_everything_anew(project: Path) -> None:
    fill(project, [3])
    Workers(opener(project, ToyEmbedder("toy:1"))).run_once(EMBEDDING)
    second = opener(project, ToyEmbedder("toy:2", dims=32))
    assert Workers(second).run_once(EMBEDDING)[0].completed == 3
    assert in_index(second) == 3


def test_without_an_embedder_words_are_indexed_and_the_note_says_so(project: Path) -> None:
    fill(project, [2])
    workers = Workers(lambda: open_ralph(project, embedder="none"))
    [told] = workers.run_once(EMBEDDING)
    assert "embedder is none" in told.note
    assert told.retrying == 0
    with open_ralph(project, embedder="none") as ralph:
        assert len(ralph.conversations.search("socket timeout")) == 2


def test_an_index_that_others_are_building_is_waited_for_and_is_no_failure(
    project: Path, home: Path, clock: Clock
) -> None:
    from ralph import disk

    fill(project, [2])
    opened = opener(project, index_lock_timeout_s=0.0)
    folder = home / "cache" / "conversations"
    folder.mkdir(parents=True)
    workers = Workers(opened, clock=clock)
    with disk.lock(folder / "index.lock", timeout_s=0.0):
        [told] = workers.run_once(EMBEDDING)
        assert "another process" in told.note
        assert (told.retrying, told.completed) == (0, 0)
        with opened() as ralph, pytest.raises(IndexOff, match="another process"):
            clear_embeddings(ralph.conversations, ["0" * 16])
    assert workers.run_once(EMBEDDING)[0].completed == 2


def test_an_index_that_was_deleted_comes_back(project: Path, home: Path) -> None:
    fill(project, [3])
    opened = opener(project)
    Workers(opened).run_once(EMBEDDING)
    for file in (home / "cache" / "conversations").glob("index-v*"):
        file.unlink()
    assert Workers(opened).run_once(EMBEDDING)[0].completed == 3


def test_a_damaged_index_is_built_anew(project: Path, home: Path) -> None:
    fill(project, [3])
    opened = opener(project)
    Workers(opened).run_once(EMBEDDING)
    [file] = (home / "cache" / "conversations").glob("index-v*.sqlite3")
    file.write_bytes(b"not a database at all" * 100)
    assert Workers(opened).run_once(EMBEDDING)[0].completed == 3


def test_taking_some_records_out_of_the_index_brings_back_just_those(project: Path) -> None:
    fill(project, [4])
    toy = ToyEmbedder()
    opened = opener(project, toy)
    Workers(opened).run_once(EMBEDDING)
    with opened() as ralph:
        clear_embeddings(ralph.conversations, [f"{1:016x}", f"{3:016x}"])
    before = len(toy.embedded)
    assert Workers(opened).run_once(EMBEDDING)[0].completed == 2
    assert sorted(toy.embedded[before:]) == sorted(
        text for text in toy.embedded[:before] if " 1" in text or " 3" in text
    )
    assert in_index(opened) == 4
    with opened() as ralph:  # what was forgotten before stays so
        ralph.conversations.forget([f"{1:016x}"])
        clear_embeddings(ralph.conversations, [f"{3:016x}"])
    Workers(opened).run_once(EMBEDDING)
    assert in_index(opened) == 3


def test_settings_say_how_large_batches_are_and_how_often_failures_are_tried(
    project: Path,
) -> None:
    fill(project, [6])
    toy = Counting()
    chosen: dict[str, Any] = {"embedding_batch_size": 4, "embedding_max_retries": 2}
    chosen |= {"summarizer_idle_timeout_s": 7.0, "embedding_pipeline_poll_interval_s": 3.0}
    opened = opener(project, toy, **chosen)
    workers = Workers(opened)
    workers.run_once(EMBEDDING)
    assert max(toy.sizes) == 4
    assert workers.retries.max_retries == 2
    assert workers.poll_s == {"conversation": 7.0, "exchange": 7.0, "embedding": 3.0}


def test_work_to_do_is_never_negative(project: Path) -> None:
    workers = Workers(opener(project))
    pipeline = workers._workers["embedding"]
    pipeline.set(left=0)
    pipeline.add(completed=18)
    assert pipeline.own_status.total == pipeline.own_status.completed == 18
