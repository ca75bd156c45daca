"""`ralph trust`: what a project's folder asks for, and a person's yes to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.context import as_json, start_folder, the_project
from ralph.doors.cli.render import Page, count, note, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.memory.project import Project
    from ralph.trust import Wish

TODO = "To see and allow it: ralph trust"


@click.command(cls=Command)
@click.option("--list", "listing", is_flag=True, help="Show the folders you trust.")
@click.option("--revoke", is_flag=True, help="Allow this folder nothing any more.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def trust(listing: bool, revoke: bool, yes: bool, as_json: bool) -> None:
    """Show what a project asks for, and allow it.

    A project's files may be somebody else's. Settings that start programs, spend money or send
    data away, MCP servers of disciplines, files of another user, and the memory of another folder
    with the same project id count only after you have seen them here and said yes. When one of
    them changes you are asked again. What you set yourself with `ralph config` or
    `ralph discipline` is trusted already.
    """
    if listing + revoke + yes > 1:
        raise click.UsageError("Choose one: --list, --revoke or --yes.")
    if listing:
        _list(as_json=as_json)
    elif revoke:
        _revoke(as_json=as_json)
    else:
        _trust(yes=yes, as_json=as_json)


def tell_untrusted() -> None:
    """One line for what this project asks for and does not get."""
    from ralph.config import home_folder
    from ralph.memory.project import untrusted

    if waiting := untrusted(the_project(), home=home_folder()):
        asked = "; ".join(one.text for one in waiting)
        note(f"this project asks for what you have not allowed, so it is left out: {asked}. {TODO}")


def _trust(*, yes: bool, as_json: bool) -> None:
    from ralph import trust as store
    from ralph.config import home_folder
    from ralph.memory.project import untrusted, wishes_of

    project, home = the_project(anyones=True), home_folder()
    asked = wishes_of(project, home=home)
    store.trusted_folders(home)  # a list that cannot be read is told before anybody is asked
    waiting = untrusted(project, home=home)
    if not as_json:
        _show(project, asked, waiting)
    if waiting and not yes:
        _confirm(waiting)
    if waiting:
        store.trust(home, project.root, asked)
    if as_json:
        print_json({"folder": str(project.root), "wishes": [_json(one) for one in asked]})
    elif waiting:
        Page().line(f"Trusted: {project.root}")


def _show(project: Project, asked: list[Wish], waiting: list[Wish]) -> None:
    page = Page()
    if not asked:
        page.line(f"{project.root} asks for nothing that needs your trust.")
        return
    page.line(f"{project.root} asks for:")
    for one in asked:
        new = one in waiting
        page.line(("new  " if new else "     ", "yellow"), one.text, indent=2)
    if not waiting:
        page.line("You allowed all of it. To take that back: ralph trust --revoke")


def _confirm(waiting: list[Wish]) -> None:
    from ralph.errors import BadInput

    number = count(len(waiting), "wish", "wishes")
    if not sys.stdin.isatty():
        raise BadInput(
            f"{number} of this project need a yes and there is nobody to ask: "
            + "; ".join(one.text for one in waiting),
            todo="Look at it, then add --yes. Nothing was allowed.",
        )
    sys.stdout.flush()
    sys.stderr.write("Type yes to allow this: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise BadInput("that was not yes", todo="Nothing was allowed.")


def _list(*, as_json: bool) -> None:
    from ralph import trust as store
    from ralph.config import home_folder

    found = sorted(store.trusted_folders(home_folder()).items())
    if as_json:
        print_json(
            [{"folder": f, "at": one.at, "wishes": [*one.wishes.values()]} for f, one in found]
        )
        return
    page = Page()
    for folder, one in found:
        page.line((folder, "bold"), f"  since {one.at}")
        for text in one.wishes.values():
            page.line(text, indent=2)
    if not found:
        page.line("You trust no folder with anything special.")


def _revoke(*, as_json: bool) -> None:
    from ralph import trust as store
    from ralph.config import home_folder
    from ralph.memory.project import find_project

    home = home_folder()
    project = find_project(start_folder(), home=home, anyones=True)
    root = project.root if project else Path(start_folder()).absolute()
    gone = store.revoke(home, root)
    if as_json:
        print_json({"folder": str(root), "revoked": gone})
    else:
        Page().line(f"No longer trusted: {root}" if gone else f"{root} was not trusted.")


def _json(one: Wish) -> dict[str, str]:
    return {"kind": one.kind, "name": one.name, "asks": one.text}
