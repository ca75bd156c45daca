"""Drafts of learnings: what an iteration teaches its own project.

They are few, each with its evidence: an error if the run itself proves what solved it, and a
person's words if they hold beyond the session. Nothing is guessed from a summary, so most
iterations give none.
"""

from __future__ import annotations

from collections.abc import Iterator

from ralph.capture.decisions import SAID_WHEN_REFUSING
from ralph.capture.lasting import choice_in, deferred_in, rules_in
from ralph.capture.rules import pattern
from ralph.plan.model import Limits
from ralph.records.iteration import ErrorSeen, Iteration, cut
from ralph.records.learning import Learning

_MOST_DRAFTS = 3
_ERROR_CHARS = 160
_FIX_CHARS = 300
# A tool the agent must not use teaches nothing about the feature.
_NO_LESSON = frozenset({"permission"})
# A slip that was fixed at once teaches nothing, either.
_SLIPS = frozenset({"compile", "lint"})
# An error in the code is gone once the code is edited.
_IN_CODE = _SLIPS | {"test"}


def drafts_of(newest: Iteration) -> list[Learning]:
    """Return the learnings in an iteration: a person's rules, and errors proven solved."""
    if newest.outcome not in ("success", "partial"):
        return []
    number = newest.iteration_number
    drafts = list[Learning]()
    for rule in _rules_of(newest):
        reason = f"said by the user in iteration {number}"
        drafts.append(Learning(text=rule, source="human", reason=reason, iteration=number))
    for error in sorted(newest.errors, key=lambda one: -one.count):
        if _teaches(error):
            drafts.append(_draft_of(error, newest))
    return drafts[:_MOST_DRAFTS]


def _rules_of(newest: Iteration) -> Iterator[str]:
    """Yield what a person's words set for later: rules, choices, and what must be undone."""
    for decision in newest.decisions:
        if decision.source != "human":
            continue
        text = decision.description
        if choice := choice_in(text):
            yield cut(" -> ".join(choice), Limits.learning)
            continue
        why = f" ({decision.rationale})" if decision.rationale else ""
        rules = list(dict.fromkeys([*rules_in(text), *deferred_in(text)]))
        if not rules and why.startswith(f" ({SAID_WHEN_REFUSING}"):
            rules = [text]
        if rules:
            yield cut(" ".join(f"{' '.join(rules)}{why}".split()), Limits.learning)


def _teaches(error: ErrorSeen) -> bool:
    """Whether the solution of an error helps when the error comes again.

    An edit of code that did not compile or pass its test does not: that code is right now.
    """
    if not error.resolution or error.error_type in _NO_LESSON:
        return False
    if pattern("no message").match(error.message):
        return False
    if pattern("edited").match(error.resolution):
        return error.error_type not in _IN_CODE
    return error.count > 1 or error.error_type not in _SLIPS


def _draft_of(error: ErrorSeen, newest: Iteration) -> Learning:
    message = cut(" ".join(error.message.split()), _ERROR_CHARS)
    place = f" ({error.file_path})" if error.file_path and error.file_path not in message else ""
    often = f" {error.count} times" if error.count > 1 else ""
    number = newest.iteration_number
    return Learning(
        text=f"{message}{place}: {cut(error.resolution or '', _FIX_CHARS)}",
        source="auto",
        reason=f"error met{often} and solved in iteration {number}",
        iteration=number,
    )
