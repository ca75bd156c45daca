"""Brings the change between two versions of a file's data into a third one, entry by entry."""

from __future__ import annotations

from typing import Any, Protocol

from ralph.plan.document import Data
from ralph.plan.entities import KEY_OF, Kind, entities, put, remove
from ralph.plan.splice import identity, same
from ralph.plan.store import copied

_LISTS = frozenset({"learnings", "removed_learnings", "comments", "context_files"})


class Decision(Protocol):
    """Says what of a change goes through; every answer is the value to keep."""

    def added(self, key: str, entry: Data) -> Data | None: ...
    def gone(self, key: str, entry: Data) -> bool: ...
    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any: ...
    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any: ...


class Everything:
    """Lets every change through and remembers the fields that it touched ("": it was deleted)."""

    def __init__(self) -> None:
        self.touched: set[tuple[str, str]] = set()

    def added(self, key: str, entry: Data) -> Data | None:
        return entry

    def gone(self, key: str, entry: Data) -> bool:
        self.touched.add((key, ""))
        return True

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        self.touched.add((key, field))
        if field in _LISTS and isinstance(now, list | str | None):
            return list_change(as_list(was), as_list(now), as_list(kept)) or None
        return now

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        return now


def bring(kind: Kind, was: Data, now: Data, kept: Data, decide: Decision) -> Data:
    """`kept` with what changed from `was` to `now`, as far as the decision lets it."""
    result: Data = copied(kept)
    for name in dict.fromkeys([*was, *now]):
        if name != kind and not same(was.get(name), now.get(name)):
            value = decide.top(name, was.get(name), now.get(name), kept.get(name))
            _set(result, name, value)
    before, after = by_key(was, kind), by_key(now, kind)
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        have = by_key(result, kind).get(key)
        if new is None and old is not None:
            if have is not None and decide.gone(key, old):
                remove(result, kind, key)
        elif new is not None and old is None and have is None:
            entry = decide.added(key, copied(new))
            if entry is not None:
                put(result, kind, key, entry)
        elif new is not None and have is not None:
            entry = _fields(key, old or {KEY_OF[kind]: key}, new, have, decide)
            if not same(entry, have):
                put(result, kind, key, entry)
    return result


def list_change(was: list[Any], now: list[Any], kept: list[Any]) -> list[Any]:
    """`kept` without what was taken out and with what was put in or changed."""
    before = {identity(item): item for item in was}
    after = {identity(item): item for item in now}
    result = [item for item in kept if identity(item) not in before or identity(item) in after]
    places = {identity(item): i for i, item in enumerate(result)}
    for key, item in after.items():
        if key not in before:
            if key not in places:
                result.append(copied(item))
        elif key in places and not same(before[key], item):
            result[places[key]] = copied(item)
    return result


def as_list(value: Any) -> list[Any]:
    """What a list should be, whatever somebody left in its place."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, str) else []


def _fields(key: str, old: Data, new: Data, have: Data, decide: Decision) -> Data:
    entry: Data = copied(have)
    for field in dict.fromkeys([*old, *new]):
        if not same(old.get(field), new.get(field)):
            value = decide.changed(
                key, field, old.get(field), copied(new.get(field)), have.get(field), have
            )
            _set(entry, field, value)
    return entry


def _set(entry: Data, name: str, value: Any) -> None:
    if value is None:
        entry.pop(name, None)
    else:
        entry[name] = value


def by_key(data: Data, kind: Kind) -> dict[str, Data]:
    """The entries that have a key; of two with the same key the first counts."""
    found: dict[str, Data] = {}
    for entity in entities(data, kind):
        if entity.key is not None and isinstance(entity.value, dict):
            found.setdefault(entity.key, entity.value)
    return found
