"""Home, the badge, the timeline and search."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import date, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from urllib.parse import quote

from starlette.responses import Response

from ralph import disk
from ralph.clients.drift import drift_told
from ralph.config import home_folder
from ralph.doors.web.page import PageCall, money, paged, tokens_text
from ralph.errors import BadInput, BadPlan, MemoryOff
from ralph.memory import timeline as history
from ralph.memory.stats import grouped, recall_stats
from ralph.memory.timeline import Event, Events
from ralph.recall import Hit
from ralph.recall.kinds import KINDS, LABELS
from ralph.records.conversation import Status
from ralph.records.iteration import Outcome
from ralph.text.times import local_today
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.loop.agent import PendingIteration

_DAYS = 30
_TODAY_ROWS = 12
_WEEK_ROWS = 10
_ENDS = 12
_OPEN_DAYS = 7
_SHORTEST_QUESTION = 3
# How long a search may delay the page to index new records.
_CATCH_UP_S = 2.0
OUTCOMES = (*get_args(Outcome), *(one for one in get_args(Status) if one not in get_args(Outcome)))


class Row(NamedTuple):
    """One record in a list of mixed kinds."""

    id: str
    label: str
    at: str
    title: str
    outcome: str = ""
    feature: str = ""


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


class OpenEnd(NamedTuple):
    """Unfinished work that waits for someone."""

    word: str
    text: str
    path: str


# -- home


def home(call: PageCall) -> Response:
    """Show recent events, repeated mistakes, unfinished work and costs."""
    today = local_today()
    days = [today - timedelta(days=back) for back in reversed(range(_DAYS))]
    found = history.events(call.memory, since=days[0].isoformat())
    used = grouped(found, lambda one: history.local_day(one.at))
    call.site.look()
    lately = _lately(call, found, today)
    by_day = {one.key: one for one in used}

    def chart(name: str, field: str, shown: Callable[..., str]) -> DayChart:
        values = [getattr(by_day.get(day.isoformat()), field, 0) for day in days]
        return DayChart(name, days, values, shown)

    return call.page(
        "home.html",
        running=running(call),
        drift=drift_told(home_folder()),
        lately=lately,
        nothing=not any(rows for _, rows in lately) and not call.memory.recent(1),
        mistakes=history.mistakes(call.memory),
        ends=_open_ends(call),
        cost=chart("Cost", "cost_usd", money),
        unpriced=sum(one.unpriced for one in used),
        tokens=chart("Tokens", "tokens_used", tokens_text),
        spending=[one for one in grouped(found, lambda one: one.feature) if one.tokens_used],
        used=_used(call, days[0]),
    )


def _lately(call: PageCall, found: Events, today: date) -> list[tuple[str, list[Row]]]:
    rows = [_row(one) for one in found[: 4 * _TODAY_ROWS]]
    rows += [hit_row(hit) for hit in call.memory.recent(_WEEK_ROWS, kinds=("note", "learning"))]
    rows.sort(key=lambda row: row.at, reverse=True)
    named: dict[str, list[Row]] = {"Today": [], "Yesterday": [], "This week": [], "Before": []}
    for row in rows:
        day = history.local_day(row.at)
        ago = (today - date.fromisoformat(day)).days if day else _DAYS
        name = "Today" if ago <= 0 else "Yesterday" if ago == 1 else "This week"
        named[name if ago < 7 else "Before"].append(row)
    before = named.pop("Before")[:_WEEK_ROWS]
    shown = [(name, some[:_TODAY_ROWS]) for name, some in named.items()]
    return shown if any(some for _, some in shown) else [("Before this week", before)]


def _row(event: Event) -> Row:
    ended = "" if event.outcome == "complete" else event.outcome
    return Row(event.id, KINDS[event.kind].label, event.at, event.title, ended, event.feature)


def hit_row(hit: Hit) -> Row:
    """Return a record of any kind as a row."""
    row = KINDS[hit.kind]
    record = hit.record
    ended = getattr(record, "outcome", "")
    feature = getattr(record, "feature", "") or ""
    return Row(hit.id, row.label, hit.at, row.headline(record), ended, feature)


def _open_ends(call: PageCall) -> list[OpenEnd]:
    from ralph.memory.gates import gates

    ends: list[OpenEnd] = []
    with contextlib.suppress(MemoryOff):
        for one in gates(call.memory):
            text = f"Task {one.gate.task} was rejected at the {one.gate.gate_type} gate"
            ends.append(OpenEnd("rejected", text, f"/record/{one.id}"))
    with contextlib.suppress(BadPlan):
        tasks = call.plan.read("tasks").tasks
        ends += [
            OpenEnd(
                status,
                f"{task.feature}: {task.title}",
                f"/features/{quote(task.feature, safe='')}",
            )
            for status in ("in_progress", "blocked")
            for task in tasks
            if task.status == status
        ]
    if call.memory.conversations.exist:
        ends += _unfinished(call)
    return ends[:_ENDS]


def _unfinished(call: PageCall) -> list[OpenEnd]:
    """Return the recent sessions whose last exchange was interrupted or failed."""
    since = local_today() - timedelta(days=_OPEN_DAYS)
    last: dict[str, Event] = {}
    for one in history.events(call.memory, kinds=["exchange"], since=since.isoformat()):
        last.setdefault(one.conversation, one)
    return [
        OpenEnd(one.outcome, one.title, f"/record/{one.id}")
        for one in last.values()
        if one.outcome != "complete"
    ]


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


def running(call: PageCall) -> list[tuple[PendingIteration, bool]]:
    """Return the unfinished iterations, each with whether its agent is still running."""
    folder = call.site.project.cache / "runs"
    if not disk.is_folder(folder):
        return []
    from ralph.loop.agent import RunFolder
    from ralph.loop.process import LOCK

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


# -- timeline


def timeline(call: PageCall) -> Response:
    """Show the iterations and exchanges that match the filters, by day."""
    query = call.query
    kind, outcome, feature = (query.get(name, "") for name in ("kind", "outcome", "feature"))
    found = history.events(
        call.memory,
        kinds=[kind] if kind in ("iteration", "exchange") else (),
        features=[feature] if feature else None,
        outcomes=[outcome] if outcome else (),
        text=query.get("text", ""),
        since=query.get("since") or None,
        until=query.get("until") or None,
    )
    rows, paging = paged(found, call.number)
    records = history.contents(call.memory, rows)
    days = [(day, list(some)) for day, some in groupby(rows, lambda one: history.local_day(one.at))]
    return call.page(
        "timeline.html",
        days=days,
        records=records,
        paging=paging,
        outcomes=OUTCOMES,
        features=[memory.name for memory in call.memory.features()],
    )


# -- search


def search(call: PageCall) -> Response:
    """Show the search results, best first; with `part`, only the results and not the page."""
    question = call.query.get("q", "").strip()
    kinds = [one for one in call.query.getlist("kind") if one in LABELS]
    hits: list[tuple[Row, str, Hit]] = []
    notes: list[str] = []
    if len(question) >= _SHORTEST_QUESTION or not question.isascii():
        with contextlib.suppress(BadInput):  # an unusable query just finds nothing
            floor = 0.0 if call.query.get("weak") else None
            answer = call.memory.search(
                question, kinds=kinds, limit=20, min_score=floor, budget_s=_CATCH_UP_S
            )
            hits = [_result(hit) for hit in answer]
            notes = list(answer.notes)
    values: dict[str, Any] = {
        "question": question,
        "kinds": kinds,
        "hits": hits,
        "notes": notes,
        "labels": LABELS,
        "weak": bool(call.query.get("weak")),
        "floor": f"{call.memory.config.settings.min_score:.2f}",
    }
    if call.query.get("part"):
        return call.part("results.html", **values)
    return call.page("search.html", **values)


def _result(hit: Hit) -> tuple[Row, str, Hit]:
    """Return a hit as a row, with the text below its title."""
    row = hit_row(hit)
    text = KINDS[hit.kind].text(hit.record)
    return row, "" if text == row.title else text, hit
