"""`ralph plan braindump`: an agent turns requirements into a plan, and you decide."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import as_json, number, opened, opened_input, plain, shown_name
from ralph.doors.cli.input_files import text_of
from ralph.doors.cli.render import Page, count, excerpt, is_terminal, print_json
from ralph.doors.cli.tree import Command
from ralph.errors import BadInput

if TYPE_CHECKING:
    from ralph.loop.braindump import Accepted, Planned, Proposal
    from ralph.memory.ralph import Ralph

_DECLINED = 1
_SUMMARY_CHARS = 600
# More than any limit in tokens allows; what is longer is not read to its end.
_LONGEST_BYTES = 2_000_000
_LATER = "Nothing is changed yet. `ralph plan braindump --accept` accepts it."
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(cls=Command)
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--agent", metavar="AGENT", help="claude, codex, or a command of your own.")
@click.option("--yes", is_flag=True, help="Accept what the agent proposes without asking.")
@click.option("--accept", is_flag=True, help="Accept the proposal of an earlier run.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End the agent after so many seconds.",
)
@as_json
def braindump(
    file: str | None,
    agent: str | None,
    yes: bool,
    accept: bool,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Let an agent turn a text of requirements into features and tasks.

    What it proposes is shown as a diff and changes nothing until you accept it: at the question,
    with --yes, or later with --accept. - is stdin. It ends with 1 when you decline.
    """
    from ralph.loop.braindump import accept as bring_in
    from ralph.loop.braindump import drop_proposal, kept_proposal
    from ralph.plan.store import Plan

    if accept == (file is not None) or (accept and (yes or agent or timeout_s)):
        raise click.UsageError("Give a FILE, or --accept alone.")
    with opened() as ralph:
        done = None if accept else _planned(ralph, str(file), agent, timeout_s, moving=not as_json)
        proposal = done.proposal if done else kept_proposal(ralph)
        page = None if as_json else Page()
        if page is not None:
            _show(page, proposal, done)
        answer = True if yes or accept else _asked() if page is not None else None
        plan = Plan(ralph.project.root, state=ralph.project.cache)
        accepted = bring_in(plan, proposal) if answer else None
        if accepted is not None:
            drop_proposal(ralph)
    if page is None:
        print_json(_json(proposal, done, accepted))
    else:
        _tell(page, accepted)
    return _DECLINED if answer is False else 0


def _planned(
    ralph: Ralph, file: str, agent: str | None, timeout_s: float | None, *, moving: bool
) -> Planned:
    from ralph.doors.cli.commands.run import stop_on_signals, watching
    from ralph.loop.braindump import braindump as plan_with

    name = shown_name(file)
    requirements = _requirements(file, name)
    with stop_on_signals() as stop, contextlib.ExitStack() as stack:
        screen = watching("the agent plans", stop.is_set, root=str(ralph.project.root))
        return plan_with(
            ralph,
            requirements,
            source=name,
            agent=agent,
            timeout_s=timeout_s,
            listener=stack.enter_context(screen) if moving else lambda event: None,
            stop=stop,
        )


def _requirements(file: str, name: str) -> str:
    with opened_input(file) as opened_file:
        data = opened_file.read(_LONGEST_BYTES + 1)
    if len(data) > _LONGEST_BYTES:
        raise BadInput(
            f"is longer than {_LONGEST_BYTES // 1_000_000} MB",
            where=name,
            todo="Split it, and plan one part after the other.",
        )
    text = text_of(data, name)
    if "\0" in text:
        raise BadInput("is not a text", where=name, todo="Give requirements as plain text.")
    return text


def _asked() -> bool | None:
    """Yes or no from whoever sits there; None when nobody does."""
    if not (sys.stdin.isatty() and is_terminal(sys.stdout)):
        return None
    return click.confirm("Accept?", default=False)


def _show(page: Page, proposal: Proposal, done: Planned | None) -> None:
    if done is not None:
        for line in done.repaired:
            page.line(("plan: ", "yellow"), line)
        if done.summary:
            page.line(("The agent: ", "bold"), excerpt(done.summary, _SUMMARY_CHARS))
        for line in proposal.diff():
            page.line((line, _colour(line)))
    took = f" ({_took(done)})" if done else ""
    page.line((_counted(proposal), "bold"), took)
    for name in proposal.thin():
        page.line(("thin: ", "yellow"), f"the description of {name} is under 100 characters")


def _colour(line: str) -> str:
    return "bold" if line.startswith(("+++", "---")) else _COLOURS.get(line[:1], "")


def _tell(page: Page, accepted: Accepted | None) -> None:
    if accepted is None:
        page.line(_LATER)
        return
    for old, new in accepted.renumbered.items():
        page.line(f"Task {old} became task {new}: its number was taken meanwhile.")
    for problem in accepted.problems:
        page.line((f"{problem.severity} ", "yellow"), str(problem))
    page.line("Accepted. `ralph task ready` lists what can be worked on.")


def _counted(proposal: Proposal) -> str:
    """`2 features and 7 tasks added, 1 task changed`."""
    parts = []
    for verb in ("added", "changed", "removed"):
        counts = [
            count(len(names), kind.removesuffix("s"))
            for kind, changes in proposal.changes().items()
            if (names := getattr(changes, verb))
        ]
        if counts:
            parts.append(f"{' and '.join(counts)} {verb}")
    return ", ".join(parts) or "Nothing but comments and order changed"


def _took(done: Planned) -> str:
    from ralph.doors.cli.commands.run import duration, usd

    parts = [duration(done.duration_ms / 1000)]
    if done.tokens_used:
        parts.append(f"{done.tokens_used} tokens")
    if done.cost_usd:
        parts.append(usd(done.cost_usd))
    return ", ".join(parts)


def _json(proposal: Proposal, done: Planned | None, accepted: Accepted | None) -> dict[str, Any]:
    return {
        "accepted": accepted is not None,
        "source": proposal.source,
        **{
            kind: {verb: [number(key) for key in keys] for verb, keys in plain(changes).items()}
            for kind, changes in proposal.changes().items()
        },
        "diff": "\n".join(proposal.diff()),
        "summary": done.summary if done else "",
        "repaired": done.repaired if done else [],
        "cost_usd": done.cost_usd if done else None,
        "tokens_used": done.tokens_used if done else None,
        "duration_ms": done.duration_ms if done else None,
        "renumbered": accepted.renumbered if accepted else {},
        "problems": plain(accepted.problems) if accepted else [],
    }
