"""What the tests of the index share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from qdrant_server import QdrantServer


@pytest.fixture
def server(qdrant: QdrantServer) -> QdrantServer:
    """The server that keeps the index."""
    return qdrant
