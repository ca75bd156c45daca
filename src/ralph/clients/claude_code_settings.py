"""Ralph's part in Claude Code's settings: hooks, the MCP server, and the plugin.

Hooks of ours are known by what they call: Ralph, the word `hook`, and an event. So those of an
older version are found as well, wherever a person moved them, and no mark must be kept beside them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Collection, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ralph.clients.setup import (
    NAMED,
    SERVER,
    RalphCall,
    SettingsEdit,
    SetupPart,
    SetupPlace,
    State,
    foreign_server,
    hook_call,
    is_outdated,
    read_json,
    read_text,
    server_call,
    server_part,
    setup_call,
    setup_part,
    write_json,
)
from ralph.errors import BadInput, RalphError
from ralph.programs import find_program

HAS_HOOKS: bool = True
FILLS_VARIABLES: bool = True
PLUGIN = "ralph@ralph"
_PLUGIN_FOLDER = Path(__file__).parents[1] / "plugin"
_HOOKS = "hooks"
_SERVERS = "mcpServers"
_TIMEOUT_S = 60.0
_T = TypeVar("_T")


# -- Where they are.


def settings_file(root: Path | None) -> Path:
    """Claude Code's settings: of the project at this root, else the person's own."""
    return (_user_folder() if root is None else root / ".claude") / "settings.json"


def servers_file(root: Path | None) -> Path:
    """Where Claude Code keeps MCP servers; the person's own file is the client's to write."""
    if root is not None:
        return root / ".mcp.json"
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(given).expanduser() if given else Path.home()) / ".claude.json"


def _user_folder() -> Path:
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(given).expanduser() if given else Path.home() / ".claude"


def plugin_folder() -> Path:
    """The plugin as it was installed with this package; it is a marketplace too."""
    return _PLUGIN_FOLDER


# -- Putting Ralph in and taking it out.


def install_edits(root: Path | None, call: RalphCall, *, mcp: bool) -> list[SettingsEdit]:
    """The hooks, and the server in a project; a person's own server the client registers."""
    file = settings_file(root)
    text = read_text(file, root=root)
    edits = [SettingsEdit(file, text, with_hooks(text, call, file), root, keeps_previous=True)]
    if mcp and root is None:
        registered()  # refuses somebody else's server before anything is written
    elif mcp:
        file = servers_file(root)
        text = read_text(file, root=root)
        edit = SettingsEdit(file, text, with_server(text, call, file), root, keeps_previous=True)
        edits.append(edit)
    return edits


def uninstall_edits(root: Path | None) -> list[SettingsEdit]:
    """What takes Ralph out again."""
    edits = []
    file = settings_file(root)
    if (text := read_text(file, root=root)) is not None:
        left = without_hooks(text, file)
        edits.append(SettingsEdit(file, text, left, root, keeps_previous=True))
    file = servers_file(root)
    if root is not None and (text := read_text(file, root=root)) is not None:
        left = without_server(text, file)
        edits.append(SettingsEdit(file, text, left, root, keeps_previous=True))
    return edits


def wanted_hooks(call: RalphCall) -> dict[str, list[Any]]:
    """The plugin's own hooks, calling Ralph so."""
    text = (_PLUGIN_FOLDER / "hooks" / "hooks.json").read_text(encoding="utf-8")
    hooks: dict[str, list[Any]] = json.loads(text)[_HOOKS]
    for hook in (one for groups in hooks.values() for group in groups for one in group[_HOOKS]):
        found = hook_call(hook["command"])
        assert found is not None
        hook["command"] = call.hook(found[1])
    return hooks


def _wanted_commands(call: RalphCall) -> dict[str, str]:
    """The command of each event's hook."""
    return {event: groups[0][_HOOKS][0]["command"] for event, groups in wanted_hooks(call).items()}


def hooks_in(settings: dict[str, Any]) -> dict[str, list[tuple[RalphCall, str]]]:
    """Each event that calls Ralph, with the calls and the whole commands."""
    hooks = settings.get(_HOOKS)
    found = {
        event: [called for group in groups for hook in _list_in(group) if (called := _called(hook))]
        for event, groups in (hooks.items() if isinstance(hooks, dict) else ())
        if isinstance(groups, list)
    }
    return {event: calls for event, calls in found.items() if calls}


