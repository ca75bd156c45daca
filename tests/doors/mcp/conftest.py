"""What the tests of the MCP server share."""

from __future__ import annotations

from pathlib import Path

import pytest
from looping import planned


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a plan."""
    return planned(tmp_path / "project")
