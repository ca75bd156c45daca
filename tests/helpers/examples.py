"""What a quick run tries of many examples; a full run tries them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

FULL, QUICK = 100, 20
_FEWEST = 5


def examples(count: int) -> int:
    """So many in a full run, in a quick one the same share of what the others try."""
    return max(_FEWEST, count * settings().max_examples // FULL)


def spread(
    first: Iterable[object], second: Iterable[object], *, every: int = 3
) -> list[ParameterSet]:
    """All pairs, of which a quick run tries one in `every`: each value of either at least once."""
    return [
        pytest.param(one, other, marks=pytest.mark.slow if (row + column) % every else ())
        for row, one in enumerate(first)
        for column, other in enumerate(second)
    ]


def some(values: Iterable[object], *, every: int = 3, start: int = 0) -> list[ParameterSet]:
    """All values, of which a quick run tries one in `every`."""
    return [
        pytest.param(value, marks=pytest.mark.slow if (number - start) % every else ())
        for number, value in enumerate(values)
    ]
