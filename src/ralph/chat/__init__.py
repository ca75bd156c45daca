"""A chat with a language model that remembers, and the workers behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralph.config import Settings, home_folder, load
from ralph.memory.conversations import GENERAL
from ralph.memory.project import Project, find_project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.store import ProjectStore

# A person who waits for an answer should not wait for another process that is indexing.
_LOCK_S = 0.1


class _NoProject(Project):
    """Stands in for a project outside of all projects."""

    id = GENERAL


def open_memory(start: Path, *, waits: bool = False, **settings: Any) -> Ralph:
    """Open the memory of the project around this folder, or the one outside of all projects.

    `waits`: wait for a lock on the index as long as the settings say.
    """
    home = home_folder()
    settings = settings if waits else {"index_lock_timeout_s": _LOCK_S, **settings}
    project = find_project(start, home=home)
    if project is not None:
        return open_ralph(project.root, home=home, **settings)
    config = load(home=home, given=settings)
    return Ralph(ProjectStore(_NoProject(start, home), config.settings, home=home), config)


def settings_at(start: Path, **given: Any) -> Settings:
    """The settings that apply in this folder, without opening anything."""
    home = home_folder()
    project = find_project(start, home=home)
    file = project.settings_file if project is not None else None
    return load(home=home, project_file=file, given=given).settings
