"""The plan as a hook reads it: what can be read, whatever state it is in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ralph.errors import BadInput
from ralph.plan.store import Plan
from ralph.plan.values import View

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call


def plan_view(call: Call) -> View:
    """Features and tasks; files that cannot be read are a line in the log, and there are none."""
    try:
        return Plan(Path(call.root)).read("features", "tasks")
    except (BadInput, OSError) as error:
        call.fault(error)
        return View()
