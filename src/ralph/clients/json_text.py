"""JSON that people wrote, changed in its text: what is not ours keeps every byte.

What we add can be taken out again to the byte. One thing needs a sign for that: whether an object
or a list that holds nothing but ours was there, empty, before us. Those that we make have a blank
or a line break before their closing bracket; where we found an empty one, our item touches it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

# A member of an object or a place in a list, from the outermost value inwards.
Path = tuple[str | int, ...]

_DECODER = json.JSONDecoder()
# Some editors put a mark in front of the text; nowhere else is it valid.
_MARK = "\ufeff"
_BLANKS = re.compile(rf"[ \t\r\n{_MARK}]*")
_FIRST_INDENT = re.compile(r"\n([ \t]*)\S")
_USUAL_INDENT = "  "


class Style(NamedTuple):
    """How a text is laid out: its indent, None when all is on one line, and its line break."""

    indent: str | None = _USUAL_INDENT
    newline: str = "\n"


class _Item(NamedTuple):
    key: str | None
    start: int
    value: int
    end: int


class _Box(NamedTuple):
    """An object or a list: the places of its brackets, and of what is inside."""

    opening: int
    closing: int
    items: list[_Item]


def parse(text: str) -> Any:
    """The value; a ValueError says why there is none."""
    return json.loads(text.removeprefix(_MARK), parse_constant=_refuse)


def style_of(text: str) -> Style:
    """How this text is laid out, as its first lines show it."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if "\n" in (body := text.strip()):
        found = _FIRST_INDENT.search(body)
        return Style(found[1] if found else _USUAL_INDENT, newline)
    return Style(None if parse(text) else _USUAL_INDENT, newline)


def whole(value: Any, style: Style) -> str:
    """A file of its own that holds this value."""
    return _rendered(value, style, 0) + style.newline


def line_of(text: str, path: Path) -> int:
    """The line, counted from 1, where the value at this path begins."""
    return text.count("\n", 0, _place(text, path)) + 1


def added(text: str, path: Path, value: Any, *, key: str | None = None) -> str:
    """The text with one more item at the end of the object or list at this path."""
    style = style_of(text)
    box = _box(text, _place(text, path))
    depth = len(path) + 1
    name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    piece = name + _rendered(value, style, depth)
    if not box.items:
        return text[: box.closing] + piece + text[box.closing :]
    gap = " " if style.indent is None else style.newline + style.indent * depth
    end = box.items[-1].end
    return f"{text[:end]},{gap}{piece}{text[end:]}"


def taken(text: str, path: Path) -> str | None:
    """The text without the value at this path, and without what we made around it.

    None when that leaves nothing at all.
    """
    if not path:
        return None
    box = _box(text, _place(text, path[:-1]))
    at = _index(box, path[-1])
    item = box.items[at]
    if at:
        return text[: box.items[at - 1].end] + text[item.end :]
    if len(box.items) > 1:
        return text[: item.start] + text[box.items[1].start :]
    if item.end == box.closing:
        return text[: item.start] + text[item.end :]
    return taken(text, path[:-1])


def replaced(text: str, path: Path, value: Any) -> str:
    """The text with another value at this path."""
    start = _place(text, path)
    _, end = _DECODER.raw_decode(text, start)
    return text[:start] + _rendered(value, style_of(text), len(path)) + text[end:]


def _place(text: str, path: Sequence[str | int]) -> int:
    at = _skip(text, 0)
    for step in path:
        box = _box(text, at)
        at = box.items[_index(box, step)].value
    return at


def _index(box: _Box, step: str | int) -> int:
    if isinstance(step, int):
        return step
    # Of two members with one name the last one counts, for us as for everybody.
    return max(at for at, item in enumerate(box.items) if item.key == step)


def _box(text: str, opening: int) -> _Box:
    items = []
    at = _skip(text, opening + 1)
    while text[at] not in "}]":
        start, key = at, None
        if text[opening] == "{":
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        value = at
        _, at = _DECODER.raw_decode(text, at)
        items.append(_Item(key, start, value, at))
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return _Box(opening, at, items)


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _rendered(value: Any, style: Style, depth: int) -> str:
    if style.indent is None:
        return _on_one_line(value)
    text = json.dumps(value, indent=style.indent, ensure_ascii=False)
    return text.replace("\n", style.newline + style.indent * depth)


def _on_one_line(value: Any) -> str:
    match value:
        case dict():
            inside = [f"{json.dumps(key)}: {_on_one_line(one)}" for key, one in value.items()]
            return f"{{ {', '.join(inside)} }}"
        case list():
            return f"[ {', '.join(map(_on_one_line, value))} ]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
