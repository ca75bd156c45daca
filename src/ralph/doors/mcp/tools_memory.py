"""The tools that search: feature memory and conversations."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from ralph.doors.mcp import code_answers
from ralph.doors.mcp.context import ServerContext
from ralph.errors import BadInput, NotFound
from ralph.prompt import answers
from ralph.prompt.recalled import RECORD_TOKENS, harmless
from ralph.prompt.tool import Tool
from ralph.recall import CONVERSATIONS_ALONE, SESSION, Hit, Scope, run_scope
from ralph.recall.kinds import AGENT_LABELS
from ralph.records.iteration import RECENT_COUNT
from ralph.text.sanitize import plain_id
from ralph.text.tokens import plural

_CATCH_UP_S = 10.0


Count = Annotated[int, Meta(ge=1)]
Score = Annotated[float, Meta(ge=0, le=1)]
KindName = Annotated[str, Meta(extra_json_schema={"enum": list(AGENT_LABELS)})]
RecordId = Annotated[str, Meta(min_length=4)]
_NARROW = {"limit": Count | None, "min_score": Score | None}
_CODE = {"file": str | None, "how": bool | None}
_DAYS = {"kinds": list[KindName] | None, "since": str | None, "until": str | None}


@Tool("Search feature memory", fields=_NARROW, recalls=True)
def search_feature_memory(context: ServerContext, query: str, **narrow: Any) -> str:
    """Search what earlier iterations of work on this feature did, decided and failed at, by meaning
    and by words.

    Use it before you try an approach, when an error looks familiar, and when you wonder why the
    code is as it is. Ask in a few words, or paste an error message as it is; three characters at
    least.

    Each hit says when it was, how it ended, why it matched and how sure that is (relevant or
    possibly relevant). Hits are observations that may be outdated. Not for finding code as it is
    now: search the files for that.

    Args:
        query: What you want to know, in a few words, or an error message as it is.
        limit: Maximum number of hits (up to 20).
        min_score: Hide hits that score below this; lower than usual shows doubtful ones.

    Example:
        {"query": "login form validation", "limit": 5}
    """
    scope = run_scope(context.scope().feature)
    return _found(context, query, scope, _scope_text(context), **narrow)


@Tool("Search memory", fields=_NARROW | _DAYS | _CODE, recalls=True)
def search_memory(context: ServerContext, query: str = "", **narrow: Any) -> str:
    """Search everything remembered in this project: iterations, notes, learnings, the features of
    the plan, past conversations of this user, and documents, by meaning and by words.

    Use it first, whenever something may have been done, decided, solved or said before. Ask in a
    few words, or paste an error message as it is.

    Each hit says what kind it is, when it was, why it matched and how sure that is. get_memory
    gives one of them whole.

    With file it says instead why a line or a file is as it is: the commit, the session, what was
    decided and rejected there, and what broke. With how it says which commands did what the query
    asks for, and which failed: ask before you guess how to run, test, build or deploy.

    Args:
        query: What you want to know, in a few words, or an error message as it is.
        limit: Maximum number of hits (up to 20).
        min_score: Hide hits that score below this; lower than usual shows doubtful ones.
        file: A file of the project, or one line of it, as src/cart.py:42. Needs no query.
        how: True if the query is something to do, as "run the tests".
        kinds: Only these kinds; leave it out for all.
        since: Only from this day on, as 2026-02-07, 7d or yesterday.
        until: Only up to this day.

    Example:
        {"query": "how do we deploy?", "limit": 5}
    """
    file = narrow.pop("file", None)
    how = narrow.pop("how", None)
    if file:
        return code_answers.blamed(context, file, SESSION)
    if how:
        return code_answers.commands(context, query, SESSION)
    if not query:
        raise BadInput("a search needs a query", todo='Give query, or file as "src/cart.py:42".')
    narrow["kinds"] = narrow.get("kinds") or ()
    return _found(context, query, SESSION, "in this project", **narrow)


def _found(context: ServerContext, query: str, scope: Scope, where: str, **narrow: Any) -> str:
    answer = context.memory.search(query, budget_s=_CATCH_UP_S, scope=scope, **narrow)
    asked = harmless(query, 120)
    if not answer:
        lines = [
            f'Nothing {where} matches "{asked}" well enough.',
            "Try other words or a lower min_score; if that finds nothing either, go on without it.",
        ]
        if scope.feature is None and (elsewhere := context.elsewhere()):
            lines.append(elsewhere)
        return "\n".join([*lines, *(f"Note: {harmless(note)}" for note in answer.notes)])
    wide = scope.feature is None
    return answers.fenced(
        f'{plural(len(answer), "record")} {where} for "{asked}", best first.',
        [answers.record_entry(hit, with_feature=wide) for hit in answer],
        notes=answer.notes,
    )


@Tool("Remember", repeatable=True)
def remember(context: ServerContext, text: str, private: bool = False) -> str:
    """Save a note, so that later sessions and agents find it.

    Use it for a fact worth keeping that the code does not say: a decision and why, a trap, how
    something outside of the code works, what the user wants done differently. One fact a note, in
    a sentence or two that make sense on their own. Not for what was just done: that is recorded
    by itself. Never a password or a key.

    Args:
        text: The fact, 2,000 characters at most.
        private: Keep it for this user alone, outside of the project.

    Example:
        {"text": "The staging database resets every night."}
    """
    feature = context.options.feature
    if feature and private:
        raise BadInput("an agent's notes belong to its feature", todo="Leave out private.")
    alone = private or context.find_project() is None
    note, fresh = context.memory.remember(text, feature=feature, private=alone, by="agent")
    return f"{'Saved' if fresh else 'Already saved'} as note {plain_id(note.id)[:8]}."


@Tool("Recent iterations", recalls=True)
def get_recent_iterations(context: ServerContext, count: Count | None = None) -> str:
    """List the newest iterations of work on this feature: what was done, how it ended, which errors
    and decisions there were.

    Use it at the start of your work, to see where things stand and what the previous iteration left
    unfinished.

    Args:
        count: How many; 10 by default, 50 at most.

    Example:
        {"count": 5}
    """
    from ralph.memory.feature import merged

    wanted = min(count or RECENT_COUNT, 50)
    hits = merged(context.memories(), lambda memory: memory.recent(wanted))[:wanted]
    scope = _scope_text(context)
    if not hits:
        return f"Nothing is remembered {scope} yet: there were no iterations before this."
    return answers.fenced(
        f"The last {plural(len(hits), 'iteration')} {scope}, newest first.",
        [answers.iteration_entry(hit, with_feature=_is_wide(context)) for hit in hits],
    )


@Tool("Files of the feature", recalls=True)
def get_feature_files(context: ServerContext) -> str:
    """List the files that iterations on this feature touched, the most touched first, each with
    what was done to it and when last.

    Use it to find where the feature lives in the code before you search for it.
    """
    from ralph.plan.edit import is_there

    wide = _is_wide(context)
    root = context.project.root
    files = sorted(
        ((memory.name, file) for memory in context.memories() for file in memory.files()),
        key=lambda pair: (-pair[1].count, -pair[1].last_iteration, pair[1].path),
    )
    if not files:
        return f"No file is remembered {_scope_text(context)} yet."
    lines = []
    for name, file in files:
        touched = f"{plural(file.count, 'iteration')}, last in iteration {file.last_iteration}"
        touched += f", feature {harmless(name)}" if wide else ""
        touched += "" if is_there(root, file.path) else " [no longer there]"
        actions = ", ".join(file.actions)
        lines.append(f"{harmless(file.path, 500)} | {actions} | touched in {touched}")
    return answers.fenced_lines(
        f"{plural(len(files), 'file')} {_scope_text(context)}, the most touched first.",
        lines,
        rest="They were touched least often; search the project itself for those.",
    )


@Tool("Failed attempts", recalls=True)
def get_failed_attempts(context: ServerContext, task_id: int | str | None = None) -> str:
    """List attempts that failed or ran out of time, newest first, with their errors and whether the
    same task succeeded later.

    Use it before you start on a task that was tried before, so that you do not repeat what has
    failed, and when you are about to try something a second time.

    Args:
        task_id: Only the attempts at this task; leave it out for all of them.

    Example:
        {"task_id": 42}
    """
    from ralph.memory.feature import merged

    wanted = "" if task_id is None else str(task_id).strip()
    hits = merged(context.memories(), lambda memory: memory.failed_attempts(wanted or None))
    task = f" at task {harmless(wanted, 40)}" if wanted else ""
    if not hits:
        where = _scope_text(context).removeprefix("of ")
        return f"{where[0].upper()}{where[1:]} has no failed attempts{task}."
    recent = [hit for memory in context.memories() for hit in memory.recent(1_000_000)]
    successes = [hit for hit in reversed(recent) if hit.record.outcome == "success"]
    later = functools.partial(_later_success, successes)
    return answers.fenced(
        f"{plural(len(hits), 'failed attempt')}{task} {_scope_text(context)}, newest first.",
        [
            answers.iteration_entry(hit, with_feature=_is_wide(context), later=later)
            for hit in hits[:20]
        ],
        in_all=len(hits),
    )


@Tool("One record whole", recalls=True)
def get_memory(context: ServerContext, id: RecordId) -> str:
    """Give one record whole, whatever its kind: an iteration with all errors, decisions and files,
    a note, a learning, an exchange of a conversation with its steps.

    Use it when another tool's answer was cut (it ends in [...]) and you need the rest. Take the id
    from that answer.

    Args:
        id: The record's id as another tool gave it, or at least the first 4 characters of it.

    Example:
        {"id": "3f2a9c1e"}
    """
    wanted = id.strip().lower()
    everywhere = context.options.everywhere
    try:
        hit = context.memory.get(wanted, everywhere=everywhere, scope=_get_scope(context))
    except NotFound as error:
        what = error.what.replace(repr(wanted), repr(plain_id(wanted)))
        raise NotFound(f"{what} {_scope_text(context)}", todo="Take an id from a search.") from None
    if hit.kind in ("exchange", "conversation"):
        options = {f"{hit.kind}_id": hit.id, "include_full_transcript": True}
        return _conversations(context, "conversation_details", **options)
    return answers.fenced_lines(
        f"The record {plain_id(hit.id)}, whole.",
        [*answers.record_entry(hit).text(answers.WHOLE).splitlines(), *_numbers(hit)],
        budget_tokens=RECORD_TOKENS,
        rest=f"`ralph show {answers.short_id(hit)}` prints all of it.",
    )


def _get_scope(context: ServerContext) -> Scope:
    if context.options.mode == "feature":
        return run_scope(context.options.feature)
    return SESSION if context.options.mode == "focus" else CONVERSATIONS_ALONE


def _later_success(successes: Sequence[Hit], failed: Hit) -> str:
    """Say when a failed attempt's task was done later, or ""; `successes` has the oldest first."""
    iteration = failed.record
    task = iteration.feature, str(iteration.task_id)
    for hit in successes if iteration.task_id is not None else ():
        later = (hit.record.iteration_number or 0) > (iteration.iteration_number or 0)
        if later and (hit.record.feature, str(hit.record.task_id)) == task:
            when = f"iteration {hit.record.iteration_number} [{answers.short_id(hit)}]"
            return f"later: the same task ended in success in {when}"
    return ""


