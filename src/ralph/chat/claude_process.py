"""Chat through `claude -p`: people who have Claude Code need no key of their own.

It runs without tools, hooks, MCP servers or memory, in an empty folder, and saves no session: our
question must not come back to us as somebody's conversation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ralph.chat.model import ChatTurn, ModelAnswer, ModelFault, OnText, ToolSpec, check_turns
from ralph.chat.providers import AnswerStream, AnthropicUsage
from ralph.clients import found_command
from ralph.errors import BadInput, ModelOff
from ralph.loop.environment import agent_environment
from ralph.loop.process import AgentEnd, AgentProcess
from ralph.text.redact import redact

_SYSTEM = "You are the assistant in the conversation that you are given. Answer its last message."
_COMMAND = (
    *("claude", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
    *("--tools", "", "--strict-mcp-config", "--disable-slash-commands"),
    *("--no-session-persistence", "--settings", '{"disableAllHooks": true}'),
    *("--system-prompt", _SYSTEM),
)
# For hooks of ours that run nevertheless: they record nothing and add nothing.
_QUIET = {"RALPH_HOOK_CAPTURE": "false", "RALPH_HOOK_INJECT": "false"}
_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool"}
_SHOWN_CHARS = 200
_READ_BYTES = 1 << 20


class _ClaudeDelta(msgspec.Struct):
    text: str = ""


class _ClaudeEvent(msgspec.Struct):
    delta: _ClaudeDelta | None = None


class _ClaudeLine(msgspec.Struct):
    type: str = ""
    event: _ClaudeEvent | None = None
    model: str = ""
    is_error: bool = False
    result: str = ""
    errors: list[str] = []
    total_cost_usd: float | None = None
    usage: AnthropicUsage | None = None
    api_error_status: int | None = None
    terminal_reason: str | None = None


class ClaudeModel:
    """Starts one process per question, and ends it with everything it started."""

    takes_tools = False
    costs = "reported by Claude Code with each answer"

    def __init__(
        self,
        model: str | None = None,
        *,
        role: str = "chat",
        also: Iterable[str] = (),
        grace_s: float = 10.0,
    ) -> None:
        """`also` names more variables to pass on; `grace_s` is how long it may take to end."""
        self.name = f"claude:{model}" if model else "claude"
        self._command = [*_COMMAND, *(["--model", model] if model else [])]
        self._role = role
        self._also = tuple(also)
        self._grace_s = grace_s

    def answer(
        self,
        messages: Sequence[ChatTurn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> ModelAnswer:
        """Answer the last turn, or raise ModelOff. Text goes to `on_text` as it arrives."""
        check_turns(messages)
        env = {
            name: value
            for name, value in agent_environment(also=self._also, given=_QUIET).items()
            # Our own keys are for other servers.
            if not (name.startswith("RALPH_") and name.endswith("_API_KEY"))
        }
        try:
            command = found_command(self._command, env)
        except BadInput as error:
            todo = f"Install Claude Code, or set {self._role}_model to another."
            raise _off(f"cannot be started: {error.what}", todo, "setting") from None
        with tempfile.TemporaryDirectory(prefix="ralph-chat-") as folder:
            empty = Path(folder) / "empty"
            empty.mkdir()
            with AgentProcess(
                command,
                prompt=_prompt(messages).encode(),
                folder=Path(folder),
                cwd=empty,
                env=env,
                grace_s=self._grace_s,
            ) as process:
                output = _ClaudeOutput(process.output, on_text)
                ended = process.wait(timeout_s=timeout_s, on_tick=output.read)
            output.read()
        line, stream = output.result, output.stream
        if line is None or line.is_error or not line.result.strip():
            failure = self._failure(line, ended, timeout_s)
            failure.partial = stream.text
            raise failure
        if not stream.text:  # it did not come in pieces
            stream.add_text(line.result)
        usage = line.usage or AnthropicUsage()
        return ModelAnswer(
            text=line.result,
            tokens_in=usage.tokens_in,
            tokens_out=usage.output_tokens,
            cost_usd=line.total_cost_usd,
            model=stream.model or self.name,
        )

    def _failure(self, line: _ClaudeLine | None, ended: AgentEnd, timeout_s: float) -> ModelOff:
        if line is None and ended.timed_out:
            todo = "If it is just slow, raise chat_timeout_s."
            return _off(f"did not finish its answer within {timeout_s:g} s", todo)
        if line is None:
            why = _last_line(ended.stderr) or f"it ended with {ended.exit_code}"
            return _off(f"gave no answer ({why})", "Try it yourself: claude -p hello")
        if not line.is_error:
            return _off("gave an empty answer", "Ask again.", "prompt")
        why = _last_line(line.result or "; ".join(line.errors) or "no reason given")
        if line.api_error_status in (401, 403) or "/login" in why:
            return _off(f"is not logged in ({why})", "Run claude and log in.", "setting")
        if line.api_error_status == 404:
            todo = f"Set {self._role}_model to claude, or to a model that it knows."
            return _off(f"has no such model ({why})", todo, "setting")
        if line.terminal_reason == "prompt_too_long":
            return _off(f"says the prompt is too long ({why})", "Send less.", "prompt")
        return _off(f"failed ({why})", "Try again later.")


class _ClaudeOutput:
    """Follows the file that the process writes its answer to."""

    def __init__(self, file: Path, on_text: OnText | None) -> None:
        self._file = file
        self._at = 0
        self.stream = AnswerStream(on_text)
        self.result: _ClaudeLine | None = None

    def read(self) -> bool:
        """Read the lines that are complete by now; always True: continue."""
        while True:
            with self._file.open("rb") as file:
                file.seek(self._at)
                data = file.read(_READ_BYTES)
            lines, newline, rest = data.rpartition(b"\n")
            if not newline and len(rest) == _READ_BYTES:  # no line of ours is that long
                self._at += len(rest)
                continue
            self._at += len(lines) + len(newline)
            for line in lines.splitlines():
                self._read_line(line)
            if len(data) < _READ_BYTES:
                return True

    def _read_line(self, data: bytes) -> None:
        try:
            line = msgspec.json.decode(data, type=_ClaudeLine, strict=False)
        except (msgspec.MsgspecError, RecursionError):
            return  # a line of another kind
        self.stream.model = line.model or self.stream.model
        if line.type == "result":
            self.result = line
        if line.event is not None and line.event.delta is not None:
            self.stream.add_text(line.event.delta.text)


def _prompt(messages: Sequence[ChatTurn]) -> str:
    """The conversation as one text: system texts first, then who said what."""
    system = [turn.text for turn in messages if turn.role == "system" and turn.text.strip()]
    turns = [turn for turn in messages if turn.role != "system"]
    if len(turns) == 1:
        return "\n\n".join([*system, turns[0].text])
    talk = [f"{_SPEAKERS[turn.role]}: {turn.text}" for turn in turns if turn.text.strip()]
    return "\n\n".join([*system, "The conversation:", *talk])


def _last_line(text: str) -> str:
    """The last line, short and without secrets: programs say what matters at the end."""
    line = " ".join(text.strip().rpartition("\n")[2].split())
    shown = redact("".join(c if c.isprintable() else " " for c in line))
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 3] + "..."


def _off(what: str, todo: str, fault: ModelFault = "server") -> ModelOff:
    return ModelOff(f"Claude Code {what}", todo=todo, fault=fault)
