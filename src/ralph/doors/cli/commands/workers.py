"""`ralph workers`, `summarizer`, `embeddings`, `rag`: what works behind conversations."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.opening import as_json, start_folder, the_project, warnings_told
from ralph.doors.cli.page import Page, count, note, print_json, to_json
from ralph.doors.cli.tree import Command, Group, project_given

if TYPE_CHECKING:
    from ralph.chat.commands import Commands
    from ralph.chat.workers import GivenUp, Workers, WorkerStatus

_INTERRUPTED = 130
_LOOK_S = 0.5
_LISTED = 20


@click.group(cls=Group)
def workers() -> None:
    """Run the workers that summarise and index conversations, or look at them.

    They run within `ralph chat` too; whichever process comes first works, the others wait.
    """


@workers.command("run")
@click.option("--once", is_flag=True, help="Do what there is to do, and end.")
@as_json
def run(once: bool, as_json: bool) -> int:
    """Run the workers that are switched on, until Ctrl-C.

    With --once it does what there is to do now and ends: with 1 if something is left, which the
    next run tries again.
    """
    from ralph.chat.workers import ELSEWHERE
    from ralph.doors.cli.commands.run import stop_on_signals

    with _steered() as (crew, _), stop_on_signals() as stop:
        _pruned()
        if once:
            told = crew.run_once(stop=stop)
            _show(told, [], as_json=as_json)
            if stop.is_set():
                return _INTERRUPTED
            mine = [one for one in told if not one.note.startswith(ELSEWHERE)]
            return 1 if any(one.total > one.completed for one in mine) else 0
        told_before: dict[str, WorkerStatus] = {}
        with crew:
            while not stop.is_set():
                _follow(crew, told_before, as_json=as_json)
                stop.wait(_LOOK_S)
    return 0  # to be told to stop is how it ends


def _pruned() -> None:
    """What is too old to be kept goes first, once a day."""
    from ralph.chat.opening import open_memory
    from ralph.memory.conversation_stream import prune_if_due

    with open_memory(_start(), waits=True) as ralph:
        prune_if_due(ralph.conversations)


def _follow(crew: Workers, before: dict[str, WorkerStatus], *, as_json: bool) -> None:
    """Start and stop as the settings say now, and print what has changed."""
    import msgspec

    from ralph.errors import RalphError

    try:
        crew.follow()
    except RalphError as error:
        note(str(error))
    for one in crew.statuses():
        told = msgspec.structs.replace(one, current="", next_retry_s=None, total=0)
        if before.get(one.name) == told:
            continue
        before[one.name] = told
        if as_json:
            sys.stdout.write(to_json(msgspec.to_builtins(one)) + "\n")
        else:
            Page().line(_line(one))
        sys.stdout.flush()


def _line(one: WorkerStatus) -> str:
    parts = [f"{one.name}: {one.state} {one.completed:,}/{one.total:,}"]
    if one.failed:
        parts.append(f"failed {one.failed:,}")
    if one.retrying:
        parts.append(f"retrying {one.retrying:,}")
    if one.spend_usd:
        parts.append(f"${one.spend_usd:.4f}")
    if one.note:
        parts.append(one.note)
    return "  ".join(parts)


@workers.command()
@as_json
def status(as_json: bool) -> None:
    """Tell how each worker stands, whichever process it runs in, and what was given up."""
    with _steered() as (crew, _):
        _show(crew.statuses(), crew.given_up(), as_json=as_json)


def _show(told: list[WorkerStatus], given_up: list[GivenUp], *, as_json: bool) -> None:
    import msgspec

    if as_json:
        plain = {"workers": msgspec.to_builtins(told), "given_up": msgspec.to_builtins(given_up)}
        print_json(plain)
        return
    page = Page()
    if not told:
        page.line("All workers are off. `ralph summarizer on` switches them on.")
        return
    heads = ("worker", "state", "done", "to do", "failed", "retrying", "given up", "spend", "note")
    page.table(
        heads,
        [
            (
                one.name,
                one.state,
                f"{one.completed:,}",
                f"{one.total - one.completed:,}",
                f"{one.failed:,}",
                f"{one.retrying:,}",
                f"{one.given_up:,}",
                f"${one.spend_usd:.2f}",
                one.note,
            )
            for one in told
        ],
    )
    if given_up:
        page.line()
        page.line(
            f"Given up: {count(len(given_up), 'item')}. ralph conversations retry tries again."
        )
        for one in given_up[:_LISTED]:
            page.line(str(one), indent=2)
        if len(given_up) > _LISTED:
            page.line(f"and {len(given_up) - _LISTED} more", indent=2)


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[conversation|exchange] [on|off]")
@as_json
def summarizer(words: tuple[str, ...], as_json: bool) -> None:
    """Look at the workers that summarise, or switch them on or off.

    `summarizer on` switches the embedding pipeline on as well.
    """
    with _steered() as (crew, commands):
        _answer(crew, commands.summarizer(words), as_json=as_json)


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[on|off|rebuild [conversations|exchanges]]")
@as_json
def embeddings(words: tuple[str, ...], as_json: bool) -> None:
    """Look at the worker that indexes, switch it on or off, or make all embeddings anew.

    `rebuild` says what it deletes and costs, and asks for a typed yes.
    """
    with _steered() as (crew, commands):
        _answer(crew, commands.embeddings(words, _confirm), as_json=as_json)


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[on|off|config|set KEY VALUE]")
@as_json
def rag(words: tuple[str, ...], as_json: bool) -> None:
    """Look at what is recalled before an answer, switch it on or off, or change it."""
    with _steered() as (_, commands):
        lines = commands.rag(words)
        if as_json:
            print_json({"lines": lines, "settings": commands.rag_settings()})
        else:
            _print(lines)


def _answer(crew: Workers, lines: list[str], *, as_json: bool) -> None:
    import msgspec

    if as_json:
        print_json({"lines": lines, "workers": msgspec.to_builtins(crew.statuses())})
    else:
        _print(lines)


def _print(lines: list[str]) -> None:
    page = Page()
    for line in lines:
        page.line(line.strip(), indent=len(line) - len(line.lstrip()))


def _confirm(question: str) -> str:
    """What is typed to the question; nothing where nobody is there."""
    sys.stdout.flush()
    sys.stderr.write(question)
    sys.stderr.flush()
    typed = sys.stdin.readline()
    if not typed.endswith("\n") or not sys.stdin.isatty():
        sys.stderr.write("\n")
    return typed


@contextmanager
def _steered() -> Iterator[tuple[Workers, Commands]]:
    """The workers of the project around this folder, or of what belongs to none."""
    from ralph.chat.commands import Commands
    from ralph.chat.opening import open_memory
    from ralph.chat.workers import Workers
    from ralph.memory.ralph import Ralph

    start = _start()

    def opened() -> Ralph:
        return open_memory(start, waits=True)

    with warnings_told():
        crew = Workers(opened)
        yield crew, Commands(crew, opened, said="ralph ", here=False)


def _start() -> Path:
    """Where to look for conversations; a project that was named must be one."""
    if project_given() or os.environ.get("RALPH_PROJECT"):
        return the_project().root
    return start_folder()
