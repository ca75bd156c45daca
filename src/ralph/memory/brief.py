"""What matters in a project now: features in progress, recent sessions, mistakes, notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ralph.capture.decisions import is_plain
from ralph.memory.conversation_stream import ConversationStates
from ralph.memory.lessons import RepeatedError, repeated_errors, with_general_fix
from ralph.memory.past_work import PastWork, by_session, past_work
from ralph.memory.project import Focus
from ralph.memory.ralph import Ralph
from ralph.memory.replaced import no_longer_holds, read_replaced
from ralph.memory.spoken_rules import PersonsWords, put_off, standing_rules
from ralph.memory.store import NOTES, PLAN
from ralph.memory.working_commands import (
    KnownCommand,
    failing_commands,
    known_commands,
    working_commands,
)
from ralph.plan.learnings import prompt_lines
from ralph.plan.model import Feature, PlanView, Task
from ralph.recall import Replacement, exchange_of_run
from ralph.records.conversation import Exchange
from ralph.records.iteration import TRUNCATED, ErrorSeen, Iteration
from ralph.records.note import NOTE, TRUSTED, Note
from ralph.text.outcome import outcome_of
from ralph.text.sanitize import strip_marked
from ralph.text.tokens import rule

_FEATURES = 3
_SESSIONS = 3
_COMMITS = 3
_NOTES = 4
_RULES = 8
_OPEN_ENDS = 3
_LEAST_FILES = 2
_PROSE = (".md", ".txt", ".rst", ".adoc")
_MISTAKES = 3
# A command that was not run in so many sessions may no longer be right.
_COMMANDS_FROM = 10
# A check that failed in an older session is no open end any more.
_FAILING_FROM = 2
# A session that was stopped longer ago was taken up again, or given up.
_STOPPED_FROM = 3
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
    """What someone who starts to work here should know; new sessions and people's notes first.

    `put_off` is what a person said has to be undone or done later.
    """

    features: tuple[FeatureNow, ...]
    repeated: tuple[RepeatedError, ...]
    sessions: tuple[PastSession, ...]
    notes: tuple[Note, ...]
    rules: tuple[PersonsWords, ...] = ()
    commands: tuple[KnownCommand, ...] = ()
    failing: tuple[KnownCommand, ...] = ()
    put_off: tuple[PersonsWords, ...] = ()

    @property
    def origins(self) -> list[str]:
        """The conversations that it is made from."""
        words = (*self.rules, *self.put_off)
        commands = (*self.commands, *self.failing)
        found = [one.id for one in self.sessions]
        found += [one.origin for one in words]
        found += [one.origin for one in commands]
        return list(dict.fromkeys(found))


def brief(
    ralph: Ralph, view: PlanView, focus: Focus | None, *, without: frozenset[str] = frozenset()
) -> Brief:
    """Return what matters now; everything is empty if nothing was planned, said or done yet.

    `without` are conversations to leave out, because the model has them.
    """
    found = [_feature(ralph, view, focus, *one) for one in _features_now(ralph, view, focus)]
    features = tuple(one for one in found if one is not None)
    runs = [one.errors for now in features for one in now.told]
    notes = [content for _, content in ralph.notes.contents() if isinstance(content, Note)]
    sessions: tuple[PastSession, ...] = ()
    work: list[PastWork] = []
    recent: list[list[PastWork]] = []
    if ralph.conversations.exist:
        history = ralph.conversations.stream.lately(_EXCHANGES_READ)
        work = past_work(history.records[name] for name in _exchanges_in(history, without))
        recent = by_session(work)[-_SESSIONS_READ:]
        runs += [tuple(error for one in session for error in one.errors) for session in recent]
        sessions = tuple(_sessions(history, recent))
        private = [one for one in history.records.values() if one.kind == NOTE]
        notes += [ralph.conversations.stream.content(one) for one in private]
    replaced = read_replaced(ralph.project)
    notes = [one for one in notes if not no_longer_holds(replaced.get(one.id, ()), one.text)]
    wanted = {None, *(now.feature.name for now in features), ""}
    notes = [one for one in notes if one.feature in wanted]
    # A person's notes come first, then others'; the newest of each first.
    notes.sort(key=lambda one: (TRUSTED.index(one.by), one.at or ""), reverse=True)
    newest = [one for session in recent for one in session]
    commands = _lately_run(known_commands(newest), recent)
    lately = {session[0].conversation for session in recent[-_FAILING_FROM:]}
    return Brief(
        features=features,
        repeated=(
            *with_general_fix(repeated_errors(runs, least=_MISTAKE_FROM))[:_MISTAKES],
            # A stumble needs no fix: it says itself what not to do.
            *repeated_errors(_stumbles(recent), least=_MISTAKE_FROM, unsolved=True)[:_STUMBLES],
        ),
        sessions=sessions,
        notes=tuple(notes[:_NOTES]),
        rules=tuple(_current(standing_rules(work), replaced)[:_RULES]),
        commands=tuple(working_commands(commands)),
        failing=tuple(failing_commands(commands, lately)[:_OPEN_ENDS]),
        put_off=tuple(put_off(newest)[:_OPEN_ENDS]),
    )


def _current(
    rules: Iterable[PersonsWords], replaced: Mapping[str, Sequence[Replacement]]
) -> list[PersonsWords]:
    return [one for one in rules if not no_longer_holds(replaced.get(one.id, ()), one.text)]


def _lately_run(
    commands: Sequence[KnownCommand], sessions: Sequence[Sequence[PastWork]]
) -> list[KnownCommand]:
    """Return the commands that one of the last sessions ran: a project may have moved on.

    If none ran a command, all of them count.
    """
    lately = {session[0].conversation for session in sessions[-_COMMANDS_FROM:]}
    return [one for one in commands if one.origin in lately] or list(commands)


def _exchanges_in(history: ConversationStates, without: frozenset[str]) -> Iterable[str]:
    for conversation, exchanges in history.exchanges.items():
        if conversation not in without:
            yield from exchanges


def _stumbles(sessions: Iterable[Sequence[PastWork]]) -> list[list[ErrorSeen]]:
    return [
        [ErrorSeen(shape, count=times) for one in work for shape, times in one.stumbles.items()]
        for work in sessions
    ]


def _sessions(
    history: ConversationStates, recent: Sequence[Sequence[PastWork]]
) -> Iterator[PastSession]:
    """Yield the last session that changed or decided something, and earlier ones that were stopped
    while they changed the same files.
    """
    worth = [work for work in reversed(recent) if not _is_trivial(work)]
    if not worth:
        return
    files = _files(worth[0])
    before = worth[1 : 1 + _STOPPED_FROM]
    rest = [work for work in before if files & _files(work) and not work[-1].is_complete]
    for work in (worth[0], *rest[: _SESSIONS - 1]):
        name = work[0].conversation
        state = history.conversations.get(name)
        title = state.conversation.title if state else ""
        if exchanges := history.read_exchanges([name]):
            yield _session(name, title, work[-1].at, exchanges)


def _is_trivial(work: Sequence[PastWork]) -> bool:
    """Whether a session decided nothing, and changed nothing or a line of prose."""
    files = _files(work)
    if any(one.decided for one in work):
        return False
    is_prose = all(path.endswith(_PROSE) for path in files)
    return len(files) < _LEAST_FILES and is_prose and work[-1].is_complete


def _files(work: Iterable[PastWork]) -> frozenset[str]:
    return frozenset(path for one in work for path in one.changed)


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
