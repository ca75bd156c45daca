"""Which points are meant: filters as Qdrant reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ralph.index.facets import Only, wanted_tokens

if TYPE_CHECKING:
    from qdrant_client import models


def chunks(values: Sequence[str], size: int) -> Iterator[list[str]]:
    """The values, so many at a time."""
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def holding(**wanted: Any) -> models.Filter:
    """What has these values; of a list, one of them."""
    from qdrant_client import models

    return models.Filter(
        must=[
            models.FieldCondition(
                key=key,
                match=models.MatchAny(any=list(value))
                if isinstance(value, list)
                else models.MatchValue(value=value),
            )
            for key, value in wanted.items()
        ]
    )


def fitting(only: Only | None) -> models.Filter | None:
    """What has, of each facet asked for, one of the values or none."""
    from qdrant_client import models

    groups = wanted_tokens(only)
    if not groups:
        return None
    return models.Filter(
        must=[
            models.FieldCondition(key="facets", match=models.MatchAny(any=list(group)))
            for group in groups
        ]
    )
