"""How each field of the plan is read from a file and set by a call: one rule a field.

Reading is tolerant where an agent could not do better (plain texts, text over its limit) and strict
where guessing would hide something: a malformed learning is a problem with its place (F36). A call
that gives a wrong value is refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ralph.errors import BadInput
from ralph.plan.model import (
    DEFAULT_PRIORITY,
    KEY_OF,
    KINDS,
    PRIORITIES,
    SINGULAR,
    STATUS_ALIASES,
    STATUSES,
    VERSION,
    Comment,
    ContextFile,
    Data,
    DataPath,
    Discipline,
    Feature,
    Kind,
    PlanLimits,
    PlanView,
    Problem,
    Severity,
    Status,
    Task,
    TaskId,
    entities,
    set_field,
)
from ralph.records.iteration import cut
from ralph.records.learning import Learning, read_learning
from ralph.text.redact import redact
from ralph.text.sanitize import visible

if TYPE_CHECKING:
    from ralph.plan.yaml import PlanFile

Patch = Mapping[str, Any]
_DRIVE = re.compile(r"[A-Za-z]:")


def clean_text(name: str, value: Any, max_chars: int) -> str | None:
    """A text without hidden characters and secrets, cut to its limit (F2): an agent cannot fix
    its output, and the plan is committed to git."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInput(f"`{name}` must be a text", todo="Give a text, or nothing to clear it.")
    return cut(redact(visible(value)).strip(), max_chars) or None


def clean_path(path: Any, max_chars: int) -> str:
    """The path with forward slashes; one that could leave the project is refused (F9)."""
    plain = path.strip().replace("\\", "/") if isinstance(path, str) else ""
    pure = PurePosixPath(plain)
    if not isinstance(path, str):
        why = "a path must be a text"
    elif not plain:
        why = "an empty path"
    elif "\0" in plain:
        why = "a path with a NUL in it"
    elif len(plain) > max_chars:
        why = f"a path of more than {max_chars} characters"
    elif plain.startswith(("/", "~")) or _DRIVE.match(plain):
        why = f"the path {path!r} is not relative to the project"
    elif ".." in pure.parts:
        why = f"the path {path!r} leaves the project with `..`"
    elif not pure.parts:
        why = f"the path {path!r} names no file"
    else:
        return str(pure)
    raise BadInput(why, todo="Write it relative to the project, without `..`.")


def clean_status(value: Any) -> Status:
    """The status that the word means."""
    plain = str(value).strip().lower()
    plain = STATUS_ALIASES.get(plain, plain)
    if plain not in STATUSES:
        todo = f"Use one of {', '.join(STATUSES)}."
        raise BadInput(f"the status {value!r} does not exist", todo=todo)
    return plain  # type: ignore[return-value]  # one of STATUSES


def clean_priority(value: Any) -> int:
    """A number, or the number that a word stands for."""
    plain = str(value).strip().lower()
    if plain in PRIORITIES:
        return PRIORITIES[plain]
    if isinstance(value, int | str) and re.fullmatch(r"p?[0-9]{1,9}|-[0-9]{1,9}", plain):
        return int(plain.removeprefix("p"))
    todo = f"Use a whole number (1 is first) or one of {', '.join(PRIORITIES)}."
    raise BadInput(f"the priority {value!r} is not a number", todo=todo)


# -- one rule a field: how a file's value is read, how a call's value is checked


class FieldRule(NamedTuple):
    """What a field may be. `chars` and `most` name limits: of one text, of the items in a list."""

    read: Callable[[EntryReader, str, FieldRule], Any]
    check: Callable[[str, Any, FieldRule, PlanLimits], Any]
    chars: str = "title"
    most: str = "items"

    def max_chars(self, limits: PlanLimits) -> int:
        chars: int = getattr(limits, self.chars)
        return chars

    def max_items(self, limits: PlanLimits) -> int:
        items: int = getattr(limits, self.most)
        return items


