"""UserPromptSubmit: whether a prompt says anything that memory could be asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph import disk
from ralph.doors.hooks.call import MOST_CHARS
from ralph.doors.hooks.context import focus_of, opened, settings_of
from ralph.errors import BadInput
from ralph.loop.environment import agent_environment, own_command
from ralph.memory.conversation_history import CLAUDE_CODE, event_of, held_in
from ralph.memory.lessons import later_success
from ralph.prompt.recalled import recalled_text
from ralph.recall import Hit
from ralph.records.conversation import Exchange, conversation_id
from ralph.records.iteration import Iteration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph.config import Settings
    from ralph.doors.hooks.call import Call
    from ralph.memory.ralph import Ralph


# Words that go on with what is being done and say nothing about what it is.
_EMPTY = frozenset(
    """
    a about again ahead all alright also am an and any are as at be but by can carry change changes
    check commit continue cool correct could did do does done else every everything exactly far fine
    first fix fixed for from further get go good great had has have he hello hey hi how i if in into
    is it its just keep last let lets like look looks make makes me more much my never next nice no
    nope not now of off ok okay old on one only or other our out over perfect please pls proceed
    push redo rerun retry right run same see she should so some start still stop such sure test
    tests thank thanks that the their them then there these they thing things this those thx to too
    try two undo up us use very wait was we well were what whats when where which while who why will
    with wonderful work works would wrong yeah yep yes yet you your
    """.split()
)
_SHORTEST_WORD = 3


def answer(call: Call) -> str:
    """The few things memory has on the prompt, or nothing."""
    call.sessions.prompted(call.session, call.transcript)
    prompt = call.text("prompt")
    if not says_something(prompt) or not _remembers(call):
        return ""

    return recalled(call, prompt)


def says_something(prompt: str) -> bool:
    """Whether the prompt has a word of its own; a command of the client's has none."""
    first = prompt.split(maxsplit=1)[:1]
    if not first or (first[0][0] == "/" and "/" not in first[0][1:]):
        return False
    plain = "".join(c if c.isalnum() else " " for c in prompt[:4000].replace("'", "").lower())
    return any(
        word not in _EMPTY and (len(word) >= _SHORTEST_WORD or not word.isascii())
        for word in plain.split()
    )


def _remembers(call: Call) -> bool:
    """Whether there is any journal that could be asked."""
    from ralph.doors.hooks.context import on_a_server

    if on_a_server(call.home):
        return True
    folders = (
        os.path.join(call.root, ".ralph", "db", "memory"),
        os.path.join(call.home, "journal", "conversations"),
    )
    for folder in folders:
        try:
            if any(name.endswith(".jsonl") for name in disk.names(folder)):
                return True
        except OSError:
            continue
    return False


# -- Asking memory about a prompt: by words first, and by meaning only if words find nothing.


# A long prompt says what it wants at its beginning or at its end.
_WHOLE_CHARS = 600
_PART_CHARS = 400
_FOR_INDEX = 0.25
# Reading a longer journal takes more time than knowing how a failure ended is worth here.
_SHORT_JOURNAL_BYTES = 1_000_000


def recalled(call: Call, prompt: str) -> str:
    """The few things memory has on the prompt, or nothing when nothing is relevant."""
    settings = settings_of(call)
    if not settings.hook_inject or not settings.hook_prompt_hits:
        return ""
    told = frozenset(call.sessions.read(call.session).told)
    with opened(call) as ralph:
        hits = _relevant(call, ralph, prompt, settings)
        # What was said once in a session the model knows.
        fresh = [hit for hit in _each_question_once(hits) if hit.id not in told]
        chosen = fresh[: settings.hook_prompt_hits]
        ended = {hit.id: how for hit in chosen if (how := _how_it_ended(ralph, hit))}
    text = recalled_text(
        chosen,
        ended=ended,
        command=own_command(agent_environment()),
        budget_tokens=settings.hook_prompt_tokens,
        max_chars=MOST_CHARS,
    )
    if text:
        call.sessions.tell(call.session, [hit.id for hit in chosen])
    return text


def _relevant(call: Call, ralph: Ralph, prompt: str, settings: Settings) -> list[Hit]:
    """What is relevant by words; only if that is nothing, what is by meaning."""
    questions = _questions(prompt)
    hits = _found(call, ralph, questions, settings, meaning=False)
    if not hits and settings.embedder != "none":
        hits = _found(call, ralph, questions, settings, meaning=True)
    focus = focus_of(call, ralph)
    first = focus.feature if focus else None

    def order(hit: Hit) -> tuple[bool, float]:
        return getattr(hit.record, "feature", None) != first or first is None, -(hit.score or 0.0)

    return sorted(hits, key=order)


def _questions(prompt: str) -> list[str]:
    if len(prompt) <= _WHOLE_CHARS:
        return [prompt]
    return [prompt[:_PART_CHARS], prompt[-_PART_CHARS:]]


def _found(
    call: Call, ralph: Ralph, questions: Sequence[str], settings: Settings, *, meaning: bool
) -> list[Hit]:
    """Every relevant iteration and exchange of earlier sessions, each event once."""
    own = conversation_id(CLAUDE_CODE, call.session)
    wanted = min(settings.hook_prompt_hits * 4, settings.search_max_limit)
    features = ralph.features()
    found: dict[str, Hit] = {}
    for text in questions:
        question = ralph.place.question(text, limit=wanted, min_score=settings.hook_min_score)
        budget_s = call.watch.left_s() * _FOR_INDEX
        hits = [
            *ralph.place.ask(features, question, meaning=meaning, budget_s=budget_s),
            *ralph.conversations.search(
                text,
                limit=wanted,
                min_score=settings.hook_min_score,
                exclude=own,
                words_only=not meaning,
                budget_s=budget_s,
            ),
        ]
        for hit in hits:
            if held_in(hit.record, call.session):
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
        if before is None or _completed(hit) > _completed(before):
            newest[asked or hit.id] = hit
    return list(newest.values())


def _completed(hit: Hit) -> str:
    return getattr(hit.record, "completed", None) or ""


def _how_it_ended(ralph: Ralph, hit: Hit) -> str:
    """How what failed here was done later, where the journal is short enough to look."""
    record = hit.record
    if not isinstance(record, Iteration):
        return ""
    try:
        if ralph.place.journals.size_bytes(record.feature) > _SHORT_JOURNAL_BYTES:
            return ""
        later = later_success(ralph, record)
    except BadInput:  # a record that others wrote may name any feature
        return ""
    if later is None:
        return ""
    _, success = later
    return f"iteration {success.iteration_number}: {success.summary or success.task_title}"
