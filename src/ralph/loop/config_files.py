"""The configuration an agent is started with: which MCP servers it may use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ralph.plan.store import Plan
from ralph.plan.values import Task


def mcp_servers(plan: Plan, task: Task) -> dict[str, Any]:
    """The MCP servers of the task's discipline, by name."""
    for discipline in plan.read().disciplines:
        if discipline.name == task.discipline:
            return dict(discipline.mcp_servers)
    return {}


def write_mcp_config(folder: Path, servers: dict[str, Any]) -> Path:
    """The servers as the file that Claude Code reads."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}, indent=2), encoding="utf-8")
    return file
