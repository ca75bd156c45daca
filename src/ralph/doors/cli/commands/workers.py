"""`ralph workers`, `summarizer`, `embeddings`, `rag`: the workers behind conversations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.context import conversations_folder, warnings_noted
from ralph.doors.cli.main import Command, Group, wants_json
from ralph.doors.cli.render import Page, Result, note, print_json_line
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.chat.worker import WorkerStatus
    from ralph.chat.worker_commands import WorkerCommands
    from ralph.chat.workers import GivenUp, Workers

_INTERRUPTED = 130
_LOOK_S = 0.5
_LISTED = 20


@click.group(cls=Group)
def workers() -> None:
    """Run the background workers, or show their status.

    They summarize and index conversations, and also run within `ralph chat`. One process at a time
    works; the others wait.
    """


@workers.command("run")
@click.option("--once", is_flag=True, help="Do the work that is pending, then exit.")
def run(once: bool) -> Result | int:
    """Run the workers that are switched on, until Ctrl-C.

    With --once, do the pending work and exit: with status 1 if something is left for the next run.

    \b
    Examples:
      ralph workers run
      ralph workers run --once --json
    """
    from ralph.chat import open_memory
    from ralph.chat.worker import ELSEWHERE
    from ralph.doors.cli.commands.run import stop_on_signals
    from ralph.memory.conversations import prune_if_due

    with _worker_commands() as (crew, _), stop_on_signals() as stop:
        with open_memory(conversations_folder(), waits=True) as ralph:
            prune_if_due(ralph.conversations)
        if once:
            statuses = crew.run_once(stop=stop)
            mine = [status for status in statuses if not status.note.startswith(ELSEWHERE)]
            left = any(status.total > status.completed for status in mine)
            return _statuses(statuses, [], code=_INTERRUPTED if stop.is_set() else int(left))
        printed: dict[str, WorkerStatus] = {}
        with crew:
            while not stop.is_set():
                _follow(crew, printed)
                stop.wait(_LOOK_S)
    return 0  # a signal is the normal way to end it


def _follow(crew: Workers, printed: dict[str, WorkerStatus]) -> None:
    """Start and stop workers as the settings say now, and print what has changed."""
    import msgspec

    from ralph.errors import RalphError

    try:
        crew.follow()
    except RalphError as error:
        note(str(error))
    for status in crew.statuses():
        shown = msgspec.structs.replace(status, current="", next_retry_s=None, total=0)
        if printed.get(status.name) == shown:
            continue
        printed[status.name] = shown
        if wants_json():
            print_json_line(msgspec.to_builtins(status))
        else:
            Page().line(_line(status))
            sys.stdout.flush()


def _line(status: WorkerStatus) -> str:
    parts = [f"{status.name}: {status.state} {status.completed:,}/{status.total:,}"]
    if status.failed:
        parts.append(f"failed {status.failed:,}")
    if status.retrying:
        parts.append(f"retrying {status.retrying:,}")
    if status.spend_usd:
        parts.append(f"${status.spend_usd:.4f}")
    if status.note:
        parts.append(status.note)
    return "  ".join(parts)


@workers.command("status")
def show_status() -> Result:
    """Show the status of each worker, in whichever process it runs, and what was given up."""
    with _worker_commands() as (crew, _):
        return _statuses(crew.statuses(), crew.given_up())


def _statuses(statuses: list[WorkerStatus], given_up: list[GivenUp], *, code: int = 0) -> Result:
    import msgspec

    value = msgspec.to_builtins({"workers": statuses, "given_up": given_up})
    off = "All workers are off. To switch them on: `ralph summarizer on`"
    view = (lambda page: _show(page, statuses, given_up)) if statuses else off
    return Result(value, view, code=code)


def _show(page: Page, statuses: list[WorkerStatus], given_up: list[GivenUp]) -> None:
    page.table(
        ("worker", "state", "done", "to do", "failed", "retrying", "given up", "spend", "note"),
        [
            (
                status.name,
                status.state,
                f"{status.completed:,}",
                f"{status.total - status.completed:,}",
                f"{status.failed:,}",
                f"{status.retrying:,}",
                f"{status.given_up:,}",
                f"${status.spend_usd:.2f}",
                status.note,
            )
            for status in statuses
        ],
    )
    if given_up:
        page.line()
        page.line(
            f"Given up: {plural(len(given_up), 'item')}. Try again: ralph conversations retry"
        )
        for item in given_up[:_LISTED]:
            page.line(str(item), indent=2)
        if len(given_up) > _LISTED:
            page.line(f"and {len(given_up) - _LISTED} more", indent=2)


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[conversation|exchange] [on|off]")
def summarizer(words: tuple[str, ...]) -> Result:
    """Show or switch the workers that summarize.

    `summarizer on` also switches on the embedding pipeline.

    \b
    Examples:
      ralph summarizer
      ralph summarizer exchange off
    """
    with _worker_commands() as (crew, commands):
        return _answer(crew, commands.summarizer(words))


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[on|off|rebuild [conversations|exchanges]]")
def embeddings(words: tuple[str, ...]) -> Result:
    """Show, switch or rebuild the embeddings.

    `rebuild` shows what it deletes and costs, and asks for a typed yes.

    \b
    Examples:
      ralph embeddings
      ralph embeddings rebuild conversations
    """
    with _worker_commands() as (crew, commands):
        return _answer(crew, commands.embeddings(words, _confirm))


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[on|off|config|set KEY VALUE]")
def rag(words: tuple[str, ...]) -> Result:
    """Show or change what is recalled before an answer.

    \b
    Examples:
      ralph rag off
      ralph rag set rag_conversation_limit 5
    """
    with _worker_commands() as (_, commands):
        lines = commands.rag(words)
        return Result({"lines": lines, "settings": commands.rag_settings()}, lines)


def _answer(crew: Workers, lines: list[str]) -> Result:
    import msgspec

    return Result({"lines": lines, "workers": msgspec.to_builtins(crew.statuses())}, lines)


def _confirm(question: str) -> str:
    """Ask on stderr and read a line; it is empty when nobody is there."""
    sys.stdout.flush()
    sys.stderr.write(question)
    sys.stderr.flush()
    typed = sys.stdin.readline()
    if not typed.endswith("\n") or not sys.stdin.isatty():
        sys.stderr.write("\n")
    return typed


@contextmanager
def _worker_commands() -> Iterator[tuple[Workers, WorkerCommands]]:
    """The workers of the project around this folder, or of the conversations outside projects."""
    from ralph.chat import open_memory
    from ralph.chat.worker_commands import WorkerCommands
    from ralph.chat.workers import Workers
    from ralph.memory.ralph import Ralph

    start = conversations_folder()

    def opened() -> Ralph:
        return open_memory(start, waits=True)

    with warnings_noted():
        crew = Workers(opened)
        yield crew, WorkerCommands(crew, opened, prefix="ralph ", in_chat=False)
