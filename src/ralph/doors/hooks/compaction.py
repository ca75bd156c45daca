"""SessionStart after a compaction: bring back what the summary of the session may lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.capture.lines import content_text
from ralph.doors.hooks.context import focus_of, open_memory, plan_view, settings_of, text_bounds
from ralph.doors.hooks.session_end import TranscriptReader
from ralph.memory.brief import brief
from ralph.memory.compaction import session_so_far
from ralph.memory.sessions import exchange_of
from ralph.prompt.build import compacted_text
from ralph.records.conversation import Exchange, conversation_id

if TYPE_CHECKING:
    from ralph.doors.hooks.call import HookCall
    from ralph.memory.ralph import Ralph

_TOKENS = 300
# The summary is among the last lines of the transcript, if it is written.
_TAIL_BYTES = 200_000
_TAIL_LINES = 6
_FOR_READING = 0.5


def text_after_compaction(call: HookCall) -> str:
    """Return what the model should know again, or ""."""
    settings = settings_of(call)
    if not (settings.hook_inject and settings.hook_compaction):
        return ""
    with open_memory(call) as ralph:
        own = conversation_id(call.source, call.session)
        exchanges = [*_saved(ralph, own), *_not_saved(call, own)]
        so_far = session_so_far(exchanges, summary=_summary(call))
        now = brief(ralph, plan_view(call), focus_of(call, ralph), without=frozenset({own}))
    text, ids = compacted_text(so_far, now, text_bounds(_TOKENS))
    if ids:
        call.note_shown([(identity, None) for identity in ids])
    return text


def _saved(ralph: Ralph, conversation: str) -> list[Exchange]:
    if ralph.remote or not ralph.conversations.exist:
        return []
    return list(ralph.conversations.stream.history.read_exchanges([conversation]))


def _not_saved(call: HookCall, conversation: str) -> list[Exchange]:
    """Return what the transcript has beyond memory: a long turn is compacted in its middle."""
    session = call.sessions.read(call.session)
    if not call.transcript or not Path(call.transcript).exists():
        return []
    reader = TranscriptReader(
        Path(call.transcript), agent=call.agent, root=call.root, offset=session.offset
    )
    stop_at_s = call.watch.left_s() * (1 - _FOR_READING)
    found = reader.read_finished(lambda: call.watch.left_s() > stop_at_s)
    current = reader.open_exchange()
    if current is not None:
        found.append(current)
    return [exchange_of(conversation, one) for one in found]


def _summary(call: HookCall) -> str:
    """Return the client's summary if it is already in the transcript."""
    try:
        with Path(call.transcript).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().splitlines()[-_TAIL_LINES:]
    except OSError:
        return ""
    for line in reversed(lines):
        if b'"isCompactSummary"' not in line:
            continue
        try:
            content = json.loads(line)["message"]["content"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""
        return content_text(content)
    return ""
