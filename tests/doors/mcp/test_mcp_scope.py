"""The MCP server's scope: no argument and no address leads out of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from commanding import COOKIE, LOGIN
from looping import planned
from mcp.shared.exceptions import MCPError
from remembering import state_of
from serving import Served, served

from ralph.memory.project import Focus, Project, clear_focus, set_focus
from ralph.memory.ralph import open_ralph
from ralph.plan.edit import update_feature
from ralph.plan.store import Plan

SECRET = {
    "task_id": 3,
    "task_title": "Rank by age",
    "outcome": "failure",
    "summary": "The xylophone index was sorted twice.",
    "timestamp": "2026-02-09T09:00:00Z",
    "files_touched": [{"path": "src/xylophone.py", "action": "created"}],
}


@pytest.fixture
def ids(root: Path) -> dict[str, str]:
    """A record of the own feature and one of another."""
    with open_ralph(root) as ralph:
        own = ralph.feature("auth").remember_all([LOGIN, COOKIE])[1].id
        return {"own": own, "other": ralph.feature("search").remember(SECRET).id}


@pytest.fixture
def server(root: Path, ids: dict[str, str]) -> Iterator[Served]:
    with served(root, "--feature", "auth", "--task", "1", "--review") as open_server:
        yield open_server


# -- one feature


def test_another_features_record_is_not_found_by_any_part_of_its_id(
    server: Served, ids: dict[str, str]
) -> None:
    assert ids["own"] in server.told("get_memory", id=ids["own"])
    unknown = server.refused("get_memory", id="ffffffff").replace("ffffffff", "ID")
    for n in (4, 8, 36):
        said = server.refused("get_memory", id=ids["other"][:n])
        assert said.replace(ids["other"][:n], "ID") == unknown
    assert "expected str of length >= 4" in server.refused("get_memory", id="")


def test_no_reading_tool_shows_anything_of_another_feature(server: Served) -> None:
    asked: dict[str, dict[str, Any]] = {
        "search_feature_memory": {"query": "xylophone index sorted twice", "min_score": 0},
        "get_recent_iterations": {"count": 50},
        "get_feature_files": {},
        "get_failed_attempts": {"task_id": 3},
    }
    for name, arguments in asked.items():
        text = server.told(name, **arguments)
        assert "sorted twice" not in text.replace('"xylophone index sorted twice"', "")
        assert "xylophone.py" not in text


def test_another_features_task_is_refused_and_untouched(server: Served, root: Path) -> None:
    before = Plan(root).raw("tasks")
    for task in (3, "3"):
        said = server.refused("update_task", task_id=task, status="done", comment="x")
        assert "task 3 does not belong to the feature 'auth'" in said
        assert "does not belong" in server.refused("append_learning", text="abc", task_id=task)
    # Nor is it named where the feature's own are.
    assert server.refused("update_task", task_id=99, status="done").endswith("There are: 1, 2.")
    assert Plan(root).raw("tasks") == before


@pytest.mark.parametrize("argument", ["feature", "name", "project", "path", "home"])
def test_no_tool_takes_an_argument_that_names_another_place(server: Served, argument: str) -> None:
    for name, tool in server.tools().items():
        assert argument not in tool.input_schema["properties"]
        assert f"there is no argument `{argument}`" in server.refused(name, **{argument: "search"})


def test_a_learning_of_another_feature_cannot_be_reviewed_or_removed(
    server: Served, root: Path
) -> None:
    from ralph.plan import learnings

    [other] = [learnings.add(Plan(root), "search", "Ages are in days.").learning]
    for name in ("review_learning", "remove_learning"):
        assert "no learning" in server.refused(name, id=other.id)
        assert "no learning" in server.refused(name, id=other.text)
    assert Plan(root).feature("search").learnings == (other,)


# -- resources


@pytest.fixture
def knowledge(root: Path, tmp_path: Path) -> Path:
    """A project with knowledge files, and things beside them that nobody may read."""
    docs = root / "docs"
    docs.mkdir()
    (docs / "session rules.md").write_text("# Sessions\nend after a day\n", encoding="utf-8")
    (docs / "ünï%41.txt").write_text("percent", encoding="utf-8")
    (docs / "private.md").write_text("SECRET", encoding="utf-8")
    (docs / "search.md").write_text("SECRET of search", encoding="utf-8")
    (docs / "data.bin").write_bytes(b"PK\0\1\2")
    (docs / "large.txt").write_text("a" * 99_999 + "é" + "b" * 50_000, encoding="utf-8")
    (tmp_path / "outside.md").write_text("SECRET", encoding="utf-8")
    (docs / "link.md").symlink_to(tmp_path / "outside.md")
    (docs / "up").symlink_to(tmp_path)
    (docs / "inner.md").symlink_to(docs / "session rules.md")
    own = ["session rules.md", "ünï%41.txt", "data.bin", "large.txt", "gone.md", "link.md"]
    own += ["up/outside.md", "inner.md"]
    paths = [f"docs/{name}" for name in own]
    update_feature(Plan(root), "auth", {"knowledge_paths": [*paths, "docs"]})
    update_feature(Plan(root), "search", {"knowledge_paths": ["docs/search.md"]})
    return root


def inside(text: str) -> str:
    """What stands in the fence of a resource, which has a line before it and none after it."""
    frame, opening, rest = text.partition("<ralph-memory>\n")
    assert (frame.count("\n"), bool(opening)) == (1, True)
    assert rest.endswith("\n</ralph-memory>\n")
    return rest.removesuffix("\n</ralph-memory>\n")


def test_knowledge_files_are_listed_with_their_addresses_and_read(knowledge: Path) -> None:
    with served(knowledge, "--feature", "auth") as server:
        found = server.resources()
        assert list(found) == [
            "feature://auth/files/docs/session%20rules.md",
            "feature://auth/files/docs/%C3%BCn%C3%AF%2541.txt",
            "feature://auth/files/docs/data.bin",
            "feature://auth/files/docs/large.txt",
            "feature://auth/files/docs/inner.md",
        ]
        first = found["feature://auth/files/docs/session%20rules.md"]
        assert (first.name, first.mime_type) == ("docs/session rules.md", "text/markdown")
        assert first.size == 27
        assert inside(server.read(first.uri)) == "# Sessions\nend after a day"
        percent = server.read("feature://auth/files/docs/%C3%BCn%C3%AF%2541.txt")
        assert inside(percent) == "percent"
        inner = server.read("feature://auth/files/docs/inner.md")
        assert inside(inner).startswith("# Sessions")


def test_a_large_file_is_cut_with_a_note_and_a_binary_one_refused(knowledge: Path) -> None:
    with served(knowledge, "--feature", "auth") as server:
        text = server.read("feature://auth/files/docs/large.txt")
        cut = "a" * 99_999 + "\n\n[cut here: these are the first 100000 of 150001"
        assert inside(text).startswith(cut)
        assert "open docs/large.txt in the project for the rest" in text
        with pytest.raises(MCPError, match=r"docs/data\.bin is not a text"):
            server.read("feature://auth/files/docs/data.bin")


@pytest.mark.parametrize(
    "uri",
    [
        "feature://auth/files/docs/private.md",
        "feature://auth/files/docs/gone.md",
        "feature://auth/files/docs/link.md",
        "feature://auth/files/docs/up/outside.md",
        "feature://auth/files/docs",
        "feature://auth/files/docs/",
        "feature://auth/files/",
        "feature://auth/files/docs/../docs/session%20rules.md",
        "feature://auth/files/docs/./session%20rules.md",
        "feature://auth/files/../../outside.md",
        "feature://auth/files/%2e%2e/outside.md",
        "feature://auth/files/..%2foutside.md",
        "feature://auth/files/%252e%252e%252foutside.md",
        "feature://auth/files/docs%5c..%5c..%5coutside.md",
        "feature://auth/files//etc/passwd",
        "feature://auth/files/%2Fetc%2Fpasswd",
        "feature://auth/files/C:%5Cwindows%5Cwin.ini",
        "feature://auth/files/docs/session%20rules.md%00.txt",
        "feature://auth/files/.ralph/db/features.yaml",
        "feature://search/files/docs/search.md",
        "feature://auth/files/docs/search.md",
        "feature://auth%2Ffiles/docs/session%20rules.md",
        "feature://AUTH/files/docs/session%20rules.md",
        "file:///etc/passwd",
        "FEATURE://auth/files/docs/session%20rules.md",
        "auth/files/docs/session%20rules.md",
        "",
    ],
)
def test_nothing_but_the_listed_files_can_be_read(knowledge: Path, uri: str) -> None:
    with (
        served(knowledge, "--feature", "auth") as server,
        pytest.raises(MCPError, match="there is no resource"),
    ):
        server.read(uri)


def test_a_link_that_turns_outwards_later_is_refused_then(knowledge: Path, tmp_path: Path) -> None:
    uri = "feature://auth/files/docs/inner.md"
    with served(knowledge, "--feature", "auth") as server:
        assert server.read(uri)
        (knowledge / "docs" / "inner.md").unlink()
        (knowledge / "docs" / "inner.md").symlink_to(tmp_path / "outside.md")
        with pytest.raises(MCPError, match="there is no resource"):
            server.read(uri)


def test_a_file_that_would_never_end_is_not_opened(knowledge: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("there are no FIFOs")
    os.mkfifo(knowledge / "docs" / "pipe.md")
    update_feature(Plan(knowledge), "auth", {"knowledge_paths": ["docs/pipe.md"]})
    with served(knowledge, "--feature", "auth") as server:
        assert server.resources() == {}
        with pytest.raises(MCPError, match="there is no resource"):
            server.read("feature://auth/files/docs/pipe.md")


def test_a_feature_with_any_name_has_an_address(tmp_path: Path) -> None:
    name = "pay & ship: größe/ok?#1"
    features = f"features:\n- name: '{name}'\n  knowledge_paths: [notes.md]\n"
    root = planned(tmp_path / "odd", features=features, tasks="")
    (root / "notes.md").write_text("hello", encoding="utf-8")
    with served(root, "--feature", name) as server:
        [uri] = server.resources()
        assert uri == f"feature://{quote(name, safe='')}/files/notes.md"
        assert inside(server.read(uri)) == "hello"


def test_servers_without_files_have_no_resources(root: Path) -> None:
    for words in (("--planning",), ("--conversations",)):
        with served(root, *words) as server:
            assert server.client.server_capabilities.resources is None


# -- a person's own work


def test_the_focus_is_followed_from_call_to_call(knowledge: Path, ids: dict[str, str]) -> None:
    project = Project(knowledge)
    with served(knowledge, "--focus") as server:
        wide = server.told("get_recent_iterations")
        assert "of this project" in wide
        assert "feature auth" in wide
        assert "feature search" in wide
        assert ids["other"] in server.told("get_memory", id=ids["other"])
        assert len(server.resources()) == 6

        set_focus(project, Focus("auth", 1))
        assert "sorted twice" not in server.told("get_recent_iterations")
        # A person's own session sees the whole project; the focus narrows the feature's tools.
        assert ids["other"] in server.told("get_memory", id=ids["other"])
        assert "Task 1 (Add the login form) is done" in server.told("update_task", status="done")
        assert "does not belong" in server.refused("update_task", task_id=3, status="done")
        assert len(server.resources()) == 5

        set_focus(project, Focus("search"))
        assert "sorted twice" in server.told("search_feature_memory", query="xylophone index")
        assert "no task given" in server.refused("update_task", status="done")

        clear_focus(project)
        assert "no feature is in focus" in server.refused("append_learning", text="abc def")
        assert "no feature is in focus" in server.refused("update_feature", description="abc")
        assert "Task 3 (Rank by age) is done" in server.told(
            "update_task", task_id=3, status="done"
        )


def test_all_features_are_searched_and_listed_as_one(root: Path, ids: dict[str, str]) -> None:
    with served(root, "--focus") as server:
        text = server.told("search_feature_memory", query="session cookie refused", min_score=0.1)
        assert f"[{ids['own'][:8]}] iteration 2, the latest | 2026-02-08 | failure" in text
        assert "feature auth" in text
        assert "feature search" in server.told("get_feature_files")
        assert server.told("get_failed_attempts").startswith("2 failed attempts of this project")


def test_a_focus_that_cannot_be_read_is_told(root: Path) -> None:
    cache = state_of(root)
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "focus.json").write_text("{", encoding="utf-8")
    with served(root, "--focus") as server:
        assert "the focus cannot be read" in server.refused("get_recent_iterations")


def test_in_a_folder_that_is_no_project_there_is_nothing_to_get_in_the_way(tmp_path: Path) -> None:
    with served(tmp_path, "--focus") as server:
        assert server.tools() == {}
        assert server.resources() == {}
        assert server.client.instructions is None
        with pytest.raises(MCPError, match="there is no tool 'update_task'; there are none here"):
            server.call("update_task", status="done")
        # A folder may become a project while the server runs.
        planned(tmp_path)
        assert "get_recent_iterations" in server.tools()
