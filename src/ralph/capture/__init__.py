"""One agent dialect a file: the lines an agent printed become one value, and complaints beside it.

Capture is dumb and total: it reads whatever it is given, never raises on a line, keeps little,
redacts what it keeps, and takes nothing for news that Ralph itself had put into the prompt.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from ralph.records import Complaint
from ralph.records.iteration import Decision, ErrorSeen, FileTouched, Iteration, Outcome

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


# What an iteration keeps of a run as it is.
_ITERATION_FIELDS = (
    "summary errors decisions files_touched tokens_used cost_usd duration_ms model session_id"
).split()


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of an agent left behind, redacted, before anybody judged it.

    `is_error` is the agent's own word, or true when it could not say one. `tokens_used` counts
    everything that was processed, cached input too. `cost_usd` is the session's: a resumed
    session's includes what came before. `permission_denials` has a tool for each denial, of a shell
    with its command. `outcome` is what the run itself proves. `stumbles` counts what was not worth
    keeping.
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
    started_at: str | None = None
    ended_at: str | None = None

    def to_iteration(
        self, *, feature: str, outcome: Outcome | None = None, **facts: Any
    ) -> Iteration:
        """The iteration this run was; what only the caller knows comes from the caller.

        Without an outcome it is what the run proves or `rate_limited`: never a failure by default.
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

    def finish(self) -> AgentRun:
        """What the run left behind; nothing is fed after this."""
