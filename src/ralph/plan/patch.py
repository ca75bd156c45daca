"""What a caller gives, made fit for the file: cut, cleaned, checked, or refused with a reason.

A patch is a mapping: a field that is not in it is kept, a field that is None is cleared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ralph.errors import BadInput
from ralph.plan.document import Data
from ralph.plan.fields import clean_path
from ralph.records.iteration import cut
from ralph.text.redact import redact
from ralph.text.sanitize import visible

Patch = Mapping[str, Any]


def known_only(patch: Patch, fields: Iterable[str], *, of: str, refused: Mapping[str, str]) -> None:
    """Refuse a field that does not exist or that is not changed this way."""
    allowed = list(fields)
    for name in patch:
        if name in refused:
            raise BadInput(f"`{name}` of a {of} cannot be set", todo=refused[name])
        if name not in allowed:
            raise BadInput(f"a {of} has no field {name!r}", todo=f"It has {', '.join(allowed)}.")


def apply(entry: Data, name: str, value: Any) -> None:
    """Set the field, or take it out when there is nothing to say."""
    if value is None or value in ("", [], {}, ()):
        entry.pop(name, None)
    else:
        entry[name] = value


def text(name: str, value: Any, max_chars: int) -> str | None:
    """A text without hidden characters and secrets, cut to its limit (F2): an agent cannot fix
    its output, and the plan is committed to git."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInput(f"`{name}` must be a text", todo="Give a text, or nothing to clear it.")
    return cut(redact(visible(value)).strip(), max_chars) or None


def texts(name: str, value: Any, *, most: int, each: int) -> list[str] | None:
    """A list of texts; one that is full refuses (F2)."""
    if value is None:
        return None
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise BadInput(f"`{name}` must be a list of texts", todo="Give a list.")
    found = [text(name, item, each) for item in items]
    kept = list(dict.fromkeys(item for item in found if item))
    if len(kept) > most:
        raise BadInput(
            f"`{name}` holds {most} items and {len(kept)} were given",
            todo=f"Keep the {most} that matter.",
        )
    return kept


def path(value: Any, *, max_chars: int) -> str:
    """A path inside the project, or a refusal that says why (F9)."""
    clean, why = (
        clean_path(value, max_chars=max_chars) if isinstance(value, str) else (None, "no text")
    )
    if clean is None:
        raise BadInput(str(why), todo="Give a path relative to the project, without `..`.")
    return clean


def paths(name: str, value: Any, *, most: int, max_chars: int) -> list[str] | None:
    """A list of paths; one that is full refuses."""
    items = texts(name, value, most=most, each=max_chars + 1)
    return None if items is None else [path(item, max_chars=max_chars) for item in items]


def number(name: str, value: Any) -> int | None:
    """A whole number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"`{name}` must be a number", todo="Give a whole number.")
    return value
