"""`ralph undo`: take back what the agent of an iteration changed in the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ralph.doors.cli import context
from ralph.doors.cli.cards import minute
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result
from ralph.errors import BadInput
from ralph.memory.journal_copies import JournalCopies
from ralph.plan.undo import AgentChanges, UndoFolder
from ralph.plan.undo import undo as undo_changes


@click.command(cls=Command)
@click.argument("change", metavar="[ID]", required=False)
@context.flag("--list", "Show what can be undone, and change nothing.", "show_list")
def undo(change: str | None, show_list: bool) -> Result:
    """Take back what an agent changed in the plan in one iteration.

    `ralph run` shows these changes and their ID after each iteration; without ID, the newest are
    undone. What was changed again since stays as it is, and so do the status and the comments of
    the agent's own task. If git took lines of the journal, they are put back, too.

    \b
    Examples:
      ralph undo
      ralph undo 3fa9c2d1
      ralph undo --list
    """
    if show_list and change:
        raise BadInput("--list goes without an ID", todo="Leave one of them out.")
    kept = UndoFolder(context.the_project().cache)
    if show_list:
        return _listed(kept.all())
    changes = kept.find(change)
    undone, left = undo_changes(context.the_plan(), changes)
    restored = _restored_journal(changes)
    kept.drop(changes)
    value = {
        "id": changes.id,
        "feature": changes.feature,
        "undone": undone,
        "left": left,
        "journal": restored,
    }
    lines = [f"Undone, {line}" for line in undone]
    lines += [f"Left as it is, because it was changed since: {line}" for line in left]
    lines += [f"Restored {line}" for line in restored]
    return Result(value, lines or "Nothing is left to undo of it.")


def _listed(found: list[AgentChanges]) -> Result:
    value: list[dict[str, Any]] = [
        {
            "id": changes.id,
            "feature": changes.feature,
            "title": changes.title,
            "at": changes.at,
            "lines": changes.lines(),
        }
        for changes in found
    ]

    def show(page: Page) -> None:
        for changes in found:
            where = f"  {minute(changes.at)}  {changes.feature}: {changes.title}"
            page.line((changes.id, "cyan"), where)
            for line in changes.lines():
                page.line(line, indent=2)

    return Result(value, show if found else "There is nothing to undo.")


def _restored_journal(changes: AgentChanges) -> list[str]:
    if changes.journal is None:
        return []
    with context.opened(anywhere=False) as ralph:
        copies = JournalCopies(ralph)
        restored, _ = copies.restore(Path(changes.journal), lambda file, lost: set())
    return restored
