"""What the tests of everything together share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from postgres import Server

if TYPE_CHECKING:
    from hostile import Ground


@pytest.fixture(scope="session")
def built_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """One scratch home for all tests of this process: what a path was used for stays true."""
    if sys.platform == "win32":
        pytest.skip("links, pipes and forks as POSIX has them")
    from forking import ForkServer
    from hostile import Ground

    server = ForkServer()
    try:
        yield Ground(tmp_path_factory.mktemp("hostile"), server)
    finally:
        server.close()


@pytest.fixture
def ground(built_ground: Ground) -> Ground:
    """The scratch home of a person with a stranger's clone in it, as it was made."""
    built_ground.reset()
    return built_ground


@pytest.fixture
def server(own_postgres: Server) -> Server:
    """The server that keeps the journals."""
    return own_postgres
