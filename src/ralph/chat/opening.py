"""The memory that a chat is held with: the project's, or the one for what belongs to no project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralph.config import Settings, home_folder, load
from ralph.memory.conversation_journal import GENERAL
from ralph.memory.conversations import Conversations
from ralph.memory.project import Project, find_project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.store import Place

# Whoever waits for an answer does not wait for whoever is indexing.
_LOCK_S = 0.1


class _NoProject(Project):
    """What stands for a project where there is none: its conversations are everybody's."""

    id = GENERAL


class _Nowhere(Ralph):
    """Memories outside of all projects: only conversations are kept there."""

    _held: Conversations | None = None

    @property
    def conversations(self) -> Conversations:
        """The conversations that belong to no project."""
        if self._held is None:
            place = self.place
            self._held = Conversations(
                home=place.home,
                settings=place.settings,
                embedder=place.embedder,
            )
        return self._held

    def close(self) -> None:
        """Let go of files; nothing is lost without it."""
        super().close()
        if self._held is not None:
            self._held.close()


def open_memory(start: Path, *, waits: bool = False, **settings: Any) -> Ralph:
    """The memories of the project around this folder, or else those of none.

    `waits`: a lock on the index is waited for as long as the settings say.
    """
    home = home_folder()
    given = settings if waits else {"index_lock_timeout_s": _LOCK_S, **settings}
    project = find_project(start, home=home)
    if project is not None:
        return open_ralph(project.root, home=home, **given)
    config = load(home=home, given=given)
    return _Nowhere(Place(_NoProject(start, home), config.settings, home=home), config)


def settings_of(start: Path, **given: Any) -> Settings:
    """The settings in force there, without opening anything."""
    home = home_folder()
    project = find_project(start, home=home)
    file = project.settings_file if project is not None else None
    return load(home=home, project_file=file, given=given).settings
