"""Records as rows of a list."""

from __future__ import annotations

from typing import NamedTuple

from ralph.recall import Hit
from ralph.recall.kinds import KINDS


class Row(NamedTuple):
    """One record in a list of mixed kinds."""

    id: str
    label: str
    at: str
    title: str
    outcome: str = ""
    feature: str = ""


def hit_row(hit: Hit) -> Row:
    """Return a record of any kind as a row."""
    row = KINDS[hit.kind]
    record = hit.record
    ended = getattr(record, "outcome", "")
    feature = getattr(record, "feature", "") or ""
    return Row(hit.id, row.label, hit.at, row.headline(record), ended, feature)
