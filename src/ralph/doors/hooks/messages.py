"""What the user sees of the hooks: a line in the client, and the client's status line."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from ralph import disk
from ralph.doors.hooks.call import HookCall, HookTimer, find_root, is_paused, read_stdin
from ralph.memory.activity import counts, late_hooks, note_activity, read_activity
from ralph.state_folders import state_folder

if TYPE_CHECKING:
    from ralph.doors.hooks.answers import StoredBrief

STATUS_LINE_USAGE = """\
Usage: ralph statusline < JSON

One line for Claude Code's status line: whether memory is on, how many memories this session was
shown and has saved, the feature in focus, and errors that memory had met before.
`ralph hooks install --user --statusline` sets it up if you have none.
"""
_LONGEST_NAME = 40
_LIMIT_S = 2.0
_SETTINGS = ("hook_capture", "hook_inject")


# -- the line in the client


def shown_message(count: int) -> str:
    """Say how many memories the model was just shown."""
    return f"Ralph: {_memories(count)} shown" if count else ""


def indexing_message(shown: str) -> str:
    """Say that the model may lack what was saved last, after what it was shown."""
    return f"{shown or 'Ralph: nothing shown'}; new records are still being indexed"


def saved_message(call: HookCall) -> str:
    """Say how many memories this session was shown and has saved so far."""
    so_far = counts(read_activity(call.own_folder, call.session))
    if not so_far.shown:
        return f"Ralph: {_memories(so_far.saved)} saved in this session"
    return f"Ralph: {_memories(so_far.shown)} shown, {so_far.saved} saved in this session"


def start_message(call: HookCall, brief: StoredBrief) -> str:
    """Say what a session starts with, and which hooks ran out of time before it."""
    shown = shown_message(len(brief.shown)) or ("Ralph: the plan is shown" if brief.text else "")
    if not (late := late_hooks(read_activity(call.own_folder))):
        return shown
    note_activity(call.own_folder, call.event, call.session, warned=len(late))
    hooks = "1 hook" if len(late) == 1 else f"{len(late)} hooks"
    events = ", ".join(dict.fromkeys(one.event for one in late))
    what = f"{hooks} ran out of time since the last session ({events}); see `ralph doctor`"
    return f"{shown}; {what}" if shown else f"Ralph: {what}"


def _memories(count: int) -> str:
    return f"{count} {'memory' if count == 1 else 'memories'}"


# -- the status line


def print_status_line(argv: list[str]) -> int:
    """Print the status line; if anything goes wrong, print a short one and still succeed."""
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(STATUS_LINE_USAGE)
        return 0
    watch = HookTimer(_LIMIT_S, lambda _: None)
    try:
        data = b"" if sys.stdin is None or sys.stdin.isatty() else read_stdin() or b""
        given = json.loads(data) if data.strip() else {}
        line = status_line(given if isinstance(given, dict) else {}, watch)
    except Exception:  # noqa: BLE001 - a status line never breaks its client
        line = "Ralph: problem, see `ralph doctor`"
    sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "replace"))
    return 0


def status_line(given: dict[str, Any], watch: HookTimer) -> str:
    """Return the status line for a session, as Claude Code describes it."""
    home = disk.home()
    workspace = given.get("workspace")
    folders = [workspace.get("project_dir")] if isinstance(workspace, dict) else []
    root = find_root([*folders, given.get("cwd") or "."], home)
    if not root:
        return "Ralph off"
    call = HookCall("statusline", given, root, home, watch)
    state = "paused" if is_paused(call) else _state(root, home)
    if state == "off":
        return "Ralph off"
    so_far = counts(read_activity(call.own_folder, call.session))
    parts = [f"Ralph {state}", f"{so_far.shown} shown, {so_far.saved} saved", _focus(root, home)]
    repeats = f"{so_far.repeats} repeat{'' if so_far.repeats == 1 else 's'}"
    return " | ".join(filter(None, [*parts, repeats if so_far.repeats else ""]))


def _state(root: str, home: str) -> str:
    """Say whether hooks recall and save here; load the settings only if one of them may be set."""
    files = [os.path.join(home, "config.json"), os.path.join(root, ".ralph", "rag_config.json")]
    if not any(f"RALPH_{one.upper()}" in os.environ for one in _SETTINGS):
        texts = [disk.read(file) for file in files if disk.exists(file)]
        if not any(one.encode() in text for one in _SETTINGS for text in texts):
            return "on"
    from pathlib import Path

    from ralph.config import load

    settings = load(home=Path(home), project_file=Path(files[1])).settings
    saves = settings.hook_capture
    recalls = settings.hook_inject
    return {2: "on", 0: "off"}.get(saves + recalls, "saves only" if saves else "recalls only")


def _focus(root: str, home: str) -> str:
    """Return the feature and task that the user has set as focus."""
    file = os.path.join(state_folder(root, home), "focus.json")
    if not disk.exists(file):
        return ""
    focus = json.loads(disk.read(file))
    task = focus.get("task_id")
    text = str(focus["feature"]) + ("" if task is None else f" #{task}")
    return "".join(c if c.isprintable() else " " for c in text)[:_LONGEST_NAME]
