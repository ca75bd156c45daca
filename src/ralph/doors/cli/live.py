"""What a run looks like while it goes on: a line for each fact, and one that moves."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.doors.cli.page import Page, excerpt, is_terminal, one_line

if TYPE_CHECKING:
    from rich.status import Status

    from ralph.loop.events import Event, Listener

_OUTCOME_STYLES = {
    "success": "green",
    "partial": "yellow",
    "failure": "red",
    "timeout": "red",
    "rate_limited": "yellow",
}
_SUMMARY_CHARS = 160


def json_listener(event: Event) -> None:
    """Each event as one line of JSON."""
    plain = {"event": event.event, "at": event.at, **event.facts}
    sys.stdout.write(msgspec.json.encode(plain).decode() + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def shown() -> Iterator[Listener]:
    """A listener for a person; on a terminal the last line says what the agent does now."""
    screen = _Screen()
    try:
        yield screen.hear
    finally:
        screen.rest()


class _Screen:
    def __init__(self) -> None:
        self._page = Page()
        self._status: Status | None = None
        self._title = ""
        self._began = 0.0

    def hear(self, event: Event) -> None:
        """Show one event."""
        name = f"_{event.event}"
        getattr(self, name)(event.facts)
        sys.stdout.flush()

    def rest(self) -> None:
        """Take the moving line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _memory(self, facts: dict[str, Any]) -> None:
        self._page.line((facts["line"], "bold" if facts["available"] else "yellow"))

    def _recovered(self, facts: dict[str, Any]) -> None:
        self._page.line(
            f"Recorded {facts['iterations']} unfinished iteration(s) of an earlier run."
        )

    def _started(self, facts: dict[str, Any]) -> None:
        task = "review" if facts["review"] else f"task {facts['task_id']}"
        self._title = f"{facts['feature']}, {task}: {excerpt(facts['title'], 60)}"
        self._began = time.monotonic()
        self._page.line(
            ("> ", "bold"), self._title, (f"  ({facts['prompt_tokens']} tokens)", "dim")
        )
        if is_terminal(sys.stderr):
            from rich.console import Console

            self._status = Console(stderr=True, markup=False).status("starting the agent")
            self._status.start()

    def _doing(self, facts: dict[str, Any]) -> None:
        if self._status is None:
            return
        parts = [f"{time.monotonic() - self._began:.0f} s"]
        if facts["last_tool"]:
            parts.append(f"{facts['last_tool']} {facts['last_target'] or ''}".strip())
        if facts["cost_usd"]:
            parts.append(f"{facts['cost_usd']:.2f} USD")
        if facts["waiting"]:
            parts.append(str(facts["waiting"]))
        self._status.update(one_line(", ".join(parts)))

    def _ended(self, facts: dict[str, Any]) -> None:
        self.rest()
        style = _OUTCOME_STYLES.get(facts["outcome"], "")
        cost = f", {facts['cost_usd']:.4f} USD" if facts["cost_usd"] else ""
        seconds = (facts["duration_ms"] or 0) / 1000
        self._page.line(
            (facts["outcome"], style),
            f"  iteration {facts['iteration']}, {seconds:.1f} s{cost}",
            indent=2,
        )
        if facts["summary"]:
            self._page.line(excerpt(facts["summary"], _SUMMARY_CHARS), indent=2)
        for message in facts["errors"][:3]:
            self._page.line(("error: ", "red"), excerpt(message, _SUMMARY_CHARS), indent=2)
        for what, names in (("denied", facts["denied"]), ("MCP failed", facts["mcp_failed"])):
            if names:
                self._page.line((f"{what}: ", "yellow"), ", ".join(names), indent=2)

    def _repaired(self, facts: dict[str, Any]) -> None:
        for line in facts["lines"]:
            self._page.line(("plan: ", "yellow"), line, indent=2)

    def _learned(self, facts: dict[str, Any]) -> None:
        for text in facts["learnings"]:
            self._page.line(("learned: ", "cyan"), text, indent=2)
        for path in facts["context_files"]:
            self._page.line(("context file: ", "cyan"), path, indent=2)
        if facts["refused"]:
            self._page.line(("Learnings full - review needed", "yellow"), indent=2)

    def _waiting(self, facts: dict[str, Any]) -> None:
        until = f", until {facts['until']}" if facts["until"] else ""
        self._page.line(
            (f"Rate limit: waiting {facts['seconds']:.0f} s{until}", "yellow"), indent=2
        )

    def _stopped(self, facts: dict[str, Any]) -> None:
        self.rest()
        counts = ", ".join(f"{n} {name}" for name, n in sorted(facts["outcomes"].items()))
        cost = f", {facts['cost_usd']:.4f} USD" if facts["cost_usd"] else ""
        self._page.line(
            ("Stopped: ", "bold"), facts["detail"] + (f" ({counts}{cost})" if counts else "")
        )
