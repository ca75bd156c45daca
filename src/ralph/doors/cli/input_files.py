"""Input files: text in its usual encodings, JSON in its usual forms."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from ralph.errors import BadRecord

_LINES_TO_JUDGE = 200
# Fields of records that no agent's event has.
_OURS = {"iteration_number", "task_title", "files_touched", "decisions", "outcome"}
_BLANK = re.compile(r"\s*")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def expected() -> str:
    """What `record` takes, for error messages."""
    from ralph import clients

    return clients.expected("iterations as JSON objects, one per line")


def objects(data: bytes, *, name: str) -> list[tuple[int, dict[str, Any]]]:
    """The JSON objects of a document, a list, or lines, each with its line number."""
    found: list[tuple[int, dict[str, Any]]] = []
    for line, value in _values(text_of(data, name), name):
        if not isinstance(value, dict):
            raise BadRecord(
                f"a record is a JSON object, not {json.dumps(value)[:40]}", where=f"{name}:{line}"
            )
        found.append((line, value))
    if not found:
        raise BadRecord("there is nothing in it to record", where=name, todo=expected())
    return found


def first_lines(file: BinaryIO, *, name: str) -> tuple[list[bytes], str | None]:
    """The first lines, and the dialect if an agent printed them; the rest is still in the file.

    Noise and unknown events may come before the ones that decide it.
    """
    from ralph.records.iteration import FIELDS

    lines: list[bytes] = []
    for line in file:
        lines.append(line)
        if len(lines) == 1 and line.startswith(_UTF16):
            _refuse_utf16_events(line, name)
            break
        for event in _events(line):
            if dialect := _dialect(event):
                return lines, dialect
            if event.keys() & set(FIELDS):
                return lines, None
        if len(lines) == _LINES_TO_JUDGE:
            break
    return lines, None


def _events(line: bytes) -> list[dict[str, Any]]:
    from ralph.capture.lines import BOM, UnreadableLine
    from ralph.capture.lines import objects as objects_on

    try:
        return objects_on(line.removeprefix(BOM))
    except UnreadableLine:
        return []


def _dialect(event: dict[str, Any]) -> str | None:
    from ralph.clients import dialect_of

    return None if event.keys() & _OURS else dialect_of(event)


def _refuse_utf16_events(line: bytes, name: str) -> None:
    """Refuse an agent's output in UTF-16: it may be too long to convert in memory."""
    text = line.decode("utf-16", "ignore")
    if any(_dialect(event) for event in _events(text.encode("utf-8", "replace"))):
        raise BadRecord(
            "is UTF-16, as Windows PowerShell redirects it, and an agent prints UTF-8",
            where=name,
            todo="Convert it: Get-Content FILE | Set-Content -Encoding utf8 run.jsonl",
        )


def text_of(data: bytes, name: str) -> str:
    """The text in these bytes: UTF-8, or what Windows PowerShell writes."""
    encoding = "UTF-16" if data.startswith(_UTF16) else "UTF-8"
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadRecord(f"is not {encoding} text", where=f"{name}:{line}") from None


def _values(text: str, name: str) -> Iterator[tuple[int, Any]]:
    """Each value on the outside and each element of a list there, with its line."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at, line, in_list = 0, 1, False
    wants_value = False
    while True:
        start = _skip(text, at)
        line += text.count("\n", at, start)
        at = start
        mark = text[at : at + 1]
        where = f"{name}:{line}"
        if not mark:
            if in_list:
                raise BadRecord("is not JSON: the list does not end", where=where)
            return
        if not in_list and mark == "[":
            in_list, wants_value, at = True, False, at + 1
            continue
        if in_list and mark == "]" and not wants_value:
            in_list, at = False, at + 1
            continue
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise _not_json(
                f"{error.msg} (column {error.colno})", f"{name}:{error.lineno}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise _not_json(str(error), where) from None
        yield line, value
        line += text.count("\n", at, end)
        at = end
        if in_list:
            start = _skip(text, at)
            line += text.count("\n", at, start)
            at = start
            wants_value = text[at : at + 1] == ","
            if wants_value:
                at += 1
            elif text[at : at + 1] not in ("]", ""):
                raise _not_json("Expecting ',' between records", f"{name}:{line}")


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _not_json(what: str, where: str) -> BadRecord:
    return BadRecord(f"is not JSON: {what}", where=where, todo=expected())


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")
