"""The table of moments: what hooks may say about a file or a command, one line a row.

A hook runs before every tool call, so this imports almost nothing, and a table is read without
JSON. The folder of a project's table repeats the project's path: the shell line of a hook can test
whether there is one before it starts Python. The table is derived data: it is written anew after
capture, `remember` and `forget`, and deleting it loses nothing.
"""

from __future__ import annotations

import os

# What a row is about.
FILE = "file"  # its line is told once a session when the file is read or changed
REPEAT = "repeat"  # a command that failed before: it is held once
HOLD = "hold"  # a person's rule: a command or file is held
ASK = "ask"  # a person's rule: the person is asked about a command or file

NAME = "table.tsv"
MOST_ROWS = 300
_COLUMNS = 7
_SUBJECTS = ("command", "path")


class MomentRow:
    """One row: what it is about, when it applies, how often it was met, its record and its line.

    `origin` is the conversation that the record belongs to, which need not hear of it again.
    The key is the shape of a command (see `ralph.capture.shapes`), or a path or a pattern of paths.
    The line is JSON.
    """

    __slots__ = ("count", "id", "key", "kind", "line", "origin", "subject")

    def __init__(
        self, kind: str, subject: str, key: str, count: int, id: str, origin: str, line: str
    ) -> None:
        self.kind = kind
        self.subject = subject
        self.key = key
        self.count = count
        self.id = id
        self.origin = origin
        self.line = line

    def encoded(self) -> str:
        """Return the row as a line of the table."""
        cells = (
            self.kind,
            self.subject,
            self.key,
            str(self.count),
            self.id,
            self.origin,
            self.line,
        )
        return "\t".join(cells)

    def may_apply(self, data: bytes) -> bool:
        """Whether a hook's input may be about this row: a cheap test that never misses one."""
        if self.subject == "command":
            return all(word.encode() in data for word in self.key.replace(" | ", " ").split())
        name = self.key.rstrip("/").rpartition("/")[2]
        if not name.isascii():
            return True  # JSON may escape it
        return all(part.encode() in data for part in name.split("*"))


def table_file(root: str, home: str) -> str:
    """Return the path of the table of the project in this folder."""
    path = os.path.realpath(root).replace("\\", "/")
    if path[1:2] == ":":  # a Windows drive, as the shell of its hooks writes it
        path = f"/{path[0].lower()}{path[2:]}"
    return os.path.join(home, "cache", "moments", *path.strip("/").split("/"), NAME)


def read_table(file: str) -> list[MomentRow]:
    """Return the rows of a table; none if there is no table."""
    try:
        with open(file, encoding="utf-8") as opened_file:
            text = opened_file.read()
    except (OSError, UnicodeDecodeError):  # it is written anew after the next capture
        return []
    return [row for line in text.split("\n") if (row := _row(line)) is not None]


def _row(line: str) -> MomentRow | None:
    cells = line.split("\t")
    if len(cells) != _COLUMNS or cells[1] not in _SUBJECTS or not cells[3].isdigit():
        return None
    kind, subject, key, count, identity, origin, text = cells
    return MomentRow(kind, subject, key, int(count), identity, origin, text)
