"""The block an orchestrator puts into an agent's prompt: what helped elsewhere, exactly delimited.

Text of other projects is data: it is made harmless, and cannot end the block early.
"""

from __future__ import annotations

from collections.abc import Sequence

from ralph.recall.patterns import Pattern
from ralph.text.sanitise import sanitise

OPENING = "[ORCHESTRATOR CONTEXT: Historical Knowledge]"
CLOSING = "[END CONTEXT]"
_INTRODUCTION = "Similar situations have been resolved these ways:"
_RECOMMENDATION = (
    "Recommendation: Try patterns in order. Pattern 1 is most likely based on historical data."
)
_MOST_COMMON, _MODERATE = 5, 3
_PROBLEM_CHARS, _SOLUTION_CHARS, _WHEN_CHARS = 600, 1200, 300
_SENTENCE_ENDS = (".", ",", ";", ":", "!", "?", "...")


def context_block(patterns: Sequence[Pattern]) -> str:
    """The patterns for an agent to read; nothing when there are none."""
    if not patterns:
        return ""
    parts = [OPENING, _INTRODUCTION]
    for place, one in enumerate(patterns, 1):
        parts.append(
            f"Pattern {place} ({label(one.success_count)} - {_successes(one.success_count)}):\n"
            f"- Problem: {_line(one.problem, _PROBLEM_CHARS)}\n"
            f"- Solution: {_line(one.solution, _SOLUTION_CHARS)}\n"
            f"- When to try: {_line(one.when_to_try, _WHEN_CHARS)}"
        )
    return "\n\n".join([*parts, _RECOMMENDATION, CLOSING])


def label(successes: int) -> str:
    """How common a pattern is, in words."""
    if successes >= _MOST_COMMON:
        return "Most Common"
    return "Moderate" if successes >= _MODERATE else "Less Common"


def _successes(count: int) -> str:
    return "1 success" if count == 1 else f"{count} successes"


def _line(text: str, max_chars: int) -> str:
    one = ""
    for part in sanitise(text).splitlines():
        if plain := " ".join(part.split()):
            gap = "" if not one else " " if one.endswith(_SENTENCE_ENDS) else "; "
            one += gap + plain
    return one if len(one) <= max_chars else f"{one[: max_chars - 4].rstrip()} ..."
