"""What the agent of a run changed in the plan: described for people, kept, and undone on demand.

The guard restores what an agent destroyed. Its other changes stay, so they are shown at the end of
the iteration, and `ralph undo` takes them back without touching what others changed since.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.errors import BadPlan, NotFound
from ralph.plan import model
from ralph.plan.judge import PROSE, AllowAll, merge_changes
from ralph.plan.model import KINDS, SINGULAR, Data, Kind, as_list, by_key, identical, text_of
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile
from ralph.records.iteration import cut
from ralph.text.sanitize import sanitize_line

_ABOUT = "about.json"
# How many iterations' changes are kept.
_MOST = 20
_ID_CHARS = 8
_TEXT_CHARS = 120
# Changes that come with others, and are not worth a line.
_SILENT = frozenset({"updated", "completed", "removed_learnings", "created"})
# What an agent reports about its own task is no change to undo.
_PROGRESS = ("status", "comments", "updated", "completed")


class KindChange(msgspec.Struct, frozen=True):
    """One file of the plan without the agent's changes, and with them."""

    without: bytes
    found: bytes


class AgentChanges(msgspec.Struct, frozen=True):
    """What the agent of one run changed, and what is needed to undo it."""

    id: str
    feature: str
    title: str
    at: str
    files: dict[Kind, KindChange]
    # A folder with lines of the journals that git took away.
    journal: str | None = None

    def lines(self) -> list[str]:
        """Describe the changes, one line each."""
        found: list[str] = []
        for kind, change in self.files.items():
            found += describe(kind, _data(change.without), _data(change.found))
        return found


def own_progress_kept(without: Data, found: Data, task_id: object) -> Data:
    """Return `without`, but with the task's own status and comments as the agent left them."""
    result: Data = model.deep_copy(without)
    after = by_key(found, "tasks").get(str(task_id))
    entry = model.find_entity(result, "tasks", task_id) if task_id is not None else None
    if entry is not None and after is not None:
        for field in _PROGRESS:
            model.set_field(entry, field, after.get(field))
    return result


# -- describing


def describe(kind: Kind, was: Data, now: Data) -> list[str]:
    """Return a line for each difference between two versions of a file."""
    before = by_key(was, kind)
    after = by_key(now, kind)
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        name = f"{SINGULAR[kind]} {_shown(key)}"
        old = before.get(key)
        new = after.get(key)
        if old is None or new is None:
            entry = new or old or {}
            verb = "added" if old is None else "removed"
            title = _shown(str(entry.get("title") or ""))
            lines.append(f"{name} {verb}" + (f": {title}" if title else ""))
            continue
        for field in dict.fromkeys([*old, *new]):
            if field not in _SILENT and not identical(old.get(field), new.get(field)):
                lines += _field_lines(name, field, old.get(field), new.get(field))
    return lines


def _field_lines(name: str, field: str, was: Any, now: Any) -> list[str]:
    if field in ("learnings", "comments"):
        return _item_lines(name, field.removesuffix("s"), as_list(was), as_list(now))
    if field == "status":
        return [f"{name}: status {_shown(str(was or 'pending'))} -> {_shown(str(now))}"]
    if now in (None, "", [], {}):
        return [f"{name}: {field} emptied"]
    if field in PROSE and isinstance(was, str) and isinstance(now, str):
        return [f"{name}: {field} reworded, {len(was)} -> {len(now)} characters"]
    return [f"{name}: {field} {'changed' if was else 'set'}"]


def _item_lines(name: str, word: str, was: list[Any], now: list[Any]) -> list[str]:
    before = {text_of(item): item for item in was}
    after = {text_of(item): item for item in now}
    lines = [f"{name}: {word} removed: {_shown(text)}" for text in before if text not in after]
    lines += [f"{name}: {word} added: {_shown(text)}" for text in after if text not in before]
    for text, item in after.items():
        if text in before and not identical(before[text], item):
            is_review = isinstance(item, dict) and item.get("reviewed")
            verb = "reviewed" if is_review else "changed"
            lines.append(f"{name}: {word} {verb}: {_shown(text)}")
    return lines


def _shown(text: str) -> str:
    return cut(sanitize_line(text), _TEXT_CHARS)


# -- keeping


