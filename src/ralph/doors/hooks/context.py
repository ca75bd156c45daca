"""Open memory for a hook, with waits that fit its time limit, and make the texts it adds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.clients import agent_environment, own_command
from ralph.config import PROJECT_FILE, Settings, load, warnings_to, within
from ralph.current_run import current_run
from ralph.doors.hooks.answers import StoredBrief
from ralph.doors.hooks.call import MOST_CHARS, limit_s
from ralph.doors.hooks.long_sessions import start_indexing
from ralph.doors.hooks.messages import indexing_message, shown_message
from ralph.errors import BadInput
from ralph.memory.general_fixes import fix_elsewhere
from ralph.memory.project import Focus, project_or_folder, read_focus
from ralph.memory.ralph import open_ralph
from ralph.memory.servers import ADDRESS
from ralph.memory.store import INCOMPLETE, Answer
from ralph.plan.model import PlanView
from ralph.prompt.build import TextBounds, brief_ids, brief_text
from ralph.prompt.recalled import before_text, elsewhere_text, later_text, recalled_text
from ralph.recall import SESSION, Hit, held_in, session_in
from ralph.recall.score import FLOOR
from ralph.recall.telling import answered, asks_memory, told_at_prompt
from ralph.records.conversation import Exchange, conversation_id
from ralph.records.iteration import Iteration
from ralph.state_folders import state_folder

if TYPE_CHECKING:
    from ralph.current_run import CurrentRun
    from ralph.doors.hooks.call import HookCall
    from ralph.memory.lessons import Solved
    from ralph.memory.ralph import Ralph
    from ralph.records.iteration import ErrorSeen


_ID_CHARS = 12  # how much of an id the text shows
_DEPTH = 20
_PROMPT_TOKENS = 400
_FAILURE_TOKENS = 300
_SESSION_TOKENS = 500
# The share of the hook's remaining time that each wait may take.
_FOR_SERVER = 0.5
_SHARES = {"journal_lock_timeout_s": 0.3, "index_lock_timeout_s": 0.1, "remember_budget_s": 0.3}


def settings_of(call: HookCall) -> Settings:
    """Load the project's settings, and set the hook's time limit by them."""
    file = Path(call.root) / ".ralph" / PROJECT_FILE
    with warnings_to(call.note):
        settings = load(home=Path(call.home), project_file=file).settings
    call.watch.limit_s = settings.hook_timeout_s or limit_s(call.event)
    return settings


@contextlib.contextmanager
def open_memory(call: HookCall) -> Iterator[Ralph]:
    """Open the project's memory; its warnings go to the log."""
    left_s = call.watch.left_s()
    project = project_or_folder(Path(call.root), home=Path(call.home))
    # A run gets its server from the environment; a user's sessions use the one set for the folder.
    in_run = current_run() is not None
    if call.remote or (in_run and os.environ.get(ADDRESS)):
        from ralph.memory.remote import open_server

        how: dict[str, Any] = {"captures": True, "within_s": left_s * _FOR_SERVER}
        there = open_server(project, environment=in_run, **how)
        if there is not None:
            with warnings_to(call.note), there as ralph:
                yield ralph
            return
    waits: dict[str, Any] = {key: within(key, left_s * one) for key, one in _SHARES.items()}
    with warnings_to(call.note), open_ralph(project=project, home=call.home, **waits) as ralph:
        yield ralph


def focus_of(call: HookCall, ralph: Ralph) -> Focus | None:
    """Return the focus that the user has set; log a file that cannot be read."""
    try:
        return read_focus(ralph.project)
    except (BadInput, OSError) as error:
        call.fault(error)
        return None


# -- The plan, if it can be read.


def plan_view(call: HookCall) -> PlanView:
    """Return the features and tasks; if they cannot be read, log it and return none."""
    from ralph.plan.store import Plan

    try:
        state = Path(state_folder(call.root, call.home))
        return Plan(Path(call.root), state=state).read("features", "tasks")
    except (BadInput, OSError) as error:
        call.fault(error)
        return PlanView()


# -- The text for the start of a session.


