"""What Codex's hooks send, as Claude Code would send it. Standard library only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_TAIL_BYTES = 256 * 1024


def hook_input(event: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the input of a hook as Claude Code would send it; None if nothing is to do."""
    return _failure(given) if event == "post-tool-use-failure" else given


def _failure(given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the failure of a Codex command, or None; only the transcript has its exit code."""
    name = str(given.get("tool_use_id", ""))
    with Path(str(given.get("transcript_path"))).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().splitlines()
    ended = (line for line in reversed(lines) if name and name.encode() in line)
    for line in (line for line in ended if b'"exit_code"' in line):
        item = json.loads(line)["payload"].get("item") or {}
        code = item.get("exit_code") if item.get("id") == name else None
        if code:
            return {**given, "error": f"Exit code {code}\n{given.get('tool_response')}"}
    return None
