"""A plugin for tests in a stranger's clone: `pytest_plugins = ["hostile_fixtures"]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks as POSIX has them", allow_module_level=True)

from forking import ForkServer
from hostile import Ground


@pytest.fixture(scope="session")
def built_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """One scratch home for all tests of this process: what a path was used for stays true."""
    server = ForkServer()
    try:
        yield Ground(tmp_path_factory.mktemp("hostile"), server)
    finally:
        server.close()


@pytest.fixture
def ground(built_ground: Ground) -> Ground:
    """The scratch home as it was made."""
    built_ground.reset()
    return built_ground
