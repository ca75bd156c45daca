"""Opens memory for a hook, with waits that fit into its time, and makes the texts it adds."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.clients import agent_environment, own_command
from ralph.config import PROJECT_FILE, Settings, load, warnings_to, within
from ralph.current_run import current_run
from ralph.disk import state_folder
from ralph.doors.hooks.answers import StoredBrief
from ralph.doors.hooks.call import MOST_CHARS, limit_s
from ralph.doors.hooks.messages import shown_message
from ralph.errors import BadInput
from ralph.memory.project import Focus, project_or_folder, read_focus
from ralph.memory.ralph import open_ralph
from ralph.memory.servers import ADDRESS
from ralph.plan.model import PlanView
from ralph.prompt.build import TextBounds, brief_ids, brief_text
from ralph.prompt.recalled import before_text, recalled_text
from ralph.recall import KINDS, SESSION, Hit, event_of, held_in, session_in
from ralph.recall.score import INJECTED, rarity
from ralph.records.conversation import Exchange, conversation_id
from ralph.records.iteration import Iteration
from ralph.text.tokens import query_tokens, tokens

if TYPE_CHECKING:
    from ralph.current_run import CurrentRun
    from ralph.doors.hooks.call import HookCall
    from ralph.memory.lessons import Solved
    from ralph.memory.ralph import Ralph
    from ralph.records.iteration import ErrorSeen


# Shares of a hook's time that single waits may take.
_PROMPT_HITS = 3
_ID_CHARS = 12  # as a text shows an id
_DEPTH = 20
_PROMPT_TOKENS = 250
_FAILURE_TOKENS = 300
_SESSION_TOKENS = 500
_FOR_SERVER = 0.5
_SHARES = {"journal_lock_timeout_s": 0.3, "index_lock_timeout_s": 0.1, "remember_budget_s": 0.3}


def settings_of(call: HookCall) -> Settings:
    """The settings in force for this project; from now on the hook's clock follows them."""
    file = Path(call.root) / ".ralph" / PROJECT_FILE
    with warnings_to(call.note):
        settings = load(home=Path(call.home), project_file=file).settings
    call.watch.limit_s = settings.hook_timeout_s or limit_s(call.event)
    return settings


@contextlib.contextmanager
def open_memory(call: HookCall) -> Iterator[Ralph]:
    """The project's memories; what they warn of goes to the log."""
    left_s = call.watch.left_s()
    project = project_or_folder(Path(call.root), home=Path(call.home))
    # A run's server stands in its environment. A person's sessions go where he said for the folder.
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
    """What a person set; a file that cannot be read is a line in the log."""
    try:
        return read_focus(ralph.project)
    except (BadInput, OSError) as error:
        call.fault(error)
        return None


# -- The plan as a hook reads it: what can be read, whatever state it is in.


def plan_view(call: HookCall) -> PlanView:
    """Features and tasks; files that cannot be read are a line in the log, and there are none."""
    from ralph.plan.store import Plan

    try:
        state = Path(state_folder(call.root, call.home))
        return Plan(Path(call.root), state=state).read("features", "tasks")
    except (BadInput, OSError) as error:
        call.fault(error)
        return PlanView()


# -- The text that a session begins with.


def text_now(call: HookCall, ralph: Ralph) -> StoredBrief:
    """What matters in the project now, or nothing where nothing was planned, said or done yet."""
    from ralph.memory.brief import brief

    settings = ralph.config.settings
    if not settings.hook_inject:
        return StoredBrief("", [], settings.hook_messages)
    now = brief(ralph, plan_view(call), focus_of(call, ralph))
    text = brief_text(now, _bounds(_SESSION_TOKENS))
    return StoredBrief(text, brief_ids(now, text), settings.hook_messages)


def _bounds(budget_tokens: int) -> TextBounds:
    return TextBounds(own_command(agent_environment()), budget_tokens, MOST_CHARS)


# -- Asking memory about a prompt: by words first, and by meaning only if words find nothing.


# A long prompt says what it wants at its beginning or at its end.
_QUESTION_CHARS = 200
# What a record is about (its request, decisions, errors, files) has so much of the question's
# weight; else it is about something else, whatever stands in its answer.
_ABOUT = 0.45
_BESIDE = 0.7
_SURE = 0.8
_SUBJECT_CHARS = 300
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
        chosen = [hit for hit in _each_question_once(hits) if hit.id not in told][:_PROMPT_HITS]
        ended = {hit.id: how for hit in chosen if (how := _later_success(ralph, hit))}
    if text := recalled_text(chosen, prompt, _bounds(_PROMPT_TOKENS), ended=ended):
        call.sessions.note_recalled(call.session, [hit.id for hit in chosen])
        # What had no room was not shown.
        shown = [(hit.id, hit.score) for hit in chosen if hit.id[:_ID_CHARS] in text]
        call.note_shown(shown)
        call.message = shown_message(len(shown)) if settings.hook_messages else ""
    return text


def questions_of(prompt: str) -> list[str]:
    """What is asked of memory: a plan's title, else how the prompt begins and how it ends."""
    from ralph.capture.decisions import title_from  # a prompt that says nothing needs none of it
    from ralph.text.summary import sentences

    if title := title_from(prompt, plans_only=True):
        return [title]
    if len(prompt) <= _QUESTION_CHARS:
        return [prompt]
    said = [one for line in prompt.splitlines() for one in sentences(line) if one.strip()]
    both = " ".join(said[:2])
    first = both if len(both) <= _QUESTION_CHARS else said[0]
    return list(dict.fromkeys([first[:_QUESTION_CHARS], said[-1][-_QUESTION_CHARS:]]))


