"""The index follows its journal: new, changed and deleted rows, many readers, other manifests."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from indexing import embedded
from journaling import child, hear, run_child, tell
from remembering import (
    TOPICS,
    ToyEmbedder,
    by_row,
    made,
    open_toy,
    shown,
    state_of,
    summaries,
    topical,
)

from ralph import disk, open_ralph
from ralph.index import sync as sync_module
from ralph.index.sync import live_of
from ralph.memory import feature as feature_module
from ralph.memory.ralph import Ralph
from ralph.memory.store import Answer

QUESTION = "login form validation"


def journal(root: Path, feature: str = "auth") -> Path:
    return root / ".ralph" / "db" / "memory" / f"{feature}.jsonl"


def ask(memory: Ralph, query: str = QUESTION, **more: Any) -> Answer:
    return memory.feature("auth").search(query, **more)


# -- an open reader sees what others do

READER = """
import sys
from remembering import open_toy
with open_toy(sys.argv[1]) as memory:
    for line in sys.stdin:
        answer = memory.feature("auth").search(line.strip(), min_score=0.0)
        print("|".join(hit.record.summary for hit in answer), *answer.notes, flush=True)
"""


def test_a_new_row_is_seen_by_a_reader_in_another_process(memory: Ralph, project: Path) -> None:
    auth = memory.feature("auth")
    auth.remember(made("login form validation rejects empty names", session_id="1"))
    with child(READER, project) as reader:
        tell(reader, QUESTION)
        assert hear(reader) == "login form validation rejects empty names"
        auth.remember(made("login form validation accepts long names", session_id="2"))
        tell(reader, QUESTION)
        assert sorted(hear(reader).split("|")) == [
            "login form validation accepts long names",
            "login form validation rejects empty names",
        ]


def test_a_forgotten_row_is_gone_for_a_reader_in_another_process(
    memory: Ralph, project: Path
) -> None:
    auth = memory.feature("auth")
    kept = auth.remember(made("login form validation kept", session_id="1"))
    gone = auth.remember(made("login form validation gone", session_id="2"))
    with child(READER, project) as reader:
        tell(reader, QUESTION)
        assert len(hear(reader).split("|")) == 2
        assert auth.forget([gone.id]) == [gone.id]
        tell(reader, QUESTION)
        assert hear(reader) == kept.record.summary


def test_a_changed_row_is_seen_by_a_reader_in_another_process(memory: Ralph, project: Path) -> None:
    auth = memory.feature("auth")
    auth.remember(made("login form validation before", session_id="1"))
    with child(READER, project) as reader:
        tell(reader, QUESTION)
        assert hear(reader) == "login form validation before"
        line = json.loads(journal(project).read_text())
        line["body"]["summary"] = "login form validation after"
        journal(project).write_text(json.dumps(line) + "\n")
        tell(reader, QUESTION)
        assert hear(reader) == "login form validation after"


def test_the_same_id_with_other_content_is_found_with_both(memory: Ralph, project: Path) -> None:
    auth = memory.feature("auth")
    first = auth.remember(made("login form validation one", session_id="1"))
    line = json.loads(journal(project).read_text())
    line["body"]["summary"] = "login form validation two"
    with journal(project).open("a") as file:
        file.write(json.dumps(line) + "\n")
    found = ask(memory)
    assert sorted(summaries(found)) == ["login form validation one", "login form validation two"]
    assert {hit.id for hit in found} == {first.id}


def test_rows_are_seen_between_two_open_memories_and_between_threads(
    memory: Ralph, project: Path
) -> None:
    with open_toy(project) as other:
        assert ask(other) == []
        memory.feature("auth").remember(made("login form validation", session_id="1"))
        assert len(ask(other)) == 1
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(len(ask(other))))
        thread.start()
        thread.join()
        assert found == [1]
        gone = ask(other)[0].id
        memory.feature("auth").forget([gone])
        assert ask(other) == []


def test_a_view_of_one_thread_is_not_disturbed_by_what_another_thread_loads(
    memory: Ralph, toy: ToyEmbedder
) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(20))
    auth.search(QUESTION)
    name = auth.target().name
    vector = toy.embed_query(QUESTION)
    with memory.store.index.store.state() as view:
        live = live_of(view, name)
        assert live is not None

        def go_on() -> None:
            auth.remember_all(topical(20, start=20))
            auth.search(QUESTION)  # the matrix the threads share has 40 rows now

        thread = threading.Thread(target=go_on)
        thread.start()
        thread.join()
        [near] = by_row(view.nearest(live, vector[None, :], 100))
        assert len(near) == 20
        assert len(view.fetch(live, near)) == 20
    with memory.store.index.store.state() as view:
        live = live_of(view, name)
        assert live is not None
        assert len(by_row(view.nearest(live, vector[None, :], 100))[0]) == 40


def test_many_threads_search_beside_a_writer(memory: Ralph) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(30))
    wrong: list[BaseException] = []
    done = threading.Event()

    def search() -> None:
        try:
            while not done.is_set():
                found = ask(memory, "login form validation", limit=20, min_score=0.0)
                assert len(found) == 20
                assert not found.notes
        except BaseException as error:  # noqa: BLE001 - told by the test below
            wrong.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(30, 60):
        written = auth.remember(topical(1, start=n)[0])
        if n % 3 == 0:
            auth.forget([written.id])
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


SEARCHER = """
import sys
from remembering import marker, open_toy
root, count = sys.argv[1], int(sys.argv[2])
seen = 0
with open_toy(root) as memory:
    auth = memory.feature("auth")
    print("ready", flush=True)
    while seen < count:
        whole = len(auth.recent(count)) == count  # everything is written, so all must be found
        answer = auth.search(marker(seen), limit=5)
        assert not answer.notes, answer.notes
        for hit in answer:
            assert 0.0 <= hit.score <= 1.0 and hit.record.feature == "auth", hit
        if any(marker(seen) in hit.record.summary for hit in answer):
            seen += 1
        else:
            assert not whole, seen
