"""SessionStart and UserPromptSubmit: the answers that need nothing heavy.

The text for the start of a session is stored with the state (inode, size, times) of every file it
was made from. Only if one of them has changed do we load more than the standard library. Changes on
a server are not visible here, so with journals on a server the text is always made again. A prompt
like "ok, go on" does not search memory.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph import __version__, disk
from ralph.doors.hooks.sessions import replace
from ralph.state_folders import state_folder

if TYPE_CHECKING:
    from ralph.doors.hooks.call import HookCall
    from ralph.memory.ralph import Ralph


_NAME = "brief.json"
_SETTING = "journal_url"
_TALKS = ("journal", "conversations")
# What the person chose for this project on this machine.
_OWN_STATE = ("focus.json", "inbox.json")


# The sources of a session whose model has what was said in it before.
_CONTINUED = ("resume", "fork")
_COMPACTED = "compact"


class StoredBrief(NamedTuple):
    """The text for the start of a session, the ids it shows, and whether to tell the user.

    `origins` are the conversations it is made from.
    """

    text: str
    shown: list[str]
    messages: bool
    origins: list[str]


def answer_start(call: HookCall) -> str:
    """Return the text for the start of a session."""
    due = list[Any]()
    try:
        due = call.sessions.due(call.session)
    except OSError as error:
        call.fault(error, call.own_folder)
    if due:
        from ralph.doors.hooks.session_end import recover

        recover(call, due)
    if call.text("source") == _COMPACTED:
        from ralph.doors.hooks.compaction import text_after_compaction

        return text_after_compaction(call)
    brief = _stored_brief(call) or _make_brief(call)
    if brief.text and call.text("source") in _CONTINUED:
        brief = _without_own(call, brief)
    if brief.shown:
        call.note_shown([(one, None) for one in brief.shown])
    if brief.messages:
        from ralph.doors.hooks.messages import start_message

        call.message = start_message(call, brief)
    return brief.text


def _without_own(call: HookCall, brief: StoredBrief) -> StoredBrief:
    """Return the text without what was said in this session, which the model has."""
    from ralph.records.conversation import conversation_id

    own = conversation_id(call.source, call.session)
    if own not in brief.origins:
        return brief
    from ralph.doors.hooks.context import open_memory, text_now

    with open_memory(call) as ralph:
        return text_now(call, ralph, without=frozenset({own}))


def refresh(call: HookCall, ralph: Ralph) -> None:
    """Make the text and the table of moments again after something was saved."""
    from ralph.doors.hooks.context import text_now
    from ralph.memory.moments import write_moments

    if _on_a_server(call):
        write_moments(ralph)
    elif _stored_brief(call) is None:
        state = _state(call, ralph.project.ids)
        # First: it says what was replaced, and the text leaves that out.
        write_moments(ralph)
        _store(call, state, text_now(call, ralph))


def _make_brief(call: HookCall) -> StoredBrief:
    from ralph.doors.hooks.context import open_memory, settings_of, text_now

    settings = settings_of(call)
    state = _state(call, [])
    brief = StoredBrief("", [], settings.hook_messages, [])
    if settings.hook_inject:
        with open_memory(call) as ralph:
            state = _state(call, ralph.project.ids)
            brief = text_now(call, ralph)
    if not _on_a_server(call):
        _store(call, state, brief)
    return brief


def _stored_brief(call: HookCall) -> StoredBrief | None:
    """Return the stored text, if everything it was made from is unchanged."""
    if _on_a_server(call):
        return None
    try:
        kept = json.loads(disk.read(os.path.join(call.own_folder, _NAME)))
        brief = StoredBrief(
            str(kept["text"]),
            list(kept["shown"]),
            bool(kept["messages"]),
            list(kept["origins"]),
        )
        same = kept["state"] == _state(call, kept["state"]["ids"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return brief if same else None


def _store(call: HookCall, state: dict[str, Any], brief: StoredBrief) -> None:
    data = json.dumps({"state": state, **brief._asdict()}).encode()
    try:
        disk.make_folder(call.own_folder)
        replace(os.path.join(call.own_folder, _NAME), data)
    except OSError as error:
        call.fault(error, call.own_folder)


def _state(call: HookCall, ids: list[str]) -> dict[str, Any]:
    """Return the state of everything the text depends on, without reading the files.

    `ids` are the project's ids, under which its conversations are saved.
    """
    folder = os.path.join(call.root, ".ralph")
    memory = os.path.join(folder, "db", "memory")
    own = ("db/features.yaml", "db/tasks.yaml", "rag_config.json")
    paths = [
        *(os.path.join(folder, *name.split("/")) for name in own),
        *(os.path.join(state_folder(call.root, call.home), name) for name in _OWN_STATE),
        *(os.path.join(call.home, name) for name in ("config.json", "trust.json")),
        *(os.path.join(memory, name) for name in _journals(memory)),
        *(os.path.join(call.home, *_TALKS, f"{one}.jsonl") for one in ids),
    ]
    set_here = sorted(item for item in os.environ.items() if item[0].startswith("RALPH_"))
    return {
        "version": __version__,
        "root": call.root,
        "ids": ids,
        # A checksum is enough to compare, and one of the values may be a key.
        "environ": zlib.crc32(repr(set_here).encode(errors="replace")),
        "files": {file: _stamp(file) for file in paths},
    }


def _stamp(file: str) -> list[int]:
    try:
        stat = disk.stat(file)
    except OSError:
        return []
    # ctime too: nobody can set it, so an unpacked archive cannot plant a text that looks current.
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


# -- Prompts.

_SHORTEST_WORD = 3


def answer_prompt(call: HookCall) -> str:
    """Return the few memories that are relevant to the prompt, as text."""
    prompt = call.text("prompt")
    if not says_something(prompt) or not _remembers(call):
        return ""
    from ralph.doors.hooks.context import recall_for_prompt

    return recall_for_prompt(call, prompt)


def says_something(prompt: str) -> bool:
    """Whether the prompt has a word worth searching for; a slash command has none."""
    first = prompt.split(maxsplit=1)[:1]
    if not first or (first[0][0] == "/" and "/" not in first[0][1:]):
        return False
    plain = "".join(c if c.isalnum() else " " for c in prompt[:4000].replace("'", "").lower())
    # Words like "continue" that say nothing about the task.
    words = disk.read(os.path.join(os.path.dirname(__file__), "empty_words.txt"))
    empty = frozenset(words.decode().split())
    return any(
        word not in empty and (len(word) >= _SHORTEST_WORD or not word.isascii())
        for word in plain.split()
    )


def _remembers(call: HookCall) -> bool:
    """Whether there is any journal to search."""
    if _on_a_server(call):
        return True
    folders = (
        os.path.join(call.root, ".ralph", "db", "memory"),
        os.path.join(call.home, *_TALKS),
    )
    return any(map(_journals, folders))


def _journals(folder: str) -> list[str]:
    try:
        return [name for name in disk.names(folder) if name.endswith(".jsonl")]
    except OSError:
        return []


def _on_a_server(call: HookCall) -> bool:
    """Whether a server is set; the code that opens the journals reads its address itself."""
    if call.remote:
        return True
    variable = os.environ.get(f"RALPH_{_SETTING.upper()}")
    if variable is not None:
        return bool(variable)
    try:
        return _SETTING.encode() in disk.read(os.path.join(call.home, "config.json"))
    except OSError:
        return False
