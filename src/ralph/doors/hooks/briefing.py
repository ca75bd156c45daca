"""Making the text that a session begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph.agents.environment import agent_environment, own_command
from ralph.doors.hooks.call import MOST_CHARS
from ralph.doors.hooks.opening import focus_of
from ralph.doors.hooks.planned import plan_view
from ralph.loop.gather import repeated_errors
from ralph.memories.brief import brief
from ralph.prompt.brief import brief_text

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call
    from ralph.memories.ralph import Ralph

_OUTCOMES = 5


def text_now(call: Call, ralph: Ralph) -> str:
    """What matters in the project now, or nothing where nothing was planned or done yet."""
    settings = ralph.config.settings
    if not settings.hook_inject:
        return ""
    now = brief(ralph, plan_view(call), focus_of(call, ralph))
    if now is None:
        return ""
    return brief_text(
        feature=now.feature,
        chosen=now.chosen,
        current_state=now.current_state,
        tasks=now.tasks,
        outcomes=now.told[: -_OUTCOMES - 1 : -1],
        learnings=now.learnings,
        repeated=repeated_errors(now.told, settings.warnings_in_prompt),
        command=own_command(agent_environment()),
        budget_tokens=settings.hook_session_tokens,
        max_chars=MOST_CHARS,
    )
