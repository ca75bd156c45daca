"""The features, tasks or disciplines inside a file's data, as a list or as a mapping by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ralph.plan.document import Data, Path
from ralph.plan.values import VERSION

Kind = Literal["features", "tasks", "disciplines"]
KINDS: tuple[Kind, ...] = ("features", "tasks", "disciplines")
KEY_OF: dict[str, str] = {"features": "name", "tasks": "id", "disciplines": "name"}
ONE: dict[str, str] = {"features": "feature", "tasks": "task", "disciplines": "discipline"}


class Entity(NamedTuple):
    """One entry: its key as text, where it stands in the data, and what is there."""

    key: str | None
    path: Path
    value: Any


def entities(data: Data, kind: Kind) -> Iterator[Entity]:
    """Every entry in order, also those that are not what they should be."""
    found = data.get(kind)
    if isinstance(found, dict):
        for name, value in found.items():
            if value is None or isinstance(value, dict):
                value = {KEY_OF[kind]: name, **(value or {})}
            yield Entity(str(name), (kind, name), value)
    elif isinstance(found, list):
        for i, value in enumerate(found):
            key = value.get(KEY_OF[kind]) if isinstance(value, dict) else None
            usable = isinstance(key, str | int) and not isinstance(key, bool) and str(key).strip()
            yield Entity(str(key).strip() if usable else None, (kind, i), value)


def find(data: Data, kind: Kind, key: object) -> Data | None:
    """The entry with this key, for reading or changing in place."""
    found = data.get(kind)
    if isinstance(found, dict):
        for name, value in found.items():
            if str(name) == str(key) and (value is None or isinstance(value, dict)):
                if value is None:
                    value = found[name] = {}
                return value
        return None
    for entity in entities(data, kind):
        if entity.key == str(key) and isinstance(entity.value, dict):
            return entity.value
    return None


def path_of(data: Data, kind: Kind, key: object) -> Path:
    """Where the entry stands; the whole list when it is not there."""
    for entity in entities(data, kind):
        if entity.key == str(key):
            return entity.path
    return (kind,)


def add(data: Data, kind: Kind, entry: Data) -> None:
    """Put an entry at the end; an empty file gets its version and its list."""
    if not data:
        data["version"] = VERSION
    found = data.get(kind)
    if isinstance(found, dict) and found:
        key = KEY_OF[kind]
        found[str(entry[key])] = {name: value for name, value in entry.items() if name != key}
    elif isinstance(found, list):
        found.append(entry)
    else:
        data[kind] = [entry]


def put(data: Data, kind: Kind, key: str, entry: Data) -> None:
    """Put the entry in the place of the one with its key, or at the end."""
    found = data.get(kind)
    if isinstance(found, dict) and found:
        found[key] = {name: value for name, value in entry.items() if name != KEY_OF[kind]}
        return
    for entity in entities(data, kind):
        if entity.key == key and isinstance(found, list) and isinstance(entity.path[1], int):
            found[entity.path[1]] = entry
            return
    add(data, kind, entry)


def remove(data: Data, kind: Kind, key: object) -> bool:
    """Take the entry out; False when it is not there."""
    found = data.get(kind)
    if isinstance(found, dict):
        name = next((name for name in found if str(name) == str(key)), None)
        if name is None:
            return False
        del found[name]
        return True
    for entity in entities(data, kind):
        if entity.key == str(key) and isinstance(found, list) and isinstance(entity.path[1], int):
            del found[entity.path[1]]
            return True
    return False
