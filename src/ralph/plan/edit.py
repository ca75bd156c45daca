"""Create, change, delete, order and check features, tasks and disciplines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ralph.errors import BadInput, BadPlan
from ralph.plan import model
from ralph.plan.fields import Patch, clean_path, clean_text, patch_entry, read_view
from ralph.plan.model import Data, Discipline, Feature, Kind, Limits, Task, TaskId, as_list, by_key
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile
from ralph.records.iteration import Iteration
from ralph.text.sanitize import sanitize
from ralph.text.tokens import compiled, estimate_tokens, table

# Each ring takes a new search. If there are more, fix these and check again.
_MOST_RINGS = 50


# -- features and disciplines


def create_feature(plan: Plan, name: str, patch: Patch | None = None) -> Feature:
    """Create a feature; its name must not be taken."""
    return plan.feature(_create(plan, "features", name, patch))


def create_discipline(plan: Plan, name: str, patch: Patch | None = None) -> Discipline:
    """Create a discipline; its name must not be taken."""
    return plan.discipline(_create(plan, "disciplines", name, patch))


def update_feature(plan: Plan, name: str, patch: Patch) -> Feature:
    """Change only the fields in the patch; None clears a field (F1)."""
    with plan.edit("features", f"feature {name} updated: {', '.join(patch)}") as data:
        patch_named("features", plan.find(data, "features", name), patch)
    return plan.feature(name)


def update_discipline(plan: Plan, name: str, patch: Patch) -> Discipline:
    """Change only the fields in the patch; None clears a field."""
    with plan.edit("disciplines", f"discipline {name} updated") as data:
        patch_named("disciplines", plan.find(data, "disciplines", name), patch)
    return plan.discipline(name)


def delete(plan: Plan, kind: Kind, key: TaskId) -> None:
    """Delete an entry; refused while tasks belong to it or wait for it (F14).

    Tasks may still name a deleted discipline; `check` reports them. The caller cleans up a
    feature's index.
    """
    field = "feature" if kind == "features" else "blocked_by"
    kinds: list[Kind] = [kind, "tasks"] if kind == "features" else [kind]
    with plan.editing(f"{model.SINGULAR[kind]} {key} deleted", *kinds) as data:
        plan.find(data[kind], kind, key)
        users = []
        for name, task in by_key(data.get("tasks", {}), "tasks").items():
            uses = task.get(field)
            if str(key) in map(str, uses if isinstance(uses, list) else [uses]):
                users.append(name)
        if users:
            what = f"task {key} blocks {', '.join(users[:10])}"
            todo = "Take it out of their blocked_by first, or set it to skipped."
            if kind == "features":
                what = f"the feature {key!r} still has tasks: {', '.join(users[:10])}"
                todo = "Delete them or give them another feature first."
            raise BadInput(what, where=plan.file_name(kind), todo=todo)
        model.remove_entity(data[kind], kind, key)


def _create(plan: Plan, kind: Kind, name: str, patch: Patch | None) -> str:
    plain = clean_text("name", name, Limits.name + 1)
    if not plain or len(plain) > Limits.name or any(c in plain for c in "/\\\n\t"):
        todo = f"Use 1 to {Limits.name} characters without slashes, such as `user-login`."
        raise BadInput(f"{name!r} is not a name", where=plan.file_name(kind), todo=todo)
    with plan.edit(kind, f"{model.SINGULAR[kind]} {plain} created") as data:
        if model.find_entity(data, kind, plain) is not None:
            raise BadInput(f"{plain!r} exists already", todo="Update it, or choose another name.")
        add_named(plan, data, kind, plain, patch or {})
    return plain


def add_named(plan: Plan, data: Data, kind: Kind, name: str, patch: Patch) -> None:
    """Add a feature or a discipline to data that is being edited."""
    entry: Data = {"name": name}
    patch_named(kind, entry, patch)
    if kind == "features":
        entry.setdefault("created", plan.now())
    model.put_entity(data, kind, entry)


def patch_named(kind: Kind, entry: Data, patch: Patch) -> None:
    """Apply the patch to the entry of a feature or a discipline."""
    if patch.get("context_files") is not None:
        files = _replace_files(entry.get("context_files"), patch["context_files"])
        patch = {**patch, "context_files": files}
    patch_entry(kind, entry, patch)


# -- tasks


def create_task(plan: Plan, feature: str, title: str, patch: Patch | None = None) -> Task:
    """Create a task with the next free number, for a feature of the plan."""
    with plan.editing(f"task created for {feature}", "tasks", "features") as data:
        plan.find(data["features"], "features", feature)
        fields = {"feature": feature, "title": title, **(patch or {})}
        entry = add_task(plan, data["tasks"], next_id(data["tasks"]), fields)
    return plan.task(entry["id"])


def add_task(plan: Plan, data: Data, task_id: TaskId, patch: Patch) -> Data:
    """Add a task's entry to data that is being edited."""
    entry: Data = {"id": task_id}
    patch_task(data, entry, patch, plan)
    entry.setdefault("status", "pending")
    entry["created"] = plan.now()
    if entry["status"] == "done":
        entry["completed"] = entry["created"]
    model.put_entity(data, "tasks", entry)
    return entry


