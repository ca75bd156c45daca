"""What a summary of a long session tends to lose: decisions, commands, files and open ends.

Claude Code calls its hook before it writes the summary down. So what is told is what summaries lose
most, the exact words and results; if the summary is known, what it has is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ralph.capture.lasting import choice_in, deferred_in, rules_in
from ralph.records.conversation import Exchange
from ralph.records.iteration import Decision
from ralph.text.tokens import tokens

_MOST_RULES = 8
_MOST_COMMANDS = 6
_MOST_FILES = 12
_MOST_OPEN = 4
# The share of a sentence's words that a summary must have to say the same.
_SAYS_SAME = 0.8


class CommandResult(msgspec.Struct, frozen=True):
    """A check of the session and how it ended last; `error` is what it said if it failed."""

    command: str
    passed: bool
    error: str = ""


class SessionSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of a session until now; the newest first."""

    rules: tuple[str, ...] = ()
    commands: tuple[CommandResult, ...] = ()
    files: tuple[str, ...] = ()
    open_ends: tuple[str, ...] = ()


def session_so_far(exchanges: Sequence[Exchange], *, summary: str = "") -> SessionSoFar:
    """Return what matters of a session's exchanges, which are in time order.

    `summary` is the client's own summary, if it is known; what it has is left out.
    """
    said = set(tokens(summary))

    def new(sentences: Iterable[str]) -> Iterator[str]:
        for sentence in dict.fromkeys(sentences):
            words = set(tokens(sentence))
            if not (summary and len(words & said) >= _SAYS_SAME * len(words)):
                yield sentence

    decisions = [
        decision
        for exchange in reversed(exchanges)
        for decision in exchange.decisions
        if decision.source == "human"
    ]
    rules = new(rule for decision in decisions for rule in _rules(decision))
    deferred = new(one for decision in decisions for one in deferred_in(decision.description))
    files = dict.fromkeys(
        file.path
        for exchange in reversed(exchanges)
        for file in reversed(exchange.files_touched)
        if file.action != "read"
    )
    commands = [one for one in _commands(exchanges) if one.command not in summary]
    return SessionSoFar(
        rules=tuple(rules)[:_MOST_RULES],
        commands=tuple(commands)[:_MOST_COMMANDS],
        files=tuple(path for path in files if path not in summary)[:_MOST_FILES],
        open_ends=tuple(deferred)[:_MOST_OPEN],
    )


def _rules(decision: Decision) -> Iterator[str]:
    choice = choice_in(decision.description)
    if choice is not None:
        yield f"{choice[0]} -> {choice[1]}"
        return
    yield from rules_in(decision.description)


def _commands(exchanges: Sequence[Exchange]) -> Iterator[CommandResult]:
    """Yield each check of the session with its last result, those that failed first."""
    last: dict[str, CommandResult] = {}
    for exchange in exchanges:
        unsolved = [error.message for error in exchange.errors if not error.resolution]
        for check in exchange.checks:
            last.pop(check.command, None)
            error = unsolved[-1] if unsolved and not check.passed else ""
            last[check.command] = CommandResult(check.command, check.passed, error)
    newest = list(reversed(last.values()))
    yield from (one for one in newest if not one.passed)
    yield from (one for one in newest if one.passed)
