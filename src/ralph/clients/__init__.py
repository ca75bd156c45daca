"""The agent programs that Ralph knows: a table, and what the module of each one offers.

A new client is one row here and one module beside it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import msgspec

from ralph.errors import BadInput
from ralph.programs import find_program

if TYPE_CHECKING:
    from ralph.capture import Capture
    from ralph.capture.lines import SessionHead, SessionReader, SessionStart
    from ralph.clients.setup import ClientSetup

# Where an agent that is not in the table finds its MCP servers.
MCP_CONFIG = "RALPH_MCP_CONFIG"


class AgentCall(msgspec.Struct, frozen=True):
    """What an agent is started with, besides the prompt on its standard input.

    The servers are those of the file, by name.
    """

    model: str | None = None
    mcp_config: Path | None = None
    mcp_servers: dict[str, dict[str, Any]] = {}


class SessionFiles(Protocol):
    """The session files that a client leaves on this machine."""

    def session_folder(self, environ: Mapping[str, str]) -> Path:
        """Where they are."""
        ...

    def session_files(self, folder: Path) -> Iterator[Path]:
        """Every session's file under a folder."""
        ...

    def session_head(self, path: Path, file: BinaryIO) -> SessionHead | None:
        """The session that a file holds, None when it holds none."""
        ...

    def session_reader(self, start: SessionStart) -> SessionReader:
        """A reader that cuts a file into exchanges."""
        ...


class AgentProgram(Protocol):
    """What the module of a client offers."""

    # Its output formats; the first is what its command prints.
    DIALECTS: tuple[str, ...]
    # What `record` accepts from it, for error messages.
    OUTPUTS: tuple[str, ...]
    # Events that only its session files have: they are imported, not recorded.
    SESSION_TYPES: frozenset[str]
    # Whether it runs commands in login shells, which may set their PATH anew.
    LOGIN_SHELLS: bool

    def command(self, call: AgentCall) -> list[str]:
        """The command line of one run."""
        ...

    def variables(self, call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
        """What it must find in its environment for this call."""
        ...

    def dialect_of(self, event: Mapping[str, Any]) -> str | None:
        """The dialect that an event belongs to, None for another program's."""
        ...

    def open_capture(self, dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
        """A fresh capture of one of its dialects."""
        ...

    def sessions(self) -> SessionFiles:
        """Its session files."""
        ...

    def setup(self) -> ClientSetup:
        """How Ralph is put into its settings."""
        ...


class Client(msgspec.Struct, frozen=True):
    """One agent program: what it is called where, and the module with everything about it."""

    agent: str  # for --agent and the setting `agent`
    source: str  # in the ids of its conversations
    title: str  # for people
    module: str

    @property
    def program(self) -> AgentProgram:
        """The module, loaded when it is needed."""
        module: AgentProgram = import_module(f"{__name__}.{self.module}")
        return module


CLIENTS = (
    Client("claude", "claude-code", "Claude Code", "claude_code"),
    Client("codex", "codex", "Codex", "codex"),
)
BY_AGENT = {client.agent: client for client in CLIENTS}
BY_SOURCE = {client.source: client for client in CLIENTS}


def takes_servers(agent: str) -> bool:
    """Whether Ralph knows how to give this agent MCP servers, so that a prompt may name tools."""
    return agent in BY_AGENT


def uses_login_shells(agent: str) -> bool:
    """Whether this agent's commands may find another PATH than the agent itself."""
    return agent in BY_AGENT and BY_AGENT[agent].program.LOGIN_SHELLS


def output_dialect(agent: str) -> str | None:
    """What this agent prints; None for a program that is not in the table."""
    return BY_AGENT[agent].program.DIALECTS[0] if agent in BY_AGENT else None


def agent_command(agent: str, call: AgentCall) -> list[str]:
    """The command line of an agent: a client's name, or any command as one would type it.

    The prompt goes by standard input: as an argument it would be limited to 128 KiB.
    """
    if agent in BY_AGENT:
        return BY_AGENT[agent].program.command(call)
    words = _words(agent)
    if not words:
        names = ", ".join(BY_AGENT)
        raise BadInput("the agent's command is empty", todo=f"Name {names} or a command.")
    return words


def agent_variables(agent: str, call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """What an agent must find in its environment for this call."""
    found = {} if call.mcp_config is None else {MCP_CONFIG: str(call.mcp_config)}
    if agent in BY_AGENT:
        found |= BY_AGENT[agent].program.variables(call, environ)
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
