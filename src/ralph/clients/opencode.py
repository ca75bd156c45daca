"""OpenCode: its command, the events of `opencode run --format json`, its settings and plugin.

`opencode_sessions` has its sessions, `opencode_plugin.js` what runs in it. Documented in
anomalyco/opencode, packages/web/src/content/docs: config.mdx (files and variables),
mcp-servers.mdx (servers), plugins.mdx (hooks), cli.mdx (output).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ralph.capture import AgentRun, Capture
from ralph.capture.lines import count, mapping, money, text_of
from ralph.clients import AgentCall, SessionFiles
from ralph.clients.editors import JsoncSetup
from ralph.clients.opencode_sessions import take_tool, tokens_in
from ralph.clients.setup import (
    NAME,
    ClientSetup,
    RalphCall,
    SettingsEdit,
    SetupPart,
    is_outdated,
    refusal,
    server_call,
    setup_call,
    setup_part,
)
from ralph.clients.turns import ToolRun, failure_text

DIALECTS: tuple[str, ...] = ("opencode",)
OUTPUTS: tuple[str, ...] = ("the output of `opencode run --format json`",)
SESSION_TYPES: frozenset[str] = frozenset()
LOGIN_SHELLS: bool = False
REVIEW_MODEL: str | None = None
TAKES_SERVERS: bool = True
_COMMAND = ("opencode", "run", "--format", "json")
_CONFIG = "OPENCODE_CONFIG_CONTENT"
_SERVER_WAIT_MS = 30_000
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")


def command(call: AgentCall) -> list[str]:
    """The command line of one run; a model is `provider/model`."""
    return [*_COMMAND, *(["-m", call.model] if call.model else [])]


def variables(call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Its MCP servers and permissions, as settings that are put over all others for this run."""
    settings: dict[str, Any] = {}
    if call.mcp_servers:
        settings["mcp"] = {name: _server(entry) for name, entry in call.mcp_servers.items()}
    if not call.permissions.full:
        allowed = [rule for one in call.permissions.commands for rule in (one, f"{one} *")]
        # The last rule that fits counts.
        settings["permission"] = {"bash": {"*": "deny", **dict.fromkeys(allowed, "allow")}}
    return {_CONFIG: json.dumps(settings, ensure_ascii=False)} if settings else {}


