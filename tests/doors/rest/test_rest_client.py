"""A project on a server is opened by its address: the same calls, the same values."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
from browsing import lived_in
from places import ROOT

from ralph import open_ralph
from ralph.config import home_folder, load
from ralph.errors import BadInput, JournalDown, NotFound
from ralph.memory.project import need_project
from ralph.memory.ralph import Ralph
from ralph.memory.remote import RemoteRalph
from ralph.memory.tokens import Right, Tokens

SOLUTION = "Run `alembic upgrade head` before pytest."


@pytest.fixture
def served(tmp_path: Path, home: Path) -> Iterator[tuple[Path, str]]:
    """A project whose server runs in a process, and its address."""
    root = lived_in(tmp_path / "shop")
    words = [sys.executable, "-m", "ralph", "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            lines = iter(running.stdout.readline, "")
            told = next(line for line in lines if line.startswith("API: "))
            yield root, told.removeprefix("API: ").partition("/v1/")[0] + "/projects/shop"
        finally:
            running.kill()


def token_for(root: Path, right: Right) -> str:
    home = home_folder()
    project = need_project(root, home=home)
    tokens = Tokens(home, load(home=home, project_file=project.settings_file).settings)
    return tokens.create("client", project.id, right)[1]


def opened(served: tuple[Path, str], right: Right = "admin") -> Ralph:
    root, address = served
    return open_ralph(address, token=token_for(root, right))


def test_what_a_program_does_with_a_folder_it_does_with_a_server(
    served: tuple[Path, str],
) -> None:
    with opened(served) as there, open_ralph(served[0]) as here:
        saved = there.feature("auth").remember(
            {"task_title": "Build the captcha", "outcome": "failure", "summary": "Wrong shape."}
        )
        assert saved.record == here.get(saved.id).record
        note, fresh = there.remember("Sessions expire after 15 minutes")
        assert fresh
        assert not there.remember("Sessions expire after 15 minutes")[1]
        talk = there.conversations.start(title="Debug timeouts")
        asked = "Why does the cache stampede?"
        told = there.conversations.exchange(talk, user=asked, assistant="It has no lock.")
        assert there.conversations.exchanges(talk)[0].id == told.record.id
        for question in ("login form validation", "how long do sessions live?", asked):
            # How a score came about stays on the server.
            own = [msgspec.structs.replace(hit, parts=None) for hit in here.search(question)]
            assert list(there.search(question)) == own != []
        assert there.recent(5) == here.recent(5)
        assert there.feature("auth").recent() == here.feature("auth").recent() != []
        for memory in (there, here, there.feature("auth"), here.feature("auth")):
            with pytest.raises(BadInput, match="count must be at least 1, not 0"):
                memory.recent(0)
        assert there.feature("auth").failed_attempts() == here.feature("auth").failed_attempts()
        assert there.feature("auth").files() == here.feature("auth").files()
        assert there.conversations.related(asked) == here.conversations.related(asked)
        assert there.get(note.id) == here.get(note.id)


def test_an_orchestrator_uses_knowledge_on_a_server(served: tuple[Path, str]) -> None:
    with opened(served, "orchestrator") as there, open_ralph(served[0]) as here:
        entry = {
            "entry_type": "failure_solution",
            "failure_description": "The tests fail in CI",
            "error_message": "OperationalError: no such table: users",
            "solution_steps": SOLUTION,
        }
        saved = there.knowledge.capture(entry)
        assert saved.fresh
        there.knowledge.checkpoint()
        asked = ("The tests fail in CI", "OperationalError: no such table: users")
        [pattern] = there.knowledge.query_for_failure(*asked)
        assert pattern == here.knowledge.query_for_failure(*asked)[0]
        assert pattern.solution == SOLUTION
        context = there.knowledge.context_for_task("The tests fail in CI: no such table: users")
        assert SOLUTION in context.block
        for name in context.patterns:
            assert there.knowledge.report_outcome(name, worked=True, task="ci-1")
        [after] = there.knowledge.patterns()
        assert (after.worked, after) == (1, here.knowledge.patterns()[0])


def test_the_readmes_calls_work_with_an_address(served: tuple[Path, str], tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    root, address = served
    opening = f'open_ralph("{address}", token="{token_for(root, "admin")}")'
    assert 'open_ralph("path/to/project")' in code
    code = code.replace('open_ralph("path/to/project")', opening)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Sessions expire after 15 minutes" in ran.stdout


def test_a_feature_of_any_name_is_reached(served: tuple[Path, str]) -> None:
    with opened(served) as there:
        for name in (
            "ui/forms",
            "../../up",
            "a b",
            "100%",
            "50%2F50",
            "schlüssel?#",
            "x/learnings",
        ):
            there.feature(name).remember({"summary": "Did it.", "outcome": "failure"})
            assert len(there.feature(name).iterations()) == 1
            assert len(there.feature(name).failed_attempts()) == 1
            assert there.feature(name).files() == []
        assert {"ui/forms", "100%", "x/learnings"} <= {one.name for one in there.features()}
    assert not list(served[0].parent.rglob("up*"))


def test_the_name_of_a_project_in_an_address_may_be_quoted(served: tuple[Path, str]) -> None:
    root, address = served
    quoted = address.replace("/" + root.name, "/%" + f"{ord(root.name[0]):02x}{root.name[1:]}")
    with open_ralph(quoted, token=token_for(root, "read")) as there:
        assert there.recent(1)


def test_a_program_s_token_may_be_in_the_environment(
    served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, address = served
    monkeypatch.setenv("RALPH_TOKEN", token_for(root, "read"))
    with open_ralph(address) as there:
        assert there.recent(1)
    with pytest.raises(BadInput, match="token is not valid"):
        open_ralph(address, token="ralph_wrong").recent(1)


def test_what_a_server_refuses_is_told(served: tuple[Path, str]) -> None:
    root, address = served
    with opened(served, "read") as there:
        with pytest.raises(BadInput, match="scope write"):
            there.remember("Not by me")
        with pytest.raises(NotFound, match="no record"):
            there.get("0" * 16)
        with pytest.raises(BadInput, match="too short"):
            there.search("x")
        with pytest.raises(BadInput, match="unknown field `feature_name`"):
            there.search("login form", feature_name="auth")  # type: ignore[call-arg]
        with pytest.raises(BadInput, match="where the server runs"):
            there.store  # noqa: B018 - what only a folder has
    with pytest.raises(BadInput, match="token is not valid"):
        open_ralph(address, token="ralph_wrong").search("login form")
    with pytest.raises(BadInput, match="needs a token"):
        open_ralph(address)
    with pytest.raises(BadInput, match="does not name a project"):
        open_ralph("http://127.0.0.1:1/shop", token="x")
    # The address of the REST calls, which `ralph serve` prints, too.
    with pytest.raises(BadInput, match="does not name a project"):
        open_ralph("http://127.0.0.1:1/v1/projects/shop", token="x")
    with pytest.raises(JournalDown, match="not reachable"):
        open_ralph("http://127.0.0.1:9/projects/shop", token="x").search("login form")
    with pytest.raises(NotFound, match="no such project"):
        open_ralph(f"{address}2", token=token_for(root, "read")).search("login form")


def test_the_status_of_a_server_that_hangs_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ralph.memory.remote._STATUS_TIMEOUT_S", 0.25)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/projects/shop"
        with (
            open_ralph(address, token="ralph_any") as ralph,
            pytest.raises(JournalDown, match=r"no answer within 0\.25 s"),
        ):
            cast(RemoteRalph, ralph).raw_status()


def test_only_what_a_memory_here_has_is_said_to_need_its_files() -> None:
    with open_ralph("http://127.0.0.1:9/projects/shop", token="ralph_any") as ralph:
        with pytest.raises(BadInput, match="needs the project's own files"):
            _ = ralph.store
        with pytest.raises(BadInput, match="needs the project's own files"):
            _ = ralph.conversations.stream
        with pytest.raises(AttributeError, match="no attribute 'serach'"):
            _ = ralph.serach  # type: ignore[attr-defined]
