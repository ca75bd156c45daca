"""Every kind of record that a search finds, a row each: where it is kept, who may see it, how it
reads. What is done with all kinds (search, get, list) is written once, over these rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from ralph.recall import Hit

Keeper = Literal["project", "conversations", "knowledge"]


class Kind(msgspec.Struct, frozen=True):
    """One kind: its name, what people call it, where it is kept, and its title and its text.

    `lift`: what a person wrote down stands above what was extracted automatically.
    """

    name: str
    label: str
    keeper: Keeper
    title: Callable[[Any], str]
    text: Callable[[Any], str]
    lift: Callable[[Any], bool] = lambda record: False


def _field(name: str) -> Callable[[Any], str]:
    return lambda record: getattr(record, name) or ""


def _solution(record: Any) -> str:
    fields = ("solution_steps", "revision_approach", "approved_approach")
    return next((getattr(record, name) for name in fields if hasattr(record, name)), "")


def _problem(record: Any) -> str:
    from ralph.recall.patterns import described

    return described(record)


ROWS = (
    Kind("iteration", "iteration", "project", _field("task_title"), _field("summary")),
    Kind(
        "note",
        "note",
        "project",
        lambda record: "",
        _field("text"),
        lift=lambda record: record.by == "human",
    ),
    Kind(
        "learning",
        "learning",
        "project",
        lambda record: "",
        _field("text"),
        lift=lambda record: record.source == "human",
    ),
    Kind("feature", "feature", "project", _field("feature"), _field("description")),
    Kind("exchange", "conversation", "conversations", _field("user"), _field("assistant")),
    Kind("document", "document", "conversations", _field("heading"), _field("text")),
    Kind("failure_solution", "lesson", "knowledge", _problem, _solution),
    Kind("gate_rejection", "lesson", "knowledge", _problem, _solution),
    Kind("gate_approval", "lesson", "knowledge", _problem, _solution),
)
KINDS = {row.name: row for row in ROWS}
# What --kind takes: the names, and the labels that people use for them.
WORDS = {word: tuple(r.name for r in ROWS if word in (r.name, r.label)) for r0 in ROWS for word in (r0.name, r0.label)}


class Scope(msgspec.Struct, frozen=True):
    """Who asks: a person in a project sees everything of it; an agent of a run sees the memory of
    its feature and the project's notes. No argument of a call makes it wider."""

    feature: str | None = None

    @property
    def keepers(self) -> frozenset[Keeper]:
        """Where the asker may look."""
        return frozenset({"project"} if self.feature is not None else {"project", "conversations", "knowledge"})


# A person's own words stand this much above what was extracted and fits as well.
_LIFT = 0.05


def lifted(hit: Hit) -> Hit:
    """The hit, with the lift that its kind gives it."""
    row = KINDS.get(hit.kind)
    if row is None or hit.score is None or not row.lift(hit.record):
        return hit
    return msgspec.structs.replace(hit, score=round(min(1.0, hit.score + _LIFT), 4))


def fold_twins(hits: Iterable[Hit]) -> list[Hit]:
    """The hits without those that say the same as one before; that one names them in `like`."""
    from ralph.text.tokens import tokens

    kept: list[tuple[frozenset[str], Hit, list[str]]] = []
    for hit in hits:
        row = KINDS[hit.kind]
        words = frozenset(tokens(f"{row.title(hit.record)}\n{row.text(hit.record)}"))
        for other, _, like in kept:
            if words and len(words & other) >= _SAME_SHARE * len(words | other):
                like.append(hit.id)
                break
        else:
            kept.append((words, hit, []))
    return [msgspec.structs.replace(hit, like=tuple(like)) if like else hit for _, hit, like in kept]


_SAME_SHARE = 0.9
