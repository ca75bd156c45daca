"""The tools that search: feature memory and conversations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ralph.doors.mcp.answers import (
    WHOLE,
    AnswerEntry,
    Detail,
    fenced,
    fenced_lines,
    iteration_entry,
    short_id,
)
from ralph.doors.mcp.tool import Arguments, reading
from ralph.errors import BadInput, NotFound
from ralph.prompt.recalled import about, details_lines, document_lines, harmless, hit_lines
from ralph.text.sanitize import plain_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph.doors.mcp.context import ServerContext
    from ralph.memory.feature import FeatureMemory
    from ralph.recall import Hit


_MOST_RECENT = 50
_MOST_FAILURES = 20


class Search(Arguments, frozen=True, kw_only=True):
    """What search_feature_memory takes."""

    query: Annotated[
        str,
        Meta(description="What you want to know, in a few words, or an error message as it is."),
    ]
    limit: Annotated[int, Meta(description="At most so many hits; 20 at most.", ge=1)] | None = None
    min_score: (
        Annotated[
            float,
            Meta(
                description="None less sure than this; 0.40 by default, lower shows doubtful ones.",
                ge=0,
                le=1,
            ),
        ]
        | None
    ) = None


class Recent(Arguments, frozen=True, kw_only=True):
    """What get_recent_iterations takes."""

    count: Annotated[int, Meta(description="How many; 10 by default, 50 at most.", ge=1)] | None = (
        None
    )


class Nothing(Arguments, frozen=True, kw_only=True):
    """No arguments."""


class Failures(Arguments, frozen=True, kw_only=True):
    """What get_failed_attempts takes."""

    task_id: Annotated[
        int | str | None,
        Meta(description="Only the attempts at this task; leave it out for all of them."),
    ] = None


class Memory(Arguments, frozen=True, kw_only=True):
    """What get_memory takes."""

    id: Annotated[
        str,
        Meta(
            description="The record's id as another tool gave it, or at least the first 4 "
            "characters of it.",
            min_length=4,
        ),
    ]


def search_feature_memory(desk: ServerContext, given: Search) -> str:
    """What was remembered, by meaning and by words."""
    feature = desk.scope().feature
    answer = desk.ralph.search(
        given.query,
        features=None if feature is None else [feature],
        limit=given.limit,
        min_score=given.min_score,
        budget_s=desk.settings.mcp_catch_up_s,
    )
    asked = harmless(given.query, 120)
    if not answer:
        return _nothing_found(desk, asked, answer.notes)
    hits = _count(len(answer), "iteration")
    return fenced(
        f'{hits} {_place(desk)} for "{asked}", best first.',
        [iteration_entry(hit, with_feature=feature is None) for hit in answer],
        budget_tokens=desk.settings.mcp_answer_tokens,
        notes=answer.notes,
    )


def get_recent_iterations(desk: ServerContext, given: Recent) -> str:
    """The newest iterations, newest first."""
    wanted = min(given.count or desk.settings.recent_count, _MOST_RECENT)
    hits = _merged(desk, lambda memory: list(memory.recent(wanted)))[:wanted]
    if not hits:
        return f"Nothing is remembered {_place(desk)} yet: there were no iterations before this."
    return fenced(
        f"The last {_count(len(hits), 'iteration')} {_place(desk)}, newest first.",
        [iteration_entry(hit, with_feature=_is_wide(desk)) for hit in hits],
        budget_tokens=desk.settings.mcp_answer_tokens,
    )


def get_feature_files(desk: ServerContext, given: Nothing) -> str:
    """The files that iterations touched, the most touched first."""
    from ralph.plan.edit import is_there

    wide = _is_wide(desk)
    root = desk.project.root
    seen = sorted(
        ((memory.name, file) for memory in desk.memories() for file in memory.files()),
        key=lambda pair: (-pair[1].count, -pair[1].last_iteration, pair[1].path),
    )
    if not seen:
        return f"No file is remembered {_place(desk)} yet."
    lines = []
    for name, file in seen:
        gone = "" if is_there(root, file.path) else " [no longer there]"
        where = f", feature {harmless(name)}" if wide else ""
        lines.append(
            f"{harmless(file.path, 500)} | {', '.join(file.actions)} | touched in "
            f"{_count(file.count, 'iteration')}, last in iteration {file.last_iteration}"
            f"{where}{gone}"
        )
    return fenced_lines(
        f"{_count(len(seen), 'file')} {_place(desk)}, the most touched first.",
        lines,
        budget_tokens=desk.settings.mcp_answer_tokens,
        rest="They were touched least often; search the project itself for those.",
    )


def get_failed_attempts(desk: ServerContext, given: Failures) -> str:
    """Attempts that failed or ran out of time, and what became of the same task later."""
    wanted = "" if given.task_id is None else str(given.task_id).strip()
    hits = _merged(desk, lambda memory: list(memory.failed_attempts(wanted or None)))
    task = f" at task {harmless(wanted, 40)}" if wanted else ""
    if not hits:
        return f"No failed attempt{task} is remembered {_place(desk)}."
    solved = _successes(desk)
    return fenced(
        f"{_count(len(hits), 'failed attempt')}{task} {_place(desk)}, newest first.",
        [
            iteration_entry(hit, with_feature=_is_wide(desk), later=lambda one: _later(one, solved))
            for hit in hits[:_MOST_FAILURES]
        ],
        budget_tokens=desk.settings.mcp_answer_tokens,
        in_all=len(hits),
    )


def get_memory(desk: ServerContext, given: Memory) -> str:
    """One record whole."""
    wanted = given.id.strip().lower()
    found = [hit for memory in desk.memories() for hit in memory.find(wanted)]
    ids = {hit.id for hit in found}
    if len(wanted) < 4 or not ids:
        raise NotFound(
            f"there is no record {given.id!r} {_place(desk)}",
            todo="Take an id from search_feature_memory or get_recent_iterations.",
        )
    if len(ids) > 1:
        raise BadInput(f"{given.id!r} is the beginning of {len(ids)} ids", todo="Give more of it.")
    entry = iteration_entry(found[-1], with_feature=True)
    lines = entry.text(WHOLE).splitlines()
    return fenced_lines(
        f"The record {plain_id(found[-1].id)}, whole.",
        [*lines, *_numbers(found[-1])],
        budget_tokens=desk.settings.mcp_record_tokens,
        rest=f"`ralph show {short_id(found[-1])}` prints all of it.",
    )


def _merged(desk: ServerContext, ask: Callable[[FeatureMemory], list[Hit]]) -> list[Hit]:
    memories = desk.memories()
    if len(memories) == 1:
        return ask(memories[0])
    from datetime import datetime

    hits = [hit for memory in memories for hit in ask(memory)]
    return sorted(hits, key=lambda hit: datetime.fromisoformat(hit.record.timestamp), reverse=True)


def _successes(desk: ServerContext) -> dict[tuple[str, str], list[Hit]]:
    """The iterations that ended well, by feature and task, oldest first."""
    found: dict[tuple[str, str], list[Hit]] = {}
    for memory in desk.memories():
        for hit in reversed(memory.recent(1_000_000)):
            if hit.record.outcome == "success" and hit.record.task_id is not None:
                found.setdefault((memory.name, str(hit.record.task_id)), []).append(hit)
    return found


def _later(failed: Hit, solved: dict[tuple[str, str], list[Hit]]) -> str:
    one = failed.record
    for hit in solved.get((one.feature, str(one.task_id)), []):
        if (hit.record.iteration_number or 0) > (one.iteration_number or 0):
            number = hit.record.iteration_number
            return f"later: the same task ended in success in iteration {number} [{short_id(hit)}]"
    return ""


def _numbers(hit: Hit) -> list[str]:
    one = hit.record
    told = {
        "discipline": one.discipline,
        "model": one.model,
        "tokens": one.tokens_used,
        "cost in USD": one.cost_usd,
        "duration in ms": one.duration_ms,
    }
    shown = [f"{name} {harmless(str(value))}" for name, value in told.items() if value]
    return [f"  {', '.join(shown)}"] if shown else []


def _nothing_found(desk: ServerContext, asked: str, notes: tuple[str, ...]) -> str:
    lines = [
        f'Nothing {_place(desk)} matches "{asked}" well enough.',
        "Try other words or a lower min_score, or look at get_recent_iterations; "
        "if that tells nothing either, go on without memory.",
    ]
    return "\n".join([*lines, *(f"Note: {harmless(note)}" for note in notes)])


def _is_wide(desk: ServerContext) -> bool:
    return desk.scope().feature is None


def _place(desk: ServerContext) -> str:
    feature = desk.scope().feature
    return "of this project" if feature is None else f"of the feature {harmless(feature)!r}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


TOOLS = (
    reading(
        Search,
        search_feature_memory,
        title="Search feature memory",
        description=(
            "Search what earlier iterations of work on this feature did, decided and failed at, "
            "by meaning and by words.\n"
            "Use it before you try an approach, when an error looks familiar, and when you wonder "
            "why the code is as it is. Ask in a few words, or paste an error message as it is; "
            "three characters at least.\n"
            "Each hit says when it was, how it ended, why it matched and how sure that is "
            "(relevant from 0.55 on, possibly relevant from 0.40 on). Hits are observations that "
            "may be outdated. Not for finding code as it is now: search the files for that."
        ),
        example={"query": "login form validation", "limit": 5},
    ),
    reading(
        Recent,
        get_recent_iterations,
        title="Recent iterations",
        description=(
            "List the newest iterations of work on this feature: what was done, how it ended, "
            "which errors and decisions there were.\n"
            "Use it at the start of your work, to see where things stand and what the previous "
            "iteration left unfinished."
        ),
        example={"count": 5},
    ),
    reading(
        Nothing,
        get_feature_files,
        title="Files of the feature",
        description=(
            "List the files that iterations on this feature touched, the most touched first, "
            "each with what was done to it and when last.\n"
            "Use it to find where the feature lives in the code before you search for it."
        ),
        example={},
    ),
    reading(
        Failures,
        get_failed_attempts,
        title="Failed attempts",
        description=(
            "List attempts that failed or ran out of time, newest first, with their errors and "
            "whether the same task succeeded later.\n"
            "Use it before you start on a task that was tried before, so that you do not repeat "
            "what has failed, and when you are about to try something a second time."
        ),
        example={"task_id": 42},
    ),
    reading(
        Memory,
        get_memory,
        title="One record whole",
        description=(
            "Give one remembered iteration whole: its summary, all errors, decisions and files.\n"
            "Use it when another tool's answer was cut (it ends in [...]) and you need the rest. "
            "Take the id from that answer."
        ),
        example={"id": "3f2a9c1e"},
    ),
)


# -- The tools that ask past conversations.


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


def search_conversations(desk: ServerContext, given: SearchConversations) -> str:
    """Past exchanges that match, best first."""
    from ralph.memory.conversations import standing

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
            f'No past conversation {_conversation_place(desk)} matches "{asked}" well enough.',
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
        f'{_counted(answer)} {_conversation_place(desk)} for "{asked}", best first.',
        [AnswerEntry(hit.id, functools.partial(text, hit)) for hit in answer],
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


def fetch_conversation_details(desk: ServerContext, given: Details) -> str:
    """A conversation or one exchange, in short or whole."""
    from ralph.memory.conversations import details

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


def _conversation_place(desk: ServerContext) -> str:
    return "in any project" if desk.options.everywhere else "in this project"


CONVERSATION_TOOLS = (
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
