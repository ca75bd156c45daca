"""Gemini CLI: its command, its output in `--output-format stream-json`, and its settings.

The output does not say how a shell command ended, but the session's file does. So a run on this
machine is read from that file, and a run from elsewhere from what its commands printed.
Documented in google-gemini/gemini-cli: docs/cli/headless.md (output), docs/hooks/reference.md
(hooks), docs/tools/mcp-server.md (servers), docs/reference/configuration.md (files, variables).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ralph.capture import AgentRun, Capture, lines
from ralph.capture.lines import content_text, count, items, mapping, objects, text_of
from ralph.clients import AgentCall, SessionFiles, drift
from ralph.clients.hook_settings import HooksSetup, hook_groups
from ralph.clients.setup import (
    NAME,
    ClientSetup,
    RalphCall,
    SetupPlace,
    called_twice,
    installed_plugin,
)
from ralph.clients.turns import ToolRun, ToolTurn, failure_text, tool_call

DIALECTS: tuple[str, ...] = ("gemini",)
OUTPUTS: tuple[str, ...] = ("the output of `gemini -p --output-format stream-json`",)
SESSION_TYPES: frozenset[str] = frozenset()
LOGIN_SHELLS: bool = False
REVIEW_MODEL: str | None = None
# It takes servers only from its settings, and settings for a single run must belong to root.
TAKES_SERVERS: bool = False
# `--skip-trust`: the folder is the one that the person runs Ralph in.
_COMMAND = ("gemini", "--output-format", "stream-json", "--skip-trust", "--approval-mode")


def command(call: AgentCall) -> list[str]:
    """Return the command line of one run; `-p` is empty, the prompt comes on standard input."""
    # Without a person to ask, it refuses every other command.
    rules = ",".join(f"run_shell_command({one})" for one in call.permissions.commands)
    mode = ["yolo"] if call.permissions.full else ["auto_edit", "--allowed-tools", rules]
    return [*_COMMAND, *mode, *(["-m", call.model] if call.model else []), "-p", ""]


def variables(call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Return nothing: it gets no servers."""
    return {}


def dialect_of(event: Mapping[str, Any]) -> str | None:
    """Return the dialect of an event: each has a time, and the first one names the session."""
    kind = event.get("type")
    keys = event.keys()
    if kind == "init" and {"session_id", "timestamp"} <= keys:
        return "gemini"
    return "gemini" if kind == "message" and {"role", "content", "timestamp"} <= keys else None


def open_capture(dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
    """Create a capture of its output."""
    return GeminiRun(file=file, root=root, injected=injected)


def sessions() -> SessionFiles:
    """Return the chats under `~/.gemini/tmp`, which this module also reads."""
    from ralph.clients import gemini

    return gemini


def setup() -> ClientSetup:
    """Return the setup: hooks and the MCP server, both in `settings.json`."""
    return GeminiSetup()


class GeminiRun(ToolRun):
    """Reads a run."""

    _result: Mapping[str, Any] | None = None
    _said = ""

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        self._root = root
        self._injected = injected

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
            name = text_of(event.get("tool_name"))
            given = mapping(event.get("parameters"))
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
        """Return the result of the run."""
        self.speak(self._said)
        self._said = ""
        stats = mapping((self._result or {}).get("stats"))
        models = list(mapping(stats.get("models")))
        # `auto` is not a model; of several models, the first chose the last, which did the work.
        self.model = models[-1] if models else self.model
        found = self.finished(
            "gemini",
            "killed" if self._result is None else "ok",
            tokens_used=count(stats.get("total_tokens")),
            duration_ms=count(stats.get("duration_ms")),
        )
        if seen := last_exchange(self.session or "", root=self._root, injected=self._injected):
            told = seen.captured
            return msgspec.structs.replace(
                found,
                errors=told.errors if found.terminal_reason == "ok" else found.errors,
                decisions=told.decisions,
                files_touched=told.files_touched,
            )
        return found


# -- Its session files: `~/.gemini/tmp/<project>/chats/session-*.jsonl`.
#
# The first line names the session. A message is a line, and is written again as a whole whenever
# more is known of it: its tool calls, then their results. Lines with `$set` are about the session;
# the messages in them also have lines of their own. The session's folder is in a file beside the
# chats.

_ROOT_FILE = ".project_root"
_MOST_PATH_BYTES = 4096
# What the client adds to a person's words for the model.
_CONTEXT = "<hook_context>"
_CONTEXT_END = "</hook_context>"
_NOT_TYPED = ("/", "?", "<session_context>")
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})$", re.M)
_WRAPPER = re.compile(r"</?untrusted_context>\n?|^Output: |^Process Group PGID: \d+$", re.M)
_EXISTED = re.compile(r"\ASuccessfully (?:overwrote|(created))")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDED = {"success", "error", "cancelled"}


