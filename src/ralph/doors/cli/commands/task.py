"""`ralph task`: the pieces of work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.opening import as_json, feature_option
from ralph.doors.cli.page import Page, excerpt, print_json
from ralph.doors.cli.planning import clear_option, patch_from, plain, show_entry, the_plan
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.plan.values import Task

_TITLE_CHARS = 70


@click.group(cls=Group)
def task() -> None:
    """Add, look at and change the tasks of the plan."""


def _fields(command: Any) -> Any:
    for option in (
        click.option("--discipline", help="How it is worked on."),
        click.option("--description"),
        click.option("--criterion", "acceptance_criteria", multiple=True, help="It is done when."),
        click.option("--status", help="pending, in_progress, blocked, done or skipped."),
        click.option("--priority", help="1 comes first; or critical, high, medium, low."),
        click.option("--blocked-by", "blocked_by", multiple=True, metavar="ID"),
        click.option("--tag", "tags", multiple=True),
    ):
        command = option(command)
    return command


@task.command()
@click.argument("title")
@click.option("--feature", required=True, metavar="NAME")
@_fields
@as_json
def add(title: str, feature: str, as_json: bool, **fields: Any) -> None:
    """Add a task to a feature."""
    from ralph.plan.tasks import create_task

    made = create_task(the_plan(), feature, title, _patch(fields))
    if as_json:
        print_json(plain(made))
    else:
        Page().line(f"Added task {made.id} to {feature}.")


@task.command("list")
@feature_option
@click.option("--status", help="Only those with this status.")
@as_json
def list_(feature: str | None, status: str | None, as_json: bool) -> None:
    """List the tasks."""
    tasks = [
        one
        for one in the_plan().read().tasks
        if feature in (None, one.feature) and status in (None, one.status)
    ]
    _show(tasks, as_json=as_json, empty="There is no such task.")


@task.command()
@feature_option
@as_json
def ready(feature: str | None, as_json: bool) -> None:
    """List what can be worked on now, in the order a run takes it."""
    from ralph.plan.tasks import ready as ready_tasks

    found = ready_tasks(the_plan().read().tasks, feature=feature)
    _show(found, as_json=as_json, empty="No task is ready.")


@task.command()
@click.argument("task_id", metavar="ID")
@as_json
def show(task_id: str, as_json: bool) -> None:
    """Show one task whole."""
    show_entry(the_plan().task(task_id), as_json=as_json)


@task.command()
@click.argument("task_id", metavar="ID")
@click.option("--title")
@click.option("--feature", metavar="NAME")
@_fields
@click.option("--comment", help="Append a comment.")
@click.option("--author", help="Who says so.")
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
    """Change what is given and nothing else; a comment is appended."""
    from ralph.errors import BadInput
    from ralph.plan.tasks import update_task

    patch = _patch(fields, clear)
    if not patch and comment is None:
        raise BadInput("nothing was given to change", todo="See: ralph task update --help")
    changed = update_task(the_plan(), task_id, patch, comment=comment, author=author)
    if as_json:
        print_json(plain(changed))
    else:
        Page().line(f"Changed task {changed.id}: {changed.status}.")


def _patch(fields: dict[str, Any], clear: tuple[str, ...] = ()) -> dict[str, Any]:
    patch = patch_from(fields, clear)
    for name in ("blocked_by", "priority"):
        if name in patch:
            patch[name] = _numbers(patch[name])
    return patch


def _numbers(value: Any) -> Any:
    """Ids and priorities that are numbers, as numbers."""
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return json.loads(value) if isinstance(value, str) and value.isdecimal() else value


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
        Page().table(("id", "status", "priority", "feature", "title"), rows)
    else:
        Page().line(empty)
