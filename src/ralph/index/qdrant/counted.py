"""What was counted in a collection, and how rare its words are."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

# Of a token so frequent that it would count negative; as FTS5 does.
_LEAST_RARITY = 1e-6


class Facts(msgspec.Struct):
    """What was counted in one state of a collection, kept until it is written to again."""

    state: str
    frequencies: dict[str, int] = {}
    passages: int | None = None
    last_number: int | None = None
    waiting: bool | None = None


def rarities(frequencies: Mapping[str, int], count: int) -> dict[str, float]:
    """How much each token counts that stands in so many of `count` passages: the IDF of FTS5."""
    found: dict[str, float] = {}
    for token, times in frequencies.items():
        share = (count - times + 0.5) / (times + 0.5)
        found[token] = max(math.log(share), _LEAST_RARITY) if share > 0.0 else _LEAST_RARITY
    return found
