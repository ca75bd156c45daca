"""Read a project's sessions as moments: prompts, tool calls, results, compactions, in time order.

A moment is what a client's hook would be called for. Sessions of Claude Code and Codex are read.
What a person refused and what a sub-agent did is left out: no hook of the session is called for it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ralph.capture.lines import content_text, items, mapping, text_of
from ralph.clients.claude_code_sessions import lines_of, sort_of, typed
from ralph.errors import BadInput

_REFUSED = ("doesn't want to proceed", "doesn't want to take this action")
_ERROR_TAG = re.compile(r"</?tool_use_error>")
_READS = frozenset({"Read", "NotebookRead"})
_EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_CODEX_SHELLS = frozenset(
    {"shell", "exec_command", "shell_command", "local_shell_call", "container.exec"}
)
_EXIT_CODE = re.compile(r'(?:"exit_code": ?|Process exited with code |Exit code:? )(\d+)')


class Moment(msgspec.Struct, kw_only=True):
    """Something that a client calls a hook for.

    `line` is how many lines of the session stood in its file at that moment. `request` counts the
    requests to the model that were sent before.
    """

    session: str
    agent: str
    event: str
    at: str
    line: int
    request: int
    fields: dict[str, Any] = {}

    @property
    def command(self) -> str:
        """The shell command of a tool call, or ""."""
        given = self.fields.get("tool_input")
        command = given.get("command", given.get("cmd", "")) if isinstance(given, dict) else ""
        return command if isinstance(command, str) else ""

    @property
    def file(self) -> str:
        """The file of a tool call, or ""."""
        given = self.fields.get("tool_input")
        if not isinstance(given, dict):
            return ""
        return text_of(given.get("file_path")) or text_of(given.get("notebook_path"))

    @property
    def kind(self) -> str:
        """What happened, in one word."""
        if self.event != "pre-tool-use":
            return self.event
        tool = str(self.fields.get("tool_name"))
        if tool in _READS:
            return "read"
        if tool in _EDITS:
            return "edit"
        return "command" if self.command else "tool"


class PastSession(msgspec.Struct, kw_only=True):
    """A session's file: its lines, the folder it was held in, and its moments."""

    name: str
    session: str
    agent: str
    cwd: str
    lines: list[bytes]
    moments: list[Moment]


def read_history(folder: Path) -> list[PastSession]:
    """Return the sessions in a folder, in the order in which they began."""
    files = sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")])
    if not files:
        raise BadInput(
            "there is no session in this folder",
            where=str(folder),
            todo="Give a folder with files *.jsonl or *.jsonl.gz of Claude Code or Codex.",
        )
    found = [one for file in files if (one := _session(file)) is not None and one.moments]
    return sorted(found, key=lambda one: one.moments[0].at)


def in_time_order(sessions: list[PastSession]) -> list[tuple[PastSession, Moment]]:
    """Return all moments of all sessions, the oldest first; those of a session keep their order."""
    found: list[tuple[str, int, int]] = []
    for place, session in enumerate(sessions):
        at = ""
        for number, moment in enumerate(session.moments):
            at = max(at, moment.at)
            found.append((at, place, number))
    found.sort()
    return [(sessions[place], sessions[place].moments[number]) for _, place, number in found]


def _session(file: Path) -> PastSession | None:
    data = file.read_bytes()
    if file.suffix == ".gz":
        data = gzip.decompress(data)
    lines = data.splitlines(keepends=True)
    name = file.name.removesuffix(".gz").removesuffix(".jsonl")
    is_codex = any(b'"session_meta"' in line[:200] for line in lines[:3])
    return _codex_session(name, lines) if is_codex else _claude_session(name, lines)


# -- Claude Code.


class _ClaudeWalk:
    """The moments of a transcript of Claude Code."""

    def __init__(self, session: str) -> None:
        self.moments: list[Moment] = []
        self._session = session
        self._line = 0
        self._at = ""
        self._requests: dict[str, int] = {}
        self._calls: dict[str, tuple[str, Any]] = {}
        self._answer = ""
        self._under_way = False

    def take(self, number: int, line: Any) -> None:
        """Add the moments of the line with this number."""
        self._line = number
        self._at = text_of(line.timestamp) or self._at
        if line.isSidechain is True:
            return
        if not self.moments and line.type in ("user", "assistant"):
            self._add("session-start", source="startup")
        if line.type == "system" and line.subtype == "compact_boundary":
            self._add("pre-compact", trigger="auto", custom_instructions="")
        elif line.type == "user":
            self._take_user(line)
        elif line.type == "assistant":
            self._take_assistant(mapping(line.message))

    def end(self) -> None:
        """Add the moments at the end of the session."""
        if self.moments:
            self._line += 1
            self._stop()
            self._add("session-end", reason="other")

    def _take_user(self, line: Any) -> None:
        content = mapping(line.message).get("content")
        if line.isCompactSummary is True:
            self._line += 1  # the summary stands in the file by then
            self._add("post-compact", trigger="auto", compact_summary=content_text(content))
            self._add("session-start", source="compact")
            return
        sort = sort_of(line)
        if sort == "prompt":
            self._stop()
            self._add("user-prompt-submit", prompt=typed(content))
            self._under_way = True
        elif sort == "results":
            for block in items(content):
                if block.get("type") == "tool_result":
                    self._take_result(block)

    def _take_result(self, block: Mapping[str, Any]) -> None:
        name = text_of(block.get("tool_use_id"))
        if name not in self._calls:
            return
        tool, given = self._calls.pop(name)
        output = content_text(block.get("content"))
        fields = {"tool_name": tool, "tool_input": given, "tool_use_id": name}
        if not block.get("is_error"):
            self._add("post-tool-use", **fields, tool_response=output)
        elif not any(words in output for words in _REFUSED):
            self._add("post-tool-use-failure", **fields, error=_ERROR_TAG.sub("", output))

    def _take_assistant(self, message: Mapping[str, Any]) -> None:
        # One answer of the model is written as several lines.
        self._requests.setdefault(text_of(message.get("id")), len(self._requests))
        for block in items(message.get("content")):
            if block.get("type") == "text":
                self._answer = text_of(block.get("text"))
            elif block.get("type") == "tool_use":
                name = text_of(block.get("id"))
                tool = text_of(block.get("name"))
                self._calls[name] = tool, block.get("input")
                self._line += 1
                self._add(
                    "pre-tool-use",
                    tool_name=tool,
                    tool_input=block.get("input"),
                    tool_use_id=name,
                )

    def _stop(self) -> None:
        if self._under_way:
            self._add("stop", stop_hook_active=False, last_assistant_message=self._answer)
        self._under_way = False
        self._answer = ""

    def _add(self, event: str, **fields: Any) -> None:
        self.moments.append(
            Moment(
                session=self._session,
                agent="claude",
                event=event,
                at=self._at,
                line=self._line,
                request=len(self._requests),
                fields=fields,
            )
        )


