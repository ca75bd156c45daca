"""Which tools a server has in which mode."""

from __future__ import annotations

from collections.abc import Sequence

from ralph.doors.mcp import conversing, planning, recalling, reviewing, writing
from ralph.doors.mcp.desk import Desk
from ralph.doors.mcp.tool import Tool


def tools_for(desk: Desk) -> Sequence[Tool]:
    """The tools of this server; in a folder that is no project, a person's own work gets none."""
    options = desk.options
    if options.mode == "planning":
        return planning.TOOLS
    if options.mode == "conversations":
        return conversing.TOOLS
    if options.mode == "focus":
        if desk.find_project() is None:
            return ()
        return (*recalling.TOOLS, *writing.TOOLS, *conversing.TOOLS)
    recall = recalling.TOOLS if options.memory else ()
    review = reviewing.TOOLS if options.review else ()
    return (*recall, *writing.TOOLS, *review)
