"""The commands of the agents Ralph knows, and of any other program that speaks a dialect."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ralph.errors import BadInput

_CLAUDE = ("claude", "-p", "--output-format", "stream-json", "--verbose")
_CLAUDE_TOOLS = ("Bash", "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "Grep")
_CODEX = ("codex", "exec", "--json", "--skip-git-repo-check", "-s", "workspace-write")


class Call(msgspec.Struct, frozen=True):
    """What an agent is started with, besides the prompt on its standard input."""

    model: str | None = None
    mcp_config: Path | None = None
    mcp_servers: tuple[str, ...] = ()


def agent_command(agent: str, call: Call) -> list[str]:
    """The command line of an agent: `claude`, `codex`, or any command as one would type it.

    The prompt goes by standard input: as an argument it would be limited to 128 KiB.
    """
    if agent == "claude":
        return _claude(call)
    if agent == "codex":
        model = ["-m", call.model] if call.model else []
        return [*_CODEX, *model, "-"]
    words = _words(agent)
    if not words:
        raise BadInput("the agent's command is empty", todo="Name claude, codex or a command.")
    return words


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


def _claude(call: Call) -> list[str]:
    command = [*_CLAUDE, "--permission-mode", "acceptEdits"]
    if call.model:
        command += ["--model", call.model]
    if call.mcp_config:
        command += ["--mcp-config", str(call.mcp_config), "--strict-mcp-config"]
    servers = [f"mcp__{name}" for name in call.mcp_servers]
    return [*command, "--allowedTools", *servers, *_CLAUDE_TOOLS]


def found_command(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The command with its program's full path, or an error that says what to do."""
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        if Path(command[0]).is_file():
            raise BadInput(
                f"the agent's command {command[0]!r} is not executable",
                todo=f"Run: chmod +x {command[0]}",
            )
        raise BadInput(
            f"the agent's command {command[0]!r} is not there",
            todo="Install it, or name another with --agent.",
        )
    # It is looked up here and started in the project's folder.
    return [str(Path(program).absolute()), *command[1:]]
