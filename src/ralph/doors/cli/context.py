"""The project, memory and plan of a command, and the options that many commands share."""

from __future__ import annotations

import codecs
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
from ralph.clients import BY_AGENT
from ralph.config import Config, home_folder, load, warnings_to
from ralph.current_run import current_run
from ralph.doors.cli.main import project_given, server_given
from ralph.doors.cli.render import console, is_terminal, note
from ralph.errors import (
    AccessRefused,
    BadInput,
    BadRecord,
    JournalDown,
    NotAProject,
    NotFound,
    RalphError,
    ServerFailed,
    suggestion,
)
from ralph.memory.servers import ADDRESS, find_login, server_folders
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from rich.progress import Progress

    from ralph.memory.feature import FeatureMemory
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Kind, Task
    from ralph.plan.store import Plan

_PATIENCE_S = 0.5
# How long work must take before one line says so where there is no terminal.
_LINE_PATIENCE_S = 5.0
NO_PLAN = "features and tasks belong to a project with a plan. To start one: ralph init"
_VALUE = re.compile(r"\S")
_ITEM = re.compile(r"[^\s,]")
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")

Decorator = Callable[[Any], Any]
Completer = Callable[[click.Context, click.Parameter, str], list[str]]

# -- options


def flag(name: str, help: str, *parameter: str) -> Decorator:
    """Define an option without a value."""
    return click.option(name, *parameter, is_flag=True, help=help)


def option(name: str, help: str, metavar: str = "TEXT", *parameter: str, **more: Any) -> Decorator:
    """Define an option with a value."""
    return click.option(name, *parameter, metavar=metavar, help=help, **more)


def choice(name: str, help: str, values: Iterable[str], *parameter: str, **more: Any) -> Decorator:
    """Define an option that takes one of these values."""
    return click.option(name, *parameter, type=click.Choice(list(values)), help=help, **more)


def min_score_option(help: str) -> Decorator:
    """Define `--min-score`, from 0 to 1."""
    return option("--min-score", help, "X", type=click.FloatRange(0, 1))


everywhere_option = flag("--everywhere", "In all projects.")
limit_option = option("--limit", "Show at most N results (up to 20).", "N", type=click.IntRange(1))
dry_run_option = flag("--dry-run", "Show what would be removed.")
# A file to read or write, or - for stdin or stdout. Shells complete the name.
FILE = click.Path(allow_dash=True)
POSITIVE = click.FloatRange(0, min_open=True)
_TIMEOUT = "Stop the agent after S seconds (default: the setting iteration_timeout_s)."
timeout_option = option("--timeout", _TIMEOUT, "S", "timeout_s", type=POSITIVE)
agent_option = option(
    "--agent",
    f"{', '.join(BY_AGENT)}, or a command (default: the setting agent).",
    "AGENT",
)


def options(*decorators: Decorator) -> Decorator:
    """Combine several options into one decorator, in the given order."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def completing(kind: Kind | None = None) -> Completer:
    """Complete the names or ids of this kind of plan entry, or of the features in memory.

    Outside a project, it completes nothing.
    """

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from ralph.memory.store import FEATURES, open_journals
        from ralph.plan.model import entities

        with context.scope(cleanup=False), contextlib.suppress(RalphError, OSError):
            names: list[str] = []
            project, config, home = project_config()
            if kind is not None:
                found = entities(the_plan().document(kind).data, kind)
                names = [entity.key for entity in found if entity.key]
            elif project is not None:
                names = list(open_journals(FEATURES, config.settings, home, of=project).names())
            return [name for name in names if name.startswith(incomplete)]
        return []

    return complete


feature_option = option(
    "--feature", "The feature; it need not be in the plan.", "NAME", shell_complete=completing()
)


def plan_feature(*, required: bool = False, help: str) -> Decorator:
    """Define `--feature` for a feature of the plan."""
    complete = completing("features")
    return option("--feature", help, "NAME", required=required, shell_complete=complete)


def task_option(help: str, name: str = "task") -> Decorator:
    """Define `--task` for a task of the plan."""
    return option("--task", help, "ID", name, shell_complete=completing("tasks"))


def number(text: str | None) -> int | str | None:
    """Convert an id or a priority to a number if it looks like one."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else text


