"""A project on disk: its root, its id, and the files that `init` makes."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from ralph import disk
from ralph.config import PROJECT_FILE
from ralph.errors import BadInput, NotAProject
from ralph.record import now

FOLDER = ".ralph"
_ID_LINE = re.compile(r"^project_id:[ \t]*[\"']?([0-9a-fA-F-]{36})[\"']?[ \t]*(?:#.*)?$", re.M)
_GIT_ATTRIBUTES = """\
# Two branches' journals merge line by line, without a conflict.
*.jsonl merge=union text eol=lf
"""
_GIT_IGNORE = """\
# Derived: everything in here is made again from the journal.
/cache/
*.tmp
"""


class Project:
    """The folder `.ralph` of one project. Opening it changes nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER
        self.db = self.folder / "db"
        self.journals = self.db / "memory"
        self.cache = self.folder / "cache"
        self.settings_file = self.folder / PROJECT_FILE
        self._metadata = self.db / "metadata.yaml"
        self._id: str | None = None
        # The id as it was last read, and the state of the file then: it is asked for often.
        self._read: tuple[tuple[int, int, int], str | None] | None = None

    @property
    def exists(self) -> bool:
        """Whether `init` has been here."""
        return self.db.is_dir()

    @property
    def id(self) -> str:
        """The project's own id, which travels with clones and worktrees.

        Until there is one on disk, an id from the path serves for reading.
        """
        if self._id is None:
            known = self._read_id()
            if known is None:
                return str(uuid.uuid5(uuid.NAMESPACE_URL, self.root.resolve().as_uri()))
            self._id = known
        return self._id

    @property
    def has_id(self) -> bool:
        """Whether the id is on disk, where clones get it from."""
        return self._read_id() is not None

    def init(self) -> list[Path]:
        """Make what is missing, change nothing that is there, and say what was made."""
        made = [file for file, text in self._files().items() if disk.create(file, text.encode())]
        if self._read_id() is None:
            self._give_id()
        return made

    def missing(self) -> list[Path]:
        """The files that `init` would make."""
        return [file for file in self._files() if not file.exists()]

    def _files(self) -> dict[Path, str]:
        metadata = (
            "# Kept with the project: clones and worktrees share this id, and so their memory.\n"
            f"project_id: {uuid.uuid4()}\ncreated: {now()}\n"
        )
        # The id comes last: where there is one, everything else is there too.
        return {
            self.journals / ".gitattributes": _GIT_ATTRIBUTES,
            self.folder / ".gitignore": _GIT_IGNORE,
            self._metadata: metadata,
        }

    def _read_id(self) -> str | None:
        try:
            stat = self._metadata.stat()
            state = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if self._read is None or self._read[0] != state:
                text = self._metadata.read_text(encoding="utf-8", errors="replace")
                found = _ID_LINE.search(text)
                self._read = state, found[1].lower() if found else None
        except FileNotFoundError:
            return None
        return self._read[1]

    def _give_id(self) -> None:
        """The file is there but its id was lost: add one line, keep the rest."""
        with disk.locked(self._metadata, timeout_s=5.0):
            text = self._metadata.read_text(encoding="utf-8", errors="replace")
            if _ID_LINE.search(text) is None:
                if re.search(r"^project_id:", text, re.M):
                    raise BadInput(
                        "project_id is not a UUID",
                        where=str(self._metadata),
                        todo="Restore the line from git, or remove it to get a new id.",
                    )
                newline = "" if not text or text.endswith("\n") else "\n"
                new = f"{text}{newline}project_id: {uuid.uuid4()}\n"
                disk.replace(self._metadata, new.encode())


def find_project(start: Path, *, home: Path) -> Project | None:
    """The nearest folder upwards that holds a project."""
    start = start.resolve()
    for folder in (start, *start.parents):
        project = Project(folder)
        # ~/.ralph is a home for what belongs to no project, not a project.
        if project.exists and project.folder.resolve() != home.resolve():
            return project
    return None


def need_project(start: Path, *, home: Path) -> Project:
    """The nearest project, or an error that says how to make one."""
    if not start.is_dir():
        raise NotAProject(f"there is no folder {start}")
    project = find_project(start, home=home)
    if project is None:
        raise NotAProject(
            "no .ralph folder here or above", where=str(start), todo="Run: ralph init"
        )
    return project
