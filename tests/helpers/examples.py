"""How many examples a property test tries: few in a quick run, all of them otherwise."""

from __future__ import annotations

from hypothesis import settings

FULL, QUICK = 100, 20
_FEWEST = 5


def examples(count: int) -> int:
    """So many in a full run, in a quick one the same share of what the others try."""
    return max(_FEWEST, count * settings().max_examples // FULL)
