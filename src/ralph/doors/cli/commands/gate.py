"""`ralph gate`: what a person approves and rejects, kept as knowledge."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import SHORT_ID, filters
from ralph.doors.cli.commands.knowledge_capture import show_captured
from ralph.doors.cli.context import as_json, completing, opened, the_plan
from ralph.doors.cli.render import Page, excerpt, note, print_json
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.memory.gates import PendingRejection
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Task

_FEEDBACK_CHARS = 80
_task_argument = click.argument("task", metavar="TASK", shell_complete=completing("tasks"))
_type_option = click.option(
    "--type", "gate_type", required=True, metavar="T", help="Which gate, for example: design."
)


@click.group(cls=Group)
def gate() -> None:
    """Approve or reject what an agent did, so that it is learned.

    A rejection waits for the approval of its revision, and the two become one entry of knowledge.
    An approval at the first attempt is an entry by itself.
    """


@gate.command()
@_task_argument
@_type_option
@click.option("--feedback", required=True, metavar="TEXT", help="Why; the agent gets to hear it.")
@filters
@as_json
def reject(task: str, gate_type: str, feedback: str, as_json: bool, **only: str | None) -> None:
    """Reject what was done on a task, and say why.

    The feedback becomes a comment on the task, and a task that was done is in progress again.
    """
    from ralph.memory import gates

    planned = _planned(task)
    with opened() as ralph:
        waiting = gates.reject(
            ralph, _name(task, planned), gate_type, feedback, **_about(ralph, planned, only)
        )
        if planned is not None:
            planned = gates.send_back(the_plan(), planned, waiting.gate, fresh=waiting.fresh)
    if as_json:
        status = planned.status if planned else None
        print_json(waiting.to_json() | {"fresh": waiting.fresh, "status": status})
        return
    _show_rejected(Page(), waiting, planned)


@gate.command()
@_task_argument
@_type_option
@click.option(
    "--approach",
    metavar="TEXT",
    help="What was approved; else the summary of the task's newest successful iteration.",
)
@filters
@as_json
def approve(
    task: str, gate_type: str, approach: str | None, as_json: bool, **only: str | None
) -> None:
    """Approve what was done on a task.

    It completes every rejection of this gate of the task that waits, or is an approval at the
    first attempt. What it teaches is staged until a checkpoint publishes it.
    """
    from ralph.memory import gates

    planned = _planned(task)
    with opened() as ralph:
        name = _name(task, planned)
        said = gates.approach_of(ralph, name) if approach is None else approach
        captured = gates.approve(ralph, name, gate_type, said, **_about(ralph, planned, only))
    if not captured:
        note(
            f"the {gate_type} gate of task {name} was rejected and passed before, so this is no "
            "approval at the first attempt; nothing was captured"
        )
    if as_json:
        print_json([one.to_json() for one in captured])
    elif captured:
        show_captured(Page(), captured)


@gate.command("list")
@as_json
def list_(as_json: bool) -> None:
    """List the rejections that wait for their approval."""
    from ralph.memory import gates

    with opened() as ralph:
        found = gates.gates(ralph)
    if as_json:
        print_json([one.to_json() for one in found])
    elif found:
        Page().table(
            ("id", "since", "task", "gate", "feedback"),
            [
                (
                    (one.id[:SHORT_ID], "cyan"),
                    one.at[:16].replace("T", " "),
                    one.gate.task,
                    one.gate.gate_type,
                    excerpt(one.gate.human_feedback, _FEEDBACK_CHARS),
                )
                for one in found
            ],
        )
    else:
        Page().line("No rejection waits for its approval.")


def _planned(task: str) -> Task | None:
    """The task as the plan has it; one that it does not know is told of."""
    from ralph.errors import NotFound

    try:
        return the_plan().task(task.strip())
    except NotFound:
        note(f"the plan has no task {task!r}; it is kept all the same")
        return None


def _name(task: str, planned: Task | None) -> str:
    return task if planned is None else str(planned.id)


def _about(ralph: Ralph, planned: Task | None, only: dict[str, str | None]) -> dict[str, Any]:
    """What the entry is of: as the line says, else as the plan and the project do."""
    from ralph.memory.lessons import technology_of

    technology = only["technology"]
    if technology is None:
        technology = technology_of(ralph.project.root, ralph.config.settings)
    title = planned.title if planned else ""
    return {**only, "technology": technology, "subject": title}


def _show_rejected(page: Page, waiting: PendingRejection, planned: Task | None) -> None:
    gate_type, task = waiting.gate.gate_type, waiting.gate.task
    known = "" if waiting.fresh else " It was told before."
    page.line(
        (waiting.id[:SHORT_ID], "cyan"), f"  Rejected at the {gate_type} gate: task {task}.{known}"
    )
    if planned is not None:
        page.line(f"The feedback stands on the task, which is {planned.status}.", indent=2)
    line = ["ralph", "gate", "approve", task, "--type", gate_type, "--approach", "TEXT"]
    page.line(f"Approve its revision: {_typed(line)}", indent=2)


def _typed(words: list[str]) -> str:
    """The command as the shell here wants it typed."""
    if sys.platform == "win32":
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)
