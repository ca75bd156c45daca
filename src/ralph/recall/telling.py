"""What a model is told unasked: one rule for the prompt hook, for chats and for prompts.

Nothing is told unless the hits are likely to answer. Then the best are told, at most a few from
each conversation. How many is the budget of the moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from ralph.recall import Hit
from ralph.recall.score import FLOOR, TOLD, WORTH_TELLING
from ralph.records.conversation import SUMMARY, Exchange

# How relevant a conversation must be compared with the best one: next to a good answer, weak ones
# only distract.
_BESIDE_THE_BEST = 0.85


def conversation_of(hit: Hit) -> str:
    """Return the conversation that a hit belongs to; a record without one stands for itself."""
    if isinstance(hit.record, Exchange):
        return hit.record.conversation
    if hit.kind == SUMMARY:
        return str(hit.record.target)
    return hit.id


def answered(hits: Sequence[Hit]) -> float:
    """Return how likely the answer is among these hits.

    A server may leave out what each stage contributed. The answer is at least as likely as its most
    relevant hit.
    """
    return max((hit.parts.answered if hit.parts else hit.score or 0.0 for hit in hits), default=0.0)


def worth_telling(
    hits: Sequence[Hit],
    *,
    conversations: int,
    each: int = 1,
    bar: float = TOLD,
) -> list[Hit]:
    """Return the hits to tell, in their order; none if they probably don't answer.

    At most `each` hits from one conversation, and at most this many `conversations`; a record that
    belongs to none counts as one. `bar`: how likely an answer must be. A conversation is told for a
    relevant hit that would be told alone, or is nearly as relevant as the best one. Further hits
    from it need only reach the floor. Without a bar, every hit may be told.
    """
    if answered(hits) < bar:
        return []
    floor = min(FLOOR, bar)
    best = max((hit.score or 0.0 for hit in hits), default=0.0)
    least = min(WORTH_TELLING, bar)
    chosen: dict[str, list[Hit]] = {}
    for hit in hits:
        score = hit.score or 0.0
        name = conversation_of(hit)
        if name in chosen:
            if score >= floor and len(chosen[name]) < each:
                chosen[name].append(hit)
            continue
        alone = hit.parts.alone if hit.parts else 0.0
        fits = alone >= bar or score >= _BESIDE_THE_BEST * best
        if score >= least and fits and len(chosen) < conversations:
            chosen[name] = [hit]
    return [hit for group in chosen.values() for hit in group]
