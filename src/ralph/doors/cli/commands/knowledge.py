"""`ralph knowledge` and `ralph gate`: share lessons between projects, and learn from decisions."""

from __future__ import annotations

import shlex
import sys
from subprocess import list2cmdline
from typing import Any

import click

from ralph.doors.cli import cards, context
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Cards, Page, Result, Table, excerpt, fresh_and_known
from ralph.errors import BadPlan, BadRecord, NotAProject, NotFound
from ralph.memory import gates
from ralph.memory.checkpoints import CheckpointResult
from ralph.memory.knowledge import FAILURE_MIN_SCORE, TASK_MIN_SCORE, Knowledge, SavedEntry
from ralph.memory.knowledge_state import prepared_entry
from ralph.memory.lessons import technology_of
from ralph.memory.ralph import Ralph
from ralph.plan.model import Task
from ralph.records.knowledge import Entry
from ralph.text.tokens import plural

_KINDS = ("manual", "phase_complete", "project_complete", "cancelled")
_SHOWN = 10
_TYPES = ("failure_solution", "gate_rejection", "gate_approval")
_EXPECTED = (
    "Give entries as JSON objects, one per line or in a list, each with its entry_type: "
    f"{', '.join(_TYPES)}."
)
# For each field of an entry: its option, the help, and the types of entry that have it.
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
_options = [
    context.option(name, help, "TEXT", field, multiple=field == "solution_steps")
    for field, (name, help, _) in _FIELDS.items()
]
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
@click.argument("file", metavar="[FILE|-]", required=False, type=context.FILE)
@context.choice("--type", "The type of the entry.", _TYPES, "entry_type")
@context.options(*_options)
@context.flag("--unverified", "Nobody has seen it work; it will be refused.")
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
    with context.opened(anywhere=False) as ralph:
        memory = ralph.knowledge
        entries = (
            [_option_entry(memory, str(entry_type), given, unverified)]
            if file is None
            else _entries_from_file(memory, file)
        )
        return _captured(memory.capture_all(entries))


def _entries(number: int) -> str:
    return plural(number, "entry", "entries")


def _captured(captured: list[SavedEntry]) -> Result:
    """Show what was captured, and what to do next."""

    def show(page: Page) -> None:
        fresh, known = fresh_and_known(captured)
        page.line(f"Captured {_entries(fresh)}{known}.")
        entries = {each.id: each.record for each in captured}
        for identity, entry in list(entries.items())[:_SHOWN]:
            text = f"  {entry.entry_type}  {cards.entry_text(entry)}"
            page.line(cards.short_id(identity), text, indent=2)
        page.more(len(entries) - _SHOWN)
        if any(each.staged for each in captured):
            page.line("Staged. To publish it: ralph knowledge checkpoint")

    return Result(captured, show)


def _option_entry(memory: Knowledge, kind: str, given: dict[str, Any], unverified: bool) -> Entry:
    for name, (option_name, _, kinds) in _FIELDS.items():
        if name in given and kind not in kinds:
            raise click.UsageError(f"{option_name} does not go with --type {kind}.")
    if unverified and kind != "failure_solution":
        raise click.UsageError(f"--unverified does not go with --type {kind}.")
    verified = {"success_verified": False} if unverified else {}
    return memory.entry({**given, "entry_type": kind, **verified})


def _entries_from_file(memory: Knowledge, file: str) -> list[Entry]:
    """Read the entries of a file; an error names the line."""
    name = context.shown_name(file)
    given = context.json_objects(context.read_input(file), name=name, todo=_EXPECTED)
    entries: list[Entry] = []
    for line, fields in given:
        try:
            entries.append(prepared_entry(memory.entry(fields)))
        except BadRecord as error:
            todo = f"{error.todo or ''} Nothing was captured.".lstrip()
            raise BadRecord(error.what, where=f"{name}:{line}", todo=todo) from None
    return entries


# -- publish


