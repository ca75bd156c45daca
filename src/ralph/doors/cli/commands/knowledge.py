"""`ralph knowledge`: what projects learn from each other, for whoever directs agents."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import (
    FILTERS,
    SHORT_ID,
    filters,
    held,
    pattern_json,
    pattern_table,
    show_pattern,
    show_patterns,
    staged_table,
)
from ralph.doors.cli.commands.knowledge_capture import capture
from ralph.doors.cli.context import as_json, completing, opened, opened_anywhere, the_plan
from ralph.doors.cli.render import Page, count, note, print_json
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.memory.checkpoints import CheckpointResult
    from ralph.memory.knowledge import Knowledge
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Task
    from ralph.recall.patterns import Pattern

_KINDS = ("manual", "phase_complete", "project_complete", "cancelled")
_KEPT = "Nothing was published; what is staged stays so."
_min_score = click.option(
    "--min-score", type=click.FloatRange(0, 1), metavar="X", help="None less sure than this."
)


@click.group(cls=Group)
def knowledge() -> None:
    """Give and ask for what projects learned.

    Failures with their solutions, what people rejected and why, what was right at once. What a
    project captures is staged; a checkpoint publishes it to all projects. `ralph search
    --knowledge` searches it, `ralph forget` takes it out.
    """


knowledge.add_command(capture)


@knowledge.command()
@click.option("--kind", type=click.Choice(_KINDS), default="manual", help="What is over now.")
@click.option("--all-projects", is_flag=True, help="What every project has staged.")
@click.option(
    "--imported", is_flag=True, help="Also what `ralph import` brought; see `knowledge staged`."
)
@as_json
def checkpoint(kind: str, all_projects: bool, imported: bool, as_json: bool) -> None:
    """Publish what is staged, so that every project finds it.

    It can be repeated at any time: nothing is published twice.
    """
    with opened_anywhere() if all_projects else opened() as ralph:
        memory = ralph.knowledge
        own = ralph.project.id
        staged = memory.staged("*")
        projects = [] if all_projects else [own]
        projects += [
            one.record.project for one in staged if (imported if one.imported else all_projects)
        ]
        projects = list(dict.fromkeys(projects))
        done = [memory.checkpoint(project, kind, imported=imported) for project in projects]
        giving = not any(memory.keeps_to_itself(project) for project in projects)
        waiting = 0 if imported else sum(one.imported is not None for one in staged)
    if waiting:
        note(
            f"{count(waiting, 'entry', 'entries')} came by `ralph import` and stay staged. Look "
            "at them with `ralph knowledge staged`, then publish them with --imported"
        )
    for text in dict.fromkeys(text for one in done for text in one.notes):
        note(text)
    if as_json:
        import msgspec

        print_json([msgspec.to_builtins(one) for one in done])
        return
    page = Page()
    for one in done:
        if one.published:
            page.line(_published(one, own))
    if not any(one.published for one in done):
        page.line("Nothing is staged; nothing was published." if giving else _KEPT)


@knowledge.command()
@click.argument("text", nargs=-1)
@click.option("--failure", is_flag=True, help="TEXT tells of a failure; only solutions count.")
@click.option("--error-message", metavar="M", help="With --failure: the error that it shows.")
@filters
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many; 20 at most.")
@_min_score
@as_json
def query(
    text: tuple[str, ...],
    failure: bool,
    error_message: str | None,
    limit: int | None,
    min_score: float | None,
    as_json: bool,
    **only: Any,
) -> None:
    """Find the patterns that may help with a task or a failure, best first.

    Without a filter every entry fits, and an entry that lacks a field fits every filter.
    """
    if error_message is not None and not failure:
        raise click.UsageError("--error-message goes with --failure.")
    if not text and error_message is None:
        raise click.UsageError("Say in TEXT what it is about.")
    asked = " ".join(text)
    with opened_anywhere() as ralph:
        settings = ralph.config.settings
        bounds: dict[str, Any] = {"max_results": limit, "min_score": min_score}
        if failure:
            floor = settings.knowledge_failure_min_score
            found = ralph.knowledge.query_for_failure(asked, error_message or "", **only, **bounds)
        else:
            floor = settings.knowledge_task_min_score
            found = ralph.knowledge.query_for_task(asked, **only, **bounds)
    for told in found.notes:
        note(told)
    if as_json:
        print_json([one.to_json() for one in found])
    elif found:
        show_patterns(Page(), found)
    elif settings.knowledge_receive:
        sure = floor if min_score is None else min_score
        Page().line(
            f"No pattern is sure enough ({sure:.2f}). Try other words, or a lower --min-score."
        )


@knowledge.command()
@click.argument("about", nargs=-1, required=True, metavar="TASK|TEXT...")
@filters
@as_json
def context(about: tuple[str, ...], as_json: bool, **only: Any) -> None:
    """Print what an agent is told for a task.

    TASK is the id of a task of the plan: its title, description and criteria are asked for, for
    its discipline and the project's technology. Nothing but the context goes to stdout.
    """
    import msgspec

    with opened_anywhere() as ralph:
        task = _task(about[0]) if len(about) == 1 else None
        asked = " ".join(about) if task is None else _told(task)
        if task is not None:
            only = _narrowed(ralph, task, only)
        found = ralph.knowledge.context_for_task(asked, **only)
    for told in found.notes:
        note(told)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    sys.stdout.write(f"{found.text}\n")


@knowledge.command()
@click.argument("pattern", metavar="PATTERN")
@click.argument("result", type=click.Choice(["worked", "failed"]), metavar="worked|failed")
@click.option(
    "--task",
    metavar="ID",
    shell_complete=completing("tasks"),
    help="The task it was used for; of one task only the last word counts.",
)
@click.option("--note", "remark", metavar="TEXT", help="What is worth knowing about it.")
@as_json
def outcome(pattern: str, result: str, task: str | None, remark: str | None, as_json: bool) -> None:
    """Say whether a pattern helped; it moves the pattern's success rate.

    PATTERN is its id or the beginning of it.
    """
    worked = result == "worked"
    with opened() as ralph:
        memory = ralph.knowledge
        meant = _pattern(memory, pattern).id
        identity = memory.report_outcome(meant, worked, task=task, note=remark or "")
        now = memory.pattern(meant)
    if as_json:
        print_json({"id": identity, "worked": worked, "task": task, "pattern": now.to_json()})
    else:
        told = f"  held {held(now)} times, rate {now.success_rate:.2f}"
        Page().line((now.id[:SHORT_ID], "cyan"), told)


@knowledge.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@as_json
def prune(dry_run: bool, as_json: bool) -> None:
    """Forget what was published longer ago than `knowledge_keep_days`, in all projects."""
    import msgspec

    with opened_anywhere() as ralph:
        found = ralph.knowledge.prune(dry_run=dry_run)
    if as_json:
        print_json(msgspec.to_builtins(found) | {"dry_run": dry_run})
        return
    what = f"{count(found.entries, 'entry', 'entries')} from before {found.before[:10]}"
    gone = f"{count(found.patterns, 'pattern')} of which none is left"
    Page().line(f"{'Would forget' if dry_run else 'Forgot'} {what}, and {gone}.")


@knowledge.command()
@click.option("--all-projects", is_flag=True, help="Of all projects.")
@as_json
def staged(all_projects: bool, as_json: bool) -> None:
    """List what waits for a checkpoint."""
    with opened_anywhere() if all_projects else opened() as ralph:
        own = ralph.project.id
        found = [
            one
            for one in ralph.knowledge.staged("*")
            # What was imported waits for whoever imported it, whatever project it names.
            if all_projects or one.record.project == own or one.imported
        ]
    if as_json:
        print_json([one.to_json() for one in found])
    elif found:
        staged_table(Page(), found)
    else:
        Page().line("Nothing is staged.")


@knowledge.command()
@as_json
def patterns(as_json: bool) -> None:
    """List every pattern, those that were told most often first."""
    with opened_anywhere() as ralph:
        found = ralph.knowledge.patterns()
    if as_json:
        print_json([one.to_json() for one in found])
    elif found:
        pattern_table(Page(), found)
    else:
        Page().line(
            "No pattern is published yet. `ralph knowledge capture` stages what was learned, "
            "`ralph knowledge checkpoint` publishes it."
        )


@knowledge.command()
@click.argument("pattern", metavar="PATTERN")
@as_json
def show(pattern: str, as_json: bool) -> None:
    """Show one pattern whole, with the entries that tell it.

    PATTERN is its id or the beginning of it.
    """
    with opened_anywhere() as ralph:
        memory = ralph.knowledge
        found = _pattern(memory, pattern)
        told = memory.entries_of(found)
    if as_json:
        print_json(pattern_json(found, told))
    else:
        show_pattern(Page(), found, told)


def _pattern(memory: Knowledge, wanted: str) -> Pattern:
    from ralph.errors import NotFound

    try:
        return memory.pattern(wanted)
    except NotFound as error:
        todo = "`ralph knowledge patterns` lists them with their ids."
        raise NotFound(error.what, todo=todo) from None


def _published(one: CheckpointResult, own: str) -> str:
    whose = "this project" if one.project == own else f"project {one.project[:SHORT_ID]}"
    fresh = count(one.new_patterns, "new pattern")
    joined = f", {one.joined} of known patterns" if one.joined else ""
    entries = count(len(one.published), "entry", "entries")
    return f"Published {entries} of {whose}: {fresh}{joined}."


def _task(word: str) -> Task | None:
    """The task of this id, if the plan has one; a text is none."""
    from ralph.errors import BadPlan, NotAProject, NotFound

    try:
        return the_plan().task(word)
    except NotFound:
        if word.strip().isdecimal():
            raise  # nobody asks with a number
        return None
    except NotAProject:
        return None
    except BadPlan:
        if len(word.split()) > 1:
            return None
        raise


def _told(task: Task) -> str:
    about = [task.title, task.description or "", *task.acceptance_criteria]
    return "\n".join(part for part in about if part)


def _narrowed(ralph: Ralph, task: Task, only: dict[str, str | None]) -> dict[str, str | None]:
    """The filters as a run sets them, where the line does not say."""
    from ralph.memory.lessons import technology_of

    technology = technology_of(ralph.project.root, ralph.config.settings)
    usual = dict(zip(FILTERS, (task.discipline, None, technology), strict=True))
    return {name: usual[name] if given is None else given for name, given in only.items()}
