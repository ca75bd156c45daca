"""Sessions of a client become conversations and iterations; and the brief for the next one.

Everything here may be done again: an exchange has the id its prompt gives it, and an iteration is
looked for by its run before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ralph.capture.lines import SessionExchange
from ralph.errors import BadRecord
from ralph.memory.conversation_history import CLAUDE_CODE, run_name
from ralph.memory.conversation_journal import SavedExchange
from ralph.memory.feature import SavedIteration
from ralph.memory.importing import SessionHome, conversations_of, first_words
from ralph.memory.project import Focus
from ralph.memory.ralph import Ralph
from ralph.plan.learnings import prompt_lines
from ralph.plan.model import Feature, PlanView, Task
from ralph.records import utc
from ralph.records.conversation import conversation_id, exchange_id
from ralph.records.iteration import Iteration, Outcome

# Not done, but no longer as it was.
_MOVED = ("in_progress", "blocked", "skipped")


class SessionWork(msgspec.Struct, frozen=True):
    """What an exchange was work on: a feature, perhaps one of its tasks, and how that moved."""

    feature: str
    task: Task | None = None
    outcome: Outcome = "unknown"
    moved: bool = False


def keep_exchanges(
    ralph: Ralph, seen: Sequence[SessionExchange], *, session: str, title: str | None
) -> list[SavedExchange]:
    """Keep what was said, each exchange once, in the conversation its session is."""
    talks = conversations_of(
        seen, source=CLAUDE_CODE, session=session, title=title, where=SessionHome("")
    )
    return [
        kept
        for talk in talks
        for kept in ralph.conversations.add(talk.conversation, talk.exchanges)
    ]


def unkept(ralph: Ralph, seen: Sequence[SessionExchange], *, session: str) -> list[SessionExchange]:
    """Those that memory never had: what was kept or forgotten once is settled.

    A session that goes on is read from its beginning, and whatever was in focus when it was held
    need not be now.
    """
    ids = {_id(one, session): one for one in seen}
    met = ralph.conversations.met(ids)
    return [one for identity, one in ids.items() if identity not in met]


def _id(seen: SessionExchange, session: str) -> str:
    return exchange_id(conversation_id(CLAUDE_CODE, seen.session_id or session), seen.key)


def keep_iteration(
    ralph: Ralph, seen: SessionExchange, work: SessionWork, *, session: str
) -> SavedIteration | None:
    """Keep the exchange as an iteration of the feature, if it did anything and is not there yet."""
    if not (_did_something(seen) or work.moved):
        return None
    run = run_name(seen.session_id or session, seen.key)
    memory = ralph.feature(work.feature)
    if any(record.source.run == run for record in memory.records()):
        return None
    task = work.task
    iteration = seen.captured.to_iteration(
        feature=work.feature,
        task_id=task.id if task else None,
        task_title=task.title if task else first_words(seen),
        discipline=(task.discipline or "") if task else "",
        outcome=None if work.outcome == "unknown" else work.outcome,
    )
    # A person's session has no result line; its last words are the result, however short.
    summary = iteration.summary or seen.assistant
    return memory.remember(msgspec.structs.replace(iteration, session_id=run, summary=summary))


def _did_something(seen: SessionExchange) -> bool:
    captured = seen.captured
    changed = any(file.action != "read" for file in captured.files_touched)
    return bool(changed or captured.errors or captured.decisions)


def work_of(seen: SessionExchange, view: PlanView, focus: Focus | None) -> SessionWork | None:
    """What the exchange was work on: what a person set, else the one feature whose tasks moved.

    None when neither says; never a failure by default.
    """
    moved = [task for task in view.tasks if _moved(task, seen)]
    if focus is None:
        features = {task.feature for task in moved}
        if len(features) != 1:
            return None
        feature, task_id = features.pop(), None
    else:
        feature, task_id = focus.feature, focus.task_id
        moved = [task for task in moved if task.feature == feature]
    if task_id is not None:
        named = [task for task in view.tasks if str(task.id) == str(task_id)]
        moved = [task for task in moved if str(task.id) == str(task_id)]
        if not moved:
            return SessionWork(feature, named[0] if named else None)
    if not moved:
        return SessionWork(feature)
    # Of several tasks the one that got done says most, then the one that moved last.
    task = max(moved, key=lambda one: (_done(one, seen), one.updated or ""))
    return SessionWork(
        feature, task, "success" if _done(task, seen) else _outcome(task, seen), moved=True
    )


def _moved(task: Task, seen: SessionExchange) -> bool:
    return _within(task.updated, seen) or _done(task, seen) or _commented(task, seen)


def _done(task: Task, seen: SessionExchange) -> bool:
    return task.status == "done" and _within(task.completed or task.updated, seen)


def _commented(task: Task, seen: SessionExchange) -> bool:
    return any(_within(comment.at, seen) for comment in task.comments)


def _outcome(task: Task, seen: SessionExchange) -> Outcome:
    if task.status in _MOVED or _commented(task, seen):
        return "partial"
    return "unknown"


def _within(at: str | None, seen: SessionExchange) -> bool:
    begun, ended = seen.captured.started_at, seen.captured.ended_at
    if not at or not begun or not ended:
        return False
    try:
        return _moment(begun) <= _moment(at) <= _moment(ended)
    except BadRecord:
        return False  # somebody wrote a time of his own into the plan


def _moment(at: str) -> datetime:
    return datetime.fromisoformat(utc(at))


# -- What matters in a project now: the feature being worked on, its tasks, and its latest work.


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who begins to work here should know; `told` are its iterations, oldest first.

    `chosen` says why it is this feature: a person set it, a task is in progress, or it was the
    last one worked on.
    """

    feature: Feature
    chosen: str
    current_state: str
    tasks: tuple[Task, ...]
    told: tuple[Iteration, ...]
    learnings: tuple[str, ...]


