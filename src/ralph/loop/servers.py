"""The MCP servers an agent is started with: Ralph's own, and those of the task's discipline."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.config import spelled
from ralph.memory.project import server_wishes
from ralph.memory.ralph import Ralph
from ralph.plan.model import Task
from ralph.plan.store import Plan
from ralph.programs import find_program, python
from ralph.trust import trusted

MEMORY = "feature-memory"
PLAN = "plan"
_FILE = "mcp.json"
# What the clients take as a name; it becomes a part of the names of the tools.
_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")

Entry = dict[str, Any]


class Servers(msgspec.Struct, frozen=True):
    """Servers by name, each as Claude Code's config file has it, and what was left out and why."""

    entries: dict[str, Entry]
    notes: tuple[str, ...] = ()


def loop_servers(ralph: Ralph, plan: Plan, task: Task, *, review: bool, memory_on: bool) -> Servers:
    """What one iteration gets: memory and plan in one server (the plan alone when memory is off),
    and the discipline's servers beside it."""
    words = [f"--feature={task.feature}"]
    words += ["--review"] if review else [f"--task={task.id}"]
    words += [] if memory_on else ["--no-memory"]
    own = {own_server(memory_on=memory_on): _own(ralph, plan.project, *words)}
    theirs, notes = _of_discipline(ralph, plan, task)
    return Servers(own | theirs, tuple(notes))


def planning_servers(ralph: Ralph, project: Path) -> Servers:
    """What a planning run gets: the tools that make a plan, for the project in this folder."""
    return Servers({PLAN: _own(ralph, project, "--planning")})


def own_server(*, memory_on: bool) -> str:
    """The name of Ralph's own server in an iteration."""
    return MEMORY if memory_on else PLAN


def write_mcp_config(folder: Path, servers: Servers) -> Path:
    """The servers as the file that Claude Code reads, for our eyes alone: it may hold keys."""
    file = folder / _FILE
    text = json.dumps({"mcpServers": servers.entries}, indent=2, ensure_ascii=False)
    disk.write(file, text.encode())
    return file


def _own(ralph: Ralph, project: Path, *words: str) -> Entry:
    program, *isolated = python()
    return {
        "type": "stdio",
        "command": program,
        "args": [*isolated, "-m", "ralph", "mcp", *words],
        "env": _environment(ralph, project),
        # Otherwise only the names of the tools reach the model.
        "alwaysLoad": True,
    }


def _environment(ralph: Ralph, project: Path) -> dict[str, str]:
    """Where things are, and the settings in force that no file says."""
    found = {"RALPH_HOME": str(ralph.place.home), "RALPH_PROJECT": str(project)}
    for one in ralph.config.origins:
        if one.origin == "given" or one.origin.startswith("RALPH_"):
            # Not `one.value`: of a secret that says only whether there is one.
            value = getattr(ralph.config.settings, one.key)
            found[f"RALPH_{one.key.upper()}"] = spelled(one.key, value)
    if debug := os.environ.get("RALPH_DEBUG"):
        found["RALPH_DEBUG"] = debug
    return found


def _of_discipline(ralph: Ralph, plan: Plan, task: Task) -> tuple[dict[str, Entry], list[str]]:
    named = [one for one in plan.read("disciplines").disciplines if one.name == task.discipline]
    allowed = trusted(ralph.place.home, plan.project)
    entries: dict[str, Entry] = {}
    notes: list[str] = []
    for discipline in named[:1]:
        wishes = server_wishes(discipline)
        for given, entry in discipline.mcp_servers.items():
            name = _UNUSABLE.sub("_", str(given))
            whose = f"disciplines.yaml: the MCP server {given!r} of {discipline.name} is left out"
            if name in (MEMORY, PLAN):
                notes.append(f"{whose}: Ralph's own is called so; give it another name")
            elif name in entries:
                notes.append(f"{whose}: another is called {name} too")
            elif not isinstance(entry, dict) or not (entry.get("command") or entry.get("url")):
                notes.append(f"{whose}: it has no `command` and no `url`")
            elif wishes[given].digest not in allowed:
                notes.append(f"{whose}: you have not allowed it. See it and allow it: ralph trust")
            elif (found := _found(entry, plan.project)) is None:
                notes.append(
                    f"{whose}: {entry['command']!r} is not on the PATH outside the project"
                )
            else:
                entries[name] = found
    return entries, notes


def _found(entry: Entry, root: Path) -> Entry | None:
    """The server with its program's full path: whoever starts it stands in the project's folder."""
    command, given = entry.get("command"), entry.get("env")
    if not isinstance(command, str) or "${" in command or Path(command).name != command:
        return entry
    path = given.get("PATH") if isinstance(given, dict) else None
    program = find_program(command, root=root, path=path if isinstance(path, str) else None)
    return None if program is None else {**entry, "command": program}
