"""How what happened once in a person's session is named, as an exchange and as an iteration."""

from __future__ import annotations

from ralph.kinds.conversation import Exchange, conversation_id, exchange_id
from ralph.kinds.iteration import Iteration
from ralph.recall import Hit

CLAUDE_CODE = "claude-code"


def run_name(session: str, key: str) -> str:
    """The run that one exchange of a session was."""
    return f"{session}#{key}"


def held_in(record: Iteration | Exchange, session: str) -> bool:
    """Whether this person's session is where it happened."""
    if isinstance(record, Exchange):
        return record.conversation == conversation_id(CLAUDE_CODE, session)
    return (record.session_id or "").rpartition("#")[0] == session != ""


def event_of(hit: Hit) -> str:
    """The id of what happened: the exchange's, also for the iteration that it was."""
    session, apart, key = (getattr(hit.record, "session_id", None) or "").rpartition("#")
    return exchange_id(conversation_id(CLAUDE_CODE, session), key) if apart else hit.id
