"""What the work cost and how it went, by day, feature and model; and whether recalls helped.

Iterations of the loop and exchanges of sessions are counted, each event once. A recall means that
a hook gave the model something from memory. The hooks log each one on this machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from ralph.capture.lines import LONGEST_ASKED, cleaned
from ralph.clients import BY_AGENT
from ralph.memory.activity import RUN, SECOND_CHARS, Activity, read_activity
from ralph.memory.ralph import Ralph
from ralph.memory.timeline import Event, events, local_day
from ralph.records.conversation import EXCHANGE, Exchange, Message, conversation_id
from ralph.records.iteration import Iteration
from ralph.state_folders import hooks_folder
from ralph.text.times import moments_between

# Outcomes that say how an iteration went. Others were stopped, refused, or unknown.
_JUDGED = ("success", "partial", "failure", "timeout")
SHELLS = frozenset(
    "bash powershell shell run_shell_command exec_command shell_command local_shell_call"
    " container.exec".split()
)
# A client may note the time of a prompt a little after its hook ran.
_CLOCKS_DIFFER = timedelta(seconds=5)
_COMPARED_CHARS = 60
# How many of the last iterations show a feature's trend.
_LAST = 10


class Usage(msgspec.Struct):
    """The work of one day, feature or model, or all of it.

    `judged` counts the iterations of work that went well or not, and `succeeded` those that
    finished their task; a review has no task to finish. `unpriced` counts the work whose client
    does not report what it cost.
    """

    key: str = ""
    iterations: int = 0
    exchanges: int = 0
    outcomes: dict[str, int] = {}
    judged: int = 0
    succeeded: int = 0
    success_rate: float | None = None
    cost_usd: float = 0.0
    tokens_used: int = 0
    unpriced: int = 0

    def add(self, work: Event) -> None:
        """Count one piece of work."""
        self.cost_usd = round(self.cost_usd + (work.cost_usd or 0.0), 6)
        self.tokens_used += work.tokens_used or 0
        self.unpriced += work.cost_usd is None
        if work.kind == EXCHANGE:
            self.exchanges += 1
            return
        self.iterations += 1
        self.outcomes[work.outcome] = self.outcomes.get(work.outcome, 0) + 1
        if is_judged(work):
            self.judged += 1
            self.succeeded += work.outcome == "success"
            self.success_rate = round(self.succeeded / self.judged, 4)


class NextCommands(msgspec.Struct):
    """How many next commands were seen, and how many of them passed."""

    commands: int = 0
    passed: int = 0

    def add(self, command: Message) -> None:
        """Count one command."""
        self.commands += 1
        self.passed += not command.failed


class RecallStats(msgspec.Struct):
    """How often hooks gave memories to the model, and how the next shell command ended.

    `first_*`: the first command after a prompt. `retry_*`: the next command after one that failed.
    Each with a memory given just before, and without. The difference proves nothing: memories are
    given where similar work was done before.
    """

    recalls: int = 0
    memories: int = 0
    first_with: NextCommands = msgspec.field(default_factory=NextCommands)
    first_without: NextCommands = msgspec.field(default_factory=NextCommands)
    retry_with: NextCommands = msgspec.field(default_factory=NextCommands)
    retry_without: NextCommands = msgspec.field(default_factory=NextCommands)
    # Of what named a command or a file: how much there was, and how much the session used in its
    # next ten actions; and how many memories are not told any more, because nobody used them.
    followed: int = 0
    used: int = 0
    silent: int = 0


class Stats(msgspec.Struct):
    """All statistics. Days are local and oldest first; features and models, most work first."""

    total: Usage
    by_day: list[Usage]
    by_feature: list[Usage]
    by_model: list[Usage]
    recall: RecallStats


def command_mark(text: str) -> str:
    """Return a short hash of a command's beginning, so that the log has none of its words."""
    first = cleaned(text, LONGEST_ASKED).partition("\n")[0][:_COMPARED_CHARS]
    return hashlib.sha256(first.encode()).hexdigest()[:12] if first else ""


def is_judged(work: Event) -> bool:
    """Return whether the outcome says how well a task went; a review has none."""
    return work.outcome in _JUDGED and work.model_tier != "opus"


def usage(work: Iterable[Event], key: str = "") -> Usage:
    """Sum up this work."""
    found = Usage(key)
    for one in work:
        found.add(one)
    return found


def feature_usage(ralph: Ralph, feature: str) -> Usage:
    """Sum up the work on one feature so far."""
    return usage(events(ralph, features=[feature]), feature)


def trend(newest_first: Iterable[Event]) -> float | None:
    """Return by how much the last ten judged iterations succeeded more often than all of them."""
    ends = [one.outcome == "success" for one in newest_first if is_judged(one)]
    if len(ends) <= _LAST:
        return None
    return sum(ends[:_LAST]) / _LAST - sum(ends) / len(ends)


