"""`ralph index`: what it holds, whether it is right, and how to rebuild it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import feature_option, opened
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Page, Result, Table, note
from ralph.errors import IndexOff
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.index.sync import Index, IndexSpec, Synced
    from ralph.memory.ralph import Ralph


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
    with opened() as ralph:
        targets = [memory.target() for memory in ralph.features()]
        # Nobody knows what journals a server has that is down.
        sure = ralph.place.journals.trouble() is None
        found = _contents(ralph.place.index, targets, sure=sure)
        shelf = ralph.knowledge.shelf
        knowledge = None
        if shelf.names():
            sure = shelf.journals.trouble() is None
            knowledge = _contents(shelf.index, [ralph.knowledge.stream.target()], sure=sure)

    def show(page: Page) -> None:
        _show_contents(page, found)
        if knowledge:
            page.line()
            page.line(("knowledge", "bold"))
            _show_contents(page, knowledge)

    return Result(found | ({"knowledge": knowledge} if knowledge else {}), show)


@index.command()
@feature_option
def rebuild(feature: str | None) -> Result:
    """Rebuild the index from the journal; searches work meanwhile.

    \b
    Examples:
      ralph index rebuild --feature auth
    """
    built: list[dict[str, Any]] = []
    with opened(patience_s=0.0) as ralph:
        for memory in ralph.features() if feature is None else [ralph.feature(feature)]:
            start = time.monotonic()
            synced = memory.sync(afresh=True)
            records = len(memory.records())
            _check_built(memory.name, synced, complete=synced.written >= min(records, 1))
            seconds = round(time.monotonic() - start, 3)
            built.append({"feature": memory.name, "records": records, "seconds": seconds})
        if feature is None and ralph.conversations.exist:
            ralph.conversations.sync(afresh=True)
        knowledge = _rebuild_knowledge(ralph) if feature is None else None
    total = plural(sum(each["records"] for each in built), "record")
    seconds = sum(each["seconds"] for each in built)
    lines = [f"Rebuilt {total} of {plural(len(built), 'feature')} in {seconds:.1f} s."]
    if knowledge:
        entries = plural(knowledge["records"], "entry", "entries")
        lines.append(f"Rebuilt {entries} of knowledge in {knowledge['seconds']:.1f} s.")
    return Result({"features": built} | ({"knowledge": knowledge} if knowledge else {}), lines)


def _rebuild_knowledge(ralph: Ralph) -> dict[str, Any] | None:
    memory = ralph.knowledge
    if not memory.shelf.names():
        return None
    start = time.monotonic()
    _check_built("knowledge", memory.sync(afresh=True), complete=True)
    records = len(memory.stream.records())
    return {"records": records, "seconds": round(time.monotonic() - start, 3)}


def _check_built(name: str, synced: Synced, *, complete: bool) -> None:

    if not synced.complete and synced.embedder_off:
        note(f"{name}: indexed by words alone: {synced.embedder_off}")
    elif not (synced.complete and complete):
        raise IndexOff(
            "another process is working on the index", where=name, todo="Try again later."
        )


@index.command()
def verify() -> Result:
    """Compare the index with the journal, record by record; nothing is changed."""
    from ralph.memory.status import Checked, verify_index, verify_streams

    with opened() as ralph:
        ralph.place.need_journals()  # else the index would be compared with itself
        checked = verify_index(ralph)
        memory = ralph.knowledge
        if memory.shelf.names():
            more = verify_streams(memory.shelf.index, [memory.stream])
            checked = Checked(
                checked.ok and more.ok,
                checked.records + more.records,
                [*checked.faults, *more.faults],
            )

    def show(page: Page) -> None:
        for fault in checked.faults:
            page.line((f"{fault.feature}: " if fault.feature else "", "yellow"), fault.what)
        verb = "is" if checked.records == 1 else "are"
        page.line(f"{plural(checked.records, 'record')} of the journal {verb} indexed.")

    notes = []
    if checked.faults:
        todo = " ".join(dict.fromkeys(fault.todo for fault in checked.faults))
        faults = plural(len(checked.faults), "problem")
        notes.append(f"{faults} in the index; the journal is fine. {todo}")
    return Result(checked, show, code=0 if checked.ok else 1, notes=notes)


@index.command()
def prune() -> Result:
    """Delete collections without a journal, and files that are no longer used."""
    with opened() as ralph:
        ralph.place.need_journals()  # else other machines' collections would look orphaned
        gone = ralph.place.index.with_repair(ralph.prune)
        gone += _prune_knowledge(ralph)
    text = f"Removed {', '.join(gone)}." if gone else "There was nothing to remove."
    return Result({"removed": gone}, text)


def _prune_knowledge(ralph: Ralph) -> list[str]:
    """Delete unused index files, and what is indexed of journals that are gone."""
    memory = ralph.knowledge
    if not (memory.home / "cache" / "knowledge").is_dir():
        return []
    gone: list[str] = []
    if not memory.shelf.names():
        target = memory.stream.target()
        index = memory.shelf.index
        gone = [each.name for each in index.collections() if each.name == target.name][:1]
        for name in gone:
            index.drop(name)
    return gone + memory.shelf.index.prune()


def _contents(index: Index, targets: Sequence[IndexSpec], *, sure: bool) -> dict[str, Any]:
    by_name = {target.name: target for target in targets}
    return index.with_repair(lambda: _read_contents(index, by_name, sure=sure))


def _read_contents(place: Index, targets: dict[str, IndexSpec], *, sure: bool) -> dict[str, Any]:
    import msgspec

    from ralph.index.sync import is_current

    collections = []
    with place.store.state() as view:
        for each in view.collections():
            size = view.size(each)
            collections.append(
                {
                    "name": each.name,
                    "feature": each.stream,
                    "live": each.live,
                    "orphan": each.name not in targets if sure or each.name in targets else None,
                    "records": size.records,
                    "passages": size.passages,
                    "waiting": size.waiting,
                    "manifest": msgspec.to_builtins(each.manifest),
                }
            )
    for plain in collections:
        target = targets.get(str(plain["name"]))
        plain["current"] = target is not None and is_current(place.store, target)
    files = place.path.parent.glob(place.path.name + "*")
    return {
        "file": place.where,
        "bytes": sum(file.stat().st_size for file in files),
        "collections": collections,
        "orphans": sorted({str(each["name"]) for each in collections if each["orphan"]}),
    }


def _show_contents(page: Page, found: dict[str, Any]) -> None:
    size = "" if "://" in found["file"] else f" ({found['bytes'] / 1e6:.1f} MB)"
    page.line(f"{found['file']}{size}")
    if found["collections"]:
        page.line()
        heads = ("collection", "feature", "records", "passages", "waiting", "state", "embedder")
        page.show(Table(heads, [_row(each) for each in found["collections"]]))
    if found["orphans"]:
        page.line()
        orphans = plural(len(found["orphans"]), "collection")
        page.line(f"{orphans} without a journal. To delete: ralph index prune")


def _row(collection: dict[str, Any]) -> tuple[str, ...]:
    state = "current" if collection["current"] else "behind"
    if collection["orphan"] is None:
        state = "unknown"
    elif collection["orphan"]:
        state = "orphan"
    elif not collection["live"]:
        state = "being built"
    counts = [str(collection[name]) for name in ("records", "passages", "waiting")]
    names = (collection["name"], collection["feature"])
    return *names, *counts, state, collection["manifest"]["embedder"]
