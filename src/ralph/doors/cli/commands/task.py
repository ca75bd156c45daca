"""`ralph task`: the pieces of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import (
    answer,
    as_json,
    clear_option,
    completing,
    in_agents_run,
    number,
    patch_from,
    plain,
    plan_feature,
    show_entry,
    task_argument,
    the_plan,
)
from ralph.doors.cli.render import Page, excerpt, print_json
from ralph.doors.cli.tree import Group
from ralph.errors import BadInput

if TYPE_CHECKING:
    from ralph.plan.model import Comment, Task
    from ralph.plan.store import Plan

_TITLE_CHARS = 70


@click.group(cls=Group)
def task() -> None:
    """Add, look at and change the tasks of the plan."""


def _fields(command: Any) -> Any:
    for option in reversed(
        (
            click.option(
                "--discipline",
                metavar="NAME",
                shell_complete=completing("disciplines"),
                help="How it is worked on.",
            ),
            click.option("--description", metavar="TEXT", help="What is to be done."),
            click.option(
                "--criterion",
                "acceptance_criteria",
                multiple=True,
                metavar="TEXT",
                help="It is done when. May be repeated; together they replace the list.",
            ),
            click.option(
                "--status", metavar="STATUS", help="pending, in_progress, blocked, done or skipped."
            ),
            click.option(
                "--priority", metavar="N", help="1 comes first; or critical, high, medium, low."
            ),
            click.option(
                "--blocked-by",
                "blocked_by",
                multiple=True,
                metavar="ID",
                shell_complete=completing("tasks"),
                help="What must be done before. May be repeated, as above.",
            ),
            click.option(
                "--tag", "tags", multiple=True, metavar="TEXT", help="May be repeated, as above."
            ),
        )
    ):
        command = option(command)
    return command


@task.command()
@click.argument("title")
@plan_feature(required=True, help="The feature it belongs to.")
@_fields
@as_json
def add(title: str, feature: str, as_json: bool, **fields: Any) -> None:
    """Add a task to a feature."""
    from ralph.plan.edit import create_task

    made = create_task(the_plan(), feature, title, _patch(fields))
    answer(plain(made), as_json=as_json, line=f"Added task {made.id} to {made.feature}.")


@task.command("list")
@plan_feature(help="Only those of this feature.")
@click.option("--status", metavar="STATUS", help="Only those with this status.")
@as_json
def list_(feature: str | None, status: str | None, as_json: bool) -> None:
    """List the tasks."""
    wanted = None if status is None else _status(status)
    tasks = [one for one in _of(the_plan(), feature) if wanted in (None, one.status)]
    empty = "The plan has no tasks yet. Add one: ralph task add TITLE --feature NAME"
    _show(tasks, as_json=as_json, empty="No task is so." if feature or wanted else empty)


@task.command()
@plan_feature(help="Only those of this feature.")
@as_json
def ready(feature: str | None, as_json: bool) -> None:
    """List what can be worked on now, in the order a run takes it."""
    from ralph.plan.edit import ready as ready_tasks

    plan = the_plan()
    _of(plan, feature)
    found = ready_tasks(plan.read("tasks").tasks, feature=feature)
    _show(found, as_json=as_json, empty="No task is ready.")


@task.command()
@task_argument
@as_json
def show(task_id: str, as_json: bool) -> None:
    """Show one task whole."""
    found = the_plan().task(task_id)
    told = {"comments": [_comment_line(one) for one in found.comments]}
    show_entry(plain(found), as_json=as_json, told=told)


@task.command()
@task_argument
@click.option("--title", metavar="TEXT", help="What it is called.")
@plan_feature(help="The feature it belongs to.")
@_fields
@click.option("--comment", metavar="TEXT", help="Append a comment.")
@click.option("--author", metavar="NAME", help="Who comments; an agent of a run is `agent`.")
@clear_option
@as_json
def update(
    task_id: str,
    comment: str | None,
    author: str | None,
    clear: tuple[str, ...],
    as_json: bool,
    **fields: Any,
) -> None:
    """Change what is given and nothing else; a comment is appended.

    The status may also be said as todo, doing, wip, completed and the like.
    """
    from ralph.plan.edit import update_task

    patch = _patch(fields, clear)
    if not patch and comment is None:
        raise BadInput("nothing was given to change", todo="See: ralph task update --help")
    if author is None and in_agents_run():
        author = "agent"
    changed = update_task(the_plan(), task_id, patch, comment=comment, author=author)
    said = [*patch, *(["comment"] if comment is not None else [])]
    line = f"Changed task {changed.id} ({changed.status}): {', '.join(said)}."
    answer(plain(changed), as_json=as_json, line=line)


@task.command()
@task_argument
@as_json
def delete(task_id: str, as_json: bool) -> None:
    """Take a task out of the plan; refused while another waits for it."""
    from ralph.plan.edit import delete_task

    plan = the_plan()
    gone = plan.task(task_id)
    delete_task(plan, gone.id)
    answer({"deleted": gone.id}, as_json=as_json, line=f"Deleted task {gone.id}: {gone.title}")


def _patch(fields: dict[str, Any], clear: tuple[str, ...] = ()) -> dict[str, Any]:
    patch = patch_from(fields, clear)
    if patch.get("priority") is not None:
        patch["priority"] = number(patch["priority"])
    if patch.get("blocked_by") is not None:
        patch["blocked_by"] = [number(one) for one in patch["blocked_by"]]
    return patch


def _status(word: str) -> str:
    """The status that is meant, as `task update` takes it."""
    from ralph.plan.model import STATUS_ALIASES, STATUSES

    plain_word = word.strip().lower()
    meant = STATUS_ALIASES.get(plain_word, plain_word)
    if meant not in STATUSES:
        raise BadInput(
            f"the status {word!r} does not exist", todo=f"Use one of {', '.join(STATUSES)}."
        )
    return meant


def _of(plan: Plan, feature: str | None) -> list[Task]:
    """The tasks, or a feature's; a feature that neither tasks nor plan know is an error."""
    tasks = [one for one in plan.read("tasks").tasks if feature in (None, one.feature)]
    if feature is not None and not tasks:
        plan.feature(feature)
    return tasks


def _comment_line(comment: Comment) -> str:
    at = f"{comment.at[:16].replace('T', ' ')} " if comment.at else ""
    return f"{at}{comment.author or 'somebody'}: {comment.text}"


def _show(tasks: Sequence[Task], *, as_json: bool, empty: str) -> None:
    if as_json:
        print_json(plain(list(tasks)))
    elif tasks:
        rows = [
            (
                str(one.id),
                one.status,
                str(one.priority),
                one.feature,
                excerpt(one.title, _TITLE_CHARS),
            )
            for one in tasks
        ]
        Page().table(("id", "status", "prio", "feature", "title"), rows)
    else:
        Page().line(empty)
