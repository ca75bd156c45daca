"""`ralph export`, `import`, `backup`, `restore` and `forget`: copy records, or delete them."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ralph import disk
from ralph.clients import BY_AGENT, BY_SOURCE
from ralph.doors.cli import context, render
from ralph.doors.cli.cards import SHORT_ID, one_line_of, short_id, staged_table
from ralph.doors.cli.commands.recall import check_sources
from ralph.doors.cli.main import Command, keep_project, wants_json
from ralph.doors.cli.render import Page, Result, note, picked
from ralph.errors import BadInput, NotFound, RalphError
from ralph.memory import conversation_json, keeping
from ralph.memory.conversation_stream import ConversationImport
from ralph.memory.conversations import prune_if_due
from ralph.memory.moments import write_moments
from ralph.memory.past_sessions import PastSessions
from ralph.memory.project import portable_ids
from ralph.memory.ralph import Ralph
from ralph.memory.transfer import export_lines, import_lines
from ralph.records.conversation import EXCHANGE
from ralph.records.iteration import KIND as ITERATION
from ralph.text.tokens import plural

_COMPLAINTS_SHOWN = 20
_FILE = click.Path(path_type=Path)
_LOOK_EVERY_S = 2.0
_EVERYTHING = "\0everything"
_SHOWN = 10
# Of fewer projects, nobody needs a list.
_LEAST_PROJECTS = 2
_GIT = "Git history keeps what was committed before."
_DRY_RUN = "This is a dry run; nothing was forgotten."
_OTHERS = "what is published of it is deleted for all other projects, too"


# -- records


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-", type=context.FILE)
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
    with context.opened() as ralph:
        lines = list(export_lines(ralph, feature=feature))
        sessions = [] if feature else ralph.conversations.list()
        is_empty = not (lines or sessions or feature) and bool(context.elsewhere(ralph))
    text = f"Wrote {plural(len(lines), 'entry', 'entries')} to {file}."
    if sessions:
        talks = plural(len(sessions), "conversation")
        note(f"without this folder's {talks}; for those: ralph conversations export FILE")
    elif is_empty:
        note("nothing in this folder; for others: ralph conversations export FILE --everywhere")
    return _written(file, lines, Result({"file": file, "entries": len(lines)}, text))


def _written(file: str, lines: Sequence[bytes], result: Result) -> Result | None:
    """Write to the named file, or to stdout for `-`."""
    if file == "-":
        render.write_out(lines)
        return None
    path = _in_folder(Path(file))
    data = b"".join(lines)
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        path.write_bytes(data)
    else:
        disk.replace(path, data)
    return result


def _in_folder(file: Path) -> Path:
    """Return the full path of a file to write; its folder must exist."""
    path = file.absolute()
    if not path.parent.is_dir():
        raise NotFound("there is no such folder", where=str(path.parent))
    return path


@click.command("import", cls=Command)
@click.argument("file", metavar="FILE|-", type=context.FILE)
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
    name = context.shown_name(file)
    lines = io.BytesIO(context.read_input(file))
    with context.opened(anywhere=False) as ralph:
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

    left_out = f"left out {plural(found.left_out, 'line')} that would publish, rate or forget"
    notes = [f"{left_out} knowledge; for a backup of your own, use --own"] if found.left_out else []
    notes += _listed(found.complaints, "line")
    return Result(msgspec.to_builtins(found), show, code=1 if found.complaints else 0, notes=notes)


def _listed(complaints: Sequence[Any], word: str) -> list[str]:
    lines = [str(complaint) for complaint in complaints[:_COMPLAINTS_SHOWN]]
    if more := complaints[_COMPLAINTS_SHOWN:]:
        lines.append(f"and {plural(len(more), f'more {word}')} could not be read")
    return lines


# -- everything


@click.command(cls=Command)
@click.argument("file", type=_FILE)
def backup(file: Path) -> Result:
    """Write everything that you have in memory to a file.

    This is for all projects on this machine: conversations with summaries, tags and ratings,
    documents, knowledge, iterations, notes and plans. Settings, keys and the index are not in it.
    The file is checked after writing, and only you can read it.

    \b
    Examples:
      ralph backup ~/ralph-backup.zip
    """
    from ralph.memory.backup import back_up  # loads the ZIP library, which only this needs

    place = _in_folder(file.expanduser())
    replaces = place.exists()
    with context.opened() as ralph:
        done = back_up(ralph, place)
    projects = plural(len(done.projects), "project")
    text = f"Saved {plural(done.records, 'record')} and {projects} to {file}, and checked it."
    if replaces:
        text += " The file that was there before is replaced."
    return Result(done, text, code=1 if done.left_out else 0, notes=_listed(done.left_out, "thing"))


@click.command(cls=Command)
@click.argument("file", type=_FILE)
@context.option("--into", "Create projects that are not on this machine here.", "DIR", type=_FILE)
def restore(file: Path, into: Path | None) -> Result:
    """Bring back what a backup has and this machine lacks.

    The whole file is checked first. Records that are here stay as they are, and forgotten ones stay
    forgotten. Each project's records go to that project: it must have been used on this machine, be
    in its old folder, or is created with --into. Restore only files that you made: their records
    count as your own.

    \b
    Examples:
      ralph restore ~/ralph-backup.zip --into ~/src
    """
    from ralph.memory.backup import restore as bring_back

    with context.opened() as ralph:
        done = bring_back(ralph, file.expanduser(), into=into and into.expanduser().absolute())
    counts = f"{done.known} already known, {done.forgotten} stay forgotten"
    text = f"Restored {plural(done.added, 'record')} ({counts})."
    return Result(done, text, code=1 if done.left_out else 0, notes=_listed(done.left_out, "thing"))


# -- conversations


@click.command("export", cls=Command)
@click.argument("file", metavar="FILE|-", type=context.FILE)
@context.option("--conversation", "Only this. Repeatable.", "ID", "conversations", multiple=True)
@context.option("--since", "Only exchanges of this day or later.", "DATE")
@context.everywhere_option
def export_conversations(file: str, everywhere: bool, **chosen: Any) -> Result | None:
    """Write conversations to a file, as JSON.

    A FILE that ends in .jsonl gets one conversation per line; - is stdout. `import` reads both,
    here or elsewhere, and keeps all ids. With --everywhere each conversation names its project, and
    an import on another machine keeps them apart.

    \b
    Examples:
      ralph conversations export talks.jsonl --since 2026-01-01
    """
    with context.opened() as ralph:
        memory = ralph.conversations
        memory.store.need_journals()
        names = portable_ids(memory.store.home) if everywhere else None
        exported = conversation_json.export_conversations(
            memory.within(everywhere), project_ids=names, **chosen
        )
        elsewhere = "" if exported or everywhere else context.elsewhere(ralph)
    data = conversation_json.written(exported, lines=file.lower().endswith(".jsonl"))
    if elsewhere:
        note(f"no conversations here. {elsewhere}")
    exchanges = sum(len(each.exchanges) for each in exported)
    text = _talks_text(len(exported), exchanges)
    value = {"file": file, "conversations": len(exported), "exchanges": exchanges}
    return _written(file, [data], Result(value, f"Wrote {text} to {file}."))


def _complete_source(_: click.Context, __: click.Parameter, incomplete: str) -> list[Any]:
    """Complete names of clients, and files."""
    from click.shell_completion import CompletionItem

    clients = [CompletionItem(name) for name in BY_SOURCE if name.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *clients]


@click.command("import", cls=Command)
@click.argument(
    "source",
    metavar="[" + "|".join([*BY_SOURCE, "FILE", "-"]) + "]",
    required=False,
    shell_complete=_complete_source,
)
@click.argument("folder", metavar="[PATH]", required=False, type=click.Path())
@context.flag("--all", "Sessions of all projects, not only this.", "everything")
@context.flag("--follow", "Keep importing new exchanges until Ctrl-C.")
def import_conversations(source: str | None, folder: str | None, **flags: bool) -> Result | int:
    """Import conversations.

    A name of a client: the sessions of this project that the client stored on this machine (in
    PATH, a directory or one session's file, or where the client keeps them); outside a project, all
    sessions. Without a name: the sessions of every client. FILE: conversations as JSON, as `export`
    writes them, or lists of messages with role and content. Known exchanges are not duplicated,
    forgotten ones stay forgotten, and secrets are removed. An import that was ended continues
    where it was.

    \b
    Examples:
      ralph conversations import --all
      ralph conversations import claude-code
      ralph conversations import codex --all --follow
    """
    if source is None:
        return _read_sessions(list(BY_SOURCE), None, **flags)
    if source in BY_AGENT and not Path(source).exists():  # its name in other commands
        source = BY_AGENT[source].source
    if source in BY_SOURCE:
        return _read_sessions([source], folder, **flags)
    if folder is not None or any(flags.values()):
        raise click.UsageError(f"PATH, --all and --follow go with {' or '.join(BY_SOURCE)} only.")
    data = context.read_input(source)
    name = context.shown_name(source)
    with context.opened() as ralph:
        memory = ralph.conversations
        found = conversation_json.import_conversations(
            memory.store, memory.stream, data, name=name, project=ralph.project.root.name
        )
        prune_if_due(memory)
    return _imported(found)._replace(code=0)


def _read_sessions(
    clients: Sequence[str], folder: str | None, everything: bool, follow: bool
) -> Result | int:
    with context.opened() as ralph:
        project = context.found_project()
        within = None if everything else project
        with session_bar() as bar:
            past = PastSessions(
                ralph.conversations.store,
                clients=clients,
                folder=Path(folder).expanduser() if folder else None,
                within=within,
                progress=bar,
            )
            bar.total = lambda: past.total_bytes
            if not past.importers:
                clients_read = ", ".join(client.title for client in BY_SOURCE.values())
                what = f"no client has sessions on this machine ({clients_read})"
                raise NotFound(what, todo="Name a client and the folder of its sessions.")
            result = import_past(ralph, past)
        if not follow:
            return result
        _print_now(result)
        _follow(past, result.value)
    return result.code


def session_bar() -> contextlib.AbstractContextManager[context.Bar]:
    """Return a progress bar for reading sessions."""
    return contextlib.closing(context.Bar(text="reading sessions", in_bytes=True))


def import_past(ralph: Ralph, past: PastSessions) -> Result:
    """Import the new sessions and say of which projects they are."""
    found = past.once()
    prune_if_due(ralph.conversations)
    past.index()
    write_moments(ralph)
    past.write_moments()  # hooks may say something of these sessions, too
    projects = past.projects()
    result = _imported(found)
    if len(projects) < _LEAST_PROJECTS:
        return result
    names = list(dict.fromkeys(one.name or "(no folder)" for one in projects))
    listed = f"{', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
    line = f"They are of {plural(len(projects), 'project')}: {listed}"
    return result._replace(view=[str(result.view), line])


def _follow(past: PastSessions, found: ConversationImport) -> None:
    """Keep importing until Ctrl-C; print only what is new."""
    printed = {str(each) for each in (*found.unread, *found.complaints)}
    if not wants_json():
        note(f"following {', '.join(map(str, past.folders))}; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(_LOOK_EVERY_S)
            found = past.once()
            new = [each for each in [*found.unread, *found.complaints] if str(each) not in printed]
            printed |= {str(each) for each in new}
            result = _imported(found)._replace(notes=_listed(new, "place"))
            _print_now(result, quiet=not found.exchanges)


def _print_now(result: Result, *, quiet: bool = False) -> None:
    """Print one of several results on a line; if `quiet`, only its notes."""
    if wants_json() and not quiet:
        render.print_json_line(result.value)
    quiet = quiet or wants_json()
    render.render(result._replace(view="") if quiet else result, as_json=False)
    sys.stdout.flush()


def _imported(found: ConversationImport) -> Result:
    nothing = found.files and not (found.exchanges or found.known or found.waiting)
    empty = plural(found.files, "file")
    sessions = plural(found.elsewhere, "session")
    below = plural(found.subagents, "session of a sub-agent", "sessions of sub-agents")
    running = plural(
        found.waiting, "session may still be running; its", "sessions may still be running; their"
    )
    remarks = {
        f"{found.renewed} of which an older version had read less": found.renewed,
        f"{found.known} known": found.known,
        f"{plural(found.unchanged, 'session')} unchanged": found.unchanged,
        f"{running} last exchange comes with the next import": found.waiting,
        f"{sessions} of other projects left out; --all includes them": found.elsewhere,
        f"{below} left out; the session that started them has the result": found.subagents,
        f"for {plural(found.projects, 'other project')}": found.projects,
        f"{empty} without exchanges; for an agent's output: ralph record FILE": nothing,
        f"{plural(len(found.unread), 'file')} could not be read": found.unread,
    }
    more = ", ".join(text for text, applies in remarks.items() if applies)
    talks = _talks_text(found.conversations, found.exchanges)
    text = f"Imported {talks}{f' ({more})' if more else ''}."
    code = 1 if found.unread and not (found.files or found.unchanged) else 0
    notes = _listed([*found.unread, *found.complaints], "place")
    notes += [f"{text}; update Ralph" for text in found.drift]
    return Result(found, text, code=code, notes=notes)


def _talks_text(conversations: int, exchanges: int) -> str:
    return f"{plural(conversations, 'conversation')}, {plural(exchanges, 'exchange')}"


# -- forget


@click.command(cls=Command)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@context.flag("--all", "Everything of this project.", "everything")
@context.option(
    "--project",
    "Project directory (default: nearest parent with a .ralph/). Without DIR: as --all.",
    "DIR",
    multiple=True,
    is_flag=False,
    flag_value=_EVERYTHING,
)
@context.feature_option
@context.flag("--conversations", "Only conversations and documents; no iterations.")
@context.flag("--knowledge", "Only knowledge that this project captured.")
@context.option("--before", "Records older than this.", "DATE")
@context.option("--match", "Records that contain this text.")
@context.option("--reason", "Why; it is saved with the id.", "R")
@context.dry_run_option
@context.flag("--yes", "Do not ask.")
def forget(
    ids: tuple[str, ...],
    everything: bool,
    project: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    **chosen: Any,
) -> Result:
    """Delete records for good, with what was learned from them.

    These are iterations, notes, learnings, this project's conversations and documents, and
    knowledge that it captured. An ID may also be another project's entry, or a pattern, which means
    all its entries. Records must match all options that are given. Everything is listed first.
    Without an ID, or if learnings or published knowledge are deleted too, it asks; on a terminal
    also if an ID stands for several exchanges or iterations.

    An exchange is deleted together with its iteration, the title made from it, its summaries,
    lessons, learnings, and copies in notes and logs. With --match the text is also removed from the
    plan. What remains is listed. A forgotten record does not come back by a rebuild, an import or a
    merge.

    \b
    Examples:
      ralph forget 3f9a1c20
      ralph forget --match "acme corp" --conversations
      ralph forget --all
    """
    for folder in project:
        if folder != _EVERYTHING:
            keep_project(click.get_current_context(), folder)
    everything = everything or _EVERYTHING in project
    if not (ids or everything or chosen["feature"] or chosen["before"] or chosen["match"]):
        raise click.UsageError("Name records to forget, or choose them: --feature, --before, ...")
    check_sources(chosen)
    reason: str | None = chosen.pop("reason")
    with context.opened() as ralph:
        if ralph.remote:
            single = () if reason or any(chosen.values()) else ids
            return _forget_there(ralph, single, yes=yes, dry_run=dry_run)
        choice = keeping.choose(ralph, ids=ids, everything=everything, **chosen)
        hint = ""
        if choice.is_empty:
            hint = _matches_elsewhere(ralph, chosen["match"])
        elif _shown_and_unnamed(ralph, choice, ids) and not (yes or dry_run):
            _confirm_choice(choice, str(ralph.project.root) if everything else "")
        if dry_run:
            done = keeping.Forgotten(0, [], choice.remains)
        else:
            done = keeping.forget(ralph, choice, reason=reason)
    return _forgotten_result(choice, done, dry_run=dry_run, hint=hint)


def _shown_and_unnamed(ralph: Ralph, choice: keeping.Choice, ids: Sequence[str]) -> bool:
    """Show what was chosen; return whether more than what the given ids name would go."""
    kinds = {one.id: one.kind for one in keeping.chosen_records(ralph, choice)}
    if not wants_json():
        _show_choice(Page(), ralph, choice, kinds)
    if choice.published:
        note(_OTHERS)
    if not ids or choice.derived:
        return True
    counts = list(kinds.values())
    is_several = max(counts.count(EXCHANGE), counts.count(ITERATION)) > len(ids)
    return is_several and render.is_terminal(sys.stdin)


def _confirm_choice(choice: keeping.Choice, root: str) -> None:
    """Ask before the records go; `root` is the project if everything of it goes."""
    records = plural(choice.count, "record")
    if choice.places:
        records += f" and the words on {plural(len(choice.places), 'line')} of the plan"
    if root:
        records += f" (everything of {root} that matches)"
    render.confirm(
        f"forget {records} for good",
        problem=f"{records} would be forgotten, and this is not a terminal",
        todo="Add --yes to do it.",
        refusal="Nothing was forgotten.",
    )


def _forgotten_result(
    choice: keeping.Choice, done: keeping.Forgotten, *, dry_run: bool, hint: str
) -> Result:
    """Say what was forgotten, what was removed beside it, and what is still there."""
    lines: list[str] = []
    if done.count:
        beside = f" {_GIT}" if choice.committed else ""  # other records are never in git
        lines.append(f"Forgot {plural(done.count, 'record')}, in journal and index.{beside}")
    if done.copies:
        lines.append(f"Also removed: {', '.join(done.copies)}.")
    if not lines:
        nothing = f"No record matches; nothing was forgotten. {hint}".rstrip()
        lines.append(_DRY_RUN if dry_run and not choice.is_empty else nothing)
    lines += [f"Still there: {remaining}" for remaining in done.remains]
    records = [
        {"id": each, "feature": key.feature} for key, some in choice.ids.items() for each in some
    ]
    records += [picked(one, "id", "feature") for one in choice.learnings]
    value = {"forgotten": done.count, "records": records, **picked(done, "copies", "remains")}
    notes = [_GIT] if wants_json() and done.count and choice.committed else []
    return Result(value, lines, notes=notes)


def _matches_elsewhere(ralph: Ralph, text: str | None) -> str:
    """Say which other projects have conversations with this text."""
    if not text or context.in_agents_run():
        return ""
    projects = keeping.projects_with(ralph, text)
    if not projects:
        return ""
    names = ", ".join(projects[:_SHOWN])
    more = len(projects) - _SHOWN
    if more > 0:
        names += f" and {more} more"
    return f"Other projects have it: {names}. Run this in their folder, or add --project DIR."


def _forget_there(there: Any, ids: tuple[str, ...], *, yes: bool, dry_run: bool) -> Result:
    """Forget records on a server, each with everything that was learned from it."""
    if not ids:
        todo = "Leave other options and --reason out, or do this where the server runs."
        raise BadInput("a server forgets single records, named by their ids", todo=todo)
    looked = [there.forget(one, dry_run=True) for one in ids]
    going = list(dict.fromkeys(one for each in looked for one in each["ids"]))
    learned = list(dict.fromkeys(one for each in looked for one in each["learnings"]))
    records = plural(len(going), "record")
    if learned:
        records += f" and {plural(len(learned), 'learning')}"
    value = {"forgotten": 0, "ids": going, "learnings": learned, "remains": []}
    if dry_run:
        shown = ", ".join(one[:SHORT_ID] for one in [*going, *learned])
        return Result(value, [f"To be forgotten on the server: {records} ({shown})", _DRY_RUN])
    if not yes and (learned or len(going) > len(ids)):
        render.confirm(
            f"forget {records} on the server for good",
            problem=f"{records} would be forgotten, and this is not a terminal",
            todo="Add --yes to do it.",
            refusal="Nothing was forgotten.",
        )
    remains: list[str] = []
    for one in ids:
        with contextlib.suppress(NotFound):  # it was forgotten along with an earlier one
            remains += there.forget(one)["remains"]
    value |= {"forgotten": len(going), "remains": remains}
    lines = [f"Forgot {records} on the server.", *(f"Still there: {each}" for each in remains)]
    return Result(value, lines)


def _show_choice(
    page: Page, ralph: Ralph, choice: keeping.Choice, records: Mapping[str, str]
) -> None:
    homes = [key.title for key in choice.ids]
    homes += ["the plan"] if choice.learnings or choice.places else []
    homes = list(dict.fromkeys(homes))
    page.line(f"To be forgotten: {plural(choice.count, 'record')} of {', '.join(homes)}")
    kinds = {**records, **{one.id: "learning" for one in choice.learnings}}
    for some in ([each for each in kinds if each not in choice.derived], choice.derived):
        for each in some[:_SHOWN]:
            page.line(short_id(each), "  ", _record_text(ralph, each, kinds[each]), indent=2)
        page.more(len(some) - _SHOWN)
    if choice.places:
        more = ", ..." if len(choice.places) > _SHOWN else ""
        page.line(f"The words also go from {', '.join(choice.places[:_SHOWN])}{more}")


def _record_text(ralph: Ralph, identity: str, kind: str) -> str:
    """Say what a record is about; for a small one, or one that cannot be shown, only its kind."""
    try:
        hit = ralph.get(identity, everywhere=False)
    except RalphError:
        return kind
    feature = getattr(hit.record, "feature", "")
    return f"{hit.label}{f' of {feature}' if feature else ''}  {one_line_of(hit)}"
