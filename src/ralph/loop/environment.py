"""What an agent is started with, its variables and MCP servers; and what the loop tells."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ralph import disk
from ralph.clients import uses_login_shells
from ralph.programs import find_program, python
from ralph.records import now

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Task
    from ralph.plan.store import Plan

# What programs need to run at all, what toolchains are found by, and what the agents themselves
# are configured with. Everything else (other services' keys above all) stays here.
_PASSED = """
PATH HOME USER LOGNAME SHELL LANG LC_* LANGUAGE TERM COLORTERM TMPDIR TMP TEMP TZ XDG_*
SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE
http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY
SSH_AUTH_SOCK GIT_AUTHOR_* GIT_COMMITTER_* GIT_SSH_COMMAND
VIRTUAL_ENV CONDA_PREFIX PYENV_* NVM_* VOLTA_HOME JAVA_HOME GOPATH GOROOT GOFLAGS CARGO_HOME
RUSTUP_HOME DOTNET_ROOT ANDROID_HOME
ANTHROPIC_* CLAUDE_* DISABLE_* MCP_* OPENAI_* CODEX_* RALPH_*
SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT APPDATA LOCALAPPDATA PROGRAMDATA PROGRAMFILES*
USERPROFILE USERNAME HOMEDRIVE HOMEPATH
""".split()


# Ralph's own keys, and the address that holds a password: an agent's memory server is told them
# where it needs them, the agent is not.
_KEPT_BACK = ("RALPH_*_API_KEY", "RALPH_JOURNAL_URL")


def agent_environment(
    *,
    also: Iterable[str] = (),
    given: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables an agent gets: the usual ones, those named in `also`, and what we give."""
    source = os.environ if environ is None else environ
    patterns = [*_PASSED, *also]
    passed = {
        name: value
        for name, value in source.items()
        if any(fnmatch.fnmatchcase(_folded(name), _folded(pattern)) for pattern in patterns)
        and not any(fnmatch.fnmatchcase(_folded(name), one) for one in _KEPT_BACK)
    }
    passed["PATH"] = _with_ralph(passed.get("PATH", ""))
    return passed | dict(given or {})


def _with_ralph(path: str) -> str:
    """The agent is told to call `ralph`; it must find the one that drives it.

    Our folder comes last, because it may hold a `python` too and the project's own must stay the
    first; only another `ralph` before it puts it in front.
    """
    ours = str(Path(sys.executable).parent)
    # Relative entries lead into the project: what lies there must not pass for a program.
    folders = [folder for folder in path.split(os.pathsep) if Path(folder).is_absolute()]
    if ours not in folders:
        folders.append(ours)
    own = find_program("ralph", path=ours)
    if own is not None and shutil.which("ralph", path=os.pathsep.join(folders)) != own:
        folders.insert(0, ours)
    return os.pathsep.join(folders)


def own_command(environ: Mapping[str, str], *, agent: str = "") -> str:
    """How a program in this environment calls Ralph: by its name where that is found."""
    path = environ.get("PATH")
    if found := find_program("ralph", path=path):
        # A login shell may set its path anew.
        by_name = not uses_login_shells(agent) and shutil.which("ralph", path=path) == found
        return "ralph" if by_name else shlex.quote(found)
    return shlex.join([*python(), "-m", "ralph"])


def _folded(name: str) -> str:
    return name.upper() if sys.platform == "win32" else name


# -- MCP servers: Ralph's own, and those of the task's discipline.


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
        "env": _server_variables(ralph, project),
        # Otherwise only the names of the tools reach the model.
        "alwaysLoad": True,
    }


def _server_variables(ralph: Ralph, project: Path) -> dict[str, str]:
    """Where things are, and the settings in force that no file says."""
    from ralph.config import spelled

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
    from ralph.memory.project import server_wishes
    from ralph.trust import trusted

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


# -- What the loop tells while it runs: one value a fact, for a screen, a log or a program.


Name = Literal[
    "memory", "recovered", "started", "doing", "ended", "repaired", "learned", "waiting", "stopped"
]


class LoopEvent(msgspec.Struct, frozen=True):
    """One thing that happened, with its facts by name."""

    event: Name
    at: str
    facts: dict[str, Any]


Listener = Callable[[LoopEvent], None]


def tell(listener: Listener, event: Name, **facts: object) -> None:
    """Say what happened to whoever listens."""
    listener(LoopEvent(event, now(), facts))
