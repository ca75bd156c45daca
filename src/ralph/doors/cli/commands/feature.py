"""`ralph feature`: what is being built."""

from __future__ import annotations

from typing import Any

import click

from ralph.doors.cli.opening import as_json, opened
from ralph.doors.cli.page import Page, print_json
from ralph.doors.cli.planning import clear_option, patch_from, plain, show_entry, the_plan
from ralph.doors.cli.tree import Group


@click.group(cls=Group)
def feature() -> None:
    """Add, look at and change the features of the plan."""


def _fields(command: Any) -> Any:
    for option in (
        click.option("--display-name", help="The name people read."),
        click.option("--acronym"),
        click.option("--description", help="What it is and why."),
        click.option("--architecture", help="How it is built."),
        click.option("--boundaries", help="What it must not do or touch."),
        click.option("--dependency", "dependencies", multiple=True, help="May be repeated."),
        click.option("--knowledge-path", "knowledge_paths", multiple=True, help="A file to know."),
        click.option("--context-file", "context_files", multiple=True, help="A file to open."),
    ):
        command = option(command)
    return command


@feature.command()
@click.argument("name")
@_fields
@as_json
def add(name: str, as_json: bool, **fields: Any) -> None:
    """Add a feature under a name that stays."""
    from ralph.plan.features import create_feature

    made = create_feature(the_plan(), name, patch_from(fields))
    if as_json:
        print_json(plain(made))
    else:
        Page().line(f"Added the feature {made.name}.")


@feature.command("list")
@as_json
def list_(as_json: bool) -> None:
    """List the features and how far each is."""
    view = the_plan().read()
    if as_json:
        print_json(
            [{**plain(one), "current_state": view.current_state(one.name)} for one in view.features]
        )
    elif view.features:
        rows = [
            (one.name, view.current_state(one.name), str(len(one.learnings)))
            for one in view.features
        ]
        Page().table(("feature", "state", "learnings"), rows)
    else:
        Page().line("The plan has no features yet. Add one: ralph feature add NAME")


@feature.command()
@click.argument("name")
@as_json
def show(name: str, as_json: bool) -> None:
    """Show one feature whole."""
    plan = the_plan()
    found = plan.feature(name)
    show_entry(found, as_json=as_json, extra={"current_state": plan.read().current_state(name)})


@feature.command()
@click.argument("name")
@_fields
@clear_option
@click.option("--verified", is_flag=True, help="Its prose was compared with the code just now.")
@as_json
def update(name: str, clear: tuple[str, ...], verified: bool, as_json: bool, **fields: Any) -> None:
    """Change what is given and nothing else."""
    from ralph.errors import BadInput
    from ralph.plan.features import update_feature, verify_feature

    plan = the_plan()
    patch = patch_from(fields, clear)
    if not patch and not verified:
        raise BadInput("nothing was given to change", todo="See: ralph feature update --help")
    changed = update_feature(plan, name, patch) if patch else plan.feature(name)
    if verified:
        with opened() as ralph:
            numbers = [record.number for record in ralph.feature(name).records()]
        changed = verify_feature(plan, name, iteration=max(numbers, default=0))
    if as_json:
        print_json(plain(changed))
    else:
        Page().line(f"Changed the feature {name}.")


@feature.command()
@click.argument("name")
@as_json
def delete(name: str, as_json: bool) -> None:
    """Take a feature out of the plan and its collection out of the index.

    Its journal stays; `ralph forget --feature NAME` takes that out too.
    """
    from ralph.plan.features import delete_feature

    delete_feature(the_plan(), name)
    with opened() as ralph:
        ralph.feature(name).drop_index()
    if as_json:
        print_json({"deleted": name})
    else:
        Page().line(f"Deleted the feature {name} and its index. Its journal stays.")
