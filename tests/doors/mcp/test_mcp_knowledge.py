"""No agent reaches knowledge: no tool, resource or prompt of any server leads to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from commanding import COOKIE, LOGIN
from journaling import child
from knowing import journals, opened, solved
from looping import planned
from mcp.shared.exceptions import MCPError
from serving import Served, served

from ralph.memory.project import Focus, Project, set_focus
from ralph.memory.ralph import open_ralph
from ralph.plan.edit import update_feature
from ralph.plan.store import Plan

# What only knowledge holds, and nobody here asks for.
SECRETS = ("quuxwarbles", "drobnaketic", "vlimpexting")
PROBLEM = "The session cookie is refused behind the load balancer"
MODES: dict[str, tuple[str, ...]] = {
    "feature": ("--feature", "auth"),
    "task": ("--feature", "auth", "--task", "1"),
    "review": ("--feature", "auth", "--review"),
    "plan only": ("--feature", "auth", "--no-memory"),
    "focus": ("--focus",),
    "planning": ("--planning",),
    "conversations": ("--conversations",),
    "everywhere": ("--conversations", "--everywhere"),
}
_FORBIDDEN = ("knowledge", "pattern", "gate", "checkpoint", "outcome", "orchestrat", "staged")


class Ground(NamedTuple):
    """A project with knowledge of its own and of others, and every handle on it."""

    root: Path
    handles: tuple[str, ...]
    journals: tuple[Path, ...]


@pytest.fixture
def ground(tmp_path: Path, home: Path, words: None) -> Ground:
    root = planned(tmp_path / "project")
    with open_ralph(root) as ralph:
        ralph.feature("auth").remember_all([LOGIN, COOKIE])
        talk = ralph.conversations.start("Cookies")
        ralph.conversations.exchange(talk, user=PROBLEM, assistant="We do not know why.")
    set_focus(Project(root), Focus("auth", "1"))
    handles = [PROBLEM, "project_knowledge", "knowledge", "billing"]
    with opened(root) as knowledge:
        for project in ("", "billing"):
            told = solved(PROBLEM, f"Trust the {SECRETS[0]} header", subject=SECRETS[1])
            handles.append(knowledge.capture({**told, "project": project}).id)
            knowledge.capture(
                {
                    "entry_type": "gate_rejection",
                    "project": project,
                    "gate_type": "design",
                    "human_feedback": f"{PROBLEM}, says {SECRETS[2]}",
                    "revision_approach": f"Ask {SECRETS[0]} first",
                }
            )
            knowledge.checkpoint(project or None)
        handles += [one.id for one in knowledge.patterns()]
        handles.append(knowledge.capture(solved(PROBLEM, f"Staged {SECRETS[0]}")).id)
        # It is there to be found, by whoever may ask.
        context = knowledge.context_for_task(PROBLEM)
        assert SECRETS[0] in context.text
    return Ground(root, tuple(handles), tuple(journals(home)))


@pytest.fixture(params=MODES.values(), ids=list(MODES))
def server(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Served]:
    with served(ground.root, *request.param) as open_server:
        yield open_server


def filled(schema: dict[str, Any], handle: str) -> Any:
    """Something that fits the schema, with the handle wherever a text may stand."""
    for choice in schema.get("anyOf", []):
        if choice.get("type") != "null":
            return filled(choice, handle)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "integer":
            return max(1, schema.get("minimum", 1))
        case "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case "array":
            return [filled(schema.get("items", {}), handle)]
        case "object":
            return {k: filled(v, handle) for k, v in schema.get("properties", {}).items()}
    return handle


def test_no_tool_or_prompt_is_there_for_it(server: Served) -> None:
    tools = server.tools()
    assert tools
    for name in tools:
        assert not any(word in name for word in _FORBIDDEN), name
    assert server.client.server_capabilities.prompts is None
    for name in ("query_for_task", "context_for_task", "search_knowledge", "report_outcome"):
        with pytest.raises(MCPError, match=name):
            server.call(name, {"query": PROBLEM, "task_description": PROBLEM})


def test_no_answer_of_any_tool_holds_anything_of_it(server: Served, ground: Ground) -> None:
    answered = 0
    for name, tool in server.tools().items():
        schema = tool.input_schema
        needed = {k: schema["properties"][k] for k in schema.get("required", [])}
        for properties in (needed, schema["properties"]):
            for handle in ground.handles:
                given = {k: filled(v, handle) for k, v in properties.items()}
                if "min_score" in given:
                    given["min_score"] = 0
                reply = server.call(name, given)
                answered += not reply.failed
                told = reply.text + json.dumps(reply.structured)
                assert not any(secret in told for secret in SECRETS), (name, given)
    assert answered


def test_no_resource_leads_to_it(server: Served, ground: Ground) -> None:
    lists = server.client.server_capabilities.resources is not None
    for uri in server.resources() if lists else ():
        assert not any(secret in server.read(uri) for secret in SECRETS)
    relative = [os.path.relpath(file, ground.root) for file in ground.journals]
    for file, path in zip(ground.journals, relative, strict=True):
        for uri in (
            file.as_uri(),
            f"feature://auth/files/{quote(path)}",
            f"feature://auth/files/{quote(path, safe='')}",
            f"feature://auth/files/{quote(str(file))}",
            f"knowledge://{file.stem}",
        ):
            with pytest.raises(MCPError):
                server.read(uri)


def test_a_plan_that_names_the_journal_as_a_knowledge_file_does_not_open_it(
    ground: Ground,
) -> None:
    """An agent may write the plan's file; it must not get at the home through it."""
    (ground.root / "docs").mkdir()
    (ground.root / "docs" / "link.md").symlink_to(ground.journals[0])
    update_feature(Plan(ground.root), "auth", {"knowledge_paths": ["docs/link.md"]})
    with served(ground.root, "--feature", "auth") as server:
        assert server.resources() == {}
        with pytest.raises(MCPError, match="there is no resource"):
            server.read("feature://auth/files/docs/link.md")


def test_a_server_does_not_even_load_it(ground: Ground) -> None:
    script = """
    import sys
    from pathlib import Path
    from serving import served
    root = Path(sys.argv[1])
    with served(root, "--feature", "auth", "--review") as server:
        server.told("search_feature_memory", query="the session cookie is refused")
    with served(root, "--focus") as server:
        for name in server.tools():
            server.call(name, {"query": "the session cookie is refused"})
    print(*sorted(name for name in sys.modules if "knowledge" in name))
    """
    with child(script, ground.root) as process:
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert printed.split() == []
