"""`ralph discipline`: how work of one kind is done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import (
    answer,
    as_json,
    clear_option,
    completing,
    patch_from,
    plain,
    show_entry,
    the_plan,
    the_project,
)
from ralph.doors.cli.render import Page, excerpt, print_json
from ralph.doors.cli.tree import Group
from ralph.errors import BadInput

if TYPE_CHECKING:
    from ralph.plan.model import Discipline

_PROMPT_CHARS = 60


@click.group(cls=Group)
def discipline() -> None:
    """Add, look at and change the plan's disciplines."""


_name = click.argument("name", shell_complete=completing("disciplines"))


def _fields(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--display-name", metavar="TEXT", help="The name people read."),
            click.option(
                "--system-prompt", metavar="TEXT", help="What prompts of this kind begin with."
            ),
            click.option(
                "--skill",
                "skills",
                multiple=True,
                metavar="TEXT",
                help="What it takes. May be repeated; together they replace the list.",
            ),
            click.option(
                "--convention",
                "conventions",
                multiple=True,
                metavar="TEXT",
                help="A rule to keep. May be repeated, as above.",
            ),
            click.option(
                "--mcp-servers",
                metavar="JSON",
                help='MCP servers for the agent: {"name": {"command": ..., "args": [...]}}',
            ),
        )
    ):
        command = option(command)
    return command


@discipline.command()
@click.argument("name")
@_fields
@as_json
def add(name: str, as_json: bool, **fields: Any) -> None:
    """Add a discipline."""
    from ralph.plan.edit import create_discipline

    made = create_discipline(the_plan(), name, _patch(fields))
    _trust(made)
    answer(plain(made), as_json=as_json, line=f"Added the discipline {made.name}.")


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
        Page().line("The plan has no disciplines yet. Add one: ralph discipline add NAME")


@discipline.command()
@_name
@as_json
def show(name: str, as_json: bool) -> None:
    """Show one discipline whole."""
    show_entry(plain(the_plan().discipline(name)), as_json=as_json)


@discipline.command()
@_name
@_fields
@clear_option
@as_json
def update(name: str, clear: tuple[str, ...], as_json: bool, **fields: Any) -> None:
    """Change what is given and nothing else."""
    from ralph.plan.edit import update_discipline

    patch = _patch(fields, clear)
    if not patch:
        raise BadInput("nothing was given to change", todo="See: ralph discipline update --help")
    changed = update_discipline(the_plan(), name, patch)
    if "mcp_servers" in patch:
        _trust(changed)
    line = f"Changed the discipline {changed.name}: {', '.join(patch)}."
    answer(plain(changed), as_json=as_json, line=line)


@discipline.command()
@_name
@as_json
def delete(name: str, as_json: bool) -> None:
    """Take a discipline out of the plan."""
    from ralph.plan.edit import delete_discipline

    delete_discipline(the_plan(), name)
    answer({"deleted": name}, as_json=as_json, line=f"Deleted the discipline {name}.")


def _trust(changed: Discipline) -> None:
    """The servers that a person names themselves need no further yes."""
    from ralph.config import home_folder
    from ralph.memory.project import trust_servers

    trust_servers(the_project(), changed, home=home_folder())


def _patch(fields: dict[str, Any], clear: tuple[str, ...] = ()) -> dict[str, Any]:
    patch = patch_from(fields, clear)
    if isinstance(text := patch.get("mcp_servers"), str):
        try:
            patch["mcp_servers"] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"--mcp-servers is not JSON: {error}",
                todo='Give an object such as {"files": {"command": "files-server"}}.',
            ) from None
    return patch