def patch_from(given: Mapping[str, Any], clear: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options that were set; an option that was left out changes nothing.

    `clear` takes the name of a field or of its option.
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
            raise BadInput(f"{field} cannot be set and cleared at once", todo="Use one of them.")
        patch[field] = None
    return patch


# -- project and memory


def start_folder() -> Path:
    """Return where to look for the project: the given folder, or else this one."""
    given = project_given() or os.environ.get("RALPH_PROJECT")
    return Path(given).expanduser() if given else Path.cwd()


def the_project(*, anyones: bool = False, todo: str | None = None) -> Project:
    """Return the given project or the one around this folder; the error says what to do."""
    from ralph.memory.project import need_project

    try:
        return need_project(start_folder(), home=home_folder(), anyones=anyones)
    except NotAProject as error:
        if not (todo or is_named()) and server_address():
            todo = "Run it where the server runs, or in a clone of the project."
            what = "this needs the project's own files, and here its memory is on a server"
            raise NotAProject(what, where=error.where, todo=todo) from None
        raise NotAProject(error.what, where=error.where, todo=todo or error.todo) from None


def server_address() -> str | None:
    """Return the server set by the command line, the environment or this folder, if any."""
    login = find_login(home_folder(), memory_folder().root, given=server_given())
    return None if login is None else login.address


def is_named() -> bool:
    """Whether the command line or the environment names the project."""
    return bool(project_given() or os.environ.get("RALPH_PROJECT"))


def found_project() -> Project | None:
    """Return the project around this folder, if any; a folder that was named must exist."""
    from ralph.memory.project import find_project

    start = start_folder()
    if is_named() and not start.is_dir():
        raise NotAProject(f"there is no folder {start}")
    return find_project(start, home=home_folder())


def project_config(*, optional: bool = False) -> tuple[Project | None, Config, Path]:
    """Return the project, its settings and Ralph's home; if `optional`, there may be no project."""
    home = home_folder()
    project = found_project() if optional else the_project()
    return project, load(home=home, project_file=project.settings_file if project else None), home


def conversations_folder() -> Path:
    """Return where to look for conversations; a folder that was named must exist."""
    found = found_project() if is_named() else None
    return found.root if found else start_folder()


@contextlib.contextmanager
def opened(
    *, anywhere: bool = True, patience_s: float = _PATIENCE_S, captures: bool = False
) -> Iterator[Ralph]:
    """Open the memory of this folder; show a bar for a long sync, and each warning as a line.

    `anywhere`: outside a project, open what the folder has without one; otherwise that is an error.
    `captures`: keep new records here, even while a server refuses the token.
    """
    from ralph.memory.ralph import open_ralph

    if (there := on_server(captures=captures)) is not None:
        with warnings_noted(), there as ralph:
            deliver(ralph)
            yield ralph
        return
    if anywhere and found_project() is None:
        from ralph.chat import open_memory

        with warnings_noted(), open_memory(start_folder(), waits=True) as ralph:
            yield ralph
        return
    root = the_project().root
    bar = Bar(lambda: _records(ralph), patience_s=patience_s)
    with warnings_noted(), open_ralph(root, progress=bar) as ralph, contextlib.closing(bar):
        yield ralph


def on_server(**how: Any) -> Ralph | None:
    """Return the memory on the server given or set for this folder; None if memory is local."""
    if not (server_given() or os.environ.get(ADDRESS) or server_folders(home_folder())):
        return None
    from ralph.memory.remote import open_server

    return open_server(memory_folder(), given=server_given(), **how)


def memory_folder() -> Project:
    """Return the project here, or else the nearest folder bound to a server, or else this one."""
    from ralph.memory.project import PlainFolder

    home = home_folder()
    start = start_folder().resolve()
    bound = server_folders(home)
    above = (one for one in (start, *start.parents) if str(one) in bound)
    return found_project() or PlainFolder(next(above, start), home)


def deliver(ralph: Any) -> None:
    """Send the records that wait for the server; if that fails, print one line."""
    try:
        ralph.deliver()
    except (JournalDown, AccessRefused, NotFound) as error:
        waiting = plural(len(ralph.outbox.calls()), "record")
        # The command itself reports that the server cannot be reached.
        away = isinstance(error, JournalDown) and not isinstance(error, ServerFailed)
        note(f"not on the server yet: {waiting}" + ("" if away else f" ({error})"))


def elsewhere(ralph: Ralph) -> str:
    """Return a sentence on what other projects have, for a list that is empty here; or ""."""
    if in_agents_run():
        return ""
    projects = ralph.other_projects()
    if not projects:
        return ""
    total = plural(sum(count.conversations for count in projects), "conversation")
    return f"{total} in {plural(len(projects), 'other project')}: add --everywhere."


def memories(ralph: Ralph, feature: str | None) -> list[FeatureMemory]:
    """Return the memory of one feature, or of all."""
    return ralph.features() if feature is None else [ralph.feature(feature)]


def the_plan() -> Plan:
    """Return the plan of the project; with `--server` or outside a project, the server's plan."""
    from ralph.plan.store import Plan

    if (server_given() or found_project() is None) and (there := on_server()) is not None:
        from ralph.memory.remote_plan import RemotePlan

        plan: Any = RemotePlan(there)  # type: ignore[arg-type]
        return plan  # type: ignore[no-any-return]
    project = the_project()
    run = current_run()
    agent_of = (run.feature if run else None) or ""
    return Plan(project.root, state=project.cache, agent_of=agent_of)


def plan_features() -> list[str]:
    """Return the names of the plan's features; none if there is no plan, or it cannot be read."""
    with contextlib.suppress(RalphError):
        return [entry.name for entry in the_plan().read("features").features]
    return []


def ready_tasks() -> list[Task]:
    """Return the tasks that can be worked on; none without a plan, or if it cannot be read."""
    from ralph.plan.edit import ready

    if found_project() is None:
        return []
    with contextlib.suppress(RalphError):
        return ready(the_plan().read("tasks").tasks)
    return []


def feature_notes(feature: str | None) -> list[str]:
    """Return a warning if there is a plan without this feature; the name may be mistyped."""
    names = plan_features() if feature and not server_address() else []
    if not (feature and names) or feature in names:
        return []
    return [f"no feature {feature!r} in the plan. {suggestion(feature, names)}".rstrip()]


def last_iteration(feature: str) -> int:
    """Return the number of the feature's latest iteration, 0 before the first."""
    with opened(anywhere=False) as ralph:
        found = ralph.feature(feature).iterations()
        return max((located.record.number for located, _ in found), default=0)


def in_agents_run() -> bool:
    """Whether an agent run by Ralph called this command, and not a user."""
    return current_run() is not None


def warnings_noted() -> contextlib.AbstractContextManager[None]:
    """Print each warning from memory as one line on stderr."""
    return warnings_to(note)


# -- files named on the command line


@contextlib.contextmanager
def opened_input(name: str) -> Iterator[BinaryIO]:
    """Open a file to read, or stdin for `-`."""
    if name != "-":
        with Path(name).open("rb") as file:
            yield file
        return
    if sys.stdin.isatty():
        end = "Ctrl-Z and Enter" if sys.platform == "win32" else "Ctrl-D"
        note(f"reading from the terminal; end with {end}")
    yield sys.stdin.buffer


def read_input(name: str, max_bytes: int = -1) -> bytes:
    """Read the bytes of a file, or of stdin for `-`."""
    with opened_input(name) as file:
        return file.read(max_bytes)


def shown_name(name: str) -> str:
    """Return a file's name for messages and sources."""
    return "<stdin>" if name == "-" else name


def text_of(data: bytes, name: str) -> str:
    """Decode text: UTF-8, or UTF-16 as Windows PowerShell writes it."""
    encoding = "UTF-16" if data.startswith(UTF16) else "UTF-8"
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadRecord(f"is not {encoding} text", where=f"{name}:{line}") from None


def json_objects(data: bytes, *, name: str, todo: str) -> list[tuple[int, dict[str, Any]]]:
    """Parse JSON objects from a document, a list, or lines; return each with its line number.

    `todo` says what the file should contain, for error messages.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    for line, value in _json_values(text_of(data, name), name, todo):
        if not isinstance(value, dict):
            what = f"a record is a JSON object, not {json.dumps(value)[:40]}"
            raise BadRecord(what, where=f"{name}:{line}", todo=todo)
        found.append((line, value))
    if not found:
        raise BadRecord("there is nothing in it to record", where=name, todo=todo)
    return found


def _json_values(text: str, name: str, todo: str) -> Iterator[tuple[int, Any]]:
    """Yield each top-level value, and each element of a top-level list, with its line."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a JSON value")

    def value_at(start: int) -> tuple[Any, int]:
        try:
            return decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            what = f"{error.msg} (column {error.colno})"
            place = error.lineno
        except (ValueError, RecursionError) as error:
            what, place = str(error), text.count("\n", 0, start) + 1
        raise BadRecord(f"is not JSON: {what}", where=f"{name}:{place}", todo=todo)

    decoder = json.JSONDecoder(parse_constant=refuse)
    at = 0
    line = 1
    counted = 0
    while begun := _VALUE.search(text, at):
        value, end = value_at(begun.start())
        is_list = isinstance(value, list)
        at = begun.start() + is_list
        for item in value if is_list else [value]:
            at = next(_ITEM.finditer(text, at)).start()
            line += text.count("\n", counted, at)
            counted = at
            yield line, item
            at = value_at(at)[1] if is_list else end
        at = end


