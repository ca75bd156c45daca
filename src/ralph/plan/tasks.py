"""Creating, changing and ordering tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ralph.errors import BadInput, BadPlan
from ralph.plan import patch as p
from ralph.plan.document import Data
from ralph.plan.entities import add, entities, find, path_of, remove
from ralph.plan.patch import Patch
from ralph.plan.store import Plan
from ralph.plan.values import (
    PRIORITIES,
    STATUS_ALIASES,
    STATUSES,
    Limits,
    Task,
    TaskId,
    id_order,
)
from ralph.text.sanitize import sanitize

_FIELDS = (
    "feature",
    "discipline",
    "title",
    "description",
    "acceptance_criteria",
    "status",
    "priority",
    "blocked_by",
    "tags",
)
_REFUSED = {
    "id": "The id is for ever.",
    "comments": "Append a single comment instead.",
    "created": "Ralph stamps it.",
    "updated": "Ralph stamps it.",
    "completed": "Ralph stamps it when the status becomes done.",
}
_OPEN = ("pending", "in_progress")


def create_task(plan: Plan, feature: str, title: str, patch: Patch | None = None) -> Task:
    """A new task with the next free number, for a feature that the plan names."""
    with plan.editing(f"task created for {feature}", "tasks", "features") as data:
        plan.find(data["features"], "features", feature)
        entry: Data = {"id": next_id(data["tasks"])}
        patch_task(
            data["tasks"], entry, {"feature": feature, "title": title, **(patch or {})}, plan
        )
        entry.setdefault("status", "pending")
        entry["created"] = plan.now()
        if entry["status"] == "done":
            entry["completed"] = entry["created"]
        add(data["tasks"], "tasks", entry)
    return plan.task(entry["id"])


def update_task(
    plan: Plan,
    task_id: TaskId,
    patch: Patch | None = None,
    *,
    comment: str | None = None,
    author: str | None = None,
) -> Task:
    """Change what the patch gives, append the comment, and stamp the time; None clears."""
    given = dict(patch or {})
    with plan.editing(f"task {task_id} updated", "tasks", "features") as data:
        entry = plan.find(data["tasks"], "tasks", task_id)
        entry.setdefault("id", task_id)
        if given.get("feature") is not None:
            plan.find(data["features"], "features", given["feature"])
        _refuse_ruined(plan, entry, task_id)
        before = entry.get("status", "pending")
        patch_task(data["tasks"], entry, given, plan)
        at = plan.now()
        if comment is not None:
            _append_comment(entry, comment, author, at, plan.limits)
        if entry.get("status", "pending") != before:
            if entry.get("status") == "done":
                entry["completed"] = at
            else:
                entry.pop("completed", None)
        if given or comment is not None:
            entry["updated"] = at
    return plan.task(task_id)


def delete_task(plan: Plan, task_id: TaskId) -> None:
    """Take a task out; refused while another one waits for it."""
    with plan.edit("tasks", f"task {task_id} deleted") as data:
        plan.find(data, "tasks", task_id)
        waiting = [
            str(task.key)
            for task in entities(data, "tasks")
            if isinstance(task.value, dict)
            and isinstance(task.value.get("blocked_by"), list)
            and str(task_id) in map(str, task.value["blocked_by"])
        ]
        if waiting:
            raise BadInput(
                f"task {task_id} is in the way of {', '.join(waiting[:10])}",
                where=plan.shown("tasks"),
                todo="Take it out of their blocked_by first, or set it to skipped.",
            )
        remove(data, "tasks", task_id)


def ready(tasks: Sequence[Task], *, feature: str | None = None) -> list[Task]:
    """What can be worked on now: in progress first, then by priority, then by id."""
    done = {str(task.id) for task in tasks if task.status == "done"}
    found = [
        task
        for task in tasks
        if task.status in _OPEN
        and (feature is None or task.feature == feature)
        and all(str(blocker) in done for blocker in task.blocked_by)
    ]
    return sorted(found, key=lambda t: (t.status != "in_progress", t.priority, id_order(t.id)))


def cycles(tasks: Sequence[Task]) -> list[list[TaskId]]:
    """Every ring of tasks that wait for each other, once, from its smallest id round to itself."""
    waits = {str(task.id): [str(b) for b in task.blocked_by] for task in tasks}
    ids: dict[str, TaskId] = {str(task.id): task.id for task in tasks}
    state: dict[str, int] = {}
    found: dict[tuple[str, ...], list[TaskId]] = {}
    for root in sorted(waits, key=id_order):
        trail: list[str] = []
        stack: list[tuple[str, int]] = [(root, 0)]
        while stack:
            node, i = stack.pop()
            if i == 0:
                if state.get(node) is not None:
                    continue
                state[node] = 1
                trail.append(node)
            nexts = [n for n in waits[node] if n in waits]
            if i < len(nexts):
                stack.append((node, i + 1))
                if state.get(nexts[i]) == 1:
                    ring = trail[trail.index(nexts[i]) :]
                    first = ring.index(min(ring, key=id_order))
                    turned = [*ring[first:], *ring[:first]]
                    found[tuple(turned)] = [ids[n] for n in [*turned, turned[0]]]
                else:
                    stack.append((nexts[i], 0))
            else:
                state[node] = 2
                trail.pop()
    return list(found.values())


def next_id(data: Data) -> int:
    """The next free number."""
    keys = [str(entity.key) for entity in entities(data, "tasks") if entity.key]
    return max((int(k) for k in keys if k.isdecimal() and len(k) < 10), default=0) + 1


def patch_task(data: Data, entry: Data, patch: Patch, plan: Plan) -> None:
    """Put the patch into a task's entry; blockers must be there and form no ring."""
    p.known_only(patch, _FIELDS, of="task", refused=_REFUSED)
    limits = plan.limits
    for name, value in patch.items():
        new: Any
        if name == "status":
            new = None if value is None else _status(value)
        elif name == "priority":
            new = _priority(value)
        elif name == "blocked_by":
            new = _blockers(data, entry, value, plan)
        elif name in ("acceptance_criteria", "tags"):
            new = p.texts(name, value, most=limits.items, each=limits.comment)
        else:
            new = p.text(name, value, limits.text if name == "description" else limits.title)
        if name in ("feature", "title") and not new:
            raise BadInput(f"a task needs its `{name}`", todo=f"Give a `{name}`.")
        p.apply(entry, name, new)