class EntryReader:
    """One entry of a file, read field by field; what is wrong becomes a Problem with its place."""

    def __init__(
        self,
        file: PlanFile,
        path: DataPath,
        value: Data,
        limits: PlanLimits,
        problems: list[Problem],
    ) -> None:
        self.file = file
        self.path = path
        self.value = value
        self.limits = limits
        self.problems = problems

    def complain(
        self, what: str, todo: str, *steps: str | int, severity: Severity = "error"
    ) -> None:
        """Note what is wrong at a field of this entry."""
        self.problems.append(self.file.problem((*self.path, *steps), what, todo, severity))

    def attempt(self, convert: Callable[[Any], Any], value: Any, *steps: str | int) -> Any:
        """What the function makes of the value; None and a problem when it refuses."""
        try:
            return convert(value)
        except BadInput as error:
            self.complain(error.what, error.todo or "Correct it.", *steps)
            return None

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
                f"Only the first {max_chars} are read. Shorten it.",
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
            self.complain(f"`{name}` is not a list", "Write each item after a dash.", name)
            return []
        if len(value) > most:
            self.complain(
                f"`{name}` has {len(value)} items; the limit is {most}",
                f"Keep the {most} that matter.",
                name,
                severity="warning",
            )
        return list(enumerate(value))


def _read_text(entry: EntryReader, name: str, rule: FieldRule) -> str | None:
    return entry.text(name, rule.max_chars(entry.limits))


def _check_text(name: str, value: Any, rule: FieldRule, limits: PlanLimits) -> str | None:
    return clean_text(name, value, rule.max_chars(limits))


def _read_texts(entry: EntryReader, name: str, rule: FieldRule) -> tuple[str, ...]:
    texts: list[str] = []
    most = rule.max_items(entry.limits)
    for i, item in entry.items(name, most):
        if isinstance(item, bool | dict | list) or item is None:
            entry.complain(f"an item of `{name}` is not a text", "Quote it.", name, i)
        elif plain := str(item).strip():
            texts.append(cut(plain, rule.max_chars(entry.limits)))
    return tuple(texts[:most])


