"""Today: what waits for the person, what they decided, what is open, and the latest work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import date, timedelta
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from ralph import disk
from ralph.clients.drift import drift_told
from ralph.config import home_folder
from ralph.doors.web.page import PageCall, money, tokens_text
from ralph.doors.web.views_import import import_of, new_sessions
from ralph.errors import BadInput, BadPlan, MemoryOff
from ralph.loop.agent import PendingIteration, RunFolder
from ralph.loop.process import LOCK
from ralph.memory import timeline as history
from ralph.memory.conversations import ProjectCount
from ralph.memory.inbox import waiting_rules
from ralph.memory.lessons import RepeatedError
from ralph.memory.overview import ProjectOverview, overviews
from ralph.memory.session_days import SessionDay, session_days
from ralph.memory.stats import Usage, grouped, recall_stats
from ralph.memory.timeline import Event, Events
from ralph.text.times import local_today
from ralph.text.tokens import plural

_DAYS = 30
_DECISIONS = 8
_NOTES = 20
_MISTAKES = 6
_ENDS = 10
_OPEN_DAYS = 7
_UNFINISHED = 5
_SESSIONS = 6
_EVENTS = 60
_WAITING = 3


class DayChart(NamedTuple):
    """A value for each day, even if it is 0; `shown` formats a value."""

    name: str
    days: list[date]
    values: list[float]
    shown: Callable[..., str]

    @property
    def total(self) -> float:
        """The sum of all days."""
        return sum(self.values)


class Decided(NamedTuple):
    """What a person decided or noted, in their words."""

    id: str
    text: str
    at: str
    project: str
    is_note: bool = False


class OpenEnd(NamedTuple):
    """Unfinished work that waits for someone."""

    word: str
    text: str
    path: str
    project: str = ""


class Mistake(NamedTuple):
    """An error that came back, and the project it came back in."""

    error: RepeatedError
    project: str


class RecentWork(NamedTuple):
    """The events of the last days, and how much they used."""

    events: Events
    days: list[date]
    usage: list[Usage]

    def on(self, day: date) -> int:
        """How many exchanges and iterations there were on a day."""
        used = [one for one in self.usage if one.key == day.isoformat()]
        return sum(one.iterations + one.exchanges for one in used)

    def since(self, day: date) -> int:
        """How many exchanges and iterations there were from a day on."""
        used = [one for one in self.usage if one.key >= day.isoformat()]
        return sum(one.iterations + one.exchanges for one in used)

    def chart(self, name: str, field: str, shown: Callable[..., str]) -> DayChart:
        """Return one figure of the usage for each day."""
        by_day = {one.key: one for one in self.usage}
        values = [getattr(by_day.get(day.isoformat()), field, 0) for day in self.days]
        return DayChart(name, self.days, values, shown)


def overview(call: PageCall) -> Response:
    """Show decisions, open ends, repeated mistakes, what waits for an answer, and latest work."""
    today = local_today()
    work = _work(call, today)
    call.site.look()
    found = overviews(call.memory, everywhere=call.everywhere)
    waiting = waiting_rules(call.memory)
    sessions = _sessions(call, work.events)
    waiting_texts = {check.text for check in waiting[:_WAITING]}
    decisions = [one for one in _decisions(call, found) if one.text not in waiting_texts]
    nothing = not (sessions or decisions)
    cost = work.chart("Cost", "cost_usd", money)
    tokens = work.chart("Tokens", "tokens_used", tokens_text)
    features = grouped(work.events, lambda one: one.feature)
    return call.page(
        "today.html",
        today=today,
        running=running(call),
        drift=drift_told(home_folder()),
        counts=(work.on(today), work.since(today - timedelta(days=6))),
        waiting=waiting[:_WAITING],
        waiting_count=len(waiting),
        decisions=decisions[:_DECISIONS],
        sessions=sessions,
        nothing=nothing,
        importing=import_of(call),
        histories=new_sessions(call) if nothing else [],
        mistakes=_mistakes(found),
        ends=_open_ends(call, found)[:_ENDS],
        projects=_projects(call),
        cost=cost,
        unpriced=sum(one.unpriced for one in work.usage),
        tokens=tokens,
        spending=[one for one in features if one.tokens_used],
        used=_used(call, work.days[0]),
    )


def _work(call: PageCall, today: date) -> RecentWork:
    days = [today - timedelta(days=back) for back in reversed(range(_DAYS))]
    since = days[0].isoformat()
    events = history.events(call.memory, since=since, everywhere=call.everywhere)
    usage = grouped(events, lambda one: history.local_day(one.at))
    return RecentWork(events, days, usage)


def _sessions(call: PageCall, events: Events) -> list[SessionDay]:
    """Return the latest sessions that did more than go on, of whatever age."""
    newest = events[:_EVENTS]
    if not newest:
        newest = history.events(call.memory, everywhere=call.everywhere)[:_EVENTS]
    days = session_days(call.memory, newest, everywhere=call.everywhere)
    sessions = [one for _, group in days for one in group]
    return [one for one in sessions if not one.is_plain][:_SESSIONS]


def _decisions(call: PageCall, found: list[ProjectOverview]) -> list[Decided]:
    """Return the rules of the sessions and the person's own notes, the newest first."""
    decided = [
        Decided(rule.id, rule.text, rule.at, one.project) for one in found for rule in one.rules
    ]
    notes = call.memory.recent(_NOTES, kinds=("note",))
    decided += [
        Decided(hit.id, hit.record.text, hit.at, call.site.name, True)
        for hit in notes
        if hit.record.by == "human" and not hit.is_replaced
    ]
    return sorted(decided, key=lambda one: one.at, reverse=True)


