"""Somebody else's MCP client lists and calls every tool, in both eras of the protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clients import World, client, ralph
from looping import MARK
from remembering import made

from ralph.memory.ralph import Ralph, open_ralph
from ralph.plan.store import Plan
from ralph.records.iteration import FileTouched

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

FEATURES = """\
version: 1
features:
- name: export
  description: People download their articles as one file. The export is made by make, lies in
    build/export.csv and has one line an article, newest first.
  knowledge_paths: [docs/export.md]
  learnings:
  - text: The csv module writes None as an empty cell.
    source: agent
  - text: The file is written in one go.
    source: agent
"""
TASKS = """\
version: 1
tasks:
- id: 1
  feature: export
  title: Make the export
  status: pending
"""
PROSE = "Articles are found by their words. The newest come first, with the words marked in them."
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


class Called(msgspec.Struct, frozen=True):
    """A tool, what it is given, and a part of what it must answer."""

    tool: str
    given: dict[str, Any]
    answers: str


class Inspector:
    """The MCP Inspector in a scratch world, talking to our server for one project."""

    def __init__(self, world: World, root: Path, era: str) -> None:
        self._world = world
        self._root = root
        self._words = ["--format", "json", "--protocol-era", era, "--connect-timeout", "120000"]
        # It hands on little of its environment.
        for name in ("RALPH_HOME", MARK):
            self._words += ["-e", f"{name}={world.environ[name]}"]
        self.program = client("mcp-inspector")

    def ask(self, mode: str, method: str, *more: str) -> dict[str, Any]:
        """One request to a server that is started for it."""
        server = ralph("mcp", "--project", self._root, *mode.split())
        words = [self.program, "--cli", *server, "--method", method, *more, *self._words]
        said = self._world.run(words, cwd=self._root).stdout
        result: dict[str, Any] = json.loads(said)["result"]
        return result

    def calls_all(self, mode: str, *calls: Called) -> None:
        """The server of this mode has these tools and no other, and each answers so."""
        tools = self.ask(mode, "tools/list", "--strict")["tools"]
        assert sorted(tool["name"] for tool in tools) == sorted(call.tool for call in calls)
        for tool in tools:
            assert tool["description"]
            assert isinstance(tool["annotations"]["readOnlyHint"], bool)
        for call in calls:
            given = json.dumps(call.given)
            result = self.ask(
                mode, "tools/call", "--tool-name", call.tool, "--tool-args-json", given
            )
            assert not result.get("isError")
            [content] = result["content"]
            assert call.answers in content["text"], call.tool


@pytest.fixture
def root(world: World) -> Path:
    root = world.project(FEATURES, TASKS)
    (root / "docs").mkdir()
    (root / "docs" / "export.md").write_text("One line an article.\n", encoding="utf-8")
    return root


@pytest.fixture
def inspector(world: World, root: Path, era: str) -> Inspector:
    return Inspector(world, root, era)


@pytest.fixture
def memory(root: Path) -> Iterator[Ralph]:
    with open_ralph(root, embedder="none") as opened:
        yield opened


@ERAS
def test_it_calls_every_tool_of_one_feature_and_its_review(
    inspector: Inspector, memory: Ralph, root: Path
) -> None:
    failed = made(
        "Make knows no target export.",
        feature="export",
        task_id=1,
        outcome="failure",
        files_touched=(FileTouched("Makefile", "read"),),
    )
    record = memory.feature("export").remember(failed)
    inspector.calls_all(
        "--feature export --task 1 --review",
        Called("search_feature_memory", {"query": "target export"}, "Make knows no target"),
        Called("get_recent_iterations", {"count": 3}, "Make knows no target"),
        Called("get_feature_files", {}, "Makefile"),
        Called("get_failed_attempts", {"task_id": 1}, "Make knows no target"),
        Called("get_memory", {"id": record.id[:8]}, "Make knows no target"),
        Called("remember", {"text": "The csv goes out at six."}, "Saved as note"),
        Called("update_task", {"status": "in_progress", "comment": "begun"}, "is in_progress"),
        Called("append_learning", {"text": "Make is called from the root."}, "from the root"),
        Called("update_feature", {"boundaries": "No spreadsheets."}, "boundaries"),
        Called("review_learning", {"id": learning(root, "None")}, "Reviewed"),
        Called("remove_learning", {"id": learning(root, "one go")}, "Removed"),
        Called("verify_feature", {}, "iteration 1"),
    )


@ERAS
def test_it_calls_every_tool_of_planning(inspector: Inspector) -> None:
    inspector.calls_all(
        "--planning",
        Called("get_plan", {}, "Make the export"),
        Called("create_feature", {"name": "search", "description": PROSE}, "search"),
        Called("create_task", {"feature": "search", "title": "Rank by age"}, "Created task 2"),
        Called("update_feature", {"name": "export", "boundaries": "No sheets."}, "boundaries"),
        Called("update_task", {"task_id": 1, "priority": 1}, "Changed task 1"),
    )


@ERAS
def test_it_calls_every_tool_of_conversations(inspector: Inspector, memory: Ralph) -> None:
    talk = memory.conversations.start("The csv")
    memory.conversations.exchange(
        talk, user="Why the empty cells?", assistant="None is written so."
    )
    inspector.calls_all(
        "--conversations",
        Called("search_conversations", {"query": "empty cells"}, "None is written so"),
        Called("fetch_conversation_details", {"conversation_id": talk}, "Why the empty cells?"),
        Called("get_memory", {"id": talk}, "Why the empty cells?"),
    )


@ERAS
def test_it_reads_the_knowledge_files_as_resources(inspector: Inspector) -> None:
    mode = "--feature export"
    [file] = inspector.ask(mode, "resources/list")["resources"]
    assert file["uri"] == "feature://export/files/docs/export.md"
    read = inspector.ask(mode, "resources/read", "--uri", file["uri"])
    [content] = read["contents"]
    assert "<ralph-memory>\nOne line an article.\n</ralph-memory>" in content["text"]


@ERAS
def test_it_finds_the_tools_of_a_person_s_own_work_portable(inspector: Inspector) -> None:
    tools = inspector.ask("--focus", "tools/list", "--strict")["tools"]
    names = {tool["name"] for tool in tools}
    assert {"search_memory", "search_feature_memory", "update_task", "remember"} <= names
    assert "search_conversations" in names
    assert not {"remove_learning", "create_feature"} & names


def learning(root: Path, words: str) -> str:
    """The id of the learning that has these words."""
    [found] = [one.id for one in Plan(root).feature("export").learnings if words in one.text]
    return found
