"""Create, change, delete and order features, tasks and disciplines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ralph.errors import BadInput, BadPlan
from ralph.plan.context_files import replace_list
from ralph.plan.fields import Patch, clean_text, patch_entry
from ralph.plan.model import (
    SINGULAR,
    Data,
    Discipline,
    Feature,
    Kind,
    Limits,
    Task,
    TaskId,
    as_list,
    by_key,
    entities,
    find_entity,
    id_order,
    path_of,
    put_entity,
    remove_entity,
)
from ralph.plan.store import Plan
from ralph.text.sanitize import sanitize

_OPEN = ("pending", "in_progress")


# -- features and disciplines


def create_feature(plan: Plan, name: str, patch: Patch | None = None) -> Feature:
    """Create a feature; its name must be free."""
    entry: Data = {"name": _new_name(plan, "features", name)}
    patch_feature(entry, patch or {})
    entry.setdefault("created", plan.now())
    _create(plan, "features", entry)
    return plan.feature(entry["name"])


def update_feature(plan: Plan, name: str, patch: Patch) -> Feature:
    """Change what the patch gives and nothing else; None clears (F1)."""
    with plan.edit("features", f"feature {name} updated: {', '.join(patch)}") as data:
        patch_feature(plan.find(data, "features", name), patch)
    return plan.feature(name)


def delete_feature(plan: Plan, name: str) -> None:
    """Delete a feature; refused while tasks refer to it (F14). The caller cleans the index."""
    with plan.editing(f"feature {name} deleted", "features", "tasks") as data:
        plan.find(data["features"], "features", name)
        users = [
            str(task.key)
            for task in entities(data["tasks"], "tasks")
            if isinstance(task.value, dict) and str(task.value.get("feature")) == name
        ]
        if users:
            raise BadInput(
                f"the feature {name!r} still has tasks: {', '.join(users[:10])}",
                where=plan.file_name("features"),
                todo="Delete them or give them another feature first.",
            )
        remove_entity(data["features"], "features", name)


def patch_feature(entry: Data, patch: Patch) -> None:
    """Put the patch into a feature's entry."""
    if patch.get("context_files") is not None:
        files = replace_list(entry.get("context_files"), patch["context_files"])
        patch = {**patch, "context_files": files}
    patch_entry("features", entry, patch)


def create_discipline(plan: Plan, name: str, patch: Patch | None = None) -> Discipline:
    """Create a discipline; its name must be free."""
    entry: Data = {"name": _new_name(plan, "disciplines", name)}
    patch_entry("disciplines", entry, patch or {})
    _create(plan, "disciplines", entry)
    return plan.discipline(entry["name"])


def update_discipline(plan: Plan, name: str, patch: Patch) -> Discipline:
    """Change what the patch gives and nothing else; None clears."""
    with plan.edit("disciplines", f"discipline {name} updated") as data:
        patch_entry("disciplines", plan.find(data, "disciplines", name), patch)
    return plan.discipline(name)


def delete_discipline(plan: Plan, name: str) -> None:
    """Delete a discipline; `check` finds tasks that still name it."""
    with plan.edit("disciplines", f"discipline {name} deleted") as data:
        plan.find(data, "disciplines", name)
        remove_entity(data, "disciplines", name)


def _new_name(plan: Plan, kind: Kind, name: str) -> str:
    plain = clean_text("name", name, Limits.name + 1)
    if not plain or len(plain) > Limits.name or any(c in plain for c in "/\\\n\t"):
        raise BadInput(
            f"{name!r} is not a name",
            where=plan.file_name(kind),
            todo=f"Use 1 to {Limits.name} characters without slashes, such as `user-login`.",
        )
    return plain


def _create(plan: Plan, kind: Kind, entry: Data) -> None:
    with plan.edit(kind, f"{SINGULAR[kind]} {entry['name']} created") as data:
        if find_entity(data, kind, entry["name"]) is not None:
            todo = "Update it, or choose another name."
            raise BadInput(f"{entry['name']!r} exists already", todo=todo)
        put_entity(data, kind, entry)


# -- tasks


def create_task(plan: Plan, feature: str, title: str, patch: Patch | None = None) -> Task:
    """Create a task with the next free number, for a feature of the plan."""
    with plan.editing(f"task created for {feature}", "tasks", "features") as data:
        plan.find(data["features"], "features", feature)
        fields = {"feature": feature, "title": title, **(patch or {})}
        entry = add_task(plan, data["tasks"], next_id(data["tasks"]), fields)
    return plan.task(entry["id"])


def add_task(plan: Plan, data: Data, task_id: TaskId, patch: Patch) -> Data:
    """Add a task's entry to the data of an edit that is under way."""
    entry: Data = {"id": task_id}
    patch_task(data, entry, patch, plan)
    entry.setdefault("status", "pending")
    entry["created"] = plan.now()
    if entry["status"] == "done":
        entry["completed"] = entry["created"]
    put_entity(data, "tasks", entry)
    return entry


