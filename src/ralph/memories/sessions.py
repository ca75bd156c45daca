"""Sessions of an agent's client become memory: conversations, and iterations of a feature.

Everything here may be done again: an exchange has the id its prompt gives it, and an iteration is
looked for by its run before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ralph.capture.exchanges import ExchangeSeen
from ralph.errors import BadRecord
from ralph.kinds.conversation import conversation_id, exchange_id
from ralph.kinds.iteration import Outcome
from ralph.memories.conversations import Kept
from ralph.memories.feature import Remembered
from ralph.memories.focus import Focus
from ralph.memories.ralph import Ralph
from ralph.memories.runs import CLAUDE_CODE, run_name
from ralph.memories.transcript_conversations import Home, beginning, conversations_of
from ralph.plan.model import PlanView, Task
from ralph.record import utc

# Not done, but no longer as it was.
_MOVED = ("in_progress", "blocked", "skipped")


class Work(msgspec.Struct, frozen=True):
    """What an exchange was work on: a feature, perhaps one of its tasks, and how that moved."""

    feature: str
    task: Task | None = None
    outcome: Outcome = "unknown"
    moved: bool = False


def keep_exchanges(
    ralph: Ralph, seen: Sequence[ExchangeSeen], *, session: str, title: str | None
) -> list[Kept]:
    """Keep what was said, each exchange once, in the conversation its session is."""
    talks = conversations_of(seen, source=CLAUDE_CODE, session=session, title=title, where=Home(""))
    return [
        kept
        for talk in talks
        for kept in ralph.conversations.add(talk.conversation, talk.exchanges)
    ]


def unkept(ralph: Ralph, seen: Sequence[ExchangeSeen], *, session: str) -> list[ExchangeSeen]:
    """Those that memory never had: what was kept or forgotten once is settled.

    A session that goes on is read from its beginning, and whatever was in focus when it was held
    need not be now.
    """
    ids = {_id(one, session): one for one in seen}
    met = ralph.conversations.met(ids)
    return [one for identity, one in ids.items() if identity not in met]


def _id(seen: ExchangeSeen, session: str) -> str:
    return exchange_id(conversation_id(CLAUDE_CODE, seen.session_id or session), seen.key)


def keep_iteration(
    ralph: Ralph, seen: ExchangeSeen, work: Work, *, session: str
) -> Remembered | None:
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
        task_title=task.title if task else beginning(seen),
        discipline=(task.discipline or "") if task else "",
        outcome=None if work.outcome == "unknown" else work.outcome,
    )
    # A person's session has no result line; its last words are the result, however short.
    summary = iteration.summary or seen.assistant
    return memory.remember(msgspec.structs.replace(iteration, session_id=run, summary=summary))


def _did_something(seen: ExchangeSeen) -> bool:
    captured = seen.captured
    changed = any(file.action != "read" for file in captured.files_touched)
    return bool(changed or captured.errors or captured.decisions)


def work_of(seen: ExchangeSeen, view: PlanView, focus: Focus | None) -> Work | None:
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
            return Work(feature, named[0] if named else None)
    if not moved:
        return Work(feature)
    # Of several tasks the one that got done says most, then the one that moved last.
    task = max(moved, key=lambda one: (_done(one, seen), one.updated or ""))
    return Work(feature, task, "success" if _done(task, seen) else _outcome(task, seen), moved=True)


def _moved(task: Task, seen: ExchangeSeen) -> bool:
    return _within(task.updated, seen) or _done(task, seen) or _commented(task, seen)


def _done(task: Task, seen: ExchangeSeen) -> bool:
    return task.status == "done" and _within(task.completed or task.updated, seen)


def _commented(task: Task, seen: ExchangeSeen) -> bool:
    return any(_within(comment.at, seen) for comment in task.comments)


def _outcome(task: Task, seen: ExchangeSeen) -> Outcome:
    if task.status in _MOVED or _commented(task, seen):
        return "partial"
    return "unknown"


def _within(at: str | None, seen: ExchangeSeen) -> bool:
    begun, ended = seen.captured.started_at, seen.captured.ended_at
    if not at or not begun or not ended:
        return False
    try:
        return _moment(begun) <= _moment(at) <= _moment(ended)
    except BadRecord:
        return False  # somebody wrote a time of his own into the plan


def _moment(at: str) -> datetime:
    return datetime.fromisoformat(utc(at))
