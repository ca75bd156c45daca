"""The MCP server in the settings of editors and of OpenCode, written as each of them documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralph.clients import EDITORS, client_setup
from ralph.clients.editors import plain
from ralph.clients.setup import NAME, RalphCall, apply
from ralph.errors import BadInput

CALL = RalphCall(NAME)
WORDS = ["mcp", "--focus"]
PLAIN = {"command": "ralph", "args": WORDS}
# Where the person's own file is on Linux, the project's, the object in it, and the server there.
DOCUMENTED: dict[str, tuple[str, str | None, str, dict[str, Any]]] = {
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json", "mcpServers", PLAIN),
    "vscode": (
        ".config/Code/User/mcp.json",
        ".vscode/mcp.json",
        "servers",
        {"type": "stdio", **PLAIN},
    ),
    "zed": (".config/zed/settings.json", ".zed/settings.json", "context_servers", PLAIN),
    "windsurf": (".codeium/windsurf/mcp_config.json", None, "mcpServers", PLAIN),
    "opencode": (
        ".config/opencode/opencode.json",
        "opencode.json",
        "mcp",
        {"type": "local", "command": ["ralph", *WORDS], "enabled": True},
    ),
}
each = pytest.mark.parametrize("agent", DOCUMENTED)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, on Linux."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "me")
    return tmp_path / "me"


def install(agent: str, root: Path | None, call: RalphCall | None = CALL) -> list[Path]:
    return [edit.file for edit in apply(client_setup(agent).edits(root, call))]


def test_every_editor_is_documented_here() -> None:
    assert {*EDITORS, "opencode"} == DOCUMENTED.keys()


@each
def test_the_server_is_written_as_documented_and_goes_again(
    agent: str, own_home: Path, tmp_path: Path
) -> None:
    user, project, key, entry = DOCUMENTED[agent]
    root = tmp_path / "shop"
    places = [(None, own_home / user)] + ([(root, root / project)] if project else [])
    for where, file in places:
        assert file in install(agent, where)
        assert json.loads(file.read_bytes()) == {key: {"ralph-memory": entry}}
        assert install(agent, where) == []
        [place] = [p for p in client_setup(agent).places(where) if p.mcp.file == str(file)]
        assert place.mcp.state == "installed"
        install(agent, where, None)
        assert not file.exists()
    assert not list(root.glob("*"))


@each
def test_other_settings_and_comments_stay(agent: str, own_home: Path) -> None:
    user, _, key, entry = DOCUMENTED[agent]
    file = own_home / user
    file.parent.mkdir(parents=True)
    text = f'// mine\n{{\n  "{key}": {{\n    "other": {{}}, // keep\n  }},\n  "a": 1,\n}}\n'
    file.write_text(text, encoding="utf-8")

    install(agent, None)
    installed = file.read_text(encoding="utf-8")
    assert "// mine" in installed
    assert "// keep" in installed
    assert json.loads(plain(installed)) == {key: {"ralph-memory": entry, "other": {}}, "a": 1}
    assert (file.parent / f"{file.name}.bak").read_text(encoding="utf-8") == text
    install(agent, None, None)
    assert file.read_text(encoding="utf-8") == text


@each
@pytest.mark.parametrize("text", ['{"a": ', "[]", "{KEY: []}", '{KEY: {"ralph-memory": {}}}'])
def test_what_cannot_be_changed_safely_is_left_alone_with_a_word_on_what_to_do(
    agent: str, text: str, own_home: Path
) -> None:
    user, _, key, _ = DOCUMENTED[agent]
    file = own_home / user
    file.parent.mkdir(parents=True)
    text = text.replace("KEY", json.dumps(key))
    file.write_text(text, encoding="utf-8")

    with pytest.raises(BadInput) as caught:
        install(agent, None)
    assert "Nothing was changed" in (caught.value.todo or "")
    assert file.read_text(encoding="utf-8") == text
    if text in ('{"a": ', "[]"):
        assert f'"{key}"' in (caught.value.todo or "")
        assert '"ralph-memory"' in (caught.value.todo or "")


def test_an_editor_without_a_project_s_servers_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Windsurf keeps no MCP servers in a project"):
        install("windsurf", tmp_path)


def test_a_plugin_of_somebody_else_s_stays(own_home: Path) -> None:
    file = own_home / ".config" / "opencode" / "plugins" / "ralph.js"
    file.parent.mkdir(parents=True)
    file.write_text("export const Mine = 1\n", encoding="utf-8")

    with pytest.raises(BadInput, match="did not create it"):
        install("opencode", None)
    assert file.read_text(encoding="utf-8") == "export const Mine = 1\n"
    assert install("opencode", None, None) == []
