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

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

from ralph.errors import BadInput
from ralph.kinds.iteration import cut
from ralph.kinds.learning import Learning, read_learning
from ralph.text.redact import redact
from ralph.text.sanitise import visible

if TYPE_CHECKING:
    from ralph.plan.yaml import PlanFile

Data = dict[str, Any]
DataPath = tuple[str | int, ...]

VERSION = 1
_IDENTITY_KEYS = ("name", "id", "path", "text", "words", "title")

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


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
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


DEFAULT_LIMITS = PlanLimits()


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

    def is_thin(self, limits: PlanLimits = DEFAULT_LIMITS) -> bool:
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


class PlanView(msgspec.Struct, frozen=True):
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


# -- The features, tasks or disciplines inside a file's data, as a list or as a mapping by name.


Kind = Literal["features", "tasks", "disciplines"]
KINDS: tuple[Kind, ...] = ("features", "tasks", "disciplines")
KEY_OF: dict[str, str] = {"features": "name", "tasks": "id", "disciplines": "name"}
SINGULAR: dict[str, str] = {"features": "feature", "tasks": "task", "disciplines": "discipline"}


class Entity(NamedTuple):
    """One entry: its key as text, where it stands in the data, and what is there."""

    key: str | None
    path: DataPath
    value: Any


def entities(data: Data, kind: Kind) -> Iterator[Entity]:
    """Every entry in order, also those that are not what they should be."""
    found = data.get(kind)
    if isinstance(found, dict):
        for name, value in found.items():
            if value is None or isinstance(value, dict):
                value = {KEY_OF[kind]: name, **(value or {})}
            yield Entity(str(name), (kind, name), value)
    elif isinstance(found, list):
        for i, value in enumerate(found):
            key = value.get(KEY_OF[kind]) if isinstance(value, dict) else None
            usable = isinstance(key, str | int) and not isinstance(key, bool) and str(key).strip()
            yield Entity(str(key).strip() if usable else None, (kind, i), value)


def find_entity(data: Data, kind: Kind, key: object) -> Data | None:
    """The entry with this key, for reading or changing in place."""
    found = data.get(kind)
    if isinstance(found, dict):
        for name, value in found.items():
            if str(name) == str(key) and (value is None or isinstance(value, dict)):
                if value is None:
                    value = found[name] = {}
                return value
        return None
    for entity in entities(data, kind):
        if entity.key == str(key) and isinstance(entity.value, dict):
            return entity.value
    return None


def path_of(data: Data, kind: Kind, key: object) -> DataPath:
    """Where the entry stands; the whole list when it is not there."""
    for entity in entities(data, kind):
        if entity.key == str(key):
            return entity.path
    return (kind,)


def add_entity(data: Data, kind: Kind, entry: Data) -> None:
    """Put an entry at the end; an empty file gets its version and its list."""
    if not data:
        data["version"] = VERSION
    found = data.get(kind)
    if isinstance(found, dict) and found:
        key = KEY_OF[kind]
        found[str(entry[key])] = {name: value for name, value in entry.items() if name != key}
    elif isinstance(found, list):
        found.append(entry)
    else:
        data[kind] = [entry]


def put_entity(data: Data, kind: Kind, key: str, entry: Data) -> None:
    """Put the entry in the place of the one with its key, or at the end."""
    found = data.get(kind)
    if isinstance(found, dict) and found:
        found[key] = {name: value for name, value in entry.items() if name != KEY_OF[kind]}
        return
    for entity in entities(data, kind):
        if entity.key == key and isinstance(found, list) and isinstance(entity.path[1], int):
            found[entity.path[1]] = entry
            return
    add_entity(data, kind, entry)


def remove_entity(data: Data, kind: Kind, key: object) -> bool:
    """Take the entry out; False when it is not there."""
    found = data.get(kind)
    if isinstance(found, dict):
        name = next((name for name in found if str(name) == str(key)), None)
        if name is None:
            return False
        del found[name]
        return True
    for entity in entities(data, kind):
        if entity.key == str(key) and isinstance(found, list) and isinstance(entity.path[1], int):
            del found[entity.path[1]]
            return True
    return False


