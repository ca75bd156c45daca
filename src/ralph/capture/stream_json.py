"""Claude Code's `--output-format stream-json`: one JSON object a line, a `result` at the end.

The result is judged by `is_error` and its reason, never by its subtype; totals are taken from it
alone; a stream without one was killed.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec

from ralph.capture import Captured, TerminalReason
from ralph.capture.gather import Gathered, session_name, summary_of
from ralph.capture.lines import (
    NOTHING,
    clip,
    count,
    items,
    loose_objects,
    mapping,
    moment,
    money,
    raw,
    text_of,
    tokens,
    unraw,
)
from ralph.capture.messages import Messages
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact

_RESET = re.compile(r"limit reached\|(\d{10,13})\b")
_DIAGNOSTIC = "[ede_diagnostic]"


class Line(msgspec.Struct):
    """The keys that matter, each of any type: only a line that is no object does not fit.

    Whatever is not named here is skipped by the decoder without being built.
    """

    type: Any = None
    subtype: Any = None
    session_id: Any = None
    timestamp: Any = None
    parent_tool_use_id: Any = None
    message: Any = None
    # Often the same as the message once more, and large: decoded only where it is needed.
    tool_use_result: msgspec.Raw = NOTHING
    is_api_error_message: Any = None
    cwd: Any = None
    model: Any = None
    mcp_servers: Any = None
    tool_name: Any = None
    error_status: Any = None
    error: Any = None
    rate_limit_info: Any = None
    is_error: Any = None
    result: Any = None
    errors: Any = None
    terminal_reason: Any = None
    stop_reason: Any = None
    num_turns: Any = None
    duration_ms: Any = None
    total_cost_usd: Any = None
    usage: Any = None
    permission_denials: Any = None
    api_error_status: Any = None
    api_error_type: Any = None


_KEYS = frozenset(Line.__struct_fields__)
_decode = msgspec.json.Decoder(Line).decode


class StreamJson:
    """A stream being read."""

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        self._found = Gathered(file=file, root=root, injected=injected)
        self._messages = Messages(self._found)
        self.live = self._found.live
        self.complaints = self._found.complaints
        self._session: str | None = None
        self._others: set[str] = set()
        self._started: str | None = None
        self._ended: str | None = None
        self._model: str | None = None
        self._mcp_failed: tuple[str, ...] = ()
        self._denied: list[str] = []
        self._result: Line | None = None
        self._turns = 0
        self._duration_ms = 0
        self._tokens: int | None = None
        self._resets_at: str | None = None
        self._rejected = False

    def feed(self, line: bytes) -> None:
        """Take one line; never raises, whatever is on it."""
        self._found.read(line, _lines, self._take)

    def _take(self, line: Line) -> None:
        kind = line.type
        if not isinstance(kind, str):
            self._found.complain("has no type; stepped over")
            return
        if not self._is_ours(line):
            return
        if (when := moment(line.timestamp)) is not None:
            self._started = self._started or when
            self._ended = when
        parent = text_of(line.parent_tool_use_id) or None
        if kind == "assistant":
            failed = line.is_api_error_message is True
            if failed and (text_of(line.error) == "rate_limit" or line.api_error_status == 429):
                self._rejected = True
            self._messages.assistant(mapping(line.message), parent=parent, failed=failed)
        elif kind == "user":
            detail = partial(unraw, line.tool_use_result)
            self._messages.user(mapping(line.message), detail, parent=parent)
        elif kind == "system":
            self._system(line)
        elif kind == "result":
            self._end(line)
        elif kind == "rate_limit_event":
            info = mapping(line.rate_limit_info)
            if info.get("status") == "rejected":
                self._resets_at = moment(info.get("resetsAt")) or self._resets_at

    def _is_ours(self, line: Line) -> bool:
        """Whether the line belongs to the session that this stream began with."""
        session = text_of(line.session_id)
        if not session or session == self._session:
            return True
        if self._session is None:
            self._session = session
            return True
        if session not in self._others and len(self._others) < 20:
            self._others.add(session)
            self._found.complain(
                f"begins another session, {session[:40]}; its lines were stepped over, "
                "record each session from a file of its own"
            )
        return False

    def _system(self, line: Line) -> None:
        if line.subtype == "init":
            self._model = text_of(line.model) or self._model
            self._found.at_home(text_of(line.cwd))
            self._mcp_failed = tuple(
                text_of(server.get("name"))
                for server in items(line.mcp_servers)
                if server.get("status") == "failed" and text_of(server.get("name"))
            )
        elif line.subtype == "api_retry":
            status = count(line.error_status)
            self.live.waiting = f"{text_of(line.error) or 'error'} ({status or 'no answer'})"
        elif line.subtype == "permission_denied" and len(self._denied) < 1000:
            self._denied.append(text_of(line.tool_name))

    def _end(self, line: Line) -> None:
        if self._result is None or line.is_error is not None:
            self._result = line
        # A session that went on prints one result a turn; its cost is the session's so far.
        self._turns += count(line.num_turns) or 0
        self._duration_ms += count(line.duration_ms) or 0
        cost = money(line.total_cost_usd)
        self.live.cost_usd = self.live.cost_usd if cost is None else cost
        self.live.waiting = None
        usage = mapping(line.usage)
        if usage:
            self._tokens = (self._tokens or 0) + tokens(usage)

    def finish(self) -> Captured:
        """What the run left behind."""
        found, messages, result = self._found, self._messages, self._result
        reason = self._reason()
        if reason == "ok":
            messages.settle()
        said = text_of(result.result) if result is not None else ""
        failed = reason not in {"ok", "unknown"}
        # What the provider said is an error; what the agent had said before is the summary.
        summary = (found.last_text or said) if failed else (said or found.last_text)
        for message in self._failures(said, failed=failed):
            found.add_error(ErrorSeen(clip(message, 2000), "runtime"))
        if said and (stated := _RESET.search(said)):
            self._resets_at = self._resets_at or moment(int(stated[1]))
        named = result.permission_denials if result is not None else None
        denied = [text_of(item.get("tool_name")) for item in items(named)]
        return Captured(
            dialect="stream-json",
            session_id=session_name(self._session),
            model=redact(self._model or messages.model or "") or None,
            summary=summary_of(summary),
            errors=found.errors,
            decisions=found.decisions,
            files_touched=found.files,
            tokens_used=self._tokens,
            cost_usd=self.live.cost_usd,
            duration_ms=self._duration_ms if result is not None else None,
            num_turns=self._turns if result is not None else None,
            is_error=result.is_error is True if result is not None else True,
            terminal_reason=reason,
            api_status=count(result.api_error_status) if result is not None else None,
            rate_limit_resets_at=self._resets_at if reason == "rate_limited" else None,
            permission_denials=tuple(redact(name) for name in denied or self._denied if name),
            mcp_failed=tuple(redact(name) for name in self._mcp_failed),
            used_tools={redact(name): n for name, n in found.used_tools.items()},
            started_at=self._started,
            ended_at=self._ended,
        )

    def _failures(self, said: str, *, failed: bool) -> list[str]:
        """What the provider or the client reported as the end of the run."""
        result = self._result
        if result is None or not failed:
            return []
        named = result.errors if isinstance(result.errors, list) else []
        stated = [e for e in named[:10] if isinstance(e, str) and not e.startswith(_DIAGNOSTIC)]
        return stated or [text for text in (said or self._messages.api_error,) if text]

    def _reason(self) -> TerminalReason:
        result = self._result
        if result is None:
            if self._messages.interrupted:
                return "interrupted"
            limited = self._rejected or (self.live.waiting or "").endswith("(429)")
            return "rate_limited" if limited else "killed"
        subtype, stated = text_of(result.subtype), text_of(result.terminal_reason)
        if result.stop_reason == "refusal":
            return "refused"
        if result.is_error is not True and subtype in {"success", ""}:
            return "ok"
        if "max_turns" in (stated, subtype.removeprefix("error_")):
            return "max_turns"
        if stated == "budget_exhausted" or subtype.startswith("error_max_budget"):
            return "max_budget"
        if stated == "prompt_too_long":
            return "prompt_too_long"
        limited = result.api_error_status == 429 or result.api_error_type == "rate_limit_error"
        if limited or self._rejected or _RESET.search(text_of(result.result)):
            return "rate_limited"
        if stated.startswith("aborted") or self._messages.interrupted:
            return "interrupted"
        if stated == "api_error" or self._messages.api_error or count(result.api_error_status):
            return "api_error"
        return "error"


def _lines(line: bytes) -> list[Line]:
    try:
        return [_decode(line)]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return [_line(plain) for plain in loose_objects(line)]


def _line(plain: dict[str, Any]) -> Line:
    kept = {key: value for key, value in plain.items() if key in _KEYS}
    kept["tool_use_result"] = raw(kept.get("tool_use_result"))
    return Line(**kept)
