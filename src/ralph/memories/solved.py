"""Errors that were met before: how often, and how they were solved if they were."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ralph.kinds.conversation import Exchange
from ralph.kinds.iteration import ErrorSeen, Iteration
from ralph.memories.ralph import Ralph
from ralph.memories.runs import event_of, held_in
from ralph.recall import Hit
from ralph.recall.search import Question
from ralph.record import Located
from ralph.text.signature import signature

_CANDIDATES = 50
_ASKED_CHARS = 400
_TRIED = 2
_DECISIONS = 2
# Told again with a little more or less around it, if so much of it is the same.
_LONG_ENOUGH = 25
_FOLDED = re.compile(r"<[a-z]+>")
_WORD = re.compile(r"[^\W\d_]{3,}")
# What stands in every failure, and tells none from another; nor does that a file is not there,
# because its path is folded.
_EMPTY = frozenset(
    """
    error failed failure exit code status with command tool bash the and
    read cannot open access stat such file directory path does exist filenotfounderror
    errno enoent
    """.split()
)


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """An error that memory has; `solution` is None while nothing shows that it was solved.

    `where` and `id` name the record that shows the solution, else the newest that has the error.
    """

    message: str
    times: int
    last: str
    where: str
    id: str
    solution: str | None = None
    decisions: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


class _Met(msgspec.Struct, frozen=True):
    hit: Hit
    error: ErrorSeen
    at: str
    number: int


def solved(
    ralph: Ralph,
    message: str,
    *,
    session: str = "",
    feature: str | None = None,
    budget_s: float | None = None,
) -> Solved | None:
    """What this project's memory knows of an error, by its signature; None if it never met it.

    With `feature` that feature alone is asked, and no conversation. That `session` met it without
    solving it is no news to who asks there. Words find the candidates, so nothing heavy is loaded.
    `budget_s` bounds catching up.
    """
    wanted = signature(message)
    if not tells(wanted):
        return None
    hits = _hits(ralph, message[:_ASKED_CHARS], feature, budget_s)
    met = sorted(_met(hits, wanted), key=lambda one: (one.at, one.number))
    for one in reversed(met):
        if (found := _solution(ralph, one, _known(met))) is not None:
            return found
    elsewhere = [one for one in met if not (session and held_in(one.hit.record, session))]
    if not elsewhere:
        return None
    tried = dict.fromkeys(_summary(one.hit.record) for one in reversed(elsewhere))
    return msgspec.structs.replace(
        _known(elsewhere), tried=tuple(text for text in tried if text)[:_TRIED]
    )


def _known(met: Sequence[_Met]) -> Solved:
    """What can be said without a solution; the newest is last."""
    newest = met[-1]
    return Solved(
        message=newest.error.message,
        times=len({event_of(one.hit) for one in met}),
        last=newest.at,
        where=_where(newest.hit.record),
        id=newest.hit.id,
    )


def _solution(ralph: Ralph, one: _Met, known: Solved) -> Solved | None:
    """How this meeting with the error ended well, if the records show it."""
    record = one.hit.record
    if one.error.resolution:
        return msgspec.structs.replace(
            known, solution=one.error.resolution, where=_where(record), id=one.hit.id
        )
    later = later_success(ralph, record)
    if later is None:
        return None
    located, success = later
    decisions = [
        f"{d.description}: {d.rationale}" if d.rationale else d.description
        for d in success.decisions[:_DECISIONS]
    ]
    return msgspec.structs.replace(
        known,
        solution=success.summary or decisions.pop(0),
        decisions=tuple(decisions),
        where=_where(success),
        id=located.record.id,
    )


def tells(wanted: str) -> bool:
    """Whether the signature says anything by which one failure differs from another."""
    words = {word for word in _WORD.findall(_FOLDED.sub(" ", wanted)) if word not in _EMPTY}
    return len(words) >= 2


def _hits(ralph: Ralph, asked: str, feature: str | None, budget_s: float | None) -> list[Hit]:
    question = Question(asked, _CANDIDATES, 0.0)
    features = ralph.features() if feature is None else [ralph.feature(feature)]
    hits = list(ralph.place.ask(features, question, meaning=False, budget_s=budget_s))
    if feature is None:
        hits += ralph.conversations.search(
            asked,
            limit=ralph.config.settings.search_max_limit,
            min_score=0.0,
            words_only=True,
            budget_s=budget_s,
        )
    return hits


def _met(hits: Sequence[Hit], wanted: str) -> list[_Met]:
    return [
        _Met(hit, error, *_place(hit.record))
        for hit in hits
        for error in hit.record.errors
        if same_error(signature(error.message), wanted)
    ]


def same_error(one: str, other: str) -> bool:
    """Whether two signatures are of the same error, told with more or less around it."""
    if one == other:
        return True
    long_enough = min(len(one), len(other)) > _LONG_ENOUGH
    return long_enough and (one.startswith(other) or other.startswith(one))


def _place(record: Iteration | Exchange) -> tuple[str, int]:
    """When it was, and its number among those of the same moment."""
    if isinstance(record, Iteration):
        return record.timestamp or "", record.iteration_number or 0
    return record.completed or "", record.number or 0


def later_success(ralph: Ralph, record: Iteration | Exchange) -> tuple[Located, Iteration] | None:
    """The first iteration on the same task that succeeded after this one, which did not."""
    if not isinstance(record, Iteration) or record.task_id is None or record.outcome == "success":
        return None
    for located, one in ralph.feature(record.feature).iterations():
        if (
            str(one.task_id) == str(record.task_id)
            and (one.iteration_number or 0) > (record.iteration_number or 0)
            and one.outcome == "success"
            and (one.summary or one.decisions)
        ):
            return located, one
    return None


def _where(record: Iteration | Exchange) -> str:
    if isinstance(record, Iteration):
        return f"feature {record.feature}, iteration {record.iteration_number}"
    return "a conversation"


def _summary(record: Iteration | Exchange) -> str:
    return record.summary if isinstance(record, Iteration) else record.assistant
