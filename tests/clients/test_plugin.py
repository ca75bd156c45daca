"""The plugin: whole, valid to the real client, installed by it, and harmless where Ralph is not."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from clients import World, client, loopback_only
from places import ROOT

from ralph import __version__
from ralph.clients import client_setup
from ralph.clients.hook_settings import PLUGIN_FOLDER, PLUGIN_FOLDERS, HooksSetup
from ralph.clients.setup import NAMED, RalphCall, hook_call
from ralph.config import Settings
from ralph.doors.mcp.context import read_options

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

PLUGIN = PLUGIN_FOLDER
EXTENSION = PLUGIN_FOLDERS["gemini"]
MARKETPLACES = [ROOT / ".claude-plugin", PLUGIN / ".claude-plugin"]
# Nobody listens there, so a session ends at once: enough to see its hooks called.
NOBODY = "http://127.0.0.1:9"


def made(world: World) -> Path:
    """A project in this world."""
    return world.project("version: 1\nfeatures: []\n", "version: 1\ntasks: []\n")


def said(world: World, *words: str, cwd: Path | None = None) -> str:
    """What our own command says in this world."""
    return world.run([sys.executable, "-m", "ralph", *words], cwd=cwd).stdout


def plugin_state(world: World, project: Path, agent: str = "claude") -> str:
    """What we say of a client's plugin there."""
    places = json.loads(said(world, "hooks", "status", "--json", cwd=project))["places"]
    [state] = [
        place["hooks"]["state"]
        for place in places
        if (place["agent"], place["where"]) == (agent, "plugin")
    ]
    return str(state)


def program(file: Path, script: str) -> Path:
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def read(file: Path) -> Any:
    return json.loads(file.read_bytes())


# -- the files


@pytest.mark.parametrize(
    "manifest",
    [
        PLUGIN / "plugin.json",
        PLUGIN / ".claude-plugin" / "plugin.json",
        EXTENSION / "gemini-extension.json",
    ],
)
def test_every_plugin_has_the_version_of_the_package(manifest: Path) -> None:
    assert read(manifest)["version"] == __version__


def test_the_extension_has_the_hooks_that_ralph_would_install() -> None:
    setup = client_setup("gemini")
    assert isinstance(setup, HooksSetup)

    hooks = read(EXTENSION / "hooks" / "hooks.json")

    assert hooks == {"hooks": setup.wanted_hooks(RalphCall(NAMED))}


@pytest.mark.parametrize("folder", MARKETPLACES)
def test_a_marketplace_leads_to_the_plugin(folder: Path) -> None:
    market = read(folder / "marketplace.json")

    [entry] = market["plugins"]
    assert (market["name"], entry["name"]) == ("ralph", "ralph")
    assert (folder.parent / entry["source"]).resolve() == PLUGIN.resolve()


def test_each_hook_calls_its_own_event_and_leaves_ralph_its_time() -> None:
    hooks = read(PLUGIN / "hooks" / "hooks.json")["hooks"]

    for event, [group] in hooks.items():
        [hook] = group["hooks"]
        known = hook_call(hook["command"])
        assert known is not None
        word = re.sub(r"(?<!^)(?=[A-Z])", "-", event).lower()
        assert known[1] == word
        # The client's limit is the last resort; Ralph's own comes first.
        budget = getattr(Settings(), f"hook_{word.replace('-', '_')}_s", 0.0)
        assert hook["timeout"] > budget


def test_the_server_is_called_with_words_it_takes() -> None:
    server = read(PLUGIN / ".mcp.json")["mcpServers"]["memory"]

    assert server["alwaysLoad"] is True
    assert server["args"][0] == "mcp"
    assert read_options(server["args"][1:]).mode == "focus"


def test_the_skill_names_only_tools_that_the_server_has(project: Path) -> None:
    from ralph.doors.mcp.context import ServerContext
    from ralph.doors.mcp.server import tools_for

    text = (PLUGIN / "skills" / "ralph-memory" / "SKILL.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+_)+\w+)`", text))
    context = ServerContext(read_options(["--focus"]), project)

    assert named
    assert named <= {tool.name for tool in tools_for(context)}


def test_the_wheel_holds_all_of_the_plugin(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=120,
    )
    [wheel] = tmp_path.glob("*.whl")

    held = {name.removeprefix("ralph/plugin/") for name in ZipFile(wheel).namelist()}
    there = {file.relative_to(PLUGIN).as_posix() for file in PLUGIN.rglob("*") if file.is_file()}
    assert {".mcp.json", ".claude-plugin/plugin.json", "hooks/hooks.json"} <= there <= held


# -- the real Claude Code


@pytest.mark.parametrize("folder", [ROOT, PLUGIN])
def test_claude_finds_nothing_to_complain_of(world: World, folder: Path) -> None:
    world.talk_to(NOBODY)

    world.run([client("claude"), "plugin", "validate", folder, "--strict"])


@pytest.mark.parametrize("folder", [ROOT, PLUGIN])
def test_claude_installs_the_plugin_and_takes_it_out(world: World, folder: Path) -> None:
    claude = client("claude")
    world.talk_to(NOBODY)
    project = made(world)

    world.run([claude, "plugin", "marketplace", "add", folder])
    world.run([claude, "plugin", "install", "ralph@ralph"])

    listed = json.loads(world.run([claude, "plugin", "list", "--json"]).stdout)
    [plugin] = [one for one in listed if one["id"] == "ralph@ralph"]
    assert (plugin["version"], plugin["enabled"]) == (__version__, True)
    assert plugin_state(world, project) == "installed"
    world.run([claude, "plugin", "disable", "ralph@ralph"])
    assert plugin_state(world, project) == "disabled"
    world.run([claude, "plugin", "uninstall", "ralph@ralph"])
    assert plugin_state(world, project) == "none"