def stats(
    ralph: Ralph,
    *,
    since: str | None = None,
    until: str | None = None,
    feature: str | None = None,
    everywhere: bool = False,
) -> Stats:
    """Count the work of these days, both included; for one feature, without recalls.

    `everywhere`: also count the sessions of other projects.
    """
    features = None if feature is None else [feature]
    work = events(ralph, features=features, since=since, until=until, everywhere=everywhere)
    return Stats(
        usage(work, "total"),
        sorted(grouped(work, lambda one: local_day(one.at)), key=lambda row: row.key),
        grouped(work, lambda one: one.feature),
        grouped(work, lambda one: one.model or ""),
        recall_stats(ralph, since=since, until=until) if feature is None else RecallStats(),
    )


def grouped(work: Iterable[Event], key: Callable[[Event], str]) -> list[Usage]:
    """Sum up the work by day, feature or another key; most work first."""
    rows: dict[str, Usage] = {}
    for one in work:
        rows.setdefault(name := key(one), Usage(name)).add(one)
    return sorted(rows.values(), key=lambda row: (-row.iterations - row.exchanges, row.key))


def _moment(text: str | None) -> datetime | None:
    """Return the moment in local time; None if it is no time, as in some imported records."""
    try:
        return datetime.fromisoformat(text or "").astimezone()
    except (ValueError, OverflowError):
        return None


# -- Recalls.


def _recalls(ralph: Ralph, session: str | None = None) -> list[Activity]:
    """Return what hooks showed the model for a prompt or an error, and the loop in its prompts."""
    folder = hooks_folder(ralph.project.root, ralph.project.home)
    found = read_activity(folder, session, whole=True)
    return [one for one in found if one.shown and one.event != "session-start"]


def recalled_in(ralph: Ralph, exchange: Exchange) -> list[Activity]:
    """Return what hooks showed the model in one exchange of a session."""
    mine = (one for one in _recalls(ralph) if conversation_of(one) == exchange.conversation)
    return [one for one in mine if is_under_way(exchange, one.at)]


def told_in(ralph: Ralph, iteration: Iteration) -> list[Activity]:
    """Return what the loop showed the model in the prompt of an iteration."""
    found = _recalls(ralph, iteration.session_id) if iteration.session_id else []
    at = (iteration.timestamp or "")[:SECOND_CHARS]
    return [one for one in found if one.event.startswith(RUN) and one.at[:SECOND_CHARS] == at]


def recall_stats(ralph: Ralph, *, since: str | None, until: str | None) -> RecallStats:
    """Return how often hooks showed the model memories in these days, and what came next."""
    first, end = moments_between(since, until)
    hooks = (one for one in _recalls(ralph) if not one.event.startswith(RUN))
    recalls = [one for one in hooks if first <= one.at < end]
    exchanges: dict[str, list[Exchange]] = {}
    if recalls and ralph.conversations.exist:
        history = ralph.conversations.stream.history
        for name, state in history.conversations.items():
            if state.last >= first:
                held = history.read_exchanges([name])
                exchanges[name] = [one for one in held if first <= (one.completed or "") < end]
    found = _recall_stats(recalls, exchanges)
    if recalls and not ralph.remote:
        from ralph.memory.uses import read_silent, uses  # it reads this module

        followed = [use.used for use in uses(ralph, recalls) if use.used is not None]
        found.followed = len(followed)
        found.used = sum(followed)
        found.silent = len(read_silent(ralph.project))
    return found


def conversation_of(recall: Activity) -> str:
    """Return the conversation in which something was told."""
    source = BY_AGENT[recall.agent].source if recall.agent in BY_AGENT else recall.agent
    return conversation_id(source, recall.session)


def _recall_stats(recalls: list[Activity], exchanges: dict[str, list[Exchange]]) -> RecallStats:
    found = RecallStats(len(recalls), sum(len(one.shown) for one in recalls))
    given: dict[str, list[Activity]] = {}
    for one in recalls:
        held = exchanges.get(conversation_of(one), [])
        if exchange := next((e for e in reversed(held) if is_under_way(e, one.at)), None):
            given.setdefault(exchange.id, []).append(one)
    # Leave out exchanges from before the log: nobody counted the memories given then.
    since = min((one.at for one in recalls), default="9")
    for exchange in (one for held in exchanges.values() for one in held):
        mine = given.get(exchange.id, [])
        commands = [m for m in exchange.messages if m.tool.lower() in SHELLS]
        if not commands or (exchange.completed or "") < since:
            continue
        given_first = any(not one.after for one in mine)
        (found.first_with if given_first else found.first_without).add(commands[0])
        marks = {one.after for one in mine if one.after}
        for command, following in pairwise(commands):
            if command.failed:
                mark = command_mark(command.content) if marks else ""
                (found.retry_with if mark in marks else found.retry_without).add(following)
                marks.discard(mark)
    return found


def is_under_way(exchange: Exchange, text: str) -> bool:
    """Whether an exchange was under way at a time."""
    began, at, ended = map(_moment, (exchange.started, text, exchange.completed))
    if not (began and at and ended):
        return False
    return began - _CLOCKS_DIFFER <= at <= ended + _CLOCKS_DIFFER
