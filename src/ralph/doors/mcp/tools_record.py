"""The tools with which an agent reports progress and keeps what it learned.

Every change goes through the plan's own calls, which cut, clean, check and note it as Ralph's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from ralph.doors.mcp.tool import Arguments
from ralph.doors.mcp.tool import writing as tool
from ralph.errors import BadInput, NotFound
from ralph.prompt.recalled import harmless
from ralph.text.sanitize import mark

if TYPE_CHECKING:
    from ralph.doors.mcp.context import ServerContext
    from ralph.plan.model import Feature, Task


AUTHOR = "agent"
STATUS_WORDS = {"enum": ["pending", "in_progress", "blocked", "done", "skipped"]}
_IDS_NAMED = 20
_KEEPS = "Left out, it stays as it is; null empties it."
_TOLD = {
    "added": "Kept",
    "known": "Known already, so nothing was added",
    "seen_again": "Known already",
    "removed_before": "Not kept, because it was removed before",
}

Text = str | None | UnsetType
Texts = list[str] | None | UnsetType


class Progress(Arguments, frozen=True, kw_only=True):
    """What update_task takes."""

    status: Annotated[
        str | None,
        Meta(
            description="How the task stands now: done, in_progress when some of it is left, "
            "blocked when it cannot be done now.",
            extra_json_schema=STATUS_WORDS,
        ),
    ] = None
    comment: Annotated[
        str | None,
        Meta(
            description="What was done, what is left or what is in the way. It is appended; "
            "2000 characters at most."
        ),
    ] = None
    task_id: Annotated[
        int | str | None,
        Meta(description="The task; by itself the one you were given. Only of this feature."),
    ] = None


class Lesson(Arguments, frozen=True, kw_only=True):
    """What append_learning takes."""

    text: Annotated[
        str, Meta(description="One fact, in a sentence or two; 500 characters at most.")
    ]
    reason: Annotated[
        str | None, Meta(description="How you know: what happened that taught it.")
    ] = None
    task_id: Annotated[
        int | str | None,
        Meta(description="Give it when the fact concerns this task only, not the whole feature."),
    ] = None


class FeaturePatch(Arguments, frozen=True, kw_only=True):
    """What update_feature takes."""

    description: Annotated[
        Text, Meta(description=f"What it is and why; 3000 characters. {_KEEPS}")
    ] = UNSET
    architecture: Annotated[
        Text, Meta(description=f"How it is built; 3000 characters. {_KEEPS}")
    ] = UNSET
    boundaries: Annotated[
        Text, Meta(description=f"What it must not do or touch; 1500 characters. {_KEEPS}")
    ] = UNSET
    dependencies: Annotated[
        Texts, Meta(description=f"What it builds on, the whole list; 20 items. {_KEEPS}")
    ] = UNSET
    knowledge_paths: Annotated[
        Texts,
        Meta(
            description="Files an agent should know, relative to the project, the whole list; "
            f"10 items. {_KEEPS}"
        ),
    ] = UNSET


def update_task(desk: ServerContext, given: Progress) -> str:
    """Note how a task of this feature stands."""
    from ralph.plan.edit import update_task as update

    if given.status is None and given.comment is None:
        raise BadInput(
            "update_task needs a status or a comment",
            todo='For example: update_task {"status": "done", "comment": "what was done"}',
        )
    task = _own_task(desk, given.task_id)
    patch = {} if given.status is None else {"status": given.status}
    changed = update(desk.plan, task.id, patch, comment=given.comment, author=AUTHOR)
    state = desk.plan.read("tasks").current_state(changed.feature)
    noted = "" if given.comment is None else " The comment was added."
    cut = _cut_note("comment", given.comment, changed.comments[-1].text) if given.comment else ""
    named = f"Task {harmless(str(changed.id), 40)} ({harmless(changed.title, 200)})"
    return f"{named} is {changed.status}.{noted}{cut}\n{mark(harmless(state, 600))}"


def append_learning(desk: ServerContext, given: Lesson) -> str:
    """Keep one fact for later iterations."""
    from ralph.plan.learnings import add

    feature = desk.need_feature()
    task = None if given.task_id is None else _own_task(desk, given.task_id).id
    added = add(
        desk.plan,
        feature,
        given.text,
        source="agent",
        iteration=desk.last_iteration(feature) + 1,
        reason=given.reason,
        task_id=task,
    )
    kept = f"[{added.learning.id}] {harmless(added.learning.text, 500)}"
    if added.what == "added" and not (added.conflicts or added.evicted):
        return f"{_TOLD[added.what]}: {kept}"  # nothing but what the call said itself
    lines = [kept]
    lines += [f"It contradicts [{one.id}] {harmless(one.text, 500)}" for one in added.conflicts]
    if added.evicted:
        lines.append(f"It took the place of: {harmless(added.evicted.text, 500)}")
    also = " Both are kept; say in a comment which one is right." if added.conflicts else ""
    return f"{_TOLD[added.what]}.{also}\n{mark(chr(10).join(lines))}"


def update_feature(desk: ServerContext, given: FeaturePatch) -> str:
    """Change the feature's prose."""
    return patched(desk, desk.need_feature(), given)


