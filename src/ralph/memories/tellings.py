"""Other records that tell of what is forgotten: the same event told twice, and lessons from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ralph.errors import BadPlan, BadRecord
from ralph.kinds.conversation import conversation_id, exchange_id
from ralph.kinds.iteration import Iteration
from ralph.kinds.knowledge import FailureSolution, knowledge_from
from ralph.memories.knowledge_journal import stream_of
from ralph.memories.lessons import taught_by
from ralph.memories.runs import CLAUDE_CODE
from ralph.memories.transcript_clients import CODEX
from ralph.plan.store import Plan

if TYPE_CHECKING:
    from ralph.memories.ralph import Ralph

_CLIENTS = {CLAUDE_CODE: "Claude Code", CODEX: "Codex"}


def iterations_of(ralph: Ralph, said: Collection[str]) -> dict[str, list[str]]:
    """By feature the iterations that these exchanges and conversations were."""
    wanted = set(said)
    found: dict[str, list[str]] = {}
    for memory in ralph.features() if wanted else ():
        for record in memory.records():
            if not wanted.isdisjoint(_events(record.source.run)):
                found.setdefault(memory.name, []).append(record.id)
    return found


def said_in(ralph: Ralph, ids: Mapping[str, Collection[str]]) -> list[str]:
    """The exchanges and conversations that these iterations were."""
    events = {
        event
        for name, some in ids.items()
        for record in ralph.feature(name).records()
        if record.id in some
        for event in _events(record.source.run)
    }
    return sorted(events & ralph.conversations.known()) if events else []


def _events(run: str | None) -> list[str]:
    """What a run is called among conversations: an exchange of a session, or a whole one."""
    if not run:
        return []
    session, apart, key = run.rpartition("#")
    if apart:
        return [exchange_id(conversation_id(CLAUDE_CODE, session), key)]
    return [conversation_id(client, run) for client in (CLAUDE_CODE, CODEX)]


def clients_of(ralph: Ralph, said: Collection[str]) -> list[str]:
    """The clients that keep the sessions in which these were said."""
    wanted = set(said)
    talks = ralph.conversations.talks() if wanted else {}
    touched = {name for name, some in talks.items() if not wanted.isdisjoint([name, *some])}
    listed = ralph.conversations.list() if touched else []
    sources = {one.conversation.source for one in listed if one.conversation.id in touched}
    return [name for source, name in _CLIENTS.items() if source in sources]


def lessons_from(ralph: Ralph, ids: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """What this project gave others that tells of these iterations: staged, and published."""
    iterations = list(_iterations(ralph, ids))
    memory, own = ralph.knowledge, stream_of(ralph.project.id)
    if not iterations or own not in memory.shelf.journals.names():
        return [], []
    staged = {record.id for record in memory.staged_records(ralph.project.id)}
    found: list[str] = []
    for record in memory.of_project():
        try:
            entry = knowledge_from(record)
        except BadRecord:
            continue
        root = ralph.project.root
        if isinstance(entry, FailureSolution) and any(
            taught_by(entry, one, root) for one in iterations
        ):
            found.append(record.id)
    return [one for one in found if one in staged], [one for one in found if one not in staged]


def learnings_from(ralph: Ralph, ids: Mapping[str, Collection[str]]) -> list[str]:
    """The commands that remove what the plan learned by itself from these iterations."""
    numbers: dict[str, set[int | None]] = {}
    for one in _iterations(ralph, ids):
        numbers.setdefault(one.feature, set()).add(one.iteration_number)
    if not numbers:
        return []
    try:
        features = Plan(ralph.project.root).read("features").features
    except (BadPlan, OSError):
        return []  # whoever uses the plan is told
    return [
        f"ralph learning remove {learning.id} --feature {feature.name}"
        for feature in features
        for learning in feature.learnings
        if learning.source == "auto" and learning.iteration in numbers.get(feature.name, ())
    ]


def _iterations(ralph: Ralph, ids: Mapping[str, Collection[str]]) -> Iterator[Iteration]:
    for name, some in ids.items():
        wanted = set(some)
        for located, iteration in ralph.feature(name).iterations():
            if located.record.id in wanted:
                yield iteration
