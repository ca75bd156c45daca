"""Cut Codex's rollouts, its session files under `~/.codex/sessions`, into exchanges.

The first line names the session and its folder. A turn begins with `task_started` and a person's
words and ends with `task_complete` or `turn_aborted`; older rollouts have neither, so there a
person's next words end it. In every version, `response_item` lines have what the model said and
called; the events beside them repeat it and are skipped.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ralph.capture import lines
from ralph.capture.lines import content_text, count, items, mapping, objects, text_of
from ralph.capture.rules import pattern
from ralph.clients.turns import LONGEST_COMMAND, MOST_TYPED, OpenCall, ToolTurn
from ralph.records.iteration import FileAction

# -- The lines of Codex's rollouts: whose words they hold, what was called, and what came back.


_READ = 64_000
_SHELLS = {"exec_command", "shell", "shell_command", "local_shell_call", "container.exec"}
_CHANGES: dict[str, FileAction] = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_HEAD_CHARS = 500
_SCRIPT_CALL = "tools.exec_command("
_json = json.JSONDecoder()
_MOST_HUNKS = 50


def rollout_head(line: bytes) -> lines.SessionHead | None:
    """Return the session of a rollout, or None if its first line does not name one."""
    try:
        event = objects(line)[0]
    except lines.UnreadableLine:
        return None
    if event.get("type") != "session_meta":
        return None
    data = mapping(event.get("payload"))
    below = "subagent" in (text_of(data.get("thread_source")), text_of(data.get("source")))
    return lines.SessionHead(
        session=text_of(data.get("id")) or text_of(data.get("session_id")),
        cwd=text_of(data.get("cwd")),
        git_branch=text_of(mapping(data.get("git")).get("branch")),
        is_subagent=below or "subagent" in mapping(data.get("source")),
    )


class CodexAnswer(msgspec.Struct, frozen=True):
    """A tool's answer: its own words, and whether it failed."""

    text: str
    failed: bool
    code: int | None = None
    session: str = ""  # the name under which it still runs
    stopped: bool = False


