"""Claude Code: its command, and its messages in `--output-format stream-json`.

A stream is one JSON object per line with a `result` at the end. The result is judged by `is_error`
and its reason, never by its subtype alone. Totals come only from the result; a stream without one
was killed. `claude_code_sessions` reads its session files, `hook_settings` has its settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ralph.capture import AgentRun, Capture, TerminalReason, lines
from ralph.capture.lines import Steps, clip, content_text, count, items, mapping, moment, text_of
from ralph.capture.run import RunFindings
from ralph.capture.shell import leaves_running
from ralph.clients import AgentCall, SessionFiles
from ralph.clients.turns import LONGEST_COMMAND, SHELLS, OpenCall, tool_call
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact

if TYPE_CHECKING:
    from ralph.clients.setup import ClientSetup

DIALECTS: tuple[str, ...] = ("stream-json", "transcript")
OUTPUTS: tuple[str, ...] = (
    "the output of `claude -p --output-format stream-json --verbose`",
    "a Claude Code transcript (~/.claude/projects/*/*.jsonl)",
)
SESSION_TYPES: frozenset[str] = frozenset()
LOGIN_SHELLS: bool = False
REVIEW_MODEL: str | None = "opus"
TAKES_SERVERS: bool = True
_COMMAND = ("claude", "-p", "--output-format", "stream-json", "--verbose")
_ALLOWED_TOOLS = ("Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "Grep")
_STREAM_TYPES = {"system", "assistant", "user", "result", "stream_event", "rate_limit_event"}
_TRANSCRIPT_KEYS = {"sessionId", "parentUuid", "isSidechain", "leafUuid"}


def command(call: AgentCall) -> list[str]:
    """Return the command line of one run."""
    words = [*_COMMAND, "--permission-mode", "acceptEdits"]
    if call.model:
        words += ["--model", call.model]
    if call.mcp_config:
        words += ["--mcp-config", str(call.mcp_config), "--strict-mcp-config"]
    servers = [f"mcp__{name}" for name in call.mcp_servers]
    # It checks each part of a compound command, and refuses what it would have to ask about.
    rules = [f"Bash({one}:*)" for one in call.permissions.commands]
    shell = ["Bash"] if call.permissions.full else rules
    return [*words, "--allowedTools", *servers, *_ALLOWED_TOOLS, *shell]


def variables(call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Return nothing: it reads the file that its command names."""
    return {}


def dialect_of(event: Mapping[str, Any]) -> str | None:
    """Return the dialect of an event: transcripts have keys that the output does not."""
    kind = event.get("type")
    if not isinstance(kind, str) or "." in kind:
        return None
    if _TRANSCRIPT_KEYS & event.keys():
        return "transcript"
    return "stream-json" if kind in _STREAM_TYPES else None