def called(world: World, project: Path) -> set[str]:
    """What a session calls Ralph with; the program only notes it."""
    log = world.folder / "log"
    note = f'printf "%s\\n" "$*" >> {shlex.quote(str(log))}; cat >/dev/null'
    noting = program(world.folder / "noting ralph", note)
    world.environ |= {"RALPH_COMMAND": str(noting), "MCP_TIMEOUT": "1000"}
    world.environ |= {"CLAUDE_CODE_MAX_RETRIES": "0"}
    world.run([client("claude"), "-p", "hello"], cwd=project, ends_with=1)
    return set(log.read_text(encoding="utf-8").splitlines()) if log.exists() else set()


def test_a_session_calls_the_hooks_and_the_server_of_the_plugin(world: World) -> None:
    claude = client("claude")
    world.talk_to(NOBODY)
    world.run([claude, "plugin", "marketplace", "add", PLUGIN])
    world.run([claude, "plugin", "install", "ralph@ralph"])

    words = called(world, made(world))

    assert {"mcp --focus", "hook session-start", "hook user-prompt-submit"} <= words


def test_a_session_calls_the_hooks_that_were_installed(world: World) -> None:
    world.talk_to(NOBODY)
    project = made(world)
    this = program(world.folder / "r", f'exec {shlex.quote(sys.executable)} -m ralph "$@"')
    world.environ["RALPH_COMMAND"] = str(this)
    said(world, "hooks", "install", cwd=project)
    text = (project / ".claude" / "settings.json").read_text(encoding="utf-8")
    assert "RALPH_COMMAND" in text

    assert {"hook session-start", "hook user-prompt-submit"} <= called(world, project)
    assert (project / ".claude" / "settings.json").read_text(encoding="utf-8") == text


def test_a_session_does_not_mind_that_ralph_is_missing(world: World) -> None:
    claude = client("claude")
    world.talk_to(NOBODY)
    world.environ |= {"CLAUDE_CODE_MAX_RETRIES": "0"}
    project = made(world)
    alone = world.run([claude, "-p", "hello"], cwd=project, ends_with=1)
    said(world, "hooks", "install", "--no-mcp", cwd=project)
    settings = project / ".claude" / "settings.json"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace(sys.executable, "/nowhere/python"),
        encoding="utf-8",
    )

    hooked = world.run([claude, "-p", "hello"], cwd=project, ends_with=1)

    assert (hooked.stdout, hooked.stderr) == (alone.stdout, alone.stderr)


def test_claude_registers_a_persons_own_server(world: World) -> None:
    client("claude")  # the one on the PATH of this world
    world.talk_to(NOBODY)
    servers = world.home / ".claude.json"

    for _ in range(2):
        said(world, "hooks", "install", "--user")
        assert read(servers)["mcpServers"]["ralph-memory"]["alwaysLoad"] is True
    said(world, "hooks", "uninstall", "--user")

    assert read(servers).get("mcpServers", {}) == {}
    assert not (world.home / ".claude" / "settings.json").exists()


# -- the real Gemini CLI


def test_gemini_takes_the_extension_and_ralph_sees_it(world: World) -> None:
    gemini = client("gemini")
    world.talk_to(NOBODY)
    project = made(world)

    checked = world.run([gemini, "extensions", "validate", EXTENSION], cwd=project)
    assert "successfully validated" in checked.stdout + checked.stderr
    trusted = {str(EXTENSION): "TRUST_FOLDER"}
    file = world.home / ".gemini" / "trustedFolders.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(trusted), encoding="utf-8")
    world.run([gemini, "extensions", "install", EXTENSION, "--consent"], cwd=project)

    assert plugin_state(world, project, "gemini") == "installed"
    said(world, "hooks", "install", "--agent", "gemini", "--user")
    status = json.loads(said(world, "hooks", "status", "--json", cwd=project))
    assert any("gemini extensions uninstall ralph" in each for each in status["warnings"])
    world.run([gemini, "extensions", "uninstall", "ralph"], cwd=project)
    assert plugin_state(world, project, "gemini") == "none"


# -- the real Codex


@pytest.mark.parametrize("scope", ["--user", "--project"])
def test_codex_lists_the_server_and_keeps_to_its_own_part(world: World, scope: str) -> None:
    command = [*loopback_only(), client("codex"), "mcp", "list", "--json"]
    project = made(world)
    own = world.home / ".codex" / "config.toml"
    own.parent.mkdir()
    text = f'# mine\n[projects."{project}"]\ntrust_level = "trusted"\n'
    own.write_text(text, encoding="utf-8")
    said(world, "hooks", "install", "--agent", "codex", scope, cwd=project)

    [server] = json.loads(world.run(command, cwd=project).stdout)

    assert server["name"] == "ralph-memory"
    assert server["transport"]["args"][-4:] == ["-m", "ralph", "mcp", "--focus"]
    said(world, "hooks", "uninstall", "--agent", "codex", scope, cwd=project)
    assert json.loads(world.run(command, cwd=project).stdout) == []
    assert own.read_text(encoding="utf-8") == text
    assert not (project / ".codex").exists()
