"""Focus: which feature a person's own interactive work belongs to, on this machine."""

from __future__ import annotations

import msgspec

from ralph import disk
from ralph.errors import BadInput
from ralph.journal.folder import check_name
from ralph.memories.project import Project


class Focus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feature, and perhaps one of its tasks."""

    feature: str
    task_id: int | str | None = None


def set_focus(project: Project, focus: Focus) -> None:
    """From now on, work outside a loop belongs here."""
    check_name(focus.feature)
    disk.make_folder(project.cache)
    disk.replace(project.cache / "focus.json", msgspec.json.encode(focus) + b"\n")


def read_focus(project: Project) -> Focus | None:
    """What the work belongs to, or None when nobody said."""
    file = project.cache / "focus.json"
    try:
        focus = msgspec.json.decode(disk.read(file), type=Focus)
        check_name(focus.feature)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, BadInput) as error:
        raise BadInput(
            f"the focus cannot be read ({error})", where=str(file), todo="Run: ralph focus --clear"
        ) from None
    return focus


def clear_focus(project: Project) -> None:
    """Work outside a loop belongs to no feature."""
    disk.remove(project.cache / "focus.json")
