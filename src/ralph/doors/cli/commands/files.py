"""`ralph files`: the files that iterations touched."""

from __future__ import annotations

import click

from ralph.doors.cli.context import as_json, feature_option, opened
from ralph.doors.cli.render import Page, print_json
from ralph.doors.cli.tree import Command


@click.command(cls=Command)
@feature_option
@as_json
def files(feature: str | None, as_json: bool) -> None:
    """List the files that iterations touched.

    The most touched come first.
    """
    import msgspec

    from ralph.errors import BadInput

    with opened() as ralph:
        memories = ralph.features() if feature is None else [ralph.feature(feature)]
        if len(memories) > 1:
            names = ", ".join(memory.name for memory in memories)
            raise BadInput(
                f"this project has {len(memories)} features ({names})",
                todo="Say which one: --feature NAME",
            )
        seen = [file for memory in memories for file in memory.files()]
    if as_json:
        print_json(msgspec.to_builtins(seen))
    elif seen:
        rows = [
            (one.path, ", ".join(one.actions), str(one.count), str(one.last_iteration))
            for one in seen
        ]
        Page().table(("path", "actions", "iterations", "last"), rows)
    else:
        Page().line("No file is remembered here yet.")
