"""`ralph recent` and `ralph failures`: iterations by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.cards import hit_json, show_hits
from ralph.doors.cli.context import as_json, feature_option, opened
from ralph.doors.cli.render import Page, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.memory.feature import FeatureMemory
    from ralph.memory.ralph import Ralph
    from ralph.recall import Hit


@click.command(cls=Command)
@click.option("--count", type=click.IntRange(1), metavar="N", help="How many.")
@feature_option
@as_json
def recent(count: int | None, feature: str | None, as_json: bool) -> None:
    """List the newest iterations.

    Of one feature, or of all of them together, newest first.
    """
    with opened() as ralph:
        wanted = ralph.place.settings.recent_count if count is None else count
        hits = _merged(ralph, feature, lambda memory: memory.recent(wanted))[:wanted]
    _show(hits, as_json=as_json, empty="Nothing is remembered here yet.")


@click.command(cls=Command)
@click.option("--task", metavar="ID", help="Only the attempts at this task.")
@feature_option
@as_json
def failures(task: str | None, feature: str | None, as_json: bool) -> None:
    """List the attempts that failed or ran out of time.

    Of one feature, or of all of them together, newest first.
    """
    with opened() as ralph:
        hits = _merged(ralph, feature, lambda memory: memory.failed_attempts(task))
    _show(hits, as_json=as_json, empty="No failed attempt is remembered here.")


def _merged(
    ralph: Ralph, feature: str | None, ask: Callable[[FeatureMemory], list[Hit]]
) -> list[Hit]:
    memories = ralph.features() if feature is None else [ralph.feature(feature)]
    if len(memories) == 1:
        return list(ask(memories[0]))
    from datetime import datetime

    hits = [hit for memory in memories for hit in ask(memory)]
    return sorted(hits, key=lambda hit: datetime.fromisoformat(hit.record.timestamp), reverse=True)


def _show(hits: list[Hit], *, as_json: bool, empty: str) -> None:
    if as_json:
        print_json([hit_json(hit) for hit in hits])
    elif hits:
        show_hits(Page(), hits)
    else:
        Page().line(empty)
