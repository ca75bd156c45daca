"""SessionStart: what matters now, from a text that was made before wherever nothing has changed.

The text is kept with the state (number, size, times) of every file it was made from. Only when one
of them has changed is anything heavier than the standard library loaded. What is on a server shows
no change here, so with journals there the text is always made anew.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any

from ralph import __version__, disk
from ralph.doors.hooks import files
from ralph.doors.hooks.call import MOST_CHARS
from ralph.doors.hooks.context import focus_of, on_a_server, plan_view
from ralph.loop.environment import agent_environment, own_command
from ralph.loop.iteration import repeated_errors
from ralph.memory.sessions import brief
from ralph.prompt.brief import brief_text

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call
    from ralph.memory.ralph import Ralph


_NAME = "brief.json"


def answer(call: Call) -> str:
    """The text for a session that begins."""
    due = list[Any]()
    resumed = call.text("source") == "resume"
    call.sessions.begin(call.session, call.transcript, remembers=resumed)
    try:
        due = call.sessions.due(call.session)
    except OSError as error:
        call.fault(error, call.own_folder)
    if due:
        from ralph.doors.hooks.session_end import recover

        recover(call, due)
    known = _known(call)
    return _made(call) if known is None else known


def refresh(call: Call, ralph: Ralph) -> None:
    """Make the text anew after something was kept, so that the next session need not."""

    if not on_a_server(call.home) and _known(call) is None:
        state = _state(call)
        _store(call, state, text_now(call, ralph))


def _made(call: Call) -> str:
    from ralph.doors.hooks.context import opened, settings_of

    settings = settings_of(call)
    state = _state(call)
    if not settings.hook_inject:
        text = ""
    else:
        with opened(call) as ralph:
            text = text_now(call, ralph)
    if not on_a_server(call.home):
        _store(call, state, text)
    return text


def _known(call: Call) -> str | None:
    """The text as it was made, if everything it was made from is still the same."""
    if on_a_server(call.home):
        return None
    try:
        kept = json.loads(files.read(os.path.join(call.own_folder, _NAME)))
        text = kept["text"]
        same = kept["state"] == _state(call)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return text if same and isinstance(text, str) else None


def _store(call: Call, state: dict[str, Any], text: str) -> None:
    data = json.dumps({"state": state, "text": text}).encode()
    try:
        files.replace(os.path.join(files.folder(call.own_folder), _NAME), data)
    except OSError as error:
        call.fault(error, call.own_folder)


def _state(call: Call) -> dict[str, Any]:
    """Everything the text depends on, as far as it can be seen without reading it."""
    folder = os.path.join(call.root, ".ralph")
    memory = os.path.join(folder, "db", "memory")
    try:
        journals = [name for name in disk.names(memory) if name.endswith(".jsonl")]
    except OSError:
        journals = []
    files = [
        os.path.join(folder, "db", "features.yaml"),
        os.path.join(folder, "db", "tasks.yaml"),
        os.path.join(disk.state_folder(call.root, call.home), "focus.json"),
        os.path.join(call.home, "trust.json"),
        os.path.join(folder, "rag_config.json"),
        os.path.join(call.home, "config.json"),
        os.path.join(call.home, "trust.json"),
        *(os.path.join(memory, name) for name in journals),
    ]
    set_here = sorted(item for item in os.environ.items() if item[0].startswith("RALPH_"))
    return {
        "version": __version__,
        "root": call.root,
        # Only whether it is the same: one of the values may be a key.
        "environ": zlib.crc32(repr(set_here).encode(errors="replace")),
        "files": {file: _stamp(file) for file in files},
    }


def _stamp(file: str) -> list[int]:
    try:
        stat = disk.stat(file)
    except OSError:
        return []
    # The time of change too: nobody can set it, so no archive can bring a text along that passes.
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


# -- Making the text that a session begins with.


_OUTCOMES = 5


def text_now(call: Call, ralph: Ralph) -> str:
    """What matters in the project now, or nothing where nothing was planned or done yet."""
    settings = ralph.config.settings
    if not settings.hook_inject:
        return ""
    now = brief(ralph, plan_view(call), focus_of(call, ralph))
    if now is None:
        return ""
    return brief_text(
        feature=now.feature,
        chosen=now.chosen,
        current_state=now.current_state,
        tasks=now.tasks,
        outcomes=now.told[: -_OUTCOMES - 1 : -1],
        learnings=now.learnings,
        repeated=repeated_errors(now.told, settings.warnings_in_prompt),
        command=own_command(agent_environment()),
        budget_tokens=settings.hook_session_tokens,
        max_chars=MOST_CHARS,
    )
