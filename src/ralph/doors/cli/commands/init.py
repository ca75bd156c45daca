"""`ralph init`: a project's memory, made here."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ralph.doors.cli.opening import as_json, start_folder
from ralph.doors.cli.page import Page, note, print_json
from ralph.doors.cli.tree import Command


@click.command(cls=Command)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@as_json
def init(folder: str | None, as_json: bool) -> None:
    """Make a project's memory here.

    Nothing that is there is changed, so it may be run again at any time.
    """
    from ralph.config import home_folder
    from ralph.errors import BadInput
    from ralph.memories.project import Project, find_project

    root = Path(os.path.abspath(folder or start_folder()))  # noqa: PTH100 - links stay links
    home = home_folder()
    project = Project(root)
    if project.folder.resolve() == home.resolve():
        raise BadInput(
            "this folder's .ralph is the home of what belongs to no project",
            where=str(root),
            todo="Choose a project's folder, or set RALPH_HOME.",
        )
    above = None if project.exists else find_project(root.parent, home=home)
    root.mkdir(parents=True, exist_ok=True)
    made = [file.relative_to(root).as_posix() for file in project.init()]
    if above is not None:
        note(f"{above.root} above is a project too; here this one is used from now on")
    if as_json:
        print_json({"project": str(root), "id": project.id, "made": made})
        return
    page = Page()
    if not made:
        page.line(f"{root} has a memory already; nothing was changed.")
        return
    page.line(f"Made in {root}:")
    for name in made:
        page.line(name, indent=2)
    page.line("Commit .ralph to git: the journal is meant to travel with the project.")
