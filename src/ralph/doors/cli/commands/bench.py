"""`ralph bench`: measures, each beside what it is made of."""

from __future__ import annotations

import click

from ralph.doors.cli.page import Page
from ralph.doors.cli.tree import CheckedCommand


# The benches read their own arguments, help included.
@click.command(
    cls=CheckedCommand,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    options_metavar="",
)
@click.argument("words", nargs=-1, metavar="[NAME] [ARGS]...", type=click.UNPROCESSED)
@click.pass_context
def bench(context: click.Context, words: tuple[str, ...]) -> int:
    """Measure speed and quality.

    Without NAME it lists what can be measured; `ralph bench NAME --help` shows the arguments.
    """
    from ralph.bench import main

    if words[:1] in (("-h",), ("--help",)):
        for line in context.get_help().splitlines():
            Page().line(line)
        return 0
    return main(words[0] if words else None, words[1:])
