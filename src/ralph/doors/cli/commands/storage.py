"""`ralph journal` and `ralph index`: check and move the journals, check and rebuild the index."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
import msgspec

from ralph.config import USER_FILE, clear, load
from ralph.config import store as set_key
from ralph.doors.cli import context
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Page, Result, note, picked
from ralph.errors import BadInput, IndexOff
from ralph.index.sync import IndexSpec, Synced, is_current
from ralph.memory import transfer
from ralph.memory.feature import FeatureMemory
from ralph.memory.outbox import outbox_files
from ralph.memory.ralph import Ralph
from ralph.memory.status import verify_index
from ralph.memory.store import Store
from ralph.text.tokens import plural

_PLACES = "URL|server|files|-"
_TO = "postgresql://USER:PASSWORD@HOST/DATABASE, the server that is set, files; - asks."


# -- journal


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
        streams = [one for one in ralph.streams(feature) if one.label != "plan"]
        results = [one.verify() for one in streams]
        # Knowledge has one journal per project, because projects learn from each other.
        shared = [each.store.journals for each in streams if each.label == "knowledge"]
        journals = len(streams) + sum(len(each.names()) - 1 for each in shared)
    records = sum(number for number, _ in results)
    complaints = [complaint for _, found in results for complaint in found]

    def show(page: Page) -> None:
        for each in complaints:
            page.line((f"{each.file}:{each.line} ", "yellow"), each.what)
        page.line(f"{plural(records, 'record')} can be read in {plural(journals, 'journal')}.")

    plain = [picked(each, "file", "line", "what") for each in complaints]
    value = {"ok": not complaints, "records": records, "complaints": plain}
    problems = f"{plural(len(complaints), 'problem')}; bad lines were skipped or kept as they are"
    notes = [problems] if complaints else []
    return Result(value, show, code=len(notes), notes=notes)


@journal.command()
@context.option("--to", _TO, _PLACES, required=True)
@context.option(
    "--from", "Where they are now (default: as the setting journal_url says).", _PLACES, "source"
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
    if switch and dry_run:
        raise click.UsageError("--switch does not go with --dry-run.")
    project, config, home = context.project_config()
    assert project is not None
    begin = server = config.settings.journal_url or None
    target = _address(to, "URL to move to", server)
    if source is not None:
        begin = _address(source, "URL to move from", server)
    elif begin == target:
        begin = None  # the address was set first; the journals are still in files
    bar = context.Bar(lambda: None, patience_s=0.0, text="copying the journals")
    options: dict[str, Any] = {"everything": everything, "dry_run": dry_run}
    options |= {"source": begin, "target": target, "progress": lambda _, number: bar(number)}
    with context.warnings_noted(), contextlib.closing(bar):
        moved = transfer.move_project(project, config.settings, home, **options)
    notes = []
    if dry_run and (waiting := sum(transfer.waiting_records(home).values())):
        notes.append(f"{plural(waiting, 'record')} waiting here would go to the server first")
    if switch:
        file = home / USER_FILE
        if target is None:
            clear(file, "journal_url")
        else:
            set_key(file, "journal_url", target)
        loaded = load(home=home, project_file=project.settings_file)
        if (loaded.settings.journal_url or None) != target:
            origin = next(each.origin for each in loaded.origins if each.key == "journal_url")
            notes.append(f"{origin} takes precedence over {file}; change it there, too")
    memories = [
        picked(each, "memory", "left", "streams") | {"from": each.source, "to": each.target}
        for each in moved.memories
    ]
    streams = [stream for each in moved.memories for stream in each.streams]
    bad = [complaint for stream in streams for complaint in stream.unreadable]
    unreadable = [f"{b.file}:{b.line}: {b.what}; it stays where it is" for b in bad]
    counts = picked(moved, "dry_run", "records", "fresh", "left")
    value = {**counts, "switched": switch, "memories": memories}
    show = partial(_show_moved, moved, target, switched=switch, in_use=server == target)
    return Result(value, show, code=1 if unreadable else 0, notes=[*notes, *unreadable])


def _address(given: str, question: str, server: str | None) -> str | None:
    """Return the address of a server, or None for files; `-` asks for it or reads a pipe."""
    if given == "-" and sys.stdin.isatty():
        given = str(click.prompt(question, hide_input=True, err=True)).strip()
    elif given == "-":
        given = sys.stdin.readline().strip()
    if given == "server" and server is None:
        todo = "Give its address instead, or - to be asked for it."
        raise BadInput("no server is set: journal_url has no value", todo=todo)
    if given in ("files", "server"):
        return None if given == "files" else server
    if not given.startswith(("postgresql://", "postgres://")):
        what = "that is neither `files`, `server` nor the address of a PostgreSQL database"
        todo = "Write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE."
        raise BadInput(what, todo=todo)
    return given


def _show_moved(
    moved: transfer.MovedProject, target: str | None, page: Page, *, switched: bool, in_use: bool
) -> None:
    names = ("records", "fresh", "tombstones", "forgotten_there")
    rows = [
        (memory.memory, stream.name, *(str(getattr(stream, name)) for name in names))
        for memory in moved.memories
        for stream in memory.streams
    ]
    if rows:
        heads = ("memory", "journal", "records", "new there", "forgotten", "forgotten there")
        page.table(heads, rows)
        page.line()
    what = f"{plural(moved.records, 'record')} of {plural(len(rows), 'journal')}"
    lines = [f"{what}: the same in both places, compared one by one.", "The original is unchanged."]
    if moved.dry_run:
        lines = [
            f"{what} would be the same there, {moved.fresh} of them new.",
            "Nothing was copied.",
        ]
    others = f"{plural(moved.left, 'journal')} of other projects; --all includes them."
    lines += [f"Left where it was: {others}"] if moved.left else []
    page.show(lines if moved.dry_run else lines + _next_steps(target, switched, in_use))


def _next_steps(target: str | None, switched: bool, in_use: bool) -> list[str]:
    place = "in files" if target is None else "there"
    if switched:
        others = "Features of other projects stay on the server until, in each of them:"
        more = [] if target else [others, "  ralph journal move --from - --to files"]
        return [f"From now on memory is stored {place}.", *more]
    if in_use:
        return [f"Memory is already stored {place}."]
    if target is not None:
        todo = "To store memory there from now on: move again with --switch"
        return [todo, "(or set RALPH_JOURNAL_URL)"]
    todo = "To store memory in files again: ralph config --user --unset journal_url"
    return [todo, "(or unset RALPH_JOURNAL_URL, or move again with --switch)"]


@journal.command()
def deliver() -> Result:
    """Send what was saved here while the journal's server was down.

    Every command does this by itself. If no server is set any more, it goes to the files. For a
    team's server, this also sends what was saved with other tokens and what the server refused.
    """
    there: Any = context.on_server()
    if there is not None:
        with context.warnings_noted(), there:
            there.outbox.take_over()
            count = len(there.outbox.calls())
            folder = there.outbox.file.parent
            there.deliver()
        files = outbox_files(there.project.home).items()
        kept = sum(len(calls) for file, calls in files if file.parent == folder)
        notes = [f"still here: {plural(kept, 'record')}; see: ralph doctor"] if kept else []
        done = (
            f"Delivered {plural(count - kept, 'record')} to" if count else "Nothing waits here for"
        )
        value = {"delivered": {there.where: count - kept}, "waiting": {there.where: kept}}
        return Result(value, f"{done} {there.where}.", len(notes), notes=notes)
    _, config, home = context.project_config(optional=True)  # waiting records are of all projects
    url = config.settings.journal_url
    with context.warnings_noted():
        delivered = (
            transfer.deliver_all(url, config.settings, home)
            if url
            else transfer.bring_home(context.the_project(), config.settings, home)
        )
    left = transfer.waiting_records(home)
    records = plural(sum(delivered.values()), "record")
    text = f"Delivered {records} to the {'server' if url else 'files'}."
    names = ", ".join(f"{number} of {memory}" for memory, number in left.items())
    notes = [f"still waiting: {names}"] if left else []
    view = text if delivered else "Nothing is waiting here."
    return Result({"delivered": delivered, "waiting": left}, view, code=len(notes), notes=notes)


# -- index


@click.group(cls=Group)
def index() -> None:
    """Check, rebuild or clean up the index.

    The index is built from the journal, so it can be deleted at any time.
    """


@index.command()
def status() -> Result:
    """Show what the index contains and what it was built with.

    The knowledge of all projects has an index of its own, in Ralph's home.
    """
    with context.opened() as ralph:
        own = [each.target() for each in ralph.streams() if each.store is ralph.store]
        others = [each for each in ralph.streams() if each.store is not ralph.store]
        found = _contents(ralph.store, own)
        beside = {each.label: _contents(each.store, [each.target()]) for each in others}

    def show(page: Page) -> None:
        _show_contents(page, found)
        for label, contents in beside.items():
            page.line()
            page.line((label, "bold"))
            _show_contents(page, contents)

    return Result(found | beside, show)


def _contents(store: Store, targets: Sequence[IndexSpec]) -> dict[str, Any]:
    index = store.index
    # If a server is down, we don't know which journals it has.
    sure = store.journals.trouble() is None
    by_name = {target.name: target for target in targets}

    def read() -> dict[str, Any]:
        with index.store.state() as view:
            sizes = [(each, view.size(each)) for each in view.collections()]
        collections = [
            {
                **picked(each, "name", "live"),
                **picked(size, "records", "passages", "waiting"),
                "feature": each.stream,
                "orphan": each.name not in by_name if sure or each.name in by_name else None,
                "manifest": msgspec.to_builtins(each.manifest),
                "current": each.name in by_name and is_current(index.store, by_name[each.name]),
            }
            for each, size in sizes
        ]
        files = index.path.parent.glob(index.path.name + "*")
        return {
            "file": index.where,
            "bytes": sum(file.stat().st_size for file in files),
            "collections": collections,
            "orphans": sorted({each["name"] for each in collections if each["orphan"]}),
        }

    return index.with_repair(read)


def _show_contents(page: Page, found: dict[str, Any]) -> None:
    size = "" if "://" in found["file"] else f" ({found['bytes'] / 1e6:.1f} MB)"
    page.line(f"{found['file']}{size}")
    if found["collections"]:
        page.line()
        heads = ("collection", "feature", "records", "passages", "waiting", "state", "embedder")
        page.table(heads, [_row(each) for each in found["collections"]])
    if found["orphans"]:
        page.line()
        orphans = plural(len(found["orphans"]), "collection")
        page.line(f"{orphans} without a journal. To delete: ralph index prune")


def _row(collection: dict[str, Any]) -> list[str]:
    states = {
        "unknown": collection["orphan"] is None,
        "orphan": collection["orphan"],
        "being built": not collection["live"],
        "current": collection["current"],
        "behind": True,
    }
    state = next(state for state, applies in states.items() if applies)
    names = ("name", "feature", "records", "passages", "waiting")
    return [*(str(collection[name]) for name in names), state, collection["manifest"]["embedder"]]


@index.command()
@context.feature_option
def rebuild(feature: str | None) -> Result:
    """Rebuild the index from the journal; searches work meanwhile.

    \b
    Examples:
      ralph index rebuild --feature auth
    """
    features: list[dict[str, Any]] = []
    beside: dict[str, dict[str, Any]] = {}
    with context.opened(patience_s=0.0) as ralph:
        for stream in ralph.streams(feature):
            label = stream.label
            start = time.monotonic()
            synced = stream.sync(afresh=True)
            records = len(stream.records())
            is_feature = isinstance(stream, FeatureMemory)
            written = synced.written >= min(records, 1) or not is_feature
            _check_built(label, synced, complete=written)
            took = {"records": records, "seconds": round(time.monotonic() - start, 3)}
            if is_feature:
                features.append({"feature": label, **took})
            else:
                beside[label] = took
    total = plural(sum(each["records"] for each in features), "record")
    seconds = sum(each["seconds"] for each in features)
    lines = [f"Rebuilt {total} of {plural(len(features), 'feature')} in {seconds:.1f} s."]
    lines += [
        f"Rebuilt {plural(each['records'], 'record')} of {label} in {each['seconds']:.1f} s."
        for label, each in beside.items()
    ]
    return Result({"features": features} | beside, lines)


def _check_built(name: str, synced: Synced, *, complete: bool) -> None:
    if not synced.complete and synced.embedder_off:
        note(f"{name}: indexed by words alone: {synced.embedder_off}")
    elif not (synced.complete and complete):
        what = "another process is working on the index"
        raise IndexOff(what, where=name, todo="Try again later.")


@index.command("verify")
def verify_contents() -> Result:
    """Compare the index with the journal, record by record; nothing is changed."""
    with context.opened() as ralph:
        ralph.store.need_journals()  # or the index would be compared with itself
        checked = verify_index(ralph)

    def show(page: Page) -> None:
        for fault in checked.faults:
            page.line((f"{fault.feature}: " if fault.feature else "", "yellow"), fault.what)
        verb = "is" if checked.records == 1 else "are"
        page.line(f"{plural(checked.records, 'record')} of the journal {verb} indexed.")

    notes = []
    if checked.faults:
        todo = " ".join(dict.fromkeys(fault.todo for fault in checked.faults))
        problems = plural(len(checked.faults), "problem")
        notes.append(f"{problems} in the index; the journal is fine. {todo}")
    return Result(checked, show, code=0 if checked.ok else 1, notes=notes)


@index.command()
def prune() -> Result:
    """Delete collections without a journal, and files that are no longer used."""
    with context.opened() as ralph:
        ralph.store.need_journals()  # or other machines' collections would look orphaned
        gone = ralph.store.index.with_repair(ralph.prune) + _prune_knowledge(ralph)
    text = f"Removed {', '.join(gone)}." if gone else "There was nothing to remove."
    return Result({"removed": gone}, text)


def _prune_knowledge(ralph: Ralph) -> list[str]:
    """Delete unused index files, and the index of journals that no longer exist."""
    memory = ralph.knowledge
    if not (memory.store.home / "cache" / "knowledge").is_dir():
        return []
    gone: list[str] = []
    target = memory.target().name
    index = memory.store.index
    if not memory.store.names() and any(each.name == target for each in index.collections()):
        index.drop(target)
        gone = [target]
    return gone + index.prune()
