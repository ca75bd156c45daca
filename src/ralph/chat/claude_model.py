"""Chat through `claude -p`: whoever has Claude Code needs no key of their own.

It is started without tools, hooks, servers or a memory of its own, in an empty folder, and keeps
no session: a question of ours must not come back to us as somebody's conversation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ralph.chat.model import OnText, Said, ToolSpec, Turn, check
from ralph.clients import found_command
from ralph.errors import BadInput, ModelOff
from ralph.loop.agent import AgentProcess, Ended
from ralph.loop.environment import agent_environment
from ralph.text.redact import redact

_MANNER = "You are the assistant in the conversation that you are given. Answer its last message."
_COMMAND = (
    *("claude", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
    *("--tools", "", "--strict-mcp-config", "--disable-slash-commands"),
    *("--no-session-persistence", "--settings", '{"disableAllHooks": true}'),
    *("--system-prompt", _MANNER),
)
# For hooks of ours that run nevertheless: neither kept nor answered.
_QUIET = {"RALPH_HOOK_CAPTURE": "false", "RALPH_HOOK_INJECT": "false"}
_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool"}
_SHOWN_CHARS = 200
_AT_A_TIME = 1 << 20


class _Delta(msgspec.Struct):
    text: str = ""


class _Streamed(msgspec.Struct):
    type: str = ""
    delta: _Delta | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class _Line(msgspec.Struct):
    type: str = ""
    event: _Streamed | None = None
    model: str = ""
    is_error: bool = False
    result: str = ""
    errors: list[str] = []
    total_cost_usd: float | None = None
    usage: _Usage | None = None
    api_error_status: int | None = None
    terminal_reason: str | None = None


class ClaudeModel:
    """One process a question, ended with everything it started when its time is over."""

    takes_tools = False
    costs = "what Claude Code tells with each answer"

    def __init__(
        self,
        model: str | None = None,
        *,
        role: str = "chat",
        also: Iterable[str] = (),
        grace_s: float = 10.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`also` names further variables it gets; `grace_s` is how long it may take to end."""
        self.name = f"claude:{model}" if model else "claude"
        self._model = model
        self._role = role
        self._also = tuple(also)
        self._grace_s = grace_s
        self._environ = environ

    def answer(
        self,
        messages: Sequence[Turn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> Said:
        """The answer to the last turn, its text given to `on_text` as it comes; or ModelOff."""
        check(messages)
        env = self._environment()
        command = self._command(env)
        with tempfile.TemporaryDirectory(prefix="ralph-chat-") as made:
            folder = Path(made)
            empty = folder / "empty"
            empty.mkdir()
            with AgentProcess(
                command,
                prompt=_prompt(messages).encode(),
                folder=folder,
                cwd=empty,
                env=env,
                grace_s=self._grace_s,
            ) as process:
                heard = _Heard(process.output, on_text)
                ended = process.wait(timeout_s=timeout_s, on_tick=heard.listen)
            heard.listen()
        return self._said(heard, ended, timeout_s)

    def _environment(self) -> dict[str, str]:
        env = agent_environment(also=self._also, given=_QUIET, environ=self._environ)
        # Keys of ours are for other servers.
        return {
            name: value
            for name, value in env.items()
            if not (name.startswith("RALPH_") and name.endswith("_API_KEY"))
        }

    def _command(self, env: Mapping[str, str]) -> list[str]:
        model = ["--model", self._model] if self._model else []
        try:
            return found_command([*_COMMAND, *model], env)
        except BadInput as error:
            raise ModelOff(
                f"Claude Code cannot be asked: {error.what}",
                todo=f"Install Claude Code, or set {self._role}_model to another.",
                fault="setting",
            ) from None

    def _said(self, heard: _Heard, ended: Ended, timeout_s: float) -> Said:
        line = heard.result
        if line is None or line.is_error:
            raise self._failed(heard, ended, timeout_s)
        if not line.result.strip():
            raise ModelOff("Claude Code gave an empty answer", todo="Ask again.", fault="prompt")
        heard.finish(line.result)
        used = line.usage
        return Said(
            text=line.result,
            tokens_in=None
            if used is None
            else used.input_tokens
            + used.cache_creation_input_tokens
            + used.cache_read_input_tokens,
            tokens_out=None if used is None else used.output_tokens,
            cost_usd=line.total_cost_usd,
            model=heard.model or self.name,
        )

    def _failed(self, heard: _Heard, ended: Ended, timeout_s: float) -> ModelOff:
        partial = heard.text
        line = heard.result
        if line is None and ended.timed_out:
            return ModelOff(
                f"Claude Code did not finish its answer within {timeout_s:g} s",
                todo=f"If it is only slow, raise {self._role}_timeout_s.",
                partial=partial,
            )
        if line is None:
            why = _short(ended.stderr) or f"it ended with {ended.exit_code}"
            return ModelOff(
                f"Claude Code gave no answer ({why})",
                todo="Try it by hand: claude -p hello",
                partial=partial,
            )
        told = _short(line.result or "; ".join(line.errors) or "it does not say why")
        if line.api_error_status in (401, 403) or "/login" in told:
            return ModelOff(
                f"Claude Code is not logged in ({told})",
                todo="Run claude and log in.",
                fault="setting",
                partial=partial,
            )
        if line.api_error_status == 404:
            todo = f"Set {self._role}_model to claude, or to one that it knows."
            return ModelOff(f"Claude Code has no such model ({told})", todo=todo, fault="setting")
        if line.terminal_reason == "prompt_too_long":
            what = f"Claude Code finds the prompt too long ({told})"
            return ModelOff(what, todo="Send less.", fault="prompt", partial=partial)
        return ModelOff(f"Claude Code failed ({told})", todo="Try again later.", partial=partial)


class _Heard:
    """What has come of an answer, read from the file that the process writes."""

    def __init__(self, output: Path, on_text: OnText | None) -> None:
        self._output = output
        self._on_text = on_text
        self._at = 0
        self._texts: list[str] = []
        self.model = ""
        self.result: _Line | None = None

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def listen(self) -> bool:
        """Hear the lines that are whole by now; always True: to go on."""
        while True:
            with self._output.open("rb") as file:
                file.seek(self._at)
                data = file.read(_AT_A_TIME)
            lines, newline, rest = data.rpartition(b"\n")
            if not newline and len(rest) == _AT_A_TIME:  # a line that long is none for us
                self._at += len(rest)
                continue
            self._at += len(lines) + len(newline)
            for line in lines.splitlines():
                self._hear(line)
            if len(data) < _AT_A_TIME:
                return True

    def finish(self, text: str) -> None:
        """Tell the text where it did not come in pieces."""
        if not self._texts and self._on_text is not None:
            self._on_text(text)

    def _hear(self, raw: bytes) -> None:
        try:
            line = msgspec.json.decode(raw, type=_Line, strict=False)
        except (msgspec.MsgspecError, RecursionError):
            return  # of another kind: what matters has this form
        self.model = line.model or self.model
        if line.type == "result":
            self.result = line
        delta = line.event.delta if line.event is not None else None
        if delta is not None and delta.text:
            self._texts.append(delta.text)
            if self._on_text is not None:
                self._on_text(delta.text)


def _prompt(messages: Sequence[Turn]) -> str:
    """The conversation as one text: what stands above it, what was said, and what is asked."""
    above = [turn.text for turn in messages if turn.role == "system" and turn.text.strip()]
    said = [turn for turn in messages if turn.role != "system"]
    if len(said) == 1:
        return "\n\n".join([*above, said[0].text])
    talk = [f"{_SPEAKERS[turn.role]}: {turn.text}" for turn in said if turn.text.strip()]
    return "\n\n".join([*above, "The conversation:", *talk])


def _short(text: str) -> str:
    """The last line, short and without secrets: programs say what matters in the end."""
    line = " ".join(text.strip().rpartition("\n")[2].split())
    shown = redact("".join(c if c.isprintable() else " " for c in line))
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 3] + "..."