def with_hooks(text: str | None, call: RalphCall, where: Path) -> str:
    """The settings with all our hooks, each once; those that are right stay as they are."""
    settings = {} if text is None else _read_settings(text, where)
    wanted, commands, found = wanted_hooks(call), _wanted_commands(call), hooks_in(settings)
    changed = deepcopy(settings)
    stale = [event for event in found if [c for _, c in found[event]] != [commands.get(event)]]
    _take_out(changed, stale)
    hooks = changed.setdefault(_HOOKS, {})
    for event, groups in wanted.items():
        if event in stale or event not in found:
            hooks[event] = [*hooks.get(event, []), *groups]
    _drop_empty(changed, stale)
    return text if text is not None and changed == settings else write_json(changed)


def without_hooks(text: str, where: Path) -> str | None:
    """The settings without our hooks; None when nothing else was in them."""
    settings = _read_settings(text, where)
    found = hooks_in(settings)
    if not found:
        return text
    _take_out(settings, found)
    _drop_empty(settings, found)
    return write_json(settings) if settings else None


def _take_out(settings: dict[str, Any], events: Collection[str]) -> None:
    """Take our hooks out of these events; a group that is all ours goes with its matcher."""
    for event in events:
        groups = []
        for group in settings[_HOOKS][event]:
            hooks = _list_in(group)
            left = [hook for hook in hooks if not _called(hook)]
            if left == hooks:
                groups.append(group)
            elif left:
                groups.append({**group, _HOOKS: left})
        settings[_HOOKS][event] = groups


def _drop_empty(settings: dict[str, Any], events: Collection[str]) -> None:
    for event in events:
        if not settings[_HOOKS][event]:
            del settings[_HOOKS][event]
    if not settings[_HOOKS]:
        del settings[_HOOKS]


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


def _read_settings(text: str, where: Path) -> dict[str, Any]:
    """Refuse what is not laid out as settings are: we would not know where ours belong."""
    settings = read_json(text, where)
    hooks = settings.get(_HOOKS, {})
    if not isinstance(hooks, dict):
        raise _unfit(where, _HOOKS, "an object")
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise _unfit(where, f"{_HOOKS}.{event}", "a list")
    return settings


def with_server(text: str | None, call: RalphCall, where: Path) -> str:
    """The file with our MCP server in it."""
    settings = {} if text is None else read_json(text, where)
    servers = settings.setdefault(_SERVERS, {})
    if not isinstance(servers, dict):
        raise _unfit(where, _SERVERS, "an object")
    known = server_call(servers.get(SERVER))
    if SERVER in servers and known is None:
        raise foreign_server(where)
    if text is not None and known == call:
        return text
    servers[SERVER] = call.server()
    return write_json(settings)


def without_server(text: str, where: Path) -> str | None:
    """The file without our MCP server; None when nothing else was in it."""
    settings = read_json(text, where)
    if server_in(settings) is None:
        return text
    del settings[_SERVERS][SERVER]
    if not settings[_SERVERS]:
        del settings[_SERVERS]
    return write_json(settings) if settings else None


def server_in(settings: dict[str, Any]) -> RalphCall | None:
    """How our MCP server is called, None where it is not registered."""
    servers = settings.get(_SERVERS)
    return server_call(servers.get(SERVER)) if isinstance(servers, dict) else None


def _unfit(where: Path, key: str, what: str) -> BadInput:
    return BadInput(f"{key} must be {what}", where=str(where), todo="Fix it. Nothing was changed.")


# -- A person's own MCP server: the client rewrites its file all the time, so nobody else may.


def registered() -> RalphCall | None:
    """How the registered server is called; one with our name that is not ours is an error."""
    file = servers_file(None)
    text = read_text(file)
    servers = {} if text is None else read_json(text, file).get(_SERVERS)
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
            why = (asked.stderr or asked.stdout).decode(errors="replace").strip()
            raise _refused(words, why)
    return None


def _refused(words: list[str], why: str) -> RalphError:
    return RalphError(
        f"claude could not change its MCP servers: {why}",
        todo=f"The hooks are done; run by hand: {shlex.join(['claude', *words])}",
    )


# -- What is set up.


def places(root: Path | None) -> list[SetupPlace]:
    """The person's own settings, the project's, and the plugin."""
    found = [_place("user", None)]
    if root is not None:
        found.append(_place("project", root))
    return [*found, _plugin(root)]


