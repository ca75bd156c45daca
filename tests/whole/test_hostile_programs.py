"""Code that lies in a clone is not run: no module, no program, whatever it is called."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks as POSIX has them", allow_module_level=True)

from hostile import PATIENCE_S, Ground, hook_input
from hostile_cases import HOOKS

_VENV = str(Path(sys.executable).parent)
# Nothing is imported that a module of the clone could stand for.
_PWNED = "import posix\nposix.close(posix.open(posix.environ[b'HOME'] + b'/PWNED', 65, 0o644))\n"
# Modules that Python or Ralph load, early or late.
_MODULES = """
ralph json os re zlib sqlite3 encodings site sitecustomize usercustomize _virtualenv click msgspec
numpy rich ruamel mcp tokenizers subprocess logging pathlib hashlib uuid socket platform readline
""".split()
_PROGRAMS = """
ralph claude codex git python python3 sh env node npx qdrant ollama uname gcc ldconfig
""".split()
# As careless people have it.
_PATHS = {
    "dot first": ".:/usr/bin:/bin",
    "empty first": ":/usr/bin:/bin",
    "empty last": "/usr/bin:/bin:",
    "modules first": "node_modules/.bin:/usr/bin:/bin",
    "absolute": "EVIL:EVIL/node_modules/.bin:/usr/bin:/bin",
}
_INSTALLED = {"ralph on the path": f"{_VENV}:/usr/bin:/bin", "no ralph": "/usr/bin:/bin"}


def _plant_packages(root: Path) -> None:
    for name in _MODULES:
        (root / name).mkdir()
        for file in ("__init__.py", "__main__.py"):
            (root / name / file).write_text(_PWNED)


def _plant_modules(root: Path) -> None:
    for name in _MODULES:
        (root / f"{name}.py").write_text(_PWNED)
    (root / "evil.pth").write_text(_PWNED.replace("\n", ";"))
    (root / "pyvenv.cfg").write_text("home = .\n")
    (root / "ralph.zip").write_bytes(b"PK")


def _plant_programs(root: Path) -> None:
    for folder in (root, root / "node_modules" / ".bin", root / "bin", root / ".venv" / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in _PROGRAMS:
            (folder / name).write_text('#!/bin/sh\n/usr/bin/touch "$HOME/PWNED"\n')
            (folder / name).chmod(0o755)


PLANTS = {"packages": _plant_packages, "modules": _plant_modules, "programs": _plant_programs}


def _run(ground: Ground, command: list[str] | str, given: str, **more: str | None) -> str:
    """A process in the clone, without the fork server: how it starts is what matters."""
    ran = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=ground.evil,
        env=ground.environ(**more),
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 4,
        check=False,
    )
    return ran.stdout + ran.stderr


def _install(ground: Ground, path: str, *words: str, cwd: Path | None = None) -> None:
    subprocess.run(
        [sys.executable, "-P", "-m", "ralph", "hooks", "install", *words],
        cwd=cwd or ground.home,
        env=ground.environ(PATH=path),
        capture_output=True,
        check=True,
        timeout=PATIENCE_S * 4,
    )


def _commands(settings: Path) -> dict[str, str]:
    hooks: dict[str, Any] = json.loads(settings.read_text())["hooks"]
    return {event: entry[0]["hooks"][0]["command"] for event, entry in hooks.items()}


def _path(ground: Ground, name: str) -> str:
    return _PATHS[name].replace("EVIL", str(ground.evil))


@pytest.mark.parametrize("installed", _INSTALLED)
@pytest.mark.parametrize("plant", PLANTS)
def test_c3_a_users_hooks_run_nothing_of_a_clone(
    ground: Ground, plant: str, installed: str
) -> None:
    _install(ground, _INSTALLED[installed], "--user")
    PLANTS[plant](ground.evil)
    commands = _commands(ground.home / ".claude" / "settings.json")
    given = json.dumps(hook_input(ground, ground.evil))
    # Modules are looked for in the folder, programs along the path.
    paths = list(_PATHS) if plant == "programs" else ["dot first"]
    tried = [("SessionStart", path) for path in paths] + [("Stop", "dot first")]
    for event, path in tried:
        _run(ground, commands[event], given, PATH=_path(ground, path))
        assert not (ground.home / "PWNED").exists(), (path, commands[event])


@pytest.mark.parametrize("plant", PLANTS)
def test_c3_hooks_that_were_installed_still_work(ground: Ground, plant: str) -> None:
    _install(ground, "/usr/bin:/bin", "--user")
    PLANTS[plant](ground.evil)
    command = _commands(ground.home / ".claude" / "settings.json")["UserPromptSubmit"]
    given = json.dumps(hook_input(ground, ground.evil))
    assert "tried and failed" in _run(ground, command, given, PATH="/usr/bin:/bin")


@pytest.mark.parametrize(
    ("plant", "installed"),
    [("packages", "no ralph"), ("modules", "no ralph"), ("programs", "ralph on the path")],
)
@pytest.mark.parametrize("client", ["claude", "codex"])
def test_c3_a_users_server_runs_nothing_of_a_clone(
    ground: Ground, plant: str, client: str, installed: str
) -> None:
    server = _installed_server(ground, client, _INSTALLED[installed])
    PLANTS[plant](ground.evil)
    # As a client does it: from the session's folder, by the session's path.
    path = ":".join([".", "", "node_modules/.bin", str(ground.evil), "/usr/bin", "/bin"])
    with contextlib.suppress(OSError):
        _run(ground, server, "", PATH=path)
    assert not (ground.home / "PWNED").exists(), server


def _installed_server(ground: Ground, client: str, path: str) -> list[str]:
    """The command of the server that was put into the client's settings."""
    if client == "codex":
        _install(ground, path, "--user", "--agent", "codex")
        text = (ground.home / ".codex" / "config.toml").read_text()
        [server] = tomllib.loads(text)["mcp_servers"].values()
    else:
        asked = ground.home / "asked"
        program = ground.home / "bin" / "claude"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nfor word; do :; done; printf %s "$word" > {asked}\n')
        program.chmod(0o755)
        _install(ground, f"{program.parent}:{path}", "--user")
        server = json.loads(asked.read_text())
    return [server["command"].replace("${RALPH_COMMAND:-ralph}", "ralph"), *server["args"]]


