"""`ralph stats`: what the work cost and how it went, as tables with bars."""

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
    from ralph.memory.stats import NextCommands, RecallStats, Stats, Usage

_GROUPS = ("day", "feature", "model")
_EMPTY = {"day": "(no date)", "feature": "(sessions)", "model": "(not told)"}
_KEY_CHARS = 15
_BAR_CHARS = 12
_MOST_ROWS = 10


@click.command(cls=Command)
@context.choice("--by", "Only this table, with all its rows.", _GROUPS)
@context.option("--since", "On this day or later: 2026-02-07, 7d, today.", "DAY")
@context.option("--until", "On this day or before.", "DAY")
@context.feature_option
def stats(by: str | None, since: str | None, until: str | None, feature: str | None) -> Result:
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
        found = count(ralph, since=since, until=until, feature=feature)

    def show(page: Page) -> None:
        page.line((_summary(found.total), "bold"))
        for group in (by,) if by else _GROUPS:
            page.line()
            _show_table(page, group, getattr(found, f"by_{group}"), all_rows=by is not None)
        if not by and found.recall.recalls:
            page.line()
            _show_recall(page, found.recall)

    nothing = "No work in memory for this. `ralph run` and hooks record it."
    return Result(found, show if _has_work(found) else nothing)


def _has_work(found: Stats) -> bool:
    return bool(found.total.iterations or found.total.exchanges or found.recall.recalls)


def _summary(total: Usage) -> str:
    parts = [plural(total.iterations, "iteration")] if total.iterations else []
    parts += [f"{total.exchanges} prompts in sessions"] if total.exchanges else []
    if total.judged:
        done = total.outcomes.get("success", 0)
        parts.append(f"{done} of {total.judged} succeeded ({_percent(done, total.judged)})")
    parts += [f"{short_number(total.tokens_used)} tokens"] if total.tokens_used else []
    parts += [usd(total.cost_usd)] if total.cost_usd else []
    text = ", ".join(parts)
    return f"{text}; cost unknown for {total.unpriced}" if total.unpriced else text


def _show_table(page: Page, group: str, rows: Sequence[Usage], *, all_rows: bool) -> None:
    """A row for each key, at most 60 columns wide; days keep their order, the newest are shown."""
    measure = next(m for m in ("cost_usd", "tokens_used", "judged", "") if not m or _most(rows, m))
    heads = {"cost_usd": "(cost)", "tokens_used": "(tokens)", "judged": "(work)", "": ""}
    shown = list(rows) if all_rows else list(rows[-_MOST_ROWS:] if group == "day" else rows[:10])
    page.line((f"{group:<{_KEY_CHARS}} work success     cost tokens {heads[measure]}", "dim"))
    for row in shown:
        key = excerpt(row.key or _EMPTY[group], _KEY_CHARS)
        rate = _percent(row.outcomes.get("success", 0), row.judged)
        cost = f"{row.cost_usd:.2f}" if row.cost_usd else "-"
        tokens = short_number(row.tokens_used) if row.tokens_used else "-"
        share = getattr(row, measure) / _most(rows, measure) if measure else 0
        bar = "#" * max(round(share * _BAR_CHARS), share > 0)
        work = row.iterations + row.exchanges
        page.line(f"{key:<{_KEY_CHARS}} {work:>4} {rate:>7} {cost:>8} {tokens:>6} {bar}")
    page.more(len(rows) - len(shown))


def _most(rows: Sequence[Usage], measure: str) -> float:
    return max((getattr(row, measure) for row in rows), default=0)


def _show_recall(page: Page, found: RecallStats) -> None:
    times = plural(found.recalls, "time")
    page.line(f"Hooks gave {plural(found.memories, 'memory', 'memories')} to the model, {times}.")
    page.line(("next command passed        with memory     without", "dim"))
    for title, with_memory, without in (
        ("first after a prompt", found.first_with, found.first_without),
        ("after a failed command", found.retry_with, found.retry_without),
    ):
        page.line(f"{title:<22} {_passed(with_memory):>15} {_passed(without):>11}")
    page.line("This is no proof: memory is given where there was work like it before.")


def _passed(found: NextCommands) -> str:
    if not found.commands:
        return "-"
    return f"{found.passed}/{found.commands} {_percent(found.passed, found.commands)}"


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)}%" if whole else "-"


def short_number(number: int) -> str:
    """A number in at most five characters: 950, 12k, 3.4M."""
    if number < 1000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1000:.0f}k" if number >= 10_000 else f"{number / 1000:.1f}k"
    return f"{number / 1e6:.1f}M" if number < 100_000_000 else f"{number / 1e6:.0f}M"