def update_task(
    plan: Plan,
    task_id: TaskId,
    patch: Patch | None = None,
    *,
    comment: str | None = None,
    author: str | None = None,
) -> Task:
    """Change the fields in the patch, append the comment, set the time; None clears a field."""
    patch = dict(patch or {})
    with plan.editing(f"task {task_id} updated", "tasks", "features") as data:
        entry = plan.find(data["tasks"], "tasks", task_id)
        entry.setdefault("id", task_id)
        if patch.get("feature") is not None:
            plan.find(data["features"], "features", patch["feature"])
        _refuse_broken(plan, entry, task_id)
        if comment is not None:
            _append_comment(entry, comment, author, plan.now())
        if patch or comment is not None:
            change_task(data["tasks"], entry, patch, plan)
    return plan.task(task_id)


def ready(tasks: Sequence[Task], *, feature: str | None = None) -> list[Task]:
    """Return the tasks to work on now: in progress first, then by priority, then by id."""
    done = {str(task.id) for task in tasks if task.status == "done"}
    found = [task for task in tasks if feature is None or task.feature == feature]
    found = [task for task in found if task.status in ("pending", "in_progress")]
    found = [task for task in found if all(str(blocker) in done for blocker in task.blocked_by)]
    found.sort(key=lambda t: (t.status != "in_progress", t.priority, model.id_order(t.id)))
    return found


def cycles(tasks: Sequence[Task]) -> list[list[TaskId]]:
    """Return every ring of tasks that wait for each other, from its smallest id back to it."""
    ids: dict[str, TaskId] = {str(task.id): task.id for task in tasks}
    blockers = {str(task.id): [str(b) for b in task.blocked_by] for task in tasks}
    return [[ids[key] for key in ring] for ring in _rings(blockers)]