def brief(ralph: Ralph, view: PlanView, focus: Focus | None) -> Brief | None:
    """What matters now, or None where nothing was planned or done yet."""
    name, chosen = _feature_now(ralph, view, focus)
    if name is None:
        return None
    told = _told(ralph, name)
    feature = next((one for one in view.features if one.name == name), None)
    planned = any(task.feature == name for task in view.tasks)
    if feature is None and not told and not planned:
        return None
    feature = feature or Feature(name=name)
    tasks = _tasks_now(view, name, focus)
    last = max((one.iteration_number or 0 for one in told), default=0)
    return Brief(
        feature=feature,
        chosen=chosen,
        current_state=view.current_state(name) if planned else "",
        tasks=tasks,
        told=told,
        learnings=tuple(
            prompt_lines(
                feature.learnings,
                current_iteration=last + 1,
                task_id=tasks[0].id if tasks else None,
            )
        ),
    )


def _feature_now(ralph: Ralph, view: PlanView, focus: Focus | None) -> tuple[str | None, str]:
    if focus is not None:
        return focus.feature, "in focus"
    begun = [task for task in view.tasks if task.status == "in_progress"]
    if begun:
        return max(
            begun, key=lambda task: task.updated or task.created or ""
        ).feature, "in progress"
    journals = ralph.place.journals
    last = {name: journals.newest_at(name) for name in journals.names()}
    if last:
        return max(last, key=lambda name: last[name]), "last worked on"
    return None, ""


def _tasks_now(view: PlanView, feature: str, focus: Focus | None) -> tuple[Task, ...]:
    """The task a person chose, and those in progress."""
    wanted = None if focus is None or focus.task_id is None else str(focus.task_id)
    tasks = [task for task in view.tasks if task.feature == feature]
    chosen = [task for task in tasks if str(task.id) == wanted]
    return tuple(chosen + [t for t in tasks if t.status == "in_progress" and t not in chosen])


def _told(ralph: Ralph, feature: str) -> tuple[Iteration, ...]:
    told = [iteration for _, iteration in ralph.feature(feature).iterations()]
    return tuple(sorted(told, key=lambda one: (one.iteration_number or 0, one.timestamp or "")))
