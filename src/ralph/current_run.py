"""The agent run that this process belongs to, from the environment that the loop sets.

This is a fence, not a wall: a program that drops these variables passes for a person's. The module
imports almost nothing, because every hook asks it first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

FEATURE = "RALPH_FEATURE"
TASK = "RALPH_TASK"
PROJECT = "RALPH_PROJECT"
STARTED = "RALPH_STARTED"


class CurrentRun(NamedTuple):
    """What a run works on. In a planning run the feature is "", in a review the task is "".

    The feature is None if the environment names only the task. `started` is when the run began; ""
    if that is not known.
    """

    feature: str | None
    task: str
    project: str
    started: str = ""

    @property
    def on_task(self) -> bool:
        """Whether the agent works on a task, so it may not review what others wrote."""
        return bool(self.task)


def current_run(environ: Mapping[str, str] | None = None) -> CurrentRun | None:
    """Return the run that this process was started in, or None outside any run."""
    found = os.environ if environ is None else environ
    run = CurrentRun(
        found.get(FEATURE), found.get(TASK, ""), found.get(PROJECT, ""), found.get(STARTED, "")
    )
    return run if TASK in found or run.feature else None
