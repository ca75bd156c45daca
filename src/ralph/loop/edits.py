"""Which of the agent's tool calls touched the plan's files directly, line by line as it runs."""

from __future__ import annotations

from typing import Any

import msgspec

from ralph.plan.blame import AgentEdit, edits_of_command, edits_of_tool

# A line that names none of these cannot be a call that changes the plan.
_HINTS = (b".ralph", b".yaml", b"git ", b"rm ")
_decode = msgspec.json.Decoder().decode


def plan_edits(line: bytes) -> list[AgentEdit]:
    """The direct edits of plan files that a line of the agent's output tells of."""
    if not any(hint in line for hint in _HINTS):
        return []
    try:
        event = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []  # capture complains about it
    if not isinstance(event, dict):
        return []
    return _of_claude(event) + _of_codex(event)


def _of_claude(event: dict[str, Any]) -> list[AgentEdit]:
    message = event.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    found: list[AgentEdit] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            given = block.get("input")
            found += edits_of_tool(str(block.get("name")), given if isinstance(given, dict) else {})
    return found


def _of_codex(event: dict[str, Any]) -> list[AgentEdit]:
    item = event.get("item")
    if not isinstance(item, dict):
        return []
    found: list[AgentEdit] = []
    if isinstance(command := item.get("command"), str):
        found += edits_of_command(command)
    changes = item.get("changes")
    for change in changes if isinstance(changes, list) else ():
        if isinstance(change, dict) and isinstance(path := change.get("path"), str):
            found += edits_of_tool("apply_patch", {"file_path": path})
    return found