def _refuse_ruined(plan: Plan, entry: Data, task_id: TaskId) -> None:
    """A task that cannot be read must not be written either: what is wrong comes first."""
    for name in ("feature", "title"):
        if not isinstance(entry.get(name), str | int) or not str(entry[name]).strip():
            document = plan.document("tasks")
            raise BadPlan(
                f"task {task_id} has no `{name}`",
                where=document.where(path_of(document.data, "tasks", task_id)),
                todo=f"Give it its `{name}` back.",
            )


def _status(value: object) -> str:
    plain = str(value).strip().lower()
    plain = STATUS_ALIASES.get(plain, plain)
    if plain not in STATUSES:
        raise BadInput(
            f"the status {value!r} does not exist", todo=f"Use one of {', '.join(STATUSES)}."
        )
    return plain


def _priority(value: object) -> int | None:
    if not isinstance(value, str):
        return p.number("priority", value)
    plain = value.strip().lower()
    if re.fullmatch(r"-?[0-9]{1,9}", plain):
        return int(plain)
    if plain not in PRIORITIES:
        raise BadInput(
            "`priority` must be a number",
            todo=f"Give a whole number, or one of {', '.join(PRIORITIES)}.",
        )
    return PRIORITIES[plain]


def _blockers(data: Data, entry: Data, value: Any, plan: Plan) -> list[TaskId] | None:
    if value is None:
        return None
    wanted = list(value) if isinstance(value, list | tuple) else [value]
    found: list[TaskId] = []
    for blocker in wanted:
        task = plan.find(data, "tasks", blocker)
        found.append(task.get("id", blocker))
    trial = [
        Task(
            id=str(entity.key),
            feature="",
            title="",
            blocked_by=tuple(map(str, blockers if isinstance(blockers, list) else ())),
        )
        for entity in entities(data, "tasks")
        if isinstance(entity.value, dict)
        for blockers in [
            found if entity.key == str(entry["id"]) else entity.value.get("blocked_by")
        ]
    ]
    if find(data, "tasks", entry["id"]) is None:
        trial.append(
            Task(id=str(entry["id"]), feature="", title="", blocked_by=tuple(map(str, found)))
        )
    for ring in cycles(trial):
        if str(entry["id"]) in map(str, ring):
            raise BadInput(
                f"the tasks would wait for each other: {' -> '.join(map(str, ring))}",
                todo="Leave one of them out of blocked_by.",
            )
    return found


def _append_comment(entry: Data, comment: str, author: str | None, at: str, limits: Limits) -> None:
    plain = p.text("comment", sanitize(comment), limits.comment)
    if not plain:
        raise BadInput("an empty comment", todo="Say something, or leave it out.")
    comments = entry.get("comments")
    if not isinstance(comments, list):
        comments = [comments] if isinstance(comments, str) else []
    new: Data = {"text": plain, "at": at}
    if by := p.text("author", author, limits.title):
        new["author"] = by
    entry["comments"] = [*comments, new][-limits.comments :]
