"""`ralph knowledge capture`: entries from the line, or from JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import entry_line
from ralph.doors.cli.context import as_json, opened, read_bytes, shown_name
from ralph.doors.cli.render import Page, count, print_json
from ralph.doors.cli.tree import Command
from ralph.errors import BadRecord

if TYPE_CHECKING:
    from ralph.memory.knowledge import Knowledge
    from ralph.memory.knowledge_journal import SavedEntry
    from ralph.records.knowledge import Entry

_SHOWN = 10
_TYPES = ("failure_solution", "gate_rejection", "gate_approval")
_EXPECTED = (
    "Give entries as JSON objects, one a line or in a list, each with its entry_type: "
    f"{', '.join(_TYPES)}."
)
# The options by the name of the field each fills, and the types that have it.
_FIELDS = {
    "failure_description": ("--failure-description", ("failure_solution",)),
    "error_message": ("--error-message", ("failure_solution",)),
    "solution_steps": ("--solution", ("failure_solution",)),
    "gate_type": ("--gate-type", ("gate_rejection", "gate_approval")),
    "human_feedback": ("--feedback", ("gate_rejection",)),
    "revision_approach": ("--revision", ("gate_rejection",)),
    "approved_approach": ("--approach", ("gate_approval",)),
}


@click.command(cls=Command)
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--type", "entry_type", type=click.Choice(_TYPES), help="What kind of entry it is.")
@click.option("--failure-description", metavar="TEXT", help="What failed.")
@click.option("--error-message", metavar="TEXT", help="The error that it showed.")
@click.option(
    "--solution",
    "solution_steps",
    multiple=True,
    metavar="TEXT",
    help="What solved it. May be repeated: one for each step.",
)
@click.option("--unverified", is_flag=True, help="Nobody has seen it work; refused, with why.")
@click.option("--gate-type", metavar="T", help="Which gate a person decided on.")
@click.option("--feedback", "human_feedback", metavar="TEXT", help="Why it was rejected.")
@click.option("--revision", "revision_approach", metavar="TEXT", help="What was approved then.")
@click.option("--approach", "approved_approach", metavar="TEXT", help="What was approved at once.")
@click.option("--agent-type", metavar="T", help="For which agents; any if left out.")
@click.option("--task-type", metavar="T", help="For which tasks; any if left out.")
@click.option("--technology", metavar="T", help="For which technology; any if left out.")
@click.option("--subject", metavar="TEXT", help="What was worked on: the task's title.")
@as_json
def capture(
    file: str | None, entry_type: str | None, unverified: bool, as_json: bool, **fields: Any
) -> None:
    """Stage a failure with its solution, a rejection or an approval.

    By options, with --type; or from FILE, which holds entries as JSON: one object, one a line, or
    a list of them; - is stdin. Nothing is written unless all of it can be. What is staged is found
    once a checkpoint has published it.
    """
    given = {name: value for name, value in fields.items() if value not in (None, ())}
    if file is not None and (entry_type or given or unverified):
        raise click.UsageError("Give FILE, or an entry by options; not both.")
    if file is None and entry_type is None:
        raise click.UsageError("Say what it is with --type, or give FILE; - is stdin.")
    with opened() as ralph:
        memory = ralph.knowledge
        if file is None:
            entries = [_from_options(memory, str(entry_type), given, unverified=unverified)]
        else:
            entries = _from_file(memory, file)
        captured = memory.capture_all(entries)
    if as_json:
        print_json([one.to_json() for one in captured])
    else:
        show_captured(Page(), captured)


def show_captured(page: Page, captured: list[SavedEntry]) -> None:
    """What was captured, and what is to be done next."""
    fresh = sum(one.fresh for one in captured)
    old = len(captured) - fresh
    known = f" ({old} {'was' if old == 1 else 'were'} known already)" if old else ""
    page.line(f"Captured {count(fresh, 'entry', 'entries')}{known}.")
    entries = {one.id: one.record for one in captured}
    for identity in [*entries][:_SHOWN]:
        page.line(*entry_line(identity, entries[identity]), indent=2)
    if more := [*entries][_SHOWN:]:
        page.line((f"and {len(more)} more", "dim"), indent=2)
    if any(one.staged for one in captured):
        page.line("Staged until a checkpoint publishes it: ralph knowledge checkpoint")


def _from_options(
    memory: Knowledge, kind: str, given: dict[str, Any], *, unverified: bool
) -> Entry:
    for name, (option, kinds) in _FIELDS.items():
        if name in given and kind not in kinds:
            raise click.UsageError(f"{option} does not go with --type {kind}.")
    if unverified and kind != "failure_solution":
        raise click.UsageError(f"--unverified does not go with --type {kind}.")
    plain = {**given, "entry_type": kind}
    if unverified:
        plain["success_verified"] = False
    return memory.entry(plain)


def _from_file(memory: Knowledge, file: str) -> list[Entry]:
    """The entries of a file; what is wrong with one is told with its line."""
    from ralph.doors.cli.input_files import objects
    from ralph.memory.ledger import prepared_entry

    name = shown_name(file)
    try:
        given = objects(read_bytes(file), name=name)
    except BadRecord as error:
        raise BadRecord(error.what, where=error.where, todo=_EXPECTED) from None
    entries: list[Entry] = []
    for line, plain in given:
        try:
            entries.append(prepared_entry(memory.entry(plain), memory.shelf.settings))
        except BadRecord as error:
            todo = f"{error.todo} " if error.todo else ""
            raise BadRecord(
                error.what, where=f"{name}:{line}", todo=f"{todo}Nothing was captured."
            ) from None
    return entries
