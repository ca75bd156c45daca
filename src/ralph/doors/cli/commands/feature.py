"""`ralph feature`: what is being built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import (
    answer,
    as_json,
    clear_option,
    completing,
    learning_json,
    opened,
    patch_from,
    plain,
    show_entry,
    the_plan,
)
from ralph.doors.cli.render import Page, excerpt, note, print_json
from ralph.doors.cli.tree import Group
from ralph.errors import BadInput

if TYPE_CHECKING:
    from ralph.plan.model import ContextFile, Feature, PlanView
    from ralph.plan.store import Plan

_TITLE_CHARS = 60


@click.group(cls=Group)
def feature() -> None:
    """Add, look at and change the features of the plan."""


_name = click.argument("name", shell_complete=completing("features"))


def _fields(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--display-name", metavar="TEXT", help="The name people read."),
            click.option("--acronym", metavar="TEXT", help="A short name for it."),
            click.option("--description", metavar="TEXT", help="What it is and why."),
            click.option("--architecture", metavar="TEXT", help="How it is built."),
            click.option("--boundaries", metavar="TEXT", help="What it must not do or touch."),
            click.option(
                "--dependency",
                "dependencies",
                multiple=True,
                metavar="TEXT",
                help="What it builds on. May be repeated; together they replace the list.",
            ),
            click.option(
                "--knowledge-path",
                "knowledge_paths",
                multiple=True,
                metavar="PATH",
                help="A file whose text an agent gets. May be repeated, as above.",
            ),
            click.option(
                "--context-file",
                "context_files",
                multiple=True,
                metavar="PATH",
                help="A file an agent should open first. May be repeated, as above.",
            ),
        )
    ):
        command = option(command)
    return command


@feature.command()
@click.argument("name")
@_fields
@as_json
def add(name: str, as_json: bool, **fields: Any) -> None:
    """Add a feature under a name that stays."""
    from ralph.plan.edit import create_feature

    plan = the_plan()
    made = create_feature(plan, name, patch_from(fields))
    line = f"Added the feature {made.name}."
    answer(_json(_with_tasks(plan), made), as_json=as_json, line=line)


@feature.command("list")
@as_json
def list_(as_json: bool) -> None:
    """List the features and how far each is."""
    view = the_plan().read()
    if as_json:
        print_json([_json(view, one) for one in view.features])
    elif view.features:
        heads = ("feature", "done", "learnings", "in progress")
        Page().table(heads, [_row(view, one) for one in view.features])
    else:
        Page().line("The plan has no features yet. Add one: ralph feature add NAME")


@feature.command()
@_name
@as_json
def show(name: str, as_json: bool) -> None:
    """Show one feature whole."""
    plan = the_plan()
    found = plan.feature(name)
    told = {
        "context_files": [_file_line(file) for file in found.context_files],
        "learnings": [f"{one.id} {one.text} {one.provenance}" for one in found.learnings],
    }
    show_entry(_json(_with_tasks(plan), found), as_json=as_json, told=told)


@feature.command()
@_name
@_fields
@clear_option
@click.option("--verified", is_flag=True, help="Its prose was compared with the code just now.")
@as_json
def update(name: str, clear: tuple[str, ...], verified: bool, as_json: bool, **fields: Any) -> None:
    """Change what is given and nothing else."""
    from ralph.plan.edit import update_feature

    plan = the_plan()
    patch = patch_from(fields, clear)
    if verified:
        if "last_verified" in patch:
            raise BadInput("last_verified cannot be set and cleared at once")
        patch["last_verified"] = _last_iteration(plan, name)
    if not patch:
        raise BadInput("nothing was given to change", todo="See: ralph feature update --help")
    changed = update_feature(plan, name, patch)
    line = f"Changed the feature {changed.name}: {', '.join(patch)}."
    answer(_json(_with_tasks(plan), changed), as_json=as_json, line=line)


@feature.command()
@_name
@as_json
def delete(name: str, as_json: bool) -> None:
    """Take a feature out of the plan and its collection out of the index.

    Refused while tasks belong to it. Its journal stays; `ralph forget --feature NAME` takes that
    out too.
    """
    from ralph.errors import MemoryOff
    from ralph.plan.edit import delete_feature

    delete_feature(the_plan(), name)
    with opened() as ralph:
        try:
            ralph.feature(name).drop_index()
        except MemoryOff as error:  # the plan does not wait for memory
            note(f"its collection is still in the index: {error}")
    line = f"Deleted the feature {name} and its index. Its journal stays."
    answer({"deleted": name}, as_json=as_json, line=line)


def _json(view: PlanView, one: Feature) -> dict[str, Any]:
    shown = {**plain(one), "learnings": [learning_json(x) for x in one.learnings]}
    return {**shown, "current_state": view.current_state(one.name)}


def _with_tasks(plan: Plan) -> PlanView:
    return plan.read("tasks")


def _row(view: PlanView, one: Feature) -> tuple[str, ...]:
    tasks = [task for task in view.tasks if task.feature == one.name and task.status != "skipped"]
    done = sum(task.status == "done" for task in tasks)
    titles = [task.title for task in tasks if task.status == "in_progress"]
    under_way = excerpt(", ".join(titles), _TITLE_CHARS)
    return one.name, f"{done}/{len(tasks)}", str(len(one.learnings)), under_way


def _file_line(file: ContextFile) -> str:
    touched = f", touched {file.touch_count} times" if file.touch_count else ""
    return f"{file.path} [{file.source}{touched}]"


def _last_iteration(plan: Plan, name: str) -> int:
    """The number of the feature's newest iteration, which is how `last_verified` counts."""
    plan.feature(name)
    with opened() as ralph:
        return max((record.number for record in ralph.feature(name).records()), default=0)
