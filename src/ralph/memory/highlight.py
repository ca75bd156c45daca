"""One thing worth knowing from all that a person did with agents, in any project.

A mistake that was made in three sessions, with what solved it, or else the newest thing that the
person decided and that still holds. Nothing is better than something doubtful.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from ralph.memory.lessons import repeated_errors, with_general_fix
from ralph.memory.newest_work import ProjectWork
from ralph.memory.past_work import PastWork, by_session
from ralph.memory.ralph import Ralph
from ralph.memory.replaced import no_longer_holds, read_replaced
from ralph.memory.spoken_rules import standing_rules

_LEAST_TIMES = 3


class Highlight(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake with its `fix` and the number of sessions that made it, or a decision.

    `id` is the newest exchange with the mistake's fix, or with the decision.
    """

    kind: Literal["mistake", "decision"]
    project: str
    text: str
    at: str
    id: str
    fix: str = ""
    times: int = 0


def best_highlight(ralph: Ralph, projects: Iterable[ProjectWork]) -> Highlight | None:
    """Return the mistake made most often, or else the newest decision; None if there is neither."""
    projects = list(projects)
    mistakes = [mistake for each in projects for mistake in _mistakes(each.project, each.work)]
    if mistakes:
        return max(mistakes, key=lambda mistake: (mistake.times, mistake.at))
    replaced = read_replaced(ralph.project)
    decisions = [
        decision
        for each in projects
        for decision in _decisions(each.project, each.work)
        if not no_longer_holds(replaced.get(decision.id, ()), decision.text)
    ]
    return max(decisions, key=lambda decision: decision.at, default=None)


def _mistakes(project: str, work: list[PastWork]) -> Iterator[Highlight]:
    runs = [
        [error for exchange in session for error in exchange.errors] for session in by_session(work)
    ]
    for mistake in with_general_fix(repeated_errors(runs, least=_LEAST_TIMES)):
        solved = next(
            exchange
            for exchange in reversed(work)
            if any(error.resolution == mistake.fix for error in exchange.errors)
        )
        yield Highlight(
            kind="mistake",
            project=project,
            text=mistake.message,
            at=solved.at,
            id=solved.id,
            fix=mistake.fix,
            times=mistake.times,
        )


def _decisions(project: str, work: list[PastWork]) -> Iterator[Highlight]:
    for rule in standing_rules(work):
        yield Highlight(kind="decision", project=project, text=rule.text, at=rule.at, id=rule.id)
