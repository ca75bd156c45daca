"""Ralph's part in Claude Code's settings: hooks, the MCP server, the plugin. Also similar hooks.

Gemini CLI and Codex lay out hooks like Claude Code:
`{"hooks": {EVENT: [{"matcher": ..., "hooks": [{"type": "command", "command": ...}]}]}}`. Our hooks
are recognized by their command: Ralph, the word `hook`, and an event. So hooks of an older version
are found too, wherever a person moved them, and they need no extra mark.
"""

from __future__ import annotations

import json
import os
import shlex
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ralph.clients import setup
from ralph.errors import RalphError
from ralph.programs import ask_program, find_program

_HOOKS = "hooks"


def hooks_in(settings: dict[str, Any]) -> dict[str, list[tuple[setup.RalphCall, str]]]:
    """Return each event that calls Ralph, with the calls and the whole commands."""
    hooks = settings.get(_HOOKS)
    found = {
        event: [called for group in groups for hook in _list_in(group) if (called := _called(hook))]
        for event, groups in (hooks.items() if isinstance(hooks, dict) else ())
        if isinstance(groups, list)
    }
    return {event: calls for event, calls in found.items() if calls}


def hook_groups(
    agent: str, call: setup.RalphCall, rows: Iterable[tuple[str, str, str, int]], **more: Any
) -> dict[str, list[Any]]:
    """Return the hook groups of each event; a row is its event, ours, the tools, the timeout."""
    found: dict[str, list[Any]] = {}
    for event, ours, matcher, timeout in rows:
        command = call.hook(f"{ours} --agent {agent}")
        hook = {**more, "type": "command", "command": command, "timeout": timeout}
        found[event] = [{**({"matcher": matcher} if matcher else {}), _HOOKS: [hook]}]
    return found


class HooksSetup(setup.ClientSetup):
    """Setup of a client with hooks; its MCP server may be in the same file."""

    has_hooks = True

    @abstractmethod
    def hooks_file(self, root: Path | None) -> Path:
        """Return the file of its hooks: of the project at this root, else the person's own."""

    @abstractmethod
    def wanted_hooks(self, call: setup.RalphCall) -> dict[str, list[Any]]:
        """Return the hook groups of each event, with this call of Ralph."""

    def edits(
        self, root: Path | None, call: setup.RalphCall | None, *, mcp: bool = True
    ) -> list[setup.SettingsEdit]:
        """Return the edits for the hooks and, if it is wanted, the server."""
        file = self.hooks_file(root)
        if not mcp or self.servers_file(root) != file:
            found = self._edits(file, root, call, self.with_hooks, self.without_hooks)
            found = [msgspec.structs.replace(edit, keeps_previous=True) for edit in found]
            return found + (super().edits(root, call) if mcp else [])

        def put_in(text: str | None, call: setup.RalphCall, where: Path) -> str:
            return self.with_server(self.with_hooks(text, call, where), call, where)

        def take_out(text: str, where: Path) -> str | None:
            left = self.without_hooks(text, where)
            return None if left is None else self.without_server(left, where)

        return self._edits(file, root, call, put_in, take_out)

    def with_hooks(self, text: str | None, call: setup.RalphCall, where: Path) -> str:
        """Return the settings with all our hooks, each once; correct ones stay as they are."""
        settings = {} if text is None else _read_settings(text, where)
        wanted = self.wanted_hooks(call)
        commands = _commands(wanted)
        found = hooks_in(settings)
        stale = [event for event in found if [c for _, c in found[event]] != [commands.get(event)]]
        hooks = _others(settings, stale)
        for event, groups in wanted.items():
            if event in stale or event not in found:
                hooks[event] = [*hooks.get(event, []), *groups]
        changed = {**settings, _HOOKS: {e: hooks[e] for e in hooks if hooks[e] or e not in stale}}
        return text if text is not None and changed == settings else setup.write_json(changed)

    def without_hooks(self, text: str, where: Path) -> str | None:
        """Return the settings without our hooks; None if nothing else was in them."""
        settings = _read_settings(text, where)
        found = hooks_in(settings)
        if not found:
            return text
        hooks = _others(settings, found)
        left = {event: groups for event, groups in hooks.items() if groups or event not in found}
        changed = {**settings, _HOOKS: left}
        if not left:
            del changed[_HOOKS]
        return setup.write_json(changed) if changed else None

    def hooks(self, root: Path | None) -> setup.SetupPart:
        """Return the state of our hooks: in the project at this root, else the person's own."""

        def judge(text: str, file: Path) -> setup.SetupPart:
            found = hooks_in(setup.read_json(text, file))
            if not found:
                return setup.SetupPart(str(file), "none")
            calls = list(dict.fromkeys(call for pairs in found.values() for call, _ in pairs))
            wanted = self.wanted_hooks(setup.RalphCall(setup.NAMED))
            missing = [event for event in wanted if event not in found]
            outdated = any(
                setup.is_outdated(call, root)
                or command != _commands(self.wanted_hooks(call)).get(event)
                for event, pairs in found.items()
                for call, command in pairs
            )
            state: setup.State = "partly" if missing else "installed"
            shown = list(map(setup.setup_call, calls))
            return setup.SetupPart(str(file), state, missing, shown, outdated=outdated)

        return setup.setup_part(self.hooks_file(root), root, judge)


