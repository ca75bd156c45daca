"""Fixes that hold in any of a person's projects: the command that got past an error of a tool.

Only an identical signature counts, it must name a tool that many projects use, and the fix is a
command without anything of the other project: no path, no name, no diff. Each project writes its
own table, in Ralph's home; one that does not give its knowledge has none.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ralph import disk
from ralph.capture.rules import names
from ralph.capture.shapes import stripped
from ralph.capture.shell import commands
from ralph.memory.project import Project
from ralph.records.conversation import Exchange
from ralph.state_folders import state_name
from ralph.text.signature import signature, tells

_LARGEST_BYTES = 200_000
_MOST_FIXES = 200
_MOST_PROJECTS = 200
_FIX = re.compile(r"^(?:Ran )?`([^`\n]{2,120})`(?: instead of `[^`]+`|; then `)")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_SUBCOMMAND = re.compile(r"[a-z][a-z-]{1,20}")
_OTHER_TOOLS = frozenset("python python3 node npx pytest tox java ruby php perl psql curl".split())


class GeneralFix(msgspec.Struct, frozen=True, kw_only=True):
    """The signature of an error and the command that got past it; never the other's own words."""

    signature: str
    fix: str
    at: str = ""
    times: int = 1


class _FixesFile(msgspec.Struct):
    version: int = 1
    fixes: list[GeneralFix] = []


def general_fix(message: str, resolution: str) -> tuple[str, str] | None:
    """Return the signature and the command if they hold in other projects, too."""
    found = _FIX.match(resolution)
    if found is None or not tells(message):
        return None
    name = signature(message)
    parts = commands(found[1])
    if len(parts) != 1 or "<" in name:
        return None  # a placeholder may stand for a path or a name of the project
    words = stripped(parts[0])
    if not words or words[0] not in names("many") | _OTHER_TOOLS:
        return None
    said = set(re.findall(r"[\w.:@-]+", name))
    if words[0] not in said:
        return None
    for place, word in enumerate(words[1:], 1):
        is_known = word.lower() in said or _OPTION.fullmatch(word)
        if not is_known and not (place == 1 and _SUBCOMMAND.fullmatch(word)):
            return None
    if re.search(r"[/\\]", f"{name} {found[1]}"):
        return None
    return name, " ".join(words)


def write_general_fixes(project: Project, exchanges: Iterable[Exchange], *, gives: bool) -> None:
    """Store the fixes of this project that hold elsewhere; none if it does not give them."""
    found: dict[str, GeneralFix] = {}
    for exchange in exchanges if gives else ():
        for error in exchange.errors:
            if pair := general_fix(error.message, error.resolution or ""):
                name, fix = pair
                before = found.get(name)
                found[name] = GeneralFix(
                    signature=name,
                    fix=fix,
                    at=exchange.completed or "",
                    times=1 + (before.times if before else 0),
                )
    file = _folder(project.home) / f"{state_name(project.root)}.json"
    with contextlib.suppress(OSError):  # a read-only or full home has only its journals
        if not found:
            file.unlink(missing_ok=True)
            return
        disk.make_folder(file.parent)
        stored = _FixesFile(fixes=list(found.values())[-_MOST_FIXES:])
        disk.replace(file, msgspec.json.encode(stored) + b"\n", mode=0o600)


def remove_general_fixes(project: Project) -> None:
    """Remove the fixes of a project, in which something is being forgotten."""
    (_folder(project.home) / f"{state_name(project.root)}.json").unlink(missing_ok=True)


def fix_elsewhere(project: Project, message: str) -> GeneralFix | None:
    """Return how another project of this person got past the same error; the newest counts."""
    if not tells(message):
        return None
    wanted = signature(message)
    own = f"{state_name(project.root)}.json"
    found: list[GeneralFix] = []
    with contextlib.suppress(OSError):
        for name in disk.names(_folder(project.home))[:_MOST_PROJECTS]:
            if name.endswith(".json") and name != own:
                found += [
                    one for one in _read(_folder(project.home) / name) if one.signature == wanted
                ]
    return max(found, key=lambda one: one.at, default=None)


def _read(file: Path) -> list[GeneralFix]:
    try:
        data = disk.read(file, largest=_LARGEST_BYTES)
        return msgspec.json.decode(data, type=_FixesFile).fixes
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):  # it is written again
        return []


def _folder(home: Path) -> Path:
    return home / "cache" / "general"
