"""What of Ralph is set up in the clients: hooks, server, plugin, and what is odd about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ralph.clients import codex_settings, places
from ralph.clients.claude_code_settings import (
    PLUGIN,
    hooks_in,
    server_in,
    wanted_commands,
    wanted_hooks,
    with_hooks,
    with_server,
    without_hooks,
    without_server,
)
from ralph.clients.setup import NAME, NAMED, RalphCall, SettingsEdit, read_json, read_text
from ralph.errors import RalphError

_T = TypeVar("_T")
State = Literal["installed", "partly", "disabled", "none", "unreadable"]


class SetupCall(msgspec.Struct, frozen=True):
    """A command that a client calls, and where it is; None when it is not there."""

    command: str
    found: str | None


class SetupPart(msgspec.Struct, frozen=True):
    """The hooks or the server in one file."""

    file: str
    state: State
    missing: list[str] = []
    calls: list[SetupCall] = []
    problem: str | None = None
    outdated: bool = False


class SetupPlace(msgspec.Struct, frozen=True):
    """One place where a client may be told of Ralph; Codex has no hooks of ours."""

    agent: Literal["claude", "codex"]
    where: Literal["user", "project", "plugin"]
    hooks: SetupPart | None
    mcp: SetupPart

    @property
    def parts(self) -> list[SetupPart]:
        """The hooks, where there may be any, and the server."""
        return [self.mcp] if self.hooks is None else [self.hooks, self.mcp]


class ClientStatus(msgspec.Struct, frozen=True):
    """Everything that is set up, and what a person should know of it."""

    project: str | None
    places: list[SetupPlace]
    warnings: list[str]


def look(root: Path | None) -> ClientStatus:
    """What is set up for the person and for the project at this root."""
    seen = [_claude("user", None)]
    if root is not None:
        seen.append(_claude("project", root))
    seen.append(_plugin(root))
    seen.append(SetupPlace("codex", "user", None, _codex_server(None)))
    if root is not None:
        seen.append(SetupPlace("codex", "project", None, _codex_server(root)))
    warnings = [*_doubled(seen), *_odd(seen), *_silenced(seen, root)]
    return ClientStatus(str(root) if root else None, seen, warnings)


def _claude(where: Literal["user", "project"], root: Path | None) -> SetupPlace:
    hooks = _part(places.claude_settings(root), root, _hooks)
    return SetupPlace("claude", where, hooks, _part(places.claude_servers(root), root, _server))


def _part(
    file: Path, root: Path | None, judged: Callable[[str, Path, Path | None], SetupPart]
) -> SetupPart:
    """What is in the file; one that cannot be read is no reason to say nothing of the others."""
    try:
        text = read_text(file, root=root)
        return SetupPart(str(file), "none") if text is None else judged(text, file, root)
    except RalphError as error:
        return SetupPart(str(file), "unreadable", problem=f"{error.where}: {error.what}")


def _hooks(text: str, file: Path, root: Path | None) -> SetupPart:
    found = hooks_in(read_json(text, file))
    calls = list(dict.fromkeys(call for some in found.values() for call, _ in some))
    missing = [event for event in wanted_hooks(RalphCall(NAMED)) if event not in found]
    if not found:
        return SetupPart(str(file), "none")
    state: State = "partly" if missing else "installed"
    outdated = any(
        _is_outdated(call, root) or command != wanted_commands(call).get(event)
        for event, some in found.items()
        for call, command in some
    )
    return SetupPart(
        str(file), state, missing, [_called(call) for call in calls], outdated=outdated
    )


def _server(text: str, file: Path, root: Path | None) -> SetupPart:
    return _registered(file, server_in(read_json(text, file)), root)


def _codex_server(root: Path | None) -> SetupPart:
    def judged(text: str, file: Path, root: Path | None) -> SetupPart:
        return _registered(file, codex_settings.server_in(text, file), root)

    return _part(places.codex_settings(root), root, judged)


def _registered(file: Path, call: RalphCall | None, root: Path | None) -> SetupPart:
    if call is None:
        return SetupPart(str(file), "none")
    outdated = _is_outdated(call, root)
    return SetupPart(str(file), "installed", calls=[_called(call)], outdated=outdated)


def _is_outdated(call: RalphCall, root: Path | None) -> bool:
    """Whether an older Ralph wrote it, so that a folder may put its own program in the place."""
    by_name = root is not None and call.program in (NAMED, NAME)
    return not by_name and not call.is_safe


def _called(call: RalphCall) -> SetupCall:
    return SetupCall(call.shown, call.found())


def _plugin(root: Path | None) -> SetupPlace:
    """The plugin brings hooks and server together, where it is there and not switched off."""
    file = places.claude_plugins()
    part = _part(file, None, lambda text, *_: _installed(file, read_json(text, file)))
    if part.state == "installed" and not _enabled(root):
        part = msgspec.structs.replace(part, state="disabled", calls=[])
    return SetupPlace("claude", "plugin", part, part)


def _installed(file: Path, noted: dict[str, Any]) -> SetupPart:
    plugins = noted.get("plugins")
    there = isinstance(plugins, dict) and bool(plugins.get(PLUGIN))
    # The plugin is the package's own, so what it calls is up to date.
    return (
        SetupPart(str(file), "installed", calls=[_called(RalphCall(NAMED))])
        if there
        else _none(file)
    )


def _none(file: Path) -> SetupPart:
    return SetupPart(str(file), "none")


def _enabled(root: Path | None) -> bool:
    """What the settings say of the plugin, the last one that says it."""
    said = [plugins.get(PLUGIN) for _, plugins in _said(root, "enabledPlugins", dict)]
    return ([one for one in said if isinstance(one, bool)] or [False])[-1]


def _silenced(seen: list[SetupPlace], root: Path | None) -> list[str]:
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


def _doubled(seen: list[SetupPlace]) -> list[str]:
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


def _odd(seen: list[SetupPlace]) -> list[str]:
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


# -- Which files change when Ralph is set up in a client or taken out of it. Reads, writes nothing.


Agent = Literal["claude", "codex"]


def installing(
    agent: Agent, root: Path | None, call: RalphCall, *, mcp: bool = True
) -> list[SettingsEdit]:
    """What sets Ralph up in the project at this root, or for the person where there is none."""
    if agent == "codex":
        file = places.codex_settings(root)
        text = read_text(file, root=root)
        return [SettingsEdit(file, text, codex_settings.with_block(text, call, file), root)]
    file = places.claude_settings(root)
    text = read_text(file, root=root)
    edits = [SettingsEdit(file, text, with_hooks(text, call, file), root)]
    if mcp and root is not None:
        file = places.claude_servers(root)
        text = read_text(file, root=root)
        edits.append(SettingsEdit(file, text, with_server(text, call, file), root))
    return edits


def uninstalling(agent: Agent, root: Path | None) -> list[SettingsEdit]:
    """What takes Ralph out of there again."""
    if agent == "codex":
        file = places.codex_settings(root)
        text = read_text(file, root=root)
        if text is None:
            return []
        return [SettingsEdit(file, text, codex_settings.without_block(text, file), root)]
    edits = []
    file = places.claude_settings(root)
    if (text := read_text(file, root=root)) is not None:
        edits.append(SettingsEdit(file, text, without_hooks(text, file), root))
    file = places.claude_servers(root)
    if root is not None and (text := read_text(file, root=root)) is not None:
        edits.append(SettingsEdit(file, text, without_server(text, file), root))
    return edits