def _commands(wanted: dict[str, list[Any]]) -> dict[str, str]:
    """Return the command of each event's hook."""
    return {event: groups[0][_HOOKS][0]["command"] for event, groups in wanted.items()}


def _others(settings: dict[str, Any], events: Collection[str]) -> dict[str, list[Any]]:
    """Return all hooks without ours for these events; a group with only ours goes completely."""
    hooks: dict[str, list[Any]] = dict(settings.get(_HOOKS, {}))
    for event in events:
        groups = []
        for group in hooks[event]:
            others = [hook for hook in _list_in(group) if not _called(hook)]
            if others == _list_in(group):
                groups.append(group)
            elif others:
                groups.append({**group, _HOOKS: others})
        hooks[event] = groups
    return hooks


def _called(hook: object) -> tuple[setup.RalphCall, str] | None:
    match hook:
        case {"type": "command", "command": str(command)} if found := setup.hook_call(command):
            return found[0], command
    return None


def _list_in(group: object) -> list[Any]:
    match group:
        case {"hooks": [*hooks]}:
            return hooks
    return []


def _read_settings(text: str, where: Path) -> dict[str, Any]:
    """Return the settings; refuse an unexpected layout, where our hooks have no known place."""
    settings = setup.read_json(text, where)
    hooks = settings.get(_HOOKS, {})
    if not isinstance(hooks, dict):
        raise setup.refusal(f"{_HOOKS} must be an object", where)
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise setup.refusal(f"{_HOOKS}.{event} must be a list", where)
    return settings


# -- Claude Code.


PLUGIN = "ralph@ralph"
# The plugin that comes with this package; the folder is also a marketplace.
PLUGIN_FOLDER = Path(__file__).parents[1] / "plugin"
# Gemini CLI reads `hooks/hooks.json` too, so its extension has a folder of its own.
PLUGIN_FOLDERS = {
    "claude": PLUGIN_FOLDER,
    "gemini": PLUGIN_FOLDER.with_name("extension"),
}
_REMOVING = ["mcp", "remove", "-s", "user", setup.SERVER]
_STATUS_LINE = "statusLine"
# `ralph hook statusline` is `ralph statusline`, called as carefully as hooks are.
_STATUS_EVENT = "statusline"
_T = TypeVar("_T")


def settings_file(root: Path | None) -> Path:
    """Return Claude Code's settings file: of the project at this root, else the person's own."""
    return (_user_folder() if root is None else root / ".claude") / "settings.json"


def _user_folder() -> Path:
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(given).expanduser() if given else Path.home() / ".claude"


def wanted_hooks(call: setup.RalphCall) -> dict[str, list[Any]]:
    """Return the plugin's own hooks, with this call of Ralph."""
    text = (PLUGIN_FOLDER / "hooks" / "hooks.json").read_text(encoding="utf-8")
    hooks: dict[str, list[Any]] = json.loads(text)["hooks"]
    for hook in (h for groups in hooks.values() for group in groups for h in group["hooks"]):
        found = setup.hook_call(hook["command"])
        assert found is not None
        hook["command"] = call.hook(found[1])
    return hooks


def _ask(*requests: list[str]) -> str | None:
    program = find_program("claude")
    if program is None:
        return " && ".join(shlex.join(["claude", *words]) for words in requests)
    for words in requests:
        code, why = ask_program([program, *words], timeout_s=setup.TIMEOUT_S)
        if code != 0:
            todo = f"The hooks are installed; run this yourself: {shlex.join(['claude', *words])}"
            raise RalphError(f"claude could not change its MCP servers: {why}", todo=todo)
    return None