def _rings(blockers: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Find rings of tasks, each from its smallest id; each is cut before the next search."""
    graph = {key: [n for n in nexts if n in blockers] for key, nexts in blockers.items()}
    rings: list[list[str]] = []
    for _ in range(_MOST_RINGS):
        try:
            TopologicalSorter(graph).prepare()
            break
        except CycleError as error:
            ring = error.args[1][:0:-1]
            first = ring.index(min(ring, key=model.id_order))
            ring = [*ring[first:], *ring[: first + 1]]
            graph[ring[0]] = [n for n in graph[ring[0]] if n != ring[1]]
            rings.append(ring)
    return rings


def next_id(data: Data) -> int:
    """Return the next free number."""
    keys = [str(entity.key) for entity in model.entities(data, "tasks") if entity.key]
    return max((int(k) for k in keys if k.isdecimal() and len(k) < 10), default=0) + 1


def patch_task(data: Data, entry: Data, patch: Patch, plan: Plan) -> None:
    """Apply the patch to a task's entry; blockers must exist and must not form a ring."""
    if patch.get("blocked_by") is not None:
        patch = {**patch, "blocked_by": _blockers(data, entry, patch["blocked_by"], plan)}
    patch_entry("tasks", entry, patch)


def change_task(data: Data, entry: Data, patch: Patch, plan: Plan) -> None:
    """Like `patch_task`, for an existing task: also set when it changed and was done."""
    before = entry.get("status", "pending")
    at = plan.now()
    patch_task(data, entry, patch, plan)
    if (status := entry.get("status", "pending")) != before:
        model.set_field(entry, "completed", at if status == "done" else None)
    entry["updated"] = at


def _refuse_broken(plan: Plan, entry: Data, task_id: TaskId) -> None:
    """Refuse to change a task that cannot be read: it must be fixed first."""
    for name in ("feature", "title"):
        if not isinstance(entry.get(name), str | int) or not str(entry[name]).strip():
            file = plan.document("tasks")
            what = f"task {task_id} has no `{name}`"
            where = file.where(model.path_of(file.data, "tasks", task_id))
            raise BadPlan(what, where=where, todo=f"Give it its `{name}` back.")


def _blockers(data: Data, entry: Data, value: Any, plan: Plan) -> list[TaskId]:
    wanted = list(value) if isinstance(value, list | tuple) else [value]
    ids = [plan.find(data, "tasks", blocker).get("id", blocker) for blocker in wanted]
    tasks = by_key(data, "tasks").items()
    blockers = {key: list(map(str, as_list(task.get("blocked_by")))) for key, task in tasks}
    own = str(entry["id"])
    for ring in _rings({**blockers, own: list(map(str, ids))}):
        if own in ring:
            what = f"the tasks would wait for each other: {' -> '.join(ring)}"
            raise BadInput(what, todo="Leave one of them out of blocked_by.")
    return ids


def _append_comment(entry: Data, comment: str, author: str | None, at: str) -> None:
    if not (plain := clean_text("comment", sanitize(comment), Limits.comment)):
        raise BadInput("the comment is empty", todo="Write something, or leave it out.")
    new: Data = {"text": plain, "at": at}
    model.set_field(new, "author", clean_text("author", author, Limits.title))
    entry["comments"] = [*as_list(entry.get("comments")), new][-Limits.comments :]


# -- Context files: add files that are touched often, remove those that are gone, skip noise.


_MOST_BYTES = 1_000_000
_FILE_LISTS = ("context_files", "knowledge_paths")
_COUNTS = ("touch_count", "last_touched")


@cache
def _noise(section: str) -> frozenset[str]:
    return frozenset(" ".join(table(__file__, "noise.txt")[section]).split())


def is_noise(path: str) -> bool:
    """Return whether a path is never added to the context files automatically (F33)."""
    *folders, name = PurePosixPath(path.replace("\\", "/")).parts or ("",)
    return (
        any(part.lower() in _noise("folders") or part.endswith(".egg-info") for part in folders)
        or name.lower() in _noise("files")
        or any(compiled(row, re.I).search(name) for row in table(__file__, "noise.txt")["names"])
    )


def enrich(
    plan: Plan, feature: str, iterations: Iterable[Iteration], *, among: Set[str] | None = None
) -> list[str]:
    """Add files (`among` these) that were touched often, and drop those that are gone. A file that
    a person added never makes room for another. Return the added files."""
    touched: dict[str, tuple[int, int]] = {}  # in how many iterations, and the last of them
    for position, iteration in enumerate(iterations, 1):
        paths = {file.path for file in iteration.files_touched}
        for path in paths if among is None else paths & among:
            count, last = touched.get(path, (0, 0))
            touched[path] = count + 1, max(last, iteration.iteration_number or position)
    with plan.edit("features", f"context files of {feature} enriched") as data:
        entry = plan.find(data, "features", feature)
        _drop_vanished(plan, entry)
        items = list(as_list(entry.get("context_files")))
        before = [_path_of_item(item) for item in items]
        for item in items:
            if _is_auto(item) and _path_of_item(item) in touched:
                item.update(zip(_COUNTS, touched[item["path"]], strict=True))
        often = [path for path, (count, _) in touched.items() if count >= Limits.context_after]
        for path in sorted(often, key=lambda path: (-touched[path][0], path)):
            new = path not in before and not is_noise(path) and len(path) <= Limits.path
            if new and is_there(plan.project, path, file=True):
                counts = dict(zip(_COUNTS, touched[path], strict=True))
                items.append({"path": path, "source": "auto", **counts})
        _evict(items)
        model.set_field(entry, "context_files", items)
    return [added for item in items if (added := _path_of_item(item)) and added not in before]


def without_vanished(plan: Plan, feature: Feature) -> tuple[Feature, list[str]]:
    """Return the feature without files that are gone, and a note for each; the plan stays."""
    lists = {name: getattr(feature, name) for name in _FILE_LISTS}
    notes = _drop_vanished(plan, lists)
    kept = {name: tuple(lists.get(name, ())) for name in _FILE_LISTS}
    return (msgspec.structs.replace(feature, **kept), notes) if notes else (feature, notes)


def drop_vanished(plan: Plan, feature: str) -> list[str]:
    """Remove files that are gone from context and knowledge files; return a note for each (F4)."""
    with plan.edit("features", f"vanished files of {feature} removed") as data:
        return _drop_vanished(plan, plan.find(data, "features", feature))


def _replace_files(old: Any, value: Any) -> list[Data]:
    """Return a person's new list of files; a file that stays keeps its other fields."""
    before = {_path_of_item(item): item for item in old} if isinstance(old, list) else {}
    items: list[Any] = []
    for item in [value] if isinstance(value, str) else value:
        plain = item if isinstance(item, Mapping) else {"path": item}
        path = clean_path(plain.get("path"), Limits.path)
        fields = before.get(path)
        fields = fields if isinstance(fields, dict) else {"source": "human"}
        if (source := plain.get("source", fields.get("source", "human"))) not in ("auto", "human"):
            raise BadInput(f"a context file's source is not {source!r}", todo="Use auto or human.")
        items.append({**fields, "path": path, "source": source})
    _evict(items)
    return items


def _evict(items: list[Any]) -> None:
    """Remove the least touched files that Ralph added until the list fits; never a person's."""
    while len(items) > Limits.context_files:
        if not (own := [i for i, item in enumerate(items) if _is_auto(item)]):
            most = Limits.context_files
            what = f"`context_files` can have {most} files, and people added them all"
            raise BadInput(what, todo="Remove one first.")
        del items[min(own, key=lambda i: [_number(items[i].get(name)) for name in _COUNTS])]


def stale_note(path: str, where: str = "context_files") -> str:
    """Return the note in a prompt for a file that is gone."""
    return f"[STALE: {path} no longer exists — removed from {where}]"


def _drop_vanished(plan: Plan, entry: Data) -> list[str]:
    notes: list[str] = []
    for name in _FILE_LISTS:
        items = entry.get(name)
        items = items if isinstance(items, tuple) else as_list(items)
        paths = [_path_of_item(item) for item in items]
        if gone := {path for path in paths if path and not is_there(plan.project, path)}:
            notes += [stale_note(path, name) for path in paths if path in gone]
            kept = [item for item, path in zip(items, paths, strict=True) if path not in gone]
            model.set_field(entry, name, kept)
    return notes


def project_file(root: Path, path: str) -> Path | None:
    """Return a file that the plan names, if it is a regular file inside the project, else None.

    A link may lead anywhere, and files in git's and Ralph's own folders are not documents.
    """
    with suppress(OSError, ValueError, RuntimeError):  # the last: links in a circle
        top = root.resolve()
        file = (top / path).resolve()
        if file.is_file() and file.relative_to(top).parts[0].lower() not in (".git", ".ralph"):
            return file
    return None


def file_tokens(root: Path, path: str) -> int | None:
    """Return the size of a file that the plan names, as a prompt counts it; None without a file."""
    file = project_file(root, path)
    if file is None:
        return None
    with file.open("rb") as opened:
        return estimate_tokens(opened.read(_MOST_BYTES).decode("utf-8", "replace"))


def is_there(project: Path, path: str, *, file: bool = False) -> bool:
    """Return whether there is anything (or with `file`, a file) at this path. A path that is too
    long or has a NUL in it cannot exist."""
    with suppress(OSError, ValueError):
        return (project / path).is_file() if file else (project / path).exists()
    return False


def _path_of_item(item: Any) -> str | None:
    path = item.get("path") if isinstance(item, dict) else getattr(item, "path", item)
    return path if isinstance(path, str) else None


def _is_auto(item: Any) -> bool:
    return isinstance(item, dict) and item.get("source") == "auto"


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


# -- `plan check`: everything that is wrong with the plan, each with its place and what to do.


def check(plan: Plan) -> list[model.Problem]:
    """Return every problem, by file and line; a file that does not parse is one problem."""
    files: dict[Kind, PlanFile] = {}
    problems: list[model.Problem] = []
    for kind in model.KINDS:
        try:
            files[kind] = plan.document(kind)
        except BadPlan as error:
            _, line, column = str(error.where).rsplit(":", 2)
            place = plan.file_name(kind), int(line), int(column)
            problems.append(model.Problem(*place, error.what, str(error.todo)))
    view = read_view(files)
    problems += view.problems
    if len(files) == len(model.KINDS):
        problems += _references(files["tasks"], view)
    if "features" in files:
        problems += _features(plan, files["features"], view)
    return sorted(problems, key=lambda p: (p.file, p.line, p.column, p.what))


def _references(file: PlanFile, view: model.PlanView) -> Iterator[model.Problem]:
    features = {feature.name for feature in view.features}
    disciplines = {discipline.name for discipline in view.disciplines}
    status = {str(task.id): task.status for task in view.tasks}
    for task in view.tasks:
        path = model.path_of(file.data, "tasks", task.id)
        if task.feature not in features:
            what = f"task {task.id} belongs to the unknown feature {task.feature!r}"
            yield file.problem((*path, "feature"), what, "Add the feature, or correct the name.")
        if task.discipline is not None and task.discipline not in disciplines:
            what = f"task {task.id} names the unknown discipline {task.discipline!r}"
            todo = "Add the discipline, or correct the name."
            yield file.problem((*path, "discipline"), what, todo, "warning")
        for i, blocker in enumerate(task.blocked_by):
            at = (*path, "blocked_by", i)
            if str(blocker) not in status:
                what = f"task {task.id} waits for the unknown task {blocker}"
                yield file.problem(at, what, "Take it out of blocked_by, or add the task.")
            elif status[str(blocker)] == "skipped" and task.status in ("pending", "in_progress"):
                what = f"task {task.id} waits for task {blocker}, which is skipped"
                yield file.problem(at, what, "Take it out of blocked_by, or do it.", "warning")
    for ring in cycles(view.tasks):
        path = (*model.path_of(file.data, "tasks", ring[0]), "blocked_by")
        what = f"tasks wait for each other: {' -> '.join(map(str, ring))}"
        yield file.problem(path, what, "Take one of them out of blocked_by.")


def _features(plan: Plan, file: PlanFile, view: model.PlanView) -> Iterator[model.Problem]:
    from ralph.plan.learnings import conflicts  # only here: few edits compare texts

    for feature in view.features:
        path = model.path_of(file.data, "features", feature.name)
        for left, right in conflicts(feature.learnings):
            at = (*path, "learnings", feature.learnings.index(right))
            what = f"two learnings of {feature.name} contradict each other: {left.text!r}"
            what += f" and {right.text!r}"
            yield file.problem(at, what, "Remove the one that is wrong.", "warning")
        listed = [(n, i, x) for n in _FILE_LISTS for i, x in enumerate(getattr(feature, n))]
        for name, i, item in listed:
            missing = str(_path_of_item(item))
            if not is_there(plan.project, missing):
                todo = f"Ralph will take it out: {stale_note(missing, name)}"
                yield file.problem((*path, name, i), f"{missing} does not exist", todo, "warning")
