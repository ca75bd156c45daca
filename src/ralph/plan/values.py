"""What the plan is made of: Feature, ContextFile, Task, Comment, Discipline, and their limits.

The files (each with `version: 1`; keys that are not listed here are kept as they are):

    features.yaml      features: a list; each has `name` and any of Feature's fields
    tasks.yaml         tasks: a list; each has `id`, `feature`, `title` and any of Task's fields
    disciplines.yaml   disciplines: a list; each has `name` and any of Discipline's fields

A mapping by name (`features: {auth: {description: ...}}`) is read and written as well. A context
file, a comment or a learning may be a plain text. `removed_learnings` in a feature holds what
must not be learned again. `current_state` is computed from the tasks and never stored (F17).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from ralph.records.learning import Learning

VERSION = 1

Status = Literal["pending", "in_progress", "blocked", "done", "skipped"]
STATUSES: tuple[str, ...] = get_args(Status)
# What agents write when they mean one of these.
STATUS_ALIASES = {
    "todo": "pending",
    "open": "pending",
    "in-progress": "in_progress",
    "in progress": "in_progress",
    "doing": "in_progress",
    "wip": "in_progress",
    "complete": "done",
    "completed": "done",
    "finished": "done",
}
PRIORITIES = {"critical": 1, "high": 2, "medium": 3, "normal": 3, "low": 4}
DEFAULT_PRIORITY = 3

TaskId = int | str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything; the numbers of SPEC A1, A6 and A7, in one place."""

    description: int = 3000
    architecture: int = 3000
    boundaries: int = 1500
    dependency: int = 300
    dependencies: int = 20
    path: int = 500
    knowledge_paths: int = 10
    context_files: int = 30
    context_after: int = 3
    learning: int = 500
    learnings: int = 50
    learnings_in_prompt: int = 10
    stale_after: int = 20
    dropped_after: int = 40
    removed_learnings: int = 200
    thin_description: int = 100
    similar: float = 0.7
    name: int = 100
    title: int = 300
    comment: int = 2000
    comments: int = 200
    text: int = 6000
    items: int = 50


DEFAULT_LIMITS = Limits()


class ContextFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file worth opening first; `last_touched` is the number of an iteration."""

    path: str
    source: Literal["auto", "human"] = "human"
    touch_count: int = 0
    last_touched: int | None = None


class Feature(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is being built: prose, files and learnings under an immutable name."""

    name: str
    display_name: str | None = None
    acronym: str | None = None
    description: str | None = None
    architecture: str | None = None
    boundaries: str | None = None
    dependencies: tuple[str, ...] = ()
    knowledge_paths: tuple[str, ...] = ()
    context_files: tuple[ContextFile, ...] = ()
    last_verified: int | str | None = None
    learnings: tuple[Learning, ...] = ()
    created: str | None = None

    def is_thin(self, limits: Limits = DEFAULT_LIMITS) -> bool:
        """Whether the description says too little to be searched by (`insufficient_context`)."""
        return len((self.description or "").strip()) < limits.thin_description


class Comment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody noted on a task."""

    text: str
    author: str | None = None
    at: str | None = None


class Task(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One piece of work; a smaller priority comes first."""

    id: TaskId
    feature: str
    title: str
    discipline: str | None = None
    description: str | None = None
    acceptance_criteria: tuple[str, ...] = ()
    status: Status = "pending"
    priority: int = DEFAULT_PRIORITY
    blocked_by: tuple[TaskId, ...] = ()
    tags: tuple[str, ...] = ()
    comments: tuple[Comment, ...] = ()
    created: str | None = None
    updated: str | None = None
    completed: str | None = None


class Discipline(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How work of one kind is done."""

    name: str
    display_name: str | None = None
    system_prompt: str | None = None
    skills: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
    mcp_servers: dict[str, Any] = {}


class Problem(msgspec.Struct, frozen=True):
    """Something in the plan that is wrong (`error`) or worth a look (`warning`), with its place."""

    file: str
    line: int
    column: int
    what: str
    todo: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.what}. {self.todo}"


class View(msgspec.Struct, frozen=True):
    """The plan as it was read at one moment, and what was wrong with it."""

    features: tuple[Feature, ...] = ()
    tasks: tuple[Task, ...] = ()
    disciplines: tuple[Discipline, ...] = ()
    problems: tuple[Problem, ...] = ()

    def current_state(self, feature: str) -> str:
        """`3/7 tasks complete. Done: ... In progress: ...`, from the tasks as they are now."""
        return current_state(task for task in self.tasks if task.feature == feature)


def current_state(tasks: Iterable[Task]) -> str:
    """How far these tasks are, in one line."""
    counted = [task for task in tasks if task.status != "skipped"]
    done = [task.title for task in counted if task.status == "done"]
    under_way = [task.title for task in counted if task.status == "in_progress"]
    return (
        f"{len(done)}/{len(counted)} tasks complete. "
        f"Done: {', '.join(done) or 'none'}. In progress: {', '.join(under_way) or 'none'}."
    )


def id_order(task_id: TaskId) -> tuple[int, int, str]:
    """Numbers before names, numbers by size."""
    text = str(task_id)
    return (0, int(text), "") if text.isdecimal() and len(text) < 20 else (1, 0, text)
