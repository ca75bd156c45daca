"""`ralph config` and `ralph trust`: settings, and what a project may set for a person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import flag, project_config, start_folder, the_project
from ralph.doors.cli.main import Command, wants_json
from ralph.doors.cli.render import Page, Result, Table, confirm, note
from ralph.errors import BadSetting, NotAProject
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.project import Project
    from ralph.trust import Wish

_SEE_TRUST = "To see and allow it: ralph trust"


# -- config


def _complete_key(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from ralph.config import KEYS

    return [key for key in KEYS if key.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("key", required=False, shell_complete=_complete_key)
@click.argument("value", required=False)
@flag("--user", "Change it for all projects, not for this one.")
@flag("--unset", "Remove it from the file.")
def config(key: str | None, value: str | None, user: bool, unset: bool) -> Result:
    """Show settings and where they come from, or change one.

    KEY shows one setting, KEY VALUE writes it to the project's file.

    \b
    Examples:
      ralph config embedder
      ralph config embedder ollama
      ralph config --user --unset embedder
    """
    from ralph.config import clear, home_folder, store

    if unset and (key is None or value is not None):
        raise click.UsageError("--unset takes a KEY and no VALUE.")
    if user and not (unset or value is not None):
        raise click.UsageError("--user goes with KEY VALUE or with --unset KEY.")
    if key is not None and unset:
        file = _settings_file(user=user)
        was_set = clear(file, key)
        text = f"{key} is no longer in {file}" if was_set else f"{key} was not in {file}"
        return _changed(key, None, file, text)
    if key is not None and value is not None:
        file = _settings_file(user=user)
        stored = store(file, key, value, home=home_folder())
        return _changed(key, stored, file, f"{key} is now {stored}, in {file}")
    return _settings(key)


def _settings(key: str | None) -> Result:
    from ralph.config import KEYS
    from ralph.records import clean

    if key is not None and key not in KEYS:
        raise BadSetting(f"there is no setting {key!r}", todo="`ralph config` lists all settings.")
    loaded = project_config(optional=True)[1]
    # An agent's command may contain a key.
    chosen = [clean(origin) for origin in loaded.origins if key in (None, origin.key)]
    value: Any = [{"key": o.key, "value": o.value, "origin": o.origin} for o in chosen]
    rows = [(origin.key, str(origin.value), origin.origin) for origin in chosen]
    notes = [
        f"the project's file asks for {wish.text}; ignored. {_SEE_TRUST}"
        for wish in loaded.ignored
        if key in (None, wish.name)
    ]
    if key is not None:
        return Result(value[0], str(chosen[0].value), notes=notes)
    return Result(value, Table(("setting", "value", "from"), rows), notes=notes)


def _changed(key: str, stored: Any, file: Path, text: str) -> Result:
    notes = [
        f"{origin.origin} takes precedence: {key} is {origin.value} here"
        for origin in project_config(optional=True)[1].origins
        if origin.key == key and stored is not None and origin.origin != str(file)
    ]
    return Result({"key": key, "value": stored, "file": str(file)}, text, notes=notes)


def _settings_file(*, user: bool) -> Path:
    from ralph.config import USER_FILE, home_folder

    if user:
        return home_folder() / USER_FILE
    try:
        return the_project().settings_file
    except NotAProject as error:
        raise NotAProject(
            error.what, where=error.where, todo="Run: ralph init, or add --user for all projects."
        ) from None


# -- trust


@click.command(cls=Command)
@flag("--list", "Show the directories you trust.", "listing")
@flag("--revoke", "Stop trusting this directory.")
@flag("--yes", "Do not ask.")
def trust(listing: bool, revoke: bool, yes: bool) -> Result:
    """Show what a project asks for, and allow it.

    A project's files may come from someone else. Some things take effect only after you have seen
    them here and said yes: settings that start programs, spend money or send data away, MCP servers
    of disciplines, files of another user, and the memory of another directory with the same project
    id. When one of them changes you are asked again. What you set yourself with `ralph config` or
    `ralph discipline` is already trusted.

    \b
    Examples:
      ralph trust
      ralph trust --list
    """
    if listing + revoke + yes > 1:
        raise click.UsageError("Choose one: --list, --revoke or --yes.")
    if listing:
        return _trusted_folders()
    return _revoke() if revoke else _trust(yes=yes)


def tell_untrusted() -> None:
    """Print one line about what this project asks for and does not get."""
    from ralph.config import home_folder
    from ralph.memory.project import untrusted

    if waiting := untrusted(the_project(), home=home_folder()):
        asked = "; ".join(wish.text for wish in waiting)
        note(f"ignored, because you have not allowed it: {asked}. {_SEE_TRUST}")


def _trust(*, yes: bool) -> Result:
    from ralph import trust as store
    from ralph.config import home_folder
    from ralph.memory.project import untrusted, wishes_of

    project, home = the_project(anyones=True), home_folder()
    asked = wishes_of(project, home=home)
    store.trusted_folders(home)  # a list that cannot be read is an error before anybody is asked
    waiting = untrusted(project, home=home)
    if not wants_json():
        _show_wishes(Page(), project, asked, waiting)
    if waiting and not yes:
        wishes = plural(len(waiting), "request")
        confirm(
            "allow this",
            problem=f"{wishes} of this project need a yes and there is nobody to ask: "
            + "; ".join(wish.text for wish in waiting),
            todo="Check it, then add --yes.",
            refusal="Nothing was allowed.",
        )
    if waiting:
        store.trust(home, project.root, asked)
    wishes_json = [{"kind": w.kind, "name": w.name, "asks": w.text} for w in asked]
    return Result(
        {"folder": str(project.root), "wishes": wishes_json},
        f"Trusted: {project.root}" if waiting else "",
    )


def _show_wishes(page: Page, project: Project, asked: list[Wish], waiting: list[Wish]) -> None:
    if not asked:
        page.line(f"{project.root} asks for nothing that needs your trust.")
        return
    page.line(f"{project.root} asks for:")
    for wish in asked:
        page.line(("new  " if wish in waiting else "     ", "yellow"), wish.text, indent=2)
    if not waiting:
        page.line("You allowed all of it. To take that back: ralph trust --revoke")


def _trusted_folders() -> Result:
    from ralph import trust as store
    from ralph.config import home_folder

    found = sorted(store.trusted_folders(home_folder()).items())

    def show(page: Page) -> None:
        for folder, trusted in found:
            page.line((folder, "bold"), f"  since {trusted.at}")
            for text in trusted.wishes.values():
                page.line(text, indent=2)

    value = [{"folder": f, "at": t.at, "wishes": [*t.wishes.values()]} for f, t in found]
    return Result(value, show if found else "You trust no directory with anything special.")


def _revoke() -> Result:
    from ralph import trust as store
    from ralph.config import home_folder
    from ralph.memory.project import find_project

    home = home_folder()
    project = find_project(start_folder(), home=home, anyones=True)
    root = project.root if project else Path(start_folder()).absolute()
    gone = store.revoke(home, root)
    text = f"No longer trusted: {root}" if gone else f"{root} was not trusted."
    return Result({"folder": str(root), "revoked": gone}, text)
