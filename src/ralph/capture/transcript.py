"""Claude Code's session transcripts: what it writes for itself while it works.

They have no beginning and no result line; the cost stands in a line of its own; most kinds of
lines say nothing about the work and are stepped over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from ralph.capture import Captured, TerminalReason
from ralph.capture.gather import Gathered, session_name, summary_of
from ralph.capture.lines import (
    clip,
    content_text,
    count,
    items,
    mapping,
    moment,
    money,
    text_of,
    tokens,
    unraw,
)
from ralph.capture.messages import Messages
from ralph.capture.session_lines import Line, injected, lines_of, sort_of
from ralph.capture.steps import Steps
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact

_FAILED: frozenset[TerminalReason] = frozenset({"api_error", "rate_limited", "refused"})
_MODEL_TOKENS = (
    "inputTokens",
    "outputTokens",
    "cacheReadInputTokens",
    "cacheCreationInputTokens",
)


class Transcript:
    """A transcript being read."""

    def __init__(
        self,
        *,
        file: str = "-",
        root: str | None = None,
        injected: str = "",
        steps: Steps | None = None,
    ) -> None:
        self._found = Gathered(file=file, root=root, injected=injected)
        self._messages = Messages(self._found, steps)
        self.live = self._found.live
        self.complaints = self._found.complaints
        self._session: str | None = None
        self._speaker: tuple[bool, str] | None = None
        self._started: str | None = None
        self._ended: str | None = None
        self._duration_ms: int | None = None
        self._stop: Any = None
        self._limited = False
        self._waits_for_agent = True
        self._tokens = 0
        self._total_tokens: int | None = None
        self._counted: Any = None
        self._last_spent = 0

    def feed(self, line: bytes) -> None:
        """Take one line; never raises, whatever is on it."""
        self._found.read(line, lines_of, self.take)

    def take(self, line: Line) -> None:
        """Take a line that was read already."""
        kind = line.type
        if not isinstance(kind, str):
            self._found.complain("has no type; stepped over")
            return
        self._session = self._session or text_of(line.sessionId) or None
        if kind == "cost-state":
            self._cost(line)
        if kind == "attachment":
            self._found.see_injected(injected(line))
        if kind not in {"user", "assistant"}:
            return
        cwd = text_of(line.cwd)
        self._found.at_home(cwd)
        message = mapping(line.message)
        parent = self._parent(line)
        sort = sort_of(line) if kind == "user" and parent is None else None
        if sort in {"aside", "local"}:
            # The client's own words begin nothing and end nothing.
            self._found.see_injected(content_text(message.get("content")))
            return
        if (when := moment(line.timestamp)) is not None:
            self._started = self._started or when
            self._ended = when
        if kind == "user":
            detail = partial(unraw, line.toolUseResult)
            self._messages.user(message, detail, parent=parent, cwd=cwd or None)
            if sort in {"prompt", "results", "interrupt"}:
                self._waits_for_agent = True
            return
        failed = line.isApiErrorMessage is True
        self._messages.assistant(message, parent=parent, failed=failed)
        if parent is None:
            self._stop = message.get("stop_reason")
            self._limited = failed and text_of(line.error) == "rate_limit"
            self._waits_for_agent = self._goes_on(message)
        self._count(message)

    @property
    def is_over(self) -> bool:
        """Whether the agent has said its last word."""
        return self._reason() != "unknown"

    def _parent(self, line: Line) -> str | None:
        """The subagent that speaks, or None for the main agent: whoever speaks first.

        A subagent's own transcript holds nobody else, so there the subagent is the main one.
        """
        below = line.isSidechain is True
        # The main agent's lines name an agent, too, when they bring its result.
        speaker = (below, text_of(line.agentId) if below else "")
        if self._speaker is None:
            self._speaker = speaker
        return None if speaker == self._speaker else f"sidechain {speaker[1]}"

    def _goes_on(self, message: Mapping[str, Any]) -> bool:
        """Whether the message is not the last of its turn."""
        content = message.get("content")
        blocks = {text_of(block.get("type")) for block in items(content)}
        if "tool_use" in blocks or text_of(self._stop) in {"tool_use", "pause_turn"}:
            return True
        return self._stop is None and not isinstance(content, str) and "text" not in blocks

    def _count(self, message: Mapping[str, Any]) -> None:
        # Each block of a message repeats the usage of the whole; the last one knows best.
        identity, spent = message.get("id"), tokens(mapping(message.get("usage")))
        if identity is not None and identity == self._counted:
            self._tokens += max(0, spent - self._last_spent)
            self._last_spent = max(spent, self._last_spent)
        else:
            self._tokens += spent
            self._counted, self._last_spent = identity, spent

    def _cost(self, line: Line) -> None:
        cost = money(line.totalCostUSD)
        self.live.cost_usd = self.live.cost_usd if cost is None else cost
        self._duration_ms = count(line.totalDuration) or self._duration_ms
        usage = mapping(line.modelUsage)
        if usage:
            self._total_tokens = sum(
                count(mapping(spent).get(key)) or 0
                for spent in usage.values()
                for key in _MODEL_TOKENS
            )

    def finish(self) -> Captured:
        """What the session left behind so far."""
        found, messages = self._found, self._messages
        reason = self._reason()
        failed = reason in _FAILED and messages.api_error
        last = [ErrorSeen(clip(messages.api_error, 2000), "runtime")] if failed else []
        spent = self._tokens if self._total_tokens is None else self._total_tokens
        return Captured(
            dialect="transcript",
            session_id=session_name(self._name()),
            model=redact(messages.model or "") or None,
            summary=summary_of(found.last_text or messages.api_error),
            errors=found.errors_with(*last),
            decisions=found.decisions,
            files_touched=found.files,
            tokens_used=spent or None,
            cost_usd=self.live.cost_usd,
            duration_ms=self._duration_ms or _between(self._started, self._ended),
            num_turns=self.live.turns or None,
            is_error=reason in _FAILED,
            terminal_reason=reason,
            permission_denials=tuple(redact(name) for name in messages.denied if name),
            used_tools={redact(name): n for name, n in found.used_tools.items()},
            started_at=self._started,
            ended_at=self._ended,
        )

    def _name(self) -> str | None:
        # A subagent's transcript carries the name of the session that started it.
        if self._session and self._speaker and self._speaker[0] and self._speaker[1]:
            return f"{self._session}/{self._speaker[1]}"
        return self._session

    def _reason(self) -> TerminalReason:
        if self._messages.interrupted:
            return "interrupted"
        if self._messages.api_error:
            return "rate_limited" if self._limited else "api_error"
        if self._stop == "refusal":
            return "refused"
        return "unknown" if self._waits_for_agent else "ok"


def _between(started: str | None, ended: str | None) -> int | None:
    if started is None or ended is None:
        return None
    span = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return max(0, round(span.total_seconds() * 1000))
