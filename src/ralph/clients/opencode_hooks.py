"""What OpenCode's plugin sends, as Claude Code's hooks would send it. Standard library only."""

from __future__ import annotations

import uuid
from typing import Any


def hook_input(event: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the input of a hook as Claude Code would send it, with the lines of the session."""
    # The same as `opencode.plain_id`, without loading its module.
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"opencode:{given.get('session_id', '')}")
    lines = given.get("messages")
    return {**given, "session_id": str(name), "lines": lines if isinstance(lines, list) else []}
