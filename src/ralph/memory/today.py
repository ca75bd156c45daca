"""What a person wants to see first: today's sessions, what was told, a mistake, open ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Literal

import msgspec

from ralph.memory.activity import activity_everywhere
from ralph.memory.highlight import Highlight, best_highlight
from ralph.memory.inbox import waiting_rules
from ralph.memory.newest_work import ProjectWork, newest_work
from ralph.memory.past_work import by_session
from ralph.memory.ralph import Ralph
from ralph.memory.spoken_rules import put_off
from ralph.memory.stats import usage
from ralph.memory.timeline import events, local_day
from ralph.memory.working_commands import failing_commands, known_commands
from ralph.records.iteration import KIND as ITERATION
from ralph.text.times import local_today

# Of long memories, only the newest part is read.
_PROJECTS = 8
_EXCHANGES_READ = 300
_OPEN_DAYS = 7
_LONGEST_DAY_S = 25 * 3600.0


class SessionToday(msgspec.Struct, frozen=True, kw_only=True):
    """A session with its project; `exchanges` counts those of its last day."""

    id: str
    project: str
    title: str
    at: str
    exchanges: int
    is_complete: bool


class OpenWork(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits: put off by the person, stopped, or a check that fails.

    `id` is the exchange or the conversation that it is from.
    """

    kind: Literal["put off", "stopped", "fails"]
    project: str
    text: str
    at: str
    id: str


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of `day`, the last day with any, and what matters now.

    `iterations` counts those of this project today, by outcome. `told` counts the memories that
    sessions and agents were shown today, `told_sessions` those sessions. `waiting_rules` are the
    corrections in this folder's inbox.
    """

    day: str
    is_today: bool
    sessions: tuple[SessionToday, ...]
    iterations: dict[str, int]
    told: int
    told_sessions: int
    highlight: Highlight | None
    open_work: tuple[OpenWork, ...]
    waiting_rules: int


def today(ralph: Ralph) -> Today:
    """Return what happened last and what matters now, in all projects of this machine."""
    projects = newest_work(ralph, exchanges=_EXCHANGES_READ, projects=_PROJECTS)
    now = local_today()
    sessions = [session for project in projects for session in _sessions(project)]
    sessions.sort(key=lambda session: session.at, reverse=True)
    day = local_day(sessions[0].at) if sessions else ""
    told = _told(ralph, now)
    since = now - timedelta(days=_OPEN_DAYS)
    open_work = [one for project in projects for one in _open_work(project, since)]
    open_work.sort(key=lambda one: one.at, reverse=True)
    waiting = waiting_rules(ralph) if ralph.conversations.exist else []
    return Today(
        day=day,
        is_today=day == now.isoformat(),
        sessions=tuple(session for session in sessions if local_day(session.at) == day),
        iterations=usage(events(ralph, kinds=[ITERATION], since=now.isoformat())).outcomes,
        told=len(told),
        told_sessions=len({session for session, _ in told}),
        highlight=best_highlight(ralph, projects),
        open_work=tuple(open_work),
        waiting_rules=len(waiting),
    )


def _sessions(project: ProjectWork) -> Iterator[SessionToday]:
    for work in by_session(project.work):
        name = work[-1].conversation
        state = project.conversations.get(name)
        day = local_day(work[-1].at)
        yield SessionToday(
            id=name,
            project=project.project,
            title=state.conversation.title if state else "",
            at=work[-1].at,
            exchanges=sum(local_day(exchange.at) == day for exchange in work),
            is_complete=work[-1].is_complete,
        )


def _told(ralph: Ralph, day: date) -> set[tuple[str, str]]:
    """Return what each session was shown today: pairs of session and record."""
    shown: set[tuple[str, str]] = set()
    for event in activity_everywhere(str(ralph.project.home), _LONGEST_DAY_S):
        if local_day(event.at) == day.isoformat():
            shown |= {(event.session, identity) for identity, _ in event.shown}
    return shown


def _open_work(project: ProjectWork, since: date) -> Iterator[OpenWork]:
    """Yield what is open. A session that was stopped before `since` was left on purpose."""
    name = project.project
    for words in put_off(project.work):
        yield OpenWork(kind="put off", project=name, text=words.text, at=words.at, id=words.id)
    lately = [exchange for exchange in project.work if local_day(exchange.at) >= since.isoformat()]
    for session in by_session(lately):
        last = session[-1]
        state = project.conversations.get(last.conversation)
        if state is not None and not last.is_complete:
            title = state.conversation.title
            yield OpenWork(kind="stopped", project=name, text=title, at=last.at, id=last.id)
    for check in failing_commands(known_commands(project.work)) if lately else ():
        yield OpenWork(kind="fails", project=name, text=check.command, at=check.at, id=check.id)