# -- progress on stderr


def _records(ralph: Ralph) -> int | None:
    """Estimate how many records the features and conversations have, by counting lines.

    For journals on a server this is unknown; a bar without an end is better than none.
    """
    from ralph.journal.file import JsonlJournal
    from ralph.memory.store import on_server

    if on_server(ralph.store.journals) is not None:
        return None
    folder = ralph.project.journals
    files = [folder / name for name in disk.names(folder)]
    journals = [part.journal for part in ralph.conversations.stream.parts]
    files += [each.path for each in journals if isinstance(each, JsonlJournal)]
    total = 0
    for path in files:
        with contextlib.suppress(FileNotFoundError), disk.open_reader(path) as file:
            while part := file.read(1 << 20):
                total += part.count(b"\n")
    return total


class Bar:
    """A progress bar for slow work; several runs add up. Without a terminal, it is one line."""

    def __init__(
        self,
        total: Callable[[], int | None] = lambda: None,
        *,
        patience_s: float = _PATIENCE_S,
        text: str = "indexing the journal",
        in_bytes: bool = False,
    ) -> None:
        self.total = total
        self._text = text
        self._in_bytes = in_bytes
        self._patience_s = patience_s
        self._due = time.monotonic() + patience_s
        self._bar: Progress | None = None
        self._silent = False
        self._wanted = is_terminal(sys.stderr)
        # When the run under way began; until then the command may have done other slow things.
        self._began: float | None = None
        self._said = False
        self._before = self._last = 0

    def __call__(self, done: int) -> None:
        """Move to `done`; a smaller number than the last one starts the next run."""
        if self._silent:
            return
        if not self._wanted:
            self._say_once(done)
            return
        if done < self._last:
            self._before += self._last
        self._last = done
        if self._bar is None and time.monotonic() >= self._due:
            self._show()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._before + done)

    def _say_once(self, done: int) -> None:
        """Say in one line that this run of slow work takes long."""
        now = time.monotonic()
        if self._began is None or done < self._last:
            self._began = now
        self._last = done
        if not self._said and now - self._began >= _LINE_PATIENCE_S:
            note(f"{self._text}; this takes a while")
            self._said = True

    def hide(self, *, silent: bool = False) -> None:
        """Remove the bar until there is slow work again; if `silent`, do not show it again."""
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._due = None, time.monotonic() + self._patience_s
        self._silent = silent
        self._began = None

    def close(self) -> None:
        """Remove the bar before the answer is printed."""
        self.hide(silent=True)

    def _show(self) -> None:
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn() if self._in_bytes else progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=console(sys.stderr),
            transient=True,
        )
        self._bar.add_task(self._text, total=self.total())
        self._bar.start()
