"""PreToolUse: hold a command, or say something about a file, once a session.

This runs only if a row of the project's table may apply (see `tool_moments`). A held call is not
run, and the model reads why; the same call then passes. Nothing is held without a person at the
client unless the settings say so, except what a rule forbids that the person has approved.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ralph.current_run import current_run
from ralph.doors.hooks.call import CLAUDE, HookCall, is_paused
from ralph.doors.hooks.sessions import HELD
from ralph.memory.moments_table import ASK, FILE, HOLD, REPEAT, MomentRow, read_table, table_file

if TYPE_CHECKING:
    from ralph.config import Settings

_MOST_HOLDS = 2
_MOST_LINES = 2
_HOLD_TOKENS = 250
_FILE_TOKENS = 250
# The beginning of the mark of a file that the session was told about.
_ABOUT_FILE = "file "
_PATH_FIELDS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")
_READS = frozenset({"read", "read_file", "notebookread", "read_many_files"})


def answer_tool(call: HookCall) -> str:
    """Return what to say about a tool call; set the call's decision if it is held."""
    command = _command(call)
    path = "" if command else _path(call)
    rows = [row for row in read_table(_table(call)) if _applies(row, command, path)]
    if path and _reads(call):
        rows = [row for row in rows if row.kind == FILE]
    if not rows or is_paused(call):
        return ""
    told = call.sessions.read(call.session).recalled_ids
    rules = [row for row in rows if row.kind in (HOLD, ASK)]
    for row in (*rules, *(row for row in rows if row.kind == REPEAT)):
        if reason := _held(call, row, told):
            return reason
    return _about_file(call, path, [row for row in rows if row.kind == FILE], told)


def _table(call: HookCall) -> str:
    return table_file(call.root, call.home)


def _command(call: HookCall) -> str:
    """Return the shell command of a call, or ""."""
    given = call.event_input.get("tool_input")
    value = given.get("command") if isinstance(given, dict) else None
    if not isinstance(value, str) or value.startswith("*** Begin Patch"):
        return ""
    return value


def _path(call: HookCall) -> str:
    """Return the file of a call, relative to the project; "" if it is elsewhere."""
    given = call.event_input.get("tool_input")
    fields: dict[str, Any] = given if isinstance(given, dict) else {}
    value = next((fields[name] for name in _PATH_FIELDS if isinstance(fields.get(name), str)), "")
    if not value or "\0" in value:
        return ""
    whole = os.path.realpath(os.path.join(call.text("cwd") or call.root, value))
    root = os.path.realpath(call.root)
    if not whole.startswith(root + os.sep):
        return ""
    return os.path.relpath(whole, root).replace(os.sep, "/")


def _reads(call: HookCall) -> bool:
    return call.text("tool_name").lower() in _READS


def _applies(row: MomentRow, command: str, path: str) -> bool:
    if row.subject == "command":
        if not command or not row.may_apply(command.encode("utf-8", "replace")):
            return False
        from ralph.capture.shapes import shape_of

        return shape_of(row.key).fits(command)
    if not path:
        return False
    if "*" in row.key:
        from fnmatch import fnmatchcase

        return fnmatchcase(path, row.key)
    return path == row.key or (row.kind != FILE and path.startswith(row.key.rstrip("/") + "/"))


def _held(call: HookCall, row: MomentRow, told: list[str]) -> str:
    """Hold the call or ask the person, if the row says so; return the reason, or ""."""
    mark = f"{HELD}{row.kind} {row.key}"
    if mark in told and row.kind != ASK:
        return ""
    if (
        row.kind == REPEAT
        and sum(one.startswith(f"{HELD}{REPEAT} ") for one in told) >= _MOST_HOLDS
    ):
        return ""
    settings = _settings(call)
    switch = settings.hook_holds if row.kind == REPEAT else settings.hook_checks
    if not (settings.hook_inject and switch):
        return ""
    # A rule that the person approved holds everywhere.
    is_seen = row.kind != REPEAT or is_attended(call) or settings.hook_holds_unattended
    if not is_seen:
        return ""
    call.decision = "ask" if row.kind == ASK else "deny"
    _note(call, row, mark)
    from ralph.doors.hooks.context import text_bounds
    from ralph.prompt.recalled import hold_text

    return hold_text(row.kind, str(json.loads(row.line)), text_bounds(_HOLD_TOKENS))


def _about_file(call: HookCall, path: str, rows: list[MomentRow], told: list[str]) -> str:
    """Return what is known about a file, once a session."""
    mark = f"{_ABOUT_FILE}{path}"
    if not rows or mark in told or current_run() is not None:
        return ""
    own = _conversation(call)
    rows = [row for row in rows if not row.origin or row.origin != own]
    settings = _settings(call)
    if not (rows and settings.hook_inject and settings.hook_files):
        return ""
    from ralph.doors.hooks.context import text_bounds
    from ralph.prompt.recalled import file_text

    rows = rows[:_MOST_LINES]
    text = file_text([str(json.loads(row.line)) for row in rows], text_bounds(_FILE_TOKENS))
    if text:
        call.sessions.note_recalled(call.session, [mark])
        call.note_shown([(row.id, None) for row in rows])
    return text


def _conversation(call: HookCall) -> str:
    from ralph.records.conversation import conversation_id

    return conversation_id(call.source, call.session)


def _note(call: HookCall, row: MomentRow, mark: str) -> None:
    call.sessions.note_recalled(call.session, [mark])
    from ralph.memory.stats import command_mark

    call.note_shown([(row.id, None)], after=command_mark(_command(call)) or "-")


def _settings(call: HookCall) -> Settings:
    from ralph.doors.hooks.context import settings_of

    return settings_of(call)


# -- Whether a person is at the client, who can see what was held.


def is_attended(call: HookCall) -> bool:
    """Whether a person is at the client; a client that does not say so counts as unattended."""
    if current_run() is not None:
        return False
    if call.agent == CLAUDE:
        # Older versions only say how they were started.
        stated = os.environ.get("CLAUDE_CODE_SESSION_ATTENDED")
        return stated == "1" or (not stated and os.environ.get("CLAUDE_CODE_ENTRYPOINT") == "cli")
    return call.event_input.get("attended") is True
