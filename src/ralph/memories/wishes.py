"""What a project's folder asks for that a person must allow first.

Each source of wishes is one function; `wishes_of` is the list of them.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from ralph import trust
from ralph.config import wishes as setting_wishes
from ralph.errors import BadPlan
from ralph.memories.project import Project
from ralph.plan.model import Discipline
from ralph.plan.store import Plan
from ralph.trust import Wish

_SHOWN = ("command", "args", "url", "type")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


def wishes_of(project: Project, *, home: Path) -> list[Wish]:
    """Everything that this project asks for, allowed or not."""
    return [
        *project.wishes(),
        *setting_wishes(home=home, project_file=project.settings_file),
        *_servers(project),
    ]


def untrusted(project: Project, *, home: Path) -> list[Wish]:
    """What it asks for and does not get until the person runs `ralph trust`."""
    asked = wishes_of(project, home=home)
    known = trust.trusted(home, project.root) if asked else frozenset()
    return [one for one in asked if one.digest not in known]


def server_wishes(discipline: Discipline) -> dict[str, Wish]:
    """The wish behind each MCP server of a discipline, by the server's name."""
    return {
        name: _server(discipline.name, name, one) for name, one in discipline.mcp_servers.items()
    }


def trust_servers(project: Project, discipline: Discipline, *, home: Path) -> None:
    """Remember that a person gave a discipline these servers."""
    if discipline.mcp_servers:
        trust.trust(home, project.root, server_wishes(discipline).values(), more=True)


def _servers(project: Project) -> list[Wish]:
    try:
        disciplines = Plan(project.root, state=project.cache).read("disciplines").disciplines
    except BadPlan:
        return []  # told by `ralph plan check`; nothing of it is used
    return [wish for one in disciplines for wish in server_wishes(one).values()]


def _server(discipline: str, name: str, entry: Any) -> Wish:
    found = entry if isinstance(entry, dict) else {}
    does: list[str] = []
    if found.get("command"):
        given = found.get("args")
        words = [found["command"], *(given if isinstance(given, list) else [])]
        does.append(f"runs {shlex.join(map(str, words))}")
    if found.get("url"):
        does.append(f"connects to {found['url']}")
    for key, value in found.items():
        if key in ("env", "headers") and isinstance(value, dict):
            does.append(f"{key} {', '.join(map(str, value))}")  # a value may be a key
        elif key not in _SHOWN:
            does.append(f"{key} {value}")
    if taken := dict.fromkeys(_VARIABLE.findall(str(entry))):
        does.append(f"takes {', '.join(taken)} from your environment")
    text = f"MCP server {name} of {discipline}: {', '.join(does) or 'says nothing'}"
    return Wish("mcp_server", f"{discipline}/{name}", entry, text)
