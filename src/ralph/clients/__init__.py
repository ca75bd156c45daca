"""The commands of the agents Ralph knows, and of any other program that speaks a dialect."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ralph.clients import codex_server
from ralph.errors import BadInput
from ralph.programs import find_program, python

_CLAUDE = ("claude", "-p", "--output-format", "stream-json", "--verbose")
_CLAUDE_TOOLS = ("Bash", "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "Grep")
_CODEX = ("codex", "exec", "--json", "--skip-git-repo-check", "-s", "workspace-write")
# Codex gives a server one second before it asks the model without it; a Python process may need
# more. One that never comes up still does not end the run.
_CODEX_WAITS_MS = 30_000
# Where an agent that is neither finds its servers.
MCP_CONFIG = "RALPH_MCP_CONFIG"


class AgentCall(msgspec.Struct, frozen=True):
    """What an agent is started with, besides the prompt on its standard input.

    The servers are those of the file, by name.
    """

    model: str | None = None
    mcp_config: Path | None = None
    mcp_servers: dict[str, dict[str, Any]] = {}


def takes_servers(agent: str) -> bool:
    """Whether Ralph knows how to give this agent MCP servers, so that a prompt may name tools."""
    return agent in ("claude", "codex")


def agent_command(agent: str, call: AgentCall) -> list[str]:
    """The command line of an agent: `claude`, `codex`, or any command as one would type it.

    The prompt goes by standard input: as an argument it would be limited to 128 KiB.
    """
    if agent == "claude":
        return _claude(call)
    if agent == "codex":
        return _codex(call)
    words = _words(agent)
    if not words:
        raise BadInput("the agent's command is empty", todo="Name claude, codex or a command.")
    return words


def agent_variables(agent: str, call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """What an agent must find in its environment for this call."""
    found = {} if call.mcp_config is None else {MCP_CONFIG: str(call.mcp_config)}
    if agent == "codex":
        for server, header, variable in _headers(call):
            value = str(call.mcp_servers[server]["headers"][header])
            try:
                found[variable] = codex_server.filled(value, environ)
            except KeyError as error:
                raise BadInput(
                    f"the header {header} of the MCP server {server} needs {error.args[0]}, "
                    "which the agent's environment does not have",
                    where=".ralph/db/disciplines.yaml",
                    todo="Set it, and name it in the setting agent_env.",
                ) from None
    return found


def _words(command: str) -> list[str]:
    try:
        if sys.platform == "win32":  # backslashes belong to paths there
            return [word.strip('"') for word in shlex.split(command, posix=False)]
        return shlex.split(command)
    except ValueError as error:
        raise BadInput(
            f"the agent's command {command!r} cannot be read: {error}",
            todo="Close the quotes; write it as you would type it.",
        ) from None


def _claude(call: AgentCall) -> list[str]:
    command = [*_CLAUDE, "--permission-mode", "acceptEdits"]
    if call.model:
        command += ["--model", call.model]
    if call.mcp_config:
        command += ["--mcp-config", str(call.mcp_config), "--strict-mcp-config"]
    servers = [f"mcp__{name}" for name in call.mcp_servers]
    return [*command, "--allowedTools", *servers, *_CLAUDE_TOOLS]


def _codex(call: AgentCall) -> list[str]:
    command = [*_CODEX, *(["-m", call.model] if call.model else [])]
    if call.mcp_config is not None and call.mcp_servers:
        command += ["-c", f"mcp_optional_startup_grace_ms={_CODEX_WAITS_MS}"]
        for name, entry in call.mcp_servers.items():
            for key, value in _codex_server(name, entry, call).items():
                command += ["-c", f"mcp_servers.{name}.{key}={_toml(value)}"]
    return [*command, "-"]


def _codex_server(name: str, entry: Mapping[str, Any], call: AgentCall) -> dict[str, Any]:
    """One server as Codex is told of it: nothing secret, and its tools need no asking."""
    settings: dict[str, Any]
    if "url" in entry:
        headers = {header: var for server, header, var in _headers(call) if server == name}
        settings = {"url": str(entry["url"])}
        if headers:
            settings["env_http_headers"] = headers
    else:
        program, *isolated = python()
        words = ["-m", codex_server.__name__, str(call.mcp_config), name]
        settings = {"command": program, "args": [*isolated, *words]}
        if names := codex_server.variables(json.dumps(entry)):
            settings["env_vars"] = names
    # A server of this name in the user's own settings may be switched off.
    return {**settings, "enabled": True, "default_tools_approval_mode": "approve"}


def _headers(call: AgentCall) -> Iterator[tuple[str, str, str]]:
    """Server, header, and the variable that carries its value."""
    number = 0
    for server, entry in call.mcp_servers.items():
        for header in entry.get("headers") or {}:
            number += 1
            yield server, header, f"MCP_HEADER_{number}"


def _toml(value: Any) -> str:
    """A value as TOML writes it; what JSON writes of these is TOML too, but for mappings."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(key)} = {_toml(one)}' for key, one in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def found_command(
    command: Sequence[str], env: Mapping[str, str], *, root: Path | None = None
) -> list[str]:
    """The command with its program's full path, or an error that says what to do.

    A program that lies in the project at `root` counts only where its path is given.
    """
    program = find_program(command[0], root=root, path=env.get("PATH"))
    if program is None:
        if Path(command[0]).name != command[0] and Path(command[0]).is_file():
            raise BadInput(
                f"the agent's command {command[0]!r} is not executable",
                todo=f"Run: chmod +x {command[0]}",
            )
        raise BadInput(
            f"the agent's command {command[0]!r} is not there",
            todo="Install it, or name another with --agent. One inside the project needs its path.",
        )
    return [program, *command[1:]]
