"""Small charts as SVG: bars over days, a strip of outcomes. The style sheet has the colors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date

import msgspec
from markupsafe import Markup

from ralph.memory.stats import Usage
from ralph.memory.timeline import Event

_HEIGHT, _TOP, _FOOT = 120, 18, 18
_STEP, _GAP = 14, 3
_CELL, _CELL_HEIGHT = 9, 22


class Chart(msgspec.Struct, frozen=True):
    """A chart, and whether it shows anything."""

    svg: Markup
    any: bool


def bars(
    name: str,
    days: Sequence[date],
    used: Iterable[Usage],
    value: Callable[[Usage], float],
    shown: Callable[..., str],
) -> Chart:
    """A bar for each day, also where nothing was done; `shown` writes a value."""
    by_day = {one.key: value(one) for one in used}
    values = [by_day.get(day.isoformat(), 0) for day in days]
    most, total, width = max(values, default=0), sum(values), _STEP * len(days)
    room, base = _HEIGHT - _TOP - _FOOT, _HEIGHT - _FOOT
    marks = Markup("")
    for n, (day, amount) in enumerate(zip(days, values, strict=True)):
        height = round(room * amount / most, 1) if most else 0
        height = max(height, 1.5) if amount else 0
        marks += Markup(
            '<rect class="bar" x="{}" y="{}" width="{}" height="{}" rx="1">'
            "<title>{}: {}</title></rect>"
        ).format(n * _STEP, base - height, _STEP - _GAP, height, day, shown(amount))
    ends = Markup("")
    if days:
        ends = Markup(
            '<text x="0" y="{y}">{first}</text><text x="{x}" y="{y}" class="end">{last}</text>'
            '<text x="0" y="11">{name}</text><text x="{x}" y="11" class="end">max {most}</text>'
        ).format(
            y=_HEIGHT - 4,
            x=width - _GAP,
            first=f"{days[0]:%b} {days[0].day}",
            last=f"{days[-1]:%b} {days[-1].day}",
            name=name,
            most=shown(most),
        )
    text = f"{name} by day: {shown(total)} in {len(days)} days, at most {shown(most)} a day"
    svg = Markup(
        '<figure><svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<line class="axis" x1="0" y1="{y}" x2="{w}" y2="{y}"/>{}{}</svg>'
        "<figcaption>{}: {} in total</figcaption></figure>"
    ).format(width, _HEIGHT, text, marks, ends, name, shown(total), y=base, w=width)
    return Chart(svg, total > 0)


def strip(newest_first: Sequence[Event]) -> Markup:
    """Outcomes in the order of time, a cell each, the newest on the right."""
    events = list(reversed(newest_first))
    width = max(1, _CELL * len(events))
    cells = Markup("")
    for n, one in enumerate(events):
        cells += Markup(
            '<rect class="cell {}" x="{}" y="0" width="{}" height="{}" rx="1.5">'
            "<title>iteration {}: {}</title></rect>"
        ).format(one.outcome, n * _CELL, _CELL - 2, _CELL_HEIGHT, one.number, one.outcome)
    good = sum(one.outcome == "success" for one in events)
    text = f"The last {len(events)} iterations: {good} succeeded"
    return Markup(
        '<svg class="strip" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img"'
        ' aria-label="{text}">{cells}</svg>'
    ).format(w=width, h=_CELL_HEIGHT, text=text, cells=cells)
