"""Opens memory for a hook, with waits that fit into its time, and makes the texts it adds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.clients import agent_environment, own_command
from ralph.config import PROJECT_FILE, Settings, load, warnings_to, within
from ralph.disk import state_folder
from ralph.doors.hooks.call import MOST_CHARS
from ralph.errors import BadInput
from ralph.memory.project import Focus, project_or_folder, read_focus
from ralph.memory.ralph import open_ralph
from ralph.prompt.recalled import before_text, recalled_text
from ralph.recall import SESSION, Hit, event_of, held_in, session_in
from ralph.recall.score import INJECTED
from ralph.records.conversation import Exchange, conversation_id
from ralph.records.iteration import Iteration

if TYPE_CHECKING:
    from ralph.current_run import CurrentRun
    from ralph.doors.hooks.call import HookCall
    from ralph.memory.lessons import Solved
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import PlanView
    from ralph.records.iteration import ErrorSeen


# Shares of a hook's time that single waits may take.
_PROMPT_HITS = 3
_PROMPT_TOKENS = 800
_SESSION_TOKENS = 1500
_SHARES = {"journal_lock_timeout_s": 0.3, "index_lock_timeout_s": 0.1, "remember_budget_s": 0.3}


def settings_of(call: HookCall) -> Settings:
    """The settings in force for this project; from now on the hook's clock follows them."""
    from ralph.doors.hooks.call import limit_s

    file = Path(call.root) / ".ralph" / PROJECT_FILE
    with warnings_to(call.note):
        settings = load(home=Path(call.home), project_file=file).settings
    call.watch.limit_s = settings.hook_timeout_s or limit_s(call.event)
    return settings


@contextlib.contextmanager
def open_memory(call: HookCall) -> Iterator[Ralph]:
    """The project's memories; what they warn of goes to the log."""
    left_s = call.watch.left_s()
    waits: dict[str, Any] = {key: within(key, left_s * one) for key, one in _SHARES.items()}
    project = project_or_folder(Path(call.root), home=Path(call.home))
    with warnings_to(call.note), open_ralph(project=project, home=call.home, **waits) as ralph:
        yield ralph


def focus_of(call: HookCall, ralph: Ralph) -> Focus | None:
    """What a person set; a file that cannot be read is a line in the log."""
    try:
        return read_focus(ralph.project)
    except (BadInput, OSError) as error:
        call.fault(error)
        return None


# -- The plan as a hook reads it: what can be read, whatever state it is in.


def plan_view(call: HookCall) -> PlanView:
    """Features and tasks; files that cannot be read are a line in the log, and there are none."""
    from ralph.plan.model import PlanView
    from ralph.plan.store import Plan

    try:
        state = Path(state_folder(call.root, call.home))
        return Plan(Path(call.root), state=state).read("features", "tasks")
    except (BadInput, OSError) as error:
        call.fault(error)
        return PlanView()


# -- The text that a session begins with.


_OUTCOMES = 5


def text_now(call: HookCall, ralph: Ralph) -> str:
    """What matters in the project now, or nothing where nothing was planned or done yet."""
    from ralph.loop.iteration import REPEATED_ERRORS, repeated_errors
    from ralph.memory.sessions import brief
    from ralph.prompt.build import brief_text

    inject = ralph.config.settings.hook_inject
    now = brief(ralph, plan_view(call), focus_of(call, ralph)) if inject else None
    if now is None:
        return ""
    fields = msgspec.structs.asdict(now)
    told = fields.pop("told")
    fields["outcomes"] = told[: -_OUTCOMES - 1 : -1]
    fields["repeated"] = repeated_errors(told, REPEATED_ERRORS)
    return brief_text(**fields, **_bounds(_SESSION_TOKENS))


def _bounds(budget_tokens: int) -> dict[str, Any]:
    """How long a text may be, and how the model calls Ralph."""
    command = own_command(agent_environment())
    return {"command": command, "budget_tokens": budget_tokens, "max_chars": MOST_CHARS}


# -- Asking memory about a prompt: by words first, and by meaning only if words find nothing.


# A long prompt says what it wants at its beginning or at its end.
_WHOLE_CHARS = 600
_PART_CHARS = 400
_FOR_INDEX = 0.25
# Reading a longer journal takes more time than knowing how a failure ended is worth here.
_SHORT_JOURNAL_BYTES = 1_000_000


def recall_for_prompt(call: HookCall, prompt: str) -> str:
    """The few things memory has on the prompt, or nothing when nothing is relevant."""
    settings = settings_of(call)
    if not settings.hook_inject:
        return ""
    told = frozenset(call.sessions.read(call.session).recalled_ids)
    with open_memory(call) as ralph:
        hits = _relevant(call, ralph, prompt, settings)
        # What was said once in a session the model knows.
        fresh = [hit for hit in _each_question_once(hits) if hit.id not in told]
        chosen = fresh[:_PROMPT_HITS]
        ended = {hit.id: how for hit in chosen if (how := _later_success(ralph, hit))}
    text = recalled_text(chosen, ended=ended, **_bounds(_PROMPT_TOKENS))
    if text:
        call.sessions.note_recalled(call.session, [hit.id for hit in chosen])
    return text