class UndoFolder:
    """The changes of the last iterations, each in a folder of Ralph's state of the project."""

    def __init__(self, project_state: Path) -> None:
        self.path = project_state / "undo"

    def keep(self, changes: AgentChanges) -> str:
        """Save the changes and return their id; the oldest make room."""
        name = changes.id[:_ID_CHARS]
        folder = self.path / name
        disk.make_folder(folder)
        for kind, change in changes.files.items():
            disk.replace(folder / f"{kind}.without.yaml", change.without)
            disk.replace(folder / f"{kind}.found.yaml", change.found)
        if changes.journal is not None:
            shutil.copytree(changes.journal, folder / "journal", dirs_exist_ok=True)
        about = msgspec.structs.replace(changes, id=name, files={}, journal=None)
        disk.replace(folder / _ABOUT, msgspec.json.encode(about))
        for old in self.all()[_MOST:]:
            self.drop(old)
        return name

    def all(self) -> list[AgentChanges]:
        """Return the changes that can be undone, newest first."""
        found: list[AgentChanges] = []
        for folder in self.path.glob("*/"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                about = msgspec.json.decode(disk.read(folder / _ABOUT), type=AgentChanges)
                journal = folder / "journal"
                found.append(
                    msgspec.structs.replace(
                        about,
                        id=folder.name,
                        files=dict(_saved_files(folder)),
                        journal=str(journal) if journal.is_dir() else None,
                    )
                )
        return sorted(found, key=lambda changes: changes.at, reverse=True)

    def find(self, name: str | None) -> AgentChanges:
        """Return the changes with this id, or the newest; raise if there are none."""
        found = self.all()
        for changes in found:
            if name is None or (name and changes.id.startswith(name)):
                return changes
        todo = f"There are: {', '.join(changes.id for changes in found)}." if found else None
        what = f" as {name!r}" if name else ""
        raise NotFound(f"there is nothing to undo{what}", todo=todo)

    def drop(self, changes: AgentChanges) -> None:
        """Forget how to undo these changes."""
        shutil.rmtree(self.path / changes.id, ignore_errors=True)


def _saved_files(folder: Path) -> Iterator[tuple[Kind, KindChange]]:
    for kind in KINDS:
        with contextlib.suppress(FileNotFoundError):
            without = disk.read(folder / f"{kind}.without.yaml")
            yield kind, KindChange(without, disk.read(folder / f"{kind}.found.yaml"))


# -- undoing


class _Reversal(AllowAll):
    """Takes changes back, except where somebody has changed the same thing since."""

    def __init__(self, kind: Kind, current: Data, found: Data) -> None:
        super().__init__(kind)
        self._current = by_key(current, kind)
        self._found = by_key(found, kind)
        self.conflicts: list[str] = []
        self._name = SINGULAR[kind]

    def gone(self, key: str, entry: Data) -> bool:
        """Take out what the agent added, unless somebody has worked on it since."""
        if identical(self._current.get(key), self._found.get(key)):
            return super().gone(key, entry)
        self.conflicts.append(f"{self._name} {_shown(key)}")
        return False

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        """Put the old value back, unless the field has changed since."""
        is_list = isinstance(now, list) or isinstance(kept, list)
        if not is_list and field not in _SILENT and not identical(kept, was):
            if not identical(kept, now):
                self.conflicts.append(f"`{field}` of {self._name} {_shown(key)}")
            return kept
        return super().changed(key, field, was, now, kept, entry)


def undo(plan: Plan, changes: AgentChanges) -> tuple[list[str], list[str]]:
    """Take the changes back; return what was undone, and what was not because it changed since."""
    undone: list[str] = []
    conflicts: list[str] = []
    kinds = list(changes.files)
    with plan.editing(f"changes of an agent undone: {changes.title}", *kinds) as data:
        for kind, change in changes.files.items():
            found = _data(change.found)
            # Read as empty, a damaged copy would take out everything.
            without = PlanFile.read(change.without, name=f"{kind}.without.yaml").data
            rule = _Reversal(kind, data[kind], found)
            merged = merge_changes(kind, found, without, data[kind], rule)
            undone += describe(kind, data[kind], merged)
            conflicts += rule.conflicts
            data[kind] = merged
    return undone, conflicts


def _data(raw: bytes) -> Data:
    with contextlib.suppress(BadPlan):
        return PlanFile.read(raw, name="").data
    return {}


def file_change(first: bytes | None, without: Data, found: bytes | None, kind: Kind) -> KindChange:
    """Return the change of one file, whose text was `first` before the run."""
    text = PlanFile.read(first or b"", name=f"{kind}.yaml").with_data(without).text
    return KindChange(text.encode(), found or b"")


def changes_of(
    versions: Mapping[Kind, tuple[bytes | None, Data, bytes | None]], task_id: object
) -> dict[Kind, KindChange]:
    """Return the files that the agent changed, without what it reported about its own task.

    `versions` has, for each file, its text before the run, its data without the agent's changes,
    and its text now.
    """
    files: dict[Kind, KindChange] = {}
    for kind, (first, without, found) in versions.items():
        after = _data(found or b"")
        if kind == "tasks":
            without = own_progress_kept(without, after, task_id)
        if not identical(without, after) and describe(kind, without, after):
            with contextlib.suppress(BadPlan):
                files[kind] = file_change(first, without, found, kind)
    return files