def _numbers(hit: Hit) -> list[str]:
    iteration = hit.record
    if hit.kind != "iteration":
        return []
    facts = {
        "discipline": iteration.discipline,
        "model": iteration.model,
        "tokens": iteration.tokens_used,
        "cost in USD": iteration.cost_usd,
        "duration in ms": iteration.duration_ms,
    }
    shown = [f"{name} {harmless(str(value))}" for name, value in facts.items() if value]
    return [f"  {', '.join(shown)}"] if shown else []


def _is_wide(context: ServerContext) -> bool:
    return context.scope().feature is None


def _scope_text(context: ServerContext) -> str:
    feature = context.scope().feature
    return "of this project" if feature is None else f"of the feature {harmless(feature)!r}"


FEATURE_TOOLS = (
    search_feature_memory,
    get_recent_iterations,
    get_feature_files,
    get_failed_attempts,
    get_memory,
    remember,
)
FOLDER_TOOLS = (search_memory, get_memory, remember)


# -- conversations


@Tool("Search past conversations", recalls=True)
def search_conversations(context: ServerContext, query: str, limit: Count | None = None) -> str:
    """Search what this user and coding assistants said in earlier sessions, by meaning and by
    words.

    Use it when the user refers to something discussed before (as we did, that bug, the usual way),
    and when a problem may have been solved in an earlier session. Each hit is one exchange: the
    question, the answer, when, and how sure the match is; or a section of a document that the user
    added, with its file and line.

    Args:
        query: What was talked about, in a few words or as a question.
        limit: Maximum number of hits (up to 20).

    Example:
        {"query": "how did we fix the timeout?", "limit": 5}
    """
    return _conversations(
        context,
        "search_conversations",
        query=query,
        limit=limit,
        documents=True,
        budget_s=_CATCH_UP_S,
    )


