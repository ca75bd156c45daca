"""`ralph focus`: what a person works on now."""

from __future__ import annotations

import click

from ralph.doors.cli.opening import as_json, the_project
from ralph.doors.cli.page import Page, print_json
from ralph.doors.cli.tree import Command


@click.command(cls=Command)
@click.argument("feature", required=False)
@click.argument("task_id", required=False, metavar="[TASK]")
@click.option("--clear", is_flag=True, help="Work on nothing in particular.")
@as_json
def focus(feature: str | None, task_id: str | None, clear: bool, as_json: bool) -> None:
    """Say which feature, and which task, your own work with an agent belongs to.

    Without arguments it tells what the focus is.
    """
    from ralph.memories.focus import Focus, clear_focus, read_focus, set_focus

    project = the_project()
    if clear:
        clear_focus(project)
    elif feature is not None:
        set_focus(project, Focus(feature, task_id))
    now = read_focus(project)
    if as_json:
        print_json({"feature": now.feature, "task": now.task_id} if now else None)
    elif now is None:
        Page().line("No focus. Set one: ralph focus FEATURE [TASK]")
    else:
        Page().line(f"Focus: {now.feature}" + (f", task {now.task_id}" if now.task_id else ""))
