"""`ralph show`: one record whole, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ralph.current_run import current_run
from ralph.doors.cli.cards import (
    SHORT_ID,
    entry_hit,
    error_text,
    hit_json,
    pattern_json,
    show_card,
    show_entry_whole,
    show_pattern,
    state_of,
    whereabouts,
)
from ralph.doors.cli.context import as_json, opened, show_entry
from ralph.doors.cli.render import Page, note, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.recall import Hit
    from ralph.records import Located
    from ralph.records.iteration import Iteration

_SHORTEST_ID = 4


@click.command(cls=Command)
@click.argument("record_id", metavar="ID")
@as_json
def show(record_id: str, as_json: bool) -> None:
    """Show one record whole.

    An iteration, an exchange of a conversation, an entry of knowledge or a pattern. ID may be the
    beginning of it, from four characters on.
    """
    import msgspec

    from ralph.errors import NotFound

    run = current_run()
    with opened() as ralph:
        try:
            own = run.feature if run else None
            hit = ralph.get(record_id, features=None if own is None else [own])
        except NotFound:
            if run is not None:
                raise  # an agent has no way to conversations and to knowledge
            if _show_exchange(ralph, record_id, as_json=as_json):
                return
            if _show_known(ralph, record_id, as_json=as_json):
                return
            raise
        held = [
            located
            for memory in ralph.features()
            for located, _ in memory.iterations()
            if located.record.id == hit.id
        ]
    place = held[-1]
    if len(held) > 1:
        note(f"{hit.id} stands in the journal with {len(held)} contents; this is the last")
    if as_json:
        source = msgspec.to_builtins(place.record.source)
        journal = {"file": place.file, "line": place.line}
        print_json(hit_json(hit) | {"source": source, "journal": journal})
    else:
        _show(Page(), hit, place)


def _show_exchange(ralph: Ralph, record_id: str, *, as_json: bool) -> bool:
    from ralph.errors import NotFound

    try:
        hit = ralph.conversations.get(record_id)
    except NotFound:
        return False
    if as_json:
        print_json(hit_json(hit))
    else:
        show_card(Page(), hit)
    return True


def _show_known(ralph: Ralph, wanted: str, *, as_json: bool) -> bool:
    """Show an entry of knowledge or a pattern."""
    from ralph.errors import NotFound

    if len(wanted) < _SHORTEST_ID:
        return False
    memory = ralph.knowledge
    if not memory.shelf.names():
        return False
    try:
        hit = entry_hit(memory.get(wanted))
    except NotFound:
        pass
    else:
        staged, pattern = state_of(memory, hit.id)
        if as_json:
            print_json(hit_json(hit) | {"staged": staged, "pattern": pattern})
        else:
            state = f"in pattern {pattern[:SHORT_ID]}" if pattern else "staged"
            show_entry_whole(Page(), hit, state)
        return True
    try:
        found = memory.pattern(wanted)
    except NotFound:
        return _show_gate(ralph, wanted, as_json=as_json)
    told = memory.entries_of(found)
    if as_json:
        print_json(pattern_json(found, told))
    else:
        show_pattern(Page(), found, told)
    return True


def _show_gate(ralph: Ralph, wanted: str, *, as_json: bool) -> bool:
    from ralph.memory.gates import gates

    found = [one for one in gates(ralph) if one.id.startswith(wanted.lower())]
    if len(found) != 1:
        return False
    show_entry({"kind": "gate", **found[0].to_json()}, as_json=as_json)
    return True


def _show(page: Page, hit: Hit, place: Located) -> None:
    iteration: Iteration = hit.record
    page.line((iteration.task_title or "(no title)", "bold"))
    page.line((hit.id, "cyan"))
    page.line(*whereabouts(hit))
    page.line(("source ", "dim"), _source(place))
    for text in iteration.summary.splitlines():
        page.line(text, indent=2)
    for error in iteration.errors:
        page.line(("error ", "red"), error_text(error))
    for decision in iteration.decisions:
        why = f" (because: {decision.rationale})" if decision.rationale else ""
        page.line(("decision ", "blue"), decision.description, why)
    for file in iteration.files_touched:
        page.line((f"{file.action} ", "magenta"), file.path)
    numbers = {
        "discipline": iteration.discipline,
        "model": iteration.model,
        "tier": iteration.model_tier,
        "tokens": iteration.tokens_used,
        "cost": None if iteration.cost_usd is None else f"{iteration.cost_usd:g} USD",
        "duration": None if iteration.duration_ms is None else f"{iteration.duration_ms} ms",
    }
    told = [f"{name} {value}" for name, value in numbers.items() if value not in (None, "")]
    if told:
        page.line((" | ".join(told), "dim"))


def _source(place: Located) -> str:
    source = place.record.source
    line = "" if source.line is None else f":{source.line}"
    parts = [f"{place.file}:{place.line}"]
    if source.file:
        parts.append(f"from {source.file}{line}")
    if source.run:
        parts.append(f"run {source.run}")
    return ", ".join(parts)