class ClaudeCodeSetup(HooksSetup):
    """Setup of Claude Code: hooks in `settings.json`, the MCP server in `.mcp.json`."""

    agent = "claude"
    fills_variables = True

    def servers_file(self, root: Path | None) -> Path:
        """Return the file of its servers; the person's own file is only for the client to write."""
        if root is not None:
            return root / ".mcp.json"
        given = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(given).expanduser() if given else Path.home()) / ".claude.json"

    def wanted_hooks(self, call: setup.RalphCall) -> dict[str, list[Any]]:
        """Return the plugin's own hooks."""
        return wanted_hooks(call)

    def hooks_file(self, root: Path | None) -> Path:
        """Return its settings file."""
        return settings_file(root)

    def edits(
        self, root: Path | None, call: setup.RalphCall | None, *, mcp: bool = True
    ) -> list[setup.SettingsEdit]:
        """Return the edits for hooks and a project's server; the client registers a person's."""
        if mcp and root is None and call is not None:
            self.registered()  # refuses somebody else's server before anything is written
        return super().edits(root, call, mcp=mcp and root is not None)

    def with_hooks(self, text: str | None, call: setup.RalphCall, where: Path) -> str:
        """Add the hooks; update our status line, or add it if it is wanted and there is none."""
        after = super().with_hooks(text, call, where)
        settings = setup.read_json(after, where)
        line = settings.get(_STATUS_LINE)
        if _is_ours(line) or (self.adds_status_line and line is None):
            wanted = {"type": "command", "command": call.hook(_STATUS_EVENT)}
            if line != wanted:
                after = setup.write_json({**settings, _STATUS_LINE: wanted})
        return after

    def without_hooks(self, text: str, where: Path) -> str | None:
        """Return the settings without our hooks and our status line."""
        after = super().without_hooks(text, where)
        settings = {} if after is None else setup.read_json(after, where)
        if after is None or not _is_ours(settings.pop(_STATUS_LINE, None)):
            return after
        return setup.write_json(settings) if settings else None

    def places(self, root: Path | None) -> list[setup.SetupPlace]:
        """Return what is set up in the person's own settings, the project's, and the plugin.

        The plugin brings hooks and server together, if it is installed and not disabled.
        """

        def judge(text: str, file: Path) -> setup.SetupPart:
            plugins = setup.read_json(text, file).get("plugins")
            if not isinstance(plugins, dict) or not plugins.get(PLUGIN):
                return setup.SetupPart(str(file), "none")
            # Whether the settings enable the plugin; the last file that says so counts.
            values = [on.get(PLUGIN) for _, on in _settings_of(root, "enabledPlugins", dict)]
            if ([value for value in values if isinstance(value, bool)] or [False])[-1]:
                # The plugin comes with this package, so its calls are up to date.
                call = setup.setup_call(setup.RalphCall(setup.NAMED))
                return setup.SetupPart(str(file), "installed", calls=[call])
            return setup.SetupPart(str(file), "disabled")

        part = setup.setup_part(_user_folder() / "plugins" / "installed_plugins.json", None, judge)
        return [*super().places(root), setup.SetupPlace(self.agent, "plugin", part, part)]

    def warnings(self, places: list[setup.SetupPlace], root: Path | None) -> list[str]:
        """Warn about anything that is set up twice, and about disabled hooks."""
        # Claude Code runs the same command of two settings once, but a plugin's again.
        found_hooks = [(place.where, place.hooks.calls) for place in places if place.hooks]
        hooks = {where: calls[0] for where, calls in found_hooks if calls}
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

    # A person's own server: the client rewrites its file all the time, so nobody else may write it.

    def registered(self) -> setup.RalphCall | None:
        """Return how the registered server is called; raise if a server of our name is not ours."""
        file = self.servers_file(None)
        text = setup.read_text(file)
        servers = {} if text is None else setup.read_json(text, file).get(setup.SERVERS)
        if not isinstance(servers, dict) or setup.SERVER not in servers:
            return None
        call = setup.server_call(servers[setup.SERVER])
        if call is None:
            raise setup.foreign_server(file)
        return call

    def register(self, call: setup.RalphCall) -> str | None:
        """Have the client register the server; without a client, return the command to run."""
        before = self.registered()
        if before == call:
            return None
        adding = ["mcp", "add-json", "-s", "user", setup.SERVER, json.dumps(call.server())]
        return _ask(*([_REMOVING] if before else []), adding)

    def unregister(self) -> str | None:
        """Have the client remove the server; without a client, return the command to run."""
        return _ask(_REMOVING)


def status_line_owner() -> Literal["", "ralph", "person"]:
    """Return whose status line is in a person's own settings."""
    found = _settings_of(None, _STATUS_LINE, dict)
    return "" if not found else "ralph" if _is_ours(found[-1][1]) else "person"


def _is_ours(line: object) -> bool:
    called = setup.hook_call(line.get("command")) if isinstance(line, dict) else None
    return called is not None and called[1] == _STATUS_EVENT


def _choice(places: Sequence[str]) -> str:
    plugin = f"claude plugin uninstall {PLUGIN}"
    todo = [plugin if place == "plugin" else f"ralph hooks uninstall --{place}" for place in places]
    return f"{', '.join(places)}. Run: {' or '.join(todo)}"


def _settings_of(root: Path | None, name: str, kind: type[_T]) -> list[tuple[Path, _T]]:
    """Return the settings files that set this, with the value; the strongest comes last."""
    files: list[tuple[Path, Path | None]] = [(settings_file(None), None)]
    if root is not None:
        project = settings_file(root)
        files += [(project, root), (project.with_name("settings.local.json"), root)]
    found = []
    for file, whose in files:
        try:
            text = setup.read_text(file, root=whose)
            value = None if text is None else setup.read_json(text, file).get(name)
        except RalphError:
            continue  # reported with the hooks
        if isinstance(value, kind):
            found.append((file, value))
    return found
