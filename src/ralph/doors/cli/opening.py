"""From the words on the line to an open memory, and the options that many commands share."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from ralph import disk
from ralph.doors.cli.page import note
from ralph.doors.cli.tree import project_given

if TYPE_CHECKING:
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _complete_feature(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from ralph.config import home_folder, load
    from ralph.errors import RalphError
    from ralph.memory.store import feature_journals

    with context.scope(cleanup=False), contextlib.suppress(RalphError, OSError):
        project, home = the_project(), home_folder()
        settings = load(home=home, project_file=project.settings_file).settings
        names = feature_journals(project, settings, home).names()
        return [name for name in names if name.startswith(incomplete)]
    return []


feature_option = click.option(
    "--feature",
    metavar="NAME",
    shell_complete=_complete_feature,
    help="The feature; no plan needs to name it.",
)


def start_folder() -> Path:
    """Where to look for the project: what was given, else here."""
    given = project_given() or os.environ.get("RALPH_PROJECT")
    return Path(given).expanduser() if given else Path.cwd()


def the_project(*, anyones: bool = False) -> Project:
    """The project that was given or is around this folder; an error says how to make one."""
    from ralph.config import home_folder
    from ralph.memory.project import need_project

    return need_project(start_folder(), home=home_folder(), anyones=anyones)


def conversations_folder() -> Path:
    """Where to look for conversations; a project that was named must be one."""
    if project_given() or os.environ.get("RALPH_PROJECT"):
        return the_project().root
    return start_folder()


@contextlib.contextmanager
def opened(*, patience_s: float = 0.5) -> Iterator[Ralph]:
    """The project's memories; a long catching-up shows a bar, each warning becomes a line."""
    from ralph.doors.cli.progress import Bar
    from ralph.memory.ralph import open_ralph

    project = the_project()
    bar = Bar(lambda: _records(ralph), patience_s=patience_s)
    with warnings_told(), open_ralph(project.root, progress=bar) as ralph:
        try:
            yield ralph
        finally:
            bar.close()


@contextlib.contextmanager
def opened_anywhere() -> Iterator[Ralph]:
    """As `opened`; where there is no project, the conversations that belong to none."""
    from ralph.config import home_folder
    from ralph.memory.project import find_project

    named = project_given() or os.environ.get("RALPH_PROJECT")
    if named or find_project(start_folder(), home=home_folder()) is not None:
        with opened() as ralph:
            yield ralph
        return
    from ralph.chat import open_memory

    with warnings_told(), open_memory(start_folder(), waits=True) as ralph:
        yield ralph


@contextlib.contextmanager
def opened_input(name: str) -> Iterator[BinaryIO]:
    """A file to read from, or stdin for `-`."""
    if name != "-":
        with Path(name).open("rb") as file:
            yield file
        return
    if sys.stdin.isatty():
        end = "Ctrl-Z and Enter" if sys.platform == "win32" else "Ctrl-D"
        note(f"reading from the terminal; {end} ends it")
    yield sys.stdin.buffer


def read_bytes(name: str) -> bytes:
    """A file's bytes, or stdin's for `-`."""
    with opened_input(name) as file:
        return file.read()


def shown_name(name: str) -> str:
    """What a file is called in messages and sources."""
    return "<stdin>" if name == "-" else name


def _records(ralph: Ralph) -> int:
    """About how many records the features have; of a server's journals their highest numbers."""
    from ralph.errors import RalphError
    from ralph.memory.store import on_server

    journals = on_server(ralph.place.journals)
    if journals is None:
        return _lines(ralph.project.journals)
    total = 0
    with contextlib.suppress(RalphError):  # a bar without its end is better than none
        for name in journals.names():
            one = journals.server.journal(name)
            one.read(limit=1)
            total += one.last_number
    return total


def _lines(journals: Path) -> int:
    """About how many records there are: the lines of the journals, counted without reading."""
    total = 0
    for name in disk.names(journals):
        with disk.opened(journals / name) as opened_file:
            while part := opened_file.read(1 << 20):
                total += part.count(b"\n")
    return total


@contextlib.contextmanager
def warnings_told() -> Iterator[None]:
    """What the memories warn of becomes one line each on stderr."""
    import logging

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record.getMessage())

    handler = Telling(logging.WARNING)
    logger = logging.getLogger("ralph")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
