"""`ralph status`: whether memory serves, and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ralph.doors.cli.context import as_json, opened
from ralph.doors.cli.render import Page, Span, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.memory.status import FeatureCount


@click.command(cls=Command)
@as_json
def status(as_json: bool) -> None:
    """Tell whether memory serves, and what it holds."""
    import msgspec

    from ralph.memory.pausing import in_force
    from ralph.memory.status import status as look

    with opened() as ralph:
        found = look(ralph)
        root = ralph.project.root
        paused = in_force(ralph.place.home, ralph.project.id)
    if as_json:
        print_json(msgspec.to_builtins(found) | {"paused": paused.since if paused else None})
        return
    page = Page()
    page.line((found.line, "green" if found.available else "bold red"))
    if paused is not None:
        page.line((f"{paused}; nothing is kept of what is said", "yellow"))
    page.line(f"project {root}")
    said, known = found.memories["conversation"], found.memories["knowledge"]
    if not (found.features or said["journalled"] or known["journalled"]):
        page.line("Nothing is remembered yet. Put iterations into memory with: ralph record")
        return
    page.line()
    if found.features:
        heads = ("feature", "journalled", "indexed", "state")
        page.table(heads, [_row(one) for one in found.features])
    if said["journalled"]:
        page.line(f"conversations: {said['journalled']} journalled, {said['indexed']} indexed")
    if known["journalled"]:
        staged = f", {known['staged']} wait for a checkpoint" if known["staged"] else ""
        page.line(
            f"knowledge of all projects: {known['journalled']} journalled, "
            f"{known['indexed']} indexed{staged}"
        )


def _row(one: FeatureCount) -> tuple[Span, ...]:
    state: Span = ("current", "green")
    if one.waiting:
        state = (f"{one.waiting} wait for the embedder", "yellow")
    elif not one.current:
        state = ("the next search catches up", "yellow")
    return one.feature, str(one.journalled), str(one.indexed), state
