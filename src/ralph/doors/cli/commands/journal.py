"""`ralph journal`: is everything in it as it was written, and where is it kept?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import (
    as_json,
    feature_option,
    opened,
    start_folder,
    the_project,
    warnings_told,
)
from ralph.doors.cli.render import Page, count, is_terminal, note, one_line, print_json, raw
from ralph.doors.cli.tree import Group, project_given

if TYPE_CHECKING:
    from ralph.config import Config, Settings
    from ralph.memory.project import Project
    from ralph.memory.transfer import MovedProject

FILES, SERVER = "files", "server"


@click.group(cls=Group)
def journal() -> None:
    """Look after the journal, which is the truth."""


@journal.command()
@feature_option
@as_json
def verify(feature: str | None, as_json: bool) -> int:
    """Read every line and tell what looks wrong; nothing is changed."""
    with opened() as ralph:
        memories = ralph.features() if feature is None else [ralph.feature(feature)]
        judged = [memory.verify() for memory in memories]
        if feature is None and ralph.conversations.exist:
            judged.append(ralph.conversations.verify())
        journals = len(judged)
        if feature is None and (others := ralph.knowledge.shelf.journals.names()):
            judged.append(ralph.knowledge.verify())  # of all projects: they learn from each other
            journals += len(others)
    records = sum(number for number, _ in judged)
    complaints = [complaint for _, some in judged for complaint in some]
    if as_json:
        plain = [{"file": one.file, "line": one.line, "what": one.what} for one in complaints]
        print_json({"ok": not complaints, "records": records, "complaints": plain})
    else:
        page = Page()
        for one in complaints:
            page.line((f"{one.file}:{one.line} ", "yellow"), one.what)
        page.line(f"{count(records, 'record')} can be read in {count(journals, 'journal')}.")
    if complaints:
        note(f"{count(len(complaints), 'complaint')}; what is told of was stepped over or kept")
    return 1 if complaints else 0


@journal.command()
@click.option(
    "--to",
    required=True,
    metavar="URL|server|files|-",
    help="postgresql://USER:PASSWORD@HOST/DATABASE, the server that is set, files; - asks.",
)
@click.option(
    "--from", "source", metavar="URL|server|files|-", help="Where they are; else as it is set."
)
@click.option("--all", "everything", is_flag=True, help="What all projects said and learned, too.")
@click.option("--switch", is_flag=True, help="Then use the new place: set it for yourself.")
@click.option("--dry-run", is_flag=True, help="Only look; nothing is copied.")
@as_json
def move(
    to: str, source: str | None, everything: bool, switch: bool, dry_run: bool, as_json: bool
) -> int:
    """Copy this project's journals to a server, or back to files.

    Every record is compared afterwards. What it is copied from stays as it is. After an
    interruption it can be repeated. From a server to files, what other projects have there stays.
    """
    from ralph.memory.transfer import move_project, waiting_records

    if switch and dry_run:
        raise click.UsageError("--switch does not go with --dry-run.")
    project, config, home = _settings()
    begin = server = config.settings.journal_url or None
    target = _address(_asked("URL to move to") if to == "-" else to, server)
    if source is not None:
        begin = _address(_asked("URL to move from") if source == "-" else source, server)
    elif begin == target:
        begin = None  # the address was set first, and the journals are still in files
    with warnings_told(), _Telling() as telling:
        moved = move_project(
            project,
            config.settings,
            home,
            source=begin,
            target=target,
            everything=everything,
            dry_run=dry_run,
            progress=telling,
        )
    if switch:
        _switch(target, home)
    if as_json:
        print_json(_plain(moved, switched=switch))
    else:
        _show(moved, to_server=target is not None, switched=switch, in_use=server == target)
    if dry_run and (waiting := sum(waiting_records(home).values())):
        note(f"{count(waiting, 'record')} kept here for the server would be handed over first")
    if switch:
        _tell_of_stronger(target, home, project)
    unreadable = [one for each in moved.memories for s in each.streams for one in s.unreadable]
    for one in unreadable:
        note(f"{one.file}:{one.line}: {one.what}; it stays where it is")
    return 1 if unreadable else 0


@journal.command()
@as_json
def deliver(as_json: bool) -> int:
    """Hand over what was kept here while the journal's server was away.

    Every use does so by itself. Where no server is set any more, it goes to the files.
    """
    from ralph.memory.transfer import bring_home, deliver_all, waiting_records

    settings, home = _anywhere()
    url = settings.journal_url
    with warnings_told():
        if url:
            delivered = deliver_all(url, settings, home)
        else:
            delivered = bring_home(the_project(), settings, home)
    left = waiting_records(home)
    if as_json:
        print_json({"delivered": delivered, "waiting": left})
    else:
        records = count(sum(delivered.values()), "record")
        place = "to the server" if url else "to the files"
        Page().line(f"Delivered {records} {place}." if delivered else "Nothing waits here.")
    if left:
        names = ", ".join(f"{number} of {memory}" for memory, number in left.items())
        note(f"still waiting: {names}")
    return 1 if left else 0


def _address(given: str, server: str | None) -> str | None:
    """What was given as an address; None is files."""
    from ralph.errors import BadInput

    if given == FILES:
        return None
    if given == SERVER:
        if server is None:
            todo = "Give its address instead, or - to be asked for it."
            raise BadInput("no server is set: journal_url has no value", todo=todo)
        return server
    if not given.startswith(("postgresql://", "postgres://")):
        raise BadInput(
            "that is neither `files`, `server` nor the address of a PostgreSQL database",
            todo="Write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE.",
        )
    return given


def _asked(what: str) -> str:
    """The address from whoever sits there, unseen, or from a pipe."""
    if sys.stdin.isatty():
        answer: str = click.prompt(what, hide_input=True, err=True)
        return answer.strip()
    return sys.stdin.readline().strip()


def _settings() -> tuple[Project, Config, Path]:
    from ralph.config import home_folder, load

    project, home = the_project(), home_folder()
    return project, load(home=home, project_file=project.settings_file), home


def _anywhere() -> tuple[Settings, Path]:
    """The settings here: what waits for a server is of all projects."""
    from ralph.config import home_folder, load
    from ralph.memory.project import find_project

    home = home_folder()
    project = the_project() if project_given() else find_project(start_folder(), home=home)
    file = project.settings_file if project else None
    return load(home=home, project_file=file).settings, home


def _switch(target: str | None, home: Path) -> None:
    from ralph.config import USER_FILE, clear, store

    file = home / USER_FILE
    if target is None:
        clear(file, "journal_url")
    else:
        store(file, "journal_url", target)


def _tell_of_stronger(target: str | None, home: Path, project: Project) -> None:
    from ralph.config import USER_FILE, load

    loaded = load(home=home, project_file=project.settings_file)
    if (loaded.settings.journal_url or None) != target:
        origin = next(one.origin for one in loaded.origins if one.key == "journal_url")
        note(f"{origin} is stronger than {home / USER_FILE}; change it there, too")


def _plain(moved: MovedProject, *, switched: bool) -> dict[str, Any]:
    import msgspec

    return {
        "dry_run": moved.dry_run,
        "records": moved.records,
        "fresh": moved.fresh,
        "left": moved.left,
        "switched": switched,
        "memories": [
            {
                "memory": one.memory,
                "from": one.source,
                "to": one.target,
                "left": one.left,
                "streams": msgspec.to_builtins(one.streams),
            }
            for one in moved.memories
        ],
    }


def _show(moved: MovedProject, *, to_server: bool, switched: bool, in_use: bool) -> None:
    page = Page()
    rows = [
        (
            each.memory,
            one.name,
            str(one.records),
            str(one.fresh),
            str(one.tombstones),
            str(one.forgotten_there),
        )
        for each in moved.memories
        for one in each.streams
    ]
    if rows:
        heads = ("memory", "journal", "records", "new there", "forgotten", "forgotten there")
        page.table(heads, rows)
        page.line()
    records = count(moved.records, "record")
    journals = count(len(rows), "journal")
    if moved.dry_run:
        page.line(f"{records} of {journals} would be the same there, {moved.fresh} of them new.")
        page.line("Nothing was copied.")
    else:
        page.line(f"{records} of {journals} are the same in both places, compared one by one.")
        page.line("What they were copied from is unchanged.")
    if moved.left:
        others = count(moved.left, "journal")
        page.line(f"Left where it was: {others} of other projects; --all takes them along.")
    if moved.dry_run:
        return
    if switched:
        page.line(f"From now on memory is kept {'there' if to_server else 'in files'}.")
        if not to_server:
            page.line("Features of other projects stay on the server until, in each of them:")
            page.line("ralph journal move --from - --to files", indent=2)
    elif in_use:
        page.line(f"Memory is kept {'there' if to_server else 'in files'} already.")
    elif to_server:
        page.line("To keep memory there from now on: move again with --switch")
        page.line("(or set RALPH_JOURNAL_URL)")
    else:
        page.line("To keep memory in files again: ralph config --user --unset journal_url")
        page.line("(or take RALPH_JOURNAL_URL away, or move again with --switch)")


class _Telling:
    """How far a move has come: one line on a terminal that goes away again."""

    def __init__(self) -> None:
        self._on = is_terminal(sys.stderr)
        self._drawn = False

    def __call__(self, name: str, number: int) -> None:
        """Looked at so many records of a journal."""
        if self._on:
            shown = f"copying {one_line(name)}: {count(number, 'record')}"
            raw(sys.stderr).write(f"\r\x1b[2K{shown}")
            sys.stderr.flush()
            self._drawn = True

    def __enter__(self) -> _Telling:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            raw(sys.stderr).write("\r\x1b[2K")
