"""`ralph journal`: check that everything can be read, and choose where it is stored."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli import context
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Page, Result, Table
from ralph.errors import BadInput
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.project import Project
    from ralph.memory.transfer import MovedProject

FILES, SERVER = "files", "server"


@click.group(cls=Group)
def journal() -> None:
    """Check the journal, or move it to a server and back.

    The journal is the source of truth: everything else is built from it.
    """


@journal.command()
@context.feature_option
def verify(feature: str | None) -> Result:
    """Read every line and list what looks wrong; nothing is changed.

    \b
    Examples:
      ralph journal verify --feature auth
    """
    with context.opened() as ralph:
        memories = ralph.features() if feature is None else [ralph.feature(feature)]
        judged = [memory.verify() for memory in memories]
        if feature is None and ralph.conversations.exist:
            judged.append(ralph.conversations.stream.verify())
        journals = len(judged)
        if feature is None and (others := ralph.knowledge.shelf.journals.names()):
            judged.append(ralph.knowledge.verify())  # of all projects: they learn from each other
            journals += len(others)
    records = sum(number for number, _ in judged)
    complaints = [complaint for _, some in judged for complaint in some]

    def show(page: Page) -> None:
        for each in complaints:
            page.line((f"{each.file}:{each.line} ", "yellow"), each.what)
        page.line(f"{plural(records, 'record')} can be read in {plural(journals, 'journal')}.")

    plain = [{"file": each.file, "line": each.line, "what": each.what} for each in complaints]
    problems = f"{plural(len(complaints), 'problem')}; bad lines were skipped or kept as they are"
    return Result(
        {"ok": not complaints, "records": records, "complaints": plain},
        show,
        code=1 if complaints else 0,
        notes=[problems] if complaints else [],
    )


@journal.command()
@context.option(
    "--to",
    "postgresql://USER:PASSWORD@HOST/DATABASE, the server that is set, files; - asks.",
    "URL|server|files|-",
    required=True,
)
@context.option(
    "--from",
    "Where they are now (default: as the setting journal_url says).",
    "URL|server|files|-",
    "source",
)
@context.flag("--all", "Also conversations and knowledge of all projects.", "everything")
@context.flag("--switch", "Then use the new place: change your settings.")
@context.flag("--dry-run", "Only look; copy nothing.")
def move(to: str, source: str | None, everything: bool, switch: bool, dry_run: bool) -> Result:
    """Copy this project's journals to a server, or back to files.

    Every record is compared afterwards, and the original stays as it is. After an interruption, run
    it again. From a server to files, journals of other projects stay on the server.

    \b
    Examples:
      ralph journal move --to - --dry-run
      ralph journal move --to files --switch
    """
    from ralph.memory.transfer import move_project, waiting_records

    if switch and dry_run:
        raise click.UsageError("--switch does not go with --dry-run.")
    project, config, home = context.project_config()
    assert project is not None
    begin = server = config.settings.journal_url or None
    target = _address(_ask("URL to move to") if to == "-" else to, server)
    if source is not None:
        begin = _address(_ask("URL to move from") if source == "-" else source, server)
    elif begin == target:
        begin = None  # the address was set first, and the journals are still in files
    bar = context.Bar(lambda: None, patience_s=0.0, text="copying the journals")
    with context.warnings_noted(), contextlib.closing(bar):
        moved = move_project(
            project,
            config.settings,
            home,
            source=begin,
            target=target,
            everything=everything,
            dry_run=dry_run,
            progress=partial(_show_progress, bar),
        )
    notes = []
    if dry_run and (waiting := sum(waiting_records(home).values())):
        notes.append(f"{plural(waiting, 'record')} waiting here would go to the server first")
    if switch:
        notes += _switch(target, home, project)
    unreadable = [
        f"{each.file}:{each.line}: {each.what}; it stays where it is"
        for memory in moved.memories
        for stream in memory.streams
        for each in stream.unreadable
    ]
    place = "there" if target is not None else "in files"
    return Result(
        _moved_json(moved, switched=switch),
        lambda page: _show_moved(page, moved, place, switched=switch, in_use=server == target),
        code=1 if unreadable else 0,
        notes=[*notes, *unreadable],
    )


@journal.command()
def deliver() -> Result:
    """Send what was saved here while the journal's server was down.

    Every command does this by itself. If no server is set any more, it goes to the files.
    """
    from ralph.memory.transfer import bring_home, deliver_all, waiting_records

    _, config, home = context.project_config(optional=True)  # what waits belongs to all projects
    url = config.settings.journal_url
    with context.warnings_noted():
        if url:
            delivered = deliver_all(url, config.settings, home)
        else:
            delivered = bring_home(context.the_project(), config.settings, home)
    left = waiting_records(home)
    records = plural(sum(delivered.values()), "record")
    text = f"Delivered {records} to the {'server' if url else 'files'}."
    names = ", ".join(f"{number} of {memory}" for memory, number in left.items())
    return Result(
        {"delivered": delivered, "waiting": left},
        text if delivered else "Nothing is waiting here.",
        code=1 if left else 0,
        notes=[f"still waiting: {names}"] if left else [],
    )


def _show_progress(bar: context.Bar, name: str, number: int) -> None:
    """So many records of a journal are done."""
    bar(number)


def _address(given: str, server: str | None) -> str | None:
    """The address of a server; None means files."""

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


def _ask(what: str) -> str:
    """The address, typed unseen at the terminal or read from a pipe."""
    if sys.stdin.isatty():
        answer: str = click.prompt(what, hide_input=True, err=True)
        return answer.strip()
    return sys.stdin.readline().strip()


def _switch(target: str | None, home: Path, project: Project) -> list[str]:
    """Set the new place for this person; a note if another setting overrides it."""
    from ralph.config import USER_FILE, clear, load, store

    file = home / USER_FILE
    if target is None:
        clear(file, "journal_url")
    else:
        store(file, "journal_url", target)
    loaded = load(home=home, project_file=project.settings_file)
    if (loaded.settings.journal_url or None) == target:
        return []
    origin = next(each.origin for each in loaded.origins if each.key == "journal_url")
    return [f"{origin} takes precedence over {file}; change it there, too"]


def _moved_json(moved: MovedProject, *, switched: bool) -> dict[str, Any]:
    return {
        "dry_run": moved.dry_run,
        "records": moved.records,
        "fresh": moved.fresh,
        "left": moved.left,
        "switched": switched,
        "memories": [
            {
                "memory": each.memory,
                "from": each.source,
                "to": each.target,
                "left": each.left,
                "streams": each.streams,
            }
            for each in moved.memories
        ],
    }


def _show_moved(
    page: Page, moved: MovedProject, place: str, *, switched: bool, in_use: bool
) -> None:
    names = ("records", "fresh", "tombstones", "forgotten_there")
    rows = [
        (memory.memory, stream.name, *(str(getattr(stream, name)) for name in names))
        for memory in moved.memories
        for stream in memory.streams
    ]
    if rows:
        heads = ("memory", "journal", "records", "new there", "forgotten", "forgotten there")
        page.show(Table(heads, rows))
        page.line()
    what = f"{plural(moved.records, 'record')} of {plural(len(rows), 'journal')}"
    if moved.dry_run:
        page.line(f"{what} would be the same there, {moved.fresh} of them new.")
        page.line("Nothing was copied.")
    else:
        page.line(f"{what} are the same in both places, compared one by one.")
        page.line("The original is unchanged.")
    if moved.left:
        others = plural(moved.left, "journal")
        page.line(f"Left where it was: {others} of other projects; --all includes them.")
    if moved.dry_run:
        return
    to_server = place == "there"
    if switched:
        page.line(f"From now on memory is stored {place}.")
        if not to_server:
            page.line("Features of other projects stay on the server until, in each of them:")
            page.line("ralph journal move --from - --to files", indent=2)
    elif in_use:
        page.line(f"Memory is already stored {place}.")
    elif to_server:
        page.line("To store memory there from now on: move again with --switch")
        page.line("(or set RALPH_JOURNAL_URL)")
    else:
        page.line("To store memory in files again: ralph config --user --unset journal_url")
        page.line("(or unset RALPH_JOURNAL_URL, or move again with --switch)")
