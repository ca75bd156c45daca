"""`ralph prompt`: the prompt as a run would send it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.context import as_json, completing, in_agents_run, opened, plain, the_plan
from ralph.doors.cli.render import is_terminal, note, print_json
from ralph.doors.cli.tree import Command
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.prompt.build import Prompt, PromptFacts


@click.command(cls=Command)
@click.argument("task_id", metavar="TASK", shell_complete=completing("tasks"))
@click.option("--review", is_flag=True, help="The prompt of a review of the task's feature.")
@as_json
def prompt(task_id: str, review: bool, as_json: bool) -> None:
    """Show the prompt for a task as it would be sent.

    The text goes to stdout, the table of tokens by section to stderr. Nothing is changed.
    """
    import msgspec

    from ralph.loop.iteration import IterationHistory, gather, gather_review, prompt_limits
    from ralph.memory.status import status
    from ralph.prompt.build import review_prompt, task_prompt

    plan = the_plan()
    task = plan.task(task_id)
    with opened() as ralph:
        settings = ralph.config.settings
        history = IterationHistory(ralph)
        facts = gather(ralph, plan, task, memory_on=status(ralph).available, history=history)
        if review:
            told = history.of(task.feature)
            to_review = gather_review(facts, told, settings, everything=False)
            built = review_prompt(facts, to_review, prompt_limits(settings))
        else:
            facts = msgspec.structs.replace(facts, context=_context(ralph, facts))
            built = task_prompt(facts, prompt_limits(settings))
    if as_json:
        print_json(plain(built))
        return
    sys.stdout.write(built.text)
    sys.stdout.flush()
    _show_tokens(built)


def _context(ralph: Ralph, facts: PromptFacts) -> str:
    """What helped in other projects; without it there is a prompt all the same."""
    from ralph.loop.orchestrate import context_for

    if in_agents_run():
        return ""  # it has been told what it may know
    try:
        found = context_for(ralph, facts)
    except (RalphError, OSError) as error:
        note(f"knowledge: nothing asked ({error})")
        return ""
    return found.block if found else ""


def _show_tokens(built: Prompt) -> None:
    """The sections in their order, what each costs, and what found no room."""
    rows = [(one.name, one.tokens, one.left_out or "") for one in built.sections]
    rows.append(("all", built.tokens, f"of {built.budget_tokens}"))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{'section':{width}}  tokens"]
    for name, tokens, remark in rows:
        why = f"left out: {remark}" if remark and name != "all" else remark
        lines.append(f"{name:{width}}  {tokens:6}  {why}".rstrip())
    gap = "\n" if is_terminal(sys.stderr) else ""
    sys.stderr.write(gap + "".join(f"{line}\n" for line in lines))
