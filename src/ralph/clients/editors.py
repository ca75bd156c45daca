"""Editors that take the MCP server and nothing else: where each keeps its servers, and how.

| editor | documented at |
| --- | --- |
| Cursor | cursor.com/docs/context/mcp |
| VS Code | code.visualstudio.com/docs/copilot/reference/mcp-configuration |
| Zed | zed.dev/docs/ai/mcp, zed.dev/docs/configuring-zed |
| Windsurf | docs.windsurf.com/windsurf/cascade/mcp |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ralph.clients import EDITORS
from ralph.clients.jsonc import JsoncSetup
from ralph.clients.setup import SERVERS, RalphCall, SetupPlace
from ralph.errors import BadInput


def _home(*names: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*names)


def _vscode() -> Path:
    """VS Code's default profile."""
    folder = _settings_folder()
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    return folder / "Code" / "User" / "mcp.json"


def _zed() -> Path:
    name = "Zed" if sys.platform == "win32" else "zed"
    return _settings_folder() / name / "settings.json"


def _settings_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


class Editor(msgspec.Struct, frozen=True):
    """One editor: its servers' files and the object in them; no `project`, no file of a project."""

    user: Callable[[], Path]
    project: str | None
    servers_key: str = SERVERS
    entry: dict[str, Any] = {}


_EDITORS = {
    "cursor": Editor(_home(".cursor", "mcp.json"), ".cursor/mcp.json"),
    "vscode": Editor(_vscode, ".vscode/mcp.json", "servers", {"type": "stdio"}),
    "zed": Editor(_zed, ".zed/settings.json", "context_servers"),
    "windsurf": Editor(_home(".codeium", "windsurf", "mcp_config.json"), None),
}


class EditorSetup(JsoncSetup):
    """The MCP server in an editor's settings."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self._editor = _EDITORS[agent]
        self.servers_key = self._editor.servers_key

    def servers_file(self, root: Path | None) -> Path:
        """Where its servers are: of the project at this root, else the person's own."""
        if root is None:
            return self._editor.user()
        if self._editor.project is None:
            what = f"{EDITORS[self.agent]} keeps no MCP servers in a project"
            raise BadInput(what, where=str(root), todo="Use --user.")
        return root / self._editor.project

    def server_entry(self, call: RalphCall) -> dict[str, Any]:
        """Our server as its settings describe one."""
        return {**self._editor.entry, "command": call.program, "args": call.server_words}

    def places(self, root: Path | None) -> list[SetupPlace]:
        """What is set up for the person and, where it has a file, for the project at this root."""
        return super().places(root if self._editor.project else None)