def text_now(call: HookCall, ralph: Ralph, *, without: frozenset[str] = frozenset()) -> StoredBrief:
    """Return what matters in the project now; empty if nothing was planned, said or done yet.

    `without` are conversations to leave out.
    """
    settings = ralph.config.settings
    if not settings.hook_inject:
        return StoredBrief("", [], settings.hook_messages, [])
    now = ralph.brief(plan_view(call), focus_of(call, ralph), without=without)
    text = brief_text(now, text_bounds(_SESSION_TOKENS))
    return StoredBrief(text, brief_ids(now, text), settings.hook_messages, now.origins)


def text_bounds(budget_tokens: int) -> TextBounds:
    """Return the room for a text of this many tokens."""
    return TextBounds(own_command(agent_environment()), budget_tokens, MOST_CHARS)


# -- Searching memory for a prompt.


# A long prompt usually says what it wants at its beginning or its end.
_QUESTION_CHARS = 200
# What is not indexed by then is indexed in the background.
_FOR_INDEX = 0.1
# In a longer journal it takes too much time to look up how a failure was solved.
_SHORT_JOURNAL_BYTES = 1_000_000


def recall_for_prompt(call: HookCall, prompt: str) -> str:
    """Return the few memories that are relevant to the prompt, as text; "" if there are none."""
    settings = settings_of(call)
    if not settings.hook_inject:
        return ""
    told = frozenset(call.sessions.read(call.session).recalled_ids)
    with open_memory(call) as ralph:
        answer = _best_answer(call, ralph, prompt)
        is_incomplete = INCOMPLETE in answer.notes
        if is_incomplete:
            start_indexing(call)
        # Show each record only once in a session.
        silent = ralph.silent_ids
        hits = [
            hit
            for hit in answer
            if hit.id not in told and hit.id not in silent and not hit.is_replaced
        ]
        common = frozenset() if asks_memory(prompt) else ralph.common_words
        chosen = told_at_prompt(hits, prompt, shown=_shown_of(prompt), common=common)
        focus = focus_of(call, ralph)
        if focus is not None:
            chosen.sort(key=lambda hit: getattr(hit.record, "feature", None) != focus.feature)
        later = {hit.id: how for hit in chosen if (how := _later(ralph, hit))}
    question = " ".join(questions_of(prompt))
    if text := recalled_text(chosen, question, text_bounds(_PROMPT_TOKENS), later=later):
        call.sessions.note_recalled(call.session, [hit.id for hit in chosen])
        # Some records may not have fit.
        shown = [(hit.id, hit.score) for hit in chosen if hit.id[:_ID_CHARS] in text]
        call.note_shown(shown)
        call.message = shown_message(len(shown)) if settings.hook_messages else ""
    if is_incomplete and settings.hook_messages:
        call.message = indexing_message(call.message)
    return text


def _shown_of(prompt: str) -> Callable[[Hit], str]:
    def shown(hit: Hit) -> str:
        whole = recalled_text([hit], prompt, text_bounds(_PROMPT_TOKENS), later={})
        # Without the words around it, which are the same for all.
        return whole.partition(">")[2].rpartition("<")[0]

    return shown


def questions_of(prompt: str) -> list[str]:
    """Return what to search for: a plan's title, or else the prompt's beginning and its end."""
    from ralph.capture.decisions import title_from  # not needed for a prompt without a search
    from ralph.text.sentences import sentences

    if title := title_from(prompt, plans_only=True):
        return [title]
    if len(prompt) <= _QUESTION_CHARS:
        return [prompt]
    said = [one for line in prompt.splitlines() for one in sentences(line) if one.strip()]
    both = " ".join(said[:2])
    first = both if len(both) <= _QUESTION_CHARS else said[0]
    return list(dict.fromkeys([first[:_QUESTION_CHARS], said[-1][-_QUESTION_CHARS:]]))


def _best_answer(call: HookCall, ralph: Ralph, prompt: str) -> Answer:
    """Return the hits from outside this session, for the question that is answered best."""
    own = conversation_id(call.source, call.session)
    session = session_in(call.source, call.session)
    best = Answer()
    for text in questions_of(prompt):
        hits = ralph.search(
            text,
            limit=_DEPTH,
            min_score=FLOOR,
            exclude=own,
            budget_s=call.watch.left_s() * _FOR_INDEX,
            scope=SESSION,
        )
        others = Answer([hit for hit in hits if not held_in(hit.record, session)], hits.notes)
        if answered(others) > answered(best) or not best:
            best = others
    return best


