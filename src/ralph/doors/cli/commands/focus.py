"""`ralph focus`: what a person works on now."""

from __future__ import annotations

import click

from ralph.doors.cli.context import as_json, completing, number, the_project
from ralph.doors.cli.render import Page, print_json
from ralph.doors.cli.tree import Command


@click.command(cls=Command)
@click.argument("feature", required=False, shell_complete=completing("features"))
@click.argument("task_id", required=False, metavar="[TASK]", shell_complete=completing("tasks"))
@click.option("--clear", is_flag=True, help="Work on nothing in particular.")
@as_json
def focus(feature: str | None, task_id: str | None, clear: bool, as_json: bool) -> None:
    """Say what your own work with an agent belongs to.

    What `ralph record` is given without --feature belongs there from now on. No plan needs to
    name the feature. Without arguments it tells what the focus is.
    """
    from ralph.memory.project import Focus, clear_focus, read_focus, set_focus

    if clear and feature is not None:
        raise click.UsageError("--clear goes alone: name a feature, or clear the focus.")
    project = the_project()
    if clear:
        clear_focus(project)
    elif feature is not None:
        set_focus(project, Focus(feature, number(task_id)))
    now = read_focus(project)
    if as_json:
        print_json({"feature": now.feature, "task_id": now.task_id} if now else None)
    elif now is not None:
        task = "" if now.task_id is None else f", task {now.task_id}"
        Page().line(f"Focus: {now.feature}{task}")
    elif clear:
        Page().line("No focus any more.")
    else:
        Page().line("No focus. Set one: ralph focus FEATURE [TASK]")
