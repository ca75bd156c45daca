"""What the tests of memory share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from importing import Kept
from knowing import opened

from ralph.memory.knowledge import Knowledge


@pytest.fixture
def kept(home: Path) -> Kept:
    """What memory has of the sessions that were brought in."""
    return Kept(home)


@pytest.fixture
def knowledge(project: Path) -> Iterator[Knowledge]:
    """What the project knows, and shares with others."""
    with opened(project) as open_knowledge:
        yield open_knowledge