@Tool("Read a past conversation", recalls=True)
def fetch_conversation_details(
    context: ServerContext,
    conversation_id: str | None = None,
    exchange_id: str | None = None,
    include_full_transcript: bool = False,
) -> str:
    """Read a past conversation or one exchange of it: in short, or with include_full_transcript
    everything that was said and done.

    Use it after search_conversations, when a hit is about your problem and its excerpt does not say
    enough.

    Args:
        conversation_id: A conversation, by its id or at least 4 characters of it.
        exchange_id: One exchange, by its id or at least 4 characters of it.
        include_full_transcript: Everything that was said, and what tools did in between; else in
            short.

    Example:
        {"exchange_id": "3f2a9c1e", "include_full_transcript": true}
    """
    return _conversations(
        context,
        "conversation_details",
        conversation_id=conversation_id,
        exchange_id=exchange_id,
        include_full_transcript=include_full_transcript,
    )


def _conversations(context: ServerContext, tool: str, **options: Any) -> str:
    """Return the answer of the chat's own tool."""
    from ralph.chat import loop

    everywhere = context.options.everywhere
    memory = context.memory.conversations
    found: loop.ToolResult = getattr(loop, tool).call(memory, everywhere=everywhere, **options)
    return found.text


CONVERSATION_TOOLS = (search_conversations, fetch_conversation_details)
