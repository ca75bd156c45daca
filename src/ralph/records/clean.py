"""Redact every string of a record, whatever its fields are called, before it is written."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


# What comes in was cleaned before it was cut to size, and is seldom another string by then.
@lru_cache(maxsize=256)
def clean_text(text: str) -> str:
    """The text without secrets."""
    from ralph.text.redact import redact  # who only reads records need not load it

    return redact(text)


def clean(value: T) -> T:
    """The same value with every string in it redacted, at any depth."""
    result: Any = value
    if isinstance(value, str):
        redacted = clean_text(value)
        result = value if redacted == value else redacted  # the cache may hold an equal string
    elif isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        found = {name: clean(getattr(value, name)) for name in names}
        changed = {name: one for name, one in found.items() if one is not getattr(value, name)}
        result = msgspec.structs.replace(value, **changed) if changed else value
    elif isinstance(value, tuple | list):
        items = [clean(one) for one in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            result = items if isinstance(value, list) else tuple(items)
    elif isinstance(value, dict):
        result = {clean(key): clean(one) for key, one in value.items()}
    return result  # type: ignore[no-any-return]
