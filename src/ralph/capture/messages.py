"""Claude Code's messages, which its stream and its transcripts share: blocks, tools, results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ralph.capture.gather import Gathered
from ralph.capture.lines import content_text, items, mapping, text_of
from ralph.capture.retries import ELSEWHERE, file_call, file_text
from ralph.capture.shell import LEFT
from ralph.capture.steps import Steps
from ralph.records.iteration import ErrorSeen, ErrorType, FileAction

MOST_OPEN = 5000
_SYNTHETIC = "<synthetic>"
_LONGEST_COMMAND = 20_000

_PATH_KEYS = ("file_path", "notebook_path", "path")
_WRITERS: dict[str, FileAction] = {
    "Edit": "modified",
    "MultiEdit": "modified",
    "NotebookEdit": "modified",
    "Read": "read",
}
_SEARCHES = {"Glob", "Grep"}
_SUBAGENTS = {"Task", "Agent"}
_SHELLS = {"Bash"}
_CHANGERS = {"Edit", "MultiEdit", "NotebookEdit", "Write"}
_ASKED = ("description", "query", "pattern", "url", "skill", "prompt")
_BEHIND = "Command running in background"
# What the client says of a call that goes on behind its result.
_LEFT_SAID = re.compile(r"\bbackground|\bAsync agent", re.I)
# What the client itself says in the model's place when there is nothing to say.
PLACEHOLDER = "No response requested."
_HAS_ENDING = re.compile(r"[^/\\]\.\w{1,12}$")

_ADVICE = re.compile(r"\s*Note: your current working directory is .*", re.S)
_WRAPPER = re.compile(r"</?tool_use_error>")
_DENIED = re.compile(
    r"requested permissions? to |requires approval|haven't granted it"
    r"|[Pp]ermission to use .{1,80} (?:has been )?denied|denied by (?:the )?(?:user|permission)"
    r"|Permission for this (?:action|tool)"
)
_STOPPED = re.compile(
    r"The user doesn't want to (?:proceed|take this action)|\[Request interrupted by user"
    r"|User rejected tool use|Tool use (?:was )?(?:interrupted|cancelled)|^Cancelled: parallel"
)
INTERRUPTED = "[Request interrupted by user"


class Use(msgspec.Struct):
    """A tool call that waits for its result; only what will be needed."""

    name: str
    path: str = ""
    command: str = ""
    parent: str | None = None
    begun: int = 0


class Messages:
    """The messages of one session: the main agent's, and those of its subagents."""

    def __init__(self, found: Gathered, steps: Steps | None = None) -> None:
        self.found = found
        self.steps = steps
        self.model: str | None = None
        self.denied: list[str] = []
        self.interrupted = False
        self.api_error = ""
        self._open: dict[str, Use] = {}
        # Calls that go on in the background, perhaps to the end of the session.
        self._left = 0
        # Errors of subagents count only when the call that started them failed.
        self._below: dict[str, list[ErrorSeen]] = {}
        self._folder: str | None = None
        self._turn: Any = None

    def assistant(self, message: Mapping[str, Any], *, parent: str | None, failed: bool) -> None:
        """One line of an assistant's message; a failed one is the client's own, not the model's."""
        found = self.found
        model = text_of(message.get("model"))
        if failed or model == _SYNTHETIC:
            said = content_text(message.get("content"))[:4000]
            self.api_error = self.api_error if said == PLACEHOLDER else said
            return
        if parent is None:
            self.api_error = ""
            self.model = model or self.model
            identity = message.get("id")
            if identity is None or identity != self._turn:
                found.live.turns += 1
                self._turn = identity
        found.live.waiting = None
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for block in items(content):
            kind = block.get("type")
            if kind == "tool_use":
                self._call(block, parent)
            elif kind == "text" and parent is None:
                found.say(text_of(block.get("text")))
                if self.steps is not None:
                    self.steps.said(text_of(block.get("text")))

    def _call(self, block: Mapping[str, Any], parent: str | None) -> None:
        name = text_of(block.get("name"))
        given = mapping(block.get("input"))
        path = next((text_of(given.get(key)) for key in _PATH_KEYS if given.get(key)), "")
        command = text_of(given.get("command"))[:_LONGEST_COMMAND] if name in _SHELLS else ""
        identity = text_of(block.get("id"))
        if identity in self._open:
            return
        asked = next((text_of(given.get(key)) for key in _ASKED if given.get(key)), "")
        self.found.use_tool(name or "unnamed", path or command or asked)
        if len(self._open) >= MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        use = Use(name, path, command, parent, self.found.attempts.begin())
        self._open[identity or f"#{self.found.live.tool_uses}"] = use
        self._left += bool(given.get("run_in_background") or LEFT.search(command))
        self.found.live.running = len(self._open) + self._left
        if self.steps is not None and parent is None:
            place = self.found.place(path) if path else None
            self.steps.called(identity, name, command or place or path or asked)

    def user(
        self,
        message: Mapping[str, Any],
        detail: Callable[[], Any],
        *,
        parent: str | None,
        cwd: str | None = None,
    ) -> None:
        """One line of a user's message: results of tools, or somebody's words."""
        content = message.get("content")
        if isinstance(content, str):
            self._heard(content, parent)
            return
        for block in items(content):
            if block.get("type") == "tool_result":
                self._result(block, detail, parent, cwd)
            elif block.get("type") == "text":
                self._heard(text_of(block.get("text")), parent)

    def _heard(self, text: str, parent: str | None) -> None:
        if parent is None:
            self.interrupted = text.startswith(INTERRUPTED)
        self.found.see_injected(text)

    def _result(
        self,
        block: Mapping[str, Any],
        detail: Callable[[], Any],
        parent: str | None,
        cwd: str | None,
    ) -> None:
        identity = text_of(block.get("tool_use_id"))
        use = self._open.pop(identity, None)
        failed = block.get("is_error") is True
        below = self._below.pop(identity, [])
        if use is None and not failed:
            return
        use = use or Use("", parent=parent)
        parent = parent or use.parent
        output = content_text(block.get("content"))
        if use.name in _SHELLS | _SUBAGENTS and _LEFT_SAID.search(output[:200]):
            self._left += 1
        self.found.live.running = len(self._open) + self._left
        if self.steps is not None:
            self.steps.answered(identity, output, failed=failed)
        errors: list[ErrorSeen] = []
        if failed:
            errors += below
            if _STOPPED.search(output[:2000]):
                return
        refused = failed and (_WRAPPER.match(output) or _DENIED.search(output[:2000]))
        if use.command and not refused:
            base = cwd or (self._folder if parent is None else None)
            ran = self.found.ran(use.command, output, failed=failed, base=base)
            errors += ran.errors
            if parent is None and not failed and "Shell cwd was reset" not in output[-500:]:
                self._folder = ran.here
            if parent is None and not output.startswith(_BEHIND):
                self.found.tried_command(use.command, ran, failed=failed, begun=use.begun)
            elif not failed:
                self.found.did(use.command)
        elif failed:
            error = self._failure(use, output, detail())
            errors.append(error)
            if parent is None and use.name in _CHANGERS and error.error_type != "permission":
                self._tried_change(use, error)
        else:
            self._done(use, output, detail)
            self.found.see_injected(output)
            if self.found.attempts.open:
                self._helped(use, parent)
        self._met(errors, parent)

    def _tried_change(self, use: Use, error: ErrorSeen) -> None:
        call = file_call(use.name, use.path, self.found.place(use.path))
        self.found.tried(call, [error], "badly", begun=use.begun)

    def _helped(self, use: Use, parent: str | None) -> None:
        """A tool came back well while an error waits to be solved."""
        if use.name in _CHANGERS:
            place = self.found.place(use.path)
            if parent is None:
                call = file_call(use.name, use.path, place)
                self.found.tried(call, [], "well", begun=use.begun)
            self.found.attempts.do("edited", place or ELSEWHERE)
        elif use.name == "Read" and self.found.attempts.awaits(file_text(use.path)):
            place = self.found.place(use.path)
            self.found.attempts.do("read", place or ELSEWHERE, only_for=file_text(use.path))

    def _met(self, errors: list[ErrorSeen], parent: str | None) -> None:
        if parent is None:
            for error in errors:
                self.found.add_error(error)
        elif errors and len(self._below) < MOST_OPEN:
            waiting = self._below.setdefault(parent, [])
            waiting += errors[: 20 - len(waiting)]

    def _failure(self, use: Use, output: str, detail: Any) -> ErrorSeen:
        # The structured result says it without the advice meant for the model.
        said = detail.removeprefix("Error: ") if isinstance(detail, str) else output
        said = _ADVICE.sub("", _WRAPPER.sub("", said)).strip()
        denied = _DENIED.search(said) is not None
        if denied:
            self.denied = [*self.denied, use.name][:MOST_OPEN]
        error_type: ErrorType = "permission" if denied else "unknown"
        message = f"{use.name}: {said}" if use.name else said
        place = self.found.place(use.path) if use.path else None
        return ErrorSeen(message, error_type, place)

    def _done(self, use: Use, output: str, detail: Callable[[], Any]) -> None:
        """A tool that is not the shell came back well: what it did to its file."""
        found = self.found
        if use.name == "Write":
            kind = mapping(detail()).get("type")
            if kind not in {"create", "update"}:
                told = output[:200].lower()
                kind = "create" if "created" in told else "update" if "updated" in told else None
            if kind is None:
                kind = "update" if found.knows(use.path) else "create"
            found.touch(use.path, "created" if kind == "create" else "modified")
        elif use.name in _WRITERS:
            found.touch(use.path, _WRITERS[use.name])
        elif use.name in _SEARCHES and _HAS_ENDING.search(use.path):
            # A folder that was searched is not a file that was read.
            found.touch(use.path, "read")

    def settle(self) -> None:
        """The run came to its own end: calls whose results were never printed were made."""
        for use in self._open.values():
            if use.command:
                self.found.ran(use.command, "", failed=False)
            elif use.name not in _SUBAGENTS:
                self._done(use, "", lambda: None)
        self._open.clear()
