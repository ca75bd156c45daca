"""What an iteration came to, by comparing its task before and after."""

from __future__ import annotations

from ralph.kinds.iteration import Outcome
from ralph.plan.model import Task

# Not done, but no longer as it was: begun, or said to be impossible or needless for now.
_MOVED = ("in_progress", "blocked", "skipped")


def judge(
    before: Task | None, after: Task | None, *, timed_out: bool, rate_limited: bool
) -> Outcome:
    """Done is success; begun or commented on is partial; unchanged is failure.

    A task that got done counts as done even when the clock ran out right after.
    """
    if before is None or after is None:
        return "timeout" if timed_out else "rate_limited" if rate_limited else "unknown"
    if after.status == "done" and before.status != "done":
        return "success"
    if timed_out:
        return "timeout"
    if rate_limited:
        return "rate_limited"
    if after.status in _MOVED and after.status != before.status:
        return "partial"
    if any(comment not in before.comments for comment in after.comments):
        return "partial"
    return "failure"
