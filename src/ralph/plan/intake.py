"""`plan import`: a Markdown checklist or a YAML document becomes features and tasks.

Markdown: see `checklist`. YAML has the plan's own shape, and may nest and shorten:

    features:
      - name: authentication
        description: ...
        tasks:                          tasks of this feature; a plain text is a title
          - Build the login form
          - title: Write docs
            status: pending
            blocked_by: [Build the login form]      an id or a title
    tasks: [{feature: ..., title: ...}]
    disciplines: [{name: ..., system_prompt: ...}]

A task keeps its `id` where the plan has none of that number, else it gets the next free one; what
waits for it in the document follows. Comments and times are not imported.

Importing again adds nothing: a feature is known by its name, a task by its feature and title.
What is there is never changed, except that empty prose of a known feature is filled and learnings
that are new to it are appended.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.plan import patch as p
from ralph.plan.checklist import ListedTask, read_checklist, slug
from ralph.plan.document import Data, Document
from ralph.plan.entities import Kind, add, entities, find
from ralph.plan.extract import Draft
from ralph.plan.features import patch_discipline, patch_feature
from ralph.plan.learnings import append
from ralph.plan.store import Plan
from ralph.plan.tasks import next_id, patch_task
from ralph.plan.values import TaskId
from ralph.records.learning import Learning, read_learning


class Imported(msgspec.Struct, frozen=True):
    """What an import added, and how many tasks were there already."""

    features: tuple[str, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    disciplines: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    known_tasks: int = 0


def import_plan(
    plan: Plan, text: str, *, name: str = "import", feature: str | None = None
) -> Imported:
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
    document = Document(text.removeprefix("\ufeff"), name=name)
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

    def take(self, wanted: Data) -> Imported:
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
        return Imported(
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
        entry = find(self._data["features"], "features", name)
        if entry is None:
            entry = {"name": name}
            patch_feature(entry, given, self._plan.limits)
            entry.setdefault("created", self._plan.now())
            add(self._data["features"], "features", entry)
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
        if find(self._data["disciplines"], "disciplines", name) is None:
            entry: Data = {"name": name}
            patch_discipline(entry, given, self._plan.limits)
            add(self._data["disciplines"], "disciplines", entry)
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
        if find(self._data["features"], "features", feature) is None:
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
        add(self._data["tasks"], "tasks", entry)
        self._added["tasks"].append(entry["id"])
        waits = waits if isinstance(waits, list) else [waits] if waits else []
        if first or waits:
            self._later.append((entry, first, waits))
        found: TaskId = entry["id"]
        return found

    def _free_id(self, wanted: object) -> TaskId:
        """The id that the document gives, unless the plan uses it already."""
        usable = isinstance(wanted, int | str) and not isinstance(wanted, bool)
        if usable and str(wanted).strip() and find(self._data["tasks"], "tasks", wanted) is None:
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
            draft = Draft(
                text=one.text,
                reason=one.reason,
                iteration=one.iteration,
                task_id=self._ids.get(str(one.task_id), one.task_id),
            )
            # In a known feature somebody may have removed it: only a person's own call takes
            # that back, not a document that still has it.
            source = one.source if feature in self._added["features"] else "agent"
            append(self._plan, self._data["features"], feature, draft, source)
