"""What an agent said and did, for clients whose tools are a shell and tools that change files.

Codex, Gemini CLI and OpenCode use this to read a run's output and the exchanges of a session. Only
the layout of their events differs. Claude Code uses it to read tool calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ralph.capture import AgentRun, TerminalReason, lines
from ralph.capture.decisions import answers_by_question
from ralph.capture.lines import clip, items, mapping, objects, session_name, text_of
from ralph.capture.outputs import stumble
from ralph.capture.run import RunFindings
from ralph.clients.patches import BEGIN_PATCH, changes_of, hunks_of
from ralph.records.iteration import ErrorSeen, FileAction

SHELLS = {"run_shell_command", "bash", "shell", "Bash", "PowerShell"}
_FILE_TOOLS: dict[str, FileAction] = {
    **dict.fromkeys(("write_file", "write", "Write"), "created"),
    **dict.fromkeys(("replace", "edit", "multiedit", "patch"), "modified"),
    **dict.fromkeys(("Edit", "MultiEdit", "NotebookEdit"), "modified"),
    **dict.fromkeys(("read_file", "read", "Read"), "read"),
    "delete": "deleted",
}
_PATCH_KEYS = ("patchText", "patch", "input")
_PATH_KEYS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")
_EDITS = (("old_string", "oldString"), ("new_string", "newString"))
_CONTENT_KEYS = ("content", "new_source")
_TARGETS = ("pattern", "query", "url", "description", "skill", "prompt")
# Tools that ask a person: those of Codex, OpenCode and Gemini CLI.
_ASKING = {"request_user_input", "question", "ask_user"}
_MOST_QUESTIONS = 20
LONGEST_COMMAND = 20_000
_LONGEST_EDIT = 200_000
_MOST_EDITS = 20
_MOST_OPEN = 1000
MOST_TYPED = 50
_LIMITED = re.compile(r"usage limit|rate.?limit|\b429\b|too many requests", re.I)
_TOO_LONG = re.compile(r"context (?:window|length)|prompt is too long", re.I)


class OpenCall(msgspec.Struct, kw_only=True):
    """A tool call that waits for its answer: what it runs or changes, and how it is shown.

    `changes` are the files that a tool reads or changes, `edits` what it removes from each and
    adds, `content` what it writes as the whole file. `session` names the shell that a call waits
    for, `parent` the agent that calls.
    """

    identity: str
    tool: str
    target: str = ""
    command: str = ""
    folder: str | None = None
    path: str = ""
    changes: list[tuple[str, FileAction]] | None = None
    edits: list[tuple[str, str, str]] = []
    content: str = ""
    session: str = ""
    begun: int = 0
    parent: str | None = None
    plan: str = ""
    # What a person is asked, by the name that the answer has.
    questions: dict[str, str] = {}

    @property
    def writes(self) -> bool:
        """Whether it changes files."""
        return any(action != "read" for _, action in self.changes or ())


def questions_in(tool: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return what a call asks a person, by the id of each question or its place."""
    if tool not in _ASKING:
        return {}
    asked = items(given.get("questions"))[:_MOST_QUESTIONS]
    return {
        text_of(question.get("id")) or str(place): text_of(question.get("question"))
        for place, question in enumerate(asked)
    }


def tool_call(identity: str, tool: str, given: Mapping[str, Any]) -> OpenCall:
    """Return the call of a tool that takes a command, or the path of one file."""
    command = text_of(given.get("command"))[:LONGEST_COMMAND] if tool in SHELLS else ""
    path = next((text_of(given.get(key)) for key in _PATH_KEYS if given.get(key)), "")
    other = next((text_of(given.get(key)) for key in _TARGETS if given.get(key)), "")
    target = command or path or other
    call = OpenCall(identity=identity, tool=tool, target=target, command=command, path=path)
    call.questions = questions_in(tool, given)
    patch = next((text_of(given.get(key)) for key in _PATCH_KEYS if given.get(key)), "")
    if not command and patch.lstrip().startswith(BEGIN_PATCH):
        call.changes = changes_of(patch)
        call.edits = [
            (path, old[:_LONGEST_EDIT], new[:_LONGEST_EDIT]) for path, old, new in hunks_of(patch)
        ]
        call.target = ", ".join(path for path, _ in call.changes)
    elif action := _FILE_TOOLS.get(tool):
        call.changes = [(path, action)]
        for edit in (items(given.get("edits")) or [given])[:_MOST_EDITS] if call.writes else ():
            old, new = (text_of(edit.get(key) or edit.get(other)) for key, other in _EDITS)
            call.edits = [*call.edits, (path, old[:_LONGEST_EDIT], new[:_LONGEST_EDIT])]
        if call.writes:
            written = next((text_of(given.get(key)) for key in _CONTENT_KEYS if given.get(key)), "")
            call.content = written[:_LONGEST_EDIT]
    return call


