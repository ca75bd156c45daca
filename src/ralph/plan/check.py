"""`plan check`: everything that is wrong with the plan, each with its place and what to do."""

from __future__ import annotations

from typing import Literal

from ralph.errors import BadPlan
from ralph.plan.context_files import is_there, stale_note
from ralph.plan.edit import cycles
from ralph.plan.learnings import conflicts
from ralph.plan.model import KINDS, DataPath, Kind, PlanView, Problem, path_of, read_view
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile


def check(plan: Plan) -> list[Problem]:
    """Every problem, by file and line; a file that does not parse is one problem."""
    documents: dict[Kind, PlanFile] = {}
    problems: list[Problem] = []
    for kind in KINDS:
        try:
            documents[kind] = plan.document(kind)
        except BadPlan as error:
            problems.append(_unreadable(plan.shown(kind), error))
    found = read_view(documents, plan.limits)
    problems += found.problems
    if len(documents) == len(KINDS):
        problems += _references(documents, found)
    if "features" in documents:
        problems += _contradictions(documents["features"], found)
        problems += _vanished(plan, documents["features"], found)
    return sorted(problems, key=lambda p: (p.file, p.line, p.column, p.what))


def _unreadable(name: str, error: BadPlan) -> Problem:
    line, column = 1, 1
    if error.where:
        parts = error.where.rsplit(":", 2)
        if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
            line, column = int(parts[1]), int(parts[2])
    return Problem(name, line, column, error.what, error.todo or "Correct it.")


def _references(documents: dict[Kind, PlanFile], found: PlanView) -> list[Problem]:
    problems: list[Problem] = []
    tasks = documents["tasks"]
    features = {feature.name for feature in found.features}
    disciplines = {discipline.name for discipline in found.disciplines}
    status = {str(task.id): task.status for task in found.tasks}
    for task in found.tasks:
        path = path_of(tasks.data, "tasks", task.id)
        if task.feature not in features:
            problems.append(
                _problem(
                    tasks,
                    (*path, "feature"),
                    f"task {task.id} belongs to the unknown feature {task.feature!r}",
                    "Add the feature, or correct the name.",
                )
            )
        if task.discipline is not None and task.discipline not in disciplines:
            problems.append(
                _problem(
                    tasks,
                    (*path, "discipline"),
                    f"task {task.id} names the unknown discipline {task.discipline!r}",
                    "Add the discipline, or correct the name.",
                    "warning",
                )
            )
        for i, blocker in enumerate(task.blocked_by):
            if str(blocker) not in status:
                problems.append(
                    _problem(
                        tasks,
                        (*path, "blocked_by", i),
                        f"task {task.id} waits for the unknown task {blocker}",
                        "Take it out of blocked_by, or add the task.",
                    )
                )
            elif status[str(blocker)] == "skipped" and task.status in ("pending", "in_progress"):
                problems.append(
                    _problem(
                        tasks,
                        (*path, "blocked_by", i),
                        f"task {task.id} waits for task {blocker}, which is skipped",
                        "Take it out of blocked_by, or do it.",
                        "warning",
                    )
                )
    for ring in cycles(found.tasks):
        problems.append(
            _problem(
                tasks,
                (*path_of(tasks.data, "tasks", ring[0]), "blocked_by"),
                f"tasks wait for each other: {' -> '.join(map(str, ring))}",
                "Take one of them out of blocked_by.",
            )
        )
    return problems


def _contradictions(document: PlanFile, found: PlanView) -> list[Problem]:
    problems: list[Problem] = []
    for feature in found.features:
        path = path_of(document.data, "features", feature.name)
        for one, other in conflicts(feature.learnings):
            problems.append(
                _problem(
                    document,
                    (*path, "learnings", feature.learnings.index(other)),
                    f"two learnings of {feature.name} contradict each other: "
                    f"{one.text!r} and {other.text!r}",
                    "Remove the one that is wrong.",
                    "warning",
                )
            )
    return problems


def _vanished(plan: Plan, document: PlanFile, found: PlanView) -> list[Problem]:
    problems: list[Problem] = []
    for feature in found.features:
        path = path_of(document.data, "features", feature.name)
        listed = [("context_files", i, f.path) for i, f in enumerate(feature.context_files)]
        listed += [("knowledge_paths", i, f) for i, f in enumerate(feature.knowledge_paths)]
        for name, i, file in listed:
            if not is_there(plan.project, file):
                problems.append(
                    _problem(
                        document,
                        (*path, name, i),
                        f"{file} does not exist",
                        f"Ralph will take it out: {stale_note(file, name)}",
                        "warning",
                    )
                )
    return problems


def _problem(
    document: PlanFile,
    path: DataPath,
    what: str,
    todo: str,
    severity: Literal["error", "warning"] = "error",
) -> Problem:
    return Problem(document.name, *document.position(path), what, todo, severity)
