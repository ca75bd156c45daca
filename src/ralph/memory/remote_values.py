"""Convert what goes to a server and what comes back: queries, records, patterns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

from ralph.errors import BadInput
from ralph.memory.anchors import SavedAnchor, read_anchor
from ralph.recall import Hit
from ralph.recall.kinds import KINDS


class OnServer:
    """Base of what is on a server: what only its twin on this machine has is a clear error."""

    remote = True
    # The class on this machine with the same calls, as its module and its name.
    twin = ("", "")

    def __getattr__(self, name: str) -> Any:
        module, twin = self.twin
        local = getattr(import_module(module), twin)
        known = any(name in vars(base) or name in _annotated(base) for base in local.__mro__)
        if name.startswith("_") or not known:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise BadInput(
            "this needs the project's own files, and they are on the server",
            todo="Run it where the server runs.",
        )


def _annotated(local: type) -> Mapping[str, Any]:
    annotations: Mapping[str, Any] = vars(local).get("__annotations__", {})
    return annotations


def read_hit(plain: Mapping[str, Any]) -> Hit:
    """A hit with its record."""
    kind = plain["kind"]
    row = KINDS.of(kind)
    record = plain["record"]
    if row is not None:  # a newer server may have kinds that are unknown here
        record = row.from_plain(record)
    fields = {name: plain[name] for name in ("id", "score", "relevance", "when", "why", "at")}
    return Hit(kind=kind, record=record, like=tuple(plain["like"]), **fields)


def read_anchors(plain: Mapping[str, Any]) -> tuple[SavedAnchor, ...]:
    """The lines that a hit left in files, which older servers leave out."""
    return tuple(read_anchor(one) for one in plain.get("anchors", ()))


def facets(of: Sequence[str | None]) -> dict[str, str | None]:
    """The filters of a knowledge query, by name."""
    return dict(zip(("agent_type", "task_type", "technology"), of, strict=False))


def limits(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a query that the server takes; it sets its own time limit."""
    return {name: one for name, one in bounds.items() if name != "budget_s"}


_NAMES = {"kinds": "kind", "features": "feature"}


def narrowed(narrowing: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of a search, under the names that the server uses."""
    own = {"everywhere", "tags", "scope", "meaning", "budget_s"}
    found = {_NAMES.get(name, name): one for name, one in narrowing.items() if name not in own}
    for name, option in (("everywhere", "--everywhere"), ("tags", "--tag")):
        if narrowing.get(name):
            raise BadInput(f"a search on a server cannot use {option}", todo=f"Leave out {option}.")
    if (scope := narrowing.get("scope")) is not None and scope.feature is not None:
        found["feature"] = [scope.feature]
    return found if narrowing.get("meaning", True) else {**found, "words_only": "true"}


def given_only(query: Mapping[str, Any]) -> dict[str, Any]:
    """Only the parameters that have a value."""
    empty: Collection[Any] = (None, [], ())
    return {
        name: list(one) if isinstance(one, tuple | set | frozenset) else one
        for name, one in query.items()
        if one not in empty
    }