class ToolFindings(RunFindings):
    """The findings of a run or an exchange, from tool calls and their answers."""

    spoke_last = False

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        self.steps = lines.Steps()
        self._open: dict[str, OpenCall] = {}

    def speak(self, text: str) -> None:
        """Note the assistant's words."""
        if text.strip():
            self.live.turns += 1
            self.say(text)
            self.steps.said(text)
            self.spoke_last = True
            self.failure = ""

    def call(self, call: OpenCall) -> None:
        """Note a tool call."""
        self.spoke_last = False
        call.begun = self.attempts.begin()
        self.use_tool(call.tool or "unnamed", call.target)
        if len(self._open) < _MOST_OPEN:
            self._open[call.identity] = call
        self.live.running = len(self._open)
        place = self.place(call.path) if call.path and not call.command else None
        self.steps.called(call.identity, call.tool, place or call.target)

    def answer(
        self,
        identity: str,
        output: str,
        *,
        failed: bool = False,
        code: int | None = None,
        existed: bool | None = None,
        is_code_unseen: bool = False,
    ) -> None:
        """Note a tool's answer; `existed` says whether a file that was written existed before.

        `is_code_unseen` if the command ended with an exit code that nobody saw.
        """
        call = self._open.pop(identity, None)
        self.live.running = len(self._open)
        if call is None:
            return
        failed = failed or bool(code)
        self.steps.answered(call.identity, output, failed=failed)
        if failed and not code and stumble(output) == "denied":
            self.stumbles["denied"] += 1
            target = f"({clip(call.command, 60)})" if call.command else ""
            self.denied = [*self.denied, call.tool + target][:_MOST_OPEN]
        elif call.questions and not failed:
            self.take_answers(answers_by_question(call.questions, output), output)
        elif call.changes is not None and not failed:
            for path, action in call.changes:
                known = self.knows(path) if existed is None else existed
                overwritten = action == "created" and known
                self.touch(path, "modified" if overwritten else action, call.folder)
            for path, old, new in call.edits:
                self.edited(path, old, new, call.folder)
            if call.content:
                self.wrote(call.path, call.content, call.folder)
        elif call.command and not call.writes:
            text = f"Exit code {code}\n{output}" if code else output
            # Then its output is all that tells whether it failed.
            command = f"{call.command}\ntrue" if is_code_unseen else call.command
            ran = self.ran(command, text, failed=failed, base=call.folder)
            self.tried_command(call.command, ran, failed=failed, begun=call.begun)
        elif failed and call.writes:
            self.stumbles["edit"] += 1
        elif failed and not self.stumble(output):
            place = self.place(call.path) if call.path else None
            message = f"{call.tool}: {clip(output.strip(), 1000) or 'failed'}"
            self.add_error(ErrorSeen(message, "unknown", place))
        if not call.command:
            self.see_injected(output)

    def changed_on_disk(self, path: str) -> None:
        """Note a file that the client saw changed, unless a tool already says how."""
        if self._files.get(self.place(path) or "", "read") == "read":
            self.touch(path, "modified")

    def drop(self, identity: str) -> OpenCall | None:
        """Drop a call whose answer says nothing: a person stopped it, or it is still running."""
        return self._open.pop(identity, None)


class ToolRun(ToolFindings):
    """Reads a run from its output."""

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        if root:
            self.at_home(root)

    def feed(self, line: bytes) -> None:
        """Read one line; never raises, whatever is on it."""
        self.read(line, objects, self._take)

    def _take(self, event: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def finished(
        self, dialect: str, reason: TerminalReason, final: str = "", **facts: Any
    ) -> AgentRun:
        """Return the result of the run; `final` is its last words."""
        reason = failure_reason(self.failure) if self.failure else reason
        final = (final or self.steps.final) if reason == "ok" else ""
        summary = final or self.last_text or self.failure
        return self.result(dialect, reason, summary=summary, **facts)


class ToolTurn(ToolFindings, lines.OpenExchange):
    """An exchange of a session being read.

    `folder` is where it is held, if not in the session's folder.
    """

    reason: TerminalReason | None = None
    # Whether the client marks where turns begin and end.
    is_marked = False

    def __init__(
        self, dialect: str, start: lines.SessionStart, key: str, begins_at: int, folder: str = ""
    ) -> None:
        super().__init__(file=start.file, root=start.root)
        self._dialect, self.head, self.session = dialect, start.head, start.head.session
        self.key = session_name(key) or key
        self.begins_at = begins_at
        self.typed = list[str]()
        self.folder = folder or start.head.cwd
        self.tokens: dict[str, int] = {}
        self.at_home(self.folder)

    def ask(self, text: str) -> None:
        """Note a person's words; words typed while the assistant works are also a step."""
        self.hear(text, first=None if self.typed else self.is_first)
        if len(self.typed) < MOST_TYPED:
            if self.typed:
                self.steps.asked(text)
            self.typed.append(text)

    def finish(self) -> AgentRun:
        """Return the result so far."""
        reason = self.reason or ("ok" if self.spoke_last and not self.is_marked else "unknown")
        if self.failure and reason != "interrupted":
            reason = failure_reason(self.failure)
        summary = self.told() or self.failure
        spent = sum(self.tokens.values()) or None
        return self.result(self._dialect, reason, summary=summary, tokens_used=spent)


def failure_reason(message: str) -> TerminalReason:
    """Return the terminal reason that fits an error message."""
    if _LIMITED.search(message):
        return "rate_limited"
    return "prompt_too_long" if _TOO_LONG.search(message) else "api_error"


def failure_text(error: Any) -> str:
    """Return the message of an error, however deep a client nests it."""
    plain = mapping(error)
    inner = plain.get("message") or mapping(plain.get("data")).get("message") or plain.get("name")
    return text_of(error) or text_of(inner) or ("the request failed" if plain else "")
