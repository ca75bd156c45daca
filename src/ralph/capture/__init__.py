"""One agent dialect a file: the lines an agent printed become one value, and complaints beside it.

Capture is dumb and total: it reads whatever it is given, never raises on a line, keeps little,
redacts what it keeps, and takes nothing for news that Ralph itself had put into the prompt.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from ralph.records import Complaint
from ralph.records.iteration import Decision, ErrorSeen, FileTouched, Iteration, ModelTier, Outcome

# The name of an output format; clients/ has them.
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


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of an agent left behind, redacted, before anybody judged it.

    `is_error` is the agent's own word, or true when it could not say one. `tokens_used` counts
    everything that was processed, cached input too. `cost_usd` is the session's: a resumed
    session's includes what came before. `permission_denials` names a tool once a denial.
    """

    dialect: Dialect
    session_id: str | None = None
    model: str | None = None
    summary: str = ""
    errors: tuple[ErrorSeen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    files_touched: tuple[FileTouched, ...] = ()
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
    started_at: str | None = None
    ended_at: str | None = None

    def to_iteration(
        self,
        *,
        feature: str,
        task_id: int | str | None = None,
        task_title: str = "",
        discipline: str = "",
        outcome: Outcome | None = None,
        model_tier: ModelTier | None = None,
        cost_before_usd: float = 0.0,
        duration_ms: int | None = None,
        timestamp: str | None = None,
    ) -> Iteration:
        """The iteration this run was; what only the caller knows comes from the caller.

        Without an outcome it is `rate_limited` or `unknown`: never a failure by default.
        `cost_before_usd` is what a resumed session had cost before this run.
        """
        if outcome is None:
            outcome = "rate_limited" if self.terminal_reason == "rate_limited" else "unknown"
        cost = self.cost_usd
        if cost is not None:
            cost = max(0.0, round(cost - cost_before_usd, 9))
        same = "summary errors decisions files_touched tokens_used model session_id".split()
        return Iteration(
            feature=feature,
            task_id=task_id,
            task_title=task_title,
            discipline=discipline,
            timestamp=timestamp or self.ended_at,
            outcome=outcome,
            cost_usd=cost,
            duration_ms=self.duration_ms if duration_ms is None else duration_ms,
            model_tier=model_tier,
            **{name: getattr(self, name) for name in same},
        )


class Live(msgspec.Struct):
    """What can be told while the agent still runs; the caller has the clock."""

    last_tool: str | None = None
    last_target: str | None = None
    tool_uses: int = 0
    # Tool calls under way; what was left to run in the background counts until the end.
    running: int = 0
    turns: int = 0
    cost_usd: float | None = None
    # Why nothing seems to happen: the agent waits to ask its provider again.
    waiting: str | None = None


class Capture(Protocol):
    """A dialect being read line by line; every dialect keeps these promises."""

    live: Live
    complaints: list[Complaint]

    def feed(self, line: bytes) -> None:
        """Take one line, with or without its end; never raises, whatever is on it."""
        ...

    def finish(self) -> AgentRun:
        """What the run left behind; nothing is fed after this."""
        ...
