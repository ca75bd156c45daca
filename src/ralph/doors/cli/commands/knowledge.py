"""`ralph knowledge`: what projects learn from each other, for whoever directs agents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli import cards, context
from ralph.doors.cli.render import Page, Result, plain
from ralph.doors.cli.tree import Group
from ralph.errors import BadPlan, BadRecord, NotAProject, NotFound
from ralph.text.words import plural

if TYPE_CHECKING:
    from ralph.memory.checkpoints import CheckpointResult
    from ralph.memory.knowledge import Knowledge, SavedEntry
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Task
    from ralph.recall.patterns import Pattern
    from ralph.records.knowledge import Entry

_CHECKPOINT_KINDS = ("manual", "phase_complete", "project_complete", "cancelled")
_SHOWN = 10
_TYPES = ("failure_solution", "gate_rejection", "gate_approval")
_EXPECTED = (
    "Give entries as JSON objects, one per line or in a list, each with its entry_type: "
    f"{', '.join(_TYPES)}."
)
# The options by the field each fills, and the types of entry that have it.
_FIELDS = {
    "failure_description": ("--failure-description", "What failed.", _TYPES[:1]),
    "error_message": ("--error-message", "The error message.", _TYPES[:1]),
    "solution_steps": ("--solution", "A step of the solution. Repeatable.", _TYPES[:1]),
    "gate_type": ("--gate-type", "Which gate a person decided on.", _TYPES[1:]),
    "human_feedback": ("--feedback", "Why it was rejected.", _TYPES[1:2]),
    "revision_approach": ("--revision", "What was approved then.", _TYPES[1:2]),
    "approved_approach": ("--approach", "What was approved at once.", _TYPES[2:]),
    "agent_type": ("--agent-type", "For which agents (default: any).", _TYPES),
    "task_type": ("--task-type", "For which tasks (default: any).", _TYPES),
    "technology": ("--technology", "For which technology (default: any).", _TYPES),
    "subject": ("--subject", "What was worked on: the task's title.", _TYPES),
}
_field_options = context.options(
    *(
        context.option(name, help, "TEXT", field, multiple=field == "solution_steps")
        for field, (name, help, _) in _FIELDS.items()
    )
)
_all_projects = context.flag("--all-projects", "Of all projects.")
_pattern_argument = click.argument("pattern", metavar="PATTERN")


@click.group(cls=Group)
def knowledge() -> None:
    """Share what projects learned, and search it.

    Knowledge is failures with their solutions, rejected work with the reason, and work that was
    approved at once. What a project captures is staged; a checkpoint publishes it to all projects.
    `ralph search --knowledge` searches it, `ralph forget` deletes it.
    """


# -- capture


@knowledge.command()
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--type", "entry_type", type=click.Choice(_TYPES), help="The type of the entry.")
@_field_options
@context.flag("--unverified", "Nobody has seen it work; it will be refused.")
@context.json_option
def capture(file: str | None, entry_type: str | None, unverified: bool, **fields: Any) -> Result:
    """Stage a failure with its solution, a rejection or an approval.

    Give one entry by options, with --type, or a FILE with entries as JSON: one object, one per
    line, or a list; - is stdin. Either all of it is written or nothing. It can be found once a
    checkpoint has published it.

    \b
    Examples:
      ralph knowledge capture --type failure_solution --failure-description "npm ci hangs" \\
        --solution "Set a registry timeout."
      ralph knowledge capture entries.jsonl
    """
    given = {name: value for name, value in fields.items() if value not in (None, ())}
    if file is not None and (entry_type or given or unverified):
        raise click.UsageError("Give a FILE or an entry by options, not both.")
    if file is None and entry_type is None:
        raise click.UsageError("Choose a --type, or give a FILE; - is stdin.")
    with context.opened() as ralph:
        memory = ralph.knowledge
        if file is None:
            entries = [_entry_from_options(memory, str(entry_type), given, unverified=unverified)]
        else:
            entries = _entries_from_file(memory, file)
        captured = memory.capture_all(entries)
    return captured_result(captured)


def captured_result(captured: list[SavedEntry]) -> Result:
    """What was captured, and what to do next."""

    def show(page: Page) -> None:
        fresh = sum(each.fresh for each in captured)
        old = len(captured) - fresh
        known = f" ({old} {'was' if old == 1 else 'were'} already known)" if old else ""
        page.line(f"Captured {plural(fresh, 'entry', 'entries')}{known}.")
        entries = {each.id: each.record for each in captured}
        for identity in [*entries][:_SHOWN]:
            page.line(*cards.entry_line(identity, entries[identity]), indent=2)
        if more := [*entries][_SHOWN:]:
            page.line((f"and {len(more)} more", "dim"), indent=2)
        if any(each.staged for each in captured):
            page.line("Staged. To publish it: ralph knowledge checkpoint")

    return Result(captured, show)


def _entry_from_options(
    memory: Knowledge, kind: str, given: dict[str, Any], *, unverified: bool
) -> Entry:
    for name, (option_name, _, kinds) in _FIELDS.items():
        if name in given and kind not in kinds:
            raise click.UsageError(f"{option_name} does not go with --type {kind}.")
    if unverified and kind != "failure_solution":
        raise click.UsageError(f"--unverified does not go with --type {kind}.")
    verified = {"success_verified": False} if unverified else {}
    return memory.entry({**given, "entry_type": kind, **verified})


def _entries_from_file(memory: Knowledge, file: str) -> list[Entry]:
    """The entries of a file; an error has its line."""
    from ralph.doors.cli.input_files import objects
    from ralph.memory.knowledge_state import prepared_entry

    name = context.shown_name(file)
    try:
        given = objects(context.read_input(file), name=name)
    except BadRecord as error:
        raise BadRecord(error.what, where=error.where, todo=_EXPECTED) from None
    entries: list[Entry] = []
    for line, fields in given:
        try:
            entries.append(prepared_entry(memory.entry(fields), memory.shelf.settings))
        except BadRecord as error:
            todo = f"{error.todo} " if error.todo else ""
            raise BadRecord(
                error.what, where=f"{name}:{line}", todo=f"{todo}Nothing was captured."
            ) from None
    return entries


# -- publish


@knowledge.command()
@click.option(
    "--kind",
    type=click.Choice(_CHECKPOINT_KINDS),
    default="manual",
    show_default=True,
    help="What has ended.",
)
@_all_projects
@context.flag("--imported", "Also what `ralph import` added; see `knowledge staged`.")
@context.json_option
def checkpoint(kind: str, all_projects: bool, imported: bool) -> Result:
    """Publish what is staged, so that every project finds it. Safe to run again.

    \b
    Examples:
      ralph knowledge checkpoint
      ralph knowledge checkpoint --kind phase_complete
    """
    with context.opened_anywhere() if all_projects else context.opened() as ralph:
        memory = ralph.knowledge
        own = ralph.project.id
        staged = memory.staged("*")
        projects = [] if all_projects else [own]
        projects += [
            each.record.project for each in staged if (imported if each.imported else all_projects)
        ]
        projects = list(dict.fromkeys(projects))
        done = [memory.checkpoint(project, kind, imported=imported) for project in projects]
        gives = all(memory.gives(project) for project in projects)
        waiting = 0 if imported else sum(each.imported is not None for each in staged)
    notes = list(dict.fromkeys(text for each in done for text in each.notes))
    if waiting:
        notes.insert(
            0,
            f"{plural(waiting, 'entry', 'entries')} added by `ralph import` stay staged. Look at "
            "them with `ralph knowledge staged`, then publish them with --imported",
        )
    lines = [_published(each, own) for each in done if each.published]
    nothing = "Nothing is staged; nothing was published."
    withheld = "Nothing was published; staged entries stay staged."
    return Result(done, lines or (nothing if gives else withheld), notes=notes)


def _published(done: CheckpointResult, own: str) -> str:
    whose = "this project" if done.project == own else f"project {done.project[: cards.SHORT_ID]}"
    fresh = plural(done.new_patterns, "new pattern")
    joined = f", {done.joined} of known patterns" if done.joined else ""
    entries = plural(len(done.published), "entry", "entries")
    return f"Published {entries} of {whose}: {fresh}{joined}."


@knowledge.command()
@_all_projects
@context.json_option
def staged(all_projects: bool) -> Result:
    """List the entries that wait for a checkpoint.

    \b
    Examples:
      ralph knowledge staged --all-projects
    """
    with context.opened_anywhere() if all_projects else context.opened() as ralph:
        own = ralph.project.id
        found = [
            each
            for each in ralph.knowledge.staged("*")
            # Imported entries wait for whoever imported them, whatever project they name.
            if all_projects or each.record.project == own or each.imported
        ]
    return Result(found, cards.staged_table(found, "Nothing is staged."))


# -- ask


@knowledge.command()
@click.argument("text", nargs=-1)
@context.flag("--failure", "TEXT describes a failure; find solutions.")
@context.option("--error-message", "With --failure: the error message.", "M")
@cards.filters
@context.limit_option
@context.option(
    "--min-score",
    "Hide patterns that score below this (default: as set for tasks and failures).",
    "X",
    type=click.FloatRange(0, 1),
)
@context.json_option
def query(
    text: tuple[str, ...],
    failure: bool,
    error_message: str | None,
    limit: int | None,
    min_score: float | None,
    **only: Any,
) -> Result:
    """Find patterns that may help with a task or a failure, best first.

    An entry that lacks a field matches every filter.

    \b
    Examples:
      ralph knowledge query "add retries to the HTTP client" --technology python
      ralph knowledge query --failure --error-message "ECONNRESET"
    """
    if error_message is not None and not failure:
        raise click.UsageError("--error-message goes with --failure.")
    if not text and error_message is None:
        raise click.UsageError("Describe the task or failure in TEXT.")
    words = " ".join(text)
    with context.opened_anywhere() as ralph:
        settings = ralph.config.settings
        bounds: dict[str, Any] = {"max_results": limit, "min_score": min_score}
        if failure:
            floor = settings.knowledge_failure_min_score
            found = ralph.knowledge.query_for_failure(words, error_message or "", **only, **bounds)
        else:
            floor = settings.knowledge_task_min_score
            found = ralph.knowledge.query_for_task(words, **only, **bounds)
    floor = floor if min_score is None else min_score
    empty = f"No patterns above {floor:.2f}. Try different words or a lower --min-score."
    none = empty if settings.knowledge_receive else ""
    show = (lambda page: cards.show_cards(page, found, cards.show_pattern)) if found else none
    return Result(list(found), show, notes=found.notes)


@knowledge.command("context")
@click.argument("about", nargs=-1, required=True, metavar="TASK|TEXT...")
@cards.filters
@context.json_option
def print_context(about: tuple[str, ...], **only: Any) -> Result:
    """Print the knowledge an agent gets for a task.

    TASK is the id of a task of the plan. Its title, description and criteria are searched for, with
    its discipline and the project's technology. Nothing but the context goes to stdout.

    \b
    Examples:
      ralph knowledge context 42
      ralph knowledge context "add retries to the HTTP client"
    """
    with context.opened_anywhere() as ralph:
        task = _task(about[0]) if len(about) == 1 else None
        words = " ".join(about)
        if task is not None:
            parts = [task.title, task.description or "", *task.acceptance_criteria]
            words = "\n".join(part for part in parts if part)
            only = _task_filters(ralph, task, only)
        found = ralph.knowledge.context_for_task(words, **only)
    return Result(found, lambda _: _write(found.text), notes=found.notes)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _task(word: str) -> Task | None:
    """The task of this id, if the plan has one; a text is none."""

    try:
        return context.the_plan().task(word)
    except NotFound:
        if word.strip().isdecimal():
            raise  # nobody searches for a number
        return None
    except NotAProject:
        return None
    except BadPlan:
        if len(word.split()) > 1:
            return None
        raise


def _task_filters(ralph: Ralph, task: Task, only: dict[str, str | None]) -> dict[str, str | None]:
    """The filters as a run sets them, where the line does not."""
    from ralph.memory.lessons import technology_of

    technology = technology_of(ralph.project.root, ralph.config.settings)
    usual = dict(zip(cards.FILTERS, (task.discipline, None, technology), strict=True))
    return {name: usual[name] if given is None else given for name, given in only.items()}


@knowledge.command()
@context.json_option
def patterns() -> Result:
    """List all patterns, the most reported first."""
    with context.opened_anywhere() as ralph:
        found: Sequence[Pattern] = ralph.knowledge.patterns()
    empty = (
        "No patterns yet. `ralph knowledge capture` stages what was learned, "
        "`ralph knowledge checkpoint` publishes it."
    )
    return Result(list(found), cards.pattern_table(found, empty))


@knowledge.command()
@_pattern_argument
@context.json_option
def show(pattern: str) -> Result:
    """Show one pattern with its entries. PATTERN is its id or the beginning of it."""
    with context.opened_anywhere() as ralph:
        found = _pattern(ralph.knowledge, pattern)
        records = ralph.knowledge.entries_of(found)
    return Result(
        cards.pattern_json(found, records),
        lambda page: cards.show_pattern_whole(page, found, records),
    )


# -- report and prune


@knowledge.command()
@_pattern_argument
@click.argument("result", type=click.Choice(["worked", "failed"]), metavar="worked|failed")
@context.task_option("The task it was used for; the last report for a task counts.")
@context.option("--note", "A remark.", "TEXT", "remark")
@context.json_option
def outcome(pattern: str, result: str, task: str | None, remark: str | None) -> Result:
    """Report whether a pattern helped; it changes the pattern's success rate.

    PATTERN is its id or the beginning of it.

    \b
    Examples:
      ralph knowledge outcome 3f9a1c20 worked --task 42
    """
    worked = result == "worked"
    with context.opened() as ralph:
        memory = ralph.knowledge
        wanted = _pattern(memory, pattern).id
        identity = memory.report_outcome(wanted, worked, task=task, note=remark or "")
        now = memory.pattern(wanted)
    text = f"  worked {cards.success_ratio(now)} times, rate {now.success_rate:.2f}"
    value = {"id": identity, "worked": worked, "task": task, "pattern": now.to_json()}
    return Result(value, lambda page: page.line(cards.short_id(now.id), text))


@knowledge.command()
@context.dry_run_option
@context.json_option
def prune(dry_run: bool) -> Result:
    """Forget what was published longer ago than `knowledge_keep_days`, in all projects.

    \b
    Examples:
      ralph knowledge prune --dry-run
    """
    with context.opened_anywhere() as ralph:
        found = ralph.knowledge.prune(dry_run=dry_run)
    entries = f"{plural(found.entries, 'entry', 'entries')} from before {found.before[:10]}"
    gone = f"{plural(found.patterns, 'pattern')} without entries"
    verb = "Would forget" if dry_run else "Forgot"
    return Result(plain(found) | {"dry_run": dry_run}, f"{verb} {entries}, and {gone}.")


def _pattern(memory: Knowledge, wanted: str) -> Pattern:

    try:
        return memory.pattern(wanted)
    except NotFound as error:
        todo = "`ralph knowledge patterns` lists them with their ids."
        raise NotFound(error.what, todo=todo) from None
