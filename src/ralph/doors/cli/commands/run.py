"""`ralph run` and `ralph demo`: run an agent on the plan, and show what it does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from shlex import join, quote
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ralph.config import home_folder
from ralph.doors.cli import context, main, render
from ralph.doors.cli.cards import styled
from ralph.doors.cli.main import Command, server_given, wants_json
from ralph.doors.cli.render import Page, console, excerpt, is_terminal, note, one_line, one_span
from ralph.memory.project import untrusted
from ralph.memory.servers import find_login, save_run_token
from ralph.state_folders import state_folder
from ralph.text.sanitize import plain_date
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from ralph.loop.agent import Listener, LoopEvent

_BUDGET = "Stop when the iterations have cost this much."
_SUMMARY_CHARS = 160
_CHANGES_SHOWN = 10
_ERRORS_SHOWN = 3


@click.command(cls=Command)
@context.plan_feature(help="Only tasks of this feature.")
@context.task_option("Only this task.", "task_id")
@context.option("--max-iterations", "Stop after N iterations.", "N", type=click.IntRange(1))
@context.agent_option
@context.timeout_option
@context.option("--budget-usd", _BUDGET, "X", type=context.POSITIVE)
@context.flag("--worktree", "Work in a git worktree on a branch of its own, one for each feature.")
@context.flag("--commit", "Commit after each successful iteration.")
@context.flag("--dry-run", "Show what would run first. Start and write nothing.")
def run(task_id: str | None, dry_run: bool, **given: Any) -> Any:
    """Run an agent on the plan, and learn from each iteration.

    It stops when no task is ready, after --max-iterations, when iterations no longer change
    anything, when the budget is spent, or on Ctrl-C, which still records the current iteration (a
    second Ctrl-C leaves that to the next run). With --json each event is one line.

    \b
    Examples:
      ralph run --max-iterations 3
      ralph run --feature auth --agent codex --budget-usd 5
      ralph run --worktree --commit
    """
    from ralph.loop.run import RunOptions, preview
    from ralph.loop.run import run as run_loop

    options = RunOptions(task_id=context.number(task_id), **given)
    if waiting := untrusted(context.the_project(), home=home_folder()):
        asked = "; ".join(wish.text for wish in waiting)
        note(f"ignored, because you have not allowed it: {asked}. To see and allow it: ralph trust")
    if dry_run:
        with context.opened(anywhere=False) as ralph:
            found = preview(ralph, options)
        return render.Result(found, partial(_show_preview, found))
    memory = context.opened(anywhere=False, captures=True)
    with memory as ralph, stop_on_signals() as stop, contextlib.ExitStack() as stack:
        root = str(ralph.project.root)
        progress = ralph.progress
        if login := find_login(ralph.project.home, root, given=server_given()):
            save_run_token(ralph.project.home, login, root)
        listener: Listener = json_listener
        if not wants_json():
            listener = stack.enter_context(shown(stop.is_set, progress, root=root))
        stopped = run_loop(ralph, options, listener=listener, stop=stop)
    return main.INTERRUPTED if stopped.reason == "interrupted" else 0


def _show_preview(found: dict[str, Any], page: Page) -> None:
    """Show what would run first; list the allowed commands at the end."""
    if found["task_id"] is None:
        page.line(f"Nothing would run: {found['detail']}.")
        return
    rules = [word for word in found["command"] if word.startswith("Bash(")]
    fields = {
        "next": found.pop("detail"),
        "timeout": duration(found.pop("timeout_s")).removesuffix(" 0 s"),
        **found,
        **{name: "yes" if found[name] else "no" for name in ("review", "commit")},
        "budget_usd": found["budget_usd"] or "none",
        "permissions": found["permissions"] or "your own command decides",
        "command": join(word for word in found["command"] if word not in rules),
        "allowed_commands": ", ".join(rule[5:-3] for rule in rules),
    }
    page.fields(fields)
    page.line("Nothing was started or written.")


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C, TERM or a closed terminal; a second Ctrl-C stops at once."""
    stop = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt  # the next run records the unfinished iteration
        stop.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    # With nohup, a run goes on when its terminal is closed.
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- the screen


