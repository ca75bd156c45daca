"""What every test gets: a home of its own, so that none ever touches the real one."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from commanding import Line
from examples import FULL, QUICK
from hypothesis import settings as hypothesis_settings
from postgres import GIVEN_URL, Server, own_server, with_database
from remembering import ToyEmbedder, made, open_toy

from ralph.memory.project import Project
from ralph.memory.ralph import Ralph
from ralph.records.iteration import Iteration

if TYPE_CHECKING:
    from qdrant_server import QdrantServer

# Machines differ in speed; a slow one is no failure. Failing examples are printed, not kept. What
# lands is judged by the same examples every time; everybody else's runs go on looking.
# `--hypothesis-profile quick` tries fewer: `scripts/test` without `--all` does.
for _profile, _examples in (("ralph", FULL), ("quick", QUICK)):
    hypothesis_settings.register_profile(
        _profile,
        deadline=None,
        database=None,
        derandomize=bool(os.environ.get("CI")),
        max_examples=_examples,
    )
hypothesis_settings.load_profile("ralph")

# A background job ignores Ctrl-C and one under nohup a hang-up, and so would every process that a
# test starts in order to stop it: what is ignored is inherited, and what is handled is not.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# People read local times: what a test expects is told in this zone, wherever it runs.
os.environ["TZ"] = "UTC"
if sys.platform != "win32":
    time.tzset()

# Fixtures that start a real client or a real database: what uses them takes long.
_CLIENTS = {"codex", "world"}
_DATABASES = {"own_postgres", "postgres"}
_CLIENT_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever starts such a program need not say that it is slow."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if names & (_CLIENTS | _DATABASES):
            item.add_marker(pytest.mark.slow)
        if names & _CLIENTS:
            item.add_marker(pytest.mark.timeout(_CLIENT_TIMEOUT_S))


@pytest.fixture(scope="session", autouse=True)
def _tokenizers() -> Iterator[None]:
    """MiniLM's tokenizer is loaded once and not for every memory that a test opens."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("tokenizers") is not None:
            import tokenizers

            from_file = functools.cache(tokenizers.Tokenizer.from_file)
            patch.setattr(tokenizers, "Tokenizer", SimpleNamespace(from_file=from_file))
        yield


@pytest.fixture(scope="session", autouse=True)
def _shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ralph's home for what tests share: never that of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RALPH_HOME", str(tmp_path_factory.mktemp("shared-home") / ".ralph"))
        yield


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


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory without an embedder: it starts faster, and answers by words alone."""
    monkeypatch.setenv("RALPH_EMBEDDER", "none")


@pytest.fixture
def ralph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path
) -> Line:
    """The command line in the project."""
    monkeypatch.chdir(project)
    return Line(capsys, monkeypatch)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL that all tests of this process share."""
    if GIVEN_URL:
        yield GIVEN_URL
        return
    with own_server() as server:
        yield server.url


@pytest.fixture
def own_postgres() -> Iterator[Server]:
    """A PostgreSQL that may be stopped and started again."""
    with own_server() as server:
        yield server


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The address of an empty database that nobody else uses."""
    import psycopg

    name = f"ralph_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield with_database(postgres, name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def qdrant() -> Iterator[QdrantServer]:
    """A server that speaks Qdrant's interface."""
    from qdrant_server import running  # its client takes seconds to load

    with running() as started:
        yield started
