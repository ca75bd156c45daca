"""Timeline: the work of each day, session by session."""

from __future__ import annotations

from typing import get_args

from starlette.responses import Response

from ralph.doors.web.page import PageCall, paged
from ralph.memory import timeline as history
from ralph.memory.session_days import session_days
from ralph.records.conversation import Status
from ralph.records.iteration import Outcome

OUTCOMES = (*get_args(Outcome), *(one for one in get_args(Status) if one not in get_args(Outcome)))


def timeline(call: PageCall) -> Response:
    """Show the iterations and exchanges that match the filters, by day and session."""
    query = call.query
    kind, outcome, feature = (query.get(name, "") for name in ("kind", "outcome", "feature"))
    found = history.events(
        call.memory,
        kinds=[kind] if kind in ("iteration", "exchange") else (),
        features=[feature] if feature else None,
        outcomes=[outcome] if outcome else (),
        text=query.get("text", ""),
        since=query.get("since") or None,
        until=query.get("until") or None,
        everywhere=call.everywhere,
        project=query.get("project", "") if call.everywhere else "",
    )
    rows, paging = paged(found, call.number)
    return call.page(
        "timeline.html",
        days=session_days(call.memory, rows, everywhere=call.everywhere),
        paging=paging,
        outcomes=OUTCOMES,
        features=[memory.name for memory in call.memory.features()],
        projects=_project_names(call),
    )


def _project_names(call: PageCall) -> list[str]:
    if not call.everywhere:
        return []
    counts = call.memory.conversations.other_projects()
    return sorted({call.site.name, *(count.project for count in counts)} - {""})