@pytest.mark.parametrize("path", _PATHS)
def test_commands_start_no_program_of_a_clone(ground: Ground, path: str) -> None:
    _plant_programs(ground.evil)
    pwned = ground.home / "PWNED"
    environ = {"PATH": _path(ground, path)}
    for words in (
        ("status",),
        ("doctor",),
        ("init",),
        ("hooks", "status"),
        ("hooks", "install", "--user"),
        ("run", "--max-iterations", "1"),
        ("run", "--max-iterations", "1", "--agent", "codex"),
        ("prompt", "1"),
        ("plan", "braindump", "README.md"),
        ("record", "--feature", "auth", "-"),
    ):
        ran = ground.run(*words, stdin='{"summary": "x"}', environ=environ)
        assert ran.faults() == []
        assert not pwned.exists(), words
    for event in HOOKS:
        ground.hook(event, environ=environ)
        assert not pwned.exists(), event


@pytest.mark.parametrize("plant", ["packages", "modules"])
def test_the_python_that_serves_an_agent_loads_nothing_of_a_clone(
    ground: Ground, plant: str
) -> None:
    """The loop gives its agent a server, and starts helpers of its own, in the clone's folder."""
    PLANTS[plant](ground.evil)
    agent = ground.home / "agent.py"
    agent.write_text(
        "import json, os, subprocess\n"
        "servers = json.load(open(os.environ['RALPH_MCP_CONFIG']))['mcpServers']\n"
        "for one in servers.values():\n"
        "    subprocess.run([one['command'], *one['args']], env={**os.environ, **one['env']},\n"
        "                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n"
        "open(os.path.join(os.environ['HOME'], 'SERVED'), 'w').close()\n"
    )
    command = shlex.join([sys.executable, "-I", str(agent)])
    ground.run("run", "--max-iterations", "1", "--agent", command)
    assert (ground.home / "SERVED").exists()
    assert not (ground.home / "PWNED").exists()
