"""How what happened once in a person's session is named, as an exchange and as an iteration."""

from __future__ import annotations

from ralph.kinds.conversation import conversation_id, exchange_id
from ralph.kinds.iteration import Iteration

CLAUDE_CODE = "claude-code"


def run_name(session: str, key: str) -> str:
    """The run that one exchange of a session was."""
    return f"{session}#{key}"


def session_of(iteration: Iteration) -> str | None:
    """The person's session an iteration was done in; None for a loop's."""
    session, apart, _ = (iteration.session_id or "").rpartition("#")
    return session if apart else None


def exchange_of(iteration: Iteration) -> str | None:
    """The id of the exchange that an iteration of a person's session was."""
    session, apart, key = (iteration.session_id or "").rpartition("#")
    return exchange_id(conversation_id(CLAUDE_CODE, session), key) if apart else None
