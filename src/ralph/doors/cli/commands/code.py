"""`ralph blame` and `ralph how`: what memory knows about the code and how to work with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.doors.cli import cards, context
from ralph.doors.cli.cards import SHORT_ID
from ralph.doors.cli.commands.recall import scope_of_caller
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result, excerpt, plain
from ralph.text.sanitize import plain_date
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.blame import Blame, FileChange
    from ralph.memory.file_work import BrokenHere, StatedDecision
    from ralph.memory.invocations import HowTo, Invocation

_TEXT_CHARS = 300
_TITLE_CHARS = 100
_SHORT_COMMIT = 7
_MOST_CHANGES = 20


@click.command(cls=Command)
@click.argument("target", metavar="FILE[:LINE]")
def blame(target: str) -> Result:
    """Show why a line or a file is as it is.

    From a line to its commit, the session that made it, what was decided and rejected there,
    and what broke in the file. A commit is matched by what its message says, else by its lines.
    For a file: every session that changed it, and how much of that is still there.

    \b
    Examples:
      ralph blame src/shop/cart.py:42
      ralph blame src/shop/cart.py --json
    """
    from ralph.memory.blame import blame as look

    with context.opened() as ralph:
        found = look(ralph, target, folder=Path.cwd(), scope=scope_of_caller())
    return Result(plain(found), lambda page: _show_blame(page, found))


def _show_blame(page: Page, found: Blame) -> None:
    place = found.path if found.line is None else f"{found.path}:{found.line}"
    page.line((place, "bold"), f"  {excerpt(found.text, _TITLE_CHARS)}")
    if found.commit is not None:
        commit = found.commit
        bot = " | a bot's commit" if commit.bot else ""
        page.line(
            ("commit ", "dim"),
            (commit.id[:_SHORT_COMMIT], "yellow"),
            f"  {plain_date(commit.at)}, {commit.author}{bot}  {excerpt(commit.subject, 80)}",
        )
    if found.note:
        page.line((found.note, "yellow"))
    if found.line is not None:
        _show_session(page, found)
    for change in found.changes[:_MOST_CHANGES]:
        _show_change(page, change, with_session=change.session != found.session)
    page.more(len(found.changes) - _MOST_CHANGES)
    for name, stated in (("decided ", found.decisions), ("rejected ", found.rejected)):
        for item in stated:
            _show_stated(page, name, item, with_id=found.line is None)
    for broken in found.broke:
        _show_broken(page, broken)


def _show_session(page: Page, found: Blame) -> None:
    from ralph.memory.blame import unknown_writer

    if found.session:
        how = "named by the commit" if found.found_by == "trailer" else "found by its lines"
        page.line(("session ", "dim"), cards.short_id(found.session), f"  {how}")
    elif found.record:
        page.line(("iteration ", "dim"), cards.short_id(found.record), "  named by the commit")
    elif found.named:
        page.line(unknown_writer(found.named))
    elif not (found.commit and found.commit.bot):
        page.line("No session in memory is known to have written this line.")


def _show_change(page: Page, change: FileChange, *, with_session: bool) -> None:
    left = ""
    if change.lines:
        left = f" | {change.surviving} of {plural(change.lines, 'line')} still here"
    session = f" | conversation {change.session[:SHORT_ID]}" if with_session else ""
    session = session if change.session else f" | {change.kind}"
    page.line(cards.short_id(change.id), f"  {plain_date(change.at)}{session}{left}")
    page.line(excerpt(change.title, _TITLE_CHARS), indent=2)


def _show_stated(page: Page, name: str, item: StatedDecision, *, with_id: bool) -> None:
    who = " (a person)" if item.by == "human" and name != "rejected " else ""
    why = f" (because: {excerpt(item.why, _TITLE_CHARS)})" if item.why and not who else ""
    identity = f" [{item.id[:SHORT_ID]}]" if with_id else ""
    style = "red" if name == "rejected " else "blue"
    page.line((name, style), f"{excerpt(item.text, _TEXT_CHARS)}{why}{who}{identity}", indent=2)


def _show_broken(page: Page, broken: BrokenHere) -> None:
    solved = f"; fixed: {excerpt(broken.resolution, _TITLE_CHARS)}" if broken.resolution else ""
    text = f"{excerpt(broken.message, _TITLE_CHARS)}{solved}"
    facts = f" [{broken.id[:SHORT_ID]}, {plain_date(broken.at)}]"
    page.line(("broke here ", "red"), text, (facts, "dim"), indent=2)


@click.command(cls=Command)
@click.argument("question", nargs=-1, required=True)
def how(question: tuple[str, ...]) -> Result:
    """Show which commands worked here for something, and which failed.

    They come from what sessions ran: how often a command worked, when last, and what it said when
    it failed.

    \b
    Examples:
      ralph how "run the tests"
      ralph how lint
    """
    words = " ".join(question)
    with context.opened() as ralph:
        found = ralph.how_to(words, scope_of_caller())
    return Result(plain(found), lambda page: _show_how(page, found))


def _show_how(page: Page, found: HowTo) -> None:
    if not (found.worked or found.failed):
        page.line(f"No session in memory ran a command for {found.question!r}.")
    for item in found.worked:
        times = f"worked {_times(item.worked)}, last {plain_date(item.last_worked)}"
        failed = f"; failed {_times(item.failed)}" if item.failed else ""
        page.line((item.command, "bold"))
        page.line((f"{times}{failed} [{item.id[:SHORT_ID]}]", "dim"), indent=2)
    for item in found.failed:
        _show_failed(page, item)


def _show_failed(page: Page, item: Invocation) -> None:
    page.line(("failed ", "red"), item.command)
    worked = f"; worked {_times(item.worked)} before" if item.worked else ""
    said = f": {excerpt(item.failure, _TITLE_CHARS)}" if item.failure else ""
    when = f"{_times(item.failed)}, last {plain_date(item.last_failed)}"
    page.line((f"{when}{worked}{said} [{item.id[:SHORT_ID]}]", "dim"), indent=2)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
