"""`ralph gate`: a person's approvals and rejections, kept as knowledge."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import filters, minute, short_id
from ralph.doors.cli.commands.knowledge import captured_result
from ralph.doors.cli.context import completing, opened, option, the_plan
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Page, Result, Table, excerpt, note
from ralph.errors import NotFound

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Task

_FEEDBACK_CHARS = 80
_task_argument = click.argument("task", metavar="TASK", shell_complete=completing("tasks"))
_type_option = option("--type", "Which gate, for example design.", "T", "gate_type", required=True)


@click.group(cls=Group)
def gate() -> None:
    """Approve or reject an agent's work, and learn from it.

    A rejection waits for the approval of its revision; together they become one entry of knowledge.
    An approval at the first attempt is an entry by itself.
    """


@gate.command()
@_task_argument
@_type_option
@option("--feedback", "Why; the agent gets to read it.", required=True)
@filters
def reject(task: str, gate_type: str, feedback: str, **only: str | None) -> Result:
    """Reject the work on a task, and say why.

    The feedback becomes a comment on the task, and a task that was done is in progress again.

    \b
    Examples:
      ralph gate reject 42 --type design --feedback "Keep the session in a cookie."
    """
    from ralph.memory import gates

    planned = _planned(task)
    with opened() as ralph:
        waiting = gates.reject(
            ralph, _name(task, planned), gate_type, feedback, **_about(ralph, planned, only)
        )
        if planned is not None:
            planned = gates.send_back(the_plan(), planned, waiting.gate, fresh=waiting.fresh)

    def show(page: Page) -> None:
        name = waiting.gate.task
        known = "" if waiting.fresh else " It was rejected for this before."
        page.line(
            short_id(waiting.id),
            f"  Rejected at the {waiting.gate.gate_type} gate: task {name}.{known}",
        )
        if planned is not None:
            page.line(f"The feedback is on the task, which is {planned.status}.", indent=2)
        words = ["gate", "approve", name, "--type", waiting.gate.gate_type, "--approach", "TEXT"]
        page.line(f"Approve its revision: {_typed(['ralph', *words])}", indent=2)

    status = planned.status if planned else None
    return Result(waiting.to_json() | {"fresh": waiting.fresh, "status": status}, show)


@gate.command()
@_task_argument
@_type_option
@option(
    "--approach",
    "What was approved (default: the summary of the task's newest successful iteration).",
)
@filters
def approve(task: str, gate_type: str, approach: str | None, **only: str | None) -> Result:
    """Approve the work on a task.

    It completes every waiting rejection of the task at this gate, or is an approval at the first
    attempt. What it teaches is staged until a checkpoint publishes it.

    \b
    Examples:
      ralph gate approve 42 --type design --approach "Signed session cookies."
    """
    from ralph.memory import gates

    planned = _planned(task)
    with opened() as ralph:
        name = _name(task, planned)
        approved = gates.approach_of(ralph, name) if approach is None else approach
        captured = gates.approve(ralph, name, gate_type, approved, **_about(ralph, planned, only))
    if captured:
        return captured_result(captured)
    why = (
        f"the {gate_type} gate of task {name} was rejected and passed before, so this is no "
        "approval at the first attempt; nothing was captured"
    )
    return Result([], "", notes=[why])


@gate.command("list")
def list_gates() -> Result:
    """List the rejections that wait for an approval."""
    from ralph.memory import gates

    with opened() as ralph:
        found = gates.gates(ralph)
    rows = [
        (
            short_id(waiting.id),
            minute(waiting.at),
            waiting.gate.task,
            waiting.gate.gate_type,
            excerpt(waiting.gate.human_feedback, _FEEDBACK_CHARS),
        )
        for waiting in found
    ]
    heads = ("id", "since", "task", "gate", "feedback")
    return Result(found, Table(heads, rows, "No rejections are waiting for approval."))


def _planned(task: str) -> Task | None:
    """The task as the plan has it; a note if the plan has no such task."""

    try:
        return the_plan().task(task.strip())
    except NotFound:
        note(f"the plan has no task {task!r}; saved all the same")
        return None


def _name(task: str, planned: Task | None) -> str:
    return task if planned is None else str(planned.id)


def _about(ralph: Ralph, planned: Task | None, only: dict[str, str | None]) -> dict[str, Any]:
    """The entry's fields: from the line, else from the plan and the project."""
    from ralph.memory.lessons import technology_of

    technology = only["technology"]
    if technology is None:
        technology = technology_of(ralph.project.root, ralph.config.settings)
    return {**only, "technology": technology, "subject": planned.title if planned else ""}


def _typed(words: list[str]) -> str:
    """The command as the shell here wants it typed."""
    if sys.platform == "win32":
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)
