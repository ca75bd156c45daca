"""Secrets in a table: the heading of a column says what the cells below are.

Rows of CSV and Markdown, and the lists of an SQL INSERT.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from ralph.text.assignments import PASSWORD, SECRET, TOKEN, Span, plausible
from ralph.text.secrets import compiled

_BEGINNINGS = ("pass", "pwd", "secret", "api_key", "token")
_NAME = r"(?:pass(?:word|wd|wort|phrase)|pwd|secret|api_key|token)"
_TELLING = rf"(?:\w{{1,20}}[_ -])?{_NAME}"
_HEADING = _NAME + r"[\"'`*\]]{0,2}[ \t]*(?:[|;,\t\r\n)]|\Z)"
_INSERT = r"insert +into +[^()]{1,120}\("
_ROW = r"\s*,?\s*\(((?:[^()'\"]|'[^'\n]*'|\"[^\"\n]*\"|\([^()\n]*\)){0,200})\)"
_SEPARATORS = "|\t;,"
# How many rows below a heading are read, and how many columns.
_MOST_ROWS = 200
_MOST_COLUMNS = 40
# How long the list of an INSERT's columns may be.
_REACH = 2000


def cells(text: str, lowered: str) -> Iterator[Span]:
    """Yield the secrets in cells under a telling heading, and in the values of an INSERT."""
    done = -1
    inserts = "insert" in lowered
    for at in sorted({*_headings(lowered)}):
        if at <= done:
            continue
        opening = None
        if inserts:
            before = compiled(_INSERT).finditer(lowered, max(0, at - _REACH), at)
            opening = next((one for one in before if ")" not in lowered[one.end() : at]), None)
        start = lowered.rfind("\n", 0, at) + 1
        end = _line_end(lowered, at)
        if opening:
            yield from _of_insert(text, lowered, opening.end())
        else:
            end = yield from _of_rows(text, lowered, start, end)
        done = end


def _headings(lowered: str) -> Iterator[int]:
    for beginning in _BEGINNINGS:
        at = lowered.find(beginning)
        while at >= 0:
            if compiled(_HEADING).match(lowered, at):
                yield at
            at = lowered.find(beginning, at + len(beginning))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _telling(names: list[str]) -> list[int]:
    return [n for n, name in enumerate(names) if compiled(_TELLING).fullmatch(name)]


def _of_rows(text: str, lowered: str, start: int, end: int) -> Generator[Span, None, int]:
    """Yield the secrets in the rows below this heading; return where the table ends."""
    heading = lowered[start:end].rstrip("\r")
    separator = next((one for one in _SEPARATORS if one in heading), "")
    names = [name.strip(" \t\"'`*") for name in heading.split(separator)] if separator else []
    # A heading has only names in its cells; a line of code or prose has more.
    # An item of a list in code ends with a comma, too.
    if len(names) > _MOST_COLUMNS or sum(map(bool, names)) < 2:
        return end
    if not all(compiled(r"[\w .()/-]{0,30}\Z").match(name) for name in names):
        return end
    telling = _telling(names)
    for _ in range(_MOST_ROWS if telling else 0):
        at = end + 1
        row_end = _line_end(text, at)
        row = text[at:row_end].rstrip("\r").split(separator)
        if at >= len(text) or len(row) != len(names):
            break
        for n in telling:
            position = at + sum(len(cell) + 1 for cell in row[:n])
            yield from _cell(row[n], position, names[n])
        end = row_end
    return end


def _of_insert(text: str, lowered: str, start: int) -> Iterator[Span]:
    closing = compiled(r"\)\s*values\s*").search(lowered, start, start + _REACH)
    if closing is None:
        return
    names = [name.strip(" \t\r\n\"'`[]") for name in lowered[start : closing.start()].split(",")]
    at = closing.end()
    for _ in range(_MOST_ROWS):
        row = compiled(_ROW).match(text, at)
        if row is None:
            return
        at = row.end()
        values = list(_values(row))
        for n in _telling(names) if len(values) == len(names) else ():
            yield from _cell(values[n][0], values[n].start(), names[n])


def _values(row: re.Match[str]) -> Iterator[re.Match[str]]:
    value = compiled(r"(?:[^,'\"]|'[^'\n]*'|\"[^\"\n]*\")+")
    return value.finditer(row.string, row.start(1), row.end(1))


def _cell(cell: str, position: int, name: str) -> Iterator[Span]:
    value = compiled(r"\s*N?([\"'`]?)(.*?)\1\s*\Z").match(cell)
    if value is None or " " in value[2]:
        return
    tier = PASSWORD
    kind = "password"
    if "token" in name:
        tier = TOKEN
        kind = "token"
    elif "secret" in name or "key" in name:
        tier = SECRET
        kind = "secret"
    # Bare letters may be any word; a cell that is quoted, or has a number, is a value.
    sure = value[1] in ("'", '"') or any(map(str.isdigit, value[2]))
    if plausible(tier, value[2], "quoted" if sure else "line"):
        yield position + value.start(2), position + value.end(2), kind
