"""`ralph run`: drive an agent over the plan."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import click

from ralph.doors.cli.commands.trust import tell_untrusted
from ralph.doors.cli.opening import as_json, opened
from ralph.doors.cli.planning import completing, number, plan_feature
from ralph.doors.cli.tree import Command

_INTERRUPTED = 130


@click.command(cls=Command)
@plan_feature(help="Only tasks of this feature.")
@click.option(
    "--task",
    "task_id",
    metavar="ID",
    shell_complete=completing("tasks"),
    help="Only this task.",
)
@click.option(
    "--max-iterations", type=click.IntRange(1), metavar="N", help="Stop after so many iterations."
)
@click.option("--agent", metavar="AGENT", help="claude, codex, or a command of your own.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End an iteration's agent after so many seconds.",
)
@click.option(
    "--budget-usd",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Stop when the iterations have cost this much.",
)
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
    """Drive an agent over the plan, and learn from each iteration.

    It stops when no task is ready, after --max-iterations, when iterations change nothing any
    more, when the budget is spent, or on Ctrl-C, which still records the iteration under way (a
    second Ctrl-C leaves that to the next run). With --json each event is one line.
    """
    from ralph.doors.cli.live import json_listener, shown
    from ralph.loop.run import Options
    from ralph.loop.run import run as run_loop

    options = Options(
        feature=feature,
        task_id=number(task_id),
        agent=agent,
        max_iterations=max_iterations,
        timeout_s=timeout_s,
        budget_usd=budget_usd,
    )
    tell_untrusted()
    with opened() as ralph, stop_on_signals() as stop, contextlib.ExitStack() as stack:
        root = str(ralph.project.root)
        screen = shown(stop.is_set, root=root)
        listener = json_listener if as_json else stack.enter_context(screen)
        stopped = run_loop(ralph, options, listener=listener, stop=stop)
    return _INTERRUPTED if stopped.reason == "interrupted" else 0


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Ctrl-C, TERM and a closed terminal ask the run to stop; asked twice it stops at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt  # what is unfinished the next run records
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    # Whoever wants a run to outlive its terminal (nohup) has said so.
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, ask)
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
