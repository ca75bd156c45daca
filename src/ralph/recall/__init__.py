"""From a question to hits: a few pure stages over what the index gives, each explained.

Recall reads the index and nothing else; it knows scores and passages, not what a record means.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ralph.records import Record

Relevance = Literal["relevant", "possibly"]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What each stage gave a hit."""

    words: float
    words_rank: int | None = None
    matched: tuple[str, ...]
    asked: int
    coverage: float
    meaning: float | None = None
    meaning_rank: int | None = None
    mixed: float
    score: float


class ScoredRecord(msgspec.Struct, frozen=True):
    """A record that answers a question, how surely, and why."""

    record: Record
    stream: str
    score: float
    relevance: Relevance | None
    why: str
    parts: Parts


class Hit(msgspec.Struct, frozen=True):
    """An answer as every door shows it; score and why are None where nothing was asked.

    Relevance is None there too, and under 0.40, where only a lower `min_score` lets a hit through.
    """

    id: str
    kind: str
    score: float | None
    relevance: Relevance | None
    when: str
    why: str | None
    record: Any
    parts: Parts | None = None
    # When it was, and the ids of others that say the same.
    at: str = ""
    like: tuple[str, ...] = ()
