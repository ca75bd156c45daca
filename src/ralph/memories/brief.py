"""What matters in a project now: the feature being worked on, its tasks, and its latest work."""

from __future__ import annotations

import msgspec

from ralph.kinds.iteration import Iteration
from ralph.memories.focus import Focus
from ralph.memories.ralph import Ralph
from ralph.plan.learnings import prompt_lines
from ralph.plan.model import DEFAULT_LIMITS, Feature, PlanLimits, PlanView, Task


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who begins to work here should know; `told` are its iterations, oldest first.

    `chosen` says why it is this feature: a person set it, a task is in progress, or it was the
    last one worked on.
    """

    feature: Feature
    chosen: str
    current_state: str
    tasks: tuple[Task, ...]
    told: tuple[Iteration, ...]
    learnings: tuple[str, ...]


def brief(
    ralph: Ralph, view: PlanView, focus: Focus | None, *, limits: PlanLimits = DEFAULT_LIMITS
) -> Brief | None:
    """What matters now, or None where nothing was planned or done yet."""
    name, chosen = _feature_now(ralph, view, focus)
    if name is None:
        return None
    told = _told(ralph, name)
    feature = next((one for one in view.features if one.name == name), None)
    planned = any(task.feature == name for task in view.tasks)
    if feature is None and not told and not planned:
        return None
    feature = feature or Feature(name=name)
    tasks = _tasks_now(view, name, focus)
    last = max((one.iteration_number or 0 for one in told), default=0)
    return Brief(
        feature=feature,
        chosen=chosen,
        current_state=view.current_state(name) if planned else "",
        tasks=tasks,
        told=told,
        learnings=tuple(
            prompt_lines(
                feature.learnings,
                current_iteration=last + 1,
                task_id=tasks[0].id if tasks else None,
                limits=limits,
            )
        ),
    )


def _feature_now(ralph: Ralph, view: PlanView, focus: Focus | None) -> tuple[str | None, str]:
    if focus is not None:
        return focus.feature, "in focus"
    begun = [task for task in view.tasks if task.status == "in_progress"]
    if begun:
        return max(
            begun, key=lambda task: task.updated or task.created or ""
        ).feature, "in progress"
    journals = ralph.place.journals
    last = {name: journals.newest_at(name) for name in journals.names()}
    if last:
        return max(last, key=lambda name: last[name]), "last worked on"
    return None, ""


def _tasks_now(view: PlanView, feature: str, focus: Focus | None) -> tuple[Task, ...]:
    """The task a person chose, and those in progress."""
    wanted = None if focus is None or focus.task_id is None else str(focus.task_id)
    tasks = [task for task in view.tasks if task.feature == feature]
    chosen = [task for task in tasks if str(task.id) == wanted]
    return tuple(chosen + [t for t in tasks if t.status == "in_progress" and t not in chosen])


def _told(ralph: Ralph, feature: str) -> tuple[Iteration, ...]:
    told = [iteration for _, iteration in ralph.feature(feature).iterations()]
    return tuple(sorted(told, key=lambda one: (one.iteration_number or 0, one.timestamp or "")))
