"""Cut Codex's rollouts, its session files under `~/.codex/sessions`, into exchanges.

The first line names the session and its folder. A turn begins with `task_started` and a person's
words and ends with `task_complete` or `turn_aborted`; older rollouts have neither, so there a
person's next words end it. In every version, `response_item` lines have what the model said and
called; most events beside them repeat it and are skipped. Events say more in two cases: which
messages a person wrote, and what the tools that a script called did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import msgspec

from ralph.capture import lines
from ralph.capture.lines import content_text, count, items, mapping, objects, text_of
from ralph.capture.rules import pattern
from ralph.clients import drift
from ralph.clients.codex_outputs import ScriptResult, results_in, script_output
from ralph.clients.codex_scripts import calls_in
from ralph.clients.patches import BEGIN_PATCH, changes_of, diff_hunks, hunks_of
from ralph.clients.turns import LONGEST_COMMAND, MOST_TYPED, OpenCall, ToolTurn, questions_in
from ralph.records.iteration import FileAction

# -- The lines of Codex's rollouts: whose words they hold, what was called, and what came back.


_READ = 64_000
_SHELLS = {"exec_command", "shell", "shell_command", "local_shell_call", "container.exec"}
_CHANGED: dict[str, FileAction] = {"add": "created", "update": "modified", "delete": "deleted"}
_HEAD_CHARS = 500
_SCRIPT = "exec"
# The ids of what a script called begin with this.
_CALLED_BY_SCRIPT = "exec-"
# Since this version at the latest, an event beside a message says that a person wrote it.
_SAYS_PROMPTS = (0, 121)
_MOST_CHANGES = 500


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
        version=text_of(data.get("cli_version")),
    )


def says_prompts(version: str) -> bool:
    """Whether a client of this version says which messages a person wrote."""
    numbers = re.match(r"(\d{1,9})\.(\d{1,9})", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _SAYS_PROMPTS


class CodexAnswer(msgspec.Struct, frozen=True):
    """A tool's answer: its own words, and whether it failed."""

    text: str
    failed: bool
    code: int | None = None
    session: str = ""  # the name under which it still runs
    stopped: bool = False


class UserMessage(msgspec.Struct, frozen=True):
    """A message in a person's name: what the person wrote, and what the client added.

    `is_sure` if the client itself says whose words they are.
    """

    typed: str
    put_in: str
    is_sure: bool


def user_message(message: Mapping[str, Any]) -> UserMessage:
    """Read a message in a person's name."""
    data = mapping(message.get("internal_chat_message_metadata_passthrough"))
    parts = list(items(message.get("content")))
    whose = [
        text_of(mapping(part.get("provenance")).get("type"))
        for part in items(data.get("content_item_metadata"))
    ]
    is_sure = any(whose)
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
        text = pattern("files note").sub("", text).strip() if persons else text
        (typed if persons else put_in).append(text)
    return UserMessage("\n\n".join(filter(None, typed)), "\n".join(put_in), is_sure)


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
    return _call(identity, name, _arguments(raw) or mapping(item.get("action")), raw)


def script_calls(item: Mapping[str, Any]) -> list[OpenCall]:
    """Return the calls in a script; for a script that calls nothing, the script itself."""
    identity = text_of(item.get("call_id"))
    script = text_of(item.get("input"))
    found = [
        _call(f"{identity}/{number}", call.tool, call.given, call.text)
        for number, call in enumerate(calls_in(script))
    ]
    if not found:
        first = next(filter(None, map(str.strip, script[:_READ].splitlines())), "")
        return [OpenCall(identity=f"{identity}/0", tool=_SCRIPT, target=first)]
    return found


def _call(identity: str, name: str, given: Mapping[str, Any], raw: str) -> OpenCall:
    call = OpenCall(identity=identity, tool=name)
    if name in _SHELLS:
        call.command = _command(given)[:LONGEST_COMMAND]
        call.folder = text_of(given.get("workdir")) or text_of(given.get("working_directory"))
        call.folder = call.folder or None
    elif name == "write_stdin":
        call.session = str(given.get("session_id", ""))[:20]
    if BEGIN_PATCH in (raw if name == "apply_patch" else call.command):
        patch = (call.command or text_of(given.get("input")) or raw)[:_READ]
        call.changes, call.edits = changes_of(patch), list(hunks_of(patch))
    asked = (text_of(given.get(key)) for key in ("query", "path", "url", "pattern", "message"))
    call.questions = questions_in(name, given)
    call.target = call.command or next(filter(None, asked), "") or " ".join(call.questions.values())
    return call


