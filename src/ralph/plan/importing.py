"""Reads a Markdown checklist as a plan.

    # Authentication                    a heading is a feature (its name: `authentication`)
    Users log in with e-mail.           text under it is the description
    ## Architecture                     Description, Architecture, Boundaries: prose of the feature
    ## Dependencies                     its list items are dependencies
    ## Tasks                            more tasks of the same feature
    - [ ] Build the login form          a task
      - shows an error for a bad mail   a nested item without a box: an acceptance criterion
      - [ ] Validate the address        a nested item with a box: a task that comes first
    - [x] Choose a framework            done
    - [ ] Write docs (discipline: docs) (priority: 1)

Any other heading begins another feature. A heading without a task and without a section of its
own is only a title. Fenced code is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.kinds.learning import Learning, read_learning
from ralph.plan import model as p
from ralph.plan.edit import next_id, patch_discipline, patch_feature, patch_task
from ralph.plan.learnings import LearningDraft, append
from ralph.plan.model import Data, Kind, TaskId, add_entity, entities, find_entity
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile

_HEADING = re.compile(r"(#{1,6})\s+(?:feature\s*:\s*)?(.+?)\s*#*$", re.IGNORECASE)
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d+[.)])\s+(?:\[([ xX~/-])\]\s+)?(.+)$")
_EMPTY_BOX = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[ xX~/-]?\]\s*")
_OPTION = re.compile(r"\s*\((discipline|priority|tags)\s*:\s*([^()]*)\)", re.IGNORECASE)
_FENCE = re.compile(r"\s*(?:```|~~~)")
_PROSE = {
    "description": "description",
    "overview": "description",
    "architecture": "architecture",
    "design": "architecture",
    "boundaries": "boundaries",
    "out of scope": "boundaries",
    "scope": "boundaries",
}
_STATUS = {" ": "pending", "x": "done", "X": "done", "~": "in_progress", "/": "in_progress",
           "-": "skipped"}  # fmt: skip


@dataclass
class ListedTask:
    """A box and what stands under it."""

    title: str
    status: str = "pending"
    discipline: str | None = None
    priority: str | None = None
    tags: list[str] = field(default_factory=list)
    criteria: list[str] = field(default_factory=list)
    first: list[ListedTask] = field(default_factory=list)


@dataclass
class ListedFeature:
    """A heading and what stands under it."""

    title: str
    prose: dict[str, str] = field(default_factory=dict)
    dependencies: list[str] = field(default_factory=list)
    tasks: list[ListedTask] = field(default_factory=list)
    has_section: bool = False


def read_checklist(text: str) -> list[ListedFeature]:
    """The features of a checklist in order; tasks before any heading have an empty title."""
    return _Checklist().read(text)


def slug(title: str) -> str:
    """A feature's name from its title."""
    plain = re.sub(r"[`*_\[\]]", "", title).strip().lower()
    return re.sub(r"[^\w.]+", "-", plain).strip("-.")[:100]


class _Checklist:
    def __init__(self) -> None:
        self._features: list[ListedFeature] = [ListedFeature("")]
        self._section = "description"
        self._open: list[tuple[int, ListedTask]] = []
        self._in_code = False

    def read(self, text: str) -> list[ListedFeature]:
        for line in text.splitlines():
            if _FENCE.match(line):
                self._in_code = not self._in_code
                continue
            if self._in_code:
                continue
            if heading := _HEADING.match(line):
                self._heading(heading.group(2))
            elif _EMPTY_BOX.fullmatch(line):
                continue
            elif item := _ITEM.match(line):
                indent = len(item.group(1).expandtabs(4))
                self._item(indent, item.group(2), item.group(3).strip())
            elif line.strip():
                self._text(line)
            else:
                self._prose("")
        found = [f for f in self._features if f.tasks or f.has_section]
        for feature in found:
            feature.prose = {k: v.strip() for k, v in feature.prose.items() if v.strip()}
        return found

    def _heading(self, title: str) -> None:
        self._open.clear()
        name = title.strip().lower().rstrip(":")
        now = self._features[-1]
        if name in _PROSE or name in ("tasks", "dependencies", "todo", "to do"):
            self._section = _PROSE.get(name, name)
            now.has_section |= bool(now.title)
        else:
            self._features.append(ListedFeature(re.sub(r"[`*]", "", title).strip()))
            self._section = "description"

    def _item(self, indent: int, box: str | None, text: str) -> None:
        while self._open and indent <= self._open[-1][0]:
            self._open.pop()
        parent = self._open[-1][1] if self._open else None
        if box is not None:
            task = _task(text, box)
            (parent.first if parent else self._features[-1].tasks).append(task)
            self._open.append((indent, task))
        elif parent is not None:
            parent.criteria.append(text)
        elif self._section == "dependencies":
            self._features[-1].dependencies.append(text)
        else:
            self._prose(f"- {text}")

    def _text(self, line: str) -> None:
        if self._open and line[0].isspace():
            _, task = self._open[-1]
            if task.criteria:
                task.criteria[-1] += " " + line.strip()
            else:
                task.title += " " + line.strip()
            return
        self._open.clear()
        self._prose(line.strip())

    def _prose(self, line: str) -> None:
        feature = self._features[-1]
        section = self._section if self._section in _PROSE.values() else None
        if section and (line or section in feature.prose):
            feature.prose[section] = feature.prose.get(section, "") + line + "\n"


