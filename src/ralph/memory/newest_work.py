"""The newest work of the projects that were worked on last, for views of all projects."""

from __future__ import annotations

from typing import NamedTuple

from ralph.memory.conversation_stream import ConversationState, ConversationStream
from ralph.memory.past_work import PastWork, past_work
from ralph.memory.ralph import Ralph


class ProjectWork(NamedTuple):
    """A project's newest exchanges in time order, and their conversations by id."""

    project: str
    conversations: dict[str, ConversationState]
    work: list[PastWork]


def newest_work(
    ralph: Ralph, *, exchanges: int, projects: int | None = None, everywhere: bool = True
) -> list[ProjectWork]:
    """Return the newest exchanges of each of the projects that were worked on last.

    This folder's project is the first, if it has any; `projects` limits how many there are.
    """
    streams = list(ralph.conversations.within(everywhere))
    if not ralph.conversations.exist:
        del streams[0]
    own = streams[:1] if ralph.conversations.exist else []
    others = streams[len(own) :]
    if projects is not None and len(others) > projects:
        newest_at = ralph.conversations.store.journals.newest_at
        others.sort(key=lambda stream: newest_at(stream.name), reverse=True)
        others = others[:projects]
    found = (_project_work(stream, exchanges) for stream in (*own, *others))
    return [project for project in found if project.work]


def _project_work(stream: ConversationStream, exchanges: int) -> ProjectWork:
    history = stream.lately(exchanges)
    names = (name for group in history.exchanges.values() for name in group)
    states = history.conversations
    latest = max(states.values(), key=lambda state: state.last, default=None)
    project = latest.conversation.project if latest else ""
    return ProjectWork(project, states, past_work(history.records[name] for name in names))
