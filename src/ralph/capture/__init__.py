"""Turn the lines that an agent printed into one AgentRun, plus complaints about bad lines.

Capture is dumb and total: it reads whatever it is given, never raises on a line, keeps little,
redacts what it keeps, and never treats text that Ralph put into the prompt as something new.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from ralph.capture.anchors import Anchor
from ralph.records import Complaint
from ralph.records.iteration import CheckRun, Decision, ErrorSeen, FileTouched, Iteration, Outcome

# The name of an output format; the modules in clients/ define them.
Dialect = str

# How a run ended. `unknown`: a transcript does not say, and may still be growing.
TerminalReason = Literal[
    "ok",
    "error",
    "api_error",
    "rate_limited",
    "refused",
    "prompt_too_long",
    "max_turns",
    "max_budget",
    "interrupted",
    "killed",
    "unknown",
]


# The fields that an iteration takes from a run unchanged.
_ITERATION_FIELDS = (
    "summary errors decisions files_touched tokens_used cost_usd duration_ms model session_id"
).split()


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of an agent, redacted, before anybody judged it.

    `is_error` is what the agent itself said, or True if it could not say anything. `tokens_used`
    counts everything that was processed, including cached input. `cost_usd` is the cost of the
    session; for a resumed session it includes what came before. `permission_denials` has one tool
    per denial, for a shell with its command. `outcome` is what the run itself proves, and
    `failed_check` the last command that checked the work, if it failed. `stumbles`
    counts the failures that were not worth keeping, and `shapes` those of them that one can learn
    from if they are made again and again. `anchors` are the lines that it left in files.
    """

    dialect: Dialect
    session_id: str | None = None
    model: str | None = None
    title: str = ""
    summary: str = ""
    outcome: Outcome = "unknown"
    errors: tuple[ErrorSeen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    files_touched: tuple[FileTouched, ...] = ()
    checks: tuple[CheckRun, ...] = ()
    failed_check: str = ""
    anchors: tuple[Anchor, ...] = ()
    tokens_used: int | None = None
    cost_usd: float | None = None
    duration_ms: int | None = None
    num_turns: int | None = None
    is_error: bool = False
    terminal_reason: TerminalReason = "unknown"
    api_status: int | None = None
    rate_limit_resets_at: str | None = None
    permission_denials: tuple[str, ...] = ()
    mcp_failed: tuple[str, ...] = ()
    used_tools: dict[str, int] = {}
    stumbles: dict[str, int] = {}
    shapes: dict[str, int] = {}
    started_at: str | None = None
    ended_at: str | None = None

    def to_iteration(
        self, *, feature: str, outcome: Outcome | None = None, **facts: Any
    ) -> Iteration:
        """Return this run as an iteration; the caller adds the facts that only it knows.

        Without `outcome`, it is `rate_limited` or what the run proves: never a failure by default.
        """
        limited = self.terminal_reason == "rate_limited"
        own = {name: getattr(self, name) for name in _ITERATION_FIELDS}
        own |= {"timestamp": self.ended_at, "outcome": "rate_limited" if limited else self.outcome}
        if self.terminal_reason == "killed" and self.summary:
            own["summary"] = f"{self.summary}\nThe run was killed before it ended."
        known = {name: fact for name, fact in facts.items() if fact is not None}
        known["task_title"] = known.get("task_title") or self.title
        if outcome is not None:
            known["outcome"] = outcome
        return Iteration(feature=feature, **{**own, **known})


class Live(msgspec.Struct):
    """The state of an agent that is still running; the caller has the clock."""

    last_tool: str | None = None
    last_target: str | None = None
    tool_uses: int = 0
    # Tool calls in progress; calls left running in the background count until the end.
    running: int = 0
    turns: int = 0
    cost_usd: float | None = None
    # Why nothing seems to happen: the agent waits before it asks its provider again.
    waiting: str | None = None


class Capture(Protocol):
    """Reads a dialect line by line; every dialect keeps these promises."""

    live: Live
    complaints: list[Complaint]

    def feed(self, line: bytes) -> None:
        """Read one line, with or without its line end; never raises, whatever is on it."""

    def finish(self) -> AgentRun:
        """Return the result of the run; do not feed lines after this."""
