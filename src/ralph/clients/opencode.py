"""OpenCode: its command, the events of `opencode run --format json`, its settings and plugin.

Also its sessions. `opencode_plugin.js` is the plugin that runs in it. Documented in
anomalyco/opencode, packages/web/src/content/docs: config.mdx (files and variables),
mcp-servers.mdx (servers), plugins.mdx (hooks), cli.mdx (output).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from ralph.capture import AgentRun, Capture, lines
from ralph.capture.lines import count, items, mapping, money, objects, text_of
from ralph.capture.shell import origin
from ralph.clients import AgentCall, SessionFiles, drift
from ralph.clients import setup as settings
from ralph.clients.editors import JsoncSetup
from ralph.clients.turns import SHELLS, ToolRun, ToolTurn, failure_text, tool_call
from ralph.errors import BadInput

if TYPE_CHECKING:
    import sqlite3

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
    """Return the command line of one run; a model is `provider/model`."""
    return [*_COMMAND, *(["-m", call.model] if call.model else [])]


def variables(call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Return its MCP servers and permissions as settings that override all others in this run."""
    settings: dict[str, Any] = {}
    if call.mcp_servers:
        settings["mcp"] = {name: _server(entry) for name, entry in call.mcp_servers.items()}
    if call.permissions.commands and not call.permissions.full:
        allowed = [rule for one in call.permissions.commands for rule in (one, f"{one} *")]
        # The last matching rule counts.
        settings["permission"] = {"bash": {"*": "deny", **dict.fromkeys(allowed, "allow")}}
    return {_CONFIG: json.dumps(settings, ensure_ascii=False)} if settings else {}


