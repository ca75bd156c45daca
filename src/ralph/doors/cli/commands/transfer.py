"""`ralph export` and `import`, of records and of conversations."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.clients import BY_SOURCE
from ralph.doors.cli import context
from ralph.doors.cli.cards import staged_table
from ralph.doors.cli.main import Command, wants_json
from ralph.doors.cli.render import Page, Result, note, print_json_line, write_out
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.conversation_stream import ConversationImport
    from ralph.memory.conversations import Conversations
    from ralph.memory.project import Project
    from ralph.memory.sessions import Importer

_COMPLAINTS_SHOWN = 20
_LOOK_EVERY_S = 2.0


# -- records


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-")
@context.feature_option
def export(file: str, feature: str | None) -> Result | None:
    """Write all records to a file.

    The file has one JSON object per line, tombstones too; - is stdout. Without --feature, the
    knowledge that this project captured is included.

    \b
    Examples:
      ralph export backup.jsonl
      ralph export - --feature auth
    """
    from ralph.memory.keeping import export_lines

    with context.opened() as ralph:
        lines = list(export_lines(ralph, feature=feature))
    text = f"Wrote {plural(len(lines), 'entry', 'entries')} to {file}."
    return _written(file, lines, Result({"file": file, "entries": len(lines)}, text))


def _written(file: str, lines: Sequence[bytes], result: Result) -> Result | None:
    """Write to the file that a person names, or to stdout."""
    from ralph import disk

    path, data = Path(file), b"".join(lines)
    if file == "-":
        write_out(lines)
        return None
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        path.write_bytes(data)
    else:
        disk.replace(path, data)
    return result


@click.command("import", cls=Command)
@click.argument("file", metavar="FILE|-")
@context.flag("--own", "It is your own backup: publish knowledge as it was.")
def import_(file: str, own: bool) -> Result:
    """Import the records of an export.

    Records that are already here are not duplicated, and forgotten ones stay forgotten. Knowledge
    keeps the project that captured it. It is staged and shown, and no project finds it before you
    publish it with `ralph knowledge checkpoint --imported`. Lines that cannot be read are named
    and skipped.

    \b
    Examples:
      ralph import backup.jsonl --own
    """
    import msgspec

    from ralph.memory.keeping import import_lines

    name = context.shown_name(file)
    lines = io.BytesIO(context.read_input(file))
    with context.opened() as ralph:
        found = import_lines(ralph, lines, name=name, own=own)
        staged = [each for each in ralph.knowledge.staged("*") if each.id in found.staged]

    def show(page: Page) -> None:
        known = f", {found.known} already known" if found.known else ""
        forgotten = f", {found.forgotten} stay forgotten" if found.forgotten else ""
        page.line(f"Imported {plural(found.added, 'record')}{known}{forgotten}.")
        if staged and not own:
            entries = plural(len(staged), "entry of knowledge", "entries of knowledge")
            page.line(f"Staged {entries} from {name}:")
            page.show(staged_table(staged))
            page.line("To publish them for all projects: ralph knowledge checkpoint --imported")

    left_out = (
        f"left out {plural(found.left_out, 'line')} that would publish, rate or forget knowledge; "
        "for a backup of your own, use --own"
    )
    notes = [left_out] if found.left_out else []
    notes += _listed(found.complaints, "line")
    code = 1 if found.complaints else 0
    return Result(msgspec.to_builtins(found), show, code=code, notes=notes)


def _listed(complaints: Sequence[Any], word: str) -> list[str]:
    lines = [str(complaint) for complaint in complaints[:_COMPLAINTS_SHOWN]]
    if more := complaints[_COMPLAINTS_SHOWN:]:
        lines.append(f"and {plural(len(more), f'more {word}')} could not be read")
    return lines


# -- conversations


@click.command("export", cls=Command)
@click.argument("file", metavar="FILE|-")
@context.option("--conversation", "Only this. Repeatable.", "ID", "ids", multiple=True)
@context.option("--since", "Only exchanges of this day or later.", "DATE")
@context.everywhere_option
def export_conversations(
    file: str, ids: tuple[str, ...], since: str | None, everywhere: bool
) -> Result | None:
    """Write conversations to a file, as JSON.

    A FILE that ends in .jsonl gets one conversation per line; - is stdout. `import` reads both,
    here or elsewhere, and keeps all ids.

    \b
    Examples:
      ralph conversations export talks.jsonl --since 2026-01-01
    """
    from ralph.memory import conversation_json

    with _opened_conversations() as (memory, project, _):
        streams = memory.shelf.journals.names() if everywhere else [_stream(project)]
        exported = conversation_json.export_conversations(
            memory.shelf, streams, conversations=ids, since=since
        )
    data = conversation_json.written(exported, lines=file.lower().endswith(".jsonl"))
    exchanges = sum(len(each.exchanges) for each in exported)
    text = f"{plural(len(exported), 'conversation')}, {plural(exchanges, 'exchange')}"
    value = {"file": file, "conversations": len(exported), "exchanges": exchanges}
    return _written(file, [data], Result(value, f"Wrote {text} to {file}."))


@click.command("import", cls=Command)
@click.argument("source", metavar="|".join([*BY_SOURCE, "FILE", "-"]))
@click.argument("folder", metavar="[DIR]", required=False)
@context.flag("--all", "Sessions of all projects, not only this.", "everything")
@context.flag("--follow", "Keep importing new exchanges until Ctrl-C.")
def import_conversations(
    source: str, folder: str | None, everything: bool, follow: bool
) -> Result | int:
    """Import conversations.

    claude-code and codex: the sessions of this project that the client stored on this machine (in
    DIR, or where the client keeps them); outside a project, all sessions. FILE: conversations as
    JSON, as `export` writes them, or lists of messages with role and content. Known exchanges are
    not duplicated, forgotten ones stay forgotten, and secrets are removed.

    \b
    Examples:
      ralph conversations import claude-code
      ralph conversations import codex --all --follow
    """
    from ralph.memory import conversation_json
    from ralph.memory.conversations import prune_if_due

    if source in BY_SOURCE:
        return _import_sessions(source, folder, everything, follow)
    if folder is not None or everything or follow:
        raise click.UsageError(f"DIR, --all and --follow go with {' or '.join(BY_SOURCE)} only.")
    data = context.read_input(source)
    with _opened_conversations() as (memory, project, _):
        found = conversation_json.import_conversations(
            memory.shelf,
            _stream(project),
            data,
            name=context.shown_name(source),
            project=project.root.name if project else "",
        )
        prune_if_due(memory)
    return _imported(found)._replace(code=0)


def _import_sessions(
    client: str, folder: str | None, everything: bool, follow: bool
) -> Result | int:
    from ralph.memory.conversations import prune_if_due
    from ralph.memory.sessions import Importer

    with _opened_conversations() as (memory, project, home):
        bar = context.Bar(lambda: importer.total_bytes, text="reading sessions", in_bytes=True)
        importer = Importer(
            client,
            memory.shelf,
            home=home,
            folder=Path(folder).expanduser() if folder else None,
            within=None if everything else project,
            progress=bar,
        )
        try:
            found = importer.once()
        finally:
            bar.close()
        prune_if_due(memory)
        result = _imported(found)
        if not follow:
            return result
        _print_now(result)
        _follow(importer, found)
    return result.code


def _follow(importer: Importer, found: ConversationImport) -> None:
    """Look again and again until Ctrl-C; print only what is new."""
    printed = {str(each) for each in (*found.unread, *found.complaints)}
    if not wants_json():
        note(f"following {importer.folder}; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(_LOOK_EVERY_S)
            found = importer.once()
            complaints = [*found.unread, *found.complaints]
            new = [each for each in complaints if str(each) not in printed]
            printed |= {str(each) for each in new}
            result = _imported(found)._replace(notes=_listed(new, "place"))
            if found.exchanges:
                _print_now(result)
            else:
                for text in result.notes:
                    note(text)


def _print_now(result: Result) -> None:
    """Print one of several results: a line each."""
    if wants_json():
        print_json_line(result.value)
    else:
        Page().show(result.view)
        sys.stdout.flush()
    for text in result.notes:
        note(text)


def _imported(found: ConversationImport) -> Result:
    more = [f"{found.known} known"] if found.known else []
    if found.unchanged:
        more.append(f"{plural(found.unchanged, 'session')} unchanged")
    if found.waiting:
        more.append(f"{found.waiting} still in progress")
    if found.elsewhere:
        sessions = plural(found.elsewhere, "session")
        more.append(f"{sessions} of other projects left out; --all includes them")
    if found.files and not (found.exchanges or found.known or found.waiting):
        more.append(f"{plural(found.files, 'file')} without exchanges")
    if found.unread:
        more.append(f"{plural(len(found.unread), 'file')} could not be read")
    beside = f" ({', '.join(more)})" if more else ""
    exchanges = plural(found.exchanges, "exchange")
    return Result(
        found,
        f"Imported {plural(found.conversations, 'conversation')}, {exchanges}{beside}.",
        code=1 if found.unread and not (found.files or found.unchanged) else 0,
        notes=_listed([*found.unread, *found.complaints], "place"),
    )


@contextlib.contextmanager
def _opened_conversations() -> Iterator[tuple[Conversations, Project | None, Path]]:
    """The conversations of the project that was given or is around this folder, or of none."""
    from ralph.memory.conversations import Conversations

    project, config, home = context.project_config(optional=not context.is_named())
    memory = Conversations(
        home=home,
        settings=config.settings,
        embedder=None,
        project_id=project.id if project else None,
        project=project.root.name if project else "",
    )
    try:
        with context.warnings_noted():
            yield memory, project, home
    finally:
        memory.close()


def _stream(project: Project | None) -> str:
    from ralph.memory.conversations import GENERAL

    return project.id if project else GENERAL
