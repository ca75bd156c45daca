"""The plan as a hook reads it: what can be read, whatever state it is in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ralph.disk import state_folder
from ralph.errors import BadInput
from ralph.plan.model import PlanView
from ralph.plan.store import Plan

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call


def plan_view(call: Call) -> PlanView:
    """Features and tasks; files that cannot be read are a line in the log, and there are none."""
    try:
        state = Path(state_folder(call.root, call.home))
        return Plan(Path(call.root), state=state).read("features", "tasks")
    except (BadInput, OSError) as error:
        call.fault(error)
        return PlanView()
