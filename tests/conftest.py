"""What every test gets: a home of its own, so that none ever touches the real one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from remembering import ToyEmbedder, made, open_toy

from ralph.memory.project import Project
from ralph.memory.ralph import Ralph
from ralph.records.iteration import Iteration

# Machines differ in speed; a slow one is no failure. Failing examples are printed, not kept. What
# lands is judged by the same examples every time; everybody else's runs go on looking.
hypothesis_settings.register_profile(
    "ralph", deadline=None, database=None, derandomize=bool(os.environ.get("CI"))
)
hypothesis_settings.load_profile("ralph")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what belongs to no project is kept, for this test and its child processes."""
    place = tmp_path_factory.mktemp("home")
    for name in os.environ:
        if name.startswith("RALPH_") and name != "RALPH_KILL_ROUNDS":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("USERPROFILE", str(place))
    monkeypatch.setenv("RALPH_HOME", str(place / ".ralph"))
    # Git must not depend on who runs the tests.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Test")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "test@example.com")
    return place / ".ralph"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The root of a project that `init` has made."""
    root = tmp_path / "project"
    root.mkdir()
    Project(root).init()
    return root


@pytest.fixture
def toy() -> ToyEmbedder:
    """An embedder that is instant, deterministic and counts what it embeds."""
    return ToyEmbedder()


@pytest.fixture
def memory(project: Path, toy: ToyEmbedder) -> Iterator[Ralph]:
    """The project, opened with the toy embedder."""
    with open_toy(project, toy) as opened:
        yield opened


@pytest.fixture
def iteration() -> Callable[..., Iteration]:
    """Makes an iteration from a summary and any other fields."""
    return made