def _place(where: Literal["user", "project"], root: Path | None) -> SetupPlace:
    hooks = setup_part(settings_file(root), root, _hooks_part)
    return SetupPlace("claude", where, hooks, setup_part(servers_file(root), root, _server_part))


def _hooks_part(text: str, file: Path, root: Path | None) -> SetupPart:
    found = hooks_in(read_json(text, file))
    if not found:
        return SetupPart(str(file), "none")
    calls = list(dict.fromkeys(call for pairs in found.values() for call, _ in pairs))
    missing = [event for event in wanted_hooks(RalphCall(NAMED)) if event not in found]
    state: State = "partly" if missing else "installed"
    outdated = any(
        is_outdated(call, root) or command != _wanted_commands(call).get(event)
        for event, pairs in found.items()
        for call, command in pairs
    )
    return SetupPart(str(file), state, missing, list(map(setup_call, calls)), outdated=outdated)


def _server_part(text: str, file: Path, root: Path | None) -> SetupPart:
    return server_part(file, server_in(read_json(text, file)), root)


def _plugin(root: Path | None) -> SetupPlace:
    """The plugin brings hooks and server together, where it is there and not switched off."""
    part = setup_part(
        _user_folder() / "plugins" / "installed_plugins.json",
        None,
        lambda text, file, _: _plugin_part(file, read_json(text, file)),
    )
    if part.state == "installed" and not _plugin_enabled(root):
        part = msgspec.structs.replace(part, state="disabled", calls=[])
    return SetupPlace("claude", "plugin", part, part)


def _plugin_part(file: Path, noted: dict[str, Any]) -> SetupPart:
    plugins = noted.get("plugins")
    if not isinstance(plugins, dict) or not plugins.get(PLUGIN):
        return SetupPart(str(file), "none")
    # The plugin is the package's own, so what it calls is up to date.
    return SetupPart(str(file), "installed", calls=[setup_call(RalphCall(NAMED))])


def _plugin_enabled(root: Path | None) -> bool:
    """What the settings say of the plugin, the last one that says it."""
    values = [plugins.get(PLUGIN) for _, plugins in _settings_of(root, "enabledPlugins", dict)]
    return ([value for value in values if isinstance(value, bool)] or [False])[-1]


def warnings(places: list[SetupPlace], root: Path | None) -> list[str]:
    """What is done twice, and whether a person has switched all hooks off."""
    # Claude Code knows the same command in two settings, not in a plugin.
    hooks = {
        place.where: place.hooks.calls[0] for place in places if place.hooks and place.hooks.calls
    }
    plugin = "plugin" in hooks
    found = []
    if len({call for where, call in hooks.items() if where != "plugin"}) + plugin > 1:
        found.append(f"each event calls Ralph more than once: {_choice(list(hooks))}")
    servers = [place.where for place in places if place.mcp.calls]
    if plugin and len(servers) > 1:
        found.append(f"the memory's tools are offered twice: {_choice(servers)}")
    disabled = _settings_of(root, "disableAllHooks", bool)
    if hooks and disabled and disabled[-1][1]:
        what = "disableAllHooks is on, so no hook is called. Take it out to use the memory."
        found.append(f"{disabled[-1][0]}: {what}")
    return found


def _choice(where: Sequence[str]) -> str:
    return f"{', '.join(where)}. Run: {' or '.join(map(_removal, where))}"


def _removal(where: str) -> str:
    if where == "plugin":
        return f"claude plugin uninstall {PLUGIN}"
    return f"ralph hooks uninstall --{where}"


def _settings_of(root: Path | None, name: str, kind: type[_T]) -> list[tuple[Path, _T]]:
    """The files of Claude Code that set this, the one that counts most last."""
    files: list[tuple[Path, Path | None]] = [(settings_file(None), None)]
    if root is not None:
        project = settings_file(root)
        files += [(project, root), (project.with_name("settings.local.json"), root)]
    found = []
    for file, whose in files:
        try:
            text = read_text(file, root=whose)
            value = None if text is None else read_json(text, file).get(name)
        except RalphError:
            continue  # reported with the hooks
        if isinstance(value, kind):
            found.append((file, value))
    return found
