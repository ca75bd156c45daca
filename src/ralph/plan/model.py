"""What the plan is made of: its values, their limits, and the entries of a file's data.

The files (each with `version: 1`; keys that are not listed here are kept as they are):

    features.yaml      features: a list; each has `name` and any of Feature's fields
    tasks.yaml         tasks: a list; each has `id`, `feature`, `title` and any of Task's fields
    disciplines.yaml   disciplines: a list; each has `name` and any of Discipline's fields

A mapping by name (`features: {auth: {description: ...}}`) is read and written as well. A context
file, a comment or a learning may be a plain text. `removed_learnings` in a feature holds what
must not be learned again. `current_state` is computed from the tasks and never stored (F17).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from ralph.records.learning import Learning

Data = dict[str, Any]
DataPath = tuple[str | int, ...]

VERSION = 1

Status = Literal["pending", "in_progress", "blocked", "done", "skipped"]
STATUSES: tuple[str, ...] = get_args(Status)
# What agents write when they mean one of these.
STATUS_ALIASES = {
    **dict.fromkeys(("todo", "open"), "pending"),
    **dict.fromkeys(("in-progress", "in progress", "doing", "wip"), "in_progress"),
    **dict.fromkeys(("complete", "completed", "finished"), "done"),
}
PRIORITIES = {"critical": 1, "high": 2, "medium": 3, "normal": 3, "low": 4}
DEFAULT_PRIORITY = 3

TaskId = int | str


class Limits:
    """All limits of the plan; the numbers of SPEC A1, A6 and A7, in one place."""

    description = 3000
    architecture = 3000
    boundaries = 1500
    dependency = 300
    dependencies = 20
    path = 500
    knowledge_paths = 10
    context_files = 30
    context_after = 3
    learning = 500
    learnings = 50
    learnings_in_prompt = 10
    stale_after = 20
    dropped_after = 40
    removed_learnings = 200
    thin_description = 100
    name = 100
    title = 300
    comment = 2000
    comments = 200
    text = 6000
    items = 50


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

    def is_thin(self) -> bool:
        """Return whether the description is too short to search by (`insufficient_context`)."""
        return len((self.description or "").strip()) < Limits.thin_description


class Comment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A comment on a task."""

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


Severity = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True):
    """Something in the plan that is wrong (`error`) or worth a look (`warning`), with its place."""

    file: str
    line: int
    column: int
    what: str
    todo: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.what}. {self.todo}"


class PlanView(msgspec.Struct, frozen=True):
    """The plan as read at one moment, and its problems."""

    features: tuple[Feature, ...] = ()
    tasks: tuple[Task, ...] = ()
    disciplines: tuple[Discipline, ...] = ()
    problems: tuple[Problem, ...] = ()

    def current_state(self, feature: str) -> str:
        """Return `3/7 tasks complete. Done: ... In progress: ...`, from the current tasks."""
        tasks = [t for t in self.tasks if t.feature == feature and t.status != "skipped"]
        done = [task.title for task in tasks if task.status == "done"]
        started = [task.title for task in tasks if task.status == "in_progress"]
        return (
            f"{len(done)}/{len(tasks)} tasks complete. "
            f"Done: {', '.join(done) or 'none'}. In progress: {', '.join(started) or 'none'}."
        )


def id_order(task_id: TaskId) -> tuple[int, int, str]:
    """Return a sort key: numbers by size, then names."""
    text = str(task_id)
    return (0, int(text), "") if text.isdecimal() and len(text) < 20 else (1, 0, text)


# -- the entries of a file's data, as a list or as a mapping by name

Kind = Literal["features", "tasks", "disciplines"]
KINDS: tuple[Kind, ...] = ("features", "tasks", "disciplines")
KEY_OF = {"features": "name", "tasks": "id", "disciplines": "name"}
SINGULAR = {kind: kind.removesuffix("s") for kind in KINDS}


