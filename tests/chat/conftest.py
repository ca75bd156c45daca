"""What the tests of the chat and its workers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chat_server import ChatServer, running
from workers_ground import Clock


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A server with a language model."""
    with running() as started:
        yield started


@pytest.fixture
def clock() -> Clock:
    """A clock that goes on when it is told to."""
    return Clock()
