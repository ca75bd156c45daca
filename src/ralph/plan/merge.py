"""Merge two versions of a plan's file that started from one: by entry and field, not by line.

Proposals are merged into the plan this way, and so are two branches, by git's merge driver. What
only one side changed is taken from that side, and both sides may add entries. If both sides gave a
new task the same number, one gets a free number. If both sides changed the same field differently,
it is a conflict.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ralph.errors import BadPlan
from ralph.plan import model
from ralph.plan.edit import next_id
from ralph.plan.judge import AllowAll, list_change, merge_changes
from ralph.plan.model import Data, Kind, TaskId, by_key, identical, identity, text_of
from ralph.plan.yaml import PlanFile

# Of two values for these fields, the later time or the higher count is right.
_RISING = ("updated", "completed", "hit_count", "touch_count", "last_touched", "last_seen")


class Merge(msgspec.Struct, frozen=True):
    """The merged data, the new numbers of tasks, and the entries that both sides changed."""

    data: Data
    renumbered: dict[str, TaskId]
    conflicts: list[str]


def merge(kind: Kind, was: Data, now: Data, current: Data) -> Merge:
    """Return `current` with everything that changed from `was` to `now`.

    If both sides changed the same field in different ways, it stays as in `current`.
    """
    renumbered: dict[str, TaskId] = {}
    if kind == "tasks":
        now, renumbered = _renumber(was, now, current)
    careful = _Careful(kind, current, was, now)
    return Merge(merge_changes(kind, was, now, current, careful), renumbered, careful.conflicts)


def merge_files(base: bytes, ours: bytes, theirs: bytes, *, name: str) -> tuple[bytes, Merge]:
    """Return the merged file for git's merge driver, in the layout of our side."""
    was, current, now = (PlanFile.read(raw, name=name) for raw in (base, ours, theirs))
    kinds = [kind for kind in model.KINDS if kind in current.data or kind in now.data]
    if len(kinds) != 1:
        todo = "It needs one list: `features:`, `tasks:` or `disciplines:`."
        raise BadPlan("this is not a file of the plan", where=name, todo=todo)
    found = merge(kinds[0], was.data, now.data, current.data)
    return current.with_data(found.data).text.encode(), found


class _Careful(AllowAll):
    """Allows a change if nobody else has touched the same thing since."""

    def __init__(self, kind: Kind, current: Data, was: Data, now: Data) -> None:
        super().__init__(kind)
        self._current = by_key(current, kind)
        self.conflicts: list[str] = []
        # A change to an entry that is gone by now is a conflict.
        before = by_key(was, kind)
        after = by_key(now, kind)
        for key in before.keys() & after.keys() - self._current.keys():
            if not identical(before[key], after[key]):
                self._conflict(key)

    def gone(self, key: str, entry: Data) -> bool:
        if identical(self._current.get(key), entry):
            return True
        self._conflict(key)
        return False

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        if identical(kept, was) or identical(kept, now):
            return now
        if field in _RISING:
            return _later(now, kept)
        if all(isinstance(x, list | None) for x in (was, now, kept)):
            return _grow(was or [], now or [], kept or [])
        if field == "status" and "done" in (now, kept):
            return "done"
        self._conflict(key)
        return kept

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        return now if identical(kept, was) else kept

    def _conflict(self, key: str) -> None:
        if (named := f"{model.SINGULAR[self._kind]} {key}") not in self.conflicts:
            self.conflicts.append(named)


def _grow(was: list[Any], now: list[Any], kept: list[Any]) -> list[Any]:
    """Return the items of both sides, each text once, with the higher of the two counts."""
    present = {text_of(item).casefold() for item in kept} - {""}
    before = {identity(item) for item in was}
    new = [x for x in now if identity(x) in before or text_of(x).casefold() not in present]
    counted = {identity(item): item for item in kept if isinstance(item, dict)}
    result = list_change(was, new, kept)
    for item in (item for item in result if isinstance(item, dict)):
        other = counted.get(identity(item), {})
        for field in other.keys() & item.keys() & set(_RISING):
            item[field] = _later(item[field], other[field])
    return result


def _later(left: Any, right: Any) -> Any:
    comparable = type(left) is type(right) and isinstance(left, str | int)
    return max(left, right) if comparable else left if right is None else right


def _renumber(was: Data, now: Data, current: Data) -> tuple[Data, dict[str, TaskId]]:
    """Return the changed file with other ids for new tasks whose ids were taken meanwhile."""
    known, taken, new = (by_key(data, "tasks") for data in (was, current, now))

    def is_other(key: str) -> bool:
        return any(new[key].get(name) != taken[key].get(name) for name in ("feature", "title"))

    clashes = [key for key in new if key not in known and key in taken and is_other(key)]
    if not clashes or not isinstance(now.get("tasks"), list):
        return now, {}
    free = max(next_id(now), next_id(current))
    ids: dict[str, TaskId] = {key: free + i for i, key in enumerate(clashes)}
    result: Data = model.deep_copy(now)
    for entry in (entry for entry in result["tasks"] if isinstance(entry, dict)):
        entry["id"] = ids.get(str(entry.get("id")), entry.get("id"))
        if isinstance(waits := entry.get("blocked_by"), list):
            entry["blocked_by"] = [ids.get(str(one), one) for one in waits]
    return result, ids
