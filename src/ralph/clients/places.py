"""Where the clients keep their settings, a person's own and a project's."""

from __future__ import annotations

import os
from pathlib import Path


def claude_settings(root: Path | None) -> Path:
    """Claude Code's settings: of the project at this root, else the person's own."""
    return (_claude_folder() if root is None else root / ".claude") / "settings.json"


def claude_servers(root: Path | None) -> Path:
    """Where Claude Code keeps MCP servers; the person's own file is the client's to write."""
    if root is not None:
        return root / ".mcp.json"
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(given).expanduser() if given else Path.home()) / ".claude.json"


def claude_plugins() -> Path:
    """What Claude Code notes of installed plugins."""
    return _claude_folder() / "plugins" / "installed_plugins.json"


def codex_settings(root: Path | None) -> Path:
    """Codex's settings: of the project at this root, else the person's own."""
    if root is not None:
        return root / ".codex" / "config.toml"
    given = os.environ.get("CODEX_HOME")
    return (Path(given).expanduser() if given else Path.home() / ".codex") / "config.toml"


def _claude_folder() -> Path:
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(given).expanduser() if given else Path.home() / ".claude"
