"""Codex: its command, and the events of `codex exec --json`.

The output has no folder, no model and no cost, so absolute paths count only under a given root. A
thread without a completed turn at the end failed or was killed. `codex_sessions` reads its session
files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ralph.capture import AgentRun, Capture, TerminalReason
from ralph.capture.lines import clip, content_text, count, items, mapping, text_of
from ralph.capture.shell import leaves_running
from ralph.clients import AgentCall, SessionFiles
from ralph.clients import setup as settings
from ralph.clients.hook_settings import HooksSetup, hook_groups
from ralph.clients.turns import LONGEST_COMMAND, ToolRun
from ralph.errors import BadInput
from ralph.programs import find_program, python
from ralph.records.iteration import ErrorSeen, FileAction
from ralph.text.redact import redact

DIALECTS: tuple[str, ...] = ("codex",)
OUTPUTS: tuple[str, ...] = ("the output of `codex exec --json`",)
SESSION_TYPES: frozenset[str] = frozenset({"session_meta"})
LOGIN_SHELLS: bool = True
REVIEW_MODEL: str | None = None
TAKES_SERVERS: bool = True
_COMMAND = ("codex", "exec", "--json", "--skip-git-repo-check", "-s")
# By default Codex waits one second for a server, then asks the model without it; a Python process
# may need longer. A server that never comes up does not end the run.
_SERVER_WAIT_MS = 30_000


def command(call: AgentCall) -> list[str]:
    """Return the command line of one run."""
    # It has no list of allowed commands: its sandbox lets them write only in the folder.
    sandbox = "danger-full-access" if call.permissions.full else "workspace-write"
    words = [*_COMMAND, sandbox, *(["-m", call.model] if call.model else [])]
    if call.mcp_config is not None and call.mcp_servers:
        words += ["-c", f"mcp_optional_startup_grace_ms={_SERVER_WAIT_MS}"]
        for name, entry in call.mcp_servers.items():
            for key, value in _server(name, entry, call).items():
                words += ["-c", f"mcp_servers.{name}.{key}={_toml(value)}"]
    return [*words, "-"]


def variables(call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of its servers: they may be secret, so the command line has none."""
    found = {}
    for server, header, variable in _headers(call):
        value = str(call.mcp_servers[server]["headers"][header])
        try:
            found[variable] = _filled(value, environ)
        except KeyError as error:
            raise BadInput(
                f"the header {header} of the MCP server {server} needs {error.args[0]}, "
                "which the agent's environment does not have",
                where=".ralph/db/disciplines.yaml",
                todo="Set it, and name it in the setting agent_env.",
            ) from None
    return found


def _server(name: str, entry: Mapping[str, Any], call: AgentCall) -> dict[str, Any]:
    """Return one server as settings for Codex: nothing secret, and its tools need no approval."""
    found: dict[str, Any]
    if "url" in entry:
        headers = {header: var for server, header, var in _headers(call) if server == name}
        found = {"url": str(entry["url"])}
        if headers:
            found["env_http_headers"] = headers
    else:
        program, *isolated = python()
        words = ["-m", "ralph.clients.codex", str(call.mcp_config), name]
        found = {"command": program, "args": [*isolated, *words]}
        if names := _names_in(json.dumps(entry)):
            found["env_vars"] = names
    # The user's own settings may have switched off a server of this name.
    return {**found, "enabled": True, "default_tools_approval_mode": "approve"}


def _headers(call: AgentCall) -> Iterator[tuple[str, str, str]]:
    """Yield each server, its header, and the variable with the header's value."""
    number = 0
    for server, entry in call.mcp_servers.items():
        for header in entry.get("headers") or {}:
            number += 1
            yield server, header, f"MCP_HEADER_{number}"


