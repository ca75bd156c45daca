"""What the work cost and how it went, by day, feature and model; and what recalls were good for.

Iterations of the loop and exchanges of sessions are counted, each event once. A recall is a time
that a hook gave the model something from memory. The hooks log each one on this machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from ralph import disk
from ralph.capture.lines import LONGEST_ASKED, cleaned
from ralph.clients import BY_AGENT
from ralph.memory.activity import Activity, read_activity
from ralph.memory.ralph import Ralph
from ralph.recall import exchange_of_run
from ralph.records.conversation import Exchange, Message, conversation_id
from ralph.records.iteration import Iteration
from ralph.text.times import moments_between

# Outcomes that say how an iteration went. Others were stopped, refused, or nobody could tell.
_JUDGED = ("success", "partial", "failure", "timeout")
_SHELLS = frozenset(
    "bash powershell shell run_shell_command exec_command shell_command local_shell_call"
    " container.exec".split()
)
# A client may note the time of a prompt a little after its hook ran.
_CLOCKS_DIFFER = timedelta(seconds=5)
_COMPARED_CHARS = 60


class Usage(msgspec.Struct):
    """The work of one day, feature or model, or all of it.

    `judged` counts the iterations that went well or not. `unpriced` counts the work whose client
    does not tell what it cost.
    """

    key: str = ""
    iterations: int = 0
    exchanges: int = 0
    outcomes: dict[str, int] = {}
    judged: int = 0
    success_rate: float | None = None
    cost_usd: float = 0.0
    tokens_used: int = 0
    unpriced: int = 0

    def add(self, work: Iteration | Exchange) -> None:
        """Count one piece of work."""
        self.cost_usd = round(self.cost_usd + (work.cost_usd or 0.0), 6)
        self.tokens_used += work.tokens_used or 0
        self.unpriced += work.cost_usd is None
        if isinstance(work, Exchange):
            self.exchanges += 1
            return
        self.iterations += 1
        self.outcomes[work.outcome] = self.outcomes.get(work.outcome, 0) + 1
        self.judged += work.outcome in _JUDGED
        if self.judged:
            self.success_rate = round(self.outcomes.get("success", 0) / self.judged, 4)


class NextCommands(msgspec.Struct):
    """How many times a next command was seen, and how many of those commands passed."""

    commands: int = 0
    passed: int = 0

    def add(self, command: Message) -> None:
        """Count one."""
        self.commands += 1
        self.passed += not command.failed


class RecallStats(msgspec.Struct):
    """How often hooks gave memories to the model, and how the next shell command ended.

    `first_*`: the first command after a prompt. `retry_*`: the next command after one that failed.
    Each with a memory given just before, and without. The difference is no proof: memories are
    given where there was work like it before.
    """

    recalls: int = 0
    memories: int = 0
    first_with: NextCommands = msgspec.field(default_factory=NextCommands)
    first_without: NextCommands = msgspec.field(default_factory=NextCommands)
    retry_with: NextCommands = msgspec.field(default_factory=NextCommands)
    retry_without: NextCommands = msgspec.field(default_factory=NextCommands)


class Stats(msgspec.Struct):
    """All of it; days are local and oldest first, features and models those of most work first."""

    total: Usage
    by_day: list[Usage]
    by_feature: list[Usage]
    by_model: list[Usage]
    recall: RecallStats


def command_mark(text: str) -> str:
    """A short hash of how a command begins, so that the log holds none of its words."""
    first = cleaned(text, LONGEST_ASKED).partition("\n")[0][:_COMPARED_CHARS]
    return hashlib.sha256(first.encode()).hexdigest()[:12] if first else ""


def feature_usage(ralph: Ralph, feature: str) -> Usage:
    """What one feature took so far."""
    found = Usage(feature)
    for _, one in ralph.feature(feature).iterations():
        found.add(one)
    return found


def stats(
    ralph: Ralph, *, since: str | None = None, until: str | None = None, feature: str | None = None
) -> Stats:
    """Count the work of these days, both included; of one feature without recalls."""
    first, end = moments_between(since, until)
    memories = ralph.features() if feature is None else [ralph.feature(feature)]
    iterations = [one for memory in memories for _, one in memory.iterations()]
    exchanges: dict[str, list[Exchange]] = {}
    if feature is None and ralph.conversations.exist:
        history = ralph.conversations.stream.history
        for name, state in history.conversations.items():
            if state.last >= first:
                found = history.read_exchanges([name])
                exchanges[name] = [e for e in found if first <= (e.completed or "") < end]
    iterations = [one for one in iterations if first <= (one.timestamp or "") < end]
    # An exchange that was work on a feature is counted as that iteration.
    doubled = {exchange_of_run(one.session_id) for one in iterations}
    alone = (one for some in exchanges.values() for one in some if one.id not in doubled)
    work: list[Iteration | Exchange] = [*iterations, *alone]
    total = Usage("total")
    for one in work:
        total.add(one)
    return Stats(
        total,
        sorted(_grouped(work, _day), key=lambda row: row.key),
        _grouped(work, lambda one: getattr(one, "feature", "")),
        _grouped(work, lambda one: one.model or ""),
        _recall_stats([r for r in _recalls(ralph) if first <= r.at < end], exchanges)
        if feature is None
        else RecallStats(),
    )


def _grouped(
    work: Iterable[Iteration | Exchange], key: Callable[[Iteration | Exchange], str]
) -> list[Usage]:
    rows: dict[str, Usage] = {}
    for one in work:
        rows.setdefault(name := key(one), Usage(name)).add(one)
    return sorted(rows.values(), key=lambda row: (-row.iterations - row.exchanges, row.key))


def _day(work: Iteration | Exchange) -> str:
    at = _moment(work.completed if isinstance(work, Exchange) else work.timestamp)
    return at.date().isoformat() if at else ""


def _moment(text: str | None) -> datetime | None:
    """The moment in local time; None for what is no time, which an imported record may have."""
    try:
        return datetime.fromisoformat(text or "").astimezone()
    except (ValueError, OverflowError):
        return None


# -- Recalls.


def _recalls(ralph: Ralph) -> list[Activity]:
    """What hooks showed the model for a prompt or an error."""
    events = read_activity(disk.hooks_folder(ralph.project.root, ralph.project.home), whole=True)
    return [one for one in events if one.shown and one.event != "session-start"]


def _recall_stats(recalls: list[Activity], exchanges: dict[str, list[Exchange]]) -> RecallStats:
    found = RecallStats(len(recalls), sum(len(one.shown) for one in recalls))
    given: dict[str, list[Activity]] = {}
    for one in recalls:
        source = BY_AGENT[one.agent].source if one.agent in BY_AGENT else one.agent
        held = exchanges.get(conversation_id(source, one.session), [])
        if exchange := _exchange_at(held, one.at):
            given.setdefault(exchange.id, []).append(one)
    # Before the first line of the log, memories were given that nobody counted.
    since = min((one.at for one in recalls), default="9")
    for exchange in (one for held in exchanges.values() for one in held):
        mine = given.get(exchange.id, [])
        commands = [m for m in exchange.messages if m.tool.lower() in _SHELLS]
        commands = commands if (exchange.completed or "") >= since else []
        if commands:
            with_memory = any(not one.after for one in mine)
            (found.first_with if with_memory else found.first_without).add(commands[0])
        marks = {one.after for one in mine if one.after}
        for command, following in pairwise(commands):
            if command.failed:
                mark = command_mark(command.content) if marks else ""
                (found.retry_with if mark in marks else found.retry_without).add(following)
                marks.discard(mark)
    return found


def _exchange_at(exchanges: list[Exchange], text: str) -> Exchange | None:
    """The exchange of a session that was under way at a moment."""
    at = _moment(text)
    for one in reversed(exchanges):
        began, ended = _moment(one.started), _moment(one.completed)
        if at and began and ended and began - _CLOCKS_DIFFER <= at <= ended + _CLOCKS_DIFFER:
            return one
    return None