def json_listener(event: LoopEvent) -> None:
    """Print each event as one line of JSON."""
    render.print_json_line({"event": event.event, "at": event.at, **event.facts})


@contextlib.contextmanager
def shown(
    stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] | None = None,
    *,
    root: str = "",
    moving: str = "",
) -> Iterator[Listener]:
    """Yield a listener that shows events; on a terminal the last line shows the agent's activity.

    Once `stopping`, that line says so. The bar of `progress` makes room for it. `moving` is its
    first text. Paths are shown relative to `root`.
    """
    bar = progress if isinstance(progress, context.Bar) else context.Bar(lambda: None)
    with contextlib.closing(RunScreen(stopping, root, bar)) as screen:
        if moving:
            screen.move(moving)
        yield screen.listen


class RunScreen:
    """Prints the events of a run; on a terminal, with a moving line below them."""

    def __init__(self, stopping: Callable[[], bool], root: str, bar: context.Bar) -> None:
        self._page = Page()
        self._bar = bar
        self._stopping = stopping
        self._root = root
        self._text = ""
        self._start = 0.0
        self._live: Live | None = None

    def listen(self, event: LoopEvent) -> None:
        """Show one event; remove the moving line first."""
        if event.event != "doing":
            self.close()
            self._bar.hide()
        getattr(self, f"_{event.event}")(event.facts)
        sys.stdout.flush()

    def close(self) -> None:
        """Remove the moving line."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def move(self, text: str) -> None:
        """Show a moving line, if there is a terminal."""
        if not is_terminal(sys.stderr):
            return
        from rich.live import Live

        self._bar.hide(silent=True)
        self._text, self._start = text, time.monotonic()
        self._live = Live(
            get_renderable=self._moving_line,
            console=console(sys.stderr),
            refresh_per_second=5,
            transient=True,
            # Text for stderr goes above the line; text for stdout goes to stdout.
            redirect_stdout=False,
        )
        self._live.start(refresh=True)  # now: a quick agent may end before the next tick

    def _moving_line(self) -> Text:
        """Return one line with the time so far and the agent's activity, cut to the terminal."""
        from rich.text import Text

        text = "stopping the agent, then recording" if self._stopping() else self._text
        line = f"  {duration(int(time.monotonic() - self._start)):>4}  {one_span(text)}"
        return Text(line, style="dim", no_wrap=True, overflow="ellipsis")

    def _memory(self, facts: dict[str, Any]) -> None:
        self._page.line((facts["line"], "bold" if facts["available"] else "yellow"))

    def _permissions(self, facts: dict[str, Any]) -> None:
        for line in facts["lines"]:
            self._page.line(line)

    def _worktree(self, facts: dict[str, Any]) -> None:
        self._page.line(f"Worktree of {facts['feature']}: {facts['path']} ({facts['branch']})")

    def _committed(self, facts: dict[str, Any]) -> None:
        left_out = ", ".join(facts["left_out"])
        why = facts["error"] or (left_out and f"{left_out} had changes before this run")
        made = facts["commit"] and f"{facts['commit']}, {plural(facts['files'], 'file')}"
        for word, text in (("committed", made), ("not committed", why)):
            if text:
                self._page.line((f"{word}: ", "yellow"), excerpt(text, 300), indent=2)

    def _recovered(self, facts: dict[str, Any]) -> None:
        what = plural(facts["iterations"], "unfinished iteration")
        self._page.line(f"Recorded {what} of an earlier run.")

    def _started(self, facts: dict[str, Any]) -> None:
        task = "review" if facts["review"] else f"task {facts['task_id']}"
        title = f"{facts['feature']}, {task}: {excerpt(facts['title'], 60)}"
        tokens = f"  ({facts['prompt_tokens']} tokens)"
        self._page.line(("> ", "bold"), (title, "bold"), (tokens, "dim"))
        self.move("starting the agent")

    def _doing(self, facts: dict[str, Any]) -> None:
        self._text = _doing_line(facts, self._root)

    def _ended(self, facts: dict[str, Any]) -> None:
        cost = cost_text(facts["duration_ms"] or 0, None, facts["cost_usd"])
        parts = [f"iteration {facts['iteration']}", *cost]
        why = f" ({facts['reason']})" if facts["reason"] else ""
        self._page.line(styled(facts["outcome"]), f"  {', '.join(parts)}{why}", indent=2)
        if facts["summary"]:
            self._page.line(excerpt(facts["summary"], _SUMMARY_CHARS), indent=2)
        errors = facts["errors"]
        for message in errors[:_ERRORS_SHOWN]:
            self._page.line(("error: ", "red"), excerpt(message, _SUMMARY_CHARS), indent=2)
        self._page.more(len(errors) - _ERRORS_SHOWN, "error")
        failed = [_failed_server(name, facts["feature"]) for name in facts["mcp_failed"]]
        for what, names in (("denied", facts["denied"]), ("MCP failed", failed)):
            if names:
                self._page.line((f"{what}: ", "yellow"), ", ".join(dict.fromkeys(names)), indent=2)
        if left := facts["left_behind"]:
            what = f"stopped {plural(left, 'process', 'processes')} that the agent left running"
            self._page.line((what, "yellow"), indent=2)

    def _repaired(self, facts: dict[str, Any]) -> None:
        for line in facts["lines"]:
            self._page.line(("plan: ", "yellow"), line, indent=2)

    def _journal(self, facts: dict[str, Any]) -> None:
        for line in facts["lines"]:
            self._page.line(("journal: ", "yellow"), line, indent=2)

    def _changed(self, facts: dict[str, Any]) -> None:
        lines = facts["lines"]
        for line in lines[:_CHANGES_SHOWN]:
            self._page.line(("changed: ", "yellow"), line, indent=2)
        self._page.more(len(lines) - _CHANGES_SHOWN, "change")
        self._page.line((f"To undo this: ralph undo {facts['undo']}", "dim"), indent=2)

    def _learned(self, facts: dict[str, Any]) -> None:
        for text in facts["learnings"]:
            self._page.line(("learned: ", "cyan"), excerpt(text, 300), indent=2)
        for path in facts["context_files"]:
            self._page.line(("context file: ", "cyan"), path, indent=2)
        if facts["refused"]:
            self._page.line(("Learnings full - review needed", "yellow"), indent=2)

    def _waiting(self, facts: dict[str, Any]) -> None:
        until = f", until {plain_date(facts['until'], 16)}" if facts["until"] else ""
        text = f"rate limit: waiting {duration(facts['seconds'])}{until}"
        self._page.line((text, "yellow"), indent=2)
        self.move("waiting for the provider's limit")

    def _stopped(self, facts: dict[str, Any]) -> None:
        counts = [f"{n} {name}" for name, n in sorted(facts["outcomes"].items())]
        counts += [f"{facts['tokens_used']} tokens"] if facts["tokens_used"] else []
        counts += [usd(facts["cost_usd"])] if facts["cost_usd"] else []
        after = f" ({', '.join(counts)})" if counts else ""
        self._page.line(("Stopped: ", "bold"), facts["detail"] + after)
        for hint in facts["hints"]:
            self._page.line(hint)


