"""What `record` is given: JSON in any of its usual forms, each value with its line."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from ralph.errors import BadRecord

_LINES_TO_JUDGE = 200
# Names that records have and no agent's event.
_OURS = {"iteration_number", "task_title", "files_touched", "decisions", "outcome"}
_BLANK = re.compile(r"\s*")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def objects(data: bytes, *, name: str) -> list[tuple[int, dict[str, Any]]]:
    """The JSON objects of one document, of a list, or of one a line, each with its line."""
    text = _text(data, name)
    found: list[tuple[int, dict[str, Any]]] = []
    for line, value in _values(text, name):
        if not isinstance(value, dict):
            raise BadRecord(
                f"a record is a JSON object, not {json.dumps(value)[:40]}", where=f"{name}:{line}"
            )
        found.append((line, value))
    if not found:
        raise BadRecord(
            "there is nothing in it to remember",
            where=name,
            todo="Give an iteration as a JSON object, or one a line.",
        )
    return found


def first_lines(file: BinaryIO) -> tuple[list[bytes], bool]:
    """The first lines, and whether they are events of an agent; the rest is still in the file."""
    from ralph.capture.detect import dialect_of

    lines: list[bytes] = []
    for line in file:
        lines.append(line)
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            return lines, dialect_of(event) is not None and not (event.keys() & _OURS)
        if len(lines) == _LINES_TO_JUDGE:
            break
    return lines, False


def _text(data: bytes, name: str) -> str:
    # Windows PowerShell writes what it redirects as UTF-16.
    encoding = "utf-16" if data.startswith(_UTF16) else "utf-8-sig"
    try:
        return data.decode(encoding)
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
    return BadRecord(
        f"is not JSON: {what}",
        where=where,
        todo="Give an iteration as a JSON object, or one a line.",
    )


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")