def _check_texts(name: str, value: Any, rule: FieldRule, limits: PlanLimits) -> list[str]:
    """A list of texts; a list that is full refuses (F2)."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise BadInput(f"`{name}` must be a list of texts", todo="Give a list.")
    texts = [clean_text(name, item, rule.max_chars(limits)) for item in items]
    unique = list(dict.fromkeys(text for text in texts if text))
    if len(unique) > (most := rule.max_items(limits)):
        raise BadInput(
            f"`{name}` can have {most} items, not {len(unique)}",
            todo=f"Keep the {most} that matter.",
        )
    return unique


def _read_paths(entry: EntryReader, name: str, rule: FieldRule) -> tuple[str, ...]:
    most, max_chars = rule.max_items(entry.limits), rule.max_chars(entry.limits)
    paths = [
        entry.attempt(lambda path: clean_path(path, max_chars), item, name, i)
        for i, item in entry.items(name, most)
    ]
    return tuple(path for path in paths if path)[:most]


def _check_paths(name: str, value: Any, rule: FieldRule, limits: PlanLimits) -> list[str]:
    max_chars = rule.max_chars(limits)
    texts = _check_texts(name, value, rule._replace(chars="text"), limits)
    return [clean_path(item, max_chars) for item in texts]


def _read_iteration(entry: EntryReader, name: str, rule: FieldRule) -> int | str | None:
    value = entry.value.get(name)
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        entry.complain(f"`{name}` is not an iteration number", "Write a number.", name)
        return None
    return value


def _check_iteration(name: str, value: Any, rule: FieldRule, limits: PlanLimits) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInput(f"`{name}` must be a number", todo="Give a whole number.")
    return value if isinstance(value, int) else _check_text(name, value, rule, limits)


def _read_status(entry: EntryReader, name: str, rule: FieldRule) -> Status:
    value = entry.value.get(name)
    status: Status | None = None if value is None else entry.attempt(clean_status, value, name)
    return status or "pending"


def _read_priority(entry: EntryReader, name: str, rule: FieldRule) -> int:
    value = entry.value.get(name)
    number: int | None = None if value is None else entry.attempt(clean_priority, value, name)
    return DEFAULT_PRIORITY if number is None else number


def _read_ids(entry: EntryReader, name: str, rule: FieldRule) -> tuple[TaskId, ...]:
    value = entry.value.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    ids: list[TaskId] = []
    for i, item in entry.items(name, rule.max_items(entry.limits)):
        if isinstance(item, int | str) and not isinstance(item, bool):
            ids.append(item)
        else:
            entry.complain(f"`{name}` takes ids of tasks", "Write the id.", name, i)
    return tuple(ids)


def _read_comments(entry: EntryReader, name: str, rule: FieldRule) -> tuple[Comment, ...]:
    comments: list[Comment] = []
    limits = entry.limits
    for i, item in entry.items(name, rule.max_items(limits)):
        plain = item if isinstance(item, dict) else {"text": item}
        inner = EntryReader(entry.file, (*entry.path, name, i), plain, limits, entry.problems)
        if text := inner.text("text", limits.comment):
            at = inner.text("at", limits.name) or inner.text("created", limits.name)
            comments.append(Comment(text, inner.text("author", limits.name), at))
    return tuple(comments)


def _read_learnings(entry: EntryReader, name: str, rule: FieldRule) -> tuple[Learning, ...]:
    def read(item: Any) -> Learning:
        return read_learning(item, max_chars=rule.max_chars(entry.limits))

    items = entry.items(name, rule.max_items(entry.limits))
    learnings = [entry.attempt(read, item, name, i) for i, item in items]
    return tuple(learning for learning in learnings if learning is not None)


def _read_context_files(entry: EntryReader, name: str, rule: FieldRule) -> tuple[ContextFile, ...]:
    """Each path once; a plain text is what a person wrote."""

    def read(plain: Data) -> ContextFile:
        path = clean_path(plain.get("path"), rule.max_chars(entry.limits))
        fields = {k: v for k, v in plain.items() if k in ContextFile.__struct_fields__}
        try:
            return msgspec.convert({**fields, "path": path}, ContextFile)
        except msgspec.ValidationError as error:
            raise BadInput(
                f"not a context file: {error}",
                todo="Write a path, or a mapping with path, source (auto or human), touch_count "
                "and last_touched.",
            ) from None

    found: dict[str, ContextFile] = {}
    for i, item in entry.items(name, rule.max_items(entry.limits)):
        plain = item if isinstance(item, dict) else {"path": item}
        file: ContextFile | None = entry.attempt(read, plain, name, i)
        if file is not None:
            found.setdefault(file.path, file)
    return tuple(found.values())[: rule.max_items(entry.limits)]


def _read_servers(entry: EntryReader, name: str, rule: FieldRule) -> Data:
    servers = entry.value.get(name)
    if isinstance(servers, list):
        return {str(server): {} for server in servers if isinstance(server, str)}
    if servers is not None and not isinstance(servers, dict):
        entry.complain(f"`{name}` is not a mapping", "Write each server under its name.", name)
        return {}
    return servers or {}


def _check_servers(name: str, value: Any, rule: FieldRule, limits: PlanLimits) -> Data:
    if not isinstance(value, dict):
        raise BadInput(f"`{name}` must be a mapping", todo="Give {name: {command: ...}}.")
    return value


def _ready(name: str, value: Any, rule: FieldRule, limits: PlanLimits) -> Any:
    """A value that its caller has checked."""
    return value


def _text(chars: str) -> FieldRule:
    return FieldRule(_read_text, _check_text, chars)


def _texts(chars: str, most: str = "items") -> FieldRule:
    return FieldRule(_read_texts, _check_texts, chars, most)


FIELDS: dict[Kind, dict[str, FieldRule]] = {
    "features": {
        "display_name": _text("title"),
        "acronym": _text("name"),
        "description": _text("description"),
        "architecture": _text("architecture"),
        "boundaries": _text("boundaries"),
        "dependencies": _texts("dependency", "dependencies"),
        "knowledge_paths": FieldRule(_read_paths, _check_paths, "path", "knowledge_paths"),
        "context_files": FieldRule(_read_context_files, _ready, "path", "context_files"),
        "last_verified": FieldRule(_read_iteration, _check_iteration),
        "learnings": FieldRule(_read_learnings, _ready, "learning", "learnings"),
        "created": _text("name"),
    },
    "tasks": {
        "feature": _text("name"),
        "title": _text("title"),
        "discipline": _text("name"),
        "description": _text("text"),
        "acceptance_criteria": _texts("comment"),
        "status": FieldRule(_read_status, lambda _, value, *more: clean_status(value)),
        "priority": FieldRule(_read_priority, lambda _, value, *more: clean_priority(value)),
        "blocked_by": FieldRule(_read_ids, _ready),
        "tags": _texts("name"),
        "comments": FieldRule(_read_comments, _ready, "comment", "comments"),
        "created": _text("name"),
        "updated": _text("name"),
        "completed": _text("name"),
    },
    "disciplines": {
        "display_name": _text("title"),
        "system_prompt": _text("system_prompt"),
        "skills": _texts("text"),
        "conventions": _texts("text"),
        "mcp_servers": FieldRule(_read_servers, _check_servers),
    },
}
# What a call cannot set, and what to do instead.
_REFUSED: dict[Kind, dict[str, str]] = {
    "features": {
        "name": "A name never changes. Create another feature and delete this one.",
        "learnings": "Add, remove or review single learnings instead (F1).",
        "removed_learnings": "Remove a learning instead.",
        "current_state": "It is computed from the tasks (F17).",
    },
    "tasks": {
        "id": "An id never changes.",
        "comments": "Append a single comment instead.",
        "created": "Ralph sets it.",
        "updated": "Ralph sets it.",
        "completed": "Ralph sets it when the status becomes done.",
    },
    "disciplines": {"name": "A name never changes. Create another one and delete this one."},
}


def patch_entry(kind: Kind, entry: Data, patch: Patch, limits: PlanLimits) -> None:
    """Put the patch into an entry: a field that is not in it is kept, one that is None is cleared.

    Texts are cut and cleaned; every other value that does not fit is refused.
    """
    of, refused = SINGULAR[kind], _REFUSED[kind]
    allowed = [name for name in FIELDS[kind] if name not in refused]
    for name, value in patch.items():
        if name in refused:
            raise BadInput(f"`{name}` of a {of} cannot be set", todo=refused[name])
        if name not in allowed:
            raise BadInput(f"a {of} has no field {name!r}", todo=f"It has {', '.join(allowed)}.")
        rule = FIELDS[kind][name]
        new = None if value is None else rule.check(name, value, rule, limits)
        if kind == "tasks" and name in ("feature", "title") and not new:
            raise BadInput(f"a task needs its `{name}`", todo=f"Give a `{name}`.")
        set_field(entry, name, new)


def read_view(files: Mapping[Kind, PlanFile], limits: PlanLimits) -> PlanView:
    """Everything that the files say, and every problem of a single entry."""
    problems: list[Problem] = []
    found: dict[Kind, list[Any]] = {kind: [] for kind in KINDS}
    for kind, file in files.items():
        seen: set[str] = set()
        _check_shape(file, kind, limits, problems)
        for entity in entities(file.data, kind):
            value = entity.value if isinstance(entity.value, dict) else {}
            reader = EntryReader(file, entity.path, value, limits, problems)
            key = KEY_OF[kind]
            if entity.key is None or not isinstance(entity.value, dict):
                reader.complain(f"a {SINGULAR[kind]} without `{key}`", f"Add `{key}` or delete it.")
            elif entity.key in seen:
                what = f"the {SINGULAR[kind]} {entity.key!r} is here twice"
                reader.complain(what, f"Merge the two, or change the `{key}` of one.")
            else:
                seen.add(entity.key)
                if (entry := _read_entry(kind, reader)) is not None:
                    found[kind].append(entry)
    return PlanView(**{kind: tuple(found[kind]) for kind in KINDS}, problems=tuple(problems))


def _read_entry(kind: Kind, reader: EntryReader) -> Any:
    if kind == "features" and "current_state" in reader.value:
        reader.complain(
            "`current_state` is computed from the tasks and never read from the file",
            "Delete it.",
            "current_state",
            severity="warning",
        )
    fields = {name: rule.read(reader, name, rule) for name, rule in FIELDS[kind].items()}
    if kind == "tasks":
        for name in ("feature", "title"):
            if fields[name] is None:
                what = f"task {reader.value.get('id')} has no `{name}`"
                reader.complain(what, f"Give it a `{name}`.")
                return None
        return Task(id=reader.value["id"], **fields)
    name = reader.text("name", reader.limits.name) or str(reader.path[-1])
    return Feature(name=name, **fields) if kind == "features" else Discipline(name=name, **fields)


def _check_shape(file: PlanFile, kind: Kind, limits: PlanLimits, problems: list[Problem]) -> None:
    reader = EntryReader(file, (), file.data, limits, problems)
    version = file.data.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        what = f"version {version!r} is newer than this Ralph knows"
        reader.complain(what, "Update Ralph, or write `version: 1`.", "version")
    container = file.data.get(kind)
    if container is not None and not isinstance(container, list | dict):
        reader.complain(f"`{kind}` is not a list", "Write each entry after a dash.", kind)