def _toml(value: Any) -> str:
    """Return a value as TOML: the same as JSON, except for mappings."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(key)} = {_toml(item)}' for key, item in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def dialect_of(event: Mapping[str, Any]) -> str | None:
    """Return the dialect of an event: of a thread, a turn or an item."""
    return "codex" if text_of(event.get("type")).startswith(("thread.", "turn.", "item.")) else None


def open_capture(dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
    """Create a capture of its output."""
    return Codex(file=file, root=root, injected=injected)


def sessions() -> SessionFiles:
    """Return the rollouts under `~/.codex/sessions`."""
    from ralph.clients import codex_sessions

    return codex_sessions


def setup() -> settings.ClientSetup:
    """Return the setup: hooks in `hooks.json`, the MCP server in `config.toml`."""
    return CodexSetup()


# -- The output of `codex exec --json`.

_CHANGES: dict[str, FileAction] = {"add": "created", "update": "modified", "delete": "deleted"}
_TOOLS = {"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"}
_WAITING = re.compile(r"reconnecting|retry(?:ing)?\b|stream disconnected", re.I)
_REALLY = re.compile(r"error|fail|denied|cannot|unable|refused", re.I)
_MOST_STARTED = 5000


class Codex(ToolRun):
    """Reads a thread."""

    _last_message = ""
    _turns = 0
    _tokens: int | None = None
    _is_over = False

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        self._begun: dict[str, int] = {}
        self._running: set[str] = set()

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if not isinstance(kind, str):
            self.complain("has no type; skipped")
        elif kind == "thread.started":
            self.session = self.session or text_of(event.get("thread_id")) or None
        elif kind == "turn.started":
            self._is_over = False
            self.failure = ""
        elif kind == "turn.completed":
            self._is_over = True
            self.failure = ""
            self._turns += 1
            usage = mapping(event.get("usage"))
            spent = [count(usage.get(key)) for key in ("input_tokens", "output_tokens")]
            # A thread's usage grows from turn to turn; cached input is part of the input.
            self._tokens = sum(n or 0 for n in spent) if any(spent) else self._tokens
        elif kind == "turn.failed":
            self._is_over = True
            self._turns += 1
            self.failure = text_of(mapping(event.get("error")).get("message")) or "turn failed"
        elif kind == "error":
            message = text_of(event.get("message"))
            if _WAITING.search(message):
                self.live.waiting = redact(clip(message, 200))
            else:
                self.failure = message or self.failure
        elif kind in {"item.started", "item.updated", "item.completed"}:
            self._item(mapping(event.get("item")), done=kind == "item.completed")

    def _item(self, item: Mapping[str, Any], *, done: bool) -> None:
        kind = text_of(item.get("type"))
        if kind in _TOOLS:
            self._begin(item, kind)
            self._running.add(text_of(item.get("id")))
            # Another agent, or a shell's background job, keeps running after its result.
            left = kind == "collab_tool_call" or leaves_running(text_of(item.get("command")))
            if done and not left:
                self._running.discard(text_of(item.get("id")))
            self.live.running = len(self._running)
        if not done:
            return
        self.live.waiting = None
        failed = item.get("status") == "failed"
        if kind == "agent_message":
            self.live.turns += 1
            self._last_message = text_of(item.get("text"))
            self.say(self._last_message)
        elif kind == "command_execution":
            self._command(item)
        elif kind == "file_change":
            self._changed(item, failed=failed)
        elif kind == "mcp_tool_call":
            self.see_injected(content_text(mapping(item.get("result")).get("content")))
            message = text_of(mapping(item.get("error")).get("message"))
            if failed or message:
                self.add_error(ErrorSeen(f"{_name(item, kind)}: {message or 'failed'}"))
        elif kind == "error":
            message = text_of(item.get("message"))
            if _REALLY.search(message):
                self.add_error(ErrorSeen(message))

    def _begin(self, item: Mapping[str, Any], kind: str) -> None:
        identity = text_of(item.get("id"))
        if identity and identity in self._begun:
            return
        begun = self.attempts.begin()
        if len(self._begun) < _MOST_STARTED:
            self._begun[identity] = begun
        changes = [text_of(change.get("path")) for change in items(item.get("changes"))]
        target = text_of(item.get("command")) or text_of(item.get("query")) or ", ".join(changes)
        self.use_tool(_name(item, kind), target)

    def _command(self, item: Mapping[str, Any]) -> None:
        command = text_of(item.get("command"))[:LONGEST_COMMAND]
        code = item.get("exit_code")
        status = item.get("status")
        if status == "declined":
            self.denied = [*self.denied, "command_execution"][:1000]
            self.stumbles["denied"] += 1
            return
        failed = status == "failed" or (isinstance(code, int) and code != 0)
        output = text_of(item.get("aggregated_output"))
        if failed and isinstance(code, int):
            output = f"Exit code {code}\n{output}"
        begun = self._begun.get(text_of(item.get("id")), 0) or self.attempts.begin()
        ran = self.ran(command, output, failed=failed)
        self.tried_command(command, ran, failed=failed, begun=begun)

    def _changed(self, item: Mapping[str, Any], *, failed: bool) -> None:
        if failed:
            self.stumbles["edit"] += 1
            return
        for change in items(item.get("changes")):
            kind = change.get("kind")
            if action := _CHANGES.get(text_of(mapping(kind).get("type")) or text_of(kind)):
                self.touch(text_of(change.get("path")), action)
                self.edited(text_of(change.get("path")))

    def finish(self) -> AgentRun:
        """Return the result of the run."""
        reason: TerminalReason = "ok" if self._is_over else "killed"
        facts = {"tokens_used": self._tokens, "num_turns": self._turns or None}
        return self.finished("codex", reason, self._last_message, **facts)


def _name(item: Mapping[str, Any], kind: str) -> str:
    if kind != "mcp_tool_call":
        return kind
    return f"mcp__{text_of(item.get('server'))}__{text_of(item.get('tool'))}"


# -- Ralph's part in Codex's `config.toml`.

_BEGIN = "# >>> ralph: made by `ralph hooks install --agent codex`, removed by `uninstall` >>>"
_END = "# <<< ralph <<<"
_BLOCK = re.compile(
    rf"(?:\r?\n)?^{re.escape(_BEGIN)}[^\n]*\n.*?^{re.escape(_END)}[^\n]*(?:\n|\Z)", re.S | re.M
)
# `codex mcp remove` removes the table and the comment before it, and leaves the one after it.
_LONE_END = re.compile(rf"^{re.escape(_END)}[^\n]*(?:\n|\Z)", re.M)


# Its event, our event, the tools it is for, and the timeout in seconds.
_HOOKS = (
    ("SessionStart", "session-start", "", 10),
    ("UserPromptSubmit", "user-prompt-submit", "", 10),
    ("PostToolUse", "post-tool-use-failure", "Bash", 10),
    ("Stop", "stop", "", 15),
    ("PreCompact", "pre-compact", "", 10),
    ("SessionEnd", "session-end", "", 3),
)


class CodexSetup(HooksSetup):
    """Hooks in `hooks.json`, the MCP server in `config.toml`.

    The server is one block between two comments; the rest of the file is untouched.
    """

    agent = "codex"
    keeps_previous = False

    def hooks_file(self, root: Path | None) -> Path:
        """Return the file of its hooks, beside its settings."""
        return self.servers_file(root).with_name("hooks.json")

    def wanted_hooks(self, call: settings.RalphCall) -> dict[str, list[Any]]:
        """Return the hook groups of each event, with this call of Ralph."""
        return hook_groups(self.agent, call, _HOOKS)

    def warnings(self, places: list[settings.SetupPlace], root: Path | None) -> list[str]:
        """Warn if the person has not trusted the hooks yet; Codex notes that by the file's path."""
        found = []
        for place in places:
            if place.hooks is None or place.hooks.state == "none":
                continue
            with contextlib.suppress(BadInput):
                known = json.dumps(place.hooks.file)[1:-1] in (
                    settings.read_text(self.servers_file(None)) or ""
                )
                if not known:
                    todo = "Start codex and accept them with /hooks"
                    found.append(f"{place.hooks.file}: Codex does not run these hooks yet. {todo}")
        return found

    def servers_file(self, root: Path | None) -> Path:
        """Return Codex's settings file: of the project at this root, else the person's own."""
        if root is not None:
            return root / ".codex" / "config.toml"
        given = os.environ.get("CODEX_HOME")
        return (Path(given).expanduser() if given else Path.home() / ".codex") / "config.toml"

    def with_server(self, text: str | None, call: settings.RalphCall, where: Path) -> str:
        """Return the settings with our server in them."""
        rest = text
        if text is not None:
            if self.server_in(text, where) == call.registered:
                return text
            rest = self.without_server(text, where)
            if rest is not None and settings.SERVER in _servers_in(rest, where):
                raise settings.foreign_server(where)
        entry: dict[str, Any] = {"command": call.program, "args": call.server_words}
        if call.url:
            entry = {"url": call.url, "bearer_token_env_var": settings.TOKEN}
        newline = "\r\n" if "\r\n" in (rest or "") else "\n"
        lines = [
            _BEGIN,
            f"[mcp_servers.{settings.SERVER}]",
            *(f"{key} = {json.dumps(one, ensure_ascii=False)}" for key, one in entry.items()),
            # Without this, `codex exec` refuses every tool that writes, even reporting on a task.
            'default_tools_approval_mode = "approve"',
            _END,
            "",
        ]
        block = newline.join(lines)
        # Always one line break before the block: removing both restores the file exactly.
        made = block if rest is None else rest + newline + block
        fits = False
        with contextlib.suppress(BadInput):
            fits = self.server_in(made, where) == call.registered
        if not fits:
            todo = "Write it as tables ([mcp_servers.NAME]), then run this again."
            raise settings.refusal(
                "no table can be added to mcp_servers as it is written", where, todo
            )
        return made

    def without_server(self, text: str, where: Path) -> str | None:
        """Return the settings without our server; None if nothing else was in them."""
        _servers_in(text, where)
        found = _BLOCK.search(text)
        if found is None:
            if _BEGIN in text:
                line = text.count("\n", 0, text.index(_BEGIN)) + 1
                what = f"the line {_END!r} that ends Ralph's block is missing"
                todo = "Put it after the block, or take the block out."
                raise settings.refusal(what, f"{where}:{line}", todo)
            return _LONE_END.sub("", text)
        left = text[: found.start()] + text[found.end() :]
        return None if not left and text.startswith(_BEGIN) else left

    def server_in(self, text: str, where: Path) -> settings.RalphCall | None:
        """Return how our server is called, or None if it is not registered."""
        return settings.server_call(_servers_in(text, where).get(settings.SERVER))


