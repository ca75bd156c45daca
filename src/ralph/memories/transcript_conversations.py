"""What was seen in a session's file, as the conversations it is, and the project they belong to."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath

import msgspec

from ralph.capture.exchanges import ExchangeSeen
from ralph.errors import UnsafeFile
from ralph.kinds.conversation import Conversation, Exchange, conversation_id, exchange_id
from ralph.kinds.iteration import cut
from ralph.memories.conversation_journal import GENERAL
from ralph.memories.many_conversations import Talk
from ralph.memories.project import Project, find_project
from ralph.text.marks import strip_marked

_TITLE_CHARS = 80


class Home(msgspec.Struct, frozen=True):
    """Where a session belongs: the stream, the project's name and its root."""

    stream: str
    project: str = ""
    root: str | None = None


def conversations_of(
    seen: Sequence[ExchangeSeen], *, source: str, session: str, title: str | None, where: Home
) -> list[Talk]:
    """What was seen, as the conversations it belongs to: a copied session keeps its first name."""
    by_session: dict[str, list[ExchangeSeen]] = {}
    for one in seen:
        if strip_marked(one.user).strip() or strip_marked(one.assistant).strip():
            by_session.setdefault(one.session_id or session, []).append(one)
    found: list[Talk] = []
    for name, some in by_session.items():
        conversation = Conversation(
            id=conversation_id(source, name),
            title=title or beginning(some[0]),
            source=source,
            project=where.project,
            created=some[0].captured.started_at,
        )
        exchanges = [_exchange(conversation.id, one) for one in some]
        found.append(Talk(conversation, exchanges))
    return found


def _exchange(conversation: str, seen: ExchangeSeen) -> Exchange:
    captured = seen.captured
    return Exchange(
        id=exchange_id(conversation, seen.key),
        conversation=conversation,
        user=seen.user,
        assistant=seen.assistant,
        status=seen.status,
        started=captured.started_at,
        completed=captured.ended_at,
        tokens_used=captured.tokens_used,
        model=captured.model,
        errors=captured.errors,
        files_touched=captured.files_touched,
        messages=seen.messages,
    )


def beginning(seen: ExchangeSeen) -> str:
    """How an exchange begins: a title where there is none."""
    words = strip_marked(seen.user).split() or strip_marked(seen.assistant).split()
    return cut(" ".join(words), _TITLE_CHARS)


def home_of(cwd: str, home: Path) -> Home:
    """The project around a folder, or the folder itself; it need not be there any more."""
    if not cwd or "\0" in cwd:
        return Home(GENERAL)
    path = Path(cwd)
    if not path.is_absolute():  # another system's
        return Home(str(uuid.uuid5(uuid.NAMESPACE_URL, cwd)), PureWindowsPath(cwd).name, cwd)
    try:
        project = find_project(path, home=home)
    except UnsafeFile:
        project = None
    if project is None:
        return Home(Project(path, home).id, path.name, cwd)
    return Home(project.id, project.root.name, str(project.root))
