"""Patterns: entries that say the same, merged into one with a history, and how reliable it is.

Pure functions: entries and counts in, values and an order out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ralph.recall import Relevance
from ralph.recall.sameness import Case
from ralph.records.knowledge import Entry, EntryType, FailureSolution, GateRejection, Quality
from ralph.text.sanitize import break_channels, sanitize
from ralph.text.tokens import plural

# What a person confirmed counts a little more than what a machine saw succeed.
_QUALITY: dict[Quality, float] = {"high": 1.0, "highest": 1.05}
# The success rate after a single success: two in three, by Laplace's rule of succession.
_ONE_SUCCESS = 2 / 3
_SHOWN_ERROR_CHARS = 160
# Some conflicting patterns are left out later, so a few more are compared than wanted.
_SPARE = 5


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """One problem with one solution: its entries, how often it worked, how well it fits a question.

    `score`, `relevance` and `why` are None without a question. `conflicts` are the ids of patterns
    in the same answer that contradict it on the same problem.
    """

    id: str
    entry_type: EntryType
    problem: str
    solution: str
    when_to_try: str
    success_count: int
    worked: int
    failed: int
    success_rate: float
    quality: Quality
    projects: int
    entries: tuple[str, ...]
    published: str
    record: Entry
    score: float | None = None
    relevance: Relevance | None = None
    why: str | None = None
    conflicts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name."""
        plain = {name: msgspec.to_builtins(getattr(self, name)) for name in self.__struct_fields__}
        return {**plain, "record": self.record.to_json()}


class Patterns(list[Pattern]):
    """Patterns, best first, with notes on how they were found."""

    notes: tuple[str, ...] = ()


def success_rate(successes: int, failures: int) -> float:
    """Return how likely it helps next time; after one success that is 2/3, not certainty."""
    return (successes + 1) / (successes + failures + 2)


def worth(fit: float, pattern: Pattern) -> float:
    """Return what patterns are ordered by: how well one fits, times how reliable it is."""
    return fit * pattern.success_rate / _ONE_SUCCESS * _QUALITY[pattern.quality]


def in_order(
    found: Sequence[tuple[float, Pattern]],
    *,
    alternative: Callable[[Pattern, Pattern], bool],
    conflicting: Callable[[Pattern, Pattern], bool],
    conflicts_max: int,
    limit: int,
) -> list[Pattern]:
    """Return the best patterns in order; of those in conflict, at most `conflicts_max`, together.

    Among patterns for the same problem, the most reliable comes first, however well the words of
    each happen to fit the question.
    """
    ranked = [one for _, one in sorted(found, key=lambda pair: (-worth(*pair), pair[1].id))]
    ranked = _best_of_alternatives_first(ranked[: limit + _SPARE], alternative)
    against = {
        one.id: [other for other in ranked if other is not one and conflicting(one, other)]
        for one in ranked
    }
    order: list[Pattern] = []
    seen: set[str] = set()
    for one in ranked:
        if one.id not in seen:
            dispute = _dispute(one, against)
            seen |= dispute
            order += [other for other in ranked if other.id in dispute][:conflicts_max]
    shown = {one.id for one in order[:limit]}
    return [
        msgspec.structs.replace(
            one, conflicts=tuple(other.id for other in against[one.id] if other.id in shown)
        )
        for one in order[:limit]
    ]


def without_repeated_solutions(
    patterns: Sequence[Pattern], *, same: Callable[[Pattern, Pattern], bool]
) -> list[Pattern]:
    """Return the patterns in order, without those whose solution an earlier one has.

    Patterns are only merged if that is nearly certain, so two of them may have one solution.
    """
    kept: list[Pattern] = []
    for pattern in patterns:
        if not any(same(pattern, earlier) for earlier in kept):
            kept.append(pattern)
    return kept


def _dispute(one: Pattern, against: Mapping[str, Sequence[Pattern]]) -> set[str]:
    """Return the ids of a pattern, of those it conflicts with, of those they conflict with, etc."""
    found = {one.id}
    left = [one]
    while left:
        fresh = [other for other in against[left.pop().id] if other.id not in found]
        found |= {other.id for other in fresh}
        left += fresh
    return found


