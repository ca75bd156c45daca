"""`ralph stats`: the cost and success of the work, as tables with bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ralph.doors.cli import context
from ralph.doors.cli.commands.run import usd
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result, excerpt
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.stats import RecallStats, Usage

_GROUPS = ("day", "feature", "model")
_EMPTY = {"day": "(no date)", "feature": "(sessions)", "model": "(unknown)"}
_KEY_CHARS = 15
_BAR_CHARS = 12
_MOST_ROWS = 10


@click.command(cls=Command)
@context.choice("--by", "Only this table, with all its rows.", _GROUPS)
@context.option("--since", "On this day or later: 2026-02-07, 7d, today.", "DAY")
@context.option("--until", "On this day or before.", "DAY")
@context.feature_option
@context.everywhere_option
def stats(
    by: str | None, since: str | None, until: str | None, feature: str | None, everywhere: bool
) -> Result:
    """Show cost, tokens and success rate by day, feature and model.

    Iterations of the loop and your own sessions are counted. The success rate is the share of
    successes among the iterations that succeeded, made progress, failed or timed out. Then: how
    often hooks gave memories to the model, and how often the next command passed.

    \b
    Examples:
      ralph stats --since 7d
      ralph stats --by model --json
    """
    from ralph.memory.stats import stats as count

    with context.opened() as ralph:
        found = count(ralph, since=since, until=until, feature=feature, everywhere=everywhere)
        nothing = "No matching work in memory yet. `ralph run` and hooks record it."
        if not (found.by_day or everywhere):
            nothing = f"{nothing} {context.elsewhere(ralph)}".rstrip()

    def show(page: Page) -> None:
        page.line((_summary(found.total), "bold"))
        for group in (by,) if by else _GROUPS:
            page.line()
            _show_table(page, group, getattr(found, f"by_{group}"), all_rows=by is not None)
        if not by and found.recall.recalls:
            page.line()
            _show_recall(page, found.recall)

    return Result(found, show if found.by_day or found.recall.recalls else nothing)


def _summary(total: Usage) -> str:
    parts = [plural(total.iterations, "iteration")] if total.iterations else []
    parts += [f"{plural(total.exchanges, 'prompt')} in sessions"] if total.exchanges else []
    if total.judged:
        rate = _percent(total.judged, total.succeeded)
        parts.append(f"{total.succeeded} of {total.judged} succeeded ({rate})")
    parts += [f"{_short(total.tokens_used)} tokens"] if total.tokens_used else []
    parts += [usd(total.cost_usd)] if total.cost_usd else []
    if total.cost_usd and total.unpriced:
        parts.append(f"{total.unpriced} without a known cost")
    return ", ".join(parts)


def _show_table(page: Page, group: str, rows: Sequence[Usage], *, all_rows: bool) -> None:
    """Print a row for each key, at most 60 columns wide; of days, the latest ones in order."""
    has_cost = any(row.cost_usd for row in rows)
    has_rate = any(row.judged for row in rows)
    sizes = [row.cost_usd if has_cost else row.tokens_used for row in rows]
    pairs = list(zip(rows, sizes, strict=True))
    shown = pairs if all_rows else pairs[-_MOST_ROWS:] if group == "day" else pairs[:_MOST_ROWS]
    heads = ["turns"] + ["success"] * has_rate + ["cost"] * has_cost + ["tokens"]
    widths = {"turns": 5, "success": 7, "cost": 8, "tokens": 6}
    page.line((" ".join([f"{group:<{_KEY_CHARS}}", *(f"{h:>{widths[h]}}" for h in heads)]), "dim"))
    for row, size in shown:
        cells = {
            "turns": str(row.iterations + row.exchanges),
            "success": _percent(row.judged, row.succeeded),
            "cost": f"{row.cost_usd:.2f}" if row.cost_usd else "-",
            "tokens": _short(row.tokens_used) if row.tokens_used else "-",
        }
        key = excerpt(row.key or _EMPTY[group], _KEY_CHARS)
        bar = "#" * max(round(size / (max(sizes) or 1) * _BAR_CHARS), size > 0)
        page.line(
            " ".join([f"{key:<{_KEY_CHARS}}", *(f"{cells[h]:>{widths[h]}}" for h in heads), bar])
        )
    page.more(len(rows) - len(shown))


def _show_recall(page: Page, found: RecallStats) -> None:
    memories = plural(found.memories, "memory", "memories")
    times = plural(found.recalls, "time")
    page.line(f"Hooks gave {memories} to the model, {times}.")
    page.line(("next command passed        with memory     without", "dim"))
    for title, case in (("first after a prompt", "first"), ("after a failed command", "retry")):
        ends = [getattr(found, f"{case}_{one}") for one in ("with", "without")]
        cells = [f"{e.passed}/{e.commands} {_percent(e.commands, e.passed)}" for e in ends]
        page.line(f"{title:<22} {cells[0]:>15} {cells[1]:>11}")
    if found.followed:
        share = _percent(found.followed, found.used)
        silent = f"; {found.silent} are no longer told" if found.silent else ""
        named = f"Of {found.followed} that named a command or file, {found.used} ({share})"
        page.line(f"{named} were used in the next ten actions{silent}.")
    page.line("This is not proof: memory is only shown where similar work was done before.")


def _percent(whole: int, part: int) -> str:
    return f"{round(100 * part / whole)}%" if whole else "-"


def _short(number: int) -> str:
    """Format a number in at most five characters: 950, 12k, 3.4M."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if number >= size:
            return f"{number / size:.{int(number < 10 * size)}f}{unit}"
    return str(number)
