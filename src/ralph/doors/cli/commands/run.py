"""`ralph run`: drive an agent over the plan."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import click

from ralph.doors.cli.opening import as_json, feature_option, opened
from ralph.doors.cli.tree import Command

_INTERRUPTED = 130


@click.command(cls=Command)
@feature_option
@click.option("--task", "task_id", metavar="ID", help="Only this task.")
@click.option("--max-iterations", type=click.IntRange(1), metavar="N")
@click.option("--agent", metavar="AGENT", help="claude, codex, or a command of your own.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), metavar="S")
@click.option("--budget-usd", type=click.FloatRange(0, min_open=True), metavar="X")
@as_json
def run(
    feature: str | None,
    task_id: str | None,
    max_iterations: int | None,
    agent: str | None,
    timeout_s: float | None,
    budget_usd: float | None,
    as_json: bool,
) -> int:
    """Drive an agent over the plan, one task an iteration, and learn from each.

    It stops when no task is ready, after --max-iterations, when iterations change nothing any
    more, when the budget is spent, or on Ctrl-C, which still records the iteration under way.
    With --json each event is one line.
    """
    from ralph.doors.cli.live import json_listener, shown
    from ralph.loop.run import Options
    from ralph.loop.run import run as run_loop

    options = Options(
        feature=feature,
        task_id=task_id,
        agent=agent,
        max_iterations=max_iterations,
        timeout_s=timeout_s,
        budget_usd=budget_usd,
    )
    with opened() as ralph, _stop_on_signals() as stop, contextlib.ExitStack() as stack:
        listener = json_listener if as_json else stack.enter_context(shown())
        stopped = run_loop(ralph, options, listener=listener, stop=stop)
    return _INTERRUPTED if stopped.reason == "interrupted" else 0


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Ctrl-C and TERM ask the run to stop: the agent is ended and its iteration recorded."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, ask) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
