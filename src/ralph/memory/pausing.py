"""Pauses: while one holds, nothing that is said is kept, and nothing of memory is told.

A pause is kept after its end, too: what was held in it stays out when a transcript is read again.
Hooks look here before every prompt, so nothing but the standard library's lightest is loaded until
there is a pause.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ralph.capture.lines import SessionExchange
    from ralph.memory.conversation_stream import ConversationContent
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph


NAME = "paused.json"
REASON = "held while memory was paused"
_LOCK_TIMEOUT_S = 5.0


class Pause(NamedTuple):
    """From when to when nothing is kept: of a project, of a conversation, or of anything.

    `where` is only for people to read.
    """

    since: str
    until: str = ""
    project: str = ""
    conversation: str = ""
    where: str = ""

    @property
    def scope(self) -> tuple[str, str]:
        """What it is about."""
        return self.project, self.conversation

    @property
    def holds_now(self) -> bool:
        """Whether nobody ended it yet."""
        return not self.until

    def is_for(self, project: str, conversation: str) -> bool:
        """Whether it is about this place."""
        if self.conversation:
            return self.conversation == conversation
        return not self.project or self.project == project

    def __str__(self) -> str:
        what = f"of conversation {self.conversation[:8]}" if self.conversation else ""
        what = what or ("in this project" if self.project else "everywhere")
        return f"memory is paused {what} since {self.since[:16].replace('T', ' ')} UTC"


def read_pauses(home: str | os.PathLike[str]) -> list[Pause]:
    """Every pause there ever was; what cannot be read is an error: nothing may be kept then."""
    file = f"{os.fspath(home)}{os.sep}{NAME}"
    try:
        with os.fdopen(os.open(file, os.O_RDONLY), "rb") as data:
            return [_pause(one) for one in json.load(data)["pauses"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        from ralph.errors import BadInput

        raise BadInput(
            f"what is paused cannot be read ({error}), so nothing is kept",
            where=file,
            todo="Mend or delete it.",
        ) from None


def _pause(plain: Any) -> Pause:
    one = Pause(**plain)
    if not all(isinstance(value, str) for value in one) or not one.since:
        raise ValueError("a pause has texts alone, and a beginning")
    return one


def in_force(
    home: str | os.PathLike[str],
    project: Callable[[], str] | str = "",
    conversation: Callable[[], str] | str = "",
) -> Pause | None:
    """The pause that holds now for this project and conversation; ids are asked for if needed."""
    held = [one for one in read_pauses(home) if one.holds_now]
    if not held:
        return None
    in_project = project if isinstance(project, str) else project()
    of = conversation if isinstance(conversation, str) else conversation()
    return next((one for one in held if one.is_for(in_project, of)), None)


def pause(home: Path, *, project: Project | None = None, conversation: str = "") -> Pause:
    """Begin a pause of a conversation, of a project, or of everything; one that holds goes on."""
    from ralph.records import now

    wanted = Pause(
        now(),
        project="" if project is None or conversation else project.id,
        conversation=conversation,
        where="" if project is None else str(project.root),
    )
    with _editing(home) as pauses:
        for one in pauses:
            if one.holds_now and one.scope == wanted.scope:
                return one
        pauses.append(wanted)
    return wanted


def resume(home: Path, *, project: Project | None = None, conversation: str = "") -> Pause | None:
    """End the pause of a conversation, of a project, or of everything; None if there was none."""
    from ralph.records import now

    scope = ("" if project is None or conversation else project.id, conversation)
    with _editing(home) as pauses:
        over = [one for one in pauses if one.holds_now and one.scope == scope]
        pauses[:] = [one._replace(until=now()) if one in over else one for one in pauses]
    return over[0] if over else None


@contextmanager
def _editing(home: Path) -> Iterator[list[Pause]]:
    """The pauses, to be changed while nobody else does."""
    from ralph import disk
    from ralph.errors import BadInput

    home.mkdir(parents=True, exist_ok=True)
    file = home / NAME
    try:
        with disk.lock(file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S):
            known = read_pauses(home)
            pauses = list(known)
            yield pauses
            if pauses != known:
                plain = [{k: v for k, v in one._asdict().items() if v} for one in pauses]
                data = json.dumps({"pauses": plain}, indent=2).encode() + b"\n"
                disk.replace(file, data, mode=0o600)
    except disk.Busy:
        raise BadInput(
            "another process is changing what is paused", where=str(file), todo="Try again."
        ) from None


# -- what was held in a pause


def covers(
    pauses: Iterable[Pause], scope: tuple[str, str], started: str | None, ended: str | None
) -> bool:
    """Whether something was said while a pause held; of unknown time, whether one holds now.

    `scope` is its project and its conversation.
    """
    about = [one for one in pauses if one.is_for(*scope)]
    first, last = _moment(started or ended), _moment(ended or started)
    if first is None or last is None:
        return any(one.holds_now for one in about)
    for one in about:
        since, until = _moment(one.since), _moment(one.until)
        if since is not None and last >= since and (until is None or first < until):
            return True
    return False


def unpaused(
    ralph: Ralph, seen: Sequence[SessionExchange], *, session: str
) -> list[SessionExchange]:
    """What may be kept of what a client's transcript has; the rest can never be from now on."""
    pauses = read_pauses(ralph.store.home)
    from ralph.memory.conversation_search import CLAUDE_CODE
    from ralph.records.conversation import conversation_id, exchange_id

    free: list[SessionExchange] = []
    buried: list[str] = []
    for one in seen:
        conversation = conversation_id(CLAUDE_CODE, one.session_id or session)
        scope = ralph.project.id, conversation
        if covers(pauses, scope, one.captured.started_at, one.captured.ended_at):
            buried.append(exchange_id(conversation, one.key))
        else:
            free.append(one)
    ralph.conversations.bury(buried, reason=REASON)
    return free


def unpaused_talks(
    home: Path, stream: str, talks: Sequence[ConversationContent]
) -> list[ConversationContent]:
    """What may be kept of conversations brought in from a client's files."""
    pauses = read_pauses(home)
    if not pauses:
        return list(talks)
    import msgspec

    free: list[ConversationContent] = []
    for talk in talks:
        scope = stream, talk.conversation.id
        some = [x for x in talk.exchanges if not covers(pauses, scope, x.started, x.completed)]
        if len(some) == len(talk.exchanges):
            free.append(talk)
        elif some:
            # Its title may be what was said in the pause.
            first = " ".join((some[0].user or some[0].assistant).split())
            named = msgspec.structs.replace(talk.conversation, title=first[:80])
            free.append(msgspec.structs.replace(talk, conversation=named, exchanges=some))
    return free


def _moment(at: str | None) -> float | None:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(at or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
