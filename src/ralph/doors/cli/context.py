"""The project, memory and plan of a command, and the options that many commands share."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ralph import disk
from ralph.current_run import current_run
from ralph.doors.cli.render import Page, is_terminal, note, print_json, raw
from ralph.doors.cli.tree import project_given
from ralph.errors import BadInput

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Kind
    from ralph.plan.store import Plan
    from ralph.records.learning import Learning


# -- From the words on the line to an open memory, and the options that many commands share.


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


# -- A progress bar on stderr: only on a terminal, and only for work that takes its time.


_PATIENCE_S = 0.5


class Bar:
    """Told how many records are done; several runs one after another add up."""

    def __init__(self, total: Callable[[], int], *, patience_s: float = _PATIENCE_S) -> None:
        self._total = total
        self._due = time.monotonic() + patience_s
        self._shown: tuple[Progress, TaskID] | None = None
        self._wanted = is_terminal(sys.stderr)
        self._before = self._last = 0

    def __call__(self, done: int) -> None:
        """Move to `done`; a smaller number than the last begins the next run."""
        if not self._wanted:
            return
        if done < self._last:
            self._before += self._last
        self._last = done
        if self._shown is None and time.monotonic() >= self._due:
            self._shown = self._show()
        if self._shown is not None:
            bar, task = self._shown
            bar.update(task, completed=self._before + done)

    def close(self) -> None:
        """Take the bar away; the answer comes next."""
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None
        self._wanted = False

    def _show(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as TimeLeft

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeLeft(),
            console=Console(file=raw(sys.stderr)),
            transient=True,
        )
        task = bar.add_task("indexing the journal", total=self._total())
        bar.start()
        return bar, task


# -- What the commands on the plan share: opening it, building a patch, showing an entry.


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")

clear_option = click.option(
    "--clear", "clear", multiple=True, metavar="FIELD", help="Empty this field. May be repeated."
)


def the_plan() -> Plan:
    """The plan of the project that was given or is around this folder."""
    from ralph.plan.store import Plan

    project = the_project()
    return Plan(project.root, state=project.cache)


def completing(kind: Kind) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes the names, or ids, of what the plan has of this kind."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from ralph.errors import RalphError
        from ralph.plan.model import entities

        with context.scope(cleanup=False), contextlib.suppress(RalphError, OSError):
            there = entities(the_plan().document(kind).data, kind)
            return [one.key for one in there if one.key and one.key.startswith(incomplete)]
        return []

    return complete


def plan_feature(*, required: bool = False, help: str) -> Callable[[Any], Any]:
    """`--feature` for a feature of the plan."""
    return click.option(
        "--feature",
        required=required,
        metavar="NAME",
        shell_complete=completing("features"),
        help=help,
    )


task_argument = click.argument("task_id", metavar="ID", shell_complete=completing("tasks"))


def in_agents_run() -> bool:
    """Whether an agent that Ralph drives calls us; what it says is not a person's word."""
    return current_run() is not None


def number(text: str | None) -> int | str | None:
    """An id or a priority as the number it looks like, else as it was given."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else text


def patch_from(given: Mapping[str, Any], clear: Iterable[str] = ()) -> dict[str, Any]:
    """Only what was said on the line: an option that was left out changes nothing.

    A field to clear may be called by its own name or by its option's.
    """
    patch = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value != ()
    }
    names = {
        option.lstrip("-"): parameter.name
        for parameter in click.get_current_context().command.params
        for option in parameter.opts
        if parameter.name in given
    }
    for word in clear:
        field = names.get(word.replace("_", "-")) or word.replace("-", "_")
        if patch.get(field) is not None:
            raise BadInput(f"{field} cannot be set and cleared at once", todo="Say one of them.")
        patch[field] = None
    return patch


def plain(value: Any) -> Any:
    """An entry of the plan as JSON, the empty fields too."""
    import msgspec

    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return msgspec.to_builtins(value)


def answer(shown: Any, *, as_json: bool, line: str) -> None:
    """What a change came to: the JSON of it, or one line."""
    if as_json:
        print_json(shown)
    else:
        Page().line(line)


def learning_json(one: Learning) -> dict[str, Any]:
    """A learning as every command prints it."""
    return {"id": one.id, **plain(one), "provenance": one.provenance}


def show_entry(
    fields: Mapping[str, Any], *, as_json: bool, told: Mapping[str, list[str]] | None = None
) -> None:
    """One entry whole; `told` has the lists that people read in other words than programs."""
    if as_json:
        print_json(fields)
        return
    page = Page()
    for name, value in {**fields, **(told or {})}.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, list):
            page.line((f"{name}:", "bold"))
            for one in value:
                page.line(f"- {one}", indent=2)
        elif isinstance(value, dict):
            page.line((f"{name}: ", "bold"), json.dumps(value, ensure_ascii=False))
        elif "\n" in (text := str(value).strip()):
            page.line((f"{name}:", "bold"))
            for line in text.splitlines():
                page.line(line, indent=2 if line.strip() else 0)
        else:
            page.line((f"{name}: ", "bold"), text)
