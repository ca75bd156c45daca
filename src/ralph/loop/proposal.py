"""A plan that an agent proposes: shown as a diff, and accepted into the plan as it is by then."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.errors import BadInput, BadPlan
from ralph.plan.check import check
from ralph.plan.edit import next_id
from ralph.plan.judge import list_change, merge_changes
from ralph.plan.model import (
    KINDS,
    SINGULAR,
    Data,
    Feature,
    Kind,
    Problem,
    TaskId,
    deep_copy,
    entities,
    identical,
)
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile

# Fields that two sides may add to without being in each other's way.
_GROWING = ("comments", "learnings", "context_files")
_STAMPS = ("updated",)


class Changes(msgspec.Struct, frozen=True):
    """The names and ids of one kind that a proposal adds, changes or takes out."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Proposal(msgspec.Struct, frozen=True):
    """The plan's files as they were and as the agent wants them; None: there is no such file."""

    source: str
    at: str
    before: dict[Kind, bytes | None]
    after: dict[Kind, bytes | None]

    def changes(self) -> dict[Kind, Changes]:
        """What would be different, by kind."""
        return {kind: _changes(kind, *self.data(kind)) for kind in KINDS}

    def data(self, kind: Kind) -> tuple[Data, Data]:
        """What the file said, and what it would say."""
        before, after = self.before.get(kind), self.after.get(kind)
        return _parsed(kind, before), _parsed(kind, after)

    def thin(self) -> list[str]:
        """New features whose description says too little to work from."""
        _, now = self.data("features")
        entries = _by_key("features", now)
        features = [
            Feature(name=name, description=str(entries[name].get("description") or ""))
            for name in self.changes()["features"].added
        ]
        return [feature.name for feature in features if feature.is_thin()]

    def diff(self) -> list[str]:
        """The files line by line, in the form of `diff -u`."""
        lines: list[str] = []
        for kind in KINDS:
            name = f".ralph/db/{kind}.yaml"
            lines += difflib.unified_diff(
                _lines(self.before.get(kind)),
                _lines(self.after.get(kind)),
                fromfile=name,
                tofile=f"{name} (proposed)",
                lineterm="",
            )
        return lines


class Accepted(msgspec.Struct, frozen=True):
    """What became of a proposal: tasks that got another id, and what `plan check` says now."""

    renumbered: dict[str, TaskId]
    problems: list[Problem]


def accept(plan: Plan, proposal: Proposal) -> Accepted:
    """Bring the proposal into the plan as it is now, whole or not at all."""
    known = {problem.what for problem in check(plan)}
    with plan.editing(f"braindump of {proposal.source}", *KINDS) as data:
        merged, renumbered = _merged(data, proposal)
        _refuse_unsound(plan, merged, known)
        data.update(merged)
    return Accepted(renumbered, [one for one in check(plan) if one.what not in known])


def errors(plan: Plan) -> list[Problem]:
    """What is wrong with a plan, warnings left out."""
    return [problem for problem in check(plan) if problem.severity == "error"]


def _merged(
    data: dict[Kind, Data], proposal: Proposal
) -> tuple[dict[Kind, Data], dict[str, TaskId]]:
    merged: dict[Kind, Data] = {}
    conflicts: list[str] = []
    renumbered: dict[str, TaskId] = {}
    for kind in KINDS:
        was, now = proposal.data(kind)
        if kind == "tasks":
            now, renumbered = _renumbered(was, now, data[kind])
        careful = _Careful(kind, data[kind])
        careful.look_for_vanished(was, now)
        merged[kind] = merge_changes(kind, was, now, data[kind], careful)
        conflicts += careful.conflicts
    if conflicts:
        raise BadInput(
            f"the plan has changed since this was proposed: {', '.join(conflicts[:10])}",
            where=".ralph/db",
            todo="Nothing was changed. Run `ralph plan braindump FILE` again for the plan of now.",
        )
    return merged, renumbered