def _relevant(call: HookCall, ralph: Ralph, prompt: str, settings: Settings) -> list[Hit]:
    """What is relevant by words; only if that is nothing, what is by meaning."""
    questions = questions_of(prompt)
    hits = _relevant_hits(call, ralph, questions, settings, meaning=False)
    if not hits and settings.embedder != "none":
        hits = _relevant_hits(call, ralph, questions, settings, meaning=True)
    focus = focus_of(call, ralph)
    first = focus.feature if focus else None

    def order(hit: Hit) -> tuple[bool, bool, float]:
        in_focus = first is not None and getattr(hit.record, "feature", None) == first
        return not in_focus, not KINDS[hit.kind].by_person(hit.record), -hits[hit.id][0]

    # Beside one that is quite about it, those that are a little about it only distract.
    shares = sorted((share for share, _ in hits.values()), reverse=True)
    best = shares[0] if shares else 0.0
    if len(shares) > _PROMPT_HITS and shares[_PROMPT_HITS] == best < _SURE:
        return []  # what so many are equally about tells none from another
    return sorted((hit for share, hit in hits.values() if share >= best * _BESIDE), key=order)


def _relevant_hits(
    call: HookCall, ralph: Ralph, questions: Sequence[str], settings: Settings, *, meaning: bool
) -> dict[str, tuple[float, Hit]]:
    """Everything relevant that is not of this session, each event once, and how much about it."""
    own = conversation_id(call.source, call.session)
    session = session_in(call.source, call.session)
    asked: list[tuple[str, Hit, str]] = []
    for text in questions:
        hits = ralph.search(
            text,
            limit=_DEPTH,
            min_score=INJECTED,
            meaning=meaning,
            exclude=own,
            budget_s=call.watch.left_s() * _FOR_INDEX,
            scope=SESSION,
        )
        asked += [(text, hit, subject_of(hit)) for hit in hits]
    # What most of them are about, a project's own name above all, says little.
    subjects = {hit.id: subject for _, hit, subject in asked}
    frequencies = Counter(one for subject in subjects.values() for one in set(tokens(subject)))
    found: dict[str, tuple[float, Hit]] = {}
    for text, hit, subject in asked:
        share = share_of(query_tokens(text), subject, frequencies, len(subjects))
        before, _ = found.get(event_of(hit), (_ABOUT, None))
        if share >= before and not held_in(hit.record, session) and _says_enough(hit.record):
            found[event_of(hit)] = share, hit
    return {hit.id: (share, hit) for share, hit in found.values()}


def _says_enough(record: Any) -> bool:
    """Whether a record has more to say than "commit it"; a question without an answer has not."""
    from ralph.capture.decisions import is_plain

    if not isinstance(record, Exchange):
        return True
    asked = record.user.strip()
    return bool(record.assistant.strip()) and not (asked and (" " not in asked or is_plain(asked)))


def subject_of(hit: Hit) -> str:
    """What a record is about: its title, decisions, errors and files; not all that was said."""
    record, row = hit.record, KINDS[hit.kind]
    title = row.title(record)[:_SUBJECT_CHARS] or row.text(record)[:_SUBJECT_CHARS]
    beside: list[str] = []
    if isinstance(record, Iteration):
        beside.append(record.summary)
    if isinstance(record, Iteration | Exchange):
        beside += [one.description for one in record.decisions]
        beside += [error.message for error in record.errors]
        beside += [file.path for file in record.files_touched if file.action != "read"]
    # A session that did a hundred things is not about each of them.
    return "\n".join([title, "\n".join(beside)[: 2 * _SUBJECT_CHARS]])


def share_of(
    wanted: Sequence[str], subject: str, frequencies: Mapping[str, int], count: int
) -> float:
    """How much of the question's weight is in a subject; rare words weigh most."""
    weights = {token: rarity(token, frequencies.get(token, 0), count) for token in wanted}
    there = set(tokens(subject))
    whole = sum(weights.values())
    return sum(weights[one] for one in weights if one in there) / whole if whole else 0.0


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
    if not isinstance(record, Iteration) or ralph.remote:
        return ""
    later = None
    with contextlib.suppress(BadInput):  # a record that others wrote may name any feature
        if ralph.store.journals.size_bytes(record.feature) <= _SHORT_JOURNAL_BYTES:
            from ralph.memory.lessons import later_success

            later = later_success(ralph, record)
    return f"iteration {later.iteration_number}: {later.summary}" if later else ""


# -- PostToolUseFailure: the error is noted, and if it was solved before the model is told how.
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
        from ralph.memory.stats import command_mark

        given = call.event_input.get("tool_input")
        command = given.get("command") if isinstance(given, dict) else None
        call.sessions.note_recalled(call.session, [told])
        call.note_shown([(found.id, None)], after=command_mark(str(command or "")) or "-")
        call.message = shown_message(1) if settings.hook_messages else ""
    return before_text(found, _bounds(_FAILURE_TOKENS))


def _solved_error(
    call: HookCall, errors: tuple[ErrorSeen, ...], feature: str | None
) -> Solved | None:
    """The first of the errors that was solved before."""
    from ralph.memory.lessons import solved

    with open_memory(call) as ralph:
        for error in errors[:_LOOKED_UP]:
            budget_s = call.watch.left_s() * _FAILURE_INDEX_SHARE
            if found := solved(ralph, error.message, feature=feature, budget_s=budget_s):
                return found
    return None
