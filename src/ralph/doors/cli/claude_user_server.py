"""The MCP server in a person's own Claude Code: registered by the client itself.

The client rewrites the file that holds it all the time, so nobody else may.
"""

from __future__ import annotations

import json
import shlex
import subprocess

from ralph.doors.cli.client_call import Call, server_call
from ralph.doors.cli.client_files import read_json, read_text
from ralph.doors.cli.client_places import claude_servers
from ralph.doors.cli.client_settings import SERVER, foreign_server
from ralph.errors import RalphError
from ralph.programs import find_program

_TIMEOUT_S = 60.0


def registered() -> Call | None:
    """How the registered server is called; one with our name that is not ours is an error."""
    file = claude_servers(None)
    text = read_text(file)
    servers = {} if text is None else read_json(text, file).get("mcpServers")
    if not isinstance(servers, dict) or SERVER not in servers:
        return None
    call = server_call(servers[SERVER])
    if call is None:
        raise foreign_server(file)
    return call


def register(call: Call) -> str | None:
    """Have the client register the server; without a client, give the command to run."""
    known = registered()
    if known == call:
        return None
    adding = ["mcp", "add-json", "-s", "user", SERVER, json.dumps(call.server())]
    return _ask(*([_removing()] if known else []), adding)


def unregister() -> str | None:
    """Have the client forget the server; without a client, give the command to run."""
    return _ask(_removing())


def _removing() -> list[str]:
    return ["mcp", "remove", "-s", "user", SERVER]


def _ask(*requests: list[str]) -> str | None:
    program = find_program("claude")
    if program is None:
        return " && ".join(shlex.join(["claude", *words]) for words in requests)
    for words in requests:
        try:
            asked = subprocess.run(
                [program, *words],
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _refused(words, str(error)) from None
        if asked.returncode != 0:
            told = (asked.stderr or asked.stdout).decode(errors="replace").strip()
            raise _refused(words, told)
    return None


def _refused(words: list[str], told: str) -> RalphError:
    return RalphError(
        f"claude could not change its MCP servers: {told}",
        todo=f"The hooks are done; run by hand: {shlex.join(['claude', *words])}",
    )
