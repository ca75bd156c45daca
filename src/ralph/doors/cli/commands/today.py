"""`ralph today`, which is also `ralph` alone: what happened last, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ralph.doors.cli import cards, context
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result, excerpt, plain
from ralph.text.sanitize import plain_date
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from pathlib import Path

    from ralph.memory.highlight import Highlight
    from ralph.memory.today import OpenWork, SessionToday, Today
    from ralph.plan.model import Task

_SESSIONS = 5
_OPEN = 4
_TITLE_CHARS = 70
_HIGHLIGHT_CHARS = 160


@click.command(cls=Command)
def today() -> Result:
    """Show today's sessions, what was told, a repeated mistake, open ends, and what to do next.

    These are the sessions of all projects on this machine. `ralph` without a command shows the
    same.

    \b
    Examples:
      ralph
      ralph today --json
    """
    from ralph.memory.today import today as look

    if (address := context.server_address()) is not None:
        step = "ralph recent"
        return Result({"next": step}, [f"This folder's memory is on {address}.", f"Next: {step}"])
    with context.opened() as ralph:
        found = look(ralph)
        has_memory = bool(ralph.recent(1))
        records = is_recording(ralph.project.home)
    tasks = context.ready_tasks()
    step = _next_step(found, records=records, has_memory=has_memory, tasks=tasks)

    def show(page: Page) -> None:
        _show_sessions(page, found)
        if found.iterations:
            outcomes = ", ".join(f"{count} {name}" for name, count in found.iterations.items())
            page.line(f"Iterations of `ralph run` here today: {outcomes}")
        if found.told:
            sessions = plural(found.told_sessions, "session")
            memories = plural(found.told, "memory", "memories")
            page.line(f"Told today: {memories} in {sessions}. `ralph why` shows them.")
        if found.highlight is not None:
            page.line()
            show_highlight(page, found.highlight)
        if found.open_work:
            page.line()
            page.line(("Open", "bold"))
            for work in found.open_work[:_OPEN]:
                _show_open(page, work)
            page.more(len(found.open_work) - _OPEN)
        if found.waiting_rules:
            rules = plural(found.waiting_rules, "rule")
            page.line(f"{rules} from your corrections in this folder: ralph inbox")
        page.line()
        page.line(("Next: ", "bold"), step)
        page.line(("All commands: ralph --help", "dim"))

    return Result({"next": step, **plain(found)}, show)


def is_recording(home: Path) -> bool:
    """Whether hooks save the sessions of every folder, or have saved any here."""
    from ralph.memory.activity import activity_everywhere
    from ralph.memory.pausing import paused_folders

    return paused_folders(home) is not None or bool(activity_everywhere(str(home), float("inf")))


def _next_step(found: Today, *, records: bool, has_memory: bool, tasks: Sequence[Task]) -> str:
    """Return the command to run next, and why."""
    if found.waiting_rules:
        return "ralph inbox (decide what your corrections forbid)"
    if tasks:
        title = excerpt(tasks[0].title, _TITLE_CHARS)
        return f"ralph run ({plural(len(tasks), 'task')} ready, first: {title})"
    if not records:
        return "ralph hooks install --user (saves every session, and imports earlier ones)"
    stopped = next((work for work in found.open_work if work.kind == "stopped"), None)
    if stopped is not None:
        return f"ralph show {stopped.id[: cards.SHORT_ID]} (where you stopped)"
    if found.sessions or has_memory:
        return 'ralph search "..." (searches everything in memory)'
    return "use your agent as usual; its sessions are saved from now on"


def _show_sessions(page: Page, found: Today) -> None:
    if not found.sessions:
        page.line("No sessions are in memory yet.")
        return
    count = plural(len(found.sessions), "session")
    exchanges = plural(sum(session.exchanges for session in found.sessions), "exchange")
    day = "Today" if found.is_today else f"Nothing yet today. Last active on {found.day}"
    page.line((f"{day}: ", "bold"), f"{count}, {exchanges}")
    for session in found.sessions[:_SESSIONS]:
        _show_session(page, session)
    page.more(len(found.sessions) - _SESSIONS)


def _show_session(page: Page, session: SessionToday) -> None:
    title = excerpt(session.title, _TITLE_CHARS) or "(no title)"
    time = plain_date(session.at, 16)[11:]
    end = "" if session.is_complete else " (stopped)"
    project = f"{session.project}: " if session.project else ""
    page.line(cards.short_id(session.id), f"  {time}  {project}{title}{end}", indent=2)


def show_highlight(page: Page, highlight: Highlight) -> None:
    """Show a repeated mistake with its fix, or a decision."""
    text = excerpt(highlight.text, _HIGHLIGHT_CHARS)
    if highlight.kind == "decision":
        where = f" in {highlight.project}" if highlight.project else ""
        page.line((f"You decided{where} on {plain_date(highlight.at)}: ", "bold"), text)
    else:
        where = f" of {highlight.project}" if highlight.project else ""
        page.line((f"A mistake made in {highlight.times} sessions{where}: ", "bold"), text)
        page.line(f"Fix: {excerpt(highlight.fix, _HIGHLIGHT_CHARS)}", indent=2)
    page.line(f"Details: ralph show {highlight.id[: cards.SHORT_ID]}", indent=2)


def _show_open(page: Page, work: OpenWork) -> None:
    project = f"{work.project}: " if work.project else ""
    day = plain_date(work.at)
    text = excerpt(work.text, _TITLE_CHARS)
    page.line(cards.short_id(work.id), f"  {day}  {work.kind:8}{project}{text}", indent=2)
