"""Copies of the journals in a project's checkout, for the loop's guard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ralph.journal.copies import copy_journals, restore_lines
from ralph.memory.ralph import Ralph


class JournalCopies:
    """Copies of one project's journals; there are none if the journals are on a server."""

    def __init__(self, ralph: Ralph) -> None:
        self._journals = ralph.journal_files

    def take(self, folder: Path) -> list[str]:
        """Copy all journals to the folder; return the names of the files."""
        return [] if self._journals is None else copy_journals(self._journals, folder)

    def restore(
        self, folder: Path, taken: Callable[[Path, list[bytes]], set[bytes]]
    ) -> tuple[list[str], list[str]]:
        """Put lost lines back, except those that were `taken`; return what was done and left."""
        if self._journals is None:
            return [], []
        place = self._journals.path
        restored, left = restore_lines(
            self._journals, folder, lambda file, lost: taken(place / file, lost)
        )
        return list(map(str, restored)), list(map(str, left))
