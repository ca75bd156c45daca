"""What matters now, in one project or in all: decisions, open ends and repeated mistakes."""

from __future__ import annotations

import msgspec

from ralph.memory.lessons import RepeatedError, repeated_errors
from ralph.memory.newest_work import ProjectWork, newest_work
from ralph.memory.past_work import PastWork
from ralph.memory.ralph import Ralph
from ralph.memory.replaced import no_longer_holds, read_replaced
from ralph.memory.spoken_rules import PersonsWords, put_off, standing_rules
from ralph.memory.timeline import mistakes
from ralph.memory.working_commands import KnownCommand, failing_commands, known_commands

# What matters now is in the newest part of a long memory.
_EXCHANGES_READ = 1500


class ProjectOverview(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of one project left behind.

    `rules` is what a person decided and what still holds, `put_off` what they want done later,
    `failing` are the checks that failed last.
    """

    project: str = ""
    rules: tuple[PersonsWords, ...] = ()
    put_off: tuple[PersonsWords, ...] = ()
    mistakes: tuple[RepeatedError, ...] = ()
    failing: tuple[KnownCommand, ...] = ()


def overviews(ralph: Ralph, *, everywhere: bool = False) -> list[ProjectOverview]:
    """Return what the sessions of this project left behind, and with `everywhere` of all others."""
    own = newest_work(ralph, exchanges=_EXCHANGES_READ, everywhere=False)
    found = [_own(ralph, [one for project in own for one in project.work])]
    if everywhere:
        everything = newest_work(ralph, exchanges=_EXCHANGES_READ)
        found += map(_overview, everything[len(own) :])
    return found


def _own(ralph: Ralph, work: list[PastWork]) -> ProjectOverview:
    overview = _overview(ProjectWork(ralph.project.root.name, {}, work))
    replaced = read_replaced(ralph.project)
    rules = tuple(
        rule for rule in overview.rules if not no_longer_holds(replaced.get(rule.id, ()), rule.text)
    )
    # Iterations make mistakes, too.
    return msgspec.structs.replace(overview, rules=rules, mistakes=tuple(mistakes(ralph)))


def _overview(project: ProjectWork) -> ProjectOverview:
    return ProjectOverview(
        project=project.project,
        rules=tuple(standing_rules(project.work)),
        put_off=tuple(put_off(project.work)),
        mistakes=tuple(repeated_errors([one.errors for one in project.work])),
        failing=tuple(failing_commands(known_commands(project.work))),
    )