class Entity(NamedTuple):
    """One entry: its key as text, its path in the data, and its value."""

    key: str | None
    path: DataPath
    value: Any


def entities(data: Data, kind: Kind) -> Iterator[Entity]:
    """Yield every entry in order, including malformed ones."""
    container = data.get(kind)
    if isinstance(container, dict):
        for name, value in container.items():
            if value is None or isinstance(value, dict):
                value = {KEY_OF[kind]: name, **(value or {})}
            yield Entity(str(name), (kind, name), value)
    elif isinstance(container, list):
        for i, value in enumerate(container):
            key = value.get(KEY_OF[kind]) if isinstance(value, dict) else None
            usable = isinstance(key, str | int) and not isinstance(key, bool) and str(key).strip()
            yield Entity(str(key).strip() if usable else None, (kind, i), value)


def by_key(data: Data, kind: Kind) -> dict[str, Data]:
    """Return the entries that have a key; of two with the same key, the first counts."""
    found: dict[str, Data] = {}
    for entity in entities(data, kind):
        if entity.key is not None and isinstance(entity.value, dict):
            found.setdefault(entity.key, entity.value)
    return found


def path_of(data: Data, kind: Kind, key: object) -> DataPath:
    """Return the path of the entry with this key, or of the whole list if there is none."""
    return next((e.path for e in entities(data, kind) if e.key == str(key)), (kind,))


def find_entity(data: Data, kind: Kind, key: object) -> Data | None:
    """Return the entry with this key, to read it or to change it in place."""
    _, *slot = path_of(data, kind, key)
    if not slot:
        return None
    if (value := data[kind][slot[0]]) is None:
        value = data[kind][slot[0]] = {}
    return value if isinstance(value, dict) else None


def put_entity(data: Data, kind: Kind, entry: Data) -> None:
    """Replace the entry that has the same key, or add this one at the end.

    An empty file gets its version and its list.
    """
    key = KEY_OF[kind]
    _, *slot = path_of(data, kind, str(entry[key]).strip()) if key in entry else (kind,)
    if not data:
        data["version"] = VERSION
    container = data.get(kind)
    if isinstance(container, dict) and container:
        name = slot[0] if slot else str(entry[key])
        container[name] = {field: value for field, value in entry.items() if field != key}
    elif not isinstance(container, list):
        data[kind] = [entry]
    elif slot and isinstance(slot[0], int):
        container[slot[0]] = entry
    else:
        container.append(entry)


def remove_entity(data: Data, kind: Kind, key: object) -> None:
    """Delete the entry with this key, if there is one."""
    _, *slot = path_of(data, kind, key)
    if slot:
        del data[kind][slot[0]]


# -- plain data


def identical(left: Any, right: Any) -> bool:
    """Return whether both have equal values and types; in Python, 1 equals True."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(identical(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(identical, left, right))
    return bool(left == right)


def identity(item: Any) -> str:
    """Return the text that identifies an item of a list, even if the rest of it has changed."""
    if isinstance(item, dict):
        for key in ("name", "id", "path", "text", "words", "title"):
            if item.get(key) is not None:
                return str(item[key])
        return repr(item)
    return str(item)


def deep_copy(value: Any) -> Any:
    """Return a copy of plain data that can be changed independently."""
    return msgspec.to_builtins(value)


def as_list(value: Any) -> list[Any]:
    """Return the value as a list: a text is a list of one, other values are an empty list."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, str) else []


def set_field(entry: Data, name: str, value: Any) -> None:
    """Set the field, or delete it if the value is empty."""
    if value is None or value in ("", [], {}, ()):
        entry.pop(name, None)
    else:
        entry[name] = value


def text_of(item: Any) -> str:
    """Return the text of a learning or a comment, in any form; "" if it has none."""
    text = item.get("text") if isinstance(item, dict) else item
    return text.strip() if isinstance(text, str) else ""
