"""`ralph learning`: what earlier iterations taught."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import (
    answer,
    as_json,
    completing,
    in_agents_run,
    learning_json,
    opened,
    plan_feature,
    the_plan,
)
from ralph.doors.cli.render import Page, print_json
from ralph.doors.cli.tree import Group
from ralph.errors import BadInput

if TYPE_CHECKING:
    from ralph.plan.learnings import AddedLearning
    from ralph.plan.model import TaskId
    from ralph.plan.store import Plan
    from ralph.records.learning import Learning

_feature = plan_feature(required=True, help="Whose learning it is.")
_ref = click.argument("ref", metavar="ID")
_INDENT = 10
_TOLD = {
    "added": "Added",
    "known": "Known already",
    "seen_again": "Seen again",
    "removed_before": "Not added, because it was removed before",
}


@click.group(cls=Group)
def learning() -> None:
    """Look at, add, remove and review learnings.

    ID is what `ralph learning list` shows in front of a learning; its text or its number in the
    list will do too.
    """


@learning.command("list")
@_feature
@as_json
def list_(feature: str, as_json: bool) -> None:
    """List a feature's learnings with where each comes from."""
    from ralph.plan.learnings import conflicts, is_stale

    plan = the_plan()
    found = plan.feature(feature).learnings
    rivals: dict[str, list[str]] = {one.id: [] for one in found}
    for one, other in conflicts(found):
        rivals[one.id].append(other.id)
        rivals[other.id].append(one.id)
    last = _last_iteration(feature) if any(one.source == "auto" for one in found) else 0
    stale = {one.id: is_stale(one, last + 1, plan.limits) for one in found}
    if as_json:
        print_json(
            [
                {**learning_json(one), "stale": stale[one.id], "conflicts": rivals[one.id]}
                for one in found
            ]
        )
        return
    page = Page()
    for one in found:
        page.line((one.id, "cyan"), "  ", ("[STALE] " if stale[one.id] else "", "yellow"), one.text)
        reason = f" {one.reason}" if one.reason else ""
        page.line((f"{one.provenance}{reason}", "dim"), indent=_INDENT)
        if rivals[one.id]:
            page.line((f"contradicts {', '.join(rivals[one.id])}", "yellow"), indent=_INDENT)
    if not found:
        page.line(f"{feature} has no learnings yet.")


@learning.command()
@click.argument("text")
@_feature
@click.option(
    "--task",
    metavar="ID",
    shell_complete=completing("tasks"),
    help="It concerns this task only.",
)
@click.option("--reason", metavar="TEXT", help="Why it exists.")
@click.option(
    "--source",
    type=click.Choice(["human", "agent"]),
    help="Who says so: you, or in an agent's run the agent.",
)
@as_json
def add(
    text: str,
    feature: str,
    task: str | None,
    reason: str | None,
    source: str | None,
    as_json: bool,
) -> None:
    """Add one; what says the same as a known one is not added twice.

    One that contradicts a known one is kept beside it, and both are shown.
    """
    from ralph.plan.learnings import add as add_learning

    plan = the_plan()
    added = add_learning(
        plan,
        feature,
        text,
        source="agent" if _said_by(source) == "agent" else "human",
        reason=reason,
        task_id=None if task is None else _task_of(plan, task, feature),
    )
    if as_json:
        print_json(_added_json(added))
        return
    page = Page()
    page.line(f"{_TOLD[added.what]}: {added.learning.text}")
    for one in added.conflicts:
        page.line(("It contradicts: ", "yellow"), f"{one.id} {one.text}")
    if added.evicted:
        page.line(f"It took the place of: {added.evicted.text}")


@learning.command()
@_ref
@_feature
@click.option("--reason", metavar="TEXT", help="Why it goes.")
@as_json
def remove(ref: str, feature: str, reason: str | None, as_json: bool) -> None:
    """Remove one for good: the same lesson is not learned again."""
    from ralph.plan.learnings import remove as remove_learning

    by = "agent" if in_agents_run() else "human"
    gone = remove_learning(the_plan(), feature, ref, by=by, reason=reason)
    answer(learning_json(gone), as_json=as_json, line=f"Removed: {gone.text}")


@learning.command()
@_ref
@_feature
@click.option("--text", metavar="TEXT", help="Better words for it.")
@click.option("--reason", metavar="TEXT", help="What the review found.")
@as_json
def review(ref: str, feature: str, text: str | None, reason: str | None, as_json: bool) -> None:
    """Note that it was reviewed. Reviewed is not proven."""
    from ralph.plan.learnings import review as review_learning

    done = review_learning(the_plan(), feature, ref, text=text, reason=reason)
    answer(learning_json(done), as_json=as_json, line=f"Reviewed: {done.text}")


def _said_by(source: str | None) -> str:
    """Whose word it is: an agent's is never passed off as a person's."""
    if not in_agents_run():
        return source or "human"
    if source == "human":
        raise BadInput("an agent cannot speak for a person", todo="Leave --source out.")
    return "agent"


def _task_of(plan: Plan, task: str, feature: str) -> TaskId:
    found = plan.task(task)
    if found.feature != feature:
        raise BadInput(
            f"task {found.id} belongs to {found.feature!r}, not to {feature!r}",
            todo="Name the feature of the task, or leave --task out.",
        )
    return found.id


def _last_iteration(feature: str) -> int:
    with opened() as ralph:
        return max((record.number for record in ralph.feature(feature).records()), default=0)


def _added_json(added: AddedLearning) -> dict[str, Any]:
    def one(learning: Learning | None) -> dict[str, Any] | None:
        return None if learning is None else learning_json(learning)

    return {
        "what": added.what,
        "learning": one(added.learning),
        "conflicts": [one(other) for other in added.conflicts],
        "evicted": one(added.evicted),
    }
