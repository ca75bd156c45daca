"""What of Ralph is set up in the clients: hooks, server, plugin, and what is odd about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ralph.doors.cli import client_places as places
from ralph.doors.cli import codex_settings
from ralph.doors.cli.client_call import NAME, NAMED, Call
from ralph.doors.cli.client_files import read_json, read_text
from ralph.doors.cli.client_settings import (
    PLUGIN,
    hooks_in,
    server_in,
    wanted_commands,
    wanted_hooks,
)
from ralph.errors import RalphError

_T = TypeVar("_T")
State = Literal["installed", "partly", "disabled", "none", "unreadable"]


class Called(msgspec.Struct, frozen=True):
    """A command that a client calls, and where it is; None when it is not there."""

    command: str
    found: str | None


class Part(msgspec.Struct, frozen=True):
    """The hooks or the server in one file."""

    file: str
    state: State
    missing: list[str] = []
    calls: list[Called] = []
    problem: str | None = None
    outdated: bool = False


class Seen(msgspec.Struct, frozen=True):
    """One place where a client may be told of Ralph; Codex has no hooks of ours."""

    agent: Literal["claude", "codex"]
    where: Literal["user", "project", "plugin"]
    hooks: Part | None
    mcp: Part

    @property
    def parts(self) -> list[Part]:
        """The hooks, where there may be any, and the server."""
        return [self.mcp] if self.hooks is None else [self.hooks, self.mcp]


class ClientStatus(msgspec.Struct, frozen=True):
    """Everything that is set up, and what a person should know of it."""

    project: str | None
    places: list[Seen]
    warnings: list[str]


def look(root: Path | None) -> ClientStatus:
    """What is set up for the person and for the project at this root."""
    seen = [_claude("user", None)]
    if root is not None:
        seen.append(_claude("project", root))
    seen.append(_plugin(root))
    seen.append(Seen("codex", "user", None, _codex_server(None)))
    if root is not None:
        seen.append(Seen("codex", "project", None, _codex_server(root)))
    warnings = [*_doubled(seen), *_odd(seen), *_silenced(seen, root)]
    return ClientStatus(str(root) if root else None, seen, warnings)


def _claude(where: Literal["user", "project"], root: Path | None) -> Seen:
    hooks = _part(places.claude_settings(root), root, _hooks)
    return Seen("claude", where, hooks, _part(places.claude_servers(root), root, _server))


def _part(file: Path, root: Path | None, judged: Callable[[str, Path, Path | None], Part]) -> Part:
    """What is in the file; one that cannot be read is no reason to say nothing of the others."""
    try:
        text = read_text(file, root=root)
        return Part(str(file), "none") if text is None else judged(text, file, root)
    except RalphError as error:
        return Part(str(file), "unreadable", problem=f"{error.where}: {error.what}")


def _hooks(text: str, file: Path, root: Path | None) -> Part:
    found = hooks_in(read_json(text, file))
    calls = list(dict.fromkeys(call for some in found.values() for call, _ in some))
    missing = [event for event in wanted_hooks(Call(NAMED)) if event not in found]
    if not found:
        return Part(str(file), "none")
    state: State = "partly" if missing else "installed"
    outdated = any(
        _is_outdated(call, root) or command != wanted_commands(call).get(event)
        for event, some in found.items()
        for call, command in some
    )
    return Part(str(file), state, missing, [_called(call) for call in calls], outdated=outdated)


def _server(text: str, file: Path, root: Path | None) -> Part:
    return _registered(file, server_in(read_json(text, file)), root)


def _codex_server(root: Path | None) -> Part:
    def judged(text: str, file: Path, root: Path | None) -> Part:
        return _registered(file, codex_settings.server_in(text, file), root)

    return _part(places.codex_settings(root), root, judged)


def _registered(file: Path, call: Call | None, root: Path | None) -> Part:
    if call is None:
        return Part(str(file), "none")
    outdated = _is_outdated(call, root)
    return Part(str(file), "installed", calls=[_called(call)], outdated=outdated)


def _is_outdated(call: Call, root: Path | None) -> bool:
    """Whether an older Ralph wrote it, so that a folder may put its own program in the place."""
    by_name = root is not None and call.program in (NAMED, NAME)
    return not by_name and not call.is_safe


def _called(call: Call) -> Called:
    return Called(call.shown, call.found())


def _plugin(root: Path | None) -> Seen:
    """The plugin brings hooks and server together, where it is there and not switched off."""
    file = places.claude_plugins()
    part = _part(file, None, lambda text, *_: _installed(file, read_json(text, file)))
    if part.state == "installed" and not _enabled(root):
        part = msgspec.structs.replace(part, state="disabled", calls=[])
    return Seen("claude", "plugin", part, part)


def _installed(file: Path, noted: dict[str, Any]) -> Part:
    plugins = noted.get("plugins")
    there = isinstance(plugins, dict) and bool(plugins.get(PLUGIN))
    # The plugin is the package's own, so what it calls is up to date.
    return Part(str(file), "installed", calls=[_called(Call(NAMED))]) if there else _none(file)


def _none(file: Path) -> Part:
    return Part(str(file), "none")


def _enabled(root: Path | None) -> bool:
    """What the settings say of the plugin, the last one that says it."""
    said = [plugins.get(PLUGIN) for _, plugins in _said(root, "enabledPlugins", dict)]
    return ([one for one in said if isinstance(one, bool)] or [False])[-1]


def _silenced(seen: list[Seen], root: Path | None) -> list[str]:
    """Whether a person has told the client to call no hooks at all."""
    if not any(one.hooks and one.hooks.calls for one in seen):
        return []
    told = [
        f"{file}: disableAllHooks is on, so no hook is called. Take it out to use the memory."
        if disabled
        else ""
        for file, disabled in _said(root, "disableAllHooks", bool)
    ]
    return [one for one in told[-1:] if one]


def _said(root: Path | None, name: str, kind: type[_T]) -> list[tuple[Path, _T]]:
    """The files of Claude Code that set this, the one that counts most last."""
    files: list[tuple[Path, Path | None]] = [(places.claude_settings(None), None)]
    if root is not None:
        project = places.claude_settings(root)
        files += [(project, root), (project.with_name("settings.local.json"), root)]
    found = [(file, _settings(file, whose).get(name)) for file, whose in files]
    return [(file, value) for file, value in found if isinstance(value, kind)]


def _settings(file: Path, root: Path | None) -> dict[str, Any]:
    try:
        text = read_text(file, root=root)
        return {} if text is None else read_json(text, file)
    except RalphError:
        return {}  # told of with the hooks


def _doubled(seen: list[Seen]) -> list[str]:
    """What is done twice: Claude Code knows the same command in two settings, not in a plugin."""
    claude = [one for one in seen if one.agent == "claude"]
    hooks = {one.where: one.hooks.calls[0] for one in claude if one.hooks and one.hooks.calls}
    plugin = "plugin" in hooks
    told = []
    if len({call for where, call in hooks.items() if where != "plugin"}) + plugin > 1:
        told.append(f"each event calls Ralph more than once: {_choice(list(hooks))}")
    servers = [one.where for one in claude if one.mcp.calls]
    if plugin and len(servers) > 1:
        told.append(f"the memory's tools are offered twice: {_choice(servers)}")
    return told


def _choice(where: Sequence[str]) -> str:
    return f"{', '.join(where)}. Run: {' or '.join(map(_removal, where))}"


def _removal(where: str) -> str:
    if where == "plugin":
        return f"claude plugin uninstall {PLUGIN}"
    return f"ralph hooks uninstall --{where}"


def _odd(seen: list[Seen]) -> list[str]:
    told: dict[str, None] = {}
    for one in seen:
        for part in one.parts:
            if part.problem:
                told[part.problem] = None
            again = f"Run: ralph hooks install --{one.where}"
            again += " --agent codex" if one.agent == "codex" else ""
            if part.outdated:
                what = "a folder you work in could put its own program in the place of Ralph"
                told[f"{part.file}: {what}. {again}"] = None
            if part.state == "partly":
                told[f"{part.file}: no hook for {', '.join(part.missing)}. {again}"] = None
            for call in part.calls:
                if call.found is None:
                    todo = "Install it there, or set RALPH_COMMAND."
                    told[f"{part.file}: {call.command} is not there. {todo}"] = None
    return list(told)
