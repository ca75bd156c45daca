"""One conversation, or one exchange of it, with all that was said of it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ralph.errors import BadInput, NotFound
from ralph.kinds.conversation import Conversation, Exchange
from ralph.memories.conversations import Conversations, Listed

_SHORTEST_ID = 4


class Details(msgspec.Struct, frozen=True):
    """A conversation, the exchanges that were asked for, its tags, and summaries by what they
    are about."""

    conversation: Conversation
    exchanges: Sequence[Exchange]
    tags: tuple[str, ...] = ()
    summaries: Mapping[str, str] = {}


def details(
    memory: Conversations,
    *,
    conversation: str | None = None,
    exchange: str | None = None,
    everywhere: bool = False,
) -> Details:
    """What is known of a conversation or of one exchange, by its id or the beginning of it."""
    if (conversation is None) == (exchange is None):
        raise BadInput(
            "give a conversation_id or an exchange_id, one of them",
            todo='For example: fetch_conversation_details {"exchange_id": "3f2a9c1e"}',
        )
    wanted = _long_enough(exchange or conversation or "")
    # Another project's conversations do not exist here, unless all were asked for.
    try:
        if exchange is not None:
            exchanges = [memory.get(wanted, everywhere=everywhere).record]
            held = memory.conversation(exchanges[0].conversation, everywhere=everywhere)
        else:
            held = memory.conversation(wanted, everywhere=everywhere)
            exchanges = memory.exchanges(held.id, everywhere=everywhere)
    except NotFound:
        raise NotFound(
            f"there is no {wanted!r} here", todo="Take an id from search_conversations."
        ) from None
    listed = standing(memory, everywhere=everywhere).get(held.id)
    summaries = {
        one: told.text for one in (x.id for x in exchanges) if (told := memory.summary(one))
    }
    if listed is not None and listed.summary:
        summaries[held.id] = listed.summary
    return Details(held, exchanges, listed.tags if listed else (), summaries)


def standing(memory: Conversations, *, everywhere: bool = False) -> dict[str, Listed]:
    """Every conversation as it stands now, by its id."""
    return {one.conversation.id: one for one in memory.list(everywhere=everywhere)}


def _long_enough(wanted: str) -> str:
    plain = wanted.strip()
    if len(plain) < _SHORTEST_ID:
        raise BadInput(f"{wanted!r} is too short for an id", todo="Give 4 characters or more.")
    return plain
