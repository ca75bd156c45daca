"""Which hits a question about the past may have: by time, by tag, by conversation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Self

import msgspec

from ralph.kinds.conversation import DOCUMENT, EXCHANGE, SUMMARY, exchange_from
from ralph.memories.history import History
from ralph.memories.related import (
    Related,
    RelatedConversation,
    RelatedExchange,
    belongs_to,
    topic_line,
)
from ralph.recall import Hit
from ralph.recall.calibration import RELEVANT
from ralph.record import utc
from ralph.text.when import time_range


class Scope(msgspec.Struct, frozen=True):
    """What a question asks for besides its words: days, both included, and tags.

    Days that were given are a limit. Days that the question itself names only lift what lies in
    them (`named`): people misremember, and a limit that is wrong hides the answer.
    """

    question: str
    first: str = ""
    last: str = ""
    tags: frozenset[str] = frozenset()
    named: bool = False

    @classmethod
    def of(
        cls,
        question: str,
        *,
        tags: Collection[str] = (),
        since: str | None = None,
        until: str | None = None,
        today: date | None = None,
    ) -> Self:
        """The scope that was given, or else the time that the question plainly names."""
        wanted = frozenset(tag.casefold() for tag in tags)
        if since or until:
            first = utc(since, field="since")[:10] if since else ""
            last = utc(until, field="until")[:10] if until else ""
            return cls(question, first, last, wanted)
        found = time_range(question, today or datetime.now(UTC).date())
        if found is None:
            return cls(question, tags=wanted)
        first = found.first.isoformat() if found.first else ""
        last = found.last.isoformat() if found.last else ""
        return cls(question, first, last, wanted, named=True)

    def around(self, side: str, day: str) -> Self:
        """The same, for what was said on this side of a day."""
        first, last = ("", day) if side == "before" else (day, "")
        return msgspec.structs.replace(self, first=first, last=last, named=True)

    def in_time(self, hit: Hit) -> bool:
        """Whether an exchange was held in the days that were asked for."""
        day = (hit.record.completed or "")[:10] if hit.kind == EXCHANGE else ""
        return bool(day) and day >= self.first and (not self.last or day <= self.last)

    def holds(self, hit: Hit, home: str, histories: Sequence[History]) -> bool:
        """Whether the hit lies in the days that are a limit, and has the tags."""
        limited = (self.first or self.last) and not self.named
        if hit.kind == EXCHANGE and limited and not self.in_time(hit):
            return False
        if not self.tags:
            return True
        held = [one.conversations[home] for one in histories if home in one.conversations]
        return any(self.tags <= one.tags for one in held)


def homes(hits: Sequence[Hit], histories: Sequence[History]) -> dict[str, str]:
    """The conversation that each hit belongs to, by the hit's id; "" for a document."""
    about = [hit.record.target for hit in hits if hit.kind == SUMMARY]
    targets = {
        target: exchange_from(record).conversation
        for target in about
        for history in histories
        if (record := history.records.get(target)) is not None and record.kind == EXCHANGE
    }
    return {hit.id: belongs_to(hit, targets) for hit in hits}


def without_summaries(hits: Sequence[Hit], histories: Sequence[History]) -> list[Hit]:
    """Exchanges and documents; one that was found by its summary stands for itself."""
    kept: dict[str, Hit] = {}
    for hit in hits:
        if hit.kind != SUMMARY:
            kept.setdefault(hit.id, hit)
            continue
        for history in histories:
            record = history.records.get(hit.record.target)
            if record is not None and record.kind == EXCHANGE:
                told = exchange_from(record)
                kept.setdefault(
                    record.id,
                    msgspec.structs.replace(hit, id=record.id, kind=EXCHANGE, record=told),
                )
    return list(kept.values())


def grouped(
    question: str,
    hits: Sequence[Hit],
    histories: Sequence[History],
    *,
    floor: float,
    conversations: int,
    exchanges: int,
    notes: tuple[str, ...],
) -> Related:
    """The best conversations and the best exchanges in each, none under the floor.

    A conversation is as similar as its summary or the best of its exchanges: one that its summary
    does not mention is found as well.
    """
    home = homes(hits, histories)
    similarity: dict[str, float] = {}
    for hit in hits:
        if home[hit.id]:
            value = hit.score or 0.0
            similarity[home[hit.id]] = max(similarity.get(home[hit.id], 0.0), value)
    # In the order of the hits, which knows more than the score alone.
    order = list(dict.fromkeys(home[hit.id] for hit in hits if home[hit.id]))
    chosen = [name for name in order if similarity[name] >= floor][:conversations]
    shown = without_summaries([hit for hit in hits if home[hit.id] in chosen], histories)
    told = [
        _conversation(name, similarity[name], shown, histories, floor=floor, exchanges=exchanges)
        for name in chosen
    ]
    topical = [hit for hit in hits if hit.kind != DOCUMENT and (hit.score or 0.0) >= RELEVANT]
    about = [
        history.conversations[name].conversation
        for name in dict.fromkeys(home[hit.id] for hit in topical)
        for history in histories
        if name in history.conversations
    ]
    return Related(tuple(told), topic_line(question, topical, about), notes)


def _conversation(
    name: str,
    similarity: float,
    hits: Sequence[Hit],
    histories: Sequence[History],
    *,
    floor: float,
    exchanges: int,
) -> RelatedConversation:
    history = next(one for one in histories if name in one.conversations)
    held = history.conversations[name]
    summaries: Mapping[str, str] = {
        target: summary.text for target, summary in history.summaries.items()
    }
    fitting = [
        hit
        for hit in hits
        if hit.kind == EXCHANGE and hit.record.conversation == name and (hit.score or 0.0) >= floor
    ]
    return RelatedConversation(
        held.conversation,
        round(similarity, 4),
        summaries.get(name, ""),
        held.exchanges,
        tuple(
            RelatedExchange(hit.record, hit.score or 0.0, summaries.get(hit.id, ""))
            for hit in fitting[:exchanges]
        ),
        tuple(sorted(held.tags)),
    )