def _doing_line(facts: dict[str, Any], root: str) -> str:
    target = facts["last_target"] or ""
    shorter = target.replace(root + os.sep, "") if root else target
    parts = {
        "waiting": str(facts["waiting"]),
        "cost_usd": usd(facts["cost_usd"] or 0),
        "tool_uses": plural(facts["tool_uses"] or 0, "tool use"),
        "last_tool": f"{facts['last_tool']} {shorter}",
    }
    doing = ", ".join(text for name, text in parts.items() if facts[name])
    return one_line(doing) or "the agent is thinking"


def _failed_server(name: str, feature: str) -> str:
    """Name a server that failed to start; for our own, say how to see why."""
    if name not in ("feature-memory", "plan"):
        return name
    return f"{name} (to see why, run: ralph mcp {quote(f'--feature={feature}')})"


def duration(seconds: float) -> str:
    """Format a duration for people."""
    if seconds >= 60:
        minutes, rest = divmod(int(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    return f"{seconds} s" if isinstance(seconds, int) else f"{seconds:.1f} s"


def usd(amount: float) -> str:
    """Format an amount of money; small ones get more digits."""
    return f"{amount:.4f} USD" if amount < 1 else f"{amount:.2f} USD"


def cost_text(duration_ms: float, tokens: int | None, cost_usd: float | None) -> list[str]:
    """List what an agent used: time, tokens, money."""
    parts = [duration(duration_ms / 1000)]
    parts += [f"{tokens} tokens"] if tokens else []
    return [*parts, usd(cost_usd)] if cost_usd else parts


# -- demo


@click.command(cls=Command, json=False)
@context.flag("--keep", "Keep the project afterwards.")
def demo(keep: bool) -> int:
    """Run the loop with a scripted agent in a temporary project.

    The agent plays a script instead of asking a model; everything else is the real loop. Nothing
    is written outside a temporary directory.

    \b
    Examples:
      ralph demo
      ralph demo --keep
    """
    page = Page()
    with _scratch(keep=keep) as folder:
        code = _tell(page, folder / "project")
    page.line()
    page.line(f"Kept in {folder / 'project'}" if keep else "The temporary project is deleted.")
    return code


def _tell(page: Page, project: Path) -> int:
    """Play the demo: two tasks, where the first attempt fails and later ones learn from it.

    It runs the commands that a user would type, and stops with the exit code of one that fails.
    """
    script = _unpacked(project)
    os.chdir(project)
    agent = f"{quote(sys.executable)} -P -m ralph.loop.scripted {quote(str(script))}"
    story: list[str | list[str]] = json.loads(script.read_text(encoding="utf-8"))["story"]
    for step in story:
        page.line()
        if isinstance(step, str):
            page.line((step, "bold"))
            continue
        if step == story[-1]:
            shutil.rmtree(state_folder(project))
        line = " ".join(f'"{word}"' if " " in word else word for word in step)
        page.line(("$ ", "dim"), (f"ralph {line}", "bold cyan"))
        sys.stdout.flush()
        if code := main.run([agent if word == "SCRIPTED" else word for word in step]):
            return code
    return 0


def _unpacked(project: Path) -> Path:
    """Write the demo's project files and the agent's script; return the script's path."""
    text = files("ralph.loop").joinpath("scripts", "demo.json").read_text(encoding="utf-8")
    project.mkdir(parents=True)
    for name, content in json.loads(text)["files"].items():
        (project / name).write_text(content, encoding="utf-8")
    script = project.parent / "script.json"
    script.write_text(text, encoding="utf-8")
    return script


@contextlib.contextmanager
def _scratch(*, keep: bool) -> Iterator[Path]:
    """Yield a temporary directory with its own Ralph home; no other settings or projects apply."""
    folder = Path(tempfile.mkdtemp(prefix="ralph-demo-")).resolve()
    before = dict(os.environ)
    here = folder.parent
    with contextlib.suppress(FileNotFoundError):  # the current directory may be deleted
        here = Path.cwd()
    for name in before:
        if name.startswith("RALPH_") and name != "RALPH_DEBUG":
            del os.environ[name]
    os.environ |= {"RALPH_HOME": str(folder / "home"), "PAGER": "cat"}
    try:
        yield folder
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
