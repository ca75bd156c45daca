"""Features: the list, one feature with everything about it, and changes through the plan."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.responses import Response

from ralph.doors.web.page import PageCall
from ralph.errors import BadInput, MemoryOff, NotFound
from ralph.memory import timeline as history
from ralph.memory.stats import Usage, trend, usage
from ralph.memory.timeline import Event
from ralph.plan import edit, learnings
from ralph.plan.model import Feature, Limits, PlanView, Task
from ralph.records.learning import Learning
from ralph.text.tokens import plural

_FILES = 15
_STRIP = 60
_RECENT = 12
_FIELDS = {
    "display_name": ("Name for people", Limits.title),
    "description": ("Description", Limits.description),
    "architecture": ("Architecture", Limits.architecture),
    "boundaries": ("Boundaries", Limits.boundaries),
}


class FeatureLine(NamedTuple):
    """One feature in the list."""

    name: str
    title: str
    planned: bool
    done: int
    tasks: int
    learnings: int
    used: Usage
    trend: float | None
    last: Event | None


class LearningLine(NamedTuple):
    """A learning as the page shows it."""

    learning: Learning
    stale: bool
    age: str
    rivals: tuple[Learning, ...]


# -- the list


def old_address(call: PageCall) -> Response:
    """Redirect from the address that the list had before."""
    return call.redirect("/plan")


def features(call: PageCall) -> Response:
    """List every feature of the plan and of memory, with its progress."""
    view = call.plan.read()
    planned = {one.name: one for one in view.features}
    worked_on = [memory.name for memory in call.memory.features()]
    lines = []
    for name in dict.fromkeys([*planned, *worked_on]):
        tasks = [t for t in view.tasks if t.feature == name and t.status != "skipped"]
        feature = planned.get(name)
        names = [name] if name in worked_on else []
        mine = history.events(call.memory, kinds=["iteration"], features=names)
        lines.append(
            FeatureLine(
                name,
                (feature and feature.display_name) or name,
                feature is not None,
                sum(task.status == "done" for task in tasks),
                len(tasks),
                len(feature.learnings) if feature else 0,
                usage(mine, name),
                trend(mine),
                next(iter(mine), None),
            )
        )
    return call.page("features.html", lines=lines, problems=view.problems)


# -- one feature


def feature(call: PageCall) -> Response:
    """Show the state, texts, tasks, outcomes, files, learnings and gates of a feature."""
    name = call.params["name"]
    view = call.plan.read()
    found = _feature_in(view, name)
    events = history.events(call.memory, kinds=["iteration"], features=[name])
    if found is None and not events:
        raise call.plan.missing("features", name)
    shown = found or Feature(name=name)
    return call.page(
        "feature.html",
        feature=shown,
        planned=found is not None,
        state=view.current_state(name),
        tasks=_tasks(view, name),
        used=usage(events, name),
        strip=events[:_STRIP],
        recent=events[:_RECENT],
        files=history.touched_files(call.memory, name, _FILES),
        learnings=_learnings(shown, max((one.number for one in events), default=0)),
        pairs=learnings.conflicts(shown.learnings),
        waiting=_waiting(call, view, name),
    )


def _feature_in(view: PlanView, name: str) -> Feature | None:
    return next((one for one in view.features if one.name == name), None)


def _tasks(view: PlanView, name: str) -> list[Task]:
    order = ("in_progress", "blocked", "pending", "done", "skipped")
    mine = [task for task in view.tasks if task.feature == name]
    return sorted(mine, key=lambda task: (order.index(task.status), task.priority))


def _learnings(found: Feature, newest: int) -> list[LearningLine]:
    rivals = learnings.rivals(found.learnings)
    lines = []
    for one in found.learnings:
        ago = learnings.age(one, newest)
        age = (
            ""
            if ago is None
            else "in the last iteration"
            if ago <= 0
            else f"{plural(ago, 'iteration')} ago"
        )
        stale = learnings.is_stale(one, newest + 1)
        lines.append(LearningLine(one, stale, age, tuple(rivals[one.id])))
    return lines


def _waiting(call: PageCall, view: PlanView, name: str) -> list[Any]:
    from ralph.memory.gates import gates

    mine = {str(task.id) for task in view.tasks if task.feature == name}
    with contextlib.suppress(MemoryOff):
        return [one for one in gates(call.memory) if one.gate.task in mine]
    return []


# -- changing its texts


def edit_feature(call: PageCall) -> Response:
    """Show the form to edit the texts of a feature."""
    found = call.plan.feature(call.params["name"])
    fields = [
        (name, label, most, getattr(found, name) or "", _mark(getattr(found, name)))
        for name, (label, most) in _FIELDS.items()
    ]
    return call.page("feature_edit.html", feature=found, fields=fields)


def save_feature(call: PageCall) -> Response:
    """Save the changed fields of the form; refuse to overwrite what others changed since then."""
    name = call.params["name"]
    found = call.plan.feature(name)
    patch: dict[str, str | None] = {}
    for field, (label, most) in _FIELDS.items():
        text = call.form.get(field, "").strip()
        now = getattr(found, field)
        if text == (now or "").strip():
            continue
        if call.form.get(f"was_{field}") != _mark(now):
            what = f"{label.lower()} was changed by someone else in the meantime"
            raise BadInput(what, todo="Reload the form, and make your change again.")
        if len(text) > most:
            what = f"{label.lower()} has {len(text)} characters, at most {most} are allowed"
            raise BadInput(what, todo="Shorten it.")
        patch[field] = text or None
    path = f"/features/{quote(name, safe='')}"
    if not patch:
        return call.done("Nothing was changed.", path)
    edit.update_feature(call.plan, name, patch)
    return call.done(f"Saved: {', '.join(_FIELDS[one][0].lower() for one in patch)}.", path)


def _mark(text: str | None) -> str:
    return hashlib.sha256((text or "").encode(errors="replace")).hexdigest()[:16]


# -- learnings


def change_learning(call: PageCall) -> Response:
    """Review or remove a learning, or add one."""
    name = call.params["name"]
    action = call.params["action"]
    path = f"/features/{quote(name, safe='')}#learnings"
    plan, ref = call.plan, call.form.get("learning", "")
    if action == "add":
        added = learnings.add(plan, name, call.form.get("text", ""), source="human")
        said = {"added": "Added.", "known": "A learning says this already."}
        return call.done(said.get(added.what, "Saved."), path)
    known = plan.feature(name).learnings
    before = known[learnings.index_of(known, ref)]

    def restore() -> str:
        learnings.restore(plan, name, before)
        return "The learning is as it was."

    if action == "remove":
        learnings.remove(plan, name, before.id, by="human", reason="removed on the page")
        text = "Removed. The same lesson is not learned again."
    elif action == "review":
        learnings.review(plan, name, before.id)
        text = "Marked as reviewed. That does not mean proven."
    else:
        raise NotFound(f"there is no action {action!r}")
    return call.done(text, path, undo=restore)


# -- gates


def decide_gate(call: PageCall) -> Response:
    """Approve or reject the work on a task."""
    from ralph.memory import gates
    from ralph.memory.lessons import technology_of

    name = call.params["name"]
    memory = call.memory
    task = call.plan.task(call.form.get("task", ""))
    gate = call.form.get("gate", "").strip()
    text = call.form.get("text", "").strip()
    technology = technology_of(memory.project.root, memory.config.settings)
    about = {"technology": technology, "subject": task.title}
    path = f"/features/{quote(name, safe='')}#tasks"
    if call.form.get("verdict") == "reject":
        waiting = gates.reject(memory, task.id, gate, text, **about)
        back = gates.send_back(call.plan, task, waiting.gate, fresh=waiting.fresh)
        status = back.status.replace("_", " ")
        return call.done(f"Rejected. The feedback is on the task, which is {status}.", path)
    approved = text or gates.approach_of(memory, task.id)
    if gates.approve(memory, task.id, gate, approved, **about):
        return call.done("Approved. What it teaches waits for a checkpoint.", path)
    return call.done("Approved. This gate was passed before, so nothing new was saved.", path)
