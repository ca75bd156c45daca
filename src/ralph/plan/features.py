"""Creating, changing and deleting features and disciplines."""

from __future__ import annotations

from typing import Any

from ralph.errors import BadInput
from ralph.plan import patch as p
from ralph.plan.context_files import replace_list
from ralph.plan.document import Data
from ralph.plan.entities import Kind, add, entities, find, remove
from ralph.plan.patch import Patch
from ralph.plan.store import Plan
from ralph.plan.values import Discipline, Feature, Limits

_FEATURE_FIELDS = tuple(f for f in Feature.__struct_fields__ if f not in ("name", "learnings"))
_DISCIPLINE_FIELDS = Discipline.__struct_fields__[1:]
_REFUSED = {
    "name": "The name is for ever; create another one and delete this.",
    "learnings": "Append, remove or review single learnings instead (F1).",
    "removed_learnings": "Remove a learning instead.",
    "current_state": "It is computed from the tasks (F17).",
}


def create_feature(plan: Plan, name: str, patch: Patch | None = None) -> Feature:
    """A new feature; its name must be free."""
    entry: Data = {"name": _new_name(plan, "features", name)}
    patch_feature(entry, patch or {}, plan.limits)
    entry.setdefault("created", plan.now())
    with plan.edit("features", f"feature {name} created") as data:
        _refuse_taken(data, "features", entry["name"])
        add(data, "features", entry)
    return plan.feature(entry["name"])


def update_feature(plan: Plan, name: str, patch: Patch) -> Feature:
    """Change what the patch gives and nothing else; None clears (F1)."""
    with plan.edit("features", f"feature {name} updated: {', '.join(patch)}") as data:
        patch_feature(plan.find(data, "features", name), patch, plan.limits)
    return plan.feature(name)


def delete_feature(plan: Plan, name: str) -> None:
    """Take a feature out; refused while tasks refer to it (F14). Its index is the caller's."""
    with plan.editing(f"feature {name} deleted", "features", "tasks") as data:
        plan.find(data["features"], "features", name)
        users = [
            str(task.key)
            for task in entities(data["tasks"], "tasks")
            if isinstance(task.value, dict) and str(task.value.get("feature")) == name
        ]
        if users:
            raise BadInput(
                f"the feature {name!r} still has tasks: {', '.join(users[:10])}",
                where=plan.shown("features"),
                todo="Delete them or give them another feature first.",
            )
        remove(data["features"], "features", name)


def patch_feature(entry: Data, patch: Patch, limits: Limits) -> None:
    """Put the patch into a feature's entry."""
    p.known_only(patch, _FEATURE_FIELDS, of="feature", refused=_REFUSED)
    for name, value in patch.items():
        new: Any
        if name in ("description", "architecture", "boundaries"):
            new = p.text(name, value, getattr(limits, name))
        elif name == "dependencies":
            new = p.texts(name, value, most=limits.dependencies, each=limits.dependency)
        elif name == "knowledge_paths":
            new = p.paths(name, value, most=limits.knowledge_paths, max_chars=limits.path)
        elif name == "context_files":
            new = replace_list(entry.get(name), value, limits)
        elif name == "last_verified" and not isinstance(value, str):
            new = p.number(name, value)
        else:
            new = p.text(name, value, limits.title)
        p.apply(entry, name, new)


def create_discipline(plan: Plan, name: str, patch: Patch | None = None) -> Discipline:
    """A new discipline; its name must be free."""
    entry: Data = {"name": _new_name(plan, "disciplines", name)}
    patch_discipline(entry, patch or {}, plan.limits)
    with plan.edit("disciplines", f"discipline {name} created") as data:
        _refuse_taken(data, "disciplines", entry["name"])
        add(data, "disciplines", entry)
    return discipline(plan, entry["name"])


def update_discipline(plan: Plan, name: str, patch: Patch) -> Discipline:
    """Change what the patch gives and nothing else; None clears."""
    with plan.edit("disciplines", f"discipline {name} updated") as data:
        patch_discipline(plan.find(data, "disciplines", name), patch, plan.limits)
    return discipline(plan, name)


def delete_discipline(plan: Plan, name: str) -> None:
    """Take a discipline out; tasks that name it are found by `check`."""
    with plan.edit("disciplines", f"discipline {name} deleted") as data:
        plan.find(data, "disciplines", name)
        remove(data, "disciplines", name)


def discipline(plan: Plan, name: str) -> Discipline:
    """One discipline by its name."""
    for found in plan.read("disciplines").disciplines:
        if found.name == name:
            return found
    raise plan.missing("disciplines", name)


def patch_discipline(entry: Data, patch: Patch, limits: Limits) -> None:
    """Put the patch into a discipline's entry."""
    refused = {"name": _REFUSED["name"]}
    p.known_only(patch, _DISCIPLINE_FIELDS, of="discipline", refused=refused)
    for name, value in patch.items():
        new: Any
        if name in ("skills", "conventions"):
            new = p.texts(name, value, most=limits.items, each=limits.text)
        elif name == "mcp_servers":
            if value is not None and not isinstance(value, dict):
                raise BadInput(
                    "`mcp_servers` must be a mapping", todo="Give {name: {command: ...}}."
                )
            new = value
        else:
            new = p.text(name, value, 4 * limits.text if name == "system_prompt" else limits.title)
        p.apply(entry, name, new)


def _new_name(plan: Plan, kind: Kind, name: str) -> str:
    plain = p.text("name", name, plan.limits.name + 1)
    if not plain or len(plain) > plan.limits.name or any(c in plain for c in "/\\\n\t"):
        raise BadInput(
            f"{name!r} is not a name",
            where=plan.shown(kind),
            todo=f"Use 1 to {plan.limits.name} characters without slashes, such as `user-login`.",
        )
    return plain


def _refuse_taken(data: Data, kind: Kind, name: str) -> None:
    if find(data, kind, name) is not None:
        raise BadInput(f"{name!r} exists already", todo="Update it, or choose another name.")
