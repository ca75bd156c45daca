"""`ralph plan` and `ralph prompt`: import, draft and check a plan, and print its prompts."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path, PurePath
from typing import Any

import click
import msgspec

from ralph import disk
from ralph.doors.cli import context
from ralph.doors.cli.commands.run import cost_text, shown, stop_on_signals
from ralph.doors.cli.main import Command, Group, wants_json
from ralph.doors.cli.render import Page, Result, excerpt, is_terminal, note, picked, plain
from ralph.errors import BadInput, RalphError
from ralph.loop import braindump as drafting
from ralph.loop.braindump import Accepted, Planned, Proposal
from ralph.loop.iteration import gather, gather_review, history
from ralph.loop.run import context_for
from ralph.memory.ralph import Ralph
from ralph.plan.edit import check as check_plan
from ralph.plan.importing import import_plan
from ralph.plan.merge import merge_files
from ralph.prompt.build import Prompt, PromptFacts, PromptLimits, review_prompt, task_prompt
from ralph.text.tokens import plural

_MAX_INPUT_BYTES = 2_000_000  # more than any limit in tokens allows
_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@click.group(cls=Group)
def plan() -> None:
    """Import a plan, let an agent draft one, or check it."""


@plan.command("import")
@click.argument("file", metavar="FILE|-", type=context.FILE)
@context.plan_feature(help="The feature of tasks that have no heading above them.")
def import_(file: str, feature: str | None) -> Result:
    """Turn a Markdown checklist or a YAML document into features and tasks.

    `# Heading` is a feature, `- [ ] text` a task, `- [x] text` a done task. Importing the same file
    again adds nothing; a box that you ticked since updates its task. - is stdin.

    \b
    Examples:
      ralph plan import plan.md
    """
    name = context.shown_name(file)
    text = context.text_of(context.read_input(file), name)
    done = import_plan(context.the_plan(), text, name=PurePath(name).name, feature=feature)
    counts = {"feature": done.features, "task": done.tasks, "discipline": done.disciplines}
    added = [plural(len(names), word) for word, names in counts.items() if names]
    items = plural(done.plain_items, "list item")
    remarks = {
        f"Added {', '.join(added)}.": added,
        "Nothing is new.": not (added or done.updated),
        f"Filled in missing fields of {', '.join(done.filled)}.": done.filled,
        f"Updated task {', '.join(map(str, done.updated))}.": done.updated,
        f"{plural(done.known_tasks, 'task')} already known.": done.known_tasks,
        f"{plural(done.repeated, 'line is', 'lines are')} there twice.": done.repeated,
        f"{items} without a box became description; a task needs [ ].": done.plain_items,
    }
    value = picked(done, "features", "tasks", "disciplines", "filled", "known_tasks", "updated")
    return Result(value, " ".join(text for text, applies in remarks.items() if applies))


@plan.command()
def check() -> Result:
    """List every problem of the plan, where it is, and how to fix it.

    The exit code is 1 if there is an error; warnings alone are fine.
    """
    problems = check_plan(context.the_plan())
    errors = sum(problem.severity == "error" for problem in problems)

    def show(page: Page) -> None:
        for problem in problems:
            style = "red" if problem.severity == "error" else "yellow"
            page.line((f"{problem.severity} ", style), str(problem))
        page.line(f"{plural(errors, 'error')}, {plural(len(problems) - errors, 'warning')}.")

    value = {"ok": not errors, "problems": problems}
    return Result(value, show if problems else "The plan is fine.", code=1 if errors else 0)


@plan.command("merge-driver")
@click.argument("base", type=click.Path())
@click.argument("ours", type=click.Path())
@click.argument("theirs", type=click.Path())
@click.argument("name", metavar="PATH", required=False)
def merge_driver(base: str, ours: str, theirs: str, name: str | None) -> Result:
    """Merge a file of the plan for git, which calls this with its %O %A %B %P.

    `ralph init` registers it. Both sides' entries are kept; a new task whose number the other side
    has taken as well gets a free one. The exit code is 1 if both sides changed the same field: ours
    stays in the file, and git tells of the conflict.
    """
    raw = [disk.read(file) for file in (base, ours, theirs)]
    merged, found = merge_files(*raw, name=name or ours)
    disk.replace(Path(ours), merged)
    lines = [f"{name or ours}: both sides changed {entry}" for entry in found.conflicts]
    moved = found.renumbered.items()
    lines += [f"Task {old} became task {new}: its number was taken twice." for old, new in moved]
    return Result(found, lines, code=1 if found.conflicts else 0)


# -- braindump


@plan.command()
@click.argument("file", metavar="[FILE|-]", required=False, type=context.FILE)
@context.agent_option
@context.flag("--yes", "Accept what the agent proposes without asking.")
@context.flag("--accept", "Accept the proposal of an earlier run.")
@context.timeout_option
def braindump(file: str | None, yes: bool, accept: bool, **options: Any) -> Result:
    """Let an agent turn requirements into features and tasks.

    Its proposal is shown as a diff. Nothing is changed until you accept it: when asked, with --yes,
    or later with --accept. - is stdin. The exit code is 1 if you decline.

    \b
    Examples:
      ralph plan braindump requirements.txt
      ralph plan braindump --accept
    """
    if accept == (file is not None) or (accept and (yes or any(options.values()))):
        raise click.UsageError("Give a FILE, or --accept alone.")
    with context.opened(anywhere=False) as ralph:
        done = None if accept else _planned(ralph, str(file), options)
        proposal = done.proposal if done else drafting.kept_proposal(ralph)
        if not wants_json():
            _show_proposal(Page(), proposal, done)
        person = sys.stdin.isatty() and is_terminal(sys.stdout) and not wants_json()
        answer = yes or accept or (click.confirm("Accept?", default=False) if person else None)
        accepted = drafting.accept(context.the_plan(), proposal) if answer else None
        if accepted is not None:
            drafting.drop_proposal(ralph)
    value = _as_json(proposal, done, accepted)
    return Result(value, _end_lines(accepted), code=1 if answer is False else 0)


def _planned(ralph: Ralph, file: str, options: dict[str, Any]) -> Planned:
    name = context.shown_name(file)
    data = context.read_input(file, _MAX_INPUT_BYTES + 1)
    if len(data) > _MAX_INPUT_BYTES:
        todo = "Split it, and plan one part after the other."
        raise BadInput(f"is longer than {_MAX_INPUT_BYTES // 1_000_000} MB", where=name, todo=todo)
    text = context.text_of(data, name)
    if "\0" in text:
        raise BadInput("is not text", where=name, todo="Give requirements as plain text.")
    with stop_on_signals() as stop, contextlib.ExitStack() as stack:
        root = str(ralph.project.root)
        progress = ralph.store.progress
        screen = shown(stop.is_set, progress, root=root, moving="the agent plans")
        listener = (lambda event: None) if wants_json() else stack.enter_context(screen)
        return drafting.braindump(ralph, text, source=name, listener=listener, stop=stop, **options)


def _show_proposal(page: Page, proposal: Proposal, done: Planned | None) -> None:
    cost = ""
    if done is not None:
        cost = f" ({', '.join(cost_text(done.duration_ms, done.tokens_used, done.cost_usd))})"
        for line in done.repaired:
            page.line(("plan: ", "yellow"), line)
        if done.summary:
            page.line(("The agent: ", "bold"), excerpt(done.summary, 600))
        for line in proposal.diff():
            bold = line.startswith(("+++", "---"))
            page.line((line, "bold" if bold else _COLORS.get(line[:1], "")))
    page.line((_changes_text(proposal), "bold"), cost)
    for name in proposal.thin():
        page.line(("thin: ", "yellow"), f"the description of {name} is under 100 characters")


def _changes_text(proposal: Proposal) -> str:
    """Say what changes, like `2 features and 7 tasks added, 1 task changed`."""
    parts = []
    for verb in ("added", "changed", "removed"):
        counts = [
            plural(len(names), kind.removesuffix("s"))
            for kind, changes in proposal.changes().items()
            if (names := getattr(changes, verb))
        ]
        parts += [f"{' and '.join(counts)} {verb}"] if counts else []
    return ", ".join(parts) or "Only comments and order changed"


def _end_lines(accepted: Accepted | None) -> list[str]:
    if accepted is None:
        return ["Nothing is changed yet. `ralph plan braindump --accept` accepts it."]
    moved = accepted.renumbered.items()
    lines = [f"Task {old} became task {new}: its number was taken meanwhile." for old, new in moved]
    lines += [f"{problem.severity} {problem}" for problem in accepted.problems]
    return [*lines, "Accepted. `ralph task ready` lists what can be worked on."]


def _as_json(proposal: Proposal, done: Planned | None, accepted: Accepted | None) -> dict[str, Any]:
    facts = ("summary", "repaired", "cost_usd", "tokens_used", "duration_ms")
    empty = {"summary": "", "repaired": []}
    changes: dict[str, Any] = {
        kind: {verb: [context.number(key) for key in keys] for verb, keys in plain(found).items()}
        for kind, found in proposal.changes().items()
    }
    return {
        "accepted": accepted is not None,
        "source": proposal.source,
        **changes,
        "diff": "\n".join(proposal.diff()),
        **{name: getattr(done, name) if done else empty.get(name) for name in facts},
        "renumbered": accepted.renumbered if accepted else {},
        "problems": accepted.problems if accepted else [],
    }


# -- prompt


@click.command(cls=Command)
@click.argument("task_id", metavar="TASK", shell_complete=context.completing("tasks"))
@context.flag("--review", "The prompt of a review of the task's feature.")
def prompt(task_id: str, review: bool) -> Result:
    """Print the prompt for a task as a run would send it.

    The text goes to stdout, a table of tokens by section to stderr. Nothing is changed.

    \b
    Examples:
      ralph prompt 42
    """
    plan = context.the_plan()
    task = plan.task(task_id)
    with context.opened(anywhere=False) as ralph:
        limits = PromptLimits(prompt=ralph.config.settings.prompt_tokens)
        facts = gather(ralph, plan, task, memory_on=ralph.status().available)
        if review:
            told = history(ralph, task.feature)
            to_review = gather_review(facts, told, everything=False, standings=ralph.standings)
            built = review_prompt(facts, to_review, limits)
        else:
            facts = msgspec.structs.replace(facts, context=_context(ralph, facts))
            built = task_prompt(facts, limits)
    return Result(built, lambda page: _show_prompt(page, built))


def _context(ralph: Ralph, facts: PromptFacts) -> str:
    """Return what helped in other projects; on an error, print a note and go on without it."""
    if context.in_agents_run():
        return ""  # the agent's own prompt has it already
    try:
        found = context_for(ralph, facts)
    except (RalphError, OSError) as error:
        note(f"no knowledge in this prompt: {error}")
        return ""
    return found.block if found else ""


def _show_prompt(page: Page, built: Prompt) -> None:
    """Print the text, and on stderr each section's tokens and what was left out."""
    page.text(built.text)
    rows = [
        (section.name, section.tokens, f"left out: {section.left_out}" if section.left_out else "")
        for section in built.sections
    ]
    rows.append(("all", built.tokens, f"of {built.budget_tokens}"))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{'section':{width}}  tokens"]
    lines += [f"{name:{width}}  {tokens:6}  {remark}".rstrip() for name, tokens, remark in rows]
    gap = "\n" if is_terminal(sys.stderr) else ""
    sys.stderr.write(gap + "".join(f"{line}\n" for line in lines))
