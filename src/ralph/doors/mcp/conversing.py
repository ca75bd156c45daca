"""The tools that ask past conversations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ralph.doors.mcp.answers import Detail, Entry, fenced, fenced_lines
from ralph.doors.mcp.tool import Arguments, reading
from ralph.prompt.conversed import about, details_lines, document_lines, harmless, hit_lines
from ralph.text.sanitise import plain_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph.doors.mcp.desk import Desk
    from ralph.recall import Hit


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
    from ralph.memories.details import standing

    memory, everywhere = desk.conversations, desk.options.everywhere
    answer = memory.search(
        given.query,
        limit=given.limit,
        min_score=desk.settings.min_score,
        everywhere=everywhere,
        budget_s=desk.settings.mcp_catch_up_s,
        documents=True,
    )
    asked = harmless(given.query, 120)
    if not answer:
        lines = [
            f'No past conversation {_place(desk)} matches "{asked}" well enough.',
            "Try other words; if that finds nothing either, go on without it.",
        ]
        return "\n".join([*lines, *(f"Note: {harmless(note)}" for note in answer.notes)])
    listed = standing(memory, everywhere=everywhere)

    def text(hit: Hit, detail: Detail) -> str:
        if hit.kind == "document":
            return "\n".join(document_lines(hit, chars=max(detail.prose, 160)))
        held = listed.get(hit.record.conversation)
        summary = memory.summary(hit.id)
        lines = hit_lines(
            hit,
            side_chars=max(detail.prose // 2, 80),
            errors=detail.errors,
            files=detail.files,
            about=about(held.conversation.title, held.tags) if held else (),
            summary=summary.text if summary else "",
        )
        return "\n".join(lines)

    return fenced(
        f'{_counted(answer)} {_place(desk)} for "{asked}", best first.',
        [Entry(hit.id, functools.partial(text, hit)) for hit in answer],
        budget_tokens=desk.settings.mcp_answer_tokens,
        notes=answer.notes,
        whole="fetch_conversation_details(exchange_id)",
    )


def _counted(hits: Sequence[Hit]) -> str:
    sections = sum(hit.kind == "document" for hit in hits)
    said = len(hits) - sections
    told = [f"{said} past exchange{'' if said == 1 else 's'}"] if said or not sections else []
    told += [f"{sections} section{'' if sections == 1 else 's'} of documents"] if sections else []
    return " and ".join(told)


def fetch_conversation_details(desk: Desk, given: Details) -> str:
    """A conversation or one exchange, in short or whole."""
    from ralph.memories.details import details

    found = details(
        desk.conversations,
        conversation=given.conversation_id,
        exchange=given.exchange_id,
        everywhere=desk.options.everywhere,
    )
    budget_tokens = desk.settings.mcp_record_tokens
    alone = given.exchange_id is not None
    lines = details_lines(
        found.conversation,
        found.exchanges,
        whole=given.include_full_transcript,
        alone=alone,
        # A question that fills the answer would leave no room for what was said to it.
        side_tokens=budget_tokens * 2 // 5,
        summaries=found.summaries,
        tags=found.tags,
    )
    return fenced_lines(
        "What was said.",
        lines,
        budget_tokens=budget_tokens,
        rest=f"`ralph conversations show {plain_id(found.conversation.id)}` prints all of it."
        if alone
        else "Ask for single exchanges by exchange_id.",
    )


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
            "is one exchange: the question, the answer, when, and how sure the match is; or a "
            "section of a document that the user added, with its file and line."
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
