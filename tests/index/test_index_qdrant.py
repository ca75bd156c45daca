"""A memory whose index is on a Qdrant server: the same answers, and nothing half-done."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from qdrant import index_on, open_served
from qdrant_server import KEY, Asked, QdrantServer
from remembering import ToyEmbedder, by_row, made, open_toy, shown, summaries, topical

from ralph.config import Settings
from ralph.errors import IndexOff
from ralph.index import Corrupt, Passage
from ralph.index.qdrant import QdrantConnection, QdrantStore
from ralph.index.qdrant_start import CollectionNames
from ralph.index.qdrant_view import META_ID
from ralph.index.sync import is_current, live_of, open_index
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.status import verify_index
from tests.index.test_index_stores import (
    X,
    answering,
    blob,
    create,
    ids,
    plain,
    record,
    row,
    write,
)

QUESTION = "login form validation"


@pytest.fixture
def served(project: Path, server: QdrantServer, toy: ToyEmbedder) -> Iterator[Ralph]:
    with open_served(project, server.url, toy) as opened:
        yield opened


def physical(server: QdrantServer) -> list[str]:
    return sorted(one.name for one in server.client.get_collections().collections)


def aliases(server: QdrantServer) -> dict[str, str]:
    return {one.alias_name: one.collection_name for one in server.client.get_aliases().aliases}


def everything(server: QdrantServer) -> str:
    """All that stands in all collections, as one text."""
    told = []
    for name in physical(server):
        points, _ = server.client.scroll(name, limit=100_000, with_payload=True)
        told += [json.dumps(point.payload) for point in points]
    return "\n".join(told)


# -- the same answers


def test_what_is_remembered_is_found_and_verified(served: Ralph, server: QdrantServer) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(30))
    answer = auth.search(QUESTION)
    assert answer.notes == ()
    assert answer[0].record.summary.startswith("login form validation")
    assert verify_index(served).ok
    assert served.store.index.where == server.url
    assert isinstance(served.store.index.store, QdrantStore)
    assert served.store.index.store.server.version == server.version


def test_switching_to_a_server_and_back_gives_the_same_answers(
    project: Path, server: QdrantServer
) -> None:
    questions = [f"{one.summary}?" for one in topical(60)]

    def asked(memory: Ralph) -> list[list[tuple[str, float | None, str]]]:
        return [shown(memory.feature("auth").search(one, limit=5)) for one in questions]

    with open_toy(project) as embedded:
        embedded.feature("auth").remember_all(topical(60))
        before = asked(embedded)
    with open_served(project, server.url) as served:
        assert asked(served) == before
        served.feature("auth").remember(made("written while the server ran", session_id="new"))
        there = asked(served)
    with open_toy(project) as again:
        assert asked(again) == there
        [found] = again.feature("auth").search("written while the server ran", limit=1)
    assert found.record.summary == "written while the server ran"


def test_facets_of_a_question_are_asked_of_the_server(served: Ralph) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(30))
    asked = auth.search(QUESTION, limit=20)
    assert {hit.record.outcome for hit in asked} == {"success", "failure"}
    store = served.store.index.store
    with store.state() as view:
        live = live_of(view, auth.target().name)
        assert live is not None
        found = view.words(live, ["login"], 50, only={"outcome": ("failure",)}).scores
        fetched = view.fetch(live, found, records=True)
        records = [one.record for one in fetched.values() if one.record]
    assert records
    assert all(json.loads(one.body)["outcome"] == "failure" for one in records)


def test_several_features_and_conversations_share_a_server(
    served: Ralph, server: QdrantServer
) -> None:
    served.feature("auth").remember(made("login form validation", session_id="1"))
    served.feature("shop").remember(made("login form of the shop", session_id="2"))
    talk = served.conversations.start("Login")
    served.conversations.exchange(talk, user="what of the login form?", assistant="validated")
    assert len(served.search("login form", kinds=["iteration"])) == 2
    assert len(served.search("login form")) == 3
    assert len(served.conversations.search("login form")) == 1
    assert len(aliases(server)) == 3
    assert {one.stream for one in served.store.index.collections()} == {"auth", "shop"}


def test_what_was_journalled_elsewhere_is_caught_up_with(
    served: Ralph, project: Path, server: QdrantServer
) -> None:
    served.feature("auth").remember(made("login form one", session_id="1"))
    with open_toy(project) as embedded:
        embedded.feature("auth").remember(made("login form two", session_id="2"))
    assert sorted(summaries(served.feature("auth").search("login form"))) == [
        "login form one",
        "login form two",
    ]


def test_passages_that_waited_for_the_embedder_get_their_vectors(
    served: Ralph, toy: ToyEmbedder
) -> None:
    auth = served.feature("auth")
    toy.off = True
    auth.remember_all(topical(20))
    answer = auth.search(QUESTION)
    assert "words alone" in answer.notes[0]
    assert answer
    toy.off = False
    answer = auth.search(QUESTION)
    assert answer.notes == ()
    assert all(hit.parts is not None and hit.parts.meaning is not None for hit in answer)
    assert is_current(served.store.index.store, auth.target())
    assert verify_index(served).ok


def test_an_unchanged_index_is_asked_in_a_handful_of_requests(
    served: Ralph, server: QdrantServer
) -> None:
    served.feature("auth").remember_all(topical(30))
    served.feature("auth").search(QUESTION)
    before = len(server.requests)
    served.feature("auth").search(QUESTION)
    assert len(server.requests) - before <= 12


# -- parameters and points


def test_a_collection_has_the_parameters_of_the_source_documents(
    served: Ralph, server: QdrantServer
) -> None:
    served.feature("auth").remember_all(topical(5))
    served.feature("auth").search(QUESTION)
    [made_with] = [one.body for one in server.asked(r"^PUT /collections/[^/]+$")]
    for vectors in made_with["vectors"].values():
        assert vectors["distance"] == "Cosine"
        assert vectors["on_disk"] is True
        assert (vectors["hnsw_config"]["m"], vectors["hnsw_config"]["ef_construct"]) == (64, 512)
        assert vectors["size"] == 64
    indexed = {one.body["field_name"] for one in server.asked(r"^PUT .*/index$")}
    assert indexed >= {"type", "facet_task_id", "facet_outcome", "facet_type", "tokens", "facets"}
    kinds = {one.body["field_name"]: one.body["field_schema"] for one in server.asked("/index$")}
    assert kinds["at"] == "datetime"  # the strict mode of Qdrant Cloud refuses the filter otherwise
    [searches] = [one.body["searches"] for one in server.asked("query/batch$")][-1:]
    assert {one["params"].get("hnsw_ef") for one in searches} >= {128}


def test_an_older_collection_gets_the_indexes_it_lacks(served: Ralph, server: QdrantServer) -> None:
    served.feature("auth").remember_all(topical(3))
    served.feature("auth").search(QUESTION)
    [name] = physical(server)
    [found] = server.client.retrieve(name, [META_ID])
    older = [field for field in (found.payload or {})["indexed"] if field != "at"]
    server.client.set_payload(name, {"indexed": older}, [META_ID])
    server.requests.clear()
    served.feature("auth").remember_all(topical(4)[3:])
    served.feature("auth").search(QUESTION)
    assert [one.body["field_name"] for one in server.asked("PUT .*/index$")] == ["at"]


def test_a_feature_has_an_alias_that_carries_its_name(served: Ralph, server: QdrantServer) -> None:
    served.feature("auth").remember_all(topical(3))
    name = served.feature("auth").target().name
    [(alias, collection)] = aliases(server).items()
    assert alias.startswith("ralph-")
    assert alias.endswith(f"-{name}")
    assert collection.startswith(f"{alias}-g")


def test_the_metadata_point_tells_how_far_the_journal_was_indexed_and_is_never_found(
    served: Ralph, server: QdrantServer
) -> None:
    served.feature("auth").remember_all(topical(3))
    [name] = physical(server)
    points, _ = server.client.scroll(name, limit=100, with_vectors=True)
    [told] = [point for point in points if (point.payload or {})["type"] == "metadata"]
    assert told.payload is not None
    assert json.loads(told.payload["position"])["line"] == 3
    assert told.payload["manifest"]["embedder"] == "toy:1"
    assert told.vector == {}
    answer = served.feature("auth").search("metadata auth position manifest", min_score=0.0)
    assert {hit.kind for hit in answer} <= {"iteration"}


def test_points_go_in_batches_of_256_and_not_too_many_bytes(
    served: Ralph, server: QdrantServer
) -> None:
    served.feature("auth").remember_all(topical(600))
    served.feature("auth").sync()
    sizes = [len(one.body["points"]) for one in server.asked(r"^PUT .*/points$")]
    assert max(sizes) == 256
    assert sum(size for size in sizes if size > 1) >= 600
    with served.store.index.store.state() as view:
        live = live_of(view, served.feature("auth").target().name)
        assert live is not None
        assert view.size(live).records == 600


def test_task_outcome_and_type_stand_in_the_payload(served: Ralph, server: QdrantServer) -> None:
    served.feature("auth").remember(made("one", session_id="1", task_id=42, outcome="failure"))
    [name] = physical(server)
    points, _ = server.client.scroll(name, limit=10)
    [payload] = [point.payload for point in points if "head" in (point.payload or {})]
    assert payload is not None
    assert payload["facet_task_id"] == ["42"]
    assert payload["facet_outcome"] == ["failure"]
    assert payload["facet_type"] == [payload["type"]] == ["iteration"]


def test_the_key_goes_to_the_server_and_into_no_message(
    project: Path, server: QdrantServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.key = KEY
    with open_served(project, server.url, qdrant_api_key=KEY) as memory:
        memory.feature("auth").remember_all(topical(3))
        assert memory.feature("auth").search(QUESTION).notes == ()
    assert {one.headers.get("api-key") for one in server.requests} == {KEY}
    with open_served(project, server.url, qdrant_api_key=f"wrong-{KEY}") as memory:
        answer = memory.feature("auth").search(QUESTION)
        memory.feature("auth").remember(made("kept all the same", session_id="1"))
        assert KEY not in repr(memory.config.settings)
    assert "refuses the key" in answer.notes[0]
    assert "RALPH_QDRANT_API_KEY" in answer.notes[0]
    assert answer
    assert KEY not in answer.notes[0] + caplog.text


# -- rebuilding


def test_a_rebuild_is_never_seen_half_done(served: Ralph, server: QdrantServer) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(40))
    auth.sync()
    before = shown(auth.search(QUESTION))
    [old] = physical(server)
    seen: list[object] = []
    asking = threading.Event()

    def look(asked: Asked) -> None:
        writes = asked.method == "PUT" and asked.path.endswith("/points") and old not in asked.path
        if writes and not asking.is_set():
            asking.set()
            with open_served(served.project.root, server.url) as other:
                thread = threading.Thread(
                    target=lambda: seen.append(shown(other.feature("auth").search(QUESTION)))
                )
                thread.start()
                thread.join()
            seen.append(aliases(server)[old.rpartition("-g")[0]])
            asking.clear()

    server.after = look
    auth.sync(afresh=True)
    server.after = lambda asked: None
    assert len(seen) >= 4
    assert all(one in (before, old) for one in seen)
    assert len(physical(server)) == 1
    assert physical(server) != [old]
    assert shown(auth.search(QUESTION)) == before


def test_another_embedder_means_a_rebuild_beside_the_old(
    project: Path, server: QdrantServer
) -> None:
    with open_served(project, server.url, ToyEmbedder()) as memory:
        memory.feature("auth").remember_all(topical(20))
        memory.feature("auth").sync()
    with open_served(project, server.url, ToyEmbedder("toy:2", 32)) as memory:
        answer = memory.feature("auth").search(QUESTION)
        [one] = memory.store.index.collections()
    assert answer.notes == ()
    assert (one.manifest.embedder, one.manifest.dims) == ("toy:2", 32)
    assert len(physical(server)) == 1


def test_a_rebuild_that_was_killed_goes_on_where_it_stopped(
    project: Path, server: QdrantServer
) -> None:
    with open_served(project, server.url, ToyEmbedder()) as memory:
        memory.feature("auth").remember_all(topical(1200))
        memory.feature("auth").sync()
    changed = ToyEmbedder("toy:2")
    changed.break_after_batches = 1
    with open_served(project, server.url, changed) as memory, pytest.raises(KeyboardInterrupt):
        memory.feature("auth").sync()
    assert len(physical(server)) == 2
    assert set(aliases(server).values()) == set(physical(server))
    done = len(changed.embedded)
    changed.break_after_batches = None
    with open_served(project, server.url, changed) as memory:
        assert memory.feature("auth").sync().complete
        assert verify_index(memory).ok
    assert 0 < done < 1200
    assert len(changed.embedded) == 1200
    assert len(physical(server)) == 1


def test_vectors_are_used_again_when_only_the_way_of_cutting_changes(
    project: Path, server: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = ToyEmbedder()
    with open_served(project, server.url, toy) as memory:
        memory.feature("auth").remember_all(topical(20))
        memory.feature("auth").sync()
    done = len(toy.embedded)
    monkeypatch.setattr("ralph.memory.feature.FeatureMemory.cut_version", "iteration-3-3999")
    monkeypatch.setattr("ralph.records.iteration.EMBEDDING_CHARS", 3999)
    with open_served(project, server.url, toy) as memory:
        assert memory.feature("auth").sync().rebuilt
        assert verify_index(memory).ok
    assert len(toy.embedded) == done


def test_what_a_killed_build_left_without_a_name_is_dropped_by_the_next(
    served: Ralph, server: QdrantServer
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(5))
    auth.sync()
    [name] = physical(server)
    left = f"{name.rpartition('-g')[0]}-g7"
    server.client.create_collection(left, vectors_config={})
    auth.sync(afresh=True)
    assert len(physical(server)) == 1
    assert physical(server)[0] not in (name, left)


def test_what_a_killed_build_left_without_a_name_can_be_pruned(
    served: Ralph, server: QdrantServer
) -> None:
    served.feature("auth").remember_all(topical(5))
    [name] = physical(server)
    left = f"{name.rpartition('-g')[0]}-g7"
    server.client.create_collection(left, vectors_config={})
    assert served.prune() == [left]
    assert physical(server) == [name]


# -- whose collections they are


def test_f24_orphans_are_listed_and_pruned_and_other_projects_left_alone(
    served: Ralph, server: QdrantServer, tmp_path: Path
) -> None:
    with open_served(tmp_path / "other", server.url) as other:
        other.feature("auth").remember_all(topical(3))
        others = physical(server)
        served.feature("auth").remember_all(topical(3))
        served.feature("gone").remember_all(topical(3))
        server.client.create_collection("not-ours", vectors_config={})
        (served.project.journals / "gone.jsonl").unlink()
        [orphan] = served.orphans()
        assert orphan.stream == "gone"
        assert served.prune() == [orphan.name]
        assert served.orphans() == other.orphans() == []
        assert set(physical(server)) > {*others, "not-ours"}
        assert len(physical(server)) == 3


def test_f14_deleting_a_feature_drops_its_collection(served: Ralph, server: QdrantServer) -> None:
    served.feature("auth").remember_all(topical(3))
    served.feature("shop").remember_all(topical(3))
    served.feature("shop").drop_index()
    assert [one.stream for one in served.store.index.collections()] == ["auth"]
    assert len(physical(server)) == 1


def test_f18_clones_that_share_an_id_do_not_share_a_collection(
    served: Ralph, server: QdrantServer, tmp_path: Path
) -> None:
    served.feature("auth").remember(made("login form one", session_id="1"))
    clone = tmp_path / "clone"
    shutil.copytree(served.project.root, clone)
    Project(clone).join()
    with open_served(clone, server.url) as other:
        assert other.project.id == served.project.id
        other.feature("auth").remember(made("login form two", session_id="2"))
        assert len(other.feature("auth").search("login form")) == 2
        assert summaries(served.feature("auth").search("login form")) == ["login form one"]
        assert is_current(other.store.index.store, other.feature("auth").target())
    assert len(physical(server)) == 2


def test_a_shared_journal_has_one_collection_for_all_machines(tmp_path: Path) -> None:
    one = alias_of("postgresql://me:one@db/ralph", tmp_path / "one", tmp_path / "home-1")
    two = alias_of("postgresql://you@DB:5432/ralph?sslmode=require", tmp_path / "2", tmp_path)
    assert one == two
    assert one.startswith("ralph-")
    assert one.endswith("-p-f")
    assert not (tmp_path / "machine").exists()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/other",
        "postgresql://db2/ralph",
        "postgresql://db:5433/ralph",
        "postgresql:///ralph?host=/run/db",
        None,
    ],
)
def test_f18_two_databases_do_not_share_a_collection(tmp_path: Path, url: str | None) -> None:
    # What every database has, like the knowledge of all projects, has the same name in each.
    team = alias_of("postgresql://db/ralph", tmp_path, tmp_path)
    assert alias_of(url, tmp_path, tmp_path) != team


def test_f18_two_machines_that_keep_files_at_the_same_path_do_not_share_a_collection(
    tmp_path: Path,
) -> None:
    def names(home: str) -> str:
        return alias_of(None, Path("/home/dev/.ralph/cache"), tmp_path / home)

    assert names("laptop") == names("laptop") != names("desktop")


def alias_of(journal_url: str | None, folder: Path, home: Path) -> str:
    settings = Settings(journal_url=journal_url, qdrant_url="http://127.0.0.1:6333")
    index = open_index(settings, [folder], home=home, scope=lambda: "p-")
    assert isinstance(index.store, QdrantStore)
    return index.store._names.alias("p-f")


# -- forgetting and damage


def test_what_is_forgotten_is_in_no_collection_any_more(
    served: Ralph, server: QdrantServer
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(5))
    secret = auth.remember(made("the secret is hunterxx", session_id="s"))
    auth.sync()
    [before] = physical(server)
    assert "hunterxx" in everything(server)
    assert auth.forget([secret.id]) == [secret.id]
    assert "hunterxx" not in everything(server)
    # Qdrant keeps the bytes of a deleted point for a while, those of a collection it does not.
    assert before not in physical(server)
    assert auth.search("hunterxx") == []
    assert verify_index(served).ok


def test_what_is_forgotten_while_the_server_is_away_goes_when_it_is_back(
    served: Ralph, server: QdrantServer, caplog: pytest.LogCaptureFixture
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(5))
    secret = auth.remember(made("the secret is hunterxx", session_id="s"))
    auth.sync()
    server.fail("reset")
    with caplog.at_level(logging.WARNING, "ralph"):
        auth.forget([secret.id])
    assert "forgotten text may still stand in an old index" in caplog.text
    assert auth.search("hunterxx") == []
    server.fail(None)
    served.store.index.store.check()
    assert auth.search("hunterxx") == []
    assert "hunterxx" not in everything(server)


@pytest.mark.parametrize(
    "broken",
    [{"body": '{"other": 1}'}, {"number": "seven"}, {"source": "{"}, {"title": 5}],
    ids=lambda one: next(iter(one)),
)
def test_a_damaged_collection_is_dropped_and_rebuilt_with_one_line(
    served: Ralph,
    server: QdrantServer,
    caplog: pytest.LogCaptureFixture,
    broken: dict[str, object],
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(10))
    before = shown(auth.search(QUESTION))
    [name] = physical(server)
    points, _ = server.client.scroll(name, limit=100)
    heads = [point.id for point in points if "head" in (point.payload or {})]
    server.client.set_payload(name, broken, heads)
    with caplog.at_level(logging.WARNING, "ralph"):
        assert shown(auth.search(QUESTION)) == before
    [line] = [one for one in caplog.messages if "damaged" in one]
    assert "rebuilt from the journal" in line
    assert verify_index(served).ok


def test_metadata_that_cannot_be_read_means_a_rebuild(
    served: Ralph, server: QdrantServer, caplog: pytest.LogCaptureFixture
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(10))
    before = shown(auth.search(QUESTION))
    [name] = physical(server)
    points, _ = server.client.scroll(name, limit=100)
    [told] = [point.id for point in points if (point.payload or {})["type"] == "metadata"]
    server.client.set_payload(name, {"sweep": "often"}, [told])
    assert shown(auth.search(QUESTION)) == before
    assert "damaged" in caplog.text


def test_a_collection_that_somebody_deleted_comes_back_by_itself(
    served: Ralph, server: QdrantServer
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(10))
    before = shown(auth.search(QUESTION))
    for name in physical(server):
        server.client.delete_collection(name)
    assert shown(auth.search(QUESTION)) == before


def test_a_collection_with_other_parameters_is_told(served: Ralph, server: QdrantServer) -> None:
    store = served.store.index.store
    served.feature("auth").remember_all(topical(3))
    assert store.check(deep=True) == []
    [name] = physical(server)
    config = server.client._client.collections[name].config  # type: ignore[union-attr]
    config.vectors["meaning"].hnsw_config.m = 16
    config.vectors["meaning"].on_disk = False
    assert len(store.check(deep=True)) == 2
    assert not verify_index(served).ok


# -- several at once


def test_two_machines_that_sync_at_once_lose_and_double_nothing(
    project: Path, server: QdrantServer
) -> None:
    with open_toy(project) as embedded:
        embedded.feature("auth").remember_all(topical(300))
    failures: list[BaseException] = []
    together = threading.Barrier(3)

    def work(machine: int) -> None:
        try:
            with open_toy(project) as memory:
                # Each with a lock of its own, as on different machines.
                folder = project / f"machine-{machine}"
                memory.store.index = index_on(QdrantConnection(server.url), folder, "shared")
                together.wait()
                memory.feature("auth").sync()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with open_toy(project) as memory:
        memory.store.index = index_on(QdrantConnection(server.url), project / "m", "shared")
        assert memory.feature("auth").sync().complete
        assert verify_index(memory).ok
        memory.store.index.prune()
    assert len(physical(server)) == 1


def test_a_sweep_that_another_machine_overtakes_is_begun_again(server: QdrantServer) -> None:
    one, two = (
        QdrantStore(QdrantConnection(server.url), CollectionNames(str, "shared")) for _ in range(2)
    )
    made_one = create(one)
    write(one, made_one, [plain(n, f"word {n}", X) for n in range(1, 4)], position="1")
    write(one, made_one, position="2", restart=True, done=False)
    write(two, made_one, position="3", restart=True)
    with pytest.raises(Corrupt, match="another machine"):
        write(one, made_one, position="4")
    assert answering(one).position == "3"


def test_a_record_of_which_only_a_part_is_written_is_not_found_yet(server: QdrantServer) -> None:
    store = QdrantStore(QdrantConnection(server.url), CollectionNames(str, "place"))
    collection = create(store)
    passages = [Passage(title="", text=f"word part{n}", embed=str(n)) for n in range(3)]
    whole = row(record(1), *((passage, blob(X)) for passage in passages))
    torn = row(record(2), *((passage, blob(X)) for passage in passages))
    write(store, collection, [whole], position="1")

    def cut_off(asked: Asked) -> None:
        if asked.method == "PUT" and asked.path.endswith("/points"):
            server.fail("reset")

    server.after = cut_off
    with pytest.raises(IndexOff):
        write(store, collection, [torn], position="2")
    server.after = lambda asked: None
    server.fail(None)
    store = QdrantStore(QdrantConnection(server.url), CollectionNames(str, "place"))
    with store.state() as view:
        live = live_of(view, "name")
        assert live is not None
        assert view.size(live).passages == 5  # they are there
        queries = np.array([X, X], dtype=np.float32)
        part = view.words(live, ["part1"], 10)
        for found in (
            view.words(live, ["word"], 10).scores,
            *by_row(view.nearest(live, queries, 10)),
            *by_row(view.nearest(live, queries[:1], 10, also=list(part.scores))),
        ):
            assert ids(view, live, found) == ["id-1"] * 3


def test_a_collection_of_somebody_elses_in_the_way_is_told(
    served: Ralph, server: QdrantServer
) -> None:
    auth = served.feature("auth")
    auth.remember(made("login form", session_id="1"))
    [(alias, name)] = aliases(server).items()
    server.client.delete_collection(name)
    server.fail("taken", paths="POST /collections/aliases")
    answer = auth.search("login form")
    assert summaries(answer) == ["login form"]
    [note] = answer.notes
    assert f"has a collection of somebody else's that is called {alias}" in note


def test_the_embedded_index_is_what_nobody_asks_for_a_server_gets(project: Path) -> None:
    with open_ralph(project) as memory:
        assert memory.store.index.store.title == "SQLite"