def patched(
    desk: ServerContext, feature: str, given: Arguments, *, but: tuple[str, ...] = ()
) -> str:
    """Put what was given into the feature, and say what came of it."""
    from ralph.plan.edit import update_feature as update

    patch = said(given, but=but)
    if not patch:
        raise BadInput(
            "update_feature was given nothing to change",
            todo='For example: update_feature {"architecture": "A form posts to src/login.py."}',
        )
    changed = update(desk.plan, feature, patch)
    name, cut = harmless(feature, 80), cut_notes(changed, patch)
    return f"Changed the feature {name!r}: {', '.join(patch)}.{cut}"


def said(given: Arguments, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """Only what was given: what was left out is kept as it is, null clears."""
    found = {name: getattr(given, name) for name in given.__struct_fields__ if name not in but}
    return {name: value for name, value in found.items() if value is not UNSET}


def cut_notes(changed: Feature | Task, patch: dict[str, Any]) -> str:
    """Which texts were longer than their limit and so were cut."""
    return "".join(_cut_note(name, value, getattr(changed, name)) for name, value in patch.items())


def _cut_note(name: str, given: object, kept: object) -> str:
    from ralph.records.iteration import TRUNCATED

    if not isinstance(given, str) or not isinstance(kept, str) or not kept.endswith(TRUNCATED):
        return ""
    return "" if given.rstrip().endswith(TRUNCATED) else f" `{name}` was too long and was cut."


def _own_task(desk: ServerContext, given: int | str | None) -> Task:
    """The task that is meant; one of another feature is refused."""
    scope = desk.scope()
    wanted = scope.task_id if given is None else given
    if wanted is None or not str(wanted).strip():
        raise BadInput("it is not said which task", todo=f"Give its task_id. {_there(desk)}")
    for task in desk.plan.read("tasks").tasks:
        if str(task.id) == str(wanted).strip():
            if scope.feature in (None, task.feature):
                return task
            what = f"task {task.id} does not belong to the feature {scope.feature!r}"
            raise BadInput(what, todo=f"Only its own can be changed here. {_there(desk)}")
    raise NotFound(f"there is no task {str(wanted)!r}", todo=_there(desk))


def _there(desk: ServerContext) -> str:
    """The tasks that can be named here; those of other features are not."""
    feature = desk.scope().feature
    tasks = [one for one in desk.plan.read("tasks").tasks if feature in (None, one.feature)]
    ids = ", ".join(harmless(str(one.id), 40) for one in tasks[:_IDS_NAMED])
    more = f" and {len(tasks) - _IDS_NAMED} more" if len(tasks) > _IDS_NAMED else ""
    return f"There are: {ids}{more}." if ids else "There are none in the plan."


TOOLS = (
    tool(
        Progress,
        update_task,
        title="Report progress on a task",
        description=(
            "Report how the task stands: a new status, a comment, or both.\n"
            "Use it before you stop: `done` when every acceptance criterion holds and you have "
            "checked it, `in_progress` with what is left, `blocked` with what is in the way. An "
            "iteration that changes neither status nor comments counts as a failed attempt. A "
            "comment is also the way to tell the next iteration something about this task."
        ),
        example={"status": "done", "comment": "The form refuses empty passwords; tests pass."},
    ),
    tool(
        Lesson,
        append_learning,
        title="Keep a learning",
        description=(
            "Keep one fact about this feature that later iterations must know and cannot see at a "
            "glance: a trap, a convention, a cause found after a long search.\n"
            "Use it when you have learned something the hard way. Not for progress (update_task), "
            "not for what the code plainly shows, not for plans. What says the same as a known "
            "learning is not added twice; what contradicts one is kept beside it and named."
        ),
        example={
            "text": "The session cookie must be set before the redirect.",
            "reason": "The browser dropped it otherwise; see tests/test_session.py.",
        },
        repeatable=True,
    ),
    tool(
        FeaturePatch,
        update_feature,
        title="Update the feature's prose",
        description=(
            "Change the feature's description, architecture, boundaries, dependencies or knowledge "
            "files. Only what you give changes.\n"
            "Use it when your work has made the prose wrong, or when the description is too thin "
            "to work from. Give the whole new text of a field, not a fragment: it replaces the old "
            "one. Learnings and the current state are not changed here."
        ),
        example={"architecture": "A form posts to src/login.py, which checks the hash."},
        destroys=True,
        repeatable=True,
    ),
)