def _best_of_alternatives_first(
    ranked: Sequence[Pattern], alternative: Callable[[Pattern, Pattern], bool]
) -> list[Pattern]:
    """Reorder each group of alternatives by success, within the places of the group."""
    groups: list[list[int]] = []
    for place, one in enumerate(ranked):
        home = next((group for group in groups if alternative(ranked[group[0]], one)), None)
        if home is None:
            groups.append(home := [])
        home.append(place)
    order = list(ranked)
    for group in groups:
        held = sorted(
            (ranked[place] for place in group),
            # What a person confirmed comes first, however often the others worked. The sort is
            # stable, so equal ones stay ordered by fit.
            key=lambda one: (one.quality != "highest", -one.success_rate, -one.success_count),
        )
        for place, one in zip(group, held, strict=True):
            order[place] = one
    return order


def case_of(entry: Entry) -> Case:
    """Return the problem and the solution of an entry."""
    match entry:
        case FailureSolution():
            parts = [entry.failure_description, entry.error_message]
            problem = "\n".join(part for part in parts if part)
            return Case(problem, entry.solution_steps, entry.error_message)
        case GateRejection():
            return Case(entry.human_feedback, entry.revision_approach)
    return Case(entry.subject or entry.gate_type, entry.approved_approach)


def when_to_try(entry: Entry) -> str:
    """Return a sentence that tells readers when to try the pattern."""
    work = f" in {entry.technology} work" if entry.technology else ""
    match entry:
        case FailureSolution(error_message=message) if message.strip():
            first = message.strip().splitlines()[0][:_SHOWN_ERROR_CHARS]
            return f"When this error appears{work}: {first}"
        case FailureSolution():
            return f"When this problem appears{work}"
        case GateRejection():
            return f"Before the {entry.gate_type} gate is asked for{work}"
    return f"When the {entry.gate_type} gate is ahead{work}"


def described(entry: Entry) -> str:
    """Return the problem, worded for readers."""
    if isinstance(entry, FailureSolution):
        return case_of(entry).problem
    gate = f"The {entry.gate_type} gate{f' of {entry.subject}' if entry.subject else ''}"
    if isinstance(entry, GateRejection):
        return f"{gate} was rejected: {entry.human_feedback}"
    return f"{gate} had to be passed"


# -- The block an orchestrator puts into an agent's prompt: what helped elsewhere, between fixed
# markers.
#
# Text from other projects is data: it is sanitized, and cannot end the block early.


OPENING = "[ORCHESTRATOR CONTEXT: Historical Knowledge]"
CLOSING = "[END CONTEXT]"
_INTRODUCTION = "Similar situations have been resolved these ways:"
_RECOMMENDATION = (
    "Recommendation: Try patterns in order. Pattern 1 is most likely based on historical data."
)
_MOST_COMMON = 5
_MODERATE = 3
_PROBLEM_CHARS = 600
_SOLUTION_CHARS = 1200
_WHEN_CHARS = 300
_SENTENCE_ENDS = (".", ",", ";", ":", "!", "?", "...")


def context_block(patterns: Sequence[Pattern]) -> str:
    """Return the patterns as text for an agent; empty if there are none."""
    if not patterns:
        return ""
    parts = [OPENING, _INTRODUCTION]
    for place, one in enumerate(patterns, 1):
        parts.append(
            f"Pattern {place} ({label(one.success_count)} - "
            f"{plural(one.success_count, 'success', 'successes')}):\n"
            f"- Problem: {_line(one.problem, _PROBLEM_CHARS)}\n"
            f"- Solution: {_line(one.solution, _SOLUTION_CHARS)}\n"
            f"- When to try: {_line(one.when_to_try, _WHEN_CHARS)}"
        )
    return "\n\n".join([*parts, _RECOMMENDATION, CLOSING])


def label(successes: int) -> str:
    """Return how common a pattern is, in words."""
    if successes >= _MOST_COMMON:
        return "Most Common"
    return "Moderate" if successes >= _MODERATE else "Less Common"


def _line(text: str, max_chars: int) -> str:
    one = ""
    for part in break_channels(sanitize(text)).splitlines():
        if plain := " ".join(part.split()):
            gap = "" if not one else " " if one.endswith(_SENTENCE_ENDS) else "; "
            one += gap + plain
    return one if len(one) <= max_chars else f"{one[: max_chars - 4].rstrip()} ..."
