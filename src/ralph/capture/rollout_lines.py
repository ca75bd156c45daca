"""The lines of Codex's rollouts: whose words they hold, what was called, and what came back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ralph.capture import TerminalReason
from ralph.capture.lines import (
    Unreadable,
    content_text,
    count,
    items,
    mapping,
    objects,
    text_of,
)
from ralph.records.iteration import FileAction

_READ = 64_000
_LONGEST_COMMAND = 20_000
# What the client writes in a person's place; newer ones say whose words each part is.
_PUT_IN = re.compile(
    r"<(?:environment_context|user_instructions|turn_aborted|user_shell_command|skills?|hook_prompt"
    r"|skills_instructions|permissions instructions|collaboration_mode|subagent_notification"
    r"|model_switch|personality_spec|apps_instructions|plugins_instructions|INSTRUCTIONS)\b[^>]*>"
    r"|# AGENTS\.md instructions"
)
_SHELLS = {"exec_command", "shell", "shell_command", "local_shell_call", "container.exec"}
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.M)
_CHANGES: dict[str, FileAction] = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_ENDED = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,9})$", re.M)
_RUNNING = re.compile(r"^Process running with session ID (\d{1,12})$", re.M)
_HEAD = re.compile(
    r"\A(?:(?:Chunk ID|Wall time|Exit code|Process exited|Original token count|Total output lines)"
    r"[^\n]*\n)*Output:\n?"
)
_BADLY = re.compile(
    r"\A(?:apply_patch verification failed|unsupported call|failed to parse|tool call error"
    r"|execution error|exec_command failed|Failed to (?:create|apply|find))",
    re.I,
)
_STOPPED = re.compile(r"^aborted by user|rejected by user|user (?:rejected|declined)", re.M | re.I)
_HEAD_CHARS = 500
_LIMITED = re.compile(r"usage limit|rate.?limit|\b429\b|too many requests", re.I)
_TOO_LONG = re.compile(r"context (?:window|length)|prompt is too long", re.I)


class SessionHead(msgspec.Struct, frozen=True):
    """What the beginning of a file says of the session it holds."""

    session: str = ""
    cwd: str = ""
    git_branch: str = ""
    is_subagent: bool = False


def rollout_head(line: bytes) -> SessionHead | None:
    """The session a rollout is of, or None when its first line does not say."""
    try:
        event = objects(line)[0]
    except Unreadable:
        return None
    if event.get("type") != "session_meta":
        return None
    told = mapping(event.get("payload"))
    below = "subagent" in (text_of(told.get("thread_source")), text_of(told.get("source")))
    return SessionHead(
        session=text_of(told.get("id")) or text_of(told.get("session_id")),
        cwd=text_of(told.get("cwd")),
        git_branch=text_of(mapping(told.get("git")).get("branch")),
        is_subagent=below or "subagent" in mapping(told.get("source")),
    )


class Call(msgspec.Struct):
    """A tool call as the model made it."""

    identity: str
    tool: str
    command: str = ""
    folder: str | None = None
    asked: str = ""
    patch: str = ""
    session: str = ""  # of a shell that is being waited for


class Back(msgspec.Struct, frozen=True):
    """What a tool answered: its own words, and whether it failed."""

    text: str
    failed: bool
    code: int | None = None
    session: str = ""  # it still runs under this name
    stopped: bool = False


def words_of(message: Mapping[str, Any]) -> tuple[str, str]:
    """A user's message as what a person wrote, and what the client put in."""
    told = mapping(message.get("internal_chat_message_metadata_passthrough"))
    parts = list(items(message.get("content")))
    whose = [
        text_of(mapping(one.get("provenance")).get("type"))
        for one in items(told.get("content_item_metadata"))
    ]
    whose += [""] * (len(parts) - len(whose))
    typed: list[str] = []
    put_in: list[str] = []
    for part, who in zip(parts, whose, strict=False):
        if text_of(part.get("type")) == "input_image":
            typed.append("[image]")
            continue
        text = text_of(part.get("text"))[:_READ].strip()
        persons = who == "user" if who else not _PUT_IN.match(text)
        (typed if persons else put_in).append(text)
    return "\n\n".join(filter(None, typed)), "\n".join(put_in)


