"""Files of other programs: read whole, changed all or none, and left as they were on failure."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.doors.cli.json_text import parse
from ralph.errors import BadInput

_MOST_BYTES = 64_000_000  # the client's own file grows with every project
_MOVE = "Move it away, or choose --user or --project. Nothing was changed."
# Folders that exist for a client's settings alone: made with the first, they go with the last.
_FOLDERS = {".claude", ".codex"}
_MEND = (
    "JSON knows no comments and no comma before a closing bracket: mend that line and run this "
    "again. Nothing was changed."
)


class Edit(msgspec.Struct, frozen=True):
    """One file as it is and as it shall be; None is a file that is not there.

    `root` is the project that it belongs to, None for a person's own.
    """

    file: Path
    before: str | None
    after: str | None
    root: Path | None = None

    @property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after


def read_text(file: Path, *, root: Path | None = None) -> str | None:
    """The file's text, None when there is none; an error says what is in the way.

    In a project at `root` nothing is read through a link: it may lead to a person's own files.
    """
    if root is not None:
        _refuse_links(file, root)
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):
            raise BadInput("this is not a regular file", where=str(file), todo=_MOVE)
        if about.st_size > _MOST_BYTES:
            raise BadInput(f"this is over {_MOST_BYTES} bytes", where=str(file), todo=_MOVE)
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BadInput(
            f"not UTF-8 at byte {error.start}", where=str(file), todo="Save it as UTF-8."
        ) from None
    except OSError as error:
        raise _in_the_way(file, "read", error) from None


def read_json(text: str, where: Path) -> dict[str, Any]:
    """The object that the text is; an error names the line where it is none."""
    if not text.strip():
        raise BadInput(
            "this file is empty",
            where=str(where),
            todo="Delete it, or write {} into it. Nothing was changed.",
        )
    try:
        value = parse(text)
    except json.JSONDecodeError as error:
        place = f"{where}:{error.lineno}"
        raise BadInput(f"this is not valid JSON: {error.msg}", where=place, todo=_MEND) from None
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"this is not valid JSON: {error}", where=str(where), todo="Mend it. Nothing changed."
        ) from None
    if not isinstance(value, dict):
        raise BadInput(
            "the settings must be one JSON object",
            where=str(where),
            todo="Mend it, or move it away. Nothing was changed.",
        )
    return value


def _refuse_links(file: Path, root: Path) -> None:
    for one in (file, *file.parents):
        if one == root:
            return
        if one.is_symlink():
            raise BadInput(
                "this is a link, and Ralph follows none in a project", where=str(one), todo=_MOVE
            )


def apply(edits: Sequence[Edit]) -> list[Edit]:
    """Make every change, or none; give those that changed a file."""
    done: list[Edit] = []
    for edit in edits:
        if not edit.changes:
            continue
        try:
            if edit.root is not None:
                _refuse_links(edit.file, edit.root)
            _put(edit.file, edit.after)
        except OSError as error:
            for one in reversed(done):
                _put(one.file, one.before)
            _tidy(edit.file)
            raise _in_the_way(edit.file, "written", error) from None
        done.append(edit)
    return done


def _put(file: Path, text: str | None) -> None:
    if text is None and file.is_symlink():
        text = "{}\n" if file.suffix == ".json" else ""  # the link is a person's
    if text is None:
        file.unlink()
        _tidy(file)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # Where the folder permits it, replacing would also work on a file that is meant to stay.
    if file.exists() and not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    disk.replace(file, text.encode())


def _tidy(file: Path) -> None:
    """Take away a client's folder that holds nothing any more; a link to one is a person's."""
    folder = file.parent
    with contextlib.suppress(OSError):  # it is not empty, or may not go: then it stays
        if folder.name in _FOLDERS:
            folder.rmdir()


def _in_the_way(file: Path, done: str, error: OSError) -> BadInput:
    return BadInput(
        f"this cannot be {done}: {error.strerror or error}",
        where=str(file),
        todo="Permit it, or choose --user or --project. Nothing was changed.",
    )
