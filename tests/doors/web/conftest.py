"""What the tests of the page share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Browser, lived_in, served_page


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a plan and a history."""
    return lived_in(tmp_path / "project")


@pytest.fixture
def browser(root: Path) -> Iterator[Browser]:
    """A browser that was let in."""
    with served_page(root) as opened:
        yield opened
