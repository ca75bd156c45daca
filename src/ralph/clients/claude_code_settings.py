"""Ralph's part in Claude Code's settings: text in, text out, and nobody else's part touched.

Hooks of ours are known by what they call: Ralph, the word `hook`, and an event. So those of an
older version are found as well, wherever a person moved them, and no mark must be kept beside them.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ralph.clients import json_text
from ralph.clients.places import claude_servers
from ralph.clients.setup import RalphCall, hook_call, read_json, read_text, server_call
from ralph.errors import BadInput, RalphError
from ralph.programs import find_program

PLUGIN = "ralph@ralph"
SERVER = "ralph-memory"
_PLUGIN_FOLDER = Path(__file__).parents[1] / "plugin"
_HOOKS = "hooks"
_SERVERS = "mcpServers"


def plugin_folder() -> Path:
    """The plugin as it was installed with this package; it is a marketplace too."""
    return _PLUGIN_FOLDER


def wanted_hooks(call: RalphCall) -> dict[str, list[Any]]:
    """The plugin's own hooks, calling Ralph so."""
    text = (_PLUGIN_FOLDER / "hooks" / "hooks.json").read_text(encoding="utf-8")
    hooks: dict[str, list[Any]] = json.loads(text)[_HOOKS]
    for hook in (one for groups in hooks.values() for group in groups for one in group[_HOOKS]):
        found = hook_call(hook["command"])
        assert found is not None
        hook["command"] = call.hook(found[1])
    return hooks


def wanted_commands(call: RalphCall) -> dict[str, str]:
    """The command of each event's hook."""
    return {event: groups[0][_HOOKS][0]["command"] for event, groups in wanted_hooks(call).items()}


def hooks_in(settings: dict[str, Any]) -> dict[str, list[tuple[RalphCall, str]]]:
    """Each event that calls Ralph, with the calls and the whole commands."""
    found: dict[str, list[tuple[RalphCall, str]]] = {}
    for path, call, command in _ours(settings):
        found.setdefault(str(path[1]), []).append((call, command))
    return found


def with_hooks(text: str | None, call: RalphCall, where: Path) -> str:
    """The settings with all our hooks, each once; those that are right stay as they are."""
    wanted = wanted_hooks(call)
    if text is None:
        return json_text.whole({_HOOKS: wanted}, json_text.Style())
    _check(text, where)
    commands = wanted_commands(call)
    found = hooks_in(read_json(text, where))
    outdated = [
        event for event in found if [one for _, one in found[event]] != [commands.get(event)]
    ]
    left = _without_hooks(text, where, outdated)
    if left is None:
        return json_text.whole({_HOOKS: wanted}, json_text.style_of(text))
    for event, groups in wanted.items():
        if event in outdated or event not in found:
            left = _with_event(left, event, groups, where)
    return left


def without_hooks(text: str, where: Path) -> str | None:
    """The settings without our hooks; None when nothing else was in them."""
    _check(text, where)
    return _without_hooks(text, where, list(hooks_in(read_json(text, where))))


def with_server(text: str | None, call: RalphCall, where: Path) -> str:
    """The file with our MCP server in it."""
    if text is None:
        return json_text.whole({_SERVERS: {SERVER: call.server()}}, json_text.Style())
    settings = read_json(text, where)
    servers = settings.get(_SERVERS)
    if _SERVERS not in settings:
        return json_text.added(text, (), {SERVER: call.server()}, key=_SERVERS)
    if not isinstance(servers, dict):
        raise _unfit(text, where, (_SERVERS,), "an object")
    if SERVER not in servers:
        return json_text.added(text, (_SERVERS,), call.server(), key=SERVER)
    known = server_call(servers[SERVER])
    if known is None:
        raise foreign_server(where, json_text.line_of(text, (_SERVERS, SERVER)))
    if known == call:
        return text
    return json_text.replaced(text, (_SERVERS, SERVER), call.server())


def without_server(text: str, where: Path) -> str | None:
    """The file without our MCP server; None when nothing else was in it."""
    if server_in(read_json(text, where)) is None:
        return text
    return json_text.taken(text, (_SERVERS, SERVER))


def server_in(settings: dict[str, Any]) -> RalphCall | None:
    """How our MCP server is called, None where it is not registered."""
    servers = settings.get(_SERVERS)
    return server_call(servers.get(SERVER)) if isinstance(servers, dict) else None


def foreign_server(where: Path, line: int | None = None) -> BadInput:
    """What to say of a server with our name that somebody else made."""
    return BadInput(
        f"there is an MCP server {SERVER} that Ralph did not make",
        where=str(where) if line is None else f"{where}:{line}",
        todo="Rename it, or use --no-mcp. Nothing was changed.",
    )


def _ours(settings: dict[str, Any]) -> Iterator[tuple[json_text.Path, RalphCall, str]]:
    """Where our hooks are, how they call us, and their whole commands."""
    hooks = settings.get(_HOOKS)
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        for at, group in enumerate(groups if isinstance(groups, list) else ()):
            for place, hook in enumerate(_list_in(group)):
                if called := _called(hook):
                    yield (_HOOKS, event, at, _HOOKS, place), *called


def _called(hook: object) -> tuple[RalphCall, str] | None:
    match hook:
        case {"type": "command", "command": str(command)} if found := hook_call(command):
            return found[0], command
    return None


def _list_in(group: object) -> list[Any]:
    match group:
        case {"hooks": [*hooks]}:
            return hooks
    return []


def _without_hooks(text: str, where: Path, events: list[str]) -> str | None:
    while True:
        settings = read_json(text, where)
        paths = [path for path, *_ in _ours(settings) if path[1] in events]
        if not paths:
            return text
        path = paths[0]
        hooks = settings[_HOOKS][path[1]][path[2]][_HOOKS]
        # A group in which all is ours goes whole, with its matcher.
        left = json_text.taken(text, path[:3] if all(map(_called, hooks)) else path)
        if left is None:
            return None
        text = left


def _with_event(text: str, event: str, groups: list[Any], where: Path) -> str:
    settings = read_json(text, where)
    if _HOOKS not in settings:
        return json_text.added(text, (), {event: groups}, key=_HOOKS)
    if event not in settings[_HOOKS]:
        return json_text.added(text, (_HOOKS,), groups, key=event)
    for group in groups:
        text = json_text.added(text, (_HOOKS, event), group)
    return text


def _check(text: str, where: Path) -> None:
    """Refuse what is not laid out as settings are: we would not know where ours belong."""
    settings = read_json(text, where)
    hooks = settings.get(_HOOKS, {})
    if not isinstance(hooks, dict):
        raise _unfit(text, where, (_HOOKS,), "an object")
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise _unfit(text, where, (_HOOKS, event), "a list")


def _unfit(text: str, where: Path, path: json_text.Path, what: str) -> BadInput:
    return BadInput(
        f"{'.'.join(map(str, path))} must be {what}",
        where=f"{where}:{json_text.line_of(text, path)}",
        todo="Mend it; nothing was changed.",
    )


# -- The MCP server in a person's own Claude Code: registered by the client itself.
#
# The client rewrites the file that holds it all the time, so nobody else may.


_TIMEOUT_S = 60.0


def registered() -> RalphCall | None:
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


def register(call: RalphCall) -> str | None:
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
