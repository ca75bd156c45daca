"""Editors that take the MCP server and nothing else: where each keeps its servers, and how.

| editor | documented at |
| --- | --- |
| Cursor | cursor.com/docs/context/mcp |
| VS Code | code.visualstudio.com/docs/copilot/reference/mcp-configuration |
| Zed | zed.dev/docs/ai/mcp, zed.dev/docs/configuring-zed |
| Windsurf | docs.windsurf.com/windsurf/cascade/mcp |
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ralph.clients import EDITORS
from ralph.clients.jsonc import plain, put, take
from ralph.clients.setup import (
    SERVER,
    SERVERS,
    ClientSetup,
    RalphCall,
    SetupPlace,
    foreign_server,
    read_json,
    refusal,
)
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


class JsoncSetup(ClientSetup):
    """A client whose MCP servers are in a file with comments."""

    def with_server(self, text: str | None, call: RalphCall, where: Path) -> str:
        """The file with our MCP server in it."""
        entry = self.server_entry(call)
        settings: dict[str, Any] = {}
        if text is not None and text.strip():
            try:
                settings = self._read(text, where)
            except BadInput as error:
                member = json.dumps({self.servers_key: {SERVER: entry}}, ensure_ascii=False)
                todo = f"Fix it and run this again, or add by hand: {member}"
                raise refusal(error.what, error.where, f"{todo}.") from None
        servers = settings.get(self.servers_key, {})
        if not isinstance(servers, dict):
            raise refusal(f"{self.servers_key} must be an object", where)
        before = self.call_of(servers.get(SERVER))
        if SERVER in servers and before is None:
            raise foreign_server(where)
        if text is not None and servers.get(SERVER) == entry:
            return text
        start = text if text is not None and text.strip() else "{}\n"
        return put(start, (self.servers_key, SERVER), entry)

    def without_server(self, text: str, where: Path) -> str | None:
        """The file without our MCP server; None when nothing else was in it."""
        if self.server_in(text, where) is None:
            return text
        left = take(text, (self.servers_key, SERVER))
        return None if re.fullmatch(r"\s*\{\s*\}\s*", left) else left

    def server_in(self, text: str, where: Path) -> RalphCall | None:
        """How our MCP server is called, None where it is not registered."""
        servers = self._read(text, where).get(self.servers_key) if text.strip() else None
        return self.call_of(servers.get(SERVER)) if isinstance(servers, dict) else None

    def _read(self, text: str, where: Path) -> dict[str, Any]:
        return read_json(plain(text), where)


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