def answer_of(output: Any, *, failed: bool = False) -> CodexAnswer:
    """Read the answer to a call, in any of the forms that clients have used."""
    plain = mapping(output)
    text = content_text(plain.get("content")) if plain else content_text(output)
    code: int | None = None
    failed = failed or plain.get("success") is False
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


def _waits_in_vain(call: OpenCall) -> bool:
    """Whether a call waits for a shell of which nobody knows what it runs."""
    return bool(call.session) and not call.command


class _OpenScript(msgspec.Struct):
    """A script that waits for its answer: its calls, and what it printed so far."""

    text: str
    calls: list[OpenCall]
    printed: list[str] = []


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
        # The scripts without an answer, by the id of their call, and those that still run, by name.
        self._scripts: dict[str, _OpenScript] = {}
        self._cells: dict[str, _OpenScript] = {}

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
            answer.failed
            and answer.code is None
            and (_waits_in_vain(call) or self.stumble(answer.text))
        ):
            self.drop(identity)
            self.steps.answered(call.identity, answer.text, failed=answer.failed)
        else:
            failed = answer.failed
            code = answer.code
            self.answer(identity, answer.text, failed=failed, code=code, existed=False)

    def begin_script(self, item: Mapping[str, Any]) -> None:
        """Note the calls in a script."""
        calls = script_calls(item)
        script = _OpenScript(text_of(item.get("input"))[:_READ], calls)
        self._scripts[text_of(item.get("call_id"))] = script
        for call in calls:
            self.call(call)

    def wait(self, identity: str, cell: str) -> bool:
        """Note a call that waits for a script; return whether the script is known."""
        if cell not in self._cells:
            return False
        self.spoke_last = False
        self._scripts[identity] = self._cells.pop(cell)
        return True

    def script_back(self, identity: str, output: Any) -> bool:
        """Note what a script printed; return whether the script is known."""
        script = self._scripts.pop(identity, None)
        if script is None:
            return False
        printed = script_output(output)
        script.printed += printed.texts
        if printed.cell:
            self._cells[printed.cell] = script
        elif printed.failed:
            self._failed_script(script, printed.text)
        else:
            self._ended_script(script)
        return True

    def _left(self, script: _OpenScript) -> list[OpenCall]:
        return [call for call in script.calls if call.identity in self._open]

    def _ended_script(self, script: _OpenScript) -> None:
        """Match what a script printed with its calls."""
        commands = [call for call in script.calls if call.command or call.session]
        commands = [call for call in commands if not call.writes]
        texts = [text for text in script.printed if not pattern("patch succeeded").match(text)]
        results = results_in(script.text, texts, len(commands))
        if results is None:
            self._judge_together(script, [one for one in commands if one in self._left(script)])
        else:
            for call, result in zip(commands, results, strict=True):
                self._result(call, result)
        left = self._left(script)
        for call in left:
            if call.command and not call.writes:
                self.drop(call.identity)
            else:
                self.answer(call.identity, "\n".join(texts) if len(script.calls) == 1 else "")

    def _result(self, call: OpenCall, result: ScriptResult) -> None:
        if result.session:
            self._shells[result.session] = self.drop(call.identity) or call
            return
        code = result.code
        if _waits_in_vain(self._open.get(call.identity, call)):
            self.drop(call.identity)
            self.steps.answered(call.identity, result.text, failed=bool(code))
            return
        self.answer(call.identity, result.text, code=code, is_code_unseen=code is None)

    def _judge_together(self, script: _OpenScript, commands: list[OpenCall]) -> None:
        """Read commands whose outputs cannot be told apart as one."""
        if not commands or not script.printed:
            return
        text = "\n".join(script.printed)
        first, *others = commands
        self.steps.answered(first.identity, text, failed=False)
        for call in others:
            self.drop(call.identity)
        first.command = "\n".join(call.command for call in commands)[:LONGEST_COMMAND]
        self.answer(first.identity, text, is_code_unseen=True)

    def _failed_script(self, script: _OpenScript, text: str) -> None:
        """Note that a script broke off: calls before the one that failed were made."""
        left = self._left(script)
        told = pattern("codex script error").sub("", text)
        broken = next((call for call in left if told.startswith(call.tool)), None)
        if broken is None:
            self.stumble(told)
        for call in left:
            if call is broken:
                self.back(call.identity, answer_of(told, failed=True))
                broken = None
            elif call.writes and broken is not None:
                self.answer(call.identity, "")
            else:
                self.drop(call.identity)
                self.steps.answered(call.identity, told, failed=True)

    def changed(self, identity: str, changes: Any, *, output: str, failed: bool) -> None:
        """Note the files that a script changed, as the client itself tells."""
        if not identity.startswith(_CALLED_BY_SCRIPT):
            return
        told = list(_changed_files(mapping(changes)))
        paths = {path for path, _ in told}
        waiting = [call for call in self._in_scripts() if call.changes is not None]
        same = (one for one in waiting if {path for path, _ in one.changes or ()} == paths)
        call = next(same, None) or next(iter(waiting), None)
        if call is None:
            call = OpenCall(identity=identity, tool="apply_patch", changes=told)
            self.call(call)
        if told:
            call.changes = told
            call.edits = call.edits or list(_changed_lines(mapping(changes)))
        self.answer(call.identity, output, failed=failed)

    def executed(self, item: Mapping[str, Any]) -> None:
        """Note the end of a command that a script ran, as the client itself tells."""
        identity = text_of(item.get("id")) or text_of(item.get("call_id"))
        if not identity.startswith(_CALLED_BY_SCRIPT):
            return
        command = _command({"command": item.get("command")})[:LONGEST_COMMAND]
        call = self._shells.pop(text_of(item.get("process_id")), None)
        if call is None:
            waiting = [one for one in self._in_scripts() if one.tool in _SHELLS]
            same = (one for one in waiting if one.command == command)
            open_ones = (one for one in waiting if not one.command or "${" in one.command)
            call = next(same, None) or next(open_ones, None)
            if call is None:
                call = OpenCall(identity=identity, tool="exec_command", target=command)
                self.call(call)
        else:
            self._open[call.identity] = call
        call.command = command
        call.folder = unquote(text_of(item.get("cwd")).removeprefix("file://")) or call.folder
        code = item.get("exit_code")
        output = text_of(item.get("aggregated_output"))
        if item.get("status") == "declined" or not isinstance(code, int) or code < 0:
            self.drop(call.identity)
            self.steps.answered(call.identity, output, failed=True)
            return
        self.answer(call.identity, output, code=code)

    def _in_scripts(self) -> Iterator[OpenCall]:
        for script in (*self._scripts.values(), *self._cells.values()):
            yield from self._left(script)

    def spend(self, total: int, last: int) -> None:
        """Note the tokens that the thread has used so far, `last` of them since the last line."""
        if self._before is None:
            self._before = max(0, total - last)
        self.tokens["thread"] = max(self.tokens.get("thread", 0), total - self._before)

    def fail(self, message: str) -> None:
        """Note that the provider or the client gave up; unwrap a provider's message from JSON."""
        error = mapping(_arguments(message).get("error")) if message.startswith("{") else {}
        self.failure = text_of(error.get("message")) or message or "the turn failed"