@knowledge.command()
@context.choice("--kind", "What has ended.", _KINDS, default="manual", show_default=True)
@_all_projects
@context.flag("--imported", "Also what `ralph import` added; see `knowledge staged`.")
def checkpoint(kind: str, all_projects: bool, imported: bool) -> Result:
    """Publish what is staged, so that every project finds it. Safe to run again.

    \b
    Examples:
      ralph knowledge checkpoint
      ralph knowledge checkpoint --kind phase_complete
    """
    with context.opened(anywhere=all_projects) as ralph:
        memory = ralph.knowledge
        own = ralph.project.id
        if ralph.remote and not (all_projects or imported):
            there = memory.checkpoint(kind=kind)
            return Result([there], _published_text(there, there.project))
        staged = memory.staged("*")
        wanted = [each for each in staged if (imported if each.imported else all_projects)]
        others = [each.record.project for each in wanted]
        projects = list(dict.fromkeys(others if all_projects else [own, *others]))
        done = [memory.checkpoint(project, kind, imported=imported) for project in projects]
        gives = all(memory.gives(project) for project in projects)
        waiting = 0 if imported else sum(each.imported is not None for each in staged)
    notes = list(dict.fromkeys(text for each in done for text in each.notes))
    if waiting:
        todo = "Look at them with `ralph knowledge staged`, then publish them with --imported"
        notes.insert(0, f"{_entries(waiting)} added by `ralph import` stay staged. {todo}")
    lines = [_published_text(each, own) for each in done if each.published]
    nothing = "Nothing is staged; nothing was published."
    withheld = "Nothing was published; staged entries stay staged."
    return Result(done, lines or (nothing if gives else withheld), notes=notes)


def _published_text(done: CheckpointResult, own: str) -> str:
    whose = "this project" if done.project == own else f"project {done.project[: cards.SHORT_ID]}"
    fresh = plural(done.new_patterns, "new pattern")
    joined = f", {done.joined} of known patterns" if done.joined else ""
    return f"Published {_entries(len(done.published))} of {whose}: {fresh}{joined}."


@knowledge.command()
@_all_projects
def staged(all_projects: bool) -> Result:
    """List the entries that wait for a checkpoint.

    \b
    Examples:
      ralph knowledge staged --all-projects
    """
    with context.opened() as ralph:
        found = ralph.knowledge.staged("*")
        own = ralph.project.id
    if not all_projects:
        # Imported entries wait for the user who imported them, whichever project they name.
        found = [each for each in found if each.record.project == own or each.imported]
    return Result(found, cards.staged_table(found, "Nothing is staged."))


# -- ask