def _relevant(call: HookCall, ralph: Ralph, prompt: str, settings: Settings) -> list[Hit]:
    """What is relevant by words; only if that is nothing, what is by meaning."""
    # A long prompt says what it wants at its beginning or at its end.
    whole = len(prompt) <= _WHOLE_CHARS
    questions = [prompt] if whole else [prompt[:_PART_CHARS], prompt[-_PART_CHARS:]]
    hits = _relevant_hits(call, ralph, questions, settings, meaning=False)
    if not hits and settings.embedder != "none":
        hits = _relevant_hits(call, ralph, questions, settings, meaning=True)
    focus = focus_of(call, ralph)
    first = focus.feature if focus else None

    def order(hit: Hit) -> tuple[bool, float]:
        return getattr(hit.record, "feature", None) != first or first is None, -(hit.score or 0.0)

    return sorted(hits, key=order)


def _relevant_hits(
    call: HookCall, ralph: Ralph, questions: Sequence[str], settings: Settings, *, meaning: bool
) -> list[Hit]:
    """Everything relevant that is not of this session, each event once."""
    own = conversation_id(call.source, call.session)
    found: dict[str, Hit] = {}
    for text in questions:
        hits = ralph.search(
            text,
            limit=_PROMPT_HITS * 4,
            min_score=INJECTED,
            meaning=meaning,
            exclude=own,
            budget_s=call.watch.left_s() * _FOR_INDEX,
            scope=SESSION,
        )
        for hit in hits:
            if held_in(hit.record, session_in(call.source, call.session)):
                continue
            event = event_of(hit)
            before = found.get(event)
            if before is None or (hit.score or 0.0) > (before.score or 0.0):
                found[event] = hit
    return list(found.values())


def _each_question_once(hits: Sequence[Hit]) -> list[Hit]:
    """Of exchanges with the same question only the newest, where the best one stood."""
    newest: dict[str, Hit] = {}
    for hit in hits:
        record = hit.record
        asked = " ".join(record.user.lower().split()) if isinstance(record, Exchange) else ""
        before = newest.get(asked or hit.id)
        if before is None or _success_text(hit) > _success_text(before):
            newest[asked or hit.id] = hit
    return list(newest.values())


def _success_text(hit: Hit) -> str:
    return getattr(hit.record, "completed", None) or ""


def _later_success(ralph: Ralph, hit: Hit) -> str:
    """How what failed here was done later, where the journal is short enough to look."""
    record = hit.record
    if not isinstance(record, Iteration):
        return ""
    later = None
    with contextlib.suppress(BadInput):  # a record that others wrote may name any feature
        if ralph.store.journals.size_bytes(record.feature) <= _SHORT_JOURNAL_BYTES:
            from ralph.memory.lessons import later_success

            later = later_success(ralph, record)
    if later is None:
        return ""
    _, success = later
    return f"iteration {success.iteration_number}: {success.summary or success.task_title}"


# -- PostToolUseFailure: the error is noted, and if it was met before the model is told how it
# ended.
#
# Noted in the session's note, redacted, at once: the exchange it belongs to cannot be written
# before it is over, and a client that is killed may not have written the failure to its
# transcript.


_LOOKED_UP = 3
_FAILURE_INDEX_SHARE = 0.2


def answer_failure(call: HookCall, run: CurrentRun | None) -> str:
    """What memory knows of the error, or nothing; in a run, what its feature's memory knows."""
    from ralph.clients.claude_code import tool_errors  # most prompts need none of it

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
    # What was said once in a session the model knows; with a prompt it was said as something else.
    told = f"error {found.id}" if found else ""
    if found is None or told in call.sessions.read(call.session).recalled_ids:
        return ""
    if run is None:
        call.sessions.note_recalled(call.session, [told])
    return before_text(**msgspec.structs.asdict(found), **_bounds(_PROMPT_TOKENS))


def _solved_error(
    call: HookCall, errors: tuple[ErrorSeen, ...], feature: str | None
) -> Solved | None:
    """The first of the errors that was solved before, else the first that was met."""
    from ralph.memory.lessons import solved

    met: Solved | None = None
    session = session_in(call.source, call.session)
    with open_memory(call) as ralph:
        for error in errors[:_LOOKED_UP]:
            budget_s = call.watch.left_s() * _FAILURE_INDEX_SHARE
            found = solved(
                ralph, error.message, session=session, feature=feature, budget_s=budget_s
            )
            if found is not None and found.solution:
                return found
            met = met or found
    return met
