"""`ralph index`: what it holds, whether it is right, and making it anew."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from ralph.doors.cli.context import as_json, feature_option, opened
from ralph.doors.cli.render import Page, count, note, print_json
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.index.open import Index
    from ralph.index.sync import IndexSpec
    from ralph.memory.ralph import Ralph
    from ralph.memory.store import Store, Stream


@click.group(cls=Group)
def index() -> None:
    """Look after the index, which can always be made again."""


@index.command()
@as_json
def status(as_json: bool) -> None:
    """Tell what the index holds and what it was built with.

    The knowledge of all projects has an index of its own, in Ralph's home.
    """
    with opened() as ralph:
        targets = [memory.target() for memory in ralph.features()]
        # Of a server that is away nobody knows what journals it has.
        sure = ralph.place.journals.trouble() is None
        found = _look(ralph.place.index, targets, sure=sure)
        known = _look_at_knowledge(ralph)
    if as_json:
        print_json(found | ({"knowledge": known} if known else {}))
        return
    page = Page()
    _show_status(page, found)
    if known:
        page.line()
        page.line(("knowledge", "bold"))
        _show_status(page, known)


@index.command()
@feature_option
@as_json
def rebuild(feature: str | None, as_json: bool) -> None:
    """Build the index anew from the journal; searches go on meanwhile."""
    from ralph.errors import IndexOff

    built: list[dict[str, Any]] = []
    with opened(patience_s=0.0) as ralph:
        for memory in ralph.features() if feature is None else [ralph.feature(feature)]:
            began = time.monotonic()
            synced = memory.sync(afresh=True)
            records = len(memory.records())
            if not synced.complete and synced.embedder_off:
                note(f"{memory.name}: by words alone: {synced.embedder_off}")
            elif not synced.complete or synced.written < min(records, 1):
                raise IndexOff(
                    "another process is working on the index",
                    where=memory.name,
                    todo="Try again when it has finished.",
                )
            seconds = round(time.monotonic() - began, 3)
            built.append({"feature": memory.name, "records": records, "seconds": seconds})
        if feature is None and ralph.conversations.exist:
            ralph.conversations.sync(afresh=True)
        known = _rebuild_knowledge(ralph) if feature is None else None
    if as_json:
        print_json({"features": built} | ({"knowledge": known} if known else {}))
        return
    records = sum(one["records"] for one in built)
    seconds = sum(one["seconds"] for one in built)
    features = count(len(built), "feature")
    page = Page()
    page.line(f"Rebuilt {count(records, 'record')} of {features} in {seconds:.1f} s.")
    if known:
        entries = count(known["records"], "entry", "entries")
        page.line(f"Rebuilt {entries} of knowledge in {known['seconds']:.1f} s.")


@index.command()
@as_json
def verify(as_json: bool) -> int:
    """Compare the index with the journal, record by record; nothing is changed."""
    import msgspec

    from ralph.memory.status import Checked, verify_index

    with opened() as ralph:
        ralph.place.need_journals()  # else the index would be compared with itself
        checked = verify_index(ralph)
        memory = ralph.knowledge
        if memory.shelf.names():
            known = verify_index(cast("Ralph", _Looked(memory.shelf, memory.stream)))
            checked = Checked(
                checked.ok and known.ok,
                checked.records + known.records,
                [*checked.faults, *known.faults],
            )
    if as_json:
        print_json(msgspec.to_builtins(checked))
    else:
        page = Page()
        for fault in checked.faults:
            where = f"{fault.feature}: " if fault.feature else ""
            page.line((where, "yellow"), fault.what)
        verb = "is" if checked.records == 1 else "are"
        page.line(f"{count(checked.records, 'record')} of the journal {verb} indexed.")
    if checked.faults:
        todo = " ".join(dict.fromkeys(fault.todo for fault in checked.faults))
        note(f"{count(len(checked.faults), 'fault')} in the index; the journal is whole. {todo}")
    return 0 if checked.ok else 1


@index.command()
@as_json
def prune(as_json: bool) -> None:
    """Delete collections without a journal, and files that no longer serve."""
    with opened() as ralph:
        ralph.place.need_journals()  # else other machines' collections would be without one
        gone = ralph.place.index.with_repair(ralph.prune)
        gone += _prune_knowledge(ralph)
    if as_json:
        print_json({"removed": gone})
    elif gone:
        Page().line(f"Removed {', '.join(gone)}.")
    else:
        Page().line("There was nothing to remove.")


class _Looked:
    """A memory in Ralph's home, as what looks at a project's index sees it."""

    def __init__(self, shelf: Store, stream: Stream) -> None:
        self.place = shelf
        self._stream = stream

    def features(self) -> list[Stream]:
        """The one stream."""
        return [self._stream]


def _rebuild_knowledge(ralph: Ralph) -> dict[str, Any] | None:
    from ralph.errors import IndexOff

    memory = ralph.knowledge
    if not memory.shelf.names():
        return None
    began = time.monotonic()
    synced = memory.sync(afresh=True)
    if not synced.complete and synced.embedder_off:
        note(f"knowledge: by words alone: {synced.embedder_off}")
    elif not synced.complete:
        raise IndexOff(
            "another process is working on the index",
            where="knowledge",
            todo="Try again when it has finished.",
        )
    records = len(memory.stream.records())
    return {"records": records, "seconds": round(time.monotonic() - began, 3)}


def _prune_knowledge(ralph: Ralph) -> list[str]:
    """Delete index files that no longer serve, and what is indexed of journals that are gone."""
    memory = ralph.knowledge
    if not (memory.home / "cache" / "knowledge").is_dir():
        return []
    gone: list[str] = []
    if not memory.shelf.names():
        target = memory.stream.target()
        gone = [one.name for one in memory.shelf.index.collections() if one.name == target.name][:1]
        for name in gone:
            memory.shelf.index.drop(name)
    return gone + memory.shelf.index.prune()


def _look_at_knowledge(ralph: Ralph) -> dict[str, Any] | None:
    memory = ralph.knowledge
    if not memory.shelf.names():
        return None
    sure = memory.shelf.journals.trouble() is None
    return _look(memory.shelf.index, [memory.stream.target()], sure=sure)


def _look(index: Index, targets: Sequence[IndexSpec], *, sure: bool) -> dict[str, Any]:
    by_name = {target.name: target for target in targets}
    return index.with_repair(lambda: _looked_at(index, by_name, sure=sure))


def _looked_at(place: Index, targets: dict[str, IndexSpec], *, sure: bool) -> dict[str, Any]:
    import msgspec

    from ralph.index.sync import is_current

    collections = []
    with place.store.state() as view:
        for one in view.collections():
            size = view.size(one)
            collections.append(
                {
                    "name": one.name,
                    "feature": one.stream,
                    "live": one.live,
                    "orphan": one.name not in targets if sure or one.name in targets else None,
                    "records": size.records,
                    "passages": size.passages,
                    "waiting": size.waiting,
                    "manifest": msgspec.to_builtins(one.manifest),
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
        "orphans": sorted({str(one["name"]) for one in collections if one["orphan"]}),
    }


def _show_status(page: Page, found: dict[str, Any]) -> None:
    size = "" if "://" in found["file"] else f" ({found['bytes'] / 1e6:.1f} MB)"
    page.line(f"{found['file']}{size}")
    if found["collections"]:
        page.line()
        heads = ("collection", "feature", "records", "passages", "waiting", "state", "embedder")
        page.table(heads, [_row(one) for one in found["collections"]])
    if found["orphans"]:
        page.line()
        orphans = count(len(found["orphans"]), "collection")
        page.line(f"{orphans} without a journal. To delete: ralph index prune")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    state = "current" if one["current"] else "behind"
    if one["orphan"] is None:
        state = "unknown"
    elif one["orphan"]:
        state = "orphan"
    elif not one["live"]:
        state = "being built"
    counts = (str(one["records"]), str(one["passages"]), str(one["waiting"]))
    return one["name"], one["feature"], *counts, state, one["manifest"]["embedder"]
