"""Changes to one member of a settings file that may have comments: everything else stays as it is.

`plain` blanks what JSON does not have (comments, commas before a closing bracket) without moving
anything, so that a place in the plain text is the same place in the text.
"""

from __future__ import annotations

import json
import re
from typing import Any

# A text is skipped whole, so that what looks like a comment in it is none.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)
_LAST_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])', re.S)
_SPACE = re.compile(r"\s*")
_decoder = json.JSONDecoder()


def plain(text: str) -> str:
    """The same text as JSON, of the same length."""
    return _LAST_COMMA.sub(_blanked, _COMMENT.sub(_blanked, text))


def _blanked(found: re.Match[str]) -> str:
    token = found[0]
    return token if token[0] == '"' else re.sub(r"[^\n]", " ", token)


def put(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with this member; an object on the way to it is made if it is not there."""
    data = plain(text)
    at, depth = _first_brace(data), 0
    for depth, name in enumerate(path):
        members = _members(data, at)
        if name not in members:
            break
        _, begins, ends = members[name]
        if depth == len(path) - 1:
            return text[:begins] + _dumped(value, depth + 1) + text[ends:]
        at = begins
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    indent = "  " * (depth + 1)
    member = f"\n{indent}{json.dumps(path[depth])}: {_dumped(value, depth + 1)}"
    rest = "," if _members(data, at) else "\n" + "  " * depth
    return text[: at + 1] + member + rest + text[at + 1 :]


def take(text: str, path: tuple[str, ...]) -> str:
    """The text without this member, and without an object that held nothing else."""
    data, with_commas = plain(text), _COMMENT.sub(_blanked, text)
    at, cut, was_commented = _first_brace(data), list[tuple[int, int]](), False
    for name in path:
        members = _members(data, at)
        start, at, ends = members[name]
        span = len(text[:start].rstrip()), ends
        comma = _skip(with_commas, ends)
        if with_commas[comma] == ",":
            cut_here = [(span[0], comma + 1)]
        else:  # the last one: the comma before it goes, and a comment between them stays
            before = len(data[:start].rstrip()) - 1
            cut_here = [span] if data[before] == "{" else [(before, before + 1), span]
        inside = text[at:ends] != with_commas[at:ends]  # a comment stays, with the object around it
        cut = cut_here if not cut or len(members) > 1 or was_commented else cut
        was_commented = inside
    for start, ends in reversed(cut):
        text = text[:start] + text[ends:]
    return text


def _first_brace(data: str) -> int:
    return data.index("{")


def _members(data: str, at: int) -> dict[str, tuple[int, int, int]]:
    """The members of the object that begins here: where each begins, and its value."""
    found: dict[str, tuple[int, int, int]] = {}
    at = _skip(data, at + 1)
    while data[at] != "}":
        name, after = _decoder.raw_decode(data, at)
        begins = _skip(data, _skip(data, after) + 1)
        _, ends = _decoder.raw_decode(data, begins)
        found[name] = at, begins, ends
        at = _skip(data, ends)
        at = _skip(data, at + 1) if data[at] == "," else at
    return found


def _skip(data: str, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _dumped(value: Any, depth: int) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text.replace("\n", "\n" + "  " * depth)
