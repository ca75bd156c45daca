"""Hooks in settings that are laid out as Claude Code's: those of Gemini CLI and Codex, too.

`{"hooks": {EVENT: [{"matcher": ..., "hooks": [{"type": "command", "command": ...}]}]}}`. Hooks of
ours are known by what they call: Ralph, the word `hook`, and an event. So those of an older version
are found as well, wherever a person moved them, and no mark must be kept beside them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from ralph.clients import setup

_HOOKS = "hooks"


def hooks_in(settings: dict[str, Any]) -> dict[str, list[tuple[setup.RalphCall, str]]]:
    """Each event that calls Ralph, with the calls and the whole commands."""
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
    """The groups of each event of a client: its name there, ours, the tools, and the timeout."""
    found: dict[str, list[Any]] = {}
    for event, ours, matcher, timeout in rows:
        command = call.hook(f"{ours} --agent {agent}")
        hook = {**more, "type": "command", "command": command, "timeout": timeout}
        found[event] = [{**({"matcher": matcher} if matcher else {}), _HOOKS: [hook]}]
    return found


class HooksSetup(setup.ClientSetup):
    """A client with hooks; its MCP server may be in the same file."""

    has_hooks = True

    @abstractmethod
    def hooks_file(self, root: Path | None) -> Path:
        """Where its hooks are: of the project at this root, else the person's own."""

    @abstractmethod
    def wanted_hooks(self, call: setup.RalphCall) -> dict[str, list[Any]]:
        """The groups of each event, calling Ralph so."""

    def edits(
        self, root: Path | None, call: setup.RalphCall | None, *, mcp: bool = True
    ) -> list[setup.SettingsEdit]:
        """The hooks, and the server where it is wanted."""
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
        """The settings with all our hooks, each once; those that are right stay as they are."""
        settings = {} if text is None else _read_settings(text, where)
        wanted = self.wanted_hooks(call)
        commands, found = _commands(wanted), hooks_in(settings)
        stale = [event for event in found if [c for _, c in found[event]] != [commands.get(event)]]
        hooks = _others(settings, stale)
        for event, groups in wanted.items():
            if event in stale or event not in found:
                hooks[event] = [*hooks.get(event, []), *groups]
        changed = {**settings, _HOOKS: {e: hooks[e] for e in hooks if hooks[e] or e not in stale}}
        return text if text is not None and changed == settings else setup.write_json(changed)

    def without_hooks(self, text: str, where: Path) -> str | None:
        """The settings without our hooks; None when nothing else was in them."""
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
        """Our hooks in the settings of the project at this root, else the person's own."""

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
    """The command of each event's hook."""
    return {event: groups[0][_HOOKS][0]["command"] for event, groups in wanted.items()}


def _others(settings: dict[str, Any], events: Collection[str]) -> dict[str, list[Any]]:
    """The hooks of each event, without ours of these; a group of ours goes with its matcher."""
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
    """Refuse what is not laid out as settings are: we would not know where ours belong."""
    settings = setup.read_json(text, where)
    hooks = settings.get(_HOOKS, {})
    if not isinstance(hooks, dict):
        raise setup.refusal(f"{_HOOKS} must be an object", where)
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise setup.refusal(f"{_HOOKS}.{event} must be a list", where)
    return settings
