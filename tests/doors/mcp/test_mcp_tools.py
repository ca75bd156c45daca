"""What the MCP server's tools tell about themselves, mode by mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import served

READS = [
    "search_feature_memory",
    "get_recent_iterations",
    "get_feature_files",
    "get_failed_attempts",
    "get_memory",
    "remember",
]
WRITES = ["update_task", "append_learning", "update_feature"]
REVIEW = ["review_learning", "remove_learning", "verify_feature"]
TALK = ["search_conversations", "fetch_conversation_details"]
PLANNING = ["get_plan", "create_feature", "create_task", "update_feature", "update_task"]
MODES = {
    ("--feature", "auth"): READS + WRITES,
    ("--feature", "auth", "--review"): READS + WRITES + REVIEW,
    ("--feature", "auth", "--no-memory"): WRITES,
    ("--feature", "auth", "--no-memory", "--review"): WRITES + REVIEW,
    ("--conversations",): [*TALK, "get_memory"],
    ("--planning",): PLANNING,
    ("--focus",): ["search_memory", *READS, *WRITES, *TALK],
}
MOST_CHARS = 2048


@pytest.mark.parametrize("words", MODES)
def test_each_mode_has_its_own_tools_in_both_eras(root: Path, words: tuple[str, ...]) -> None:
    for era in ("legacy", "auto"):
        with served(root, *words, era=era) as server:
            assert list(server.tools()) == MODES[words]


@pytest.mark.parametrize("words", MODES)
def test_every_tool_tells_what_a_client_and_a_model_need(
    root: Path, words: tuple[str, ...]
) -> None:
    with served(root, *words) as server:
        for tool in server.tools().values():
            assert tool.title
            assert tool.description is not None
            assert "Use it " in tool.description
            assert len(tool.description.encode()) <= MOST_CHARS
            assert tool.meta == {"anthropic/alwaysLoad": True}
            assert tool.output_schema is None
            hints = tool.annotations
            assert hints is not None
            reads = tool.name.startswith(("get_", "search_", "fetch_"))
            assert hints.read_only_hint is reads
            assert hints.open_world_hint is False
            assert hints.destructive_hint is not None
            assert hints.idempotent_hint is not None
            assert not (reads and hints.destructive_hint)


@pytest.mark.parametrize("words", MODES)
def test_schemas_are_flat_closed_and_described(root: Path, words: tuple[str, ...]) -> None:
    with served(root, *words) as server:
        for tool in server.tools().values():
            schema = tool.input_schema
            assert schema["type"] == "object"
            assert schema["additionalProperties"] is False
            assert not {"$ref", "$defs", "anyOf", "oneOf"} & set(_keys(schema))
            for name, one in schema["properties"].items():
                assert one["description"], f"{tool.name}.{name}"
                assert one["type"], f"{tool.name}.{name}"


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _keys(one)
    elif isinstance(value, list):
        for one in value:
            yield from _keys(one)


@pytest.mark.parametrize("words", MODES)
def test_instructions_are_short_enough_to_be_read_whole(root: Path, words: tuple[str, ...]) -> None:
    with served(root, *words) as server:
        said = server.client.instructions
        assert said is not None
        assert len(said.encode()) <= MOST_CHARS
        assert ("search_feature_memory" in said) is (
            "--no-memory" not in words and words[0] in ("--feature", "--focus")
        )
        # They name no tool that is not there, and above all those to begin with.
        everywhere = {name for names in MODES.values() for name in names}
        assert {name for name in everywhere if name in said} <= set(server.tools())
        assert next(iter(server.tools())) in said
