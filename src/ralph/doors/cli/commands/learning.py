"""`ralph learning`: what earlier iterations taught."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.opening import as_json
from ralph.doors.cli.page import Page, print_json
from ralph.doors.cli.planning import plain, the_plan
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.kinds.learning import Learning

_feature = click.option("--feature", required=True, metavar="NAME", help="Whose learning it is.")


@click.group(cls=Group)
def learning() -> None:
    """Look at, add, remove and review learnings."""


@learning.command("list")
@_feature
@as_json
def list_(feature: str, as_json: bool) -> None:
    """List a feature's learnings with where each comes from."""
    found = the_plan().feature(feature).learnings
    if as_json:
        print_json([_json(one) for one in found])
        return
    page = Page()
    for one in found:
        page.line((one.id, "dim"), "  ", one.text)
        page.line((one.provenance, "dim"), f" {one.reason}" if one.reason else "", indent=10)
    if not found:
        page.line(f"{feature} has no learnings yet.")


@learning.command()
@click.argument("text")
@_feature
@click.option("--task", metavar="ID", help="It concerns this task only.")
@click.option("--reason", help="Why it exists.")
@click.option("--source", type=click.Choice(["human", "agent"]), default="human")
@as_json
def add(
    text: str, feature: str, task: str | None, reason: str | None, source: Any, as_json: bool
) -> None:
    """Add one; what says the same as a known one is not added twice."""
    from ralph.plan.learnings import add as add_learning

    added = add_learning(the_plan(), feature, text, source=source, reason=reason, task_id=task)
    if as_json:
        print_json(
            {
                "what": added.what,
                "learning": _json(added.learning),
                "conflicts": [_json(one) for one in added.conflicts],
            }
        )
        return
    page = Page()
    told = {"added": "Added", "known": "Known already", "seen_again": "Seen again"}
    page.line(f"{told.get(added.what, 'Not added: it was removed before')}: {added.learning.text}")
    for one in added.conflicts:
        page.line(("It contradicts: ", "yellow"), f"{one.id} {one.text}")


@learning.command()
@click.argument("ref", metavar="ID")
@_feature
@click.option("--reason", help="Why it goes.")
@as_json
def remove(ref: str, feature: str, reason: str | None, as_json: bool) -> None:
    """Remove one for good: the same lesson is not learned again."""
    from ralph.plan.learnings import remove as remove_learning

    gone = remove_learning(the_plan(), feature, ref, reason=reason)
    if as_json:
        print_json(_json(gone))
    else:
        Page().line(f"Removed: {gone.text}")


@learning.command()
@click.argument("ref", metavar="ID")
@_feature
@click.option("--text", help="Better words for it.")
@click.option("--reason", help="What the review found.")
@as_json
def review(ref: str, feature: str, text: str | None, reason: str | None, as_json: bool) -> None:
    """Note that it was reviewed. Reviewed is not proven."""
    from ralph.plan.learnings import review as review_learning

    done = review_learning(the_plan(), feature, ref, text=text, reason=reason)
    if as_json:
        print_json(_json(done))
    else:
        Page().line(f"Reviewed: {done.text}")


def _json(one: Learning) -> dict[str, Any]:
    return {"id": one.id, **plain(one), "provenance": one.provenance}
