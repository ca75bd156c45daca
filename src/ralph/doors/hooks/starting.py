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
from ralph.doors.hooks import own_files
from ralph.doors.hooks.serving import on_a_server

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call
    from ralph.memories.ralph import Ralph

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
        from ralph.doors.hooks.ending import recover

        recover(call, due)
    known = _known(call)
    return _made(call) if known is None else known


def refresh(call: Call, ralph: Ralph) -> None:
    """Make the text anew after something was kept, so that the next session need not."""
    from ralph.doors.hooks.briefing import text_now

    if not on_a_server(call.home) and _known(call) is None:
        state = _state(call)
        _store(call, state, text_now(call, ralph))


def _made(call: Call) -> str:
    from ralph.doors.hooks.briefing import text_now
    from ralph.doors.hooks.opening import opened, settings_of

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
        kept = json.loads(own_files.read(os.path.join(call.own_folder, _NAME)))
        text = kept["text"]
        same = kept["state"] == _state(call)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return text if same and isinstance(text, str) else None


def _store(call: Call, state: dict[str, Any], text: str) -> None:
    data = json.dumps({"state": state, "text": text}).encode()
    try:
        own_files.replace(os.path.join(own_files.folder(call.own_folder), _NAME), data)
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
