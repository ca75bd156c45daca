"""How each field of the plan is read from a file and set by a call: one rule per field.

Reading is tolerant where an agent could not do better (plain texts, text over its limit) and strict
where guessing would hide a mistake: a malformed learning is a problem with its place (F36). A call
with a wrong value is refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec

from ralph.errors import BadInput
from ralph.plan import model
from ralph.plan.model import PRIORITIES, SINGULAR, STATUSES, Comment, Data, Kind, Limits, Problem
from ralph.plan.yaml import PlanFile
from ralph.records import clean_beginning
from ralph.records.iteration import cut
from ralph.records.learning import read_learning
from ralph.text.sanitize import visible
from ralph.text.tokens import table

Patch = Mapping[str, Any]
_DRIVE = re.compile(r"[A-Za-z]:")


def clean_text(name: str, value: Any, max_chars: int) -> str | None:
    """Return the text without hidden characters and secrets, cut to its limit (F2): an agent cannot
    fix its output, and the plan is committed to git."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInput(f"`{name}` must be a text", todo="Give a text, or nothing to clear it.")
    return cut(clean_beginning(visible(value), max_chars).strip(), max_chars) or None


def clean_path(path: Any, max_chars: int) -> str:
    """Return the path with forward slashes; refuse one that could leave the project (F9)."""
    plain = path.strip().replace("\\", "/") if isinstance(path, str) else ""
    pure = PurePosixPath(plain)
    outside = plain.startswith(("/", "~")) or _DRIVE.match(plain)
    reasons = {
        "a path must be a text": not isinstance(path, str),
        "an empty path": not plain,
        "a path with a NUL in it": "\0" in plain,
        f"a path of more than {max_chars} characters": len(plain) > max_chars,
        f"the path {path!r} is not relative to the project": outside,
        f"the path {path!r} leaves the project with `..`": ".." in pure.parts,
        f"the path {path!r} names no file": not pure.parts,
    }
    for why, refused in reasons.items():
        if refused:
            raise BadInput(why, todo="Write it relative to the project, without `..`.")
    return str(pure)


def clean_status(value: Any) -> model.Status:
    """Return the status that the word means."""
    plain = str(value).strip().lower()
    plain = model.STATUS_ALIASES.get(plain, plain)
    if plain not in STATUSES:
        todo = f"Use one of {', '.join(STATUSES)}."
        raise BadInput(f"the status {value!r} does not exist", todo=todo)
    return plain  # type: ignore[return-value]  # one of STATUSES


def clean_priority(value: Any) -> int:
    """Return the number, or the number that a word stands for."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if (plain := str(value).strip().lower()) in PRIORITIES:
        return PRIORITIES[plain]
    if isinstance(value, str) and re.fullmatch(r"p?[0-9]{1,9}|-[0-9]{1,9}", plain):
        return int(plain.removeprefix("p"))
    todo = f"Use a whole number (1 is first) or one of {', '.join(PRIORITIES)}."
    raise BadInput(f"the priority {value!r} is not a number", todo=todo)


# -- one rule per field


class FieldRule(NamedTuple):
    """How a field is read from a file, and how a call's value for it is checked."""

    read: Callable[[EntryReader, str], Any]
    check: Callable[[str, Any], Any] = lambda name, value: value


@dataclass
class EntryReader:
    """One entry of a file, read field by field; each mistake becomes a Problem with its place."""

    file: PlanFile
    path: model.DataPath
    value: Data
    problems: list[Problem]

    def complain(
        self, what: str, todo: str, *steps: str | int, severity: model.Severity = "error"
    ) -> None:
        """Report what is wrong at a field of this entry."""
        self.problems.append(self.file.problem((*self.path, *steps), what, todo, severity))

    def attempt(self, convert: Callable[[Any], Any], value: Any, *steps: str | int) -> Any:
        """Return the converted value; None, and report a problem, if the function refuses it."""
        try:
            return None if value is None else convert(value)
        except BadInput as error:
            self.complain(error.what, error.todo or "Correct it.", *steps)
            return None

    def text(self, value: Any, max_chars: int, *steps: str | int) -> str | None:
        """Return a text, cut to the limit; numbers are read as text, empty text is None."""
        if isinstance(value, bool | dict | list):
            self.complain(f"`{steps[-1]}` is not a text", "Write it as a text.", *steps)
            return None
        plain = "" if value is None else str(value).strip()
        if len(plain) > max_chars:
            what = f"`{steps[-1]}` has {len(plain)} characters"
            todo = f"Only the first {max_chars} are read. Shorten it."
            self.complain(what, todo, *steps, severity="warning")
        return cut(plain, max_chars) or None

    def items(self, name: str, most: int, convert: Callable[[Any], Any]) -> tuple[Any, ...]:
        """Return a list, item by item; a single text or number is a list of one."""
        value = self.value.get(name)
        single = isinstance(value, str | int) and not isinstance(value, bool)
        items = [] if value is None else [value] if single else value
        if not isinstance(items, list):
            self.complain(f"`{name}` is not a list", "Write each item after a dash.", name)
            return ()
        if len(items) > most:
            what = f"`{name}` has {len(items)} items; the limit is {most}"
            self.complain(what, f"Keep the {most} that matter.", name, severity="warning")
        found = [self.attempt(convert, item, name, i) for i, item in enumerate(items)]
        return tuple(item for item in found if item is not None)


