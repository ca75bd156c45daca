"""What `doctor` looks at: each check is one function that tells what it found."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ralph import disk
from ralph.errors import EmbedderOff, RalphError

if TYPE_CHECKING:
    from ralph.config import Settings
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph

State = Literal["ok", "warning", "problem"]
_OLDEST_PYTHON = (3, 11)
_DRAFT = re.compile(r"\..+\.\d+-\d+\.tmp")
# A draft as young as this may be one that is being written.
_DRAFT_AGE_S = 60.0


class Check(msgspec.Struct, frozen=True):
    """One thing that memory needs: whether it is there, and what to do if not."""

    name: str
    state: State
    detail: str
    todo: str | None = None


def checked(name: str, look: Callable[[], Check]) -> Check:
    """What a check found; one that fails by itself is a problem, not the end of the others."""
    try:
        return look()
    except RalphError as error:
        where = f"{error.where}: " if error.where else ""
        return Check(name, "problem", where + error.what, error.todo)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Check(name, "problem", f"{where}{error.strerror or error}")


def python() -> Check:
    """The interpreter is new enough."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _OLDEST_PYTHON:
        return Check("python", "ok", found)
    return Check("python", "problem", found, "Install Python 3.11 or newer.")


def sqlite() -> Check:
    """SQLite can search by words."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    except sqlite3.OperationalError as error:
        todo = "Install a Python whose SQLite has FTS5."
        return Check("sqlite", "problem", f"{sqlite3.sqlite_version} lacks FTS5 ({error})", todo)
    finally:
        connection.close()
    return Check("sqlite", "ok", f"{sqlite3.sqlite_version} with FTS5")


def home(folder: Path) -> Check:
    """What belongs to no project has a place."""
    nearest = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if os.access(nearest, os.W_OK) and nearest.is_dir():
        return Check("home", "ok", str(folder))
    todo = "Permit writing there, or set RALPH_HOME to a folder of yours."
    return Check("home", "warning", f"{folder} cannot be written to", todo)


def settings(folder: Path, project: Project | None) -> Check:
    """The files and the environment name only settings that exist and fit."""
    from ralph.config import load, unknown_variables

    found = load(home=folder, project_file=project.settings_file if project else None)
    if unknown := unknown_variables():
        todo = "`ralph config` shows every setting."
        return Check("settings", "warning", f"no setting is called {', '.join(unknown)}", todo)
    changed = sum(one.origin != "default" for one in found.origins)
    return Check("settings", "ok", f"{changed} differ from the defaults" if changed else "defaults")


def trust(folder: Path, project: Project) -> Check:
    """The project asks for nothing that its person has not seen."""
    from ralph.memory.project import untrusted, wishes_of

    asked = wishes_of(project, home=folder)
    if not asked:
        return Check("trust", "ok", "this project asks for nothing special")
    if waiting := untrusted(project, home=folder):
        detail = f"not taken: {'; '.join(one.text for one in waiting)}"
        return Check("trust", "warning", detail, "See it whole and allow it: ralph trust")
    return Check("trust", "ok", f"you allowed what it asks for ({len(asked)})")


def pause(folder: Path, project: Project | None) -> Check:
    """What is said is kept."""
    from ralph.memory.pausing import in_force

    held = in_force(folder, project.id if project else "")
    if held is None:
        return Check("pause", "ok", "none")
    todo = "Run: ralph resume" + ("" if held.project else " --everywhere")
    return Check("pause", "warning", str(held), todo)


def embedder(settings: Settings) -> Check:
    """What makes vectors is there, and is exactly what it should be."""
    from ralph.index.embedders import choose_embedder

    chosen = choose_embedder(settings, None)  # without stamps: its files are hashed now
    if chosen is None:
        todo = "Run: ralph config embedder static"
        return Check("embedder", "warning", "none: searching by words alone", todo)
    try:
        chosen.check()
    except EmbedderOff as error:
        where = f"{error.where}: " if error.where else ""
        return Check("embedder", "problem", where + error.what, error.todo)
    return Check("embedder", "ok", f"{chosen.identity}, {chosen.dims} dimensions")


def project_files(project: Project) -> Check:
    """The files that `init` makes are there, and the id that clones share."""
    missing = [file.relative_to(project.root).as_posix() for file in project.missing()]
    if not project.has_id and not missing:
        missing = ["project_id in metadata.yaml"]
    if missing:
        return Check("project", "problem", f"missing: {', '.join(missing)}", "Run: ralph init")
    if rivals := project.rivals:
        detail = f"its id belongs to {', '.join(rivals)}; memory here is kept apart from theirs"
        todo = "If it is the same project, moved or copied, run: ralph trust"
        return Check("project", "warning", detail, todo)
    return Check("project", "ok", f"{project.root} ({project.id})")


def journal(ralph: Ralph) -> Check:
    """Every line of every journal reads as it was written."""
    judged = [memory.verify() for memory in ralph.features()]
    complaints = [complaint for _, some in judged for complaint in some]
    records = sum(number for number, _ in judged)
    if complaints:
        more = f" and {len(complaints) - 1} more" if len(complaints) > 1 else ""
        detail = f"{complaints[0]}{more}"
        return Check("journal", "problem", detail, "Run: ralph journal verify")
    return Check("journal", "ok", f"{records} records in {len(judged)} journals")


def cache(ralph: Ralph) -> Check:
    """The index has a folder it can be written to."""
    return Check("cache", "ok", str(ralph.place.index.path.parent))


def index(ralph: Ralph) -> Check:
    """The index is what the journal says it should be."""
    from ralph.memory.status import verify_index

    found = verify_index(ralph)
    if found.ok:
        return Check("index", "ok", f"{found.records} records, current")
    first = found.faults[0]
    more = f" and {len(found.faults) - 1} more" if len(found.faults) > 1 else ""
    state: State = "warning" if all(fault.mends for fault in found.faults) else "problem"
    where = f"{first.feature}: " if first.feature else ""
    return Check("index", state, f"{where}{first.what}{more}", first.todo)


def leftovers(project: Project) -> Check:
    """No half-written file of a crash and no damaged index lies around."""
    young = time.time() - _DRAFT_AGE_S
    folders = (project.folder, project.db, project.journals)
    drafts = [
        folder / name
        for folder in folders
        for name in disk.names(folder)
        if _DRAFT.fullmatch(name) and disk.stat(folder / name).st_mtime < young
    ]
    if drafts:
        names = ", ".join(file.relative_to(project.root).as_posix() for file in drafts)
        return Check("leftovers", "warning", f"of a crash: {names}", "They can be deleted.")
    damaged = [file.name for file in project.cache.glob("index-v*.damaged-*")]
    if damaged:
        names = ", ".join(sorted(damaged))
        return Check("leftovers", "warning", f"set aside: {names}", "Run: ralph index prune")
    if "cache" in disk.names(project.folder):
        detail = ".ralph/cache, which Ralph no longer uses"
        return Check("leftovers", "warning", detail, "It can be deleted.")
    return Check("leftovers", "ok", "none")