def open_capture(dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
    """Create a capture for one of its dialects."""
    if dialect == "transcript":
        from ralph.clients.claude_code_sessions import Transcript

        return Transcript(file=file, root=root, injected=injected)
    return StreamJson(file=file, root=root, injected=injected)


def sessions() -> SessionFiles:
    """Return the transcripts under `~/.claude/projects`."""
    from ralph.clients import claude_code_sessions

    return claude_code_sessions


def setup() -> ClientSetup:
    """Return the setup: hooks in `settings.json`, the MCP server in `.mcp.json`."""
    from ralph.clients.hook_settings import ClaudeCodeSetup

    return ClaudeCodeSetup()


def tool_errors(
    tool: str, given: Any, output: str, *, root: str, cwd: str | None
) -> tuple[ErrorSeen, ...]:
    """Return the errors in a failed tool's answer, as the transcript will give them."""
    use = {"type": "tool_use", "id": "this", "name": tool, "input": given}
    result = {"type": "tool_result", "tool_use_id": "this", "is_error": True, "content": output}
    messages = Messages(root=root)
    messages.assistant({"content": [use]}, parent=None, failed=False)
    messages.user({"content": [result]}, lambda: f"Error: {output}", parent=None, cwd=cwd)
    return messages.errors if output.strip() else ()


# -- Claude Code's messages, which its stream and its transcripts share: blocks, tools, results.


JsonObject = Mapping[str, Any]
# Returns the structured result of a tool, which is often large and seldom needed.
Detail = Callable[[], Any]
MOST_OPEN = 5000
_SUBAGENTS = {"Task", "Agent"}
# What the client says about a call that keeps running after its result.
_LEFT_SAID = re.compile(r"\b(?:in|to)(?: the)? background\b|\bbackgrounded\b|\bAsync agent", re.I)
# What the client itself says in the model's place if there is nothing to say.
PLACEHOLDER = "No response requested."
_HAS_ENDING = re.compile(r"[^/\\]\.\w{1,12}$")

INTERRUPTED = "[Request interrupted by user"


class Messages(RunFindings):
    """The messages of one session: the main agent's, and those of its subagents."""

    interrupted = False
    api_error = ""
    _folder: str | None = None
    # Whether the stream also shows what subagents do.
    _sees_below = False
    _turn: Any = None

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        self.steps = Steps()
        self._open: dict[str, OpenCall] = {}
        # Calls that keep running in the background, perhaps to the end of the session.
        self._left: set[str] = set()
        # Errors of subagents count only if the call that started them failed.
        self._below: dict[str, list[ErrorSeen]] = {}

    def assistant(self, message: JsonObject, *, parent: str | None, failed: bool) -> None:
        """Read a line of an assistant's message; a failed one is the client's, not the model's."""
        model = text_of(message.get("model"))
        if failed or model == "<synthetic>":
            text = content_text(message.get("content"))[:4000]
            self.api_error = self.api_error if text == PLACEHOLDER else text
            return
        if parent is None:
            self.api_error = ""
            self.model = model or self.model
            identity = message.get("id")
            if identity is None or identity != self._turn:
                self.live.turns += 1
                self._turn = identity
        self.live.waiting = None
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for block in items(content):
            kind = block.get("type")
            if kind == "tool_use":
                self._call(block, parent)
            elif kind == "text" and parent is None:
                self.say(text_of(block.get("text")))
                self.steps.said(text_of(block.get("text")))
            elif kind == "thinking" and parent is None:
                self.summarize(text_of(block.get("thinking")))

    def _call(self, block: JsonObject, parent: str | None) -> None:
        name = text_of(block.get("name"))
        given = mapping(block.get("input"))
        identity = text_of(block.get("id"))
        if identity in self._open:
            return
        use = tool_call(identity, name, given)
        self.use_tool(name or "unnamed", use.target)
        if len(self._open) >= MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        self._sees_below |= parent is not None
        use.parent, use.begun = parent, self.attempts.begin()
        use.plan = text_of(given.get("plan"))[:LONGEST_COMMAND] if name == "ExitPlanMode" else ""
        self._open[identity or f"#{self.live.tool_uses}"] = use
        if given.get("run_in_background") or leaves_running(use.command):
            self._left.add(identity)
        self.live.running = len(self._open.keys() | self._left)
        if parent is None:
            place = self.place(use.path) if use.path else None
            self.steps.called(identity, name, use.command or place or use.target)

    def user(
        self, message: JsonObject, detail: Detail, *, parent: str | None, cwd: str | None = None
    ) -> None:
        """Read a line of a user's message: tool results, or somebody's words."""
        content = message.get("content")
        if isinstance(content, str):
            self._heard(content, parent)
            return
        for block in items(content):
            if block.get("type") == "tool_result":
                self._answered(block, detail, parent, cwd)
            elif block.get("type") == "text":
                self._heard(text_of(block.get("text")), parent)

    def _heard(self, text: str, parent: str | None) -> None:
        if parent is None:
            self.interrupted = text.startswith(INTERRUPTED)
        self.see_injected(text)

    def _answered(
        self, block: JsonObject, detail: Detail, parent: str | None, cwd: str | None
    ) -> None:
        identity = text_of(block.get("tool_use_id"))
        use = self._open.pop(identity, None)
        failed = block.get("is_error") is True
        below = self._below.pop(identity, [])
        if use is None and not failed:
            return
        use = use or OpenCall(identity=identity, tool="", parent=parent)
        parent = parent or use.parent
        output = content_text(block.get("content"))
        if use.tool in {*SHELLS, *_SUBAGENTS} and _LEFT_SAID.search(output[:200]):
            self._left.add(identity)
        self.live.running = len(self._open.keys() | self._left)
        self.steps.answered(identity, output, failed=failed)
        errors = list(below) if failed else []
        kind = self.stumble(output) if failed else None
        if kind == "denied":
            self.denied = [*self.denied, use.tool][:MOST_OPEN]
        if kind == "refused" and parent is None:
            place = self.place(use.path) if use.path else None
            what = f"{use.tool} of {place}" if place else f"`{clip(use.command, 80)}`"
            self.refuse(output, what if place or use.command else use.tool, use.plan)
        elif kind:
            pass
        elif use.tool == "AskUserQuestion" and not failed and parent is None:
            self.take_answers(detail(), output)
        elif use.tool == "ExitPlanMode" and not failed and parent is None:
            self.accept(use.plan or text_of(mapping(detail()).get("plan")))
        elif use.command:
            base = cwd or (self._folder if parent is None else None)
            ran = self.ran(use.command, output, failed=failed, base=base)
            if parent is None and not failed and "Shell cwd was reset" not in output[-500:]:
                self._folder = ran.here
            if parent is None and not output.startswith("Command running in background"):
                self.tried_command(use.command, ran, failed=failed, begun=use.begun)
            else:
                errors += ran.errors
                if not failed:
                    self.attempts.do("ran", use.command)
        elif failed and use.tool.startswith("mcp__"):
            errors.append(ErrorSeen(f"{use.tool}: {output.strip()}"))
        elif failed:
            # The client's own tools fail because of the client's own rules.
            self.stumbles["call"] += 1
        else:
            self._done(use, output, detail)
            self.see_injected(output)
            if use.tool in _SUBAGENTS and not self._sees_below:
                self.attempts.do("agent")
            for path, old, new in use.edits:
                self.edited(path, old, new)
            if use.content:
                self.wrote(use.path, use.content)
        self._add_errors(errors, parent)

    def _add_errors(self, errors: list[ErrorSeen], parent: str | None) -> None:
        if parent is None:
            for error in errors:
                self.add_error(error)
        elif errors and len(self._below) < MOST_OPEN:
            waiting = self._below.setdefault(parent, [])
            waiting += errors[: 20 - len(waiting)]

    def _done(self, use: OpenCall, output: str, detail: Detail) -> None:
        """Note what a tool other than the shell did to its file."""
        if use.tool == "Write":
            start = output[:200].lower()
            kind = mapping(detail()).get("type")
            if kind not in {"create", "update"}:
                kind = "create" if "created" in start else "update" if "updated" in start else None
            existed = self.knows(use.path) if kind is None else kind == "update"
            self.touch(use.path, "modified" if existed else "created")
        elif use.changes:
            self.touch(*use.changes[0])
        elif use.tool in {"Glob", "Grep"} and _HAS_ENDING.search(use.path):
            # A folder that was searched is not a file that was read.
            self.touch(use.path, "read")

    def settle(self) -> None:
        """Count calls without a printed result as made, because the run came to its own end."""
        for use in self._open.values():
            if use.command:
                self.ran(use.command, "", failed=False)
            elif use.tool not in _SUBAGENTS:
                self._done(use, "", lambda: None)
        self._open.clear()


def _denied_call(item: JsonObject) -> str:
    """Return the tool of a denied call; for a shell, with the beginning of its command."""
    name = text_of(item.get("tool_name"))
    command = mapping(item.get("tool_input")).get("command")
    return f"{name}({clip(text_of(command), 60)})" if name in SHELLS and command else name


_RESET = re.compile(r"limit reached\|(\d{10,13})\b")
_DIAGNOSTIC = "[ede_diagnostic]"


_KEYS = """
type subtype session_id timestamp parent_tool_use_id message is_api_error_message cwd model
mcp_servers tool_name error_status error rate_limit_info is_error result errors terminal_reason
stop_reason num_turns duration_ms total_cost_usd usage permission_denials api_error_status
api_error_type
"""
_, _lines = lines.line_reader(_KEYS, put_off="tool_use_result")


class StreamJson(Messages):
    """Reads a stream."""

    _others: frozenset[str] = frozenset()
    _model: str | None = None
    _mcp_failed: tuple[str, ...] = ()
    _denied: tuple[str, ...] = ()
    _result: Any = None
    _turns = 0
    _duration_ms = 0
    _tokens: int | None = None
    _resets_at: str | None = None
    _rejected = False

    def feed(self, line: bytes) -> None:
        """Read one line; never raises, whatever is on it."""
        self.read(line, _lines, self._take)

    def _take(self, line: Any) -> None:
        kind = line.type
        if not isinstance(kind, str):
            self.complain("has no type; skipped")
            return
        if not self._is_ours(line):
            return
        self.see_time(line.timestamp)
        parent = text_of(line.parent_tool_use_id) or None
        if kind == "assistant":
            failed = line.is_api_error_message is True
            if failed and (text_of(line.error) == "rate_limit" or line.api_error_status == 429):
                self._rejected = True
            self.assistant(mapping(line.message), parent=parent, failed=failed)
        elif kind == "user":
            detail = partial(lines.unraw, line.tool_use_result)
            self.user(mapping(line.message), detail, parent=parent)
        elif kind == "system":
            self._system(line)
        elif kind == "result":
            self._end(line)
        elif kind == "rate_limit_event":
            info = mapping(line.rate_limit_info)
            if info.get("status") == "rejected":
                self._resets_at = moment(info.get("resetsAt")) or self._resets_at

    def _is_ours(self, line: Any) -> bool:
        """Whether the line belongs to the session that this stream began with."""
        session = text_of(line.session_id)
        self.session = self.session or session or None
        if not session or session == self.session:
            return True
        if session not in self._others and len(self._others) < 20:
            self._others |= {session}
            self.complain(
                f"begins another session, {session[:40]}; its lines were skipped, "
                "record each session from a file of its own"
            )
        return False

    def _system(self, line: Any) -> None:
        if line.subtype == "init":
            self._model = text_of(line.model) or self._model
            self.at_home(text_of(line.cwd))
            failed = [one for one in items(line.mcp_servers) if one.get("status") == "failed"]
            self._mcp_failed = tuple(filter(None, (text_of(one.get("name")) for one in failed)))
        elif line.subtype == "api_retry":
            status = count(line.error_status)
            self.live.waiting = f"{text_of(line.error) or 'error'} ({status or 'no answer'})"
        elif line.subtype == "permission_denied" and len(self._denied) < 1000:
            self._denied += (text_of(line.tool_name),)

    def _end(self, line: Any) -> None:
        if self._result is None or line.is_error is not None:
            self._result = line
        # A session that goes on prints one result per turn; its cost is the session's so far.
        self._turns += count(line.num_turns) or 0
        self._duration_ms += count(line.duration_ms) or 0
        cost = lines.money(line.total_cost_usd)
        self.live.cost_usd = self.live.cost_usd if cost is None else cost
        self.live.waiting = None
        if usage := mapping(line.usage):
            self._tokens = (self._tokens or 0) + lines.tokens(usage)

    def finish(self) -> AgentRun:
        """Return the result of the run."""
        ended = self._result is not None
        result = self._result if ended else _lines(b"{}")[0]
        reason = self._reason()
        if reason == "ok":
            self.settle()
        final = text_of(result.result)
        failed = reason not in {"ok", "unknown"}
        if failed and ended:
            named = result.errors if isinstance(result.errors, list) else []
            stated = [e for e in named[:10] if isinstance(e, str) and not e.startswith(_DIAGNOSTIC)]
            for message in stated or filter(None, [final or self.api_error]):
                self.add_error(ErrorSeen(clip(message, 2000), "runtime"))
        if stated_reset := _RESET.search(final):
            self._resets_at = self._resets_at or moment(int(stated_reset[1]))
        denied = [_denied_call(item) for item in items(result.permission_denials)]
        self.denied = denied or list(self._denied)
        self.model = self._model or self.model
        return self.result(
            "stream-json",
            reason,
            # The provider's words are an error; the agent's words before it are the summary.
            summary=(self.last_text or final) if failed else (final or self.last_text),
            tokens_used=self._tokens,
            cost_usd=self.live.cost_usd,
            duration_ms=self._duration_ms if ended else None,
            num_turns=self._turns if ended else None,
            is_error=result.is_error is True or not ended,
            api_status=count(result.api_error_status),
            rate_limit_resets_at=self._resets_at if reason == "rate_limited" else None,
            mcp_failed=tuple(redact(name) for name in self._mcp_failed),
        )

    def _reason(self) -> TerminalReason:
        result = self._result
        if result is None:
            if self.interrupted:
                return "interrupted"
            limited = self._rejected or (self.live.waiting or "").endswith("(429)")
            return "rate_limited" if limited else "killed"
        subtype = text_of(result.subtype)
        stated = text_of(result.terminal_reason)
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
        if stated.startswith("aborted") or self.interrupted:
            return "interrupted"
        if stated == "api_error" or self.api_error or count(result.api_error_status):
            return "api_error"
        return "error"