class GeminiTurn(ToolTurn):
    """An exchange being read; knows which parts of its messages were already read."""

    def __init__(self, start: lines.SessionStart, key: str, begins_at: int) -> None:
        super().__init__("gemini", start, key, begins_at)
        self._read_ids: set[str] = set()

    def take(self, message: Mapping[str, Any]) -> None:
        """Read a line of the model."""
        self.see_time(message.get("timestamp"))
        self.model = text_of(message.get("model")) or self.model
        identity = text_of(message.get("id"))
        text = content_text(message.get("content"))
        if text.strip() and self._is_new(identity):
            self.speak(text)
        if total := count(mapping(message.get("tokens")).get("total")):
            self.tokens[identity] = total
        for call in items(message.get("toolCalls")):
            name = text_of(call.get("id"))
            status = text_of(call.get("status"))
            if status in _ENDED and self._is_new(name):
                self.call(tool_call(name, text_of(call.get("name")), mapping(call.get("args"))))
                self._answer(name, call, status)

    def _answer(self, name: str, call: Mapping[str, Any], status: str) -> None:
        if status == "cancelled":
            self.drop(name)
            self.reason = "interrupted"
            return
        self.reason = None
        back = (mapping(part.get("functionResponse")) for part in items(call.get("result")))
        told = (mapping(one.get("response")) for one in back)
        output = "\n".join(text_of(one.get("output")) or text_of(one.get("error")) for one in told)
        self.see_injected(output)
        output = _without_context(output)
        code = _EXIT.search(output)
        existed = _EXISTED.match(output)
        self.answer(
            name,
            _EXIT.sub("", _WRAPPER.sub("", output)).strip(),
            failed=status == "error",
            code=int(code[1]) if code else None,
            existed=None if existed is None else existed[1] is None,
        )

    def _is_new(self, identity: str) -> bool:
        known = identity in self._read_ids
        self._read_ids.add(identity)
        return not known


def _without_context(text: str) -> str:
    """Return the text without what hooks added to it."""
    first, *rest = text.split(_CONTEXT)
    return "".join([first, *(part.partition(_CONTEXT_END)[2] for part in rest)]).strip()


class GeminiSession(lines.SessionReader):
    """Reads a session's file."""

    _parts = staticmethod(objects)
    _names = staticmethod(drift.gemini_names)
    _open: GeminiTurn | None = None
    injected = ""

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = text_of(event.get("type"))
        if about := mapping(event.get("$set")):
            self._title = lines.session_title(text_of(about.get("summary"))) or self._title
        elif kind == "user":
            self._ask(event)
        elif self._open is not None and kind == "gemini":
            self._open.take(event)
        elif self._open is not None and kind == "error":
            self._open.failure = content_text(event.get("content"))

    def _ask(self, message: Mapping[str, Any]) -> None:
        content = content_text(message.get("content"))
        typed = _without_context(content_text(message.get("displayContent")) or content)
        key = text_of(message.get("id"))
        if not typed or typed.startswith(_NOT_TYPED) or (self._open and self._open.key == key):
            return
        self._hear_reply(typed)
        self._close(self._at)
        opened = GeminiTurn(self._start, key, self._at)
        self.tell(opened)
        self._open = opened
        opened.see_time(message.get("timestamp"))
        opened.see_injected(content)
        opened.remember_injected(self.injected)
        opened.ask(typed)

    def _agents_words(self, part: Mapping[str, Any]) -> str:
        return content_text(part.get("content")) if part.get("type") == "gemini" else ""


