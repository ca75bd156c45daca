"""What the tests with real clients share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from clients import World
    from codex import Codex


@pytest.fixture
def codex(tmp_path: Path) -> Iterator[Codex]:
    """Codex in a scratch world."""
    from clients import client, worlds  # not there on Windows
    from codex import SANDBOX, Codex

    client("codex")
    was_there = SANDBOX.exists()
    for world in worlds(tmp_path):
        yield Codex(world)
        if not was_there:
            with contextlib.suppress(OSError):  # it was not made, or somebody else's Codex uses it
                SANDBOX.rmdir()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scratch world for clients."""
    from clients import worlds

    yield from worlds(tmp_path)