# -- Reads one field at a time: what fits comes back, what does not is a Problem with its place.


_DRIVE = re.compile(r"[A-Za-z]:")


def clean_path(path: str, *, max_chars: int) -> tuple[str | None, str | None]:
    """The path with forward slashes, or None and why it is refused (F9)."""
    plain = path.strip().replace("\\", "/")
    if not plain:
        return None, "an empty path"
    if "\0" in plain:
        return None, "a path with a NUL in it"
    if len(plain) > max_chars:
        return None, f"a path of more than {max_chars} characters"
    if plain.startswith(("/", "~")) or _DRIVE.match(plain):
        return None, f"the path {path!r} is not relative to the project"
    pure = PurePosixPath(plain)
    if ".." in pure.parts:
        return None, f"the path {path!r} leaves the project with `..`"
    if not pure.parts:
        return None, f"the path {path!r} names no file"
    return str(pure), None


class Fields:
    """One entry of a file, read field by field."""

    def __init__(
        self,
        document: PlanFile,
        path: DataPath,
        value: Data,
        limits: PlanLimits,
        problems: list[Problem],
    ) -> None:
        self.document = document
        self.path = path
        self.value = value
        self.limits = limits
        self.problems = problems

    def complain(
        self,
        what: str,
        todo: str,
        *steps: str | int,
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        """Note what is wrong at a field of this entry."""
        position = self.document.position((*self.path, *steps))
        self.problems.append(Problem(self.document.name, *position, what, todo, severity))

    def text(self, name: str, max_chars: int) -> str | None:
        """A text, cut to the limit; numbers are taken as text, empty is nothing."""
        value = self.value.get(name)
        if value is None:
            return None
        if isinstance(value, bool | dict | list):
            self.complain(f"`{name}` is not a text", "Write it as a text.", name)
            return None
        plain = str(value).strip()
        if len(plain) > max_chars:
            self.complain(
                f"`{name}` has {len(plain)} characters",
                f"What is over {max_chars} is cut when it is read; shorten it.",
                name,
                severity="warning",
            )
        return cut(plain, max_chars) or None

    def items(self, name: str, most: int) -> list[tuple[int, Any]]:
        """A list's items with their positions; a single text is a list of one."""
        value = self.value.get(name)
        if value is None:
            return []
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            self.complain(f"`{name}` is not a list", "Write each item behind a dash.", name)
            return []
        if len(value) > most:
            self.complain(
                f"`{name}` has {len(value)} items and holds {most}",
                f"Keep the {most} that matter.",
                name,
                severity="warning",
            )
        return list(enumerate(value))

    def texts(self, name: str, *, most: int, each: int) -> tuple[str, ...]:
        """A list of texts, each cut to its limit."""
        found: list[str] = []
        for i, item in self.items(name, most):
            if isinstance(item, bool | dict | list) or item is None:
                self.complain(f"`{name}` holds something that is not a text", "Quote it.", name, i)
            elif plain := str(item).strip():
                found.append(cut(plain, each))
        return tuple(found[:most])

    def safe_path(self, path: object, *steps: str | int) -> str | None:
        """A path that may be used, else a problem."""
        if not isinstance(path, str):
            self.complain("a path must be a text", "Write it as a text.", *steps)
            return None
        clean, why = clean_path(path, max_chars=self.limits.path)
        if clean is None:
            self.complain(str(why), "Write it relative to the project, without `..`.", *steps)
        return clean


# -- From the files' data to Feature, Task and Discipline; what is wrong comes back beside them.
#
# Tolerant where an agent could not do better (plain texts, text over its limit), strict where
# guessing would hide something: a malformed learning is a problem with its place (F36).


def read_view(documents: Mapping[Kind, PlanFile], limits: PlanLimits) -> PlanView:
    """Everything the three files say, and every problem of a single entry."""
    problems: list[Problem] = []
    found: dict[Kind, list[Any]] = {kind: [] for kind in KINDS}
    readers = {"features": read_feature, "tasks": read_task, "disciplines": read_discipline}
    for kind, document in documents.items():
        seen: set[str] = set()
        _check_shape(document, kind, limits, problems)
        for entity in entities(document.data, kind):
            value = entity.value if isinstance(entity.value, dict) else {}
            fields = Fields(document, entity.path, value, limits, problems)
            key_name = KEY_OF[kind]
            if entity.key is None or not isinstance(entity.value, dict):
                fields.complain(
                    f"a {SINGULAR[kind]} without `{key_name}`",
                    f"Give it a `{key_name}` or delete it.",
                )
                continue
            if entity.key in seen:
                fields.complain(
                    f"the {SINGULAR[kind]} {entity.key!r} is here twice",
                    "Merge the two, or give one another " + key_name + ".",
                )
                continue
            seen.add(entity.key)
            read = readers[kind](fields)
            if read is not None:
                found[kind].append(read)
    return PlanView(
        tuple(found["features"]),
        tuple(found["tasks"]),
        tuple(found["disciplines"]),
        tuple(problems),
    )


def _check_shape(
    document: PlanFile, kind: Kind, limits: PlanLimits, problems: list[Problem]
) -> None:
    fields = Fields(document, (), document.data, limits, problems)
    version = document.data.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        fields.complain(
            f"version {version!r} is newer than this Ralph knows",
            "Update Ralph, or write `version: 1`.",
            "version",
        )
    found = document.data.get(kind)
    if found is not None and not isinstance(found, list | dict):
        fields.complain(f"`{kind}` is not a list", "Write each entry behind a dash.", kind)


def read_feature(fields: Fields) -> Feature | None:
    """One feature; its problems go to the list the fields carry."""
    limits = fields.limits
    if "current_state" in fields.value:
        fields.complain(
            "`current_state` is computed from the tasks and never read from the file",
            "Delete it.",
            "current_state",
            severity="warning",
        )
    paths = [
        fields.safe_path(item, "knowledge_paths", i)
        for i, item in fields.items("knowledge_paths", limits.knowledge_paths)
    ]
    name = fields.text("name", limits.name)
    verified = fields.value.get("last_verified")
    if isinstance(verified, bool) or not isinstance(verified, int | str | None):
        fields.complain(
            "`last_verified` is no iteration number", "Write a number.", "last_verified"
        )
        verified = None
    return Feature(
        name=name or str(fields.path[-1]),
        display_name=fields.text("display_name", limits.title),
        acronym=fields.text("acronym", limits.name),
        description=fields.text("description", limits.description),
        architecture=fields.text("architecture", limits.architecture),
        boundaries=fields.text("boundaries", limits.boundaries),
        dependencies=fields.texts("dependencies", most=limits.dependencies, each=limits.dependency),
        knowledge_paths=tuple(p for p in paths if p)[: limits.knowledge_paths],
        context_files=read_context_files(fields),
        last_verified=verified,
        learnings=read_learnings(fields),
        created=fields.text("created", limits.name),
    )


def read_learnings(fields: Fields) -> tuple[Learning, ...]:
    """The feature's learnings; a malformed one is a problem and not silently something else."""
    found: list[Learning] = []
    for i, item in fields.items("learnings", fields.limits.learnings):
        try:
            found.append(read_learning(item, max_chars=fields.limits.learning))
        except BadInput as error:
            fields.complain(error.what, error.todo or "Correct it.", "learnings", i)
    return tuple(found)


def read_context_files(fields: Fields) -> tuple[ContextFile, ...]:
    """The feature's context files, each path once; a plain text is what a person wrote."""
    found: dict[str, ContextFile] = {}
    for i, item in fields.items("context_files", fields.limits.context_files):
        plain = item if isinstance(item, dict) else {"path": item}
        path = fields.safe_path(plain.get("path"), "context_files", i)
        if path is None or path in found:
            continue
        known = {k: v for k, v in plain.items() if k in ContextFile.__struct_fields__}
        try:
            found[path] = msgspec.convert({**known, "path": path}, ContextFile)
        except msgspec.ValidationError as error:
            fields.complain(
                f"not a context file: {error}",
                "Write a path, or a mapping with path, source (auto or human), touch_count and "
                "last_touched.",
                "context_files",
                i,
            )
    return tuple(found.values())


def read_task(fields: Fields) -> Task | None:
    """One task; without a feature or a title it is a problem and not a task."""
    limits = fields.limits
    feature, title = fields.text("feature", limits.name), fields.text("title", limits.title)
    if feature is None or title is None:
        missing = "feature" if feature is None else "title"
        fields.complain(
            f"task {fields.value.get('id')} has no `{missing}`", f"Give it a `{missing}`."
        )
        return None
    return Task(
        id=fields.value["id"],
        feature=feature,
        title=title,
        discipline=fields.text("discipline", limits.name),
        description=fields.text("description", limits.text),
        acceptance_criteria=fields.texts(
            "acceptance_criteria", most=limits.items, each=limits.comment
        ),
        status=read_status(fields),
        priority=read_priority(fields),
        blocked_by=read_blocked_by(fields),
        tags=fields.texts("tags", most=limits.items, each=limits.name),
        comments=read_comments(fields),
        created=fields.text("created", limits.name),
        updated=fields.text("updated", limits.name),
        completed=fields.text("completed", limits.name),
    )


def read_status(fields: Fields) -> Status:
    value = fields.value.get("status")
    plain = str(value).strip().lower() if value is not None else "pending"
    plain = STATUS_ALIASES.get(plain, plain)
    if plain not in STATUSES:
        fields.complain(
            f"the status {value!r} does not exist", f"Use one of {', '.join(STATUSES)}.", "status"
        )
        return "pending"
    return plain  # type: ignore[return-value]  # one of STATUSES


def read_priority(fields: Fields) -> int:
    value = fields.value.get("priority")
    if value is None:
        return DEFAULT_PRIORITY
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    plain = str(value).strip().lower()
    if plain in PRIORITIES:
        return PRIORITIES[plain]
    number = plain.removeprefix("p")
    if number.isdecimal() and len(number) < 6:
        return int(number)
    fields.complain(
        f"the priority {value!r} is no number",
        f"Use a number (1 is first) or one of {', '.join(PRIORITIES)}.",
        "priority",
    )
    return DEFAULT_PRIORITY


def read_blocked_by(fields: Fields) -> tuple[TaskId, ...]:
    value = fields.value.get("blocked_by")
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    found: list[TaskId] = []
    for i, item in fields.items("blocked_by", fields.limits.items):
        if isinstance(item, int | str) and not isinstance(item, bool):
            found.append(item)
        else:
            fields.complain("`blocked_by` holds ids of tasks", "Write the id.", "blocked_by", i)
    return tuple(found)


def read_comments(fields: Fields) -> tuple[Comment, ...]:
    found: list[Comment] = []
    for i, item in fields.items("comments", fields.limits.comments):
        plain = item if isinstance(item, dict) else {"text": item}
        inner = Fields(
            fields.document, (*fields.path, "comments", i), plain, fields.limits, fields.problems
        )
        text = inner.text("text", fields.limits.comment)
        if text:
            at = inner.text("at", fields.limits.name) or inner.text("created", fields.limits.name)
            found.append(Comment(text, inner.text("author", fields.limits.name), at))
    return tuple(found)


def read_discipline(fields: Fields) -> Discipline | None:
    """One discipline."""
    limits = fields.limits
    servers = fields.value.get("mcp_servers")
    if isinstance(servers, list):
        servers = {str(name): {} for name in servers if isinstance(name, str)}
    if servers is not None and not isinstance(servers, dict):
        fields.complain(
            "`mcp_servers` is not a mapping", "Write each server under its name.", "mcp_servers"
        )
        servers = None
    return Discipline(
        name=fields.text("name", limits.name) or str(fields.path[-1]),
        display_name=fields.text("display_name", limits.title),
        system_prompt=fields.text("system_prompt", 4 * limits.text),
        skills=fields.texts("skills", most=limits.items, each=limits.text),
        conventions=fields.texts("conventions", most=limits.items, each=limits.text),
        mcp_servers=servers or {},
    )


# -- What a caller gives, made fit for the file: cut, cleaned, checked, or refused with a reason.
#
# A patch is a mapping: a field that is not in it is kept, a field that is None is cleared.


Patch = Mapping[str, Any]


def known_only(patch: Patch, fields: Iterable[str], *, of: str, refused: Mapping[str, str]) -> None:
    """Refuse a field that does not exist or that is not changed this way."""
    allowed = list(fields)
    for name in patch:
        if name in refused:
            raise BadInput(f"`{name}` of a {of} cannot be set", todo=refused[name])
        if name not in allowed:
            raise BadInput(f"a {of} has no field {name!r}", todo=f"It has {', '.join(allowed)}.")


def apply(entry: Data, name: str, value: Any) -> None:
    """Set the field, or take it out when there is nothing to say."""
    if value is None or value in ("", [], {}, ()):
        entry.pop(name, None)
    else:
        entry[name] = value


def text(name: str, value: Any, max_chars: int) -> str | None:
    """A text without hidden characters and secrets, cut to its limit (F2): an agent cannot fix
    its output, and the plan is committed to git."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInput(f"`{name}` must be a text", todo="Give a text, or nothing to clear it.")
    return cut(redact(visible(value)).strip(), max_chars) or None


def texts(name: str, value: Any, *, most: int, each: int) -> list[str] | None:
    """A list of texts; one that is full refuses (F2)."""
    if value is None:
        return None
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise BadInput(f"`{name}` must be a list of texts", todo="Give a list.")
    found = [text(name, item, each) for item in items]
    kept = list(dict.fromkeys(item for item in found if item))
    if len(kept) > most:
        raise BadInput(
            f"`{name}` holds {most} items and {len(kept)} were given",
            todo=f"Keep the {most} that matter.",
        )
    return kept


def path(value: Any, *, max_chars: int) -> str:
    """A path inside the project, or a refusal that says why (F9)."""
    clean, why = (
        clean_path(value, max_chars=max_chars) if isinstance(value, str) else (None, "no text")
    )
    if clean is None:
        raise BadInput(str(why), todo="Give a path relative to the project, without `..`.")
    return clean


def paths(name: str, value: Any, *, most: int, max_chars: int) -> list[str] | None:
    """A list of paths; one that is full refuses."""
    items = texts(name, value, most=most, each=max_chars + 1)
    return None if items is None else [path(item, max_chars=max_chars) for item in items]


def number(name: str, value: Any) -> int | None:
    """A whole number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"`{name}` must be a number", todo="Give a whole number.")
    return value


# -- plain data


def identical(left: Any, right: Any) -> bool:
    """Equal in value and in type; for Python, 1 and true are equal."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(identical(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(identical, left, right))
    return bool(left == right)


def identity(item: Any) -> str:
    """The words that tell a list's item from the others, also when the rest of it has changed."""
    if isinstance(item, dict):
        for key in _IDENTITY_KEYS:
            if item.get(key) is not None:
                return str(item[key])
        return repr(item)
    return str(item)


def deep_copy(value: Any) -> Any:
    """Plain data that can be changed without changing the original."""
    if isinstance(value, dict):
        return {key: deep_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [deep_copy(item) for item in value]
    return value
