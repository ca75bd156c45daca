"""What the tests of the Qdrant index share: stores, and memories that keep their index there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from qdrant_server import running
from remembering import ToyEmbedder, open_toy

from ralph.index.qdrant import QdrantConnection, QdrantStore
from ralph.index.qdrant_start import CollectionNames
from ralph.index.sync import Index
from ralph.memory.ralph import Ralph

# Read before a test's own environment takes it away.
REAL_URL = os.environ.get("RALPH_TEST_QDRANT_URL")
REAL_KEY = os.environ.get("RALPH_TEST_QDRANT_API_KEY")


@contextmanager
def local_server() -> Iterator[QdrantConnection]:
    """A server on loopback for as long as the block lasts."""
    with running() as server:
        yield QdrantConnection(server.url, timeout_s=30.0)


@contextmanager
def engine_server() -> Iterator[QdrantConnection]:
    """The same server with Qdrant's real engine behind it."""
    from qdrant_engine import QdrantEngine  # it is large, and few tests need it

    engine = QdrantEngine()
    try:
        with running(engine) as server:
            yield QdrantConnection(server.url, timeout_s=30.0)
    finally:
        engine.close()


def real_server() -> QdrantConnection:
    """The server that the environment names."""
    if REAL_URL is None:
        pytest.skip("RALPH_TEST_QDRANT_URL names no server")
    return QdrantConnection(REAL_URL, key=REAL_KEY or "", timeout_s=30.0)


@contextmanager
def qdrant_store(server: QdrantConnection) -> Iterator[QdrantStore]:
    """A store that nobody else has, gone afterwards."""
    store = QdrantStore(server, CollectionNames(str, f"test{uuid.uuid4().hex[:8]}"))
    try:
        yield store
    finally:
        store.drop()


def index_on(
    server: QdrantConnection, folder: Path, place: str, lock_timeout_s: float = 2.0
) -> Index:
    """An index on this server, whose lock lies in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    store = QdrantStore(server, CollectionNames(str, place))
    return Index(lambda: store, lambda: folder / "qdrant", lock_timeout_s=lock_timeout_s)


def on(server: QdrantConnection, memory: Ralph, place: str = "test") -> Index:
    """Let a memory keep its index on this server."""
    memory.store.index = index_on(server, memory.project.cache, place)
    return memory.store.index


def open_served(project: Path, url: str, embedder: ToyEmbedder | None = None, **more: Any) -> Ralph:
    """A project whose index is on the server at this URL, with a toy embedder."""
    return open_toy(project, embedder, qdrant_url=url, **more)