def _later(ralph: Ralph, hit: Hit) -> str:
    """Say how the work of a record went on, if that changes what the record says."""
    if ralph.remote:
        return ""
    if isinstance(hit.record, Iteration):
        return _later_success(ralph, hit.record)
    if isinstance(hit.record, Exchange):
        from ralph.memory.timeline import later_turn

        turn = later_turn(ralph, hit.record)
        return "" if turn is None else later_text(turn)
    return ""


def _later_success(ralph: Ralph, record: Iteration) -> str:
    """Say how a failed iteration's task was done later, if the journal is short enough to look."""
    with contextlib.suppress(BadInput):  # a record that others wrote may name any feature
        if ralph.store.journals.size_bytes(record.feature) <= _SHORT_JOURNAL_BYTES:
            from ralph.memory.timeline import later_success

            if later := later_success(ralph, record):
                summary = ralph.feature(record.feature).get(later.id).record.summary
                return f"done later in iteration {later.number}: {summary or later.title}"
    return ""


# -- PostToolUseFailure: note the error; if it was solved before, tell the model how.
#
# The error goes into the session's notes at once, redacted: its exchange cannot be saved before it
# is over, and a client that is killed may not have written the failure to its transcript.


_LOOKED_UP = 3
_FAILURE_INDEX_SHARE = 0.2


def answer_failure(call: HookCall, run: CurrentRun | None) -> str:
    """Return how the error was solved before, or ""; in a run, only its feature's memory counts."""
    from ralph.clients.claude_code import tool_errors  # not needed for prompts

    settings = settings_of(call)
    errors = tool_errors(
        call.text("tool_name"),
        call.event_input.get("tool_input"),
        call.text("error"),
        root=call.root,
        cwd=call.text("cwd") or None,
    )
    if call.event_input.get("is_interrupt") is True or not errors:
        return ""
    if settings.hook_capture and run is None:
        for error in errors:
            call.sessions.note_error(call.session, call.transcript, {"message": error.message})
    if not settings.hook_inject:
        return ""
    found = _solved_error(call, errors, None if run is None else run.feature)
    if found is None and run is None and settings.knowledge_receive:
        return _solved_elsewhere(call, errors)
    # Show it only once in a session. Its mark differs from that of a record shown with a prompt.
    told = f"error {found.id}" if found else ""
    if found is None or told in call.sessions.read(call.session).recalled_ids:
        return ""
    if run is None:
        from ralph.memory.stats import command_mark

        given = call.event_input.get("tool_input")
        command = given.get("command") if isinstance(given, dict) else None
        call.sessions.note_recalled(call.session, [told])
        call.note_shown([(found.id, None)], after=command_mark(str(command or "")) or "-")
        call.message = shown_message(1) if settings.hook_messages else ""
    return before_text(found, text_bounds(_FAILURE_TOKENS))


def _solved_elsewhere(call: HookCall, errors: tuple[ErrorSeen, ...]) -> str:
    """Return how another project of this person got past one of the errors, once a session."""
    if call.remote:
        return ""
    project = project_or_folder(Path(call.root), home=Path(call.home))
    for error in errors[:_LOOKED_UP]:
        found = fix_elsewhere(project, error.message)
        told = f"elsewhere {found.signature}" if found else ""
        if found is None or told in call.sessions.read(call.session).recalled_ids:
            continue
        call.sessions.note_recalled(call.session, [told])
        return elsewhere_text(error.message, found.fix, found.at, text_bounds(_FAILURE_TOKENS))
    return ""


def _solved_error(
    call: HookCall, errors: tuple[ErrorSeen, ...], feature: str | None
) -> Solved | None:
    """Return the solution of the first error that was solved before."""
    with open_memory(call) as ralph:
        silent = ralph.silent_ids
        for error in errors[:_LOOKED_UP]:
            budget_s = call.watch.left_s() * _FAILURE_INDEX_SHARE
            found = ralph.solved(
                error.message, feature=feature, file=error.file_path, budget_s=budget_s
            )
            if found and found.id not in silent:
                return found
    return None
