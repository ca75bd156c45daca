"""Which tools a server has in which mode."""

from __future__ import annotations

from collections.abc import Sequence

from ralph.doors.mcp import tools_memory, tools_plan, tools_record
from ralph.doors.mcp.context import ServerContext
from ralph.doors.mcp.tool import Tool


def tools_for(desk: ServerContext) -> Sequence[Tool]:
    """The tools of this server; in a folder that is no project, a person's own work gets none."""
    options = desk.options
    if options.mode == "planning":
        return tools_plan.TOOLS
    if options.mode == "conversations":
        return tools_memory.CONVERSATION_TOOLS
    if options.mode == "focus":
        if desk.find_project() is None:
            return ()
        return (*tools_memory.TOOLS, *tools_record.TOOLS, *tools_memory.CONVERSATION_TOOLS)
    recall = tools_memory.TOOLS if options.memory else ()
    review = tools_plan.REVIEW_TOOLS if options.review else ()
    return (*recall, *tools_record.TOOLS, *review)