def _text(chars: int) -> FieldRule:
    return FieldRule(
        lambda entry, name: entry.text(entry.value.get(name), chars, name),
        lambda name, value: clean_text(name, value, chars),
    )


def _texts(chars: int, most: int) -> FieldRule:
    def plain(item: Any) -> str | None:
        if isinstance(item, bool | dict | list):
            raise BadInput("this item is not a text", todo="Quote it.")
        return cut(str(item).strip(), chars) or None

    return _list(most, plain, lambda name, item: clean_text(name, item, chars))


def _paths(chars: int, most: int) -> FieldRule:
    def clean(name: str, item: Any) -> str | None:
        text = clean_text(name, item, chars + 1)
        return clean_path(text, chars) if text else None

    return _list(most, lambda path: clean_path(path, chars), clean)


def _list(most: int, read: Callable[[Any], Any], clean: Callable[[str, Any], Any]) -> FieldRule:
    """Return the rule for a list of texts; a call with too many items is refused (F2)."""

    def check(name: str, value: Any) -> list[str]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise BadInput(f"`{name}` must be a list of texts", todo="Give a list.")
        cleaned = [clean(name, item) for item in items]
        unique = list(dict.fromkeys(text for text in cleaned if text))
        if len(unique) > most:
            what = f"`{name}` can have {most} items, not {len(unique)}"
            raise BadInput(what, todo=f"Keep the {most} that matter.")
        return unique

    return FieldRule(lambda entry, name: entry.items(name, most, read)[:most], check)


def _value(clean: Callable[[Any], Any], default: Any = None) -> FieldRule:
    """Return the rule for a value that is cleaned the same way in files and calls."""

    def read(entry: EntryReader, name: str) -> Any:
        found = entry.attempt(clean, entry.value.get(name), name)
        return default if found is None else found

    return FieldRule(read, lambda name, value: clean(value))


def _clean_iteration(value: Any) -> int | str | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInput("`last_verified` is not an iteration number", todo="Give a whole number.")
    return value if isinstance(value, int) else clean_text("last_verified", value, Limits.title)


def check_id(item: Any) -> model.TaskId:
    """Return the id of a task as it is; refuse anything else."""
    if isinstance(item, bool) or not isinstance(item, int | str):
        raise BadInput("this is not the id of a task", todo="Write the id.")
    return item


def _comments(entry: EntryReader, name: str) -> tuple[Comment, ...]:
    comments: list[Comment] = []
    for i, item in enumerate(entry.items(name, Limits.comments, lambda item: item)):
        plain = item if isinstance(item, dict) else {"text": item}
        at = plain.get("at") or plain.get("created")
        if text := entry.text(plain.get("text"), Limits.comment, name, i, "text"):
            author = entry.text(plain.get("author"), Limits.name, name, i, "author")
            comments.append(Comment(text, author, entry.text(at, Limits.name, name, i, "at")))
    return tuple(comments)


def _context_files(entry: EntryReader, name: str) -> tuple[model.ContextFile, ...]:
    first: dict[str, model.ContextFile] = {}
    for file in entry.items(name, Limits.context_files, _context_file):
        first.setdefault(file.path, file)
    return tuple(first.values())[: Limits.context_files]


def _context_file(item: Any) -> model.ContextFile:
    plain = item if isinstance(item, dict) else {"path": item}
    path = clean_path(plain.get("path"), Limits.path)
    try:
        return msgspec.convert({**plain, "path": path}, model.ContextFile)
    except msgspec.ValidationError as error:
        todo = "Write a path, or a mapping with path, source, touch_count and last_touched."
        raise BadInput(f"not a context file: {error}", todo=todo) from None


def _clean_servers(value: Any) -> Data:
    if isinstance(value, list):
        return {str(server): {} for server in value if isinstance(server, str)}
    if not isinstance(value, dict):
        raise BadInput("`mcp_servers` is not a mapping", todo="Write each server under its name.")
    return value


