"""What matters in a project now: features in progress, recent sessions, mistakes, notes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from ralph.capture.decisions import is_plain
from ralph.memory.conversation_stream import ConversationStates
from ralph.memory.lessons import RepeatedError, repeated_errors
from ralph.memory.project import Focus
from ralph.memory.ralph import Ralph
from ralph.memory.store import NOTES, PLAN
from ralph.plan.learnings import prompt_lines
from ralph.plan.model import Feature, PlanView, Task
from ralph.recall import exchange_of_run
from ralph.records.conversation import Exchange
from ralph.records.iteration import TRUNCATED, ErrorSeen, Iteration
from ralph.records.note import NOTE, TRUSTED, Note
from ralph.text.outcome import outcome_of
from ralph.text.sanitize import strip_marked
from ralph.text.tokens import rule

_FEATURES = 3
_SESSIONS = 5
_COMMITS = 3
_NOTES = 4
_RESULT_CHARS = 220
# An error is a mistake if it was made this often in this many of the last sessions.
_MISTAKE_FROM = 3
_STUMBLES = 2
_SESSIONS_READ = 60
# How much of a long memory is read. What matters now is in the newest part.
_ITERATIONS_READ = 300
_EXCHANGES_READ = 1500
# As git prints it: `[main 1a2b3c4] Subject`.
_COMMITTED = re.compile(r"^\[[^\]\n]{1,100} [0-9a-f]{7,40}\] (.{3,200})$", re.M)


class PastSession(msgspec.Struct, frozen=True):
    """An earlier session: what was asked, what came of it, and what was committed."""

    at: str
    title: str
    result: str
    commits: tuple[str, ...]
    unfinished: bool
    id: str = ""


class FeatureNow(msgspec.Struct, frozen=True, kw_only=True):
    """A feature being worked on; `told` are its iterations in the loop, oldest first.

    `chosen` says why it is listed: a person set it, a task is in progress, or it was one of the
    last worked on.
    """

    feature: Feature
    chosen: str
    current_state: str
    tasks: tuple[Task, ...]
    told: tuple[Iteration, ...]
    learnings: tuple[str, ...]
    told_ids: tuple[str, ...] = ()


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What someone who starts to work here should know; new sessions and people's notes first."""

    features: tuple[FeatureNow, ...]
    repeated: tuple[RepeatedError, ...]
    sessions: tuple[PastSession, ...]
    notes: tuple[Note, ...]


def brief(ralph: Ralph, view: PlanView, focus: Focus | None) -> Brief:
    """Return what matters now; everything is empty if nothing was planned, said or done yet.

    For a memory on a server, the server's own plan counts.
    """
    there: Any = ralph
    if ralph.remote:
        return there.brief(focus)  # type: ignore[no-any-return]
    found = [_feature(ralph, view, focus, *one) for one in _features_now(ralph, view, focus)]
    features = tuple(one for one in found if one is not None)
    history: ConversationStates | None = None
    if ralph.conversations.exist:
        history = ralph.conversations.stream.lately(_EXCHANGES_READ)
    runs = [one.errors for now in features for one in now.told]
    notes = [content for _, content in ralph.notes.contents() if isinstance(content, Note)]
    sessions: list[PastSession] = []
    stumbles: list[tuple[ErrorSeen, ...]] = []
    if history is not None:
        talks = sorted(history.conversations.items(), key=lambda item: item[1].last)
        talks = talks[-_SESSIONS_READ:]
        met = [_met(history, history.exchanges.get(name, ())) for name, _ in talks]
        runs += [errors for errors, _ in met]
        stumbles = [made for _, made in met]
        for name, state in islice(reversed(talks), _SESSIONS):
            if exchanges := history.read_exchanges([name]):
                sessions.append(_session(name, state.conversation.title, state.last, exchanges))
        private = [one for one in history.records.values() if one.kind == NOTE]
        notes += [ralph.conversations.stream.content(one) for one in private]
    wanted = {None, *(now.feature.name for now in features), ""}
    notes = [one for one in notes if one.feature in wanted]
    # A person's notes come first, then others'; the newest of each first.
    notes.sort(key=lambda one: (TRUSTED.index(one.by), one.at or ""), reverse=True)
    return Brief(
        features=features,
        repeated=(
            *repeated_errors(runs, least=_MISTAKE_FROM),
            # A stumble needs no fix: it says itself what not to do.
            *repeated_errors(stumbles, least=_MISTAKE_FROM, unsolved=True)[:_STUMBLES],
        ),
        sessions=tuple(sessions),
        notes=tuple(notes[:_NOTES]),
    )


class _SeenErrors(msgspec.Struct, frozen=True):
    """The part of an exchange that lists its errors and stumbles."""

    errors: tuple[ErrorSeen, ...] = ()
    stumbles: dict[str, int] = {}


