"""`ralph config`: settings, where each comes from, and changing one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.commands.trust import TODO
from ralph.doors.cli.context import as_json, start_folder
from ralph.doors.cli.render import Page, note, print_json
from ralph.doors.cli.tree import Command, project_given

if TYPE_CHECKING:
    from ralph.config import Config


def _complete_key(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from ralph.config import KEYS

    return [key for key in KEYS if key.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("key", required=False, shell_complete=_complete_key)
@click.argument("value", required=False)
@click.option("--user", is_flag=True, help="Change it for all projects, not for this one.")
@click.option("--unset", is_flag=True, help="Take it out of the file.")
@as_json
def config(key: str | None, value: str | None, user: bool, unset: bool, as_json: bool) -> None:
    """Show settings and where they come from, or change one.

    With KEY it shows one setting, with KEY VALUE it writes it to the project's file.
    """
    if unset and (key is None or value is not None):
        raise click.UsageError("--unset takes a KEY and no VALUE.")
    if user and not (unset or value is not None):
        raise click.UsageError("--user goes with KEY VALUE or with --unset KEY.")
    if key is not None and unset:
        _unset(key, user=user, as_json=as_json)
    elif key is not None and value is not None:
        _store(key, value, user=user, as_json=as_json)
    else:
        _show(key, as_json=as_json)


def _show(key: str | None, *, as_json: bool) -> None:
    from ralph.config import KEYS
    from ralph.errors import BadSetting
    from ralph.records.clean import clean

    if key is not None and key not in KEYS:
        raise BadSetting(f"there is no setting {key!r}", todo="`ralph config` shows every setting.")
    loaded = _loaded()
    # An agent's command may carry a key.
    chosen = [clean(one) for one in loaded.origins if key in (None, one.key)]
    if as_json:
        plain = [{"key": one.key, "value": one.value, "origin": one.origin} for one in chosen]
        print_json(plain if key is None else plain[0])
    elif key is not None:
        Page().line(str(chosen[0].value))
    else:
        rows = [(one.key, str(one.value), one.origin) for one in chosen]
        Page().table(("setting", "value", "from"), rows)
    for wish in loaded.ignored:
        if key in (None, wish.name):
            note(f"the project's file asks for {wish.text}; not taken. {TODO}")


def _store(key: str, value: str, *, user: bool, as_json: bool) -> None:
    from ralph.config import home_folder, store

    file = _file(user=user)
    stored = store(file, key, value, home=home_folder())
    _tell(key, stored, file, as_json=as_json, text=f"{key} is {stored} now, in {file}")


def _unset(key: str, *, user: bool, as_json: bool) -> None:
    from ralph.config import clear

    file = _file(user=user)
    was_there = clear(file, key)
    text = f"{key} is no longer in {file}" if was_there else f"{key} was not in {file}"
    _tell(key, None, file, as_json=as_json, text=text)


def _tell(key: str, stored: Any, file: Path, *, as_json: bool, text: str) -> None:
    found = [one for one in _loaded().origins if one.key == key]
    if as_json:
        print_json({"key": key, "value": stored, "file": str(file)})
    else:
        Page().line(text)
    for one in found:
        if stored is not None and one.origin != str(file):
            note(f"{one.origin} is stronger: {key} is {one.value} here")


def _loaded() -> Config:
    from ralph.config import home_folder, load
    from ralph.memory.project import find_project, need_project

    home = home_folder()
    find = need_project if project_given() else find_project
    project = find(start_folder(), home=home)
    return load(home=home, project_file=project.settings_file if project else None)


def _file(*, user: bool) -> Path:
    from ralph.config import USER_FILE, home_folder
    from ralph.errors import NotAProject
    from ralph.memory.project import need_project

    if user:
        return home_folder() / USER_FILE
    try:
        return need_project(start_folder(), home=home_folder()).settings_file
    except NotAProject as error:
        raise NotAProject(
            error.what, where=error.where, todo="Run: ralph init, or add --user for all projects."
        ) from None