_NAME = _text(Limits.name)
_TITLE = _text(Limits.title)
RULES: dict[Kind, dict[str, FieldRule]] = {
    "features": {
        "display_name": _TITLE,
        "acronym": _NAME,
        "description": _text(Limits.description),
        "architecture": _text(Limits.architecture),
        "boundaries": _text(Limits.boundaries),
        "dependencies": _texts(Limits.dependency, Limits.dependencies),
        "knowledge_paths": _paths(Limits.path, Limits.knowledge_paths),
        "context_files": FieldRule(_context_files),
        "last_verified": _value(_clean_iteration),
        "learnings": FieldRule(lambda e, name: e.items(name, Limits.learnings, read_learning)),
        "created": _NAME,
    },
    "tasks": {
        "feature": _NAME,
        "title": _TITLE,
        "discipline": _NAME,
        "description": _text(Limits.text),
        "acceptance_criteria": _texts(Limits.comment, Limits.items),
        "status": _value(clean_status, "pending"),
        "priority": _value(clean_priority, model.DEFAULT_PRIORITY),
        "blocked_by": FieldRule(lambda e, name: e.items(name, Limits.items, check_id)),
        "tags": _texts(Limits.name, Limits.items),
        "comments": FieldRule(_comments),
        "created": _NAME,
        "updated": _NAME,
        "completed": _NAME,
    },
    "disciplines": {
        "display_name": _TITLE,
        "system_prompt": _text(4 * Limits.text),
        "skills": _texts(Limits.text, Limits.items),
        "conventions": _texts(Limits.text, Limits.items),
        "mcp_servers": _value(_clean_servers, {}),
    },
}


def patch_entry(kind: Kind, entry: Data, patch: Patch) -> None:
    """Apply the patch to an entry: a field that is not in it is kept, one that is None is cleared.

    Texts are cut and cleaned; any other value that does not fit is refused.
    """
    of = SINGULAR[kind]
    rules = RULES[kind]
    # Fields that a call cannot set, and what to do instead.
    refused = dict(row.split(" ", 1) for row in table(__file__, "refused.txt")[kind])
    allowed = [name for name in rules if name not in refused]
    for name, value in patch.items():
        if name in refused:
            raise BadInput(f"`{name}` of a {of} cannot be set", todo=refused[name])
        if name not in allowed:
            raise BadInput(f"a {of} has no field {name!r}", todo=f"It has {', '.join(allowed)}.")
        new = None if value is None else rules[name].check(name, value)
        if kind == "tasks" and name in ("feature", "title") and not new:
            raise BadInput(f"a task needs its `{name}`", todo=f"Give a `{name}`.")
        model.set_field(entry, name, new)


def read_view(files: Mapping[Kind, PlanFile]) -> model.PlanView:
    """Return everything in the files, and every problem of a single entry."""
    problems: list[Problem] = []
    found: dict[Kind, list[Any]] = {kind: [] for kind in model.KINDS}
    for kind, file in files.items():
        seen: set[str] = set()
        reader = EntryReader(file, (), file.data, problems)
        version = file.data.get("version", model.VERSION)
        if not isinstance(version, int):
            what = f"version must be a number, not {version!r}"
            reader.complain(what, "Write `version: 1`.", "version")
        elif version > model.VERSION:
            what = f"version {version} is newer than this Ralph knows"
            reader.complain(what, "Update Ralph, or write `version: 1`.", "version")
        if not isinstance(file.data.get(kind), list | dict | None):
            reader.complain(f"`{kind}` is not a list", "Write each entry after a dash.", kind)
        for entity in model.entities(file.data, kind):
            value = entity.value if isinstance(entity.value, dict) else {}
            reader = EntryReader(file, entity.path, value, problems)
            key = model.KEY_OF[kind]
            if entity.key is None or not isinstance(entity.value, dict):
                reader.complain(f"a {SINGULAR[kind]} without `{key}`", f"Add `{key}` or delete it.")
            elif entity.key in seen:
                what = f"the {SINGULAR[kind]} {entity.key!r} is here twice"
                reader.complain(what, f"Merge the two, or change the `{key}` of one.")
            else:
                seen.add(entity.key)
                found[kind] += _read_entry(kind, reader)
    entries = {kind: tuple(found[kind]) for kind in model.KINDS}
    return model.PlanView(**entries, problems=tuple(problems))


def _read_entry(kind: Kind, reader: EntryReader) -> list[Any]:
    """Return the entry, in a list that is empty if a required field is missing."""
    if kind == "features" and "current_state" in reader.value:
        what = "`current_state` is computed from the tasks and never read from the file"
        reader.complain(what, "Delete it.", "current_state", severity="warning")
    fields = {name: rule.read(reader, name) for name, rule in RULES[kind].items()}
    if kind == "tasks":
        if missing := [name for name in ("feature", "title") if fields[name] is None]:
            what = f"task {reader.value['id']} has no `{missing[0]}`"
            reader.complain(what, f"Give it a `{missing[0]}`.")
            return []
        return [model.Task(id=reader.value["id"], **fields)]
    name = reader.text(reader.value.get("name"), Limits.name, "name") or str(reader.path[-1])
    struct = model.Feature if kind == "features" else model.Discipline
    return [struct(name=name, **fields)]
