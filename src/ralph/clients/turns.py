"""What an agent said and did, for clients whose tools are a shell and tools for one file each.

Gemini CLI, OpenCode and Cursor are read with this: a run's output, and the exchanges of a session.
What is special to a client is only how its events are laid out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ralph.capture import AgentRun, TerminalReason, lines
from ralph.capture.lines import clip, mapping, objects, text_of
from ralph.capture.run import RunFindings, session_name
from ralph.capture.stumbles import stumble
from ralph.clients.codex import failure_reason
from ralph.records.iteration import ErrorSeen, FileAction

_SHELLS = {"run_shell_command", "bash", "shell"}
_FILE_TOOLS: dict[str, FileAction] = {
    "write_file": "created",
    "write": "created",
    "replace": "modified",
    "edit": "modified",
    "multiedit": "modified",
    "patch": "modified",
    "delete": "deleted",
    "read_file": "read",
    "read": "read",
}
_PATH_KEYS = ("file_path", "filePath", "absolute_path", "path")
_EDITS = (("old_string", "oldString"), ("new_string", "newString"))
_TARGETS = ("pattern", "query", "url", "description", "prompt")
_LONGEST_COMMAND = 20_000
_MOST_OPEN = 1000
_MOST_TYPED = 50


class OpenCall(msgspec.Struct, frozen=True):
    """A call that waits for its answer."""

    tool: str
    command: str = ""
    path: str = ""
    action: FileAction | None = None
    begun: int = 0
    old: str = ""
    new: str = ""


class ToolFindings(RunFindings):
    """The findings of a run or an exchange, told by calls and answers."""

    model = ""
    failure = ""
    spoke_last = False

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        self.steps = lines.Steps()
        self._open: dict[str, OpenCall] = {}
        self.denied: list[str] = []

    def speak(self, text: str) -> None:
        """The assistant's words."""
        if text.strip():
            self.live.turns += 1
            self.say(text)
            self.steps.said(text)
            self.spoke_last, self.failure = True, ""

    def call(self, identity: str, tool: str, given: Mapping[str, Any]) -> None:
        """The assistant called a tool."""
        self.spoke_last = False
        command = text_of(given.get("command"))[:_LONGEST_COMMAND] if tool in _SHELLS else ""
        path = next((text_of(given.get(key)) for key in _PATH_KEYS if given.get(key)), "")
        other = next((text_of(given.get(key)) for key in _TARGETS if given.get(key)), "")
        begun = self.attempts.begin()
        self.use_tool(tool or "unnamed", command or path or other)
        if len(self._open) < _MOST_OPEN:
            old, new = (text_of(given.get(key) or given.get(other)) for key, other in _EDITS)
            action = _FILE_TOOLS.get(tool)
            self._open[identity] = OpenCall(tool, command, path, action, begun, old, new)
        self.live.running = len(self._open)
        self.steps.called(identity, tool, command or self.place(path) or path or other)

    def answer(
        self,
        identity: str,
        output: str,
        *,
        failed: bool = False,
        code: int | None = None,
        existed: bool | None = None,
    ) -> None:
        """A tool answered; `existed` says whether a file that was written was there before."""
        call = self._open.pop(identity, None)
        self.live.running = len(self._open)
        if call is None:
            return
        failed = failed or bool(code)
        self.steps.answered(identity, output, failed=failed)
        if failed and not code and stumble(output) == "denied":
            self.stumbles["denied"] += 1
            target = f"({clip(call.command, 60)})" if call.command else ""
            self.denied = [*self.denied, call.tool + target][:_MOST_OPEN]
        elif call.command:
            text = f"Exit code {code}\n{output}" if code else output
            ran = self.ran(call.command, text, failed=failed)
            self.tried_command(call.command, ran, failed=failed, begun=call.begun)
        elif failed:
            if call.action not in (None, "read"):
                self.stumbles["edit"] += 1
            elif not self.stumble(output):
                place = self.place(call.path) if call.path else None
                message = f"{call.tool}: {clip(output.strip(), 1000) or 'failed'}"
                self.add_error(ErrorSeen(message, "unknown", place))
        elif call.action == "read":
            self.touch(call.path, "read")
        elif call.action is not None:
            existed = self.knows(call.path) if existed is None else existed
            overwritten = call.action == "created" and existed
            self.touch(call.path, "modified" if overwritten else call.action)
            self.edited(call.path, call.old, call.new)
        if not call.command:
            self.see_injected(output)

    def drop(self, identity: str) -> None:
        """A person stopped the call."""
        self._open.pop(identity, None)


class ToolRun(ToolFindings):
    """A run being read from its output."""

    session = ""

    def feed(self, line: bytes) -> None:
        """Take one line; never raises, whatever is on it."""
        self.read(line, objects, self._take)

    def _take(self, event: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def finished(self, dialect: str, reason: TerminalReason, **facts: Any) -> AgentRun:
        """What the run left behind."""
        reason = failure_reason(self.failure) if self.failure else reason
        return self.result(
            dialect,
            reason,
            session=self.session,
            summary=(self.steps.final if reason == "ok" else "") or self.last_text or self.failure,
            model=self.model,
            failure=self.failure,
            denied=self.denied,
            num_turns=self.live.turns or None,
            is_error=reason != "ok",
            **facts,
        )


class ToolTurn(ToolFindings, lines.OpenExchange):
    """An exchange of a session being read."""

    folder = ""
    reason: TerminalReason | None = None

    def __init__(self, dialect: str, start: lines.SessionStart, key: str, begins_at: int) -> None:
        super().__init__(file=start.file, root=start.root)
        self._dialect, self._head = dialect, start.head
        self.key, self.begins_at = session_name(key) or key, begins_at
        self._typed: list[str] = []
        self.tokens: dict[str, int] = {}
        self.at_home(start.head.cwd)

    def ask(self, text: str) -> None:
        """A person's words; what comes while the assistant works is a step, too."""
        self.hear(text, first=None)
        if len(self._typed) < _MOST_TYPED:
            if self._typed:
                self.steps.asked(text)
            self._typed.append(text)

    def seen(self, ends_at: int, *, finished: bool) -> lines.SessionExchange:
        """The exchange as it stands."""
        reason = self.reason or ("ok" if self.spoke_last else "unknown")
        if self.failure and reason != "interrupted":
            reason = failure_reason(self.failure)
        captured = self.result(
            self._dialect,
            reason,
            session=self._head.session,
            summary=self.told() or self.failure,
            model=self.model,
            failure=self.failure,
            tokens_used=sum(self.tokens.values()) or None,
            num_turns=self.live.turns or None,
            is_error=reason not in {"ok", "interrupted", "unknown"},
        )
        return self._exchange(
            self._typed,
            captured,
            cwd=self.folder or self._head.cwd,
            git_branch=self._head.git_branch,
            key=self.key,
            session_id=captured.session_id,
            ends_at=ends_at,
            finished=finished,
        )


def failure_text(error: Any) -> str:
    """The words of an error, however deep a client puts them."""
    plain = mapping(error)
    inner = plain.get("message") or mapping(plain.get("data")).get("message") or plain.get("name")
    return text_of(error) or text_of(inner) or ("the request failed" if plain else "")
