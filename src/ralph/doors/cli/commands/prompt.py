"""`ralph prompt`: the prompt as a run would send it."""

from __future__ import annotations

import click

from ralph.doors.cli.opening import as_json, opened
from ralph.doors.cli.page import note, print_json
from ralph.doors.cli.planning import plain, the_plan
from ralph.doors.cli.tree import Command


@click.command(cls=Command)
@click.argument("task_id", metavar="TASK")
@as_json
def prompt(task_id: str, as_json: bool) -> None:
    """Show the prompt for a task as it would be sent, and what each part costs.

    The text goes to stdout, the table of tokens to stderr.
    """
    import sys

    from ralph.loop.gather import gather, prompt_limits
    from ralph.memories.status import status
    from ralph.prompt.build import task_prompt

    plan = the_plan()
    task = plan.task(task_id)
    with opened() as ralph:
        facts = gather(ralph, plan, task, memory_on=status(ralph).available)
        built = task_prompt(facts, prompt_limits(ralph.config.settings))
    if as_json:
        print_json(plain(built))
        return
    sys.stdout.write(built.text)
    sys.stdout.flush()
    for one in built.sections:
        why = f" left out: {one.left_out}" if one.left_out else ""
        note(f"{one.name:12} {one.tokens:6} tokens{why}")
    note(f"{'all':12} {built.tokens:6} tokens of {built.budget_tokens}")
