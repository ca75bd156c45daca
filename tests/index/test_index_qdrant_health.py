"""The one line about memory in each situation that the source documents name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from embedding_server import EmbeddingServer
from embedding_server import running as embedding
from qdrant_server import KEY, VERSION, QdrantServer, running
from remembering import topical

from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.status import RagStatus, status


@pytest.fixture
def qdrant() -> Iterator[QdrantServer]:
    with running() as started:
        yield started


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """With vectors as long as those of the model that the source documents name."""
    with embedding() as started:
        shorter = started.vectors

        def vectors(texts: list[str], model: str, dims: int | None) -> list[list[float]]:
            return [row + [0.0] * (768 - len(row)) for row in shorter(texts, model, dims)]

        monkeypatch.setattr(started, "vectors", vectors)
        yield started


def opened(project: Path, qdrant: str, ollama: str) -> Ralph:
    return open_ralph(project, qdrant_url=qdrant, embedder="ollama", ollama_url=ollama)


def told(project: Path, qdrant: str, ollama: str) -> RagStatus:
    with opened(project, qdrant, ollama) as memory:
        return status(memory)


def gone() -> str:
    """The address of a server that was there a moment ago."""
    with running() as server:
        return server.url


def test_both_run(project: Path, qdrant: QdrantServer, ollama: EmbeddingServer) -> None:
    found = told(project, qdrant.url, ollama.url)
    assert found.line == "RAG: active (Qdrant ok, Ollama nomic-embed-text 768d)"
    assert found.available
    assert found.index.ok
    assert found.embedder.ok
    assert found.dimensions == 768


def test_qdrant_is_down(project: Path, ollama: EmbeddingServer) -> None:
    url = gone()
    found = told(project, url, ollama.url)
    assert found.line.startswith(f"RAG: off (Qdrant is not reachable at {url}; Start it")
    assert not found.available
    assert found.embedder.ok


def test_ollama_is_down(project: Path, qdrant: QdrantServer) -> None:
    url = gone()
    found = told(project, qdrant.url, url)
    assert found.line == (
        f"RAG: active by words alone (Ollama is not reachable at {url}; start it: ollama serve)"
    )
    assert found.available
    assert found.index.detail == "Qdrant ok"


def test_both_are_down(project: Path) -> None:
    found = told(project, gone(), gone())
    assert found.line.startswith("RAG: off (Qdrant is not reachable")
    assert not found.available
    assert not found.embedder.ok


def test_the_model_is_missing(project: Path, qdrant: QdrantServer, ollama: EmbeddingServer) -> None:
    ollama.digests.clear()
    found = told(project, qdrant.url, ollama.url)
    pull = "nomic-embed-text not found. Run: ollama pull nomic-embed-text"
    assert found.line == f"RAG: active by words alone ({pull})"


def test_a_collection_that_is_missing_is_made_by_the_first_write(
    project: Path, qdrant: QdrantServer, ollama: EmbeddingServer
) -> None:
    with opened(project, qdrant.url, ollama.url) as memory:
        memory.feature("auth").remember_all(topical(5))
        for one in qdrant.client.get_collections().collections:
            qdrant.client.delete_collection(one.name)
        before = status(memory)
        assert before.line.startswith("RAG: active (Qdrant ok")
        assert [(one.journalled, one.indexed) for one in before.features] == [(5, 0)]
        memory.feature("auth").remember_all(topical(1, start=5))
        memory.feature("auth").sync()
        [after] = status(memory).features
    assert (after.journalled, after.indexed, after.waiting, after.current) == (6, 6, 0, True)


def test_an_old_server_and_one_that_wants_a_key_are_told(
    project: Path, qdrant: QdrantServer, ollama: EmbeddingServer
) -> None:
    qdrant.version = "1.7.4"
    old = told(project, qdrant.url, ollama.url).line
    assert old.startswith(f"RAG: off (Qdrant is too old (1.7.4) at {qdrant.url}; Update it to 1.10")
    qdrant.version, qdrant.key = VERSION, KEY
    locked = told(project, qdrant.url, ollama.url).line
    assert locked.startswith(f"RAG: off (Qdrant asks for a key (401) at {qdrant.url}; Set RALPH_")


def test_looking_asks_the_server_anew_whatever_was_found_before(
    project: Path, qdrant: QdrantServer, ollama: EmbeddingServer
) -> None:
    with opened(project, qdrant.url, ollama.url) as memory:
        qdrant.fail("500")
        assert status(memory).line.startswith("RAG: off (Qdrant answers with 500")
        qdrant.fail(None)
        assert status(memory).line.startswith("RAG: active (Qdrant ok")