def _claude_session(name: str, lines: list[bytes]) -> PastSession | None:
    session = cwd = ""
    read: list[tuple[int, Any]] = []
    for number, data in enumerate(lines):
        for line in _objects(data):
            session = session or text_of(line.sessionId)
            cwd = cwd or text_of(line.cwd)
            read.append((number, line))
    if not session:
        return None
    walk = _ClaudeWalk(name)
    for number, line in read:
        walk.take(number, line)
    walk.end()
    return PastSession(
        name=name, session=session, agent="claude", cwd=cwd, lines=lines, moments=walk.moments
    )


def _objects(data: bytes) -> list[Any]:
    try:
        return lines_of(data.strip()) if data.strip() else []
    except Exception:  # noqa: BLE001  a torn line is skipped, as when it is captured
        return []


# -- Codex.


def _codex_session(name: str, lines: list[bytes]) -> PastSession | None:
    """Return a rollout's session; its prompts come from the reader that captures it."""
    meta = _plain(lines[0]).get("payload")
    meta = meta if isinstance(meta, dict) else {}
    if isinstance(meta.get("source"), dict):
        return None  # the thread of a sub-agent
    moments: list[Moment] = []
    requests = 0
    under_way = False
    calls: dict[str, dict[str, Any]] = {}
    at = text_of(meta.get("timestamp"))

    def add(event: str, line: int, **fields: Any) -> None:
        moments.append(
            Moment(
                session=name,
                agent="codex",
                event=event,
                at=at,
                line=line,
                request=requests,
                fields=fields,
            )
        )

    add("session-start", 1, source="startup")
    for number, event, payload, when in _codex_events(lines):
        at = when or at
        sort = payload.get("type")
        if event == "event_msg" and sort == "user_message":
            if under_way:
                add("stop", number)
            add("user-prompt-submit", number, prompt=text_of(payload.get("message")))
            under_way = True
        elif event == "event_msg" and sort == "token_count":
            requests += 1
        elif event == "response_item" and sort in ("function_call", "custom_tool_call"):
            fields = _codex_call(payload)
            calls[text_of(payload.get("call_id"))] = fields
            add("pre-tool-use", number + 1, **fields)
        elif event == "response_item" and str(sort).endswith("_output"):
            fields = calls.pop(text_of(payload.get("call_id")), {})
            output = payload.get("output")
            text = output if isinstance(output, str) else json.dumps(output)
            code = _EXIT_CODE.search(text[:2000])
            if fields and code and code[1] != "0":
                fields |= {"error": f"Exit code {code[1]}\n{text}"}
                add("post-tool-use-failure", number + 1, **fields)
            elif fields:
                add("post-tool-use", number + 1, **fields, tool_response=text)
    if under_way:
        add("stop", len(lines))
    add("session-end", len(lines), reason="other")
    return PastSession(
        name=name,
        session=text_of(meta.get("id")) or name,
        agent="codex",
        cwd=text_of(meta.get("cwd")),
        lines=lines,
        moments=moments,
    )


def _codex_events(lines: list[bytes]) -> Iterator[tuple[int, str, dict[str, Any], str]]:
    for number, data in enumerate(lines):
        line = _plain(data)
        payload = line.get("payload")
        if isinstance(payload, dict):
            yield number, str(line.get("type")), payload, text_of(line.get("timestamp"))


def _codex_call(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call as a hook of Codex names it: commands are calls of `Bash`."""
    given: Any = payload.get("input")
    if isinstance(payload.get("arguments"), str):
        given = _plain(payload["arguments"].encode())
    tool = text_of(payload.get("name"))
    fields = {"tool_name": tool, "tool_input": given, "tool_use_id": payload.get("call_id")}
    if tool in _CODEX_SHELLS and isinstance(given, dict):
        command = given.get("command", given.get("cmd", ""))
        if isinstance(command, list):
            command = command[-1] if command else ""
        fields |= {"tool_name": "Bash", "tool_input": {"command": command}}
    return fields


def _plain(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