@knowledge.command()
@click.argument("text", nargs=-1)
@context.flag("--failure", "TEXT describes a failure; find solutions.")
@context.option("--error-message", "With --failure: the error message.", "M")
@cards.filters
@context.limit_option
@context.min_score_option(
    "Hide patterns that score below this (default: as set for tasks and failures)."
)
def query(
    text: tuple[str, ...], failure: bool, error_message: str | None, limit: int | None, **only: Any
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
    with context.opened() as ralph:
        settings = ralph.config.settings
        floor = only["min_score"]
        only["max_results"] = limit
        if failure:
            found = ralph.knowledge.query_for_failure(words, error_message or "", **only)
        else:
            found = ralph.knowledge.query_for_task(words, **only)
    if floor is None:
        floor = FAILURE_MIN_SCORE if failure else TASK_MIN_SCORE
    empty = f"No patterns above {floor:.2f}. Try different words or a lower --min-score."
    view = Cards(found, cards.show_pattern, empty if settings.knowledge_receive else "")
    return Result(list(found), view, notes=found.notes)


@knowledge.command("context")
@click.argument("about", nargs=-1, required=True, metavar="TASK|TEXT...")
@cards.filters
def print_context(about: tuple[str, ...], **only: Any) -> Result:
    """Print the knowledge an agent gets for a task.

    TASK is the id of a task of the plan. Its title, description and criteria are searched for, with
    its discipline and the project's technology. Nothing but the context goes to stdout.

    \b
    Examples:
      ralph knowledge context 42
      ralph knowledge context "add retries to the HTTP client"
    """
    with context.opened() as ralph:
        task = _task(about[0]) if len(about) == 1 else None
        words = " ".join(about)
        if task is not None:
            parts = [task.title, task.description or "", *task.acceptance_criteria]
            words = "\n".join(part for part in parts if part)
            # Filters that were not given are set as in a run.
            usual = (task.discipline, None, _technology(ralph, None))
            for name, value in zip(cards.FILTERS, usual, strict=True):
                only[name] = value if only[name] is None else only[name]
        found = ralph.knowledge.context_for_task(words, **only)
    return Result(found, lambda page: page.text(f"{found.text}\n"), notes=found.notes)


def _task(word: str) -> Task | None:
    """Return the task with this id; None if the word is a text and not an id."""
    try:
        return context.the_plan().task(word)
    except (NotFound, NotAProject, BadPlan) as error:
        number = isinstance(error, NotFound) and word.strip().isdecimal()  # must be an id
        if number or (isinstance(error, BadPlan) and len(word.split()) == 1):
            raise
    return None


def _technology(ralph: Ralph, given: str | None) -> str | None:
    return technology_of(ralph.project.root, ralph.config.settings) if given is None else given


@knowledge.command()
def patterns() -> Result:
    """List all patterns, the most reported first."""
    with context.opened() as ralph:
        found = ralph.knowledge.patterns()
    stages = "`ralph knowledge capture` stages what was learned"
    empty = f"No patterns yet. {stages}, `ralph knowledge checkpoint` publishes it."
    return Result(list(found), cards.pattern_table(found, empty))


@knowledge.command()
@_pattern_argument
def show(pattern: str) -> Result:
    """Show one pattern with its entries. PATTERN is its id or the beginning of it."""
    with context.opened() as ralph:
        return cards.pattern_result(ralph.knowledge, ralph.knowledge.pattern(pattern))


# -- report and prune


@knowledge.command()
@_pattern_argument
@click.argument("result", type=click.Choice(["worked", "failed"]), metavar="worked|failed")
@context.task_option("The task it was used for; the last report for a task counts.")
@context.option("--note", "A remark.", "TEXT", "remark")
def outcome(pattern: str, result: str, task: str | None, remark: str | None) -> Result:
    """Report whether a pattern helped; it changes the pattern's success rate.

    PATTERN is its id or the beginning of it.

    \b
    Examples:
      ralph knowledge outcome 3f9a1c20 worked --task 42
    """
    worked = result == "worked"
    with context.opened(anywhere=False) as ralph:
        memory = ralph.knowledge
        wanted = memory.pattern(pattern).id
        identity = memory.report_outcome(wanted, worked, task=task, note=remark or "")
        now = memory.pattern(wanted)
    text = f"  {cards.worked_text(now)} (estimated success rate {now.success_rate:.2f})"
    value = {"id": identity, "worked": worked, "task": task, "pattern": now.to_json()}
    return Result(value, lambda page: page.line(cards.short_id(now.id), text))


@knowledge.command()
@context.dry_run_option
def prune(dry_run: bool) -> Result:
    """Forget what was published longer ago than `knowledge_keep_days`, in all projects.

    \b
    Examples:
      ralph knowledge prune --dry-run
    """
    with context.opened() as ralph:
        found = ralph.knowledge.prune(dry_run=dry_run)
    gone = f"{plural(found.patterns, 'pattern')} without entries"
    return cards.pruned_result(found, _entries(found.entries), gone, dry_run=dry_run)


# -- gates

_task_argument = click.argument("task", metavar="TASK", shell_complete=context.completing("tasks"))
_type_option = context.option(
    "--type", "Which gate, for example design.", "T", "gate_type", required=True
)


@click.group(cls=Group)
def gate() -> None:
    """Approve or reject an agent's work, and learn from it.

    A rejection waits for the approval of its revision; together they become one entry of knowledge.
    An approval at the first attempt is an entry by itself.
    """


@gate.command()
@_task_argument
@_type_option
@context.option("--feedback", "Why; the agent gets to read it.", required=True)
@cards.filters
def reject(task: str, gate_type: str, feedback: str, **only: str | None) -> Result:
    """Reject the work on a task, and say why.

    The feedback becomes a comment on the task, and a task that was done is in progress again.

    \b
    Examples:
      ralph gate reject 42 --type design --feedback "Keep the session in a cookie."
    """
    planned, name, notes = _planned(task)
    with context.opened(anywhere=False) as ralph:
        waiting = gates.reject(ralph, name, gate_type, feedback, **_about(ralph, planned, only))
        rejected = waiting.gate
        fresh = waiting.fresh
        if planned is not None:
            planned = gates.send_back(context.the_plan(), planned, rejected, fresh=fresh)

    def show(page: Page) -> None:
        text = f"  Rejected at the {rejected.gate_type} gate: task {rejected.task}."
        text += "" if fresh else " It was rejected for this before."
        page.line(cards.short_id(waiting.id), text)
        if planned is not None:
            page.line(f"The feedback is on the task, which is {planned.status}.", indent=2)
        words = ["gate", "approve", rejected.task, "--type", rejected.gate_type]
        words += ["--approach", "TEXT"]
        typed = list2cmdline(words) if sys.platform == "win32" else shlex.join(words)
        page.line(f"Approve its revision: ralph {typed}", indent=2)

    status = planned.status if planned else None
    return Result(waiting.to_json() | {"fresh": fresh, "status": status}, show, notes=notes)


@gate.command()
@_task_argument
@_type_option
@context.option(
    "--approach",
    "What was approved (default: the summary of the task's newest successful iteration).",
)
@cards.filters
def approve(task: str, gate_type: str, approach: str | None, **only: str | None) -> Result:
    """Approve the work on a task.

    It completes every waiting rejection of the task at this gate, or is an approval at the first
    attempt. What it teaches is staged until a checkpoint publishes it.

    \b
    Examples:
      ralph gate approve 42 --type design --approach "Signed session cookies."
    """
    planned, name, notes = _planned(task)
    with context.opened(anywhere=False) as ralph:
        approved = gates.approach_of(ralph, name) if approach is None else approach
        captured = gates.approve(ralph, name, gate_type, approved, **_about(ralph, planned, only))
    if captured:
        return _captured(captured)._replace(notes=notes)
    why = f"the {gate_type} gate of task {name} was rejected and passed before"
    none = "so this is no approval at the first attempt; nothing was captured"
    return Result([], "", notes=[f"{why}, {none}"])


@gate.command("list")
def list_gates() -> Result:
    """List the rejections that wait for an approval."""
    with context.opened(anywhere=False) as ralph:
        found = gates.gates(ralph)
    rows = [
        (
            *(cards.short_id(each.id), cards.minute(each.at), each.gate.task),
            *(each.gate.gate_type, excerpt(each.gate.human_feedback, 80)),
        )
        for each in found
    ]
    heads = ("id", "since", "task", "gate", "feedback")
    return Result(found, Table(heads, rows, "No rejections are waiting for approval."))


def _planned(task: str) -> tuple[Task | None, str, list[str]]:
    """Return the plan's task, its id, and a note if the plan has no such task."""
    try:
        planned = context.the_plan().task(task.strip())
    except NotFound:
        return None, task, [f"the plan has no task {task!r}. Saved anyway."]
    return planned, str(planned.id), []


def _about(ralph: Ralph, planned: Task | None, only: dict[str, str | None]) -> dict[str, Any]:
    """Return the entry's fields from the options, or else from the plan and the project."""
    technology = _technology(ralph, only["technology"])
    return {**only, "technology": technology, "subject": planned.title if planned else ""}
