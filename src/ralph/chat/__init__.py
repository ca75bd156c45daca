"""A chat that gives a language model a memory, and the workers behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralph.config import Settings, home_folder, load
from ralph.memory.project import find_project, project_or_folder
from ralph.memory.ralph import Ralph, open_ralph


def open_memory(start: Path, *, waits: bool = False, **settings: Any) -> Ralph:
    """Open the memory of the project around this folder; without one, that of the folder itself.

    `waits`: wait for a lock on the index as long as the settings say.
    """
    project = project_or_folder(start, home=home_folder(), general=True)
    # A user who waits for an answer should not also wait for another process that is indexing.
    settings = settings if waits else {"index_lock_timeout_s": 0.1, **settings}
    return open_ralph(project=project, **settings)


def settings_at(start: Path, **given: Any) -> Settings:
    """The settings that apply in this folder, without opening anything."""
    home = home_folder()
    project = find_project(start, home=home)
    file = project.settings_file if project is not None else None
    return load(home=home, project_file=file, given=given).settings
