"""Whether sessions used what hooks told them: its command, file or fix in the next ten actions.

An action is a tool call of the session. What names neither a command nor a file cannot be followed
up. What was told three times and never used is not told unasked any more; a search still finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import disk
from ralph.errors import NotFound
from ralph.memory.activity import RUN, Activity, read_activity
from ralph.memory.followup import NEXT_ACTIONS, NamedActions, named_actions, was_used
from ralph.memory.stats import command_mark, conversation_of, is_under_way
from ralph.records.conversation import Exchange
from ralph.records.iteration import Iteration
from ralph.records.note import Note
from ralph.state_folders import hooks_folder

if TYPE_CHECKING:
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph

_FILE = "silent.json"
_LARGEST_BYTES = 1_000_000
# So often an item is told in vain before it is silent.
_MOST_IN_VAIN = 3
_FIXES_ONLY = ("post-tool-use-failure", "pre-tool-use")


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a hook told, and whether the session used it; None if nobody can say."""

    id: str
    event: str
    session: str
    at: str
    used: bool | None = None


class _SilentFile(msgspec.Struct):
    version: int = 1
    ids: list[str] = []


def uses(ralph: Ralph, events: Iterable[Activity]) -> list[Use]:
    """Follow up what hooks told in these events."""
    records: dict[str, Any] = {}

    def record(identity: str) -> Any:
        if identity not in records:
            records[identity] = None
            with contextlib.suppress(NotFound):
                records[identity] = ralph.get(identity, everywhere=True).record
        return records[identity]

    return _uses(ralph, events, record)


def _uses(ralph: Ralph, events: Iterable[Activity], record: Callable[[str], Any]) -> list[Use]:
    sessions: dict[str, list[Exchange]] = {}
    found: list[Use] = []
    for event in events:
        if not event.shown or event.event.startswith(RUN):
            continue
        name = conversation_of(event)
        if name not in sessions:
            sessions[name] = _exchanges(ralph, name)
        actions = _next_actions(sessions[name], event)
        for identity, _ in event.shown:
            used = None
            if actions and (named := _named(record(identity), event.event)):
                used = was_used(named, actions)
            found.append(
                Use(
                    id=identity,
                    event=event.event,
                    session=event.session,
                    at=event.at,
                    used=used,
                )
            )
    return found


def _exchanges(ralph: Ralph, conversation: str) -> list[Exchange]:
    if not ralph.conversations.exist:
        return []
    return list(ralph.conversations.stream.history.read_exchanges([conversation]))


def _next_actions(exchanges: Sequence[Exchange], event: Activity) -> list[str]:
    """Return the tool calls that followed an event; none if its exchange is not captured."""
    place = next((n for n, one in enumerate(exchanges) if is_under_way(one, event.at)), None)
    if place is None:
        # What a session starts with is told before its first prompt.
        if event.event != "session-start":
            return []
        later = (n for n, one in enumerate(exchanges) if (one.started or "") >= event.at)
        place = next(later, None)
    if place is None or (event.event == "pre-tool-use" and not event.after):
        return []
    actions = _actions(exchanges[place])
    if event.after:
        marked = [n for n, action in enumerate(actions) if command_mark(action) == event.after]
        if not marked:
            return []
        actions = actions[marked[0] + 1 :]
    for exchange in exchanges[place + 1 :]:
        if len(actions) >= NEXT_ACTIONS:
            break
        actions += _actions(exchange)
    return actions[:NEXT_ACTIONS]


def _actions(exchange: Exchange) -> list[str]:
    calls = (message for message in exchange.messages if message.role == "tool")
    # The answer follows on the next line.
    return [message.content.partition("\n")[0] for message in calls]


def _named(record: Any, event: str) -> NamedActions:
    """Return the commands and files that were told of a record."""
    if isinstance(record, Note):
        return named_actions(record.text)
    if not isinstance(record, Exchange | Iteration):
        return NamedActions()
    fixes = named_actions("\n".join(error.resolution or "" for error in record.errors))
    if event in _FIXES_ONLY:
        return fixes
    said = named_actions("\n".join(one.description for one in record.decisions))
    if event == "session-start":
        return said
    changed = [file.path for file in record.files_touched if file.action != "read"]
    return NamedActions(
        commands=(*fixes.commands, *said.commands),
        files=tuple(dict.fromkeys((*fixes.files, *said.files, *changed))),
    )


# -- What is silent.


def write_silent(ralph: Ralph, exchanges: Iterable[Exchange], notes: Iterable[Note]) -> None:
    """Store which of these records were told three times and never used."""
    records: dict[str, Any] = {exchange.id: exchange for exchange in exchanges}
    records |= {note.id: note for note in notes}
    folder = hooks_folder(ralph.project.root, ralph.project.home)
    events = read_activity(folder, whole=True)
    told: dict[str, int] = {}
    for event in events:
        for identity, _ in event.shown:
            told[identity] = told.get(identity, 0) + 1
    often = {name for name, times in told.items() if times >= _MOST_IN_VAIN and name in records}
    file = ralph.project.cache / _FILE
    ids = _in_vain(ralph, events, often, records) if often else []
    with contextlib.suppress(OSError):  # a read-only or full home has only its journals
        if not ids:
            file.unlink(missing_ok=True)
            return
        disk.make_folder(file.parent)
        disk.replace(file, msgspec.json.encode(_SilentFile(ids=ids)) + b"\n", mode=0o600)


def _in_vain(
    ralph: Ralph, events: Iterable[Activity], often: set[str], records: dict[str, Any]
) -> list[str]:
    relevant = [
        event._replace(shown=tuple(pair for pair in event.shown if pair[0] in often))
        for event in events
        # What a session starts with is told whether or not it fits the work.
        if event.event != "session-start"
    ]
    found: dict[str, list[bool]] = {}
    for use in _uses(ralph, relevant, records.get):
        if use.used is not None:
            found.setdefault(use.id, []).append(use.used)
    return [name for name, used in found.items() if len(used) >= _MOST_IN_VAIN and not any(used)]


def read_silent(project: Project) -> frozenset[str]:
    """Return the ids of what is not told unasked any more."""
    try:
        data = disk.read(project.cache / _FILE, largest=_LARGEST_BYTES)
        return frozenset(msgspec.json.decode(data, type=_SilentFile).ids)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):  # it is written again
        return frozenset()
