"""PostToolUseFailure: the error is noted, and if it was met before the model is told how it ended.

Noted in the session's note, redacted, at once: the exchange it belongs to cannot be written before
it is over, and a client that is killed may not have written the failure to its transcript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ralph.clients.claude_code import tool_errors
from ralph.doors.hooks.call import MOST_CHARS
from ralph.doors.hooks.context import opened, settings_of
from ralph.loop.environment import agent_environment, own_command
from ralph.memory.lessons import Solved, solved
from ralph.prompt.recalled import before_text

if TYPE_CHECKING:
    from ralph.current_run import CurrentRun
    from ralph.doors.hooks.call import HookCall
    from ralph.records.iteration import ErrorSeen


_LOOKED_UP = 3
_FOR_INDEX = 0.2


def answer(call: HookCall, run: CurrentRun | None) -> str:
    """What memory knows of the error, or nothing; in a run, what its feature's memory knows."""
    settings = settings_of(call)
    if call.given.get("is_interrupt") is True:
        return ""
    errors = _errors(call)
    if not errors:
        return ""
    if settings.hook_capture and run is None:
        for error in errors:
            call.sessions.met(call.session, call.transcript, {"message": error.message})
    if not settings.hook_inject:
        return ""
    found = _known(call, errors, None if run is None else run.feature)
    # What was said once in a session the model knows; with a prompt it was said as something else.
    told = f"error {found.id}" if found else ""
    if found is None or told in call.sessions.read(call.session).told:
        return ""
    if run is None:
        call.sessions.tell(call.session, [told])
    return before_text(
        **msgspec.structs.asdict(found),
        command=own_command(agent_environment()),
        budget_tokens=settings.hook_prompt_tokens,
        max_chars=MOST_CHARS,
    )


def _known(call: HookCall, errors: tuple[ErrorSeen, ...], feature: str | None) -> Solved | None:
    """The first of the errors that was solved before, else the first that was met."""
    met: Solved | None = None
    with opened(call) as ralph:
        for error in errors[:_LOOKED_UP]:
            budget_s = call.watch.left_s() * _FOR_INDEX
            found = solved(
                ralph, error.message, session=call.session, feature=feature, budget_s=budget_s
            )
            if found is not None and found.solution:
                return found
            met = met or found
    return met


def _errors(call: HookCall) -> tuple[ErrorSeen, ...]:
    return tool_errors(
        call.text("tool_name"),
        call.given.get("tool_input"),
        call.text("error"),
        root=call.root,
        cwd=call.text("cwd") or None,
    )
