"""`ralph conversations import` and `export`: what was said elsewhere in, and everything out."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.clients import BY_SOURCE
from ralph.doors.cli.context import (
    Bar,
    as_json,
    read_bytes,
    shown_name,
    start_folder,
    the_project,
    warnings_told,
)
from ralph.doors.cli.render import Page, count, note, print_json, to_json, write_out
from ralph.doors.cli.tree import Command, project_given

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ralph.memory.conversations import ConversationImport, Conversations
    from ralph.memory.importing import Importer
    from ralph.memory.project import Project
    from ralph.records import Complaint

_COMPLAINTS_SHOWN = 20
_LOOK_EVERY_S = 2.0


@click.command("import", cls=Command)
@click.argument("source", metavar="|".join([*BY_SOURCE, "FILE", "-"]))
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--all", "everything", is_flag=True, help="Sessions of all projects, not of this.")
@click.option("--follow", is_flag=True, help="Go on bringing in what is new, until Ctrl-C.")
@as_json
def import_(
    source: str, folder: str | None, everything: bool, follow: bool, as_json: bool
) -> int | None:
    """Bring in conversations from elsewhere.

    claude-code and codex: the sessions of this project that the client left on this machine (in
    DIR; else where the client keeps them); outside a project, those of all. FILE: conversations as
    JSON, as `export` writes them, or lists of messages with role and content. What is here already
    is not doubled, what was forgotten stays so, and secrets are taken out.
    """
    if source in BY_SOURCE:
        return _import_sessions(source, folder, everything, follow, as_json)
    if folder is not None or everything or follow:
        raise click.UsageError(f"DIR, --all and --follow go with {' or '.join(BY_SOURCE)} only.")
    from ralph.memory.conversation_stream import prune_if_due
    from ralph.memory.importing_plain import import_conversations

    data = read_bytes(source)
    with _opened() as (memory, project, _):
        came = import_conversations(
            memory.shelf,
            _stream(project),
            data,
            name=shown_name(source),
            project=project.root.name if project else "",
        )
        prune_if_due(memory)
    _tell(came, as_json=as_json)
    return None


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-")
@click.option("--conversation", "ids", multiple=True, metavar="ID", help="This one; repeatable.")
@click.option("--since", metavar="DATE", help="Only what was said since then.")
@click.option("--everywhere", is_flag=True, help="Of all projects.")
@as_json
def export(
    file: str, ids: tuple[str, ...], since: str | None, everywhere: bool, as_json: bool
) -> None:
    """Write conversations to a file, as JSON.

    A FILE that ends in .jsonl gets one conversation a line; - is stdout. `import` reads both, here
    or elsewhere, and gives everything the same ids.
    """
    from ralph.memory.importing_plain import export_conversations, written

    with _opened() as (memory, project, _):
        streams = memory.shelf.journals.names() if everywhere else [_stream(project)]
        told = export_conversations(memory.shelf, streams, conversations=ids, since=since)
    data = written(told, lines=file.lower().endswith(".jsonl"))
    if file == "-":
        write_out([data])
        return
    _write(Path(file), data)
    said = sum(len(one.exchanges) for one in told)
    if as_json:
        print_json({"file": file, "conversations": len(told), "exchanges": said})
    else:
        Page().line(
            f"Wrote {count(len(told), 'conversation')}, {count(said, 'exchange')} to {file}."
        )


def _import_sessions(
    client: str, folder: str | None, everything: bool, follow: bool, as_json: bool
) -> int:
    from ralph.memory.conversation_stream import prune_if_due
    from ralph.memory.importing import Importer

    with _opened() as (memory, project, home):
        bar = _Bytes(lambda: importer.total_bytes)
        importer = Importer(
            client,
            memory.shelf,
            home=home,
            folder=Path(folder).expanduser() if folder else None,
            within=None if everything else project,
            progress=bar,
        )
        try:
            came = importer.once()
        finally:
            bar.close()
        prune_if_due(memory)
        _tell(came, as_json=as_json, on_one_line=follow)
        if follow:
            _follow(importer, came, as_json=as_json)
    return 1 if came.unread and not (came.files or came.unchanged) else 0


def _follow(importer: Importer, came: ConversationImport, *, as_json: bool) -> None:
    """Look again and again until Ctrl-C; only news are told."""
    told = {str(one) for one in (*came.unread, *came.complaints)}
    if not as_json:
        note(f"following {importer.folder}; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(_LOOK_EVERY_S)
            came = importer.once()
            news = [one for one in (*came.unread, *came.complaints) if str(one) not in told]
            told |= {str(one) for one in news}
            if came.exchanges:
                _tell(came, as_json=as_json, on_one_line=True, complaints=news)
            else:
                _complain(news)


def _tell(
    came: ConversationImport,
    *,
    as_json: bool,
    on_one_line: bool = False,
    complaints: list[Complaint] | None = None,
) -> None:
    import msgspec

    news = [*came.unread, *came.complaints] if complaints is None else complaints
    if as_json:
        plain: dict[str, Any] = msgspec.to_builtins(came)
        if on_one_line:
            sys.stdout.write(to_json(plain) + "\n")
            sys.stdout.flush()
        else:
            print_json(plain)
    else:
        Page().line(summary(came))
        sys.stdout.flush()
    _complain(news)


def summary(came: ConversationImport) -> str:
    """What an import came to, in one line."""
    more = [f"{came.known} known"] if came.known else []
    if came.unchanged:
        more.append(f"{count(came.unchanged, 'session')} unchanged")
    if came.waiting:
        more.append(f"{came.waiting} still under way")
    if came.elsewhere:
        more.append(
            f"{count(came.elsewhere, 'session')} of other projects left out; --all takes them"
        )
    if came.files and not (came.exchanges or came.known or came.waiting):
        more.append(f"{count(came.files, 'file')} with nothing that was said")
    if came.unread:
        more.append(f"{count(len(came.unread), 'file')} could not be read")
    beside = f" ({', '.join(more)})" if more else ""
    said = count(came.exchanges, "exchange")
    return f"Imported {count(came.conversations, 'conversation')}, {said}{beside}."


def _complain(complaints: list[Complaint]) -> None:
    for complaint in complaints[:_COMPLAINTS_SHOWN]:
        note(str(complaint))
    if more := complaints[_COMPLAINTS_SHOWN:]:
        note(f"and {count(len(more), 'place')} more could not be read")


@contextlib.contextmanager
def _opened() -> Iterator[tuple[Conversations, Project | None, Path]]:
    """The conversations of the project that was given or is around this folder, or of none."""
    from ralph.config import home_folder, load
    from ralph.memory.conversations import Conversations
    from ralph.memory.project import find_project

    home = home_folder()
    named = project_given() or os.environ.get("RALPH_PROJECT")
    project = the_project() if named else find_project(start_folder(), home=home)
    config = load(home=home, project_file=project.settings_file if project else None)
    memory = Conversations(
        home=home,
        settings=config.settings,
        embedder=None,
        project_id=project.id if project else None,
        project=project.root.name if project else "",
    )
    try:
        with warnings_told():
            yield memory, project, home
    finally:
        memory.close()


def _stream(project: Project | None) -> str:
    from ralph.memory.conversation_journal import GENERAL

    return project.id if project else GENERAL


def _write(path: Path, data: bytes) -> None:
    from ralph import disk

    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        path.write_bytes(data)
    else:
        disk.replace(path, data)


class _Bytes(Bar):
    """The same bar, over bytes of transcripts."""

    def __init__(self, total: Callable[[], int]) -> None:
        super().__init__(total)

    def _show(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as TimeLeft

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeLeft(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        task = bar.add_task("reading sessions", total=self._total())
        bar.start()
        return bar, task
