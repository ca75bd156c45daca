"""Edit settings files with comments, and set up the editors that keep MCP servers in such files.

A change to one member leaves everything else as it is. `plain` blanks out what JSON does not have
(comments, commas before a closing bracket) without moving anything, so that a position in the plain
text is the same position in the text.

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

from ralph.clients import EDITORS, setup
from ralph.errors import BadInput

# Strings are matched too, and skipped, so that text like a comment inside one is left alone.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)
_LAST_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])', re.S)
_SPACE = re.compile(r"\s*")
_decoder = json.JSONDecoder()


def plain(text: str) -> str:
    """Return the text as JSON of the same length."""
    return _LAST_COMMA.sub(_blanked, _COMMENT.sub(_blanked, text))


def _blanked(found: re.Match[str]) -> str:
    token = found[0]
    return token if token[0] == '"' else re.sub(r"[^\n]", " ", token)


def put(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with this member set; missing objects on the way to it are created."""
    data = plain(text)
    at = data.index("{")
    depth = 0
    for depth, name in enumerate(path):
        members = _members(data, at)
        if name not in members:
            break
        _, begins, ends = members[name]
        if depth == len(path) - 1:
            return text[:begins] + _dumped(value, depth + 1) + text[ends:]
        at = begins
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    indent = "  " * (depth + 1)
    member = f"\n{indent}{json.dumps(path[depth])}: {_dumped(value, depth + 1)}"
    rest = "," if _members(data, at) else "\n" + "  " * depth
    return text[: at + 1] + member + rest + text[at + 1 :]


def take(text: str, path: tuple[str, ...]) -> str:
    """Return the text without this member, and without objects that held nothing else."""
    data = plain(text)
    with_commas = _COMMENT.sub(_blanked, text)
    at = data.index("{")
    cut = list[tuple[int, int]]()
    was_commented = False
    for name in path:
        members = _members(data, at)
        start, at, ends = members[name]
        span = len(text[:start].rstrip()), ends
        comma = _skip(with_commas, ends)
        if with_commas[comma] == ",":
            cut_here = [(span[0], comma + 1)]
        else:  # the last one: the comma before it goes, and a comment between them stays
            before = len(data[:start].rstrip()) - 1
            cut_here = [span] if data[before] == "{" else [(before, before + 1), span]
        inside = text[at:ends] != with_commas[at:ends]  # a comment stays, with the object around it
        cut = cut_here if not cut or len(members) > 1 or was_commented else cut
        was_commented = inside
    for start, ends in reversed(cut):
        text = text[:start] + text[ends:]
    return text


def _members(data: str, at: int) -> dict[str, tuple[int, int, int]]:
    """Return the object's members: where each begins, and where its value begins and ends."""
    found: dict[str, tuple[int, int, int]] = {}
    at = _skip(data, at + 1)
    while data[at] != "}":
        name, after = _decoder.raw_decode(data, at)
        begins = _skip(data, _skip(data, after) + 1)
        _, ends = _decoder.raw_decode(data, begins)
        found[name] = at, begins, ends
        at = _skip(data, ends)
        at = _skip(data, at + 1) if data[at] == "," else at
    return found


def _skip(data: str, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _dumped(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n" + "  " * depth)


# -- The editors.


def _home(*names: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*names)


def _vscode() -> Path:
    """Return the file of VS Code's default profile."""
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
    """One editor: the files of its servers and the key in them; `project` None if there is none."""

    user: Callable[[], Path]
    project: str | None
    servers_key: str = setup.SERVERS
    entry: dict[str, Any] = {}


_EDITORS = {
    "cursor": Editor(_home(".cursor", "mcp.json"), ".cursor/mcp.json"),
    "vscode": Editor(_vscode, ".vscode/mcp.json", "servers", {"type": "stdio"}),
    "zed": Editor(_zed, ".zed/settings.json", "context_servers"),
    "windsurf": Editor(_home(".codeium", "windsurf", "mcp_config.json"), None),
}


class JsoncSetup(setup.ClientSetup):
    """Setup of a client whose MCP servers are in a file with comments."""

    def with_server(self, text: str | None, call: setup.RalphCall, where: Path) -> str:
        """Return the file with our MCP server in it."""
        try:
            self.read(text or "", where)
        except BadInput as error:
            servers = {self.servers_key: {setup.SERVER: self.server_entry(call)}}
            member = json.dumps(servers, ensure_ascii=False)
            todo = f"Fix it and run this again, or add by hand: {member}"
            raise setup.refusal(error.what, error.where, f"{todo}.") from None
        return super().with_server(text, call, where)

    def read(self, text: str, where: Path) -> dict[str, Any]:
        """Return the settings in the file."""
        return setup.read_json(plain(text), where) if text.strip() else {}

    def put(self, text: str | None, settings: dict[str, Any], entry: dict[str, Any]) -> str:
        """Return the file with this server, and everything else unchanged."""
        start = text if text is not None and text.strip() else "{}\n"
        return put(start, (self.servers_key, setup.SERVER), entry)

    def take(self, text: str, where: Path) -> str | None:
        """Return the file without our server; None if nothing else was in it."""
        left = take(text, (self.servers_key, setup.SERVER))
        return None if re.fullmatch(r"\s*\{\s*\}\s*", left) else left


class EditorSetup(JsoncSetup):
    """Setup of the MCP server in an editor's settings."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self._editor = _EDITORS[agent]
        self.servers_key = self._editor.servers_key

    def servers_file(self, root: Path | None) -> Path:
        """Return the file of its servers: of the project at this root, else the person's own."""
        if root is None:
            return self._editor.user()
        if self._editor.project is None:
            what = f"{EDITORS[self.agent]} keeps no MCP servers in a project"
            raise BadInput(what, where=str(root), todo="Use --user.")
        return root / self._editor.project

    def server_entry(self, call: setup.RalphCall) -> dict[str, Any]:
        """Return our server in the format of its settings."""
        return {**self._editor.entry, "command": call.program, "args": call.server_words}

    def places(self, root: Path | None) -> list[setup.SetupPlace]:
        """Return what is set up for the person and, if it has a file, for the project at `root`."""
        return super().places(root if self._editor.project else None)