def _servers_in(text: str, where: Path) -> dict[str, Any]:
    try:
        servers = tomllib.loads(text).get("mcp_servers")
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1  # "at end of document"
        raise settings.refusal(f"this is not valid TOML: {error}", f"{where}:{line}") from None
    return servers if isinstance(servers, dict) else {}


# -- Starting one MCP server of a config file: `python -m ralph.clients.codex CONFIG NAME`.
#
# Codex gets its servers on a command line, which everybody on the machine can read. So that line
# has only the path of a private file and the server's name in it; the keys stay in the file.


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def _names_in(text: str) -> list[str]:
    """Return the variables that a text uses, as `${NAME}` or `${NAME:-default}`."""
    return list(dict.fromkeys(name for name, _ in _VARIABLE.findall(text)))


def _filled(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with its variables filled in; KeyError for one without value and default."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        default = found[2]
        if name in environ:
            return environ[name]
        if default is None:
            raise KeyError(name)
        return default

    return _VARIABLE.sub(value, text)


def main(arguments: list[str]) -> int:
    """Become the server: from then on, the output and the exit code are its own."""
    file, name = arguments
    try:
        entry = json.loads(Path(file).read_text(encoding="utf-8"))["mcpServers"][name]
        inherited = dict(os.environ)
        command = entry["command"], *entry.get("args", ())
        words = [_filled(str(word), inherited) for word in command]
        given = {key: _filled(str(value), inherited) for key, value in entry.get("env", {}).items()}
    except (OSError, ValueError) as error:
        return _refuse(f"{file} cannot be read: {error}")
    except KeyError as error:
        return _refuse(f"the MCP server {name} lacks {error.args[0]}")
    environ = {**inherited, **given}
    program = find_program(words[0], path=environ.get("PATH"))
    if program is None:
        return _refuse(f"the command {words[0]!r} of the MCP server {name} was not found")
    if sys.platform == "win32":  # Windows cannot replace a process with another
        return subprocess.call([program, *words[1:]], env=environ)
    os.execve(program, words, environ)


def _refuse(what: str) -> int:
    sys.stderr.write(f"ralph: {ascii(what)[1:-1]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