def _server(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "url" in entry:
        found = {"type": "remote", "url": entry["url"], "headers": entry.get("headers") or {}}
    else:
        words = [entry.get("command", ""), *entry.get("args", ())]
        found = {"type": "local", "command": words, "environment": entry.get("env") or {}}
    # It has another syntax for variables.
    plain = _VARIABLE.sub(r"{env:\1}", json.dumps(found))
    return {**json.loads(plain), "enabled": True, "timeout": _SERVER_WAIT_MS}


def dialect_of(event: Mapping[str, Any]) -> str | None:
    """Return the dialect of an event: each names the session, and has a part or an error."""
    named = isinstance(event.get("sessionID"), str) and "timestamp" in event
    return "opencode" if named and ("part" in event or "error" in event) else None


def open_capture(dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
    """Create a capture of its output."""
    return OpenCodeRun(file=file, root=root, injected=injected)


def sessions() -> SessionFiles:
    """Return the sessions in its database, which this module also reads."""
    from ralph.clients import opencode

    return opencode


def setup() -> settings.ClientSetup:
    """Return the setup: the MCP server in `opencode.json`, and the plugin."""
    return OpenCodeSetup()


class OpenCodeRun(ToolRun):
    """Reads a run."""

    _is_over = False
    _tokens = 0

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        part = mapping(event.get("part"))
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
        """Return the result of the run."""
        self.session = plain_id(self.session) if self.session else ""
        return self.finished(
            "opencode",
            "ok" if self._is_over else "killed",
            tokens_used=count(self._tokens) or None,
            cost_usd=self.live.cost_usd,
        )


# -- Its sessions: rows of its database, and the lines that its plugin hands to hooks.
#
# Both are read as lines of the same kind: `{"info": ..., "parts": [...]}` is a message. The path of
# a session in the database is the database's own path and the session's id. What `opencode export`
# prints is one value with all messages, which is read as such lines too.

_DATABASE = "opencode.db"
_ABORTED = "MessageAbortedError"
# How the title of a session begins until the model has named it.
_UNNAMED = "New session - "
_MOST_FILES = 500
_READERS = frozenset(
    "read grep glob list lsp webfetch websearch codesearch todoread todowrite question".split()
)


def plain_id(name: str) -> str:
    """Return the id of a session or message as it may be saved: OpenCode's looks like a secret."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"opencode:{name}"))


def tokens_in(usage: Mapping[str, Any]) -> int:
    """Return the number of tokens processed."""
    if total := count(usage.get("total")):
        return total
    cache = mapping(usage.get("cache"))
    found = [usage.get("input"), usage.get("output"), usage.get("reasoning"), *cache.values()]
    return sum(count(one) or 0 for one in found)


class OpenCodeSession(lines.SessionReader):
    """Reads a session."""

    _parts = staticmethod(objects)
    _names = staticmethod(drift.opencode_names)
    _open: ToolTurn | None = None

    def _take(self, line: Mapping[str, Any]) -> None:
        title = text_of(line.get("title"))
        if title and not title.startswith(_UNNAMED):
            self._title = lines.session_title(title) or self._title
        info = mapping(line.get("info"))
        parts = items(line.get("parts"))
        if info.get("role") == "user":
            self._ask(info, parts)
        elif info.get("role") == "assistant" and self._open is not None:
            self._answer(self._open, info, parts)

    def _ask(self, info: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> None:
        texts = [part for part in parts if part.get("type") == "text"]
        typed = [text_of(part.get("text")) for part in texts if not part.get("synthetic")]
        # A command that another agent carries out.
        tasks = [part for part in parts if part.get("type") == "subtask"]
        typed += [f"/{name}" for part in tasks if (name := text_of(part.get("command")))]
        if not any(text.strip() for text in typed):
            return
        self._hear_reply("\n".join(typed))
        self._close(self._at)
        name = text_of(info.get("id"))
        # An id that was taken out is no message's own; then use the position.
        if not name.startswith("msg"):
            name = f"{self._start.head.session}@{self._at}"
        key = plain_id(name)
        opened = ToolTurn("opencode", self._start, key, self._at)
        self.tell(opened)
        self._open = opened
        opened.see_time(mapping(info.get("time")).get("created"))
        for part in texts:
            opened.see_injected(text_of(part.get("text")))
        opened.ask("\n".join(typed))

    def _agents_words(self, part: Mapping[str, Any]) -> str:
        if mapping(part.get("info")).get("role") != "assistant":
            return ""
        texts = (one for one in items(part.get("parts")) if one.get("type") == "text")
        return "\n\n".join(text_of(one.get("text")) for one in texts)

    def _answer(
        self, turn: ToolTurn, info: Mapping[str, Any], parts: list[Mapping[str, Any]]
    ) -> None:
        when = mapping(info.get("time"))
        turn.see_time(when.get("created"))
        turn.model = text_of(info.get("modelID")) or turn.model
        turn.folder = text_of(mapping(info.get("path")).get("cwd")) or turn.folder
        turn.at_home(turn.folder)
        turn.tokens[text_of(info.get("id"))] = tokens_in(mapping(info.get("tokens")))
        may_write = any(map(_may_write, parts))
        for part in parts:
            if part.get("type") == "text":
                turn.speak(text_of(part.get("text")))
            elif part.get("type") == "tool":
                take_tool(turn, part)
            elif part.get("type") == "patch" and may_write:
                # All files that changed during the step, whoever changed them.
                for path in _texts(part.get("files"))[:_MOST_FILES]:
                    turn.changed_on_disk(path)
        turn.see_time(when.get("completed"))
        error = mapping(info.get("error"))
        turn.reason = "interrupted" if error.get("name") == _ABORTED else None
        turn.failure = "" if turn.reason else failure_text(error)


def _may_write(part: Mapping[str, Any]) -> bool:
    """Whether a part is a call of a tool that may have changed files."""
    tool = text_of(part.get("tool"))
    if tool in SHELLS:
        given = mapping(mapping(part.get("state")).get("input"))
        return origin(text_of(given.get("command"))) != "file"
    return bool(tool) and tool not in _READERS


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def take_tool(turn: Any, part: Mapping[str, Any]) -> None:
    """Note a tool call and its answer; skip a call without an answer."""
    state = mapping(part.get("state"))
    identity = text_of(part.get("callID"))
    status = state.get("status")
    if status not in ("completed", "error"):
        return
    about = mapping(state.get("metadata"))
    existed = about.get("exists")
    turn.call(tool_call(identity, text_of(part.get("tool")), mapping(state.get("input"))))
    turn.answer(
        identity,
        text_of(state.get("output")) or text_of(state.get("error")),
        failed=status == "error",
        code=count(about.get("exit")),
        existed=existed if isinstance(existed, bool) else None,
    )


# -- Its database, and exported sessions.


# How much of a file tells whether it is an exported session.
_EXPORT_HEAD = 4000


def session_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder where OpenCode keeps its database."""
    given = environ.get("XDG_DATA_HOME")
    return (Path(given) if given else Path.home() / ".local" / "share") / "opencode"


def session_files(folder: Path) -> Iterator[Path]:
    """Yield every session that no other session started; of a folder of exports, each file."""
    file = folder if folder.suffix == ".db" else folder / _DATABASE
    if file.is_file():
        with _connected(file) as database:
            query = "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_created, id"
            yield from [file / str(name) for (name,) in database.execute(query)]
    else:
        yield from filter(_is_export, sorted(folder.glob("*.json")))


def _is_export(path: Path) -> bool:
    """Return whether a file looks like an exported session."""
    try:
        with path.open("rb") as file:
            beginning = file.read(_EXPORT_HEAD)
    except OSError:
        return False
    return b'"info"' in beginning and b'"ses_' in beginning


def session_head(path: Path, file: BinaryIO) -> lines.SessionHead | None:
    """Return the session at a path; the name of a plain file is already the session's id."""
    name = plain_id(path.name) if path.parent.suffix == ".db" else path.stem
    head = lines.SessionHead(name)
    for line in file:
        with contextlib.suppress(lines.UnreadableLine):
            for one in objects(line.strip()):
                if session := mapping(one.get("session")):
                    head = _named_head(session, head)
                folder = text_of(mapping(mapping(one.get("info")).get("path")).get("cwd"))
                if folder or head.cwd:
                    return msgspec.structs.replace(head, cwd=folder or head.cwd)
    return head


def _named_head(session: Mapping[str, Any], head: lines.SessionHead) -> lines.SessionHead:
    """Return the session that the line about it names."""
    name = text_of(session.get("id"))
    return lines.SessionHead(
        plain_id(name) if name else head.session,
        text_of(session.get("directory")),
        is_subagent=bool(text_of(session.get("parentID"))),
        version=text_of(session.get("version")),
    )


def session_stamp(path: Path) -> lines.FileStamp:
    """Return a session's size and last change."""
    if path.parent.suffix != ".db":
        return lines.file_stamp(path)
    query = "SELECT sum(length(data)), max(time_updated) FROM part WHERE session_id = ?"
    with _connected(path.parent) as database:
        size, at_ms = database.execute(query, (path.name,)).fetchone()
    return lines.FileStamp(size or 0, (at_ms or 0) * 1_000_000)


def open_session(path: Path) -> BinaryIO:
    """Open the lines of a session."""
    if path.parent.suffix != ".db":
        return _exported(path) or path.open("rb")
    import sqlite3

    found = io.BytesIO()
    with _connected(path.parent) as database:
        database.row_factory = sqlite3.Row
        query = "SELECT * FROM session WHERE id = ?"
        for row in database.execute(query, (path.name,)):
            version = row["version"] if "version" in row.keys() else ""  # noqa: SIM118
            found.write(_line({"title": row["title"], "session": {"version": version}}))
        database.row_factory = None
        parts: dict[str, list[Any]] = {}
        where = "FROM {} WHERE session_id = ? ORDER BY id"
        query = f"SELECT message_id, data {where.format('part')}"
        for message, data in database.execute(query, (path.name,)):
            parts.setdefault(message, []).append(_loaded(data))
        for message, data in database.execute(
            f"SELECT id, data {where.format('message')}", (path.name,)
        ):
            info = {**_loaded(data), "id": message}
            found.write(_line({"info": info, "parts": parts.get(message, [])}))
    found.seek(0)
    return found


def _exported(path: Path) -> BinaryIO | None:
    """Return the lines of an exported session, or None if the file is none."""
    text = path.read_bytes().decode("utf-8", "replace")
    # What it prints about the export itself comes first.
    value = _loaded(text[max(0, text.find("{")) :])
    if not isinstance(value.get("messages"), list):
        return None
    session = mapping(value.get("info"))
    found = io.BytesIO()
    found.write(_line({"session": session, "title": text_of(session.get("title"))}))
    for message in items(value["messages"]):
        when = mapping(mapping(message.get("info")).get("time"))
        at = lines.moment(when.get("completed") or when.get("created"))
        found.write(_line({"timestamp": at or "", **message}))
    found.seek(0)
    return found


@contextlib.contextmanager
def _connected(file: Path) -> Iterator[sqlite3.Connection]:
    import sqlite3

    try:
        address = f"{file.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=5.0)) as database:
            yield database
    except sqlite3.Error as error:
        what = f"this is no database of OpenCode that can be read: {error}"
        raise BadInput(what, where=str(file), todo="Name the folder that holds it.") from None


def _loaded(data: object) -> dict[str, Any]:
    try:
        value = json.loads(str(data))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


session_reader = OpenCodeSession


# -- Its settings and the plugin.

_PLUGIN = Path(__file__).with_name("opencode_plugin.js")
_MARK = "// ralph: made by"
_CALLED = re.compile(r"^const COMMAND = (\[.*\])$", re.M)


class OpenCodeSetup(JsoncSetup):
    """Setup of OpenCode: the MCP server in `opencode.json`, and the plugin in its own file."""

    agent = "opencode"
    has_hooks = True
    servers_key = "mcp"

    def servers_file(self, root: Path | None) -> Path:
        """Return its settings file: of the project at this root, else the person's own."""
        folder = root or _user_folder()
        with_comments = folder / "opencode.jsonc"
        return with_comments if with_comments.is_file() else folder / "opencode.json"

    def server_entry(self, call: settings.RalphCall) -> dict[str, Any]:
        """Return our server in the format of its settings."""
        return {"type": "local", "command": [call.program, *call.server_words], "enabled": True}

    def call_of(self, server: object) -> settings.RalphCall | None:
        """Return the call of a server that Ralph wrote, or None for anybody else's."""
        match server:
            case {"command": [str(program), *words]}:
                return settings.server_call({"command": program, "args": words})
        return None

    def edits(
        self, root: Path | None, call: settings.RalphCall | None, *, mcp: bool = True
    ) -> list[settings.SettingsEdit]:
        """Return the edits for the plugin and, if it is wanted, the server."""
        found = self._edits(_plugin_file(root), root, call, _with_plugin, _without_plugin)
        return found + (super().edits(root, call) if mcp else [])

    def hooks(self, root: Path | None) -> settings.SetupPart:
        """Return the state of the plugin: in the project at this root, else the person's own."""

        def judge(text: str, file: Path) -> settings.SetupPart:
            call = _plugin_call(text)
            if call is None:
                return settings.SetupPart(str(file), "none")
            outdated = text != _plugin(call) or settings.is_outdated(call, root)
            return settings.SetupPart(
                str(file), "installed", calls=[settings.setup_call(call)], outdated=outdated
            )

        return settings.setup_part(_plugin_file(root), root, judge)


def _user_folder() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME")
    return (Path(given).expanduser() if given else Path.home() / ".config") / "opencode"


def _plugin_file(root: Path | None) -> Path:
    return (_user_folder() if root is None else root / ".opencode") / "plugins" / "ralph.js"


def _plugin(call: settings.RalphCall) -> str:
    words = json.dumps([call.program, *call.words], ensure_ascii=False)
    text = _PLUGIN.read_text(encoding="utf-8")
    return text.replace(f'const COMMAND = ["{settings.NAME}"]', f"const COMMAND = {words}")


def _plugin_call(text: str) -> settings.RalphCall | None:
    found = _CALLED.search(text) if text.startswith(_MARK) else None
    try:
        words = json.loads(found[1]) if found else []
    except ValueError:
        return None
    return settings.RalphCall(str(words[0]), tuple(map(str, words[1:]))) if words else None


def _with_plugin(text: str | None, call: settings.RalphCall, where: Path) -> str:
    if text is not None and not text.startswith(_MARK):
        raise settings.refusal(
            "a plugin of this name already exists, and Ralph did not create it", where, "Rename it."
        )
    return _plugin(call)


def _without_plugin(text: str, where: Path) -> str | None:
    return None if text.startswith(_MARK) else text
