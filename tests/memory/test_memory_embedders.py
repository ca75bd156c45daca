"""Memory with the embedders that can be chosen: served, down, hung, changed.

A chosen embedder that is down means words alone, said once; never another model's vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from embedding_server import OLLAMA_MODEL, EmbeddingServer, running
from remembering import ToyEmbedder, made, open_toy, shown, topical

from ralph.index.embedders import served
from ralph.index.embedders.static import StaticEmbedder
from ralph.index.sync import is_current
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.status import status, verify_index
from ralph.memory.store import Answer

QUESTION = "login form validation"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with running() as started:
        yield started


@pytest.fixture(params=["ollama", "openai"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Open = Callable[..., Ralph]


@pytest.fixture
def opened(project: Path, server: EmbeddingServer, kind: str) -> Open:
    """Opens the project with an embedder on the server."""

    def one(**more: Any) -> Ralph:
        urls = {"ollama_url": server.url, "openai_base_url": server.url}
        return open_ralph(project, **{"embedder": kind, **urls, **more})

    return one


def meanings(answer: Answer) -> list[float | None]:
    return [hit.parts.meaning for hit in answer if hit.parts is not None]


def manifest(memory: Ralph) -> tuple[str, int]:
    [one] = memory.store.index.collections()
    return one.manifest.embedder, one.manifest.dims


def vectors(memory: Ralph) -> dict[bytes, bytes]:
    [one] = memory.store.index.collections()
    with memory.store.index.store.state() as view:
        return view.content(one).vectors


def blob_lengths(memory: Ralph) -> set[int]:
    return {len(blob) for blob in vectors(memory).values()}


# -- served


def test_one_search_over_all_memories_asks_the_server_once(
    opened: Open, server: EmbeddingServer
) -> None:
    with opened() as memory:
        memory.feature("auth").remember_all(topical(5))
        memory.remember("The login form is validated on the server.")
        talk = memory.conversations.start("Login")
        memory.conversations.exchange(talk, user="Why validate the login form?", assistant="Spam.")
        memory.search("something else")  # and everything is indexed
        found = memory.search(QUESTION)
    assert {hit.kind for hit in found} >= {"iteration", "note", "exchange"}
    assert len([text for text in server.texts() if text.endswith(QUESTION)]) == 1


def test_what_a_server_embeds_is_found_by_meaning_and_checked(opened: Open, kind: str) -> None:
    with opened() as memory:
        memory.feature("auth").remember_all(topical(20))
        answer = memory.feature("auth").search(QUESTION)
        assert answer.notes == ()
        assert answer[0].record.summary.startswith("login form")
        assert None not in meanings(answer)
        assert manifest(memory)[0].startswith(f"{kind}:")
        assert verify_index(memory).ok
    with opened() as again:
        assert shown(again.feature("auth").search(QUESTION)) == shown(answer)


def test_an_answer_from_a_current_index_costs_a_server_only_the_question(
    opened: Open, server: EmbeddingServer
) -> None:
    with opened() as memory:
        memory.feature("auth").remember_all(topical(20))
        memory.feature("auth").search(QUESTION)
        before = len(server.texts())
        for n in range(3):
            memory.feature("auth").search(f"{QUESTION} {n}")
        assert len(server.texts()) == before + 3


def test_words_alone_need_no_server_at_all(opened: Open, server: EmbeddingServer) -> None:
    with opened() as memory:
        memory.feature("auth").remember_all(topical(5))
    before = len(server.requests)
    with opened() as memory:
        assert is_current(memory.store.index.store, memory.feature("auth").target())
        assert memory.feature("auth").recent(3)
    assert len(server.requests) == before


# -- down


def test_a_server_that_goes_down_leaves_the_words_and_comes_back_by_itself(
    opened: Open, server: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    with opened() as memory:
        memory.feature("auth").remember_all(topical(20))
        before, named = memory.feature("auth").search(QUESTION), manifest(memory)
    server.fail("reset", paths="/api/tags /api/embed /v1/embeddings")
    with opened() as memory:
        auth = memory.feature("auth")
        answer = auth.search(QUESTION)
        assert {hit.id for hit in answer} <= {hit.id for hit in before}
        assert answer
        assert meanings(answer) == [None] * len(answer)
        [note] = answer.notes
        assert note.startswith(f"searched by words alone: {server.url}")
        with caplog.at_level(logging.WARNING, "ralph"):
            for one in topical(3, start=20):
                auth.remember(one)
        assert len(caplog.records) == 1
        assert "indexed by words alone" in caplog.text
        assert len(auth.search("login form validation", limit=20)) >= 2
        assert manifest(memory) == named
    server.fail(None)
    with opened() as memory:
        answer = memory.feature("auth").search(QUESTION)
        assert answer.notes == ()
        assert None not in meanings(answer)
        assert verify_index(memory).ok


def test_a_server_that_was_never_there_leaves_the_words_until_it_is(
    opened: Open, server: EmbeddingServer
) -> None:
    server.fail("reset", paths="/api/tags /api/embed /v1/embeddings")
    with opened() as memory:
        memory.feature("auth").remember_all(topical(20))
        answer = memory.feature("auth").search(QUESTION)
        assert answer
        assert len(answer.notes) == 1
        assert manifest(memory)[0].endswith(":unknown")
        assert blob_lengths(memory) == set()
    server.fail(None)
    with opened() as memory:
        answer = memory.feature("auth").search(QUESTION)
        assert answer.notes == ()
        assert None not in meanings(answer)
        assert manifest(memory)[1] == 256
        assert blob_lengths(memory) == {4 * 256}


def test_a_hung_server_is_waited_for_once(opened: Open, server: EmbeddingServer) -> None:
    with opened() as memory:
        memory.feature("auth").remember_all(topical(20))
    server.fail("hang", paths="/api/tags /api/embed /v1/embeddings")
    before = len(server.requests)
    with opened(remember_budget_s=0.5) as memory:
        for n in range(5):
            answer = memory.feature("auth").search(f"{QUESTION} {n}")
            assert answer
            assert "gave no answer within 0.5 s" in answer.notes[0]
        memory.feature("auth").remember(made("one more"))
        assert len(memory.feature("auth").recent(50)) == 21
    assert len(server.requests) == before + 1


def test_no_budget_for_indexing_still_lets_a_question_reach_the_server(opened: Open) -> None:
    with opened() as memory:
        memory.feature("auth").remember_all(topical(20))
    with opened(remember_budget_s=0.0) as memory:
        answer = memory.feature("auth").search(QUESTION)
        assert answer.notes == ()
        assert None not in meanings(answer)


def test_a_server_that_hangs_in_the_middle_of_a_rebuild_keeps_what_was_done(
    opened: Open, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_TIMEOUT_S", 0.5)
    with opened(embedder="static") as memory:
        memory.feature("auth").remember_all(topical(40))
    with opened() as memory:
        memory.store.embedder.batch = 10  # type: ignore[union-attr]
        memory.store.embedder.check()  # type: ignore[union-attr]
        server.fail("hang")
        answer = memory.feature("auth").search(QUESTION)
        assert answer
        assert "gave no answer within 0.5 s" in answer.notes[0]
    server.fail(None)
    with opened() as memory:
        assert memory.feature("auth").search(QUESTION).notes == ()
        assert verify_index(memory).ok


@pytest.mark.parametrize("fault", ["dims", "half", "nan", "infinite", "not_json", "ragged"])
def test_wrong_vectors_are_never_stored(opened: Open, server: EmbeddingServer, fault: str) -> None:
    with opened() as memory:
        memory.feature("auth").remember(made("the first", session_id="first"))
        named = manifest(memory)
        server.fail(fault)
        memory.feature("auth").remember_all(topical(20))
        answer = memory.feature("auth").search(QUESTION)
        assert answer
        assert answer.notes[0].startswith("searched by words alone")
        assert manifest(memory) == named
        assert blob_lengths(memory) == {4 * 256}
    server.fail(None)
    with opened() as memory:
        assert memory.feature("auth").search(QUESTION).notes == ()
        assert verify_index(memory).ok


# -- changed


def test_f19_another_embedder_is_a_rebuild_by_itself_and_never_a_mix(
    opened: Open, kind: str
) -> None:
    with opened(embedder="static") as memory:
        memory.feature("auth").remember_all(topical(20))
        assert manifest(memory)[0].startswith("static:")
    with opened() as memory:
        answer = memory.feature("auth").search(QUESTION)
        assert answer.notes == ()
        assert manifest(memory)[0].startswith(f"{kind}:")
        assert None not in meanings(answer)
        assert verify_index(memory).ok


def test_f19_a_model_pulled_anew_is_a_rebuild_by_itself(
    project: Path, server: EmbeddingServer
) -> None:
    def opened() -> Ralph:
        return open_ralph(project, embedder="ollama", ollama_url=server.url)

    with opened() as memory:
        memory.feature("auth").remember_all(topical(20))
    server.digests[f"{OLLAMA_MODEL}:latest"] = "sha256:ffff0000ffff0000"
    server.dims = 128
    with opened() as memory:
        answer = memory.feature("auth").search(QUESTION)
        assert answer.notes == ()
        assert None not in meanings(answer)
        assert manifest(memory)[1] == 128
        assert blob_lengths(memory) == {4 * 128}
    with opened() as memory:
        memory.feature("auth").remember(made("after it", session_id="after"))
        assert verify_index(memory).ok


def test_f19_an_index_of_the_table_before_is_rebuilt_by_itself(project: Path) -> None:
    before = ToyEmbedder("static:l2_supercat_256:64b47a2dc493:lead32", dims=256)
    with open_toy(project, before) as memory:
        memory.feature("auth").remember_all(topical(20))
        memory.feature("auth").search(QUESTION)
        assert manifest(memory) == (before.identity, 256)
    with open_ralph(project, embedder="static") as memory:
        answer = memory.feature("auth").search(QUESTION)
        assert answer.notes == ()
        assert manifest(memory) == (StaticEmbedder.identity, 256)
        rebuilt = vectors(memory)
        memory.store.index.delete()
        assert shown(memory.feature("auth").search(QUESTION)) == shown(answer)
        assert vectors(memory) == rebuilt


# -- MiniLM


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="the extra minilm is not installed")
def test_minilm_serves_a_project_with_long_records(project: Path) -> None:
    filler = "The quick brown fox jumps over the lazy dog near the river bank. " * 18
    told = "People could not sign in because their password was refused. " * 8
    with open_ralph(project, embedder="minilm") as memory:
        auth = memory.feature("auth")
        auth.remember(made(filler + told, session_id="long"))
        auth.remember(made("The bars of the chart have another colour.", session_id="chart"))
        auth.sync()
        [hit, *_] = auth.search("authentication fails at the login", min_score=0.0)
        assert hit.record.summary.startswith("The quick")
        assert status(memory).line == "RAG: active (SQLite ok, MiniLM 384d)"
        assert verify_index(memory).ok


# -- status


def test_status_names_the_server_s_model(opened: Open, kind: str) -> None:
    names = {"ollama": "Ollama nomic-embed-text", "openai": "text-embedding-3-small"}
    with opened() as memory:
        told = status(memory)
        assert told.line == f"RAG: active (SQLite ok, {names[kind]} 256d)"
        assert told.embedder.ok
        assert told.dimensions == 256
        assert told.model is not None
        assert told.model.startswith(f"{kind}:")


def test_status_of_a_server_that_is_down_says_where_and_what_to_do(
    project: Path, server: EmbeddingServer
) -> None:
    server.close()
    with open_ralph(project, embedder="ollama", ollama_url=server.url) as memory:
        told = status(memory)
    where = f"Ollama is not reachable at {server.url}"
    assert told.line == f"RAG: active by words alone ({where}; start it: ollama serve)"
    assert (told.available, told.embedder.ok, told.model) == (True, False, None)


def test_status_of_a_model_that_is_missing_says_how_to_get_it(
    project: Path, server: EmbeddingServer
) -> None:
    server.digests.clear()
    with open_ralph(project, embedder="ollama", ollama_url=server.url) as memory:
        told = status(memory)
    missing = "nomic-embed-text not found. Run: ollama pull nomic-embed-text"
    assert told.line == f"RAG: active by words alone ({missing})"
