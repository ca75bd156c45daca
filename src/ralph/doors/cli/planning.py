"""What the commands on the plan share: opening it, building a patch, showing an entry."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.opening import the_project
from ralph.doors.cli.page import Page, print_json
from ralph.errors import BadInput
from ralph.programs import current_run

if TYPE_CHECKING:
    from ralph.plan.model import Kind
    from ralph.plan.store import Plan
    from ralph.records.learning import Learning

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")

clear_option = click.option(
    "--clear", "clear", multiple=True, metavar="FIELD", help="Empty this field. May be repeated."
)


def the_plan() -> Plan:
    """The plan of the project that was given or is around this folder."""
    from ralph.plan.store import Plan

    project = the_project()
    return Plan(project.root, state=project.cache)


def completing(kind: Kind) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes the names, or ids, of what the plan has of this kind."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from ralph.errors import RalphError
        from ralph.plan.model import entities

        with context.scope(cleanup=False), contextlib.suppress(RalphError, OSError):
            there = entities(the_plan().document(kind).data, kind)
            return [one.key for one in there if one.key and one.key.startswith(incomplete)]
        return []

    return complete


def plan_feature(*, required: bool = False, help: str) -> Callable[[Any], Any]:
    """`--feature` for a feature of the plan."""
    return click.option(
        "--feature",
        required=required,
        metavar="NAME",
        shell_complete=completing("features"),
        help=help,
    )


task_argument = click.argument("task_id", metavar="ID", shell_complete=completing("tasks"))


def in_agents_run() -> bool:
    """Whether an agent that Ralph drives calls us; what it says is not a person's word."""
    return current_run() is not None


def number(text: str | None) -> int | str | None:
    """An id or a priority as the number it looks like, else as it was given."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else text


def patch_from(given: Mapping[str, Any], clear: Iterable[str] = ()) -> dict[str, Any]:
    """Only what was said on the line: an option that was left out changes nothing.

    A field to clear may be called by its own name or by its option's.
    """
    patch = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value != ()
    }
    names = {
        option.lstrip("-"): parameter.name
        for parameter in click.get_current_context().command.params
        for option in parameter.opts
        if parameter.name in given
    }
    for word in clear:
        field = names.get(word.replace("_", "-")) or word.replace("-", "_")
        if patch.get(field) is not None:
            raise BadInput(f"{field} cannot be set and cleared at once", todo="Say one of them.")
        patch[field] = None
    return patch


def plain(value: Any) -> Any:
    """An entry of the plan as JSON, the empty fields too."""
    import msgspec

    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return msgspec.to_builtins(value)


def answer(shown: Any, *, as_json: bool, line: str) -> None:
    """What a change came to: the JSON of it, or one line."""
    if as_json:
        print_json(shown)
    else:
        Page().line(line)


def learning_json(one: Learning) -> dict[str, Any]:
    """A learning as every command prints it."""
    return {"id": one.id, **plain(one), "provenance": one.provenance}


def show_entry(
    fields: Mapping[str, Any], *, as_json: bool, told: Mapping[str, list[str]] | None = None
) -> None:
    """One entry whole; `told` has the lists that people read in other words than programs."""
    if as_json:
        print_json(fields)
        return
    page = Page()
    for name, value in {**fields, **(told or {})}.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, list):
            page.line((f"{name}:", "bold"))
            for one in value:
                page.line(f"- {one}", indent=2)
        elif isinstance(value, dict):
            page.line((f"{name}: ", "bold"), json.dumps(value, ensure_ascii=False))
        elif "\n" in (text := str(value).strip()):
            page.line((f"{name}:", "bold"))
            for line in text.splitlines():
                page.line(line, indent=2 if line.strip() else 0)
        else:
            page.line((f"{name}: ", "bold"), text)
