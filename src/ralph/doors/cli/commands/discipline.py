"""`ralph discipline`: how work of one kind is done."""

from __future__ import annotations

from typing import Any

import click

from ralph.doors.cli.opening import as_json
from ralph.doors.cli.page import Page, excerpt, print_json
from ralph.doors.cli.planning import clear_option, patch_from, plain, show_entry, the_plan
from ralph.doors.cli.tree import Group

_PROMPT_CHARS = 60


@click.group(cls=Group)
def discipline() -> None:
    """Add, look at and change the disciplines of the plan."""


def _fields(command: Any) -> Any:
    for option in (
        click.option("--display-name"),
        click.option("--system-prompt", help="What every prompt of this kind begins with."),
        click.option("--skill", "skills", multiple=True),
        click.option("--convention", "conventions", multiple=True),
        click.option("--mcp-servers", metavar="JSON", help="MCP servers for the agent."),
    ):
        command = option(command)
    return command


@discipline.command()
@click.argument("name")
@_fields
@as_json
def add(name: str, as_json: bool, **fields: Any) -> None:
    """Add a discipline."""
    from ralph.plan.features import create_discipline

    made = create_discipline(the_plan(), name, _patch(fields))
    if as_json:
        print_json(plain(made))
    else:
        Page().line(f"Added the discipline {made.name}.")


@discipline.command("list")
@as_json
def list_(as_json: bool) -> None:
    """List the disciplines."""
    found = the_plan().read().disciplines
    if as_json:
        print_json(plain(list(found)))
    elif found:
        rows = [(one.name, excerpt(one.system_prompt or "", _PROMPT_CHARS)) for one in found]
        Page().table(("discipline", "system prompt"), rows)
    else:
        Page().line("The plan has no disciplines yet.")


@discipline.command()
@click.argument("name")
@as_json
def show(name: str, as_json: bool) -> None:
    """Show one discipline whole."""
    from ralph.plan.features import discipline as one

    show_entry(one(the_plan(), name), as_json=as_json)


@discipline.command()
@click.argument("name")
@_fields
@clear_option
@as_json
def update(name: str, clear: tuple[str, ...], as_json: bool, **fields: Any) -> None:
    """Change what is given and nothing else."""
    from ralph.plan.features import update_discipline

    changed = update_discipline(the_plan(), name, _patch(fields, clear))
    if as_json:
        print_json(plain(changed))
    else:
        Page().line(f"Changed the discipline {name}.")


@discipline.command()
@click.argument("name")
@as_json
def delete(name: str, as_json: bool) -> None:
    """Take a discipline out of the plan."""
    from ralph.plan.features import delete_discipline

    delete_discipline(the_plan(), name)
    if as_json:
        print_json({"deleted": name})
    else:
        Page().line(f"Deleted the discipline {name}.")


def _patch(fields: dict[str, Any], clear: tuple[str, ...] = ()) -> dict[str, Any]:
    import json

    from ralph.errors import BadInput

    patch = patch_from(fields, clear)
    if isinstance(text := patch.get("mcp_servers"), str):
        try:
            patch["mcp_servers"] = json.loads(text)
        except ValueError as error:
            raise BadInput(f"--mcp-servers is not JSON: {error}") from None
    return patch
