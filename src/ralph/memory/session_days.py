"""The work of each day, session by session: what was asked, what came of it, what was decided."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import msgspec

from ralph.capture.decisions import is_plain
from ralph.memory.conversation_stream import ConversationState
from ralph.memory.ralph import Ralph
from ralph.memory.timeline import Event, contents, local_day
from ralph.records.conversation import EXCHANGE, Exchange
from ralph.records.iteration import Decision, Iteration
from ralph.text.outcome import outcome_of
from ralph.text.summary import title_of

_RESULT_CHARS = 260
# A shorter request is its own title.
_TITLE_CHARS = 140
_MARKUP = re.compile(r"\*{2,}|#{2,} |`{3,}")


class SessionTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange or iteration in short.

    `is_plain`: the person only told the agent to go on. `commits` are the subjects of commits, and
    `decisions` what else was decided.
    """

    event: Event
    record: Iteration | Exchange
    title: str
    result: str
    is_plain: bool = False
    commits: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()


class SessionDay(msgspec.Struct, kw_only=True):
    """What one session did on one day, the first turn first.

    An iteration of the loop has no `conversation` and stands for itself.
    """

    conversation: str
    title: str
    project: str
    source: str
    turns: list[SessionTurn]

    @property
    def is_plain(self) -> bool:
        """Whether the person said nothing but "go ahead"."""
        return all(turn.is_plain for turn in self.turns)


def session_days(
    ralph: Ralph, events: Sequence[Event], *, everywhere: bool = False
) -> list[tuple[str, list[SessionDay]]]:
    """Return the sessions of these events by day, in the order of the events: newest first."""
    records = contents(ralph, events, everywhere=everywhere)
    states = ralph.conversations.states(everywhere=everywhere) if records else {}
    days = []
    for day, group in groupby(events, lambda event: local_day(event.at)):
        sessions: dict[str, SessionDay] = {}
        for event in group:
            name = event.conversation if event.kind == EXCHANGE else event.id
            if name not in sessions:
                state = states.get(event.conversation)
                sessions[name] = _session(ralph, event, state)
            sessions[name].turns.insert(0, _turn(event, records[event.id]))
        days.append((day, list(sessions.values())))
    return days


def _session(ralph: Ralph, event: Event, state: ConversationState | None) -> SessionDay:
    if state is None:
        project = ralph.project.root.name
        return SessionDay(
            conversation="", title=event.title, project=project, source=event.feature, turns=[]
        )
    talk = state.conversation
    return SessionDay(
        conversation=talk.id, title=talk.title, project=talk.project, source=talk.source, turns=[]
    )


def _turn(event: Event, record: Iteration | Exchange) -> SessionTurn:
    if isinstance(record, Iteration):
        return SessionTurn(
            event=event,
            record=record,
            title=event.title,
            result="" if record.summary == event.title else record.summary or "",
            decisions=record.decisions,
        )
    commits = committed(record)
    return SessionTurn(
        event=event,
        record=record,
        title=short_request(record.user) or event.title,
        result=outcome_of(record.user, record.assistant, _RESULT_CHARS),
        is_plain=is_plain(record.user),
        commits=commits,
        decisions=tuple(one for one in record.decisions if one.description not in commits),
    )


def short_request(user: str) -> str:
    """Return a request on one line: itself if it is short, else what it asks for."""
    line = " ".join(user.split())
    short = line if len(line) <= _TITLE_CHARS else title_of(user) or line
    return _MARKUP.sub("", short)


def committed(exchange: Exchange) -> tuple[str, ...]:
    """Return the decisions that are subjects of this exchange's commits."""
    calls = [one.content for one in exchange.messages if one.role == "tool" and not one.failed]
    calls = [call for call in calls if "commit" in call]
    subjects = (one.description for one in exchange.decisions)
    return tuple(subject for subject in subjects if any(subject in call for call in calls))
