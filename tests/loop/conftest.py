"""What the tests of the loop and its agents share."""

from __future__ import annotations

from pathlib import Path

import pytest
from looping import Loop, planned


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    """A loop in a project with a plan."""
    return Loop(planned(tmp_path / "project"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where one agent runs."""
    place = tmp_path / "run"
    place.mkdir()
    return place