print("done", flush=True)
"""


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_four_processes_search_while_one_writes_many_records(
    memory: Ralph, project: Path, count: int
) -> None:
    auth = memory.feature("auth")
    iterations = topical(count)
    auth.remember(iterations[0])
    with (
        child(SEARCHER, project, count) as a,
        child(SEARCHER, project, count) as b,
        child(SEARCHER, project, count) as c,
        child(SEARCHER, project, count) as d,
    ):
        readers = (a, b, c, d)
        assert [hear(reader) for reader in readers] == ["ready"] * 4
        at = 1
        while at < count:  # alone and in small batches, by turns
            auth.remember_all(iterations[at : at + 1 + at % 4])
            at += 1 + at % 4
        assert [hear(reader) for reader in readers] == ["done"] * 4
    assert len(auth.iterations()) == count


OPENER = """
import sys
from remembering import open_toy
sys.stdin.readline()
with open_toy(sys.argv[1]) as memory:
    answer = memory.feature("auth").search("login form validation")
    print(len(answer), *answer.notes, flush=True)
"""


def test_many_processes_that_meet_no_index_all_answer(memory: Ralph, project: Path) -> None:
    memory.feature("auth").remember_all(topical(40))
    memory.store.index.delete()
    memory.close()
    with (
        child(OPENER, project) as a,
        child(OPENER, project) as b,
        child(OPENER, project) as c,
        child(OPENER, project) as d,
        child(OPENER, project) as e,
        child(OPENER, project) as f,
    ):
        openers = (a, b, c, d, e, f)
        for opener in openers:
            tell(opener, "go")
        assert [hear(opener) for opener in openers] == ["4"] * 6


# -- collections


def test_a_collection_is_named_after_project_and_feature(memory: Ralph) -> None:
    memory.feature("auth").remember(made("login form", session_id="1"))
    (collection,) = memory.store.index.collections()
    parts = [hashlib.sha256(t.encode()).hexdigest()[:8] for t in (memory.project.id, "auth")]
    assert collection.name == "-".join(parts)
    assert collection.stream == "auth"


def test_several_features_are_searched_as_one_or_each_alone(memory: Ralph) -> None:
    memory.feature("auth").remember(made("login form validation fails", session_id="1"))
    memory.feature("billing").remember(made("invoice form validation fails", session_id="2"))
    assert len(memory.search("form validation")) == 2
    assert summaries(memory.search("form validation", features=["billing"])) == [
        "invoice form validation fails"
    ]
    assert summaries(ask(memory, "form validation")) == ["login form validation fails"]


# -- what the index was built with


def manifest_of(memory: Ralph) -> list[str]:
    return [one.manifest.embedder for one in memory.store.index.collections()]


def test_nothing_is_done_when_nothing_changed(memory: Ralph, toy: ToyEmbedder) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(10))
    embedded = len(toy.embedded)
    for _ in range(3):
        ask(memory)
        assert auth.sync() == sync_module.Synced(complete=True)
    assert len(toy.embedded) == embedded == 10


@pytest.mark.parametrize(
    "other", [ToyEmbedder("toy:2"), ToyEmbedder("toy:1", dims=32), ToyEmbedder("toy:2", dims=8)]
)
def test_another_embedder_means_a_rebuild_and_never_a_mix(
    memory: Ralph, project: Path, other: ToyEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(30))
    with open_toy(project, ToyEmbedder(other.identity, other.dims)) as changed:
        assert ask(changed)
        assert manifest_of(changed) == [other.identity]
        counted = changed.store.embedder
        assert isinstance(counted, ToyEmbedder)
        assert len(counted.embedded) == 30
        store = changed.store.index.store
        with store.state() as view:
            live = live_of(view, changed.feature("auth").target().name)
            assert live is not None
            blobs = view.content(live).vectors.values()
            assert {len(blob) for blob in blobs} == {4 * other.dims}
    assert caplog.records == []  # not by way of an index that healed itself


def test_words_answer_from_the_old_index_until_the_new_one_is_built(
    memory: Ralph, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "_BATCH", 10)
    auth = memory.feature("auth")
    auth.remember_all(topical(40))
    new = ToyEmbedder("toy:2")
    new.break_after_batches = 2
    with open_toy(project, new) as changed:
        with pytest.raises(KeyboardInterrupt):
            ask(changed)
        held = {one.live: one.manifest.embedder for one in changed.store.index.collections()}
        assert held == {True: "toy:1", False: "toy:2"}
        # While somebody else holds the lock, the old one answers, by words.
        with disk.lock(state_of(project) / "index.lock", timeout_s=1):
            embedded(changed).lock_timeout_s = 0.0
            found = ask(changed)
            assert len(found) == 4
            assert all(hit.parts and hit.parts.meaning is None for hit in found)
            assert any("not complete yet" in note for note in found.notes)
        new.break_after_batches = None
        found = ask(changed)
        assert len(found) == 4
        assert all(hit.parts and hit.parts.meaning is not None for hit in found)
        assert found.notes == ()
        assert [one.live for one in changed.store.index.collections()] == [True]


def test_an_interrupted_rebuild_goes_on_and_embeds_nothing_twice(
    memory: Ralph, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "_BATCH", 10)
    memory.feature("auth").remember_all(topical(60))
    new = ToyEmbedder("toy:2")
    new.break_after_batches = 3
    with open_toy(project, new) as changed, pytest.raises(KeyboardInterrupt):
        ask(changed)
    assert len(new.embedded) == 30
    again = ToyEmbedder("toy:2")
    with open_toy(project, again) as changed:
        assert len(ask(changed)) == 6
    assert len(again.embedded) == 30
    assert not set(again.embedded) & set(new.embedded)


def test_a_rebuild_killed_in_another_process_goes_on(memory: Ralph, project: Path) -> None:
    memory.feature("auth").remember_all(topical(60))
    script = """
    import os, signal, sys
    from remembering import ToyEmbedder, open_toy
    from ralph.index import sync as sync_module
    sync_module._BATCH = 10
    class Deadly(ToyEmbedder):
        def embed_passages(self, texts, **more):
            if self.batches == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().embed_passages(texts, **more)
    with open_toy(sys.argv[1], Deadly("toy:2")) as memory:
        memory.feature("auth").sync()
    """
    with child(script, project) as process:
        assert process.wait(timeout=60) != 0
    again = ToyEmbedder("toy:2")
    with open_toy(project, again) as changed:
        assert len(ask(changed, "login form validation")) == 6
        assert changed.store.index.store.check(deep=True) == []
    assert len(again.embedded) == 20


def test_an_explicit_rebuild_embeds_everything_and_answers_the_same(
    memory: Ralph, toy: ToyEmbedder
) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(25))
    before = shown(ask(memory))
    synced = auth.sync(afresh=True)
    assert synced.complete
    assert synced.rebuilt
    assert synced.written == 25
    assert len(toy.embedded) == 50
    assert shown(ask(memory)) == before


def test_a_rebuild_tells_its_progress(
    memory: Ralph, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "_BATCH", 10)
    memory.feature("auth").remember_all(topical(35))
    told: list[int] = []
    with open_toy(project, progress=told.append) as opened:
        opened.feature("auth").sync(afresh=True)
    assert told == [10, 20, 30, 35]


def test_another_tokeniser_rebuilds_the_words_but_embeds_nothing_again(
    memory: Ralph, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.feature("auth").remember_all(topical(30))
    before = shown(ask(memory))
    monkeypatch.setattr(sync_module, "TOKENISER_VERSION", "next")
    again = ToyEmbedder()
    with open_toy(project, again) as changed:
        assert shown(ask(changed)) == before
        (one,) = changed.store.index.collections()
        assert one.manifest.tokeniser == "next"
    assert again.embedded == []


def test_another_way_of_cutting_embeds_only_what_reads_differently(
    memory: Ralph, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.feature("auth").remember_all([*topical(10), made("long " * 300, session_id="long")])
    monkeypatch.setattr(feature_module.FeatureMemory, "cut_version", "next-1000")
    again = ToyEmbedder()
    monkeypatch.setattr("ralph.records.iteration.EMBEDDING_CHARS", 1000)
    with open_toy(project, again) as changed:
        ask(changed)
        (one,) = changed.store.index.collections()
        assert one.manifest.cut == "next-1000"
    assert [len(text) for text in again.embedded] == [1000]


def test_a_rebuild_begun_for_settings_that_were_taken_back_leaves_no_trace(
    memory: Ralph, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "_BATCH", 10)
    memory.feature("auth").remember_all(topical(30))
    new = ToyEmbedder("toy:2")
    new.break_after_batches = 1
    with open_toy(project, new) as changed, pytest.raises(KeyboardInterrupt):
        ask(changed)
    ask(memory)
    assert manifest_of(memory) == ["toy:1"]
    assert sync_module.is_current(memory.store.index.store, memory.feature("auth").target())


# -- without an embedder


def test_words_answer_alone_while_the_embedder_is_off_and_vectors_come_by_themselves(
    memory: Ralph, toy: ToyEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    auth = memory.feature("auth")
    toy.off = True
    auth.remember_all(topical(20))
    auth.remember(made("something else", session_id="else"))
    told = [record.message for record in caplog.records if "words alone" in record.message]
    assert len(told) == 1  # not once a record
    assert "Switch it on." in told[0]
    found = ask(memory)
    assert len(found) == 2
    assert any("words alone" in note and "Switch it on." in note for note in found.notes)
    assert all(hit.parts and hit.parts.meaning is None for hit in found)
    toy.off = False
    found = ask(memory)
    assert found.notes == ()
    assert all(hit.parts and hit.parts.meaning is not None for hit in found)
    assert len(toy.embedded) == 21
    ask(memory)
    assert len(toy.embedded) == 21


def test_an_embedder_that_dies_between_the_index_and_the_question_is_told(
    memory: Ralph, toy: ToyEmbedder
) -> None:
    memory.feature("auth").remember_all(topical(20))
    toy.off = True
    found = ask(memory)
    assert len(found) == 2
    assert len(found.notes) == 1
    assert "the toy is switched off" in found.notes[0]


def test_an_embedder_that_gives_vectors_of_another_shape_is_off(
    memory: Ralph, toy: ToyEmbedder, project: Path
) -> None:
    class Wrong(ToyEmbedder):
        @property
        def dims(self) -> int:
            return 2 * super().dims

    memory.feature("auth").remember_all(topical(20))
    with open_toy(project, Wrong("toy:wrong")) as wrong:
        found = ask(wrong)
        assert len(found) == 2
        assert any("64" in note and "128" in note for note in found.notes)


def test_the_setting_none_means_words_alone_and_says_so(project: Path) -> None:
    with open_ralph(project, embedder="none") as memory:
        memory.feature("auth").remember_all(topical(20))
        found = ask(memory)
        assert len(found) == 2
        assert any("embedder is none" in note for note in found.notes)
        (one,) = memory.store.index.collections()
        assert (one.manifest.embedder, one.manifest.dims) == ("none", 0)


def test_a_missing_table_means_words_alone(project: Path) -> None:
    script = """
    import sys
    from ralph import open_ralph
    from ralph.index.embedders import static
    from remembering import topical
    static.TABLE_NAME = "no.bin"
    with open_ralph(sys.argv[1]) as memory:
        memory.feature("auth").remember_all(topical(20))
        found = memory.feature("auth").search("login form validation")
        print(len(found), *found.notes)
    """
    (line,) = run_child(script, project)
    assert line.startswith("2 searched by words alone")
    assert "pip install --force-reinstall ralph-rag" in line


# -- orphans


def test_orphans_are_listed_and_pruned_and_the_rest_stays(memory: Ralph, project: Path) -> None:
    for name in ("auth", "billing"):
        memory.feature(name).remember(made(f"{name} form validation", session_id=name))
    assert memory.orphans() == []
    journal(project, "billing").unlink()
    assert [one.stream for one in memory.orphans()] == ["billing"]
    assert memory.search("form validation", features=["billing"]) == []
    (gone,) = memory.prune()
    assert memory.orphans() == []
    assert [one.stream for one in memory.store.index.collections()] == ["auth"]
    assert len(ask(memory, "form validation")) == 1
    assert gone not in {one.name for one in memory.store.index.collections()}


def test_a_collection_of_another_project_is_an_orphan(memory: Ralph, project: Path) -> None:
    memory.feature("auth").remember(made("login form validation", session_id="1"))
    memory.close()
    metadata = project / ".ralph" / "db" / "metadata.yaml"
    metadata.write_text("project_id: 11111111-2222-4333-8444-555555555555\n")
    with open_toy(project) as changed:
        assert len(ask(changed)) == 1
        assert len(changed.orphans()) == 1
        changed.prune()
        assert len(changed.store.index.collections()) == 1
        assert len(ask(changed)) == 1


def test_pruning_removes_index_files_of_other_versions(memory: Ralph, project: Path) -> None:
    memory.feature("auth").remember(made("login form validation", session_id="1"))
    cache = state_of(project)
    for name in ("index-v0.sqlite3", "index-v0.sqlite3-wal", "index-v1.sqlite3.damaged-x"):
        (cache / name).write_bytes(b"old")
    (cache / "index-v9.sqlite3").mkdir()
    assert sorted(memory.prune()) == [
        "index-v0.sqlite3",
        "index-v0.sqlite3-wal",
        "index-v1.sqlite3.damaged-x",
    ]
    assert len(ask(memory)) == 1


def test_every_topic_finds_its_own(memory: Ralph) -> None:
    memory.feature("auth").remember_all(topical(50))
    for topic in TOPICS:
        found = ask(memory, topic)
        assert found
        assert all(text.startswith(topic) for text in summaries(found)[:5])


def test_records_remembered_one_by_one_have_their_vectors_in_few_blocks(
    memory: Ralph,
) -> None:
    """Reading many small blocks is what makes the first search of a process slow."""
    for one in topical(130):
        memory.feature("auth").remember(one)
    file = sqlite3.connect(memory.store.index.path)
    (count,) = file.execute("SELECT count(*) FROM vector_1").fetchone()
    file.close()
    assert count < 70


def test_a_sync_without_time_writes_a_small_batch_and_later_ones_go_on(
    memory: Ralph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "_FIRST_BATCH", 10)
    auth = memory.feature("auth")
    auth.remember_all(topical(40))
    memory.store.index.delete()

    written = []
    complete = False
    while not complete:
        synced = auth.sync(budget_s=0.0)
        written.append(synced.written)
        complete = synced.complete

    assert written == [10, 10, 10, 10]