def words_of(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the person wrote in a user's message, and what the client added."""
    data = mapping(message.get("internal_chat_message_metadata_passthrough"))
    parts = list(items(message.get("content")))
    whose = [
        text_of(mapping(part.get("provenance")).get("type"))
        for part in items(data.get("content_item_metadata"))
    ]
    whose += [""] * (len(parts) - len(whose))
    typed: list[str] = []
    put_in: list[str] = []
    for part, who in zip(parts, whose, strict=False):
        if text_of(part.get("type")) == "input_image":
            typed.append("[image]")
            continue
        text = text_of(part.get("text"))[:_READ].strip()
        # Newer clients say whose words each part is.
        persons = who == "user" if who else not pattern("codex puts in").match(text)
        (typed if persons else put_in).append(text)
    return "\n\n".join(filter(None, typed)), "\n".join(put_in)


def turn_of(payload: Mapping[str, Any]) -> str:
    """Return the id of the turn that a line belongs to, or "" if it has none."""
    data = mapping(payload.get("internal_chat_message_metadata_passthrough"))
    return text_of(payload.get("turn_id")) or text_of(data.get("turn_id"))


def call_of(item: Mapping[str, Any]) -> OpenCall:
    """Return the call in a response item."""
    name = text_of(item.get("name")) or text_of(item.get("type"))
    if space := text_of(item.get("namespace")):
        name = f"{space}__{name}"
    identity = text_of(item.get("call_id")) or text_of(item.get("id"))
    raw = text_of(item.get("arguments")) or text_of(item.get("input"))
    given = _arguments(raw) or mapping(item.get("action"))
    call = OpenCall(identity=identity, tool=name)
    if name in _SHELLS:
        call.command = _command(given)[:LONGEST_COMMAND]
        call.folder = text_of(given.get("workdir")) or text_of(given.get("working_directory"))
        call.folder = call.folder or None
    elif name == "exec":
        call.command, call.folder = _scripted(raw)
    elif name == "write_stdin":
        call.session = str(given.get("session_id", ""))[:20]
    if "*** Begin Patch" in (raw if name == "apply_patch" else call.command):
        patch = (call.command or text_of(given.get("input")) or raw)[:_READ]
        call.changes, call.edits = changes_of(patch), list(hunks_of(patch))
    asked = (text_of(given.get(key)) for key in ("query", "path", "url", "pattern", "message"))
    call.target = call.command or next(filter(None, asked), "")
    return call


def changes_of(patch: str) -> list[tuple[str, FileAction]]:
    """Return the files that a patch changes, and how."""
    found: list[tuple[str, FileAction]] = []
    for kind, path, moved_to in pattern("patched").findall(patch):
        if moved_to and found:
            found[-1] = (found[-1][0], "deleted")
            found.append((moved_to.strip(), "created"))
        elif path:
            found.append((path.strip(), _CHANGES[kind]))
    return found


def hunks_of(patch: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a patch removes from each file and adds, hunk by hunk."""
    parts = re.split(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", patch, flags=re.M)
    for path, body in zip(parts[1::2], parts[2::2], strict=True):
        for hunk in re.split(r"^@@.*$", body, flags=re.M)[:_MOST_HUNKS]:
            rows = hunk.splitlines()
            old = "\n".join(row[1:] for row in rows if row[:1] == "-")
            new = "\n".join(row[1:] for row in rows if row[:1] == "+")
            if old or new:
                yield path.strip(), old, new


def answer_of(output: Any) -> CodexAnswer:
    """Read the answer to a call, in any of the forms that clients have used."""
    plain = mapping(output)
    text = content_text(plain.get("content")) if plain else content_text(output)
    code: int | None = None
    failed = plain.get("success") is False
    if text.startswith("{"):
        inner = _arguments(text)
        if isinstance(inner.get("output"), str):
            text = inner["output"]
            status = mapping(inner.get("metadata")).get("exit_code")
            code = status if isinstance(status, int) and not isinstance(status, bool) else None
    head = text[:_HEAD_CHARS]
    body = pattern("codex output head").match(text)
    if ended := pattern("ended").search(head, 0, body.end() if body else len(head)):
        code = int(ended[1])
    running = pattern("running").search(head)
    return CodexAnswer(
        text=text[body.end() :] if body else text,
        failed=failed or bool(code) or bool(pattern("called badly").match(text)),
        code=code,
        session=running[1] if running and code is None else "",
        stopped=pattern("stopped").search(head) is not None,
    )


def total_tokens(usage: Any) -> int:
    """Return the number of tokens processed, from one of Codex's counts."""
    data = mapping(usage)
    total = count(data.get("total_tokens"))
    if total is not None:
        return total
    return sum(count(data.get(key)) or 0 for key in ("input_tokens", "output_tokens"))


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return mapping(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _scripted(script: str) -> tuple[str, str | None]:
    """Return the shell lines in a script that calls the shell, and the folder of the first."""
    found: list[Mapping[str, Any]] = []
    for part in script[:_READ].split(_SCRIPT_CALL)[1:]:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(mapping(_json.raw_decode(part)[0]))
    shell = "\n".join(filter(None, (_command(given) for given in found)))[:LONGEST_COMMAND]
    return shell, next((text_of(given.get("workdir")) for given in found), "") or None


def _command(given: Mapping[str, Any]) -> str:
    """Return the shell line without the shell itself, as a person would type it."""
    data = given.get("cmd") or given.get("command")
    if not isinstance(data, list):
        return text_of(data)
    words = [text_of(word) for word in data]
    if len(words) == 3 and words[1] in {"-lc", "-c"}:
        return words[2]
    return " ".join(words)


# -- One turn of Codex being read: what was asked, said, called and answered, and how it ended.


class CodexTurn(ToolTurn):
    """An exchange being read."""

    _before: int | None = None

    def __init__(
        self, start: lines.SessionStart, key: str, begins_at: int, turn: str, folder: str
    ) -> None:
        super().__init__("codex", start, key, begins_at, folder)
        self.turn = turn
        # The calls whose shells still run, by the shell's name.
        self._shells: dict[str, OpenCall] = {}

    def context(self, data: Mapping[str, Any]) -> None:
        """Note the turn's folder and model."""
        self.model = text_of(data.get("model")) or self.model
        self.folder = text_of(data.get("cwd")) or self.folder
        self.at_home(self.folder)

    def call(self, call: OpenCall) -> None:
        """Note a tool call; one that waits for a running shell continues that shell's call."""
        changes = ", ".join(self.place(path) or path for path, _ in call.changes or ())
        call.target = changes or call.target
        if call.session not in self._shells:
            super().call(call)
            return
        self.spoke_last = False
        self.attempts.begin()
        self.use_tool(call.tool, call.target)
        self._open[call.identity] = self._shells[call.session]

    def back(self, identity: str, answer: CodexAnswer) -> None:
        """Note a tool's answer."""
        call = self._open.get(identity)
        if call is None:
            return
        if answer.session:
            self._shells[answer.session] = call
            self.drop(identity)
        elif answer.stopped or (
            answer.failed and answer.code is None and self.stumble(answer.text)
        ):
            self.drop(identity)
            self.steps.answered(call.identity, answer.text, failed=answer.failed)
        else:
            failed, code = answer.failed, answer.code
            self.answer(identity, answer.text, failed=failed, code=code, existed=False)

    def spend(self, total: int, last: int) -> None:
        """Note the tokens that the thread has used so far, `last` of them since the last line."""
        if self._before is None:
            self._before = max(0, total - last)
        self.tokens["thread"] = max(self.tokens.get("thread", 0), total - self._before)

    def fail(self, message: str) -> None:
        """Note that the provider or the client gave up; unwrap a provider's message from JSON."""
        error = mapping(_arguments(message).get("error")) if message.startswith("{") else {}
        self.failure = text_of(error.get("message")) or message or "the turn failed"


class Rollout(lines.SessionReader):
    """Reads a rollout; to resume reading, pass the head too."""

    _parts = staticmethod(objects)
    _open: CodexTurn | None = None
    # The turn that has begun but has no words yet: its position, its id, and whether it is marked.
    _turn_at: int | None = None
    _turn = ""
    _is_marked = False

    def __init__(self, start: lines.SessionStart | None = None) -> None:
        super().__init__(start)
        self.head = self._start.head
        self._context: Mapping[str, Any] = {}
        self._put_in: list[str] = []

    @property
    def ends_at(self) -> int:
        """The offset up to which everything was read, except a turn that has no words yet."""
        return self._next if self._turn_at is None else self._turn_at

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, data = text_of(event.get("type")), mapping(event.get("payload"))
        if not kind:
            self._reading.complain("has no type; skipped")
            return
        if kind == "session_meta" and not self.head.session:
            self.head = rollout_head(msgspec.json.encode(dict(event))) or self.head
        elif kind == "turn_context":
            self._begin(turn_of(data))
            self._context = data
            if self._open is not None:
                self._open.context(data)
        elif kind == "event_msg":
            self._event(text_of(data.get("type")), data)
        elif kind == "response_item":
            self._item(text_of(data.get("type")), data, event.get("timestamp"))
        elif kind == "token_usage_record" and self._open is not None:
            thread = total_tokens(data.get("thread_token_usage"))
            self._open.spend(thread, total_tokens(data.get("usage")))

    def _begin(self, turn: str) -> None:
        """Begin a turn, or continue the one with the same id."""
        if self._open is not None and turn in ("", self._open.turn):
            return
        self._close(self._at)
        if self._turn_at is None or turn != self._turn:
            self._turn_at, self._turn = self._at, turn
            self._is_marked, self._context, self._put_in = False, {}, []

    def _event(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind in {"task_started", "turn_started"}:
            self._close(self._at)
            self._begin(turn_of(data))
            self._is_marked = True
        elif kind == "thread_name_updated":
            self._title = lines.session_title(text_of(data.get("thread_name"))) or self._title
        elif self._open is None:
            return
        elif kind == "token_count":
            if info := mapping(data.get("info")):
                last = total_tokens(info.get("last_token_usage"))
                self._open.spend(total_tokens(info.get("total_token_usage")), last)
        elif kind in {"error", "stream_error"}:
            self._open.fail(text_of(data.get("message")))
        elif kind in {"task_complete", "turn_complete"}:
            if error := mapping(data.get("error")):
                self._open.fail(text_of(error.get("message")))
            self._open.reason = "ok"
            self._close(self._next)
        elif kind == "turn_aborted":
            self._open.reason = "interrupted"
            self._close(self._next)

    def _item(self, kind: str, item: Mapping[str, Any], when: Any) -> None:
        role = text_of(item.get("role"))
        if kind == "message" and role == "user":
            self._asked(item)
        elif kind == "message" and role != "assistant":
            self._inject(content_text(item.get("content")))
        turn = self._open
        if turn is None:
            return
        turn.see_time(when)
        if kind == "message" and role == "assistant":
            for part in items(item.get("content")):
                if text := text_of(part.get("text")):
                    turn.speak(text)
        elif kind in {"function_call", "custom_tool_call", "local_shell_call"}:
            turn.call(call_of(item))
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            turn.back(text_of(item.get("call_id")), answer_of(item.get("output")))

    def _asked(self, item: Mapping[str, Any]) -> None:
        typed, put_in = words_of(item)
        self._inject(put_in)
        if not typed:
            return
        turn = turn_of(item) or self._turn
        if self._open is not None and turn and turn == self._open.turn:
            self._open.ask(typed)
            return
        at = self._at if self._turn_at is None else self._turn_at
        self._close(at)
        # A turn has one id, however often its line is copied; without an id, use the position.
        key = turn or text_of(item.get("id")) or f"{self.head.session}@{self._at}"
        start = msgspec.structs.replace(self._start, head=self.head)
        self._open = opened = CodexTurn(start, key, at, turn, text_of(self._context.get("cwd")))
        opened.is_marked = self._is_marked
        opened.context(self._context)
        for text in self._put_in:
            opened.see_injected(text)
        opened.ask(typed)
        self._turn_at, self._turn, self._put_in = None, turn, []

    def _inject(self, text: str) -> None:
        if self._open is not None:
            self._open.see_injected(text)
        elif text:
            self._put_in = [*self._put_in, text][-MOST_TYPED:]

    def _close(self, at: int) -> None:
        self._turn = self._turn if self._open is None else ""
        super()._close(at)


# -- The files of its sessions.


def session_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder where Codex keeps its sessions."""
    given = environ.get("CODEX_HOME")
    return (Path(given) if given else Path.home() / ".codex") / "sessions"


def session_files(folder: Path) -> Iterator[Path]:
    """Return every rollout."""
    return (file for file in lines.jsonl_files(folder) if file.name.startswith("rollout-"))


def session_head(path: Path, file: BinaryIO) -> lines.SessionHead | None:
    """Return the session of a rollout; a session without an id is named after its file."""
    head = rollout_head(file.readline())
    if head is None or head.session:
        return head
    return msgspec.structs.replace(head, session=path.stem)


session_reader = Rollout
session_stamp = lines.file_stamp
open_session = lines.open_file
