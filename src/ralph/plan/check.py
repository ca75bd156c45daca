"""`plan check`: everything that is wrong with the plan, each with its place and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from ralph.errors import BadPlan
from ralph.plan.context_files import is_there, stale_note
from ralph.plan.edit import cycles
from ralph.plan.fields import read_view
from ralph.plan.learnings import conflicts
from ralph.plan.model import KINDS, Kind, PlanView, Problem, path_of
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile


def check(plan: Plan) -> list[Problem]:
    """Every problem, by file and line; a file that does not parse is one problem."""
    files: dict[Kind, PlanFile] = {}
    problems: list[Problem] = []
    for kind in KINDS:
        try:
            files[kind] = plan.document(kind)
        except BadPlan as error:
            problems.append(_unreadable(plan.file_name(kind), error))
    view = read_view(files)
    problems += view.problems
    if len(files) == len(KINDS):
        problems += _references(files["tasks"], view)
    if "features" in files:
        problems += _learnings_and_files(plan, files["features"], view)
    return sorted(problems, key=lambda p: (p.file, p.line, p.column, p.what))


def _unreadable(name: str, error: BadPlan) -> Problem:
    *_, line, column = ("1", "1", *(error.where or "").rsplit(":", 2))
    if not (line.isdecimal() and column.isdecimal()):
        line = column = "1"
    return Problem(name, int(line), int(column), error.what, error.todo or "Correct it.")


def _references(file: PlanFile, view: PlanView) -> Iterator[Problem]:
    features = {feature.name for feature in view.features}
    disciplines = {discipline.name for discipline in view.disciplines}
    status = {str(task.id): task.status for task in view.tasks}
    for task in view.tasks:
        path = path_of(file.data, "tasks", task.id)
        if task.feature not in features:
            what = f"task {task.id} belongs to the unknown feature {task.feature!r}"
            todo = "Add the feature, or correct the name."
            yield file.problem((*path, "feature"), what, todo)
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
        path = (*path_of(file.data, "tasks", ring[0]), "blocked_by")
        what = f"tasks wait for each other: {' -> '.join(map(str, ring))}"
        yield file.problem(path, what, "Take one of them out of blocked_by.")


def _learnings_and_files(plan: Plan, file: PlanFile, view: PlanView) -> Iterator[Problem]:
    for feature in view.features:
        path = path_of(file.data, "features", feature.name)
        for left, right in conflicts(feature.learnings):
            yield file.problem(
                (*path, "learnings", feature.learnings.index(right)),
                f"two learnings of {feature.name} contradict each other: "
                f"{left.text!r} and {right.text!r}",
                "Remove the one that is wrong.",
                "warning",
            )
        listed = [("context_files", i, f.path) for i, f in enumerate(feature.context_files)]
        listed += [("knowledge_paths", i, f) for i, f in enumerate(feature.knowledge_paths)]
        for name, i, missing in listed:
            if not is_there(plan.project, missing):
                todo = f"Ralph will take it out: {stale_note(missing, name)}"
                yield file.problem((*path, name, i), f"{missing} does not exist", todo, "warning")