def _task(text: str, box: str) -> ListedTask:
    task = ListedTask("", _STATUS[box])
    for key, value in _OPTION.findall(text):
        if key.lower() == "discipline":
            task.discipline = value.strip()
        elif key.lower() == "priority":
            task.priority = value.strip()
        else:
            task.tags += [tag.strip() for tag in value.split(",") if tag.strip()]
    task.title = _OPTION.sub("", text).strip()
    return task


# -- `plan import`: a Markdown checklist or a YAML document becomes features and tasks.
#
# Markdown: see `checklist`. YAML has the plan's own shape, and may nest and shorten:
#
# features:
# - name: authentication
# description: ...
# tasks:                          tasks of this feature; a plain text is a title
# - Build the login form
# - title: Write docs
# status: pending
# blocked_by: [Build the login form]      an id or a title
# tasks: [{feature: ..., title: ...}]
# disciplines: [{name: ..., system_prompt: ...}]
#
# A task keeps its `id` where the plan has none of that number, else it gets the next free one; what
# waits for it in the document follows. Comments and times are not imported.
#
# Importing again adds nothing: a feature is known by its name, a task by its feature and title.
# What is there is never changed, except that empty prose of a known feature is filled and learnings
# that are new to it are appended.


class PlanImport(msgspec.Struct, frozen=True):
    """What an import added, and how many tasks were there already."""

    features: tuple[str, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    disciplines: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    known_tasks: int = 0


def import_plan(
    plan: Plan, text: str, *, name: str = "import", feature: str | None = None
) -> PlanImport:
    """Add what the document describes; `name` decides by its ending, else its look does.

    `feature` takes tasks that stand under no heading.
    """
    looks_yaml = name.lower().endswith((".yaml", ".yml"))
    if looks_yaml or (not name.lower().endswith((".md", ".markdown")) and _is_yaml(text)):
        wanted = _from_yaml(text, name)
    else:
        wanted = _from_markdown(text, name, feature)
    with plan.editing(f"import of {name}", "features", "tasks", "disciplines") as data:
        return _Intake(plan, data).take(wanted)


def _is_yaml(text: str) -> bool:
    return any(line.startswith(("features:", "tasks:", "version:")) for line in text.splitlines())


def _from_markdown(text: str, name: str, feature: str | None) -> Data:
    features: list[Data] = []
    for listed in read_checklist(text):
        own = slug(listed.title) or (feature or "")
        if not own:
            raise BadInput(
                "tasks stand under no heading",
                where=name,
                todo="Put a heading with the feature's name above them, or name the feature.",
            )
        entry: Data = {"name": own, **listed.prose}
        if listed.title and listed.title != own:
            entry["display_name"] = listed.title
        if listed.dependencies:
            entry["dependencies"] = listed.dependencies
        entry["tasks"] = [_listed(task) for task in listed.tasks]
        features.append(entry)
    if not features:
        raise BadInput(
            "no task was found",
            where=name,
            todo="Write `# Feature` and under it lines such as `- [ ] Build the form`.",
        )
    return {"features": features}


def _listed(task: ListedTask) -> Data:
    return {
        "title": task.title,
        "status": task.status,
        "discipline": task.discipline,
        "priority": int(number) if (number := task.priority or "").isdecimal() else task.priority,
        "tags": task.tags or None,
        "acceptance_criteria": task.criteria or None,
        "first": [_listed(other) for other in task.first],
    }


def _from_yaml(text: str, name: str) -> Data:
    document = PlanFile(text.removeprefix("\ufeff"), name=name)
    known = ("features", "tasks", "disciplines")
    if not any(key in document.data for key in known):
        raise BadInput(
            "none of features, tasks and disciplines is here",
            where=f"{name}:1:1",
            todo="Write `features:` with a list of features and their tasks.",
        )
    for kind in known:
        for i, item in enumerate(document.data.get(kind) or []):
            if not isinstance(item, dict) and isinstance(document.data[kind], list):
                raise BadInput(
                    f"an entry of `{kind}` is not a mapping",
                    where=document.where((kind, i)),
                    todo="Write `- name: ...`.",
                )
    return document.data


class _Intake:
    """One import under way."""

    def __init__(self, plan: Plan, data: dict[Kind, Data]) -> None:
        self._plan = plan
        self._data = data
        self._added: dict[Kind, list[Any]] = {"features": [], "tasks": [], "disciplines": []}
        self._filled: list[str] = []
        self._known = 0
        self._later: list[tuple[Data, list[TaskId], list[Any]]] = []
        self._ids: dict[str, TaskId] = {}  # of the document -> of the plan
        self._learnings: list[tuple[str, Learning]] = []

    def take(self, wanted: Data) -> PlanImport:
        for entity in entities(wanted, "disciplines"):
            self._discipline(dict(entity.value))
        for entity in entities(wanted, "features"):
            entry = dict(entity.value)
            tasks = entry.pop("tasks", None) or []
            name = self._feature(entry)
            for task in tasks if isinstance(tasks, list) else [tasks]:
                self._task({"title": task} if isinstance(task, str) else dict(task), name)
        for task in wanted.get("tasks") or []:
            self._task(dict(task), None)
        self._block()
        self._learn()
        return PlanImport(
            tuple(self._added["features"]),
            tuple(self._added["tasks"]),
            tuple(self._added["disciplines"]),
            tuple(self._filled),
            self._known,
        )

    def _feature(self, given: Data) -> str:
        name = str(given.pop("name", "") or "").strip()
        if not name or "/" in name:
            raise BadInput("a feature without a name", todo="Give it a `name`.")
        learnings = given.pop("learnings", None) or []
        for one in learnings if isinstance(learnings, list) else [learnings]:
            self._learnings.append((name, read_learning(one, where=f"the feature {name}")))
        given.pop("created", None)
        entry = find_entity(self._data["features"], "features", name)
        if entry is None:
            entry = {"name": name}
            patch_feature(entry, given, self._plan.limits)
            entry.setdefault("created", self._plan.now())
            add_entity(self._data["features"], "features", entry)
            self._added["features"].append(name)
            return name
        empty = {k: v for k, v in given.items() if not entry.get(k)}
        if empty:
            patch_feature(entry, empty, self._plan.limits)
            self._filled.append(name)
        return name

    def _discipline(self, given: Data) -> None:
        name = str(given.pop("name", "") or "").strip()
        if not name:
            raise BadInput("a discipline without a name", todo="Give it a `name`.")
        if find_entity(self._data["disciplines"], "disciplines", name) is None:
            entry: Data = {"name": name}
            patch_discipline(entry, given, self._plan.limits)
            add_entity(self._data["disciplines"], "disciplines", entry)
            self._added["disciplines"].append(name)

    def _task(self, given: Data, feature: str | None) -> TaskId:
        first = [self._task(other, feature) for other in given.pop("first", None) or []]
        feature = str(given.pop("feature", feature) or feature or "")
        title = p.text("title", given.pop("title", None), self._plan.limits.title)
        if not title or not feature:
            raise BadInput(
                "a task without a title" if feature else f"the task {title!r} names no feature",
                todo="Give it a `title` and a `feature`.",
            )
        if find_entity(self._data["features"], "features", feature) is None:
            self._feature({"name": feature})
        wanted = given.pop("id", None)
        known = self._find(feature, title)
        if known is not None:
            self._known += 1
            self._ids.setdefault(str(wanted), known)
            return known
        waits = given.pop("blocked_by", None)
        for name in ("comments", "created", "updated", "completed"):
            given.pop(name, None)
        entry: Data = {"id": self._free_id(wanted)}
        if wanted is not None:
            self._ids.setdefault(str(wanted), entry["id"])
        patch = {"feature": feature, "title": title}
        patch |= {k: v for k, v in given.items() if v is not None}
        patch_task(self._data["tasks"], entry, patch, self._plan)
        entry.setdefault("status", "pending")
        entry["created"] = self._plan.now()
        if entry["status"] == "done":
            entry["completed"] = entry["created"]
        add_entity(self._data["tasks"], "tasks", entry)
        self._added["tasks"].append(entry["id"])
        waits = waits if isinstance(waits, list) else [waits] if waits else []
        if first or waits:
            self._later.append((entry, first, waits))
        found: TaskId = entry["id"]
        return found

    def _free_id(self, wanted: object) -> TaskId:
        """The id that the document gives, unless the plan uses it already."""
        usable = isinstance(wanted, int | str) and not isinstance(wanted, bool)
        if (
            usable
            and str(wanted).strip()
            and find_entity(self._data["tasks"], "tasks", wanted) is None
        ):
            return wanted if isinstance(wanted, int) else str(wanted).strip()
        return next_id(self._data["tasks"])

    def _find(self, feature: str, title: object) -> TaskId | None:
        for entity in entities(self._data["tasks"], "tasks"):
            if not isinstance(entity.value, dict) or entity.value.get("feature") != feature:
                continue
            if str(entity.value.get("title")).casefold() == str(title).casefold():
                found: TaskId = entity.value["id"]
                return found
        return None

    def _block(self) -> None:
        """Blockers come last: a task may wait for one that is listed below it."""
        for entry, first, waits in self._later:
            ids = first + [
                self._ids.get(str(wait)) or self._find(entry["feature"], wait) or wait
                for wait in waits
            ]
            patch_task(self._data["tasks"], entry, {"blocked_by": ids}, self._plan)

    def _learn(self) -> None:
        """Learnings come last too: one may be about a task, which may have another id here."""
        for feature, one in self._learnings:
            draft = LearningDraft(
                text=one.text,
                reason=one.reason,
                iteration=one.iteration,
                task_id=self._ids.get(str(one.task_id), one.task_id),
            )
            # In a known feature somebody may have removed it: only a person's own call takes
            # that back, not a document that still has it.
            source = one.source if feature in self._added["features"] else "agent"
            append(self._plan, self._data["features"], feature, draft, source)
