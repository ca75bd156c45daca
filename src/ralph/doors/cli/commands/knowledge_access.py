"""Who may ask for knowledge, and the options that narrow a question."""

from __future__ import annotations

from typing import Any

import click

from ralph.doors.cli.planning import in_agents_run
from ralph.errors import BadInput

FILTERS = ("agent_type", "task_type", "technology")


def refuse_agents() -> None:
    """Knowledge and gates are for whoever directs agents; an agent is told what it needs."""
    if in_agents_run():
        raise BadInput(
            "this is an agent's run, and knowledge and gates are for whoever directs agents",
            todo="What other projects learned stands in the prompt; a person decides on gates.",
        )


def filters(command: Any) -> Any:
    """`--agent-type`, `--task-type`, `--technology`."""
    for option in reversed(
        (
            click.option("--agent-type", metavar="T", help="For agents of this type."),
            click.option("--task-type", metavar="T", help="For tasks of this type."),
            click.option("--technology", metavar="T", help="For this technology; commas between."),
        )
    ):
        command = option(command)
    return command
