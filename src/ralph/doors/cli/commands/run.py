"""`ralph run`: drive an agent over the plan."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import styled
from ralph.doors.cli.commands.trust import tell_untrusted
from ralph.doors.cli.context import as_json, completing, number, opened, plan_feature
from ralph.doors.cli.render import (
    Page,
    count,
    excerpt,
    is_terminal,
    one_line,
    one_span,
    raw,
    to_json,
)
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

    from ralph.loop.environment import Listener, LoopEvent


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
    from ralph.loop.run import RunOptions
    from ralph.loop.run import run as run_loop

    options = RunOptions(
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


# -- What a run looks like while it goes on: a line for each fact, and one that moves.


_TITLE_CHARS = 60
_SUMMARY_CHARS = 160
_LEARNING_CHARS = 300
_ERRORS_SHOWN = 3
_REFRESHES_A_SECOND = 5
_OWN_SERVERS = ("feature-memory", "plan")


def json_listener(event: LoopEvent) -> None:
    """Each event as one line of JSON."""
    sys.stdout.write(to_json({"event": event.event, "at": event.at, **event.facts}) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def shown(stopping: Callable[[], bool] = lambda: False, *, root: str = "") -> Iterator[Listener]:
    """A listener for a person; on a terminal the last line says what the agent does now.

    Once `stopping`, it says that instead. Paths are shown relative to the `root`.
    """
    screen = _Screen(stopping, root)
    try:
        yield screen.hear
    finally:
        screen.rest()


@contextlib.contextmanager
def watching(text: str, stopping: Callable[[], bool], *, root: str) -> Iterator[Listener]:
    """A listener that shows, on a terminal, what a single run of an agent does now."""
    screen = _Screen(stopping, root)
    screen.move(_Moving(text, stopping))
    try:
        yield screen.hear
    finally:
        screen.rest()


class _Screen:
    def __init__(self, stopping: Callable[[], bool], root: str) -> None:
        self._page = Page()
        self._stopping = stopping
        self._root = root
        self._moving: _Moving | None = None
        self._live: Live | None = None

    def hear(self, event: LoopEvent) -> None:
        """Show one event; the moving line makes room for what stays."""
        if event.event != "doing":
            self.rest()
        show: Callable[[dict[str, Any]], None] = getattr(self, f"_{event.event}")
        show(event.facts)
        sys.stdout.flush()

    def rest(self) -> None:
        """Take the moving line away."""
        if self._live is not None:
            self._live.stop()
            self._live = self._moving = None

    def move(self, moving: _Moving) -> None:
        """Show a line that moves, where there is a terminal."""
        if not is_terminal(sys.stderr):
            return
        from rich.console import Console
        from rich.live import Live

        self._moving = moving
        self._live = Live(
            moving,
            console=Console(file=raw(sys.stderr), markup=False, highlight=False, emoji=False),
            refresh_per_second=_REFRESHES_A_SECOND,
            transient=True,
            # What is written meanwhile to stderr goes above the line, to stdout where it belongs.
            redirect_stdout=False,
        )
        self._live.start()

    def _memory(self, facts: dict[str, Any]) -> None:
        self._page.line((facts["line"], "bold" if facts["available"] else "yellow"))

    def _recovered(self, facts: dict[str, Any]) -> None:
        what = count(facts["iterations"], "unfinished iteration")
        self._page.line(f"Recorded {what} of an earlier run.")

    def _started(self, facts: dict[str, Any]) -> None:
        task = "review" if facts["review"] else f"task {facts['task_id']}"
        title = f"{facts['feature']}, {task}: {excerpt(facts['title'], _TITLE_CHARS)}"
        tokens = f"  ({facts['prompt_tokens']} tokens)"
        self._page.line(("> ", "bold"), (title, "bold"), (tokens, "dim"))
        self.move(_Moving("the agent starts", self._stopping))

    def _doing(self, facts: dict[str, Any]) -> None:
        if self._moving is not None:
            self._moving.text = _doing_line(facts, self._root)

    def _ended(self, facts: dict[str, Any]) -> None:
        parts = [f"iteration {facts['iteration']}", duration((facts["duration_ms"] or 0) / 1000)]
        if facts["cost_usd"]:
            parts.append(usd(facts["cost_usd"]))
        self._page.line(styled(facts["outcome"]), f"  {', '.join(parts)}", indent=2)
        if facts["summary"]:
            self._page.line(excerpt(facts["summary"], _SUMMARY_CHARS), indent=2)
        errors = facts["errors"]
        for message in errors[:_ERRORS_SHOWN]:
            self._page.line(("error: ", "red"), excerpt(message, _SUMMARY_CHARS), indent=2)
        if more := len(errors[_ERRORS_SHOWN:]):
            self._page.line((f"and {count(more, 'more error')}", "dim"), indent=2)
        failed = [_failed_server(name, facts["feature"]) for name in facts["mcp_failed"]]
        for what, names in (("denied", facts["denied"]), ("MCP failed", failed)):
            if names:
                told = ", ".join(dict.fromkeys(names))
                self._page.line((f"{what}: ", "yellow"), told, indent=2)
        if left := facts["left_behind"]:
            what = count(left, "process", "processes")
            self._page.line((f"ended {what} that the agent had left behind", "yellow"), indent=2)

    def _repaired(self, facts: dict[str, Any]) -> None:
        for line in facts["lines"]:
            self._page.line(("plan: ", "yellow"), line, indent=2)

    def _learned(self, facts: dict[str, Any]) -> None:
        for text in facts["learnings"]:
            self._page.line(("learned: ", "cyan"), excerpt(text, _LEARNING_CHARS), indent=2)
        for path in facts["context_files"]:
            self._page.line(("context file: ", "cyan"), path, indent=2)
        if facts["refused"]:
            self._page.line(("Learnings full - review needed", "yellow"), indent=2)

    def _waiting(self, facts: dict[str, Any]) -> None:
        until = f", until {facts['until']}" if facts["until"] else ""
        told = f"rate limit: waiting {duration(facts['seconds'])}{until}"
        self._page.line((told, "yellow"), indent=2)
        self.move(_Moving("the provider's limit", self._stopping))

    def _stopped(self, facts: dict[str, Any]) -> None:
        counts = [f"{n} {name}" for name, n in sorted(facts["outcomes"].items())]
        if facts["tokens_used"]:
            counts.append(f"{facts['tokens_used']} tokens")
        if facts["cost_usd"]:
            counts.append(usd(facts["cost_usd"]))
        told = f" ({', '.join(counts)})" if counts else ""
        self._page.line(("Stopped: ", "bold"), facts["detail"] + told)


class _Moving:
    """One line that is never wider than the terminal: how long it has taken, and what goes on."""

    def __init__(self, text: str, stopping: Callable[[], bool]) -> None:
        self.text = text
        self._stopping = stopping
        self._began = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        took = duration(int(time.monotonic() - self._began))
        text = "stopping: ending the agent, then recording" if self._stopping() else self.text
        yield Text(f"  {took:>4}  {one_span(text)}", style="dim", no_wrap=True, overflow="ellipsis")


def _doing_line(facts: dict[str, Any], root: str) -> str:
    parts = []
    if facts["waiting"]:
        parts.append(str(facts["waiting"]))
    if facts["cost_usd"]:
        parts.append(usd(facts["cost_usd"]))
    if facts["tool_uses"]:
        parts.append(count(facts["tool_uses"], "tool use"))
    if facts["last_tool"]:
        target = facts["last_target"] or ""
        shorter = target.replace(root + os.sep, "") if root else target
        parts.append(f"{facts['last_tool']} {shorter}")
    return one_line(", ".join(parts)) or "the agent thinks"


def _failed_server(name: str, feature: str) -> str:
    """A server that did not come up; for one of ours, how to see why."""
    if name not in _OWN_SERVERS:
        return name
    return f"{name} (to see why, run: ralph mcp {quote(f'--feature={feature}')})"


def duration(seconds: float) -> str:
    """A stretch of time as people say it."""
    if seconds >= 60:
        minutes, rest = divmod(int(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    return f"{seconds} s" if isinstance(seconds, int) else f"{seconds:.1f} s"


def usd(amount: float) -> str:
    """An amount of money, small ones with more digits."""
    return f"{amount:.4f} USD" if amount < 1 else f"{amount:.2f} USD"
