"""`plan import`: a Markdown checklist or a YAML document becomes features and tasks.

Markdown:

    # Authentication                    a heading is a feature (its name: `authentication`)
    Users log in with e-mail.           text under it is the description
    ## Architecture                     Description, Architecture, Boundaries: prose of the feature
    ## Dependencies                     its list items are dependencies
    ## Tasks                            more tasks of the same feature
    - [ ] Build the login form          a task
      Mail and password, no captcha.    indented text: its description
      - shows an error for a bad mail   a nested item without a box: an acceptance criterion
      - [ ] Validate the address        a nested item with a box: a task that comes first
    - [x] Choose a framework            done
    - [ ] Write docs (discipline: docs) (priority: 1)

Any other heading begins another feature. A heading without a task and without a section of its
own is only a title. An item without a box that is under no task is prose. Fenced code is skipped.

YAML has the same shape as the plan's files, but tasks may be nested, and some forms are short:

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

A task keeps its `id` unless the plan uses it already. Then it gets the next free one, and tasks of
the document that wait for it use the new one. Comments and times are not imported.

Importing again adds nothing: a feature is recognized by its name, a task by its feature and title.
A task that the document ticks off, skips or begins gets that status, and a title that only gained
or lost words is the same task with a new title. Otherwise existing entries never change, except
that empty prose of a known feature is filled in and new learnings are appended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.plan import model
from ralph.plan.edit import add_named, add_task, change_task, next_id, patch_named, patch_task
from ralph.plan.fields import clean_text
from ralph.plan.learnings import append
from ralph.plan.model import KINDS, Data, Kind, Limits, TaskId, entities, find_entity
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile
from ralph.records.learning import Learning, read_learning
from ralph.text.tokens import tokens

_HEADING = re.compile(r"(#{1,6})\s+(?:feature\s*:\s*)?(.+?)\s*#*$", re.IGNORECASE)
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d+[.)])\s+(?:\[([ xX~/-])\]\s+)?(.+)$")
_EMPTY_BOX = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[ xX~/-]?\]\s*")
_OPTION = re.compile(r"\s*\((discipline|priority|tags)\s*:\s*([^()]*)\)", re.IGNORECASE)
_FENCE = re.compile(r"\s*(?:```|~~~)")
_PROSE = {
    **dict.fromkeys(("description", "overview", "tasks", "todo", "to do"), "description"),
    **dict.fromkeys(("architecture", "design"), "architecture"),
    **dict.fromkeys(("boundaries", "out of scope", "scope"), "boundaries"),
}
_STATUS = {" ": "pending", "x": "done", "X": "done", "~": "in_progress", "/": "in_progress",
           "-": "skipped"}  # fmt: skip
_ENDED = ("done", "skipped")
# Titles with fewer words are too similar.
_LEAST_WORDS = 2


class PlanImport(msgspec.Struct, frozen=True):
    """What an import added and changed, and how many tasks existed already.

    `repeated` tasks are in the document more than once. `plain_items` are items of a checklist
    that have no box and became prose.
    """

    features: tuple[str, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    disciplines: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    known_tasks: int = 0
    updated: tuple[TaskId, ...] = ()
    repeated: int = 0
    plain_items: int = 0


def import_plan(
    plan: Plan, text: str, *, name: str = "import", feature: str | None = None
) -> PlanImport:
    """Add what the document describes; its kind is known by the ending of `name`, or by the text.

    `feature` gets the tasks that have no heading above them.
    """
    is_yaml = name.lower().endswith((".yaml", ".yml"))
    if not is_yaml and not name.lower().endswith((".md", ".markdown")):
        is_yaml = re.search(r"^(?:features|tasks|version):", text, re.M) is not None
    document = _from_yaml(text, name) if is_yaml else _from_markdown(text, name, feature)
    with plan.editing(f"import of {name}", *KINDS) as data:
        done = _Import(plan, data).run(document)
    prose = [] if is_yaml else [one.get("description", "") for one in document["features"]]
    items = sum(line.startswith("- ") for text in prose for line in text.splitlines())
    return msgspec.structs.replace(done, plain_items=items)


def _from_markdown(text: str, name: str, feature: str | None) -> Data:
    features = _read_checklist(text)
    for entry in features:
        title = entry.pop("title")
        plain = re.sub(r"[`*_\[\]]", "", title).strip().lower()
        entry["name"] = re.sub(r"[^\w.]+", "-", plain).strip("-.")[:100] or feature
        if not entry["name"]:
            todo = "Put a heading with the feature's name above them, or name the feature."
            raise BadInput("tasks have no heading above them", where=name, todo=todo)
        if title and title != entry["name"]:
            entry["display_name"] = title
    if not features:
        todo = "Write `# Feature` and under it lines such as `- [ ] Build the form`."
        raise BadInput("no task was found", where=name, todo=todo)
    return {"features": features}


def _read_checklist(text: str) -> list[Data]:
    """Return the features of a checklist; tasks before any heading are in one without a title."""
    features: list[Data] = [{"title": "", "tasks": []}]
    section = "description"
    above: list[tuple[int, Data]] = []  # the tasks above a line, with their indent
    in_code = False
    for line in text.splitlines():
        prose: str | None = None
        plain = line.strip()
        feature = features[-1]
        if _FENCE.match(line):
            in_code = not in_code
        elif in_code or _EMPTY_BOX.fullmatch(line):
            continue
        elif heading := _HEADING.match(line):
            above.clear()
            title = heading[2].strip()
            name = title.lower().rstrip(":")
            if name in _PROSE or name == "dependencies":
                section = _PROSE.get(name, name)
                feature["has_section"] = bool(feature["title"])
            else:
                features.append({"title": re.sub(r"[`*]", "", title).strip(), "tasks": []})
                section = "description"
        elif item := _ITEM.match(line):
            indent = len(item[1].expandtabs(4))
            box = item[2]
            words = item[3].strip()
            while above and indent <= above[-1][0]:
                above.pop()
            parent = above[-1][1] if above else None
            if box is not None:
                task = _task_entry(words, box)
                (parent.setdefault("first", []) if parent else feature["tasks"]).append(task)
                above.append((indent, task))
            elif parent is not None:
                parent.setdefault("acceptance_criteria", []).append(words)
            elif section == "dependencies":
                feature.setdefault("dependencies", []).append(words)
            else:
                prose = f"- {words}"
        elif above and plain and line[0].isspace():
            task = above[-1][1]
            if criteria := task.get("acceptance_criteria"):
                criteria[-1] += f" {plain}"
            else:
                task["description"] = f"{task.get('description', '')}\n{plain}".strip()
        else:
            if plain:
                above.clear()
            prose = plain
        if prose is not None and section in _PROSE.values() and (prose or section in feature):
            feature[section] = feature.get(section, "") + prose + "\n"
    found = [f for f in features if f.pop("has_section", False) or f["tasks"]]
    for feature in found:
        for name in set(_PROSE.values()) & feature.keys():
            model.set_field(feature, name, feature[name].strip())
    return found


def _task_entry(text: str, box: str) -> Data:
    task: Data = {"title": _OPTION.sub("", text).strip(), "status": _STATUS[box]}
    for key, value in _OPTION.findall(text):
        if key.lower() == "tags":
            tags = [tag.strip() for tag in value.split(",") if tag.strip()]
            task["tags"] = task.get("tags", []) + tags
        else:
            task[key.lower()] = value.strip()
    return task


def _from_yaml(text: str, name: str) -> Data:
    file = PlanFile(text.removeprefix("\ufeff"), name=name)
    if not any(kind in file.data for kind in KINDS):
        what = "there are no features, tasks or disciplines"
        todo = "Write `features:` with a list of features and their tasks."
        raise BadInput(what, where=f"{name}:1:1", todo=todo)
    for kind in KINDS:
        for i, item in enumerate(file.data.get(kind) or []):
            if not isinstance(item, dict) and isinstance(file.data[kind], list):
                what = f"an entry of `{kind}` is not a mapping"
                raise BadInput(what, where=file.where((kind, i)), todo="Write `- name: ...`.")
    return file.data


def _titles(item: Any) -> Iterator[str]:
    """Yield every title in the document, for comparison."""
    if isinstance(item, dict):
        if isinstance(item.get("title"), str):
            yield item["title"].casefold()
        for value in item.values():
            yield from _titles(value)
    elif isinstance(item, list):
        for value in item:
            yield from _titles(value)


class _Import:
    """One import in progress."""

    def __init__(self, plan: Plan, data: dict[Kind, Data]) -> None:
        self._plan = plan
        self._data = data
        self._added: dict[str, list[Any]] = {name: [] for name in (*KINDS, "filled", "updated")}
        self._known: list[TaskId] = []  # of the document's tasks, those that the plan has already
        self._titles: set[str] = set()  # of the document's tasks
        self._later: list[tuple[Data, list[TaskId], list[Any]]] = []
        self._ids: dict[str, TaskId] = {}  # of the document -> of the plan
        self._learnings: list[tuple[str, Learning]] = []

    def run(self, document: Data) -> PlanImport:
        self._titles = set(_titles(document))
        for entity in entities(document, "disciplines"):
            self._named("disciplines", dict(entity.value))
        for entity in entities(document, "features"):
            entry = dict(entity.value)
            tasks, lessons, _ = (entry.pop(key, None) for key in ("tasks", "learnings", "created"))
            name = self._named("features", entry)
            self._learnings += [
                (name, read_learning(item, where=f"the feature {name}")) for item in _items(lessons)
            ]
            for task in _items(tasks):
                self._task({"title": task} if isinstance(task, str) else dict(task), name)
        for task in document.get("tasks") or []:
            self._task(dict(task), None)
        # Blockers come last: a task may wait for one that is listed below it.
        for entry, first, waits in self._later:
            ids = first + [
                self._ids.get(str(wait)) or self._find_task(entry["feature"], wait) or wait
                for wait in waits
            ]
            if ids:
                patch_task(self._data["tasks"], entry, {"blocked_by": ids}, self._plan)
        # Learnings too: one may be about a task, which may have another id here.
        for feature, learning in self._learnings:
            task_id = self._ids.get(str(learning.task_id), learning.task_id)
            # In a known feature somebody may have removed it: only a person's own call undoes
            # that, not a document that still has it.
            source = learning.source if feature in self._added["features"] else "agent"
            draft = msgspec.structs.replace(learning, task_id=task_id, source=source)
            append(self._plan, self._data["features"], feature, draft)
        added: dict[str, Any] = {name: tuple(found) for name, found in self._added.items()}
        known = set(self._known) - set(added["tasks"])
        return PlanImport(**added, known_tasks=len(known), repeated=len(self._known) - len(known))

    def _named(self, kind: Kind, patch: Data) -> str:
        """Add a feature or a discipline, or fill in what a feature lacks; return its name."""
        name = str(patch.pop("name", "") or "").strip()
        if not name or (kind == "features" and "/" in name):
            raise BadInput(f"a {model.SINGULAR[kind]} without a name", todo="Give it a `name`.")
        if (entry := find_entity(self._data[kind], kind, name)) is None:
            add_named(self._plan, self._data[kind], kind, name, patch)
            self._added[kind].append(name)
        elif kind == "features" and (empty := {k: v for k, v in patch.items() if not entry.get(k)}):
            patch_named("features", entry, empty)
            self._added["filled"].append(name)
        return name

    def _task(self, patch: Data, feature: str | None) -> TaskId:
        first = [self._task(task, feature) for task in patch.pop("first", None) or []]
        feature = str(patch.pop("feature", feature) or feature or "")
        title = clean_text("title", patch.pop("title", None), Limits.title)
        if not title or not feature:
            what = "a task without a title" if feature else f"the task {title!r} names no feature"
            raise BadInput(what, todo="Give it a `title` and a `feature`.")
        if find_entity(self._data["features"], "features", feature) is None:
            self._named("features", {"name": feature})
        wanted = patch.pop("id", None)
        known = self._find_task(feature, title) or self._reworded(feature, title)
        if known is not None:
            self._known.append(known)
            self._ids.setdefault(str(wanted), known)
            self._update(known, title, patch.get("status"))
            return known
        waits = _items(patch.pop("blocked_by", None))
        for name in ("comments", "created", "updated", "completed"):
            patch.pop(name, None)
        fields = {"feature": feature, "title": title}
        fields |= {k: v for k, v in patch.items() if v is not None}
        # The id in the document, unless the plan uses it already.
        new_id: TaskId = next_id(self._data["tasks"])
        own = wanted.strip() if isinstance(wanted, str) else wanted
        if isinstance(own, int | str) and own != "" and not isinstance(own, bool):
            new_id = own if find_entity(self._data["tasks"], "tasks", wanted) is None else new_id
        entry = add_task(self._plan, self._data["tasks"], new_id, fields)
        task_id: TaskId = entry["id"]
        if wanted is not None:
            self._ids.setdefault(str(wanted), task_id)
        self._added["tasks"].append(task_id)
        self._later.append((entry, first, waits))
        return task_id

    def _update(self, task_id: TaskId, title: str, status: object) -> None:
        """Use the document's title, and its status if work went on: never back to pending."""
        entry = find_entity(self._data["tasks"], "tasks", task_id) or {}
        patch: Data = {} if entry["title"].casefold() == title.casefold() else {"title": title}
        now = entry.get("status", "pending")
        if now not in _ENDED and status in (*_ENDED, "in_progress") and status != now:
            patch["status"] = status
        if patch:
            change_task(self._data["tasks"], entry, patch, self._plan)
            self._added["updated"].append(task_id)

    def _reworded(self, feature: str, title: str) -> TaskId | None:
        """Return the one task of the feature that has this title in more or fewer words."""
        asked = frozenset(tokens(title))
        found: list[TaskId] = []
        for task in model.by_key(self._data["tasks"], "tasks").values():
            other = str(task.get("title"))
            if task.get("feature") != feature or other.casefold() in self._titles:
                continue
            words = frozenset(tokens(other))
            less, more = sorted((asked, words), key=len)
            if less <= more and len(less) >= max(_LEAST_WORDS, len(more) / 2):
                found.append(task["id"])
        return found[0] if len(found) == 1 else None

    def _find_task(self, feature: str, title: object) -> TaskId | None:
        tasks = model.by_key(self._data["tasks"], "tasks").values()
        own = [task for task in tasks if task.get("feature") == feature]
        same = [x for x in own if str(x.get("title")).casefold() == str(title).casefold()]
        return same[0]["id"] if same else None


def _items(value: Any) -> list[Any]:
    """Return a list, whether the value is one, a single item or nothing."""
    return value if isinstance(value, list) else [value] if value else []
