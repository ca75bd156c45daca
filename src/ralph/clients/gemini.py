"""Gemini CLI: its command, its output in `--output-format stream-json`, and its settings.

The output does not tell how a shell command ended. The session's file does (`gemini_sessions`), so
a run on this machine is told by that, and one from elsewhere by what its commands printed.
Documented in google-gemini/gemini-cli: docs/cli/headless.md (output), docs/hooks/reference.md
(hooks), docs/tools/mcp-server.md (servers), docs/reference/configuration.md (files, variables).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ralph.capture import AgentRun, Capture
from ralph.capture.lines import count, mapping, text_of
from ralph.clients import AgentCall, SessionFiles
from ralph.clients.hook_settings import HooksSetup, hook_groups
from ralph.clients.setup import NAME, ClientSetup, RalphCall
from ralph.clients.turns import ToolRun, failure_text, tool_call

DIALECTS: tuple[str, ...] = ("gemini",)
OUTPUTS: tuple[str, ...] = ("the output of `gemini -p --output-format stream-json`",)
SESSION_TYPES: frozenset[str] = frozenset()
LOGIN_SHELLS: bool = False
# It takes servers from its settings alone, and the files of one run's settings must be root's.
REVIEW_MODEL: str | None = None
TAKES_SERVERS: bool = False
# The folder is the one that the person runs Ralph in.
_COMMAND = ("gemini", "--output-format", "stream-json", "--skip-trust", "--approval-mode")


def command(call: AgentCall) -> list[str]:
    """The command line of one run; the prompt comes by standard input, behind an empty one."""
    # Without a person to ask, it refuses every other command.
    rules = ",".join(f"run_shell_command({one})" for one in call.permissions.commands)
    mode = ["yolo"] if call.permissions.full else ["auto_edit", "--allowed-tools", rules]
    return [*_COMMAND, *mode, *(["-m", call.model] if call.model else []), "-p", ""]


def variables(call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Nothing: it gets no servers."""
    return {}


def dialect_of(event: Mapping[str, Any]) -> str | None:
    """Every event has a time; the first one names the session."""
    kind, keys = event.get("type"), event.keys()
    if kind == "init" and {"session_id", "timestamp"} <= keys:
        return "gemini"
    return "gemini" if kind == "message" and {"role", "content", "timestamp"} <= keys else None


def open_capture(dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
    """A fresh capture of its output."""
    return GeminiRun(file=file, root=root, injected=injected)


def sessions() -> SessionFiles:
    """The chats under `~/.gemini/tmp`."""
    from ralph.clients import gemini_sessions

    return gemini_sessions


def setup() -> ClientSetup:
    """Hooks and the MCP server, both in `settings.json`."""
    return GeminiSetup()


class GeminiRun(ToolRun):
    """A run being read."""

    _result: Mapping[str, Any] | None = None
    _said = ""

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        self._root, self._injected = root, injected

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        self.see_time(event.get("timestamp"))
        if kind == "message" and event.get("role") == "assistant":
            self._said += text_of(event.get("content"))  # it comes in pieces
            return
        self.speak(self._said)
        self._said = ""
        if kind == "init":
            self.session = text_of(event.get("session_id"))
            self.model = text_of(event.get("model"))
        elif kind == "message":
            self.see_injected(text_of(event.get("content")))
        elif kind == "tool_use":
            name, given = text_of(event.get("tool_name")), mapping(event.get("parameters"))
            self.call(tool_call(text_of(event.get("tool_id")), name, given))
        elif kind == "tool_result":
            failed = event.get("status") == "error"
            output = failure_text(event.get("error")) if failed else text_of(event.get("output"))
            self.answer(text_of(event.get("tool_id")), output, failed=failed)
        elif kind == "error" and event.get("severity") == "error":
            self.failure = text_of(event.get("message"))
        elif kind == "result":
            self._result = event
            self.failure = failure_text(event.get("error"))

    def finish(self) -> AgentRun:
        """What the run left behind."""
        self.speak(self._said)
        self._said = ""
        result = self._result or {}
        stats = mapping(result.get("stats"))
        models = list(mapping(stats.get("models")))
        # `auto` is no model; of several, the last one did the work that the first one chose it for.
        self.model = models[-1] if models else self.model
        found = self.finished(
            "gemini",
            "killed" if self._result is None else "ok",
            tokens_used=count(stats.get("total_tokens")),
            duration_ms=count(stats.get("duration_ms")),
        )
        from ralph.clients.gemini_sessions import last_exchange

        if seen := last_exchange(self.session or "", root=self._root, injected=self._injected):
            told = seen.captured
            return msgspec.structs.replace(
                found,
                errors=told.errors if found.terminal_reason == "ok" else found.errors,
                decisions=told.decisions,
                files_touched=told.files_touched,
            )
        return found


# -- Its settings.

# Its events, ours, the tools they are for, and how long it waits, in milliseconds. PreCompress
# comes before every request to the model, not only when something is compressed.
_HOOKS = (
    ("SessionStart", "session-start", "", 10_000),
    ("BeforeAgent", "user-prompt-submit", "", 10_000),
    ("AfterTool", "post-tool-use-failure", "run_shell_command|write_file|replace", 10_000),
    ("AfterAgent", "stop", "", 15_000),
    ("SessionEnd", "session-end", "", 2_000),
)


class GeminiSetup(HooksSetup):
    """Hooks and the MCP server in `settings.json`."""

    agent = "gemini"
    fills_variables = True

    def servers_file(self, root: Path | None) -> Path:
        """Its settings: of the project at this root, else the person's own."""
        given = os.environ.get("GEMINI_CLI_HOME")
        home = Path(given).expanduser() if given else Path.home()
        return (home if root is None else root) / ".gemini" / "settings.json"

    hooks_file = servers_file

    def wanted_hooks(self, call: RalphCall) -> dict[str, list[Any]]:
        """The groups of each event, calling Ralph so."""
        return hook_groups(self.agent, call, _HOOKS, name=NAME)

    def server_entry(self, call: RalphCall) -> dict[str, Any]:
        """Our server as its settings describe one."""
        return {"command": call.program, "args": call.server_words}