def _changed_files(changes: Mapping[str, Any]) -> Iterator[tuple[str, FileAction]]:
    """Yield the files in an event's `changes`, and what became of them."""
    for path, change in list(changes.items())[:_MOST_CHANGES]:
        about = mapping(change)
        moved_to = text_of(about.get("move_path"))
        if moved_to:
            yield path, "deleted"
            yield moved_to, "created"
        elif action := _CHANGED.get(text_of(about.get("type"))):
            yield path, action


def _changed_lines(changes: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for path, change in list(changes.items())[:_MOST_CHANGES]:
        about = mapping(change)
        yield from diff_hunks(path, text_of(about.get("unified_diff"))[:_READ])
        if about.get("type") == "add":
            yield path, "", text_of(about.get("content"))[:_READ]


class Rollout(lines.SessionReader):
    """Reads a rollout; to resume reading, pass the head too."""

    _parts = staticmethod(objects)
    _names = staticmethod(drift.codex_names)
    _open: CodexTurn | None = None
    # The turn that has begun but has no words yet: its position, its id, and whether it is marked.
    _turn_at: int | None = None
    _turn = ""
    _is_marked = False
    # A message that is a person's if the client says so, and its position.
    _unsure: tuple[Mapping[str, Any], int] | None = None

    def __init__(self, start: lines.SessionStart | None = None) -> None:
        super().__init__(start)
        self.head = self._start.head
        self._context: Mapping[str, Any] = {}
        self._put_in: list[str] = []

    @property
    def ends_at(self) -> int:
        """The offset up to which everything was read, except a turn that has no words yet."""
        waits_at = self._next if self._unsure is None else self._unsure[1]
        return waits_at if self._turn_at is None else self._turn_at

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = text_of(event.get("type"))
        data = mapping(event.get("payload"))
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
            self._turn_at = self._at
            self._turn = turn
            self._is_marked = False
            self._context = {}
            self._put_in = []

    def _event(self, kind: str, data: Mapping[str, Any]) -> None:
        item = mapping(data.get("item")) if kind == "item_completed" else {}
        if kind == "user_message" or item.get("type") == "UserMessage":
            self._is_persons()
        elif kind in {"task_started", "turn_started"}:
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
        else:
            self._told(self._open, kind, item or data)

    def _told(self, turn: CodexTurn, kind: str, item: Mapping[str, Any]) -> None:
        """Take what the client itself tells of a tool."""
        kind = text_of(item.get("type")) if kind == "item_completed" else kind
        identity = text_of(item.get("id")) or text_of(item.get("call_id"))
        if kind in {"FileChange", "patch_apply_end"}:
            failed = item.get("success") is False or item.get("status") in {"failed", "declined"}
            output = text_of(item.get("stdout")) or text_of(item.get("stderr"))
            turn.changed(identity, item.get("changes"), output=output, failed=failed)
        elif kind in {"CommandExecution", "exec_command_end"}:
            turn.executed(item)

    def _item(self, kind: str, item: Mapping[str, Any], when: Any) -> None:
        role = text_of(item.get("role"))
        self._is_clients()
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
            self._called(turn, kind, item)
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            identity = text_of(item.get("call_id"))
            output = item.get("output")
            if not turn.script_back(identity, output):
                turn.back(identity, answer_of(output))

    def _called(self, turn: CodexTurn, kind: str, item: Mapping[str, Any]) -> None:
        name = text_of(item.get("name"))
        if kind == "custom_tool_call" and name == _SCRIPT:
            turn.begin_script(item)
            return
        if name == "wait":
            given = _arguments(text_of(item.get("arguments")))
            cell = text_of(given.get("cell_id")) or str(given.get("cell_id", ""))[:20]
            if turn.wait(text_of(item.get("call_id")), cell):
                return
        turn.call(call_of(item))

    def _asked(self, item: Mapping[str, Any]) -> None:
        """Read a message in a person's name, at once or when the client says whose it is."""
        message = user_message(item)
        if message.is_sure or not says_prompts(self.head.version):
            self._ask(item, message, self._at)
        else:
            self._unsure = (item, self._at)

    def _is_persons(self) -> None:
        """The client says that the message before was a person's."""
        if self._unsure is not None:
            item, at = self._unsure
            self._unsure = None
            message = user_message(item)
            # A person may begin with what usually is the client's.
            typed = message.typed or message.put_in
            self._ask(item, msgspec.structs.replace(message, typed=typed), at)

    def _is_clients(self) -> None:
        """The client did not say that the message before was a person's."""
        if self._unsure is not None:
            item, at = self._unsure
            self._unsure = None
            if len(self.no_prompts) < MOST_TYPED:
                self.no_prompts.append(self._key_of(item, at))
            self._inject(content_text(item.get("content"))[:_READ])

    def _ask(self, item: Mapping[str, Any], message: UserMessage, begins_at: int) -> None:
        typed = message.typed
        self._inject(message.put_in)
        if not typed:
            return
        turn = turn_of(item) or self._turn
        if self._open is not None and turn and turn == self._open.turn:
            self._open.ask(typed)
            return
        at = begins_at if self._turn_at is None else self._turn_at
        self._hear_reply(typed)
        self._close(at)
        # A turn has one id, however often its line is copied; without an id, use the position.
        key = turn or self._key_of(item, begins_at)
        start = msgspec.structs.replace(self._start, head=self.head)
        opened = CodexTurn(start, key, at, turn, text_of(self._context.get("cwd")))
        opened.is_marked = self._is_marked
        self.tell(opened)
        self._open = opened
        opened.context(self._context)
        for text in self._put_in:
            opened.see_injected(text)
        opened.ask(typed)
        self._turn_at = None
        self._turn = turn
        self._put_in = []

    def _key_of(self, item: Mapping[str, Any], at: int) -> str:
        """Return the name of a message outside of turns: its id, else its position."""
        return text_of(item.get("id")) or f"{self.head.session}@{at}"

    def _inject(self, text: str) -> None:
        if self._open is not None:
            self._open.see_injected(text)
        elif text:
            self._put_in = [*self._put_in, text][-MOST_TYPED:]

    def _agents_words(self, part: Mapping[str, Any]) -> str:
        data = mapping(part.get("payload"))
        return content_text(data.get("content")) if data.get("role") == "assistant" else ""

    def _close(self, at: int) -> None:
        self._unsure = None
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