_errors_in = msgspec.json.Decoder(_SeenErrors).decode


def _met(
    history: ConversationStates, exchanges: Sequence[str]
) -> tuple[tuple[ErrorSeen, ...], tuple[ErrorSeen, ...]]:
    """Return the errors of a session, and its stumbles."""
    errors: list[ErrorSeen] = []
    stumbles: list[ErrorSeen] = []
    for one in exchanges:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # `verify` reports it
            seen = _errors_in(history.records[one].body)
            errors += seen.errors
            stumbles += (ErrorSeen(shape, count=times) for shape, times in seen.stumbles.items())
    return tuple(errors), tuple(stumbles)


def _session(name: str, title: str, at: str, exchanges: Sequence[Exchange]) -> PastSession:
    """Sum up a session; the last exchange that changed files says most about it."""
    asked = [one for one in exchanges if not is_plain(one.user)] or exchanges
    # An exchange that was stopped ends in the middle of the work.
    ended = [one for one in asked if one.status == "complete"] or asked
    main = ([one for one in ended if _changed(one)] or ended)[-1]
    commits = [subject for one in exchanges for subject in _commits(one)]
    result = outcome_of(main.user, strip_marked(main.assistant), _RESULT_CHARS)
    return PastSession(
        at=at,
        title=_title(title, strip_marked(exchanges[0].user)),
        result=result,
        commits=tuple(dict.fromkeys(commits))[-_COMMITS:],
        unfinished=exchanges[-1].status != "complete" and not rule("finished").search(result),
        id=name,
    )


def _title(title: str, request: str) -> str:
    """Return the title; if it is the beginning of the request, the whole request."""
    beginning = title.removesuffix(TRUNCATED)
    line = " ".join(request.split())
    return line if title != beginning and line.startswith(beginning) else title or request


def _commits(exchange: Exchange) -> list[str]:
    """Return what was committed, as git printed it, else as captured after a plain "commit it"."""
    calls = [x.content for x in exchange.messages if x.role == "tool" and not x.failed]
    printed = [subject for text in calls for subject in _COMMITTED.findall(text)]
    if printed or not is_plain(exchange.user):
        return printed
    # Other decisions of that exchange were no commits; a commit's subject is in its command.
    said = [one.description for one in exchange.decisions]
    return [subject for subject in said if not calls or any(subject in call for call in calls)]


def _changed(exchange: Exchange) -> bool:
    return any(file.action != "read" for file in exchange.files_touched)


def _feature(
    ralph: Ralph, view: PlanView, focus: Focus | None, name: str, chosen: str
) -> FeatureNow | None:
    newest = ralph.feature(name).newest(_ITERATIONS_READ)
    pairs = [(iteration, located.record.id) for located, iteration in newest]
    iterations = [iteration for iteration, _ in pairs]
    feature = next((one for one in view.features if one.name == name), None)
    planned = [task for task in view.tasks if task.feature == name]
    if feature is None and not iterations and not planned:
        return None
    feature = feature or Feature(name=name)
    # The task a person chose, then tasks in progress, then blocked ones.
    wanted = None if focus is None or focus.task_id is None else str(focus.task_id)
    tasks = [task for task in planned if str(task.id) == wanted]
    for status in ("in_progress", "blocked"):
        tasks += [task for task in planned if task.status == status and task not in tasks]
    last = max((one.iteration_number or 0 for one in iterations), default=0)
    task = tasks[0].id if tasks else None
    # What a session did for a feature is shown with the session.
    told = [pair for pair in pairs if exchange_of_run(pair[0].session_id) is None]
    return FeatureNow(
        feature=feature,
        chosen=chosen,
        current_state=view.current_state(name) if planned else "",
        tasks=tuple(tasks),
        told=tuple(iteration for iteration, _ in told),
        told_ids=tuple(identity for _, identity in told),
        learnings=tuple(prompt_lines(feature.learnings, current_iteration=last + 1, task_id=task)),
    )


def _features_now(ralph: Ralph, view: PlanView, focus: Focus | None) -> list[tuple[str, str]]:
    """Return the feature a person set, else the few in progress or worked on last, and why."""
    if focus is not None:
        return [(focus.feature, "in focus")]
    begun = [task for task in view.tasks if task.status == "in_progress"]
    begun.sort(key=lambda task: task.updated or task.created or "", reverse=True)
    found = {task.feature: "in progress" for task in begun}
    journals = ralph.store.journals
    last = {name: journals.newest_at(name) for name in ralph.store.names() - {NOTES, PLAN}}
    for name in sorted(last, key=lambda name: last[name], reverse=True):
        found.setdefault(name, "last worked on")
    return list(found.items())[:_FEATURES]
