"""Pictures for the documentation, written as SVG by hand: bars, and what scores kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from ralph.errors import BadInput

_BAR, _GAP, _HEIGHT = 26, 28, 240
_LEFT, _TOP, _BOTTOM = 48, 56, 76
_LINE = 15
_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# Told apart in print and by colour-blind eyes (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_PALE = ("#b8b8b8", "#8c8c8c", "#d0d0d0")
_CHARACTER = 6.2
_SIDE, _BETWEEN = 240, 64
_LARGEST_DOT = 9.0


class Bar(msgspec.Struct, frozen=True):
    """A value from 0 to 1 with its interval."""

    name: str
    value: float
    low: float
    high: float


class Cluster(msgspec.Struct, frozen=True):
    """Bars that stand together, and what is written under them."""

    name: str
    bars: tuple[Bar, ...]


class Dot(msgspec.Struct, frozen=True):
    """Hits of about one score: what they promised, and the share that was right, 0 to 1."""

    score: float
    right: float
    low: float
    high: float
    count: int


class Curve(msgspec.Struct, frozen=True):
    """Dots from left to right."""

    name: str
    dots: tuple[Dot, ...]


class Square(msgspec.Struct, frozen=True):
    """Curves in one square, and what is written over it."""

    name: str
    curves: tuple[Curve, ...]


def write(file: Path, picture: str) -> None:
    """Put a picture into a file."""
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"the chart cannot be written ({error.strerror or error})", where=str(file)
        ) from None


def bars(clusters: Sequence[Cluster], *, title: str, pale: Collection[str] = ()) -> str:
    """Clusters of bars side by side; bars of one name have one colour, the pale ones grey."""
    names = list(dict.fromkeys(bar.name for cluster in clusters for bar in cluster.bars))
    colours = _colours(names, pale)
    parts: list[str] = []
    x = float(_LEFT + _GAP // 2)
    for cluster in clusters:
        wide = max(len(cluster.bars) * _BAR, max(map(len, cluster.name.split("\n"))) * _CHARACTER)
        begin = x + (wide - len(cluster.bars) * _BAR) / 2
        for place, bar in enumerate(cluster.bars):
            parts += _bar(bar, begin + place * _BAR, colours[bar.name])
        for line, text in enumerate(cluster.name.split("\n")):
            y = _TOP + _HEIGHT + 18 + line * _LINE
            parts.append(_text(x + wide / 2, y, text, anchor="middle"))
        x += wide + _GAP
    legend = sum(len(name) * _CHARACTER + 34 for name in names)
    width = max(x, _LEFT + legend, len(title) * _CHARACTER + 2 * _LEFT)
    return _page(width, [*_scale(width), *parts, *_legend(names, colours)], title)


def reliability(squares: Sequence[Square], *, title: str, marks: Sequence[float] = ()) -> str:
    """What was right over what was promised: on the diagonal a score means what it says.

    The larger a dot, the more hits; `marks` are scores that decide something.
    """
    names = list(dict.fromkeys(curve.name for square in squares for curve in square.curves))
    colours = _colours(names, ())
    parts: list[str] = []
    x = float(_LEFT)
    for square in squares:
        parts += _ground(square.name, x, marks)
        for curve in square.curves:
            parts += _curve(curve, x, colours[curve.name])
        x += _SIDE + _BETWEEN
    width = max(x, len(title) * _CHARACTER + 2 * _LEFT)
    return _page(width, [*parts, *_legend(names, colours)], title)


def _ground(name: str, x: float, marks: Sequence[float]) -> list[str]:
    right, bottom = x + _SIDE, _y(0.0)
    lines = [_text(x + _SIDE / 2, _TOP - 8, name)]
    for tick in _TICKS:
        y, at = _y(tick), x + tick * _SIDE
        lines += [
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
            _text(x - 6, y + 4, f"{tick:.1f}", anchor="end"),
            _text(at, bottom + 16, f"{tick:.1f}"),
        ]
    for mark in marks:
        at = x + mark * _SIDE
        lines.append(
            f'<line x1="{at:.1f}" y1="{_y(1.0):.1f}" x2="{at:.1f}" y2="{bottom:.1f}" '
            'stroke="#999" stroke-dasharray="2 4"/>'
        )
    lines.append(
        f'<line x1="{x:.1f}" y1="{bottom:.1f}" x2="{right:.1f}" y2="{_y(1.0):.1f}" '
        'stroke="#888" stroke-dasharray="6 4"/>'
    )
    lines.append(_text(x + _SIDE / 2, bottom + 32, "across: score; up: share that was right"))
    return lines


def _curve(curve: Curve, x: float, colour: str) -> list[str]:
    most = max((dot.count for dot in curve.dots), default=1)
    places = [(x + dot.score * _SIDE, _y(dot.right)) for dot in curve.dots]
    line = " ".join(f"{at:.1f},{y:.1f}" for at, y in places)
    parts = [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    for dot, (at, y) in zip(curve.dots, places, strict=True):
        told = f"{curve.name}: {dot.count} hits, score {dot.score:.2f}, right {dot.right:.2f}"
        size = max(2.0, _LARGEST_DOT * (dot.count / most) ** 0.5)
        parts += [
            f'<line x1="{at:.1f}" y1="{_y(dot.low):.1f}" x2="{at:.1f}" y2="{_y(dot.high):.1f}" '
            f'stroke="{colour}" stroke-width="1"/>',
            f'<circle cx="{at:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{colour}" '
            f'fill-opacity="0.75"><title>{escape(told)}</title></circle>',
        ]
    return parts


def _colours(names: Sequence[str], pale: Collection[str]) -> dict[str, str]:
    strong = [name for name in names if name not in pale]
    weak = [name for name in names if name in pale]
    found = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(strong)}
    return found | {name: _PALE[place % len(_PALE)] for place, name in enumerate(weak)}


def _y(value: float) -> float:
    return _TOP + _HEIGHT * (1.0 - min(1.0, max(0.0, value)))


def _bar(bar: Bar, x: float, colour: str) -> list[str]:
    top, middle = _y(bar.value), x + _BAR / 2 - 2
    told = escape(f"{bar.name}: {bar.value:.3f} [{bar.low:.2f}-{bar.high:.2f}]")
    return [
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{_BAR - 4}" '
        f'height="{_TOP + _HEIGHT - top:.1f}" fill="{colour}"><title>{told}</title></rect>',
        f'<line x1="{middle:.1f}" y1="{_y(bar.low):.1f}" x2="{middle:.1f}" '
        f'y2="{_y(bar.high):.1f}" stroke="#222" stroke-width="1.2"/>',
        _text(middle, _y(max(bar.value, bar.high)) - 4, f"{bar.value:.2f}".removeprefix("0")),
    ]


def _scale(width: float) -> list[str]:
    lines: list[str] = []
    for tick in _TICKS:
        y = _y(tick)
        lines.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{width - 8:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        lines.append(_text(_LEFT - 6, y + 4, f"{tick:.1f}", anchor="end"))
    return lines


def _legend(names: Sequence[str], colours: dict[str, str]) -> list[str]:
    parts: list[str] = []
    x = float(_LEFT)
    for name in names:
        y = _TOP + _HEIGHT + _BOTTOM - 22
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="12" height="12" fill="{colours[name]}"/>')
        parts.append(_text(x + 17, y + 10, name, anchor="start"))
        x += len(name) * _CHARACTER + 34
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222"'
    return f"<text {place}>{escape(text)}</text>"


def _page(width: float, parts: Sequence[str], title: str) -> str:
    height = _TOP + _HEIGHT + _BOTTOM
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" font-family="sans-serif" font-size="11">'
    )
    named = [f"<title>{escape(title)}</title>", '<rect width="100%" height="100%" fill="#fff"/>']
    heading = _text(_LEFT, 26, title, anchor="start")
    return "\n".join([head, *named, heading, *parts, "</svg>"]) + "\n"