def _server(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "url" in entry:
        found = {"type": "remote", "url": entry["url"], "headers": entry.get("headers") or {}}
    else:
        words = [entry.get("command", ""), *entry.get("args", ())]
        found = {"type": "local", "command": words, "environment": entry.get("env") or {}}
    # It writes variables in another way.
    plain = _VARIABLE.sub(r"{env:\1}", json.dumps(found))
    return {**json.loads(plain), "enabled": True, "timeout": _SERVER_WAIT_MS}


def dialect_of(event: Mapping[str, Any]) -> str | None:
    """Every event names the session, and tells of a part of a message or an error."""
    named = isinstance(event.get("sessionID"), str) and "timestamp" in event
    return "opencode" if named and ("part" in event or "error" in event) else None


def open_capture(dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
    """A fresh capture of its output."""
    return OpenCodeRun(file=file, root=root, injected=injected)


def sessions() -> SessionFiles:
    """The sessions in its database."""
    from ralph.clients import opencode_sessions

    return opencode_sessions


def setup() -> ClientSetup:
    """The MCP server in `opencode.json`, and the plugin."""
    return OpenCodeSetup()


class OpenCodeRun(ToolRun):
    """A run being read."""

    _is_over = False
    _tokens = 0

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, part = event.get("type"), mapping(event.get("part"))
        self.session = self.session or text_of(event.get("sessionID"))
        self.see_time(event.get("timestamp"))
        if kind == "text":
            self.speak(text_of(part.get("text")))
        elif kind == "tool_use":
            take_tool(self, part)
        elif kind == "step_start":
            self._is_over = False
        elif kind == "step_finish":
            self._is_over = part.get("reason") not in ("tool-calls", "unknown")
            self._tokens += tokens_in(mapping(part.get("tokens")))
            if cost := money(part.get("cost")):
                self.live.cost_usd = (self.live.cost_usd or 0.0) + cost
        elif kind == "error":
            self.failure = failure_text(event.get("error"))

    def finish(self) -> AgentRun:
        """What the run left behind."""
        from ralph.clients.opencode_sessions import plain_id

        self.session = plain_id(self.session) if self.session else ""
        return self.finished(
            "opencode",
            "ok" if self._is_over else "killed",
            tokens_used=count(self._tokens) or None,
            cost_usd=self.live.cost_usd,
        )


# -- Its settings and the plugin.

_PLUGIN = Path(__file__).with_name("opencode_plugin.js")
_MARK = "// ralph: made by"
_CALLED = re.compile(r"^const COMMAND = (\[.*\])$", re.M)


class OpenCodeSetup(JsoncSetup):
    """The MCP server in `opencode.json`, and the plugin, which is a file of its own."""

    agent = "opencode"
    has_hooks = True
    servers_key = "mcp"

    def servers_file(self, root: Path | None) -> Path:
        """Its settings: of the project at this root, else the person's own."""
        folder = root or _user_folder()
        with_comments = folder / "opencode.jsonc"
        return with_comments if with_comments.is_file() else folder / "opencode.json"

    def server_entry(self, call: RalphCall) -> dict[str, Any]:
        """Our server as its settings describe one."""
        return {"type": "local", "command": [call.program, *call.server_words], "enabled": True}

    def call_of(self, server: object) -> RalphCall | None:
        """The call of a server that Ralph wrote, or None for anybody else's."""
        match server:
            case {"command": [str(program), *words]}:
                return server_call({"command": program, "args": words})
        return None

    def edits(
        self, root: Path | None, call: RalphCall | None, *, mcp: bool = True
    ) -> list[SettingsEdit]:
        """The plugin, and the server where it is wanted."""
        file = _plugin_file(root)
        found = self._edits(file, root, call, _with_plugin, _without_plugin)
        return found + (super().edits(root, call) if mcp else [])

    def hooks(self, root: Path | None) -> SetupPart:
        """The plugin of the project at this root, else the person's own."""

        def judge(text: str, file: Path) -> SetupPart:
            call = _plugin_call(text)
            if call is None:
                return SetupPart(str(file), "none")
            outdated = text != _plugin(call) or is_outdated(call, root)
            return SetupPart(str(file), "installed", calls=[setup_call(call)], outdated=outdated)

        return setup_part(_plugin_file(root), root, judge)


def _user_folder() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME")
    return (Path(given).expanduser() if given else Path.home() / ".config") / "opencode"


def _plugin_file(root: Path | None) -> Path:
    return (_user_folder() if root is None else root / ".opencode") / "plugins" / "ralph.js"


def _plugin(call: RalphCall) -> str:
    words = json.dumps([call.program, *call.words], ensure_ascii=False)
    text = _PLUGIN.read_text(encoding="utf-8")
    return text.replace(f'const COMMAND = ["{NAME}"]', f"const COMMAND = {words}")


def _plugin_call(text: str) -> RalphCall | None:
    found = _CALLED.search(text) if text.startswith(_MARK) else None
    try:
        words = json.loads(found[1]) if found else []
    except ValueError:
        return None
    return RalphCall(str(words[0]), tuple(map(str, words[1:]))) if words else None


def _with_plugin(text: str | None, call: RalphCall, where: Path) -> str:
    if text is not None and not text.startswith(_MARK):
        raise refusal("there is a plugin of this name that Ralph did not make", where, "Rename it.")
    return _plugin(call)


def _without_plugin(text: str, where: Path) -> str | None:
    return None if text.startswith(_MARK) else text