def update_task(
    plan: Plan,
    task_id: TaskId,
    patch: Patch | None = None,
    *,
    comment: str | None = None,
    author: str | None = None,
) -> Task:
    """Change what the patch gives, append the comment, and stamp the time; None clears."""
    patch = dict(patch or {})
    with plan.editing(f"task {task_id} updated", "tasks", "features") as data:
        entry = plan.find(data["tasks"], "tasks", task_id)
        entry.setdefault("id", task_id)
        if patch.get("feature") is not None:
            plan.find(data["features"], "features", patch["feature"])
        _refuse_broken(plan, entry, task_id)
        before = entry.get("status", "pending")
        patch_task(data["tasks"], entry, patch, plan)
        at = plan.now()
        if comment is not None:
            _append_comment(entry, comment, author, at)
        if entry.get("status", "pending") != before:
            entry.pop("completed", None)
            if entry.get("status") == "done":
                entry["completed"] = at
        if patch or comment is not None:
            entry["updated"] = at
    return plan.task(task_id)


def delete_task(plan: Plan, task_id: TaskId) -> None:
    """Delete a task; refused while another one waits for it."""
    with plan.edit("tasks", f"task {task_id} deleted") as data:
        plan.find(data, "tasks", task_id)
        waiting = [
            key
            for key, task in by_key(data, "tasks").items()
            if str(task_id) in map(str, as_list(task.get("blocked_by")))
        ]
        if waiting:
            raise BadInput(
                f"task {task_id} blocks {', '.join(waiting[:10])}",
                where=plan.file_name("tasks"),
                todo="Take it out of their blocked_by first, or set it to skipped.",
            )
        remove_entity(data, "tasks", task_id)


def ready(tasks: Sequence[Task], *, feature: str | None = None) -> list[Task]:
    """The tasks to work on now: in progress first, then by priority, then by id."""
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
    ids: dict[str, TaskId] = {str(task.id): task.id for task in tasks}
    blockers = {str(task.id): [str(b) for b in task.blocked_by] for task in tasks}
    return [[ids[key] for key in ring] for ring in _rings(blockers)]


def _rings(blockers: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """A search in depth without recursion: a chain of tasks may be long."""
    in_trail: dict[str, bool] = {}
    rings: dict[tuple[str, ...], None] = {}
    for root in sorted(blockers, key=id_order):
        trail: list[str] = []
        stack: list[tuple[str, int]] = [(root, 0)]
        while stack:
            node, i = stack.pop()
            if i == 0:
                if node in in_trail:
                    continue
                in_trail[node] = True
                trail.append(node)
            nexts = [n for n in blockers[node] if n in blockers]
            if i == len(nexts):
                in_trail[node] = False
                trail.pop()
                continue
            stack.append((node, i + 1))
            if in_trail.get(nexts[i]):
                ring = trail[trail.index(nexts[i]) :]
                first = ring.index(min(ring, key=id_order))
                rings[(*ring[first:], *ring[:first], ring[first])] = None
            else:
                stack.append((nexts[i], 0))
    return list(rings)


def next_id(data: Data) -> int:
    """The next free number."""
    keys = [str(entity.key) for entity in entities(data, "tasks") if entity.key]
    return max((int(k) for k in keys if k.isdecimal() and len(k) < 10), default=0) + 1


def patch_task(data: Data, entry: Data, patch: Patch, plan: Plan) -> None:
    """Put the patch into a task's entry; blockers must exist and form no ring."""
    if patch.get("blocked_by") is not None:
        patch = {**patch, "blocked_by": _blockers(data, entry, patch["blocked_by"], plan)}
    patch_entry("tasks", entry, patch)


def _refuse_broken(plan: Plan, entry: Data, task_id: TaskId) -> None:
    """A task that cannot be read must not be written either: what is wrong comes first."""
    for name in ("feature", "title"):
        if not isinstance(entry.get(name), str | int) or not str(entry[name]).strip():
            file = plan.document("tasks")
            raise BadPlan(
                f"task {task_id} has no `{name}`",
                where=file.where(path_of(file.data, "tasks", task_id)),
                todo=f"Give it its `{name}` back.",
            )


def _blockers(data: Data, entry: Data, value: Any, plan: Plan) -> list[TaskId]:
    wanted = list(value) if isinstance(value, list | tuple) else [value]
    ids = [plan.find(data, "tasks", blocker).get("id", blocker) for blocker in wanted]
    tasks = by_key(data, "tasks").items()
    blockers = {key: list(map(str, as_list(task.get("blocked_by")))) for key, task in tasks}
    own = str(entry["id"])
    for ring in _rings({**blockers, own: list(map(str, ids))}):
        if own in ring:
            raise BadInput(
                f"the tasks would wait for each other: {' -> '.join(ring)}",
                todo="Leave one of them out of blocked_by.",
            )
    return ids


def _append_comment(entry: Data, comment: str, author: str | None, at: str) -> None:
    plain = clean_text("comment", sanitize(comment), Limits.comment)
    if not plain:
        raise BadInput("the comment is empty", todo="Write something, or leave it out.")
    new: Data = {"text": plain, "at": at}
    if by := clean_text("author", author, Limits.title):
        new["author"] = by
    entry["comments"] = [*as_list(entry.get("comments")), new][-Limits.comments :]