def _mistakes(found: list[ProjectOverview]) -> list[Mistake]:
    mistakes = [Mistake(error, one.project) for one in found for error in one.mistakes]
    return sorted(mistakes, key=lambda one: one.error.times, reverse=True)[:_MISTAKES]


def _projects(call: PageCall) -> list[ProjectCount]:
    """Return what each other project has; folders of the same name count as one project."""
    counts = call.memory.conversations.other_projects() if call.everywhere else []
    merged: dict[str, ProjectCount] = {}
    for count in counts:
        first = merged.get(count.project)
        if first is not None:
            count = msgspec.structs.replace(
                first,
                conversations=first.conversations + count.conversations,
                exchanges=first.exchanges + count.exchanges,
            )
        merged[count.project] = count
    return list(merged.values())


# -- open ends


def _open_ends(call: PageCall, found: list[ProjectOverview]) -> list[OpenEnd]:
    ends = [*_rejected(call), *_tasks_under_way(call), *_unfinished(call)]
    for one in found:
        ends += [
            OpenEnd("failing", f"`{check.command}`", f"/record/{check.id}", one.project)
            for check in one.failing
        ]
        ends += [
            OpenEnd("later", words.text, f"/record/{words.id}", one.project)
            for words in one.put_off
        ]
    return ends


def _rejected(call: PageCall) -> list[OpenEnd]:
    from ralph.memory.gates import gates

    with contextlib.suppress(MemoryOff):
        return [
            OpenEnd(
                "rejected",
                f"Task {one.gate.task} was rejected at the {one.gate.gate_type} gate",
                f"/record/{one.id}",
                call.site.name,
            )
            for one in gates(call.memory)
        ]
    return []


def _tasks_under_way(call: PageCall) -> list[OpenEnd]:
    with contextlib.suppress(BadPlan):
        tasks = call.plan.read("tasks").tasks
        return [
            OpenEnd(
                status,
                f"{task.feature}: {task.title}",
                f"/features/{quote(task.feature, safe='')}",
                call.site.name,
            )
            for status in ("in_progress", "blocked")
            for task in tasks
            if task.status == status
        ]
    return []


def _unfinished(call: PageCall) -> list[OpenEnd]:
    """Return the recent sessions whose last exchange was interrupted or failed."""
    conversations = call.memory.conversations
    if not (call.everywhere or conversations.exist):
        return []
    since = local_today() - timedelta(days=_OPEN_DAYS)
    found = history.events(
        call.memory, kinds=["exchange"], since=since.isoformat(), everywhere=call.everywhere
    )
    last: dict[str, Event] = {}
    for one in found:
        last.setdefault(one.conversation, one)
    states = conversations.states(everywhere=call.everywhere)
    ends = []
    for event in last.values():
        if event.outcome != "complete":
            talk = states[event.conversation].conversation
            path = f"/record/{event.id}"
            ends.append(OpenEnd(event.outcome, talk.title or event.title, path, talk.project))
    return ends[:_UNFINISHED]


# -- how memory is used


def _used(call: PageCall, since: date) -> list[tuple[str, str]]:
    """Return how often sessions and agents were shown memories recently, and whether it helped."""
    found: list[tuple[str, str]] = []
    recall = recall_stats(call.memory, since=since.isoformat(), until=None)
    if recall.recalls:
        memories = plural(recall.memories, "memory", "memories")
        found.append(
            ("Shown to your sessions", f"{memories} in {plural(recall.recalls, 'prompt')}")
        )
    commands = {
        "First command after a memory": recall.first_with,
        "Next command after a solution": recall.retry_with,
    }
    found += [
        (name, f"passed {given.passed} of {given.commands} times")
        for name, given in commands.items()
        if given.commands
    ]
    with contextlib.suppress(BadPlan):
        learned = [one for each in call.plan.read("features").features for one in each.learnings]
        if learned:
            again = sum(one.hit_count - 1 for one in learned)
            found.append(("Learnings", f"{len(learned)}, seen again {plural(again, 'time')}"))
    with contextlib.suppress(MemoryOff):
        known = call.memory.knowledge.state.history()
        worked, failed = (sum(one.values()) for one in (known.worked, known.failed))
        if shown := worked + failed:
            found.append(("Lessons shown to agents", f"{plural(shown, 'time')}, {worked} worked"))
    return found


# -- what changes while the page is open


def running(call: PageCall) -> list[tuple[PendingIteration, bool]]:
    """Return the unfinished iterations, each with whether its agent is still running."""
    folder = call.site.project.cache / "runs"
    if not disk.is_folder(folder):
        return []
    found: list[tuple[PendingIteration, bool]] = []
    for work, place in RunFolder(folder).unfinished():
        try:
            with disk.lock(place / LOCK, timeout_s=0.0):
                found.append((work, False))
        except disk.Busy:
            found.append((work, True))
        except OSError:
            continue
    return found


def live(call: PageCall) -> Response:
    """Return the unfinished iterations as HTML, for the script that refreshes them."""
    return call.part("live.html", running=running(call))


def badge(call: PageCall) -> Response:
    """Return the badge as HTML, with a current status."""
    call.site.look()
    return call.part("badge.html")


def choose_projects(call: PageCall) -> Response:
    """Show this project only, or all of them, until chosen otherwise."""
    chosen = call.form.get("projects")
    if chosen not in ("all", "this"):
        raise BadInput("choose this project or all projects")
    call.session.everywhere = chosen == "all"
    return call.redirect(call.back("/"))