def turn_of(payload: Mapping[str, Any]) -> str:
    """The name of the turn that a line belongs to, where it says so."""
    told = mapping(payload.get("internal_chat_message_metadata_passthrough"))
    return text_of(payload.get("turn_id")) or text_of(told.get("turn_id"))


def call_of(item: Mapping[str, Any]) -> Call:
    """The call in a response item."""
    name = text_of(item.get("name")) or text_of(item.get("type"))
    if space := text_of(item.get("namespace")):
        name = f"{space}__{name}"
    identity = text_of(item.get("call_id")) or text_of(item.get("id"))
    raw = text_of(item.get("arguments")) or text_of(item.get("input"))
    given = _arguments(raw) or mapping(item.get("action"))
    call = Call(identity, name)
    if name in _SHELLS:
        call.command = _command(given)[:_LONGEST_COMMAND]
        call.folder = text_of(given.get("workdir")) or text_of(given.get("working_directory"))
        call.folder = call.folder or None
    elif name == "write_stdin":
        call.session = str(given.get("session_id", ""))[:20]
    if "*** Begin Patch" in (raw if name == "apply_patch" else call.command):
        call.patch = (call.command or text_of(given.get("input")) or raw)[:_READ]
    asked = (text_of(given.get(key)) for key in ("query", "path", "url", "pattern", "message"))
    call.asked = next(filter(None, asked), "")
    return call


def changes_of(call: Call) -> list[tuple[str, FileAction]]:
    """The files that a patch changes."""
    found: list[tuple[str, FileAction]] = []
    for kind, path, moved_to in _PATCHED.findall(call.patch):
        if moved_to and found:
            found[-1] = (found[-1][0], "deleted")
            found.append((moved_to.strip(), "created"))
        elif path:
            found.append((path.strip(), _CHANGES[kind]))
    return found


def answer_of(output: Any) -> Back:
    """What came back from a call, in any of the forms clients wrote it."""
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
    body = _HEAD.match(text)
    if ended := _ENDED.search(head, 0, body.end() if body else len(head)):
        code = int(ended[1])
    running = _RUNNING.search(head)
    return Back(
        text=text[body.end() :] if body else text,
        failed=failed or bool(code) or bool(_BADLY.match(text)),
        code=code,
        session=running[1] if running and code is None else "",
        stopped=_STOPPED.search(head) is not None,
    )


def total_tokens(usage: Any) -> int:
    """Everything that was processed, by one of Codex's counts."""
    told = mapping(usage)
    total = count(told.get("total_tokens"))
    if total is not None:
        return total
    return sum(count(told.get(key)) or 0 for key in ("input_tokens", "output_tokens"))


def failure(message: str) -> TerminalReason:
    """What kind of end a turn's error was."""
    if _LIMITED.search(message):
        return "rate_limited"
    return "prompt_too_long" if _TOO_LONG.search(message) else "api_error"


def told_in(message: str) -> str:
    """What an error says, without the provider's envelope around it."""
    error = mapping(_arguments(message).get("error")) if message.startswith("{") else {}
    return text_of(error.get("message")) or message


def said_in(item: Mapping[str, Any]) -> Iterator[str]:
    """The texts of an assistant's message."""
    for part in items(item.get("content")):
        if text := text_of(part.get("text")):
            yield text


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return mapping(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _command(given: Mapping[str, Any]) -> str:
    """The shell's line: without the shell itself, as the person would type it."""
    told = given.get("cmd") or given.get("command")
    if not isinstance(told, list):
        return text_of(told)
    words = [text_of(word) for word in told]
    if len(words) == 3 and words[1] in {"-lc", "-c"}:
        return words[2]
    return " ".join(words)