def session_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder where Gemini CLI keeps its sessions."""
    given = environ.get("GEMINI_CLI_HOME")
    return (Path(given) if given else Path.home()) / ".gemini" / "tmp"


def session_files(folder: Path) -> Iterator[Path]:
    """Return every session's file."""
    return (file for file in lines.jsonl_files(folder) if file.name.startswith("session-"))


def session_head(path: Path, file: BinaryIO) -> lines.SessionHead | None:
    """Return the session in a file, with the folder that a file above it names."""
    try:
        first = objects(file.readline().removeprefix(lines.BOM).strip())[0]
    except (lines.UnreadableLine, IndexError):
        return None
    if "projectHash" not in first:
        return None
    session = text_of(first.get("sessionId")) or path.stem
    return lines.SessionHead(session, _folder(path), is_subagent=first.get("kind") == "subagent")


def last_exchange(session: str, *, root: str | None, injected: str) -> lines.SessionExchange | None:
    """Return the last exchange of a session on this machine, or None if it has no file here."""
    if not _UUID.fullmatch(session):
        return None
    for path in session_folder(os.environ).glob(f"*/chats/session-*-{session[:8]}.jsonl"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            head = session_head(path, file)
            if head is None or head.session != session:
                continue
            reader = GeminiSession(lines.SessionStart(path.name, root, head))
            reader.injected = injected
            file.seek(0)
            for line in file:
                reader.feed(line)
            return next(iter(reader.rest()), None)
    return None


def _folder(path: Path) -> str:
    for above in path.parents[1:2]:
        try:
            with (above / _ROOT_FILE).open("rb") as file:
                return file.read(_MOST_PATH_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            break
    return ""


session_reader = GeminiSession
session_stamp = lines.file_stamp
open_session = lines.open_file


# -- Its settings.

# Its event, our event, the tools it is for, and the timeout in milliseconds. PreCompress is not
# used: it comes before every request to the model, not only when something is compressed.
_HOOKS = (
    ("SessionStart", "session-start", "", 10_000),
    ("BeforeAgent", "user-prompt-submit", "", 10_000),
    ("AfterTool", "post-tool-use-failure", "run_shell_command|write_file|replace", 10_000),
    ("AfterAgent", "stop", "", 15_000),
    ("SessionEnd", "session-end", "", 2_000),
)


class GeminiSetup(HooksSetup):
    """Setup of Gemini CLI: hooks and the MCP server in `settings.json`."""

    agent = "gemini"
    fills_variables = True

    def servers_file(self, root: Path | None) -> Path:
        """Return its settings file: of the project at this root, else the person's own."""
        given = os.environ.get("GEMINI_CLI_HOME")
        home = Path(given).expanduser() if given else Path.home()
        return (home if root is None else root) / ".gemini" / "settings.json"

    hooks_file = servers_file

    def wanted_hooks(self, call: RalphCall) -> dict[str, list[Any]]:
        """Return the hook groups of each event, with this call of Ralph."""
        return hook_groups(self.agent, call, _HOOKS, name=NAME)

    def places(self, root: Path | None) -> list[SetupPlace]:
        """Return what is set up in the person's own settings, the project's, and the extension."""
        manifest = self.servers_file(None).parent / "extensions" / NAME / "gemini-extension.json"
        extension = self.plugin_place(
            manifest, lambda text, file: installed_plugin(file), has_server=True
        )
        return [*super().places(root), extension]

    def warnings(self, places: list[SetupPlace], root: Path | None) -> list[str]:
        """Warn about hooks that are set up twice."""
        return called_twice(places, f"gemini extensions uninstall {NAME}")

    def server_entry(self, call: RalphCall) -> dict[str, Any]:
        """Return our server in the format of its settings."""
        return {"command": call.program, "args": call.server_words}
