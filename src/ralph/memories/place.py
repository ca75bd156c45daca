"""The shelf of one project: the journals of its features, and the index beside them."""

from __future__ import annotations

from pathlib import Path

from ralph.config import Settings
from ralph.errors import JournalError
from ralph.index.open import index_for
from ralph.index.sync import Progress
from ralph.memories.journals import feature_journals, known_by
from ralph.memories.project import Project
from ralph.memories.shelf import Shelf, make_embedder, short_hash


class Place(Shelf):
    """One project's memory on this machine."""

    def __init__(
        self, project: Project, settings: Settings, *, home: Path, progress: Progress | None = None
    ) -> None:
        known = known_by(lambda: self.index, self.collection_name)
        journals = feature_journals(project, settings, home, known=known)
        index = index_for(
            settings,
            [project.cache],
            home=home,
            scope=lambda: f"{short_hash(project.id)}-",
        )
        super().__init__(
            journals, index, make_embedder(settings, home), settings, progress=progress
        )
        self.project = project
        self.home = home

    def ensure(self) -> None:
        """Make the project's files before the first record is kept."""
        if self.project.exists and self.project.has_id:
            return
        try:
            self.project.init()
        except OSError as error:
            raise JournalError(
                f"the project's files cannot be made ({error.strerror or error})",
                where=str(self.project.folder),
                todo="Free space or permit writing there, then try again.",
            ) from error

    def collection_name(self, stream: str) -> str:
        """The collection of a feature; two projects never share one (F18)."""
        return f"{short_hash(self.project.id)}-{short_hash(stream)}"
