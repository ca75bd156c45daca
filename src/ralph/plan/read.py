"""From the files' data to Feature, Task and Discipline; what is wrong comes back beside them.

Tolerant where an agent could not do better (plain texts, text over its limit), strict where
guessing would hide something: a malformed learning is a problem with its place (F36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.plan.document import Document
from ralph.plan.entities import KEY_OF, KINDS, ONE, Kind, entities
from ralph.plan.fields import Fields
from ralph.plan.values import (
    DEFAULT_PRIORITY,
    PRIORITIES,
    STATUS_ALIASES,
    STATUSES,
    VERSION,
    Comment,
    ContextFile,
    Discipline,
    Feature,
    Limits,
    Problem,
    Status,
    Task,
    TaskId,
    View,
)
from ralph.records.learning import Learning, read_learning


def view(documents: Mapping[Kind, Document], limits: Limits) -> View:
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
                    f"a {ONE[kind]} without `{key_name}`", f"Give it a `{key_name}` or delete it."
                )
                continue
            if entity.key in seen:
                fields.complain(
                    f"the {ONE[kind]} {entity.key!r} is here twice",
                    "Merge the two, or give one another " + key_name + ".",
                )
                continue
            seen.add(entity.key)
            read = readers[kind](fields)
            if read is not None:
                found[kind].append(read)
    return View(
        tuple(found["features"]),
        tuple(found["tasks"]),
        tuple(found["disciplines"]),
        tuple(problems),
    )


def _check_shape(document: Document, kind: Kind, limits: Limits, problems: list[Problem]) -> None:
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
        status=_status(fields),
        priority=_priority(fields),
        blocked_by=_blocked_by(fields),
        tags=fields.texts("tags", most=limits.items, each=limits.name),
        comments=_comments(fields),
        created=fields.text("created", limits.name),
        updated=fields.text("updated", limits.name),
        completed=fields.text("completed", limits.name),
    )


def _status(fields: Fields) -> Status:
    value = fields.value.get("status")
    plain = str(value).strip().lower() if value is not None else "pending"
    plain = STATUS_ALIASES.get(plain, plain)
    if plain not in STATUSES:
        fields.complain(
            f"the status {value!r} does not exist", f"Use one of {', '.join(STATUSES)}.", "status"
        )
        return "pending"
    return plain  # type: ignore[return-value]  # one of STATUSES


def _priority(fields: Fields) -> int:
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


def _blocked_by(fields: Fields) -> tuple[TaskId, ...]:
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


def _comments(fields: Fields) -> tuple[Comment, ...]:
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
