"""Reads one field at a time: what fits comes back, what does not is a Problem with its place."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any, Literal

from ralph.plan.document import Data, Document, Path
from ralph.plan.values import Limits, Problem
from ralph.records.iteration import cut

_DRIVE = re.compile(r"[A-Za-z]:")


def clean_path(path: str, *, max_chars: int) -> tuple[str | None, str | None]:
    """The path with forward slashes, or None and why it is refused (F9)."""
    plain = path.strip().replace("\\", "/")
    if not plain:
        return None, "an empty path"
    if "\0" in plain:
        return None, "a path with a NUL in it"
    if len(plain) > max_chars:
        return None, f"a path of more than {max_chars} characters"
    if plain.startswith(("/", "~")) or _DRIVE.match(plain):
        return None, f"the path {path!r} is not relative to the project"
    pure = PurePosixPath(plain)
    if ".." in pure.parts:
        return None, f"the path {path!r} leaves the project with `..`"
    if not pure.parts:
        return None, f"the path {path!r} names no file"
    return str(pure), None


class Fields:
    """One entry of a file, read field by field."""

    def __init__(
        self, document: Document, path: Path, value: Data, limits: Limits, problems: list[Problem]
    ) -> None:
        self.document = document
        self.path = path
        self.value = value
        self.limits = limits
        self.problems = problems

    def complain(
        self,
        what: str,
        todo: str,
        *steps: str | int,
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        """Note what is wrong at a field of this entry."""
        place = self.document.place((*self.path, *steps))
        self.problems.append(
            Problem(self.document.name, place.line, place.column, what, todo, severity)
        )

    def text(self, name: str, max_chars: int) -> str | None:
        """A text, cut to the limit; numbers are taken as text, empty is nothing."""
        value = self.value.get(name)
        if value is None:
            return None
        if isinstance(value, bool | dict | list):
            self.complain(f"`{name}` is not a text", "Write it as a text.", name)
            return None
        plain = str(value).strip()
        if len(plain) > max_chars:
            self.complain(
                f"`{name}` has {len(plain)} characters",
                f"What is over {max_chars} is cut when it is read; shorten it.",
                name,
                severity="warning",
            )
        return cut(plain, max_chars) or None

    def items(self, name: str, most: int) -> list[tuple[int, Any]]:
        """A list's items with their positions; a single text is a list of one."""
        value = self.value.get(name)
        if value is None:
            return []
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            self.complain(f"`{name}` is not a list", "Write each item behind a dash.", name)
            return []
        if len(value) > most:
            self.complain(
                f"`{name}` has {len(value)} items and holds {most}",
                f"Keep the {most} that matter.",
                name,
                severity="warning",
            )
        return list(enumerate(value))

    def texts(self, name: str, *, most: int, each: int) -> tuple[str, ...]:
        """A list of texts, each cut to its limit."""
        found: list[str] = []
        for i, item in self.items(name, most):
            if isinstance(item, bool | dict | list) or item is None:
                self.complain(f"`{name}` holds something that is not a text", "Quote it.", name, i)
            elif plain := str(item).strip():
                found.append(cut(plain, each))
        return tuple(found[:most])

    def safe_path(self, path: object, *steps: str | int) -> str | None:
        """A path that may be used, else a problem."""
        if not isinstance(path, str):
            self.complain("a path must be a text", "Write it as a text.", *steps)
            return None
        clean, why = clean_path(path, max_chars=self.limits.path)
        if clean is None:
            self.complain(str(why), "Write it relative to the project, without `..`.", *steps)
        return clean