class _Careful:
    """Lets a change through where nobody else has touched the same thing since."""

    def __init__(self, kind: Kind, current: Data) -> None:
        self._kind = kind
        self._current = _by_key(kind, current)
        self.conflicts: list[str] = []

    def look_for_vanished(self, was: Data, now: Data) -> None:
        """A change to something that is gone by now has nowhere to go."""
        before, after = _by_key(self._kind, was), _by_key(self._kind, now)
        for key in before.keys() & after.keys() - self._current.keys():
            if not identical(before[key], after[key]):
                self._conflict(key)

    def added(self, key: str, entry: Data) -> Data | None:
        return entry

    def gone(self, key: str, entry: Data) -> bool:
        if not identical(self._current.get(key), entry):
            self._conflict(key)
        return True

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        if identical(kept, was) or identical(kept, now) or field in _STAMPS:
            return now
        if field in _GROWING and all(isinstance(x, list | None) for x in (was, now, kept)):
            return list_change(was or [], now or [], kept or [])
        self._conflict(key)
        return kept

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        return now if identical(kept, was) else kept

    def _conflict(self, key: str) -> None:
        named = f"{SINGULAR[self._kind]} {key}"
        if named not in self.conflicts:
            self.conflicts.append(named)


def _renumbered(was: Data, now: Data, current: Data) -> tuple[Data, dict[str, TaskId]]:
    """The proposal with other ids for its new tasks where somebody has taken theirs since."""
    known, taken = _by_key("tasks", was), _by_key("tasks", current)
    new = [key for key in _by_key("tasks", now) if key not in known and key in taken]
    if not new or not isinstance(now.get("tasks"), list):
        return now, {}
    free = max(next_id(now), next_id(current))
    ids: dict[str, TaskId] = {key: free + i for i, key in enumerate(new)}
    result: Data = deep_copy(now)
    for entry in result["tasks"]:
        if not isinstance(entry, dict):
            continue
        entry["id"] = ids.get(str(entry.get("id")), entry.get("id"))
        if isinstance(waits := entry.get("blocked_by"), list):
            entry["blocked_by"] = [ids.get(str(one), one) for one in waits]
    return result, ids


def _refuse_unsound(plan: Plan, merged: dict[Kind, Data], known: set[str]) -> None:
    """What comes out must be a plan: it is written elsewhere and checked first."""
    with tempfile.TemporaryDirectory(prefix="ralph-plan-") as folder:
        trial = Plan(Path(folder), state=Path(folder))
        disk.make_folder(trial.folder)
        for kind in KINDS:
            text = plan.document(kind).with_data(merged[kind]).text
            disk.write(trial.path(kind), text.encode())
        refuse_errors([one for one in errors(trial) if one.what not in known])


def refuse_errors(found: Sequence[Problem]) -> None:
    """Raise what is wrong with a proposed plan, if anything is."""
    if found:
        told = "; ".join(problem.what for problem in found[:5])
        raise BadPlan(
            f"the proposed plan is not sound: {told}",
            todo="Nothing was changed. Run the braindump again, or say more in the requirements.",
        )


def _changes(kind: Kind, was: Data, now: Data) -> Changes:
    before, after = _by_key(kind, was), _by_key(kind, now)
    return Changes(
        added=tuple(key for key in after if key not in before),
        changed=tuple(k for k in after if k in before and not identical(before[k], after[k])),
        removed=tuple(key for key in before if key not in after),
    )


def _by_key(kind: Kind, data: Data) -> dict[str, Data]:
    found: dict[str, Data] = {}
    for entity in entities(data, kind):
        if entity.key is not None and isinstance(entity.value, dict):
            found.setdefault(entity.key, entity.value)
    return found


def _parsed(kind: Kind, raw: bytes | None) -> Data:
    return PlanFile.read(raw or b"", name=f".ralph/db/{kind}.yaml").data


def _lines(raw: bytes | None) -> list[str]:
    return (raw or b"").decode("utf-8", "replace").splitlines()
