"""The tools that ask past conversations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ralph.doors.mcp.answers import (
    WHOLE,
    Detail,
    Entry,
    beginning,
    error_line,
    fenced,
    fenced_lines,
    harmless,
    sureness,
)
from ralph.doors.mcp.tool import Arguments, reading
from ralph.errors import BadInput, NotFound

if TYPE_CHECKING:
    from ralph.doors.mcp.desk import Desk
    from ralph.kinds.conversation import Conversation, Exchange
    from ralph.recall import Hit

_SIDE_CHARS = 200
_STEP_CHARS = 2000


class SearchConversations(Arguments, frozen=True, kw_only=True):
    """What search_conversations takes."""

    query: Annotated[
        str, Meta(description="What was talked about, in a few words or as a question.")
    ]
    limit: Annotated[int, Meta(description="At most so many hits; 20 at most.", ge=1)] | None = None


class Details(Arguments, frozen=True, kw_only=True):
    """What fetch_conversation_details takes."""

    conversation_id: Annotated[
        str | None,
        Meta(description="A conversation, by its id or at least 4 characters of it."),
    ] = None
    exchange_id: Annotated[
        str | None,
        Meta(description="One exchange, by its id or at least 4 characters of it."),
    ] = None
    include_full_transcript: Annotated[
        bool,
        Meta(description="Everything that was said, and what tools did in between; else in short."),
    ] = False


def search_conversations(desk: Desk, given: SearchConversations) -> str:
    """Past exchanges that match, best first."""
    answer = desk.conversations.search(
        given.query,
        limit=given.limit,
        min_score=desk.settings.min_score,
        everywhere=desk.options.everywhere,
        budget_s=desk.settings.mcp_catch_up_s,
    )
    asked = harmless(given.query, 120)
    if not answer:
        lines = [
            f'No past conversation {_place(desk)} matches "{asked}" well enough.',
            "Try other words; if that finds nothing either, go on without it.",
        ]
        return "\n".join([*lines, *(f"Note: {harmless(note)}" for note in answer.notes)])
    return fenced(
        f"{len(answer)} past exchange{'' if len(answer) == 1 else 's'} {_place(desk)} for "
        f'"{asked}", best first.',
        [Entry(hit.id, functools.partial(_hit_text, hit)) for hit in answer],
        budget_tokens=desk.settings.mcp_answer_tokens,
        notes=answer.notes,
        whole="fetch_conversation_details(exchange_id)",
    )


def fetch_conversation_details(desk: Desk, given: Details) -> str:
    """A conversation or one exchange, in short or whole."""
    if (given.conversation_id is None) == (given.exchange_id is None):
        raise BadInput(
            "give a conversation_id or an exchange_id, one of them",
            todo='For example: fetch_conversation_details {"exchange_id": "3f2a9c1e"}',
        )
    conversation, exchanges = _wanted(desk, given)
    whole = given.include_full_transcript
    budget_tokens = desk.settings.mcp_record_tokens
    # A question that fills the answer would leave no room for what was said to it.
    side_tokens = budget_tokens * 2 // 5
    title = harmless(conversation.title) or "(no title)"
    held = f"{len(exchanges)} exchange{'' if len(exchanges) == 1 else 's'}"
    lines = [
        f"conversation {conversation.id} | {title} | {(conversation.created or '')[:10]} | "
        f"{harmless(conversation.source)} | {held}"
    ]
    for one in exchanges:
        all_of_it = whole or given.exchange_id is not None
        lines += ["", *_exchange_lines(one, whole=all_of_it, side_tokens=side_tokens)]
        if whole:
            lines += _steps(one)
    return fenced_lines(
        "What was said.",
        lines,
        budget_tokens=budget_tokens,
        rest="Ask for single exchanges by exchange_id."
        if given.exchange_id is None
        else f"`ralph conversations show {conversation.id}` prints all of it.",
    )


def _wanted(desk: Desk, given: Details) -> tuple[Conversation, list[Exchange]]:
    memory = desk.conversations
    wanted = _long_enough(given.exchange_id or given.conversation_id or "")
    # Another project's conversations do not exist here, unless the server was started for all.
    everywhere = desk.options.everywhere
    try:
        if given.exchange_id is not None:
            one: Exchange = memory.get(wanted, everywhere=everywhere).record
            return memory.conversation(one.conversation, everywhere=everywhere), [one]
        conversation = memory.conversation(wanted, everywhere=everywhere)
        return conversation, memory.exchanges(conversation.id, everywhere=everywhere)
    except NotFound:
        raise NotFound(
            f"there is no {wanted!r} here", todo="Take an id from search_conversations."
        ) from None


def _long_enough(wanted: str) -> str:
    plain = wanted.strip()
    if len(plain) < 4:
        raise BadInput(f"{wanted!r} is too short for an id", todo="Give 4 characters or more.")
    return plain


def _hit_text(hit: Hit, detail: Detail) -> str:
    one: Exchange = hit.record
    parts = [f"[{hit.id}] {hit.when}", f"conversation {one.conversation}", sureness(hit)]
    if one.status != "complete":
        parts.append(one.status)
    side = max(detail.prose // 2, 80)
    lines = [" | ".join(part for part in parts if part)]
    if hit.why:
        lines.append(f"  why it matched: {harmless(hit.why, 160)}")
    lines.append(f"  asked: {harmless(one.user, side)}")
    lines.append(f"  answered: {harmless(one.assistant, side)}")
    for error in one.errors[: detail.errors]:
        lines.append(f"  {error_line(error, side)}")
        if error.resolution:
            lines.append(f"    solved by: {harmless(error.resolution, side)}")
    if one.files_touched and detail.files:
        names = ", ".join(harmless(file.path) for file in one.files_touched[: detail.files])
        lines.append(f"  files: {names}")
    return "\n".join(lines)


def _exchange_lines(one: Exchange, *, whole: bool, side_tokens: int) -> list[str]:
    chars = WHOLE.prose if whole else _SIDE_CHARS
    asked, answered = (harmless(side, chars) for side in (one.user, one.assistant))
    status = "" if one.status == "complete" else f" | {one.status}"
    lines = [
        f"exchange {one.id} | {(one.completed or '')[:16].replace('T', ' ')}{status}",
        f"  asked: {beginning(asked, side_tokens)}",
        f"  answered: {beginning(answered, side_tokens)}",
    ]
    for error in one.errors if whole else one.errors[:2]:
        lines.append(f"  {error_line(error, chars)}")
        if error.resolution:
            lines.append(f"    solved by: {harmless(error.resolution, chars)}")
    if one.files_touched and whole:
        told = ", ".join(f"{harmless(file.path)} ({file.action})" for file in one.files_touched)
        lines.append(f"  files: {told}")
    return lines


def _steps(one: Exchange) -> list[str]:
    lines = []
    for step in one.messages:
        who = f"tool {harmless(step.tool)}" if step.role == "tool" else step.role
        failed = ", failed" if step.failed else ""
        lines.append(f"  - {who}{failed}: {harmless(step.content, _STEP_CHARS)}")
    return lines


def _place(desk: Desk) -> str:
    return "in any project" if desk.options.everywhere else "in this project"


TOOLS = (
    reading(
        SearchConversations,
        search_conversations,
        title="Search past conversations",
        description=(
            "Search what this user and coding assistants said in earlier sessions, by meaning and "
            "by words.\n"
            "Use it when the user refers to something discussed before (as we did, that bug, the "
            "usual way), and when a problem may have been solved in an earlier session. Each hit "
            "is one exchange: the question, the answer, when, and how sure the match is."
        ),
        example={"query": "how did we fix the timeout?", "limit": 5},
    ),
    reading(
        Details,
        fetch_conversation_details,
        title="Read a past conversation",
        description=(
            "Read a past conversation or one exchange of it: in short, or with "
            "include_full_transcript everything that was said and done.\n"
            "Use it after search_conversations, when a hit is about your problem and its excerpt "
            "does not say enough."
        ),
        example={"exchange_id": "3f2a9c1e", "include_full_transcript": True},
    ),
)
