"""Text for other projects: a path of this machine means nothing there, or some other file."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from ralph.kinds.knowledge import FailureSolution, Gate, GateApproval, GateRejection

Told = TypeVar("Told", FailureSolution, Gate, GateApproval, GateRejection)

# Not in the middle of another path; but `-I/home/...` is one of its own.
_BEGINS = r"(?:(?<![\w.~%-])|(?<=\s-[A-Za-z]))"
_ENDS = r"(?:(?P<gap>[\\/]+)(?P<more>(?=[\w.@%+~-]))?|(?![\w%-]|\.\w))"
_CASE = re.IGNORECASE if sys.platform == "win32" else re.NOFLAG
_NAMES = frozenset({"project", "task"})


def portable(told: Told, root: Path) -> Told:
    """The same with paths in the project's folder as seen from there, and in one's home as `~`."""
    texts = {
        name: portable_text(value, root)
        for name in told.__struct_fields__
        if name not in _NAMES and isinstance(value := getattr(told, name), str)
    }
    return msgspec.structs.replace(told, **texts)


def portable_text(text: str, root: Path) -> str:
    """The text with paths in the project's folder as seen from there, and in one's home as `~`."""
    inside, own = _folders(root)
    text = inside.sub(lambda found: "" if found["more"] is not None else "./", text)
    return text if own is None else own.sub(lambda found: "~/" if found["gap"] else "~", text)


@cache
def _folders(root: Path) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    try:
        home = Path.home()
    except RuntimeError:  # nobody knows where it is
        return _pattern(root), None
    return _pattern(root), _pattern(home)


def _pattern(folder: Path) -> re.Pattern[str]:
    """Finds the folder however it is written; the root of a drive is in front of everything."""
    known = {folder, folder.resolve()}
    written = {
        spelled
        for one in known
        if one != Path(one.anchor)
        for spelled in (str(one), one.as_posix(), str(one).replace("\\", "\\\\"))
    }
    either = "|".join(re.escape(one) for one in sorted(written, key=len, reverse=True))
    return re.compile(f"{_BEGINS}(?:{either or '(?!)'}){_ENDS}", _CASE)
