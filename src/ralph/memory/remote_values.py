"""Convert what goes to a server and what comes back: queries, records, patterns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.memory.anchors import SavedAnchor, read_anchor
from ralph.memory.plan_stream import FEATURE, LEARNING, FeatureLearning, FeatureSnapshot
from ralph.recall import Hit
from ralph.recall.patterns import Pattern
from ralph.records import conversation as talk
from ralph.records.iteration import KIND as ITERATION
from ralph.records.iteration import Iteration
from ralph.records.knowledge import ENTRIES, Entry
from ralph.records.note import NOTE, Note

_RECORDS: dict[str, Any] = {
    ITERATION: Iteration,
    NOTE: Note,
    LEARNING: FeatureLearning,
    FEATURE: FeatureSnapshot,
    talk.EXCHANGE: talk.Exchange,
    talk.CONVERSATION: talk.Conversation,
    talk.DOCUMENT: talk.Document,
}


class OnServer:
    """Base of what is on a server: calls that need the project's files raise a clear error."""

    remote = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise BadInput(
            "this needs the project's own files, and they are on the server",
            todo="Run it where the server runs.",
        )


def read_hit(plain: Mapping[str, Any]) -> Hit:
    """A hit with its record."""
    kind = plain["kind"]
    record = plain["record"]
    if kind in _RECORDS:
        record = msgspec.convert(record, _RECORDS[kind], strict=False)
    elif isinstance(record, dict) and "entry_type" in record:
        record = as_entry(record)
    fields = {name: plain[name] for name in ("id", "score", "relevance", "when", "why", "at")}
    return Hit(kind=kind, record=record, like=tuple(plain["like"]), **fields)


def read_anchors(plain: Mapping[str, Any]) -> tuple[SavedAnchor, ...]:
    """The lines that a hit left in files, which older servers leave out."""
    return tuple(read_anchor(one) for one in plain.get("anchors", ()))


def as_entry(plain: Mapping[str, Any]) -> Entry:
    """An entry of knowledge."""
    fields = {name: one for name, one in plain.items() if name != "entry_type"}
    entry: Entry = msgspec.convert(fields, ENTRIES[plain["entry_type"]])
    return entry


def as_pattern(plain: Mapping[str, Any]) -> Pattern:
    """A pattern."""
    fields = {name: plain[name] for name in Pattern.__struct_fields__}
    tuples = {name: tuple(fields[name]) for name in ("entries", "conflicts")}
    return Pattern(**{**fields, **tuples, "record": as_entry(plain["record"])})


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
