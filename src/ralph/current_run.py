"""The run of an agent that this process belongs to, from the environment that the loop sets.

A fence, not a wall: a program that drops these variables is taken for a person's. It imports next
to nothing, because every hook asks it first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

FEATURE = "RALPH_FEATURE"
TASK = "RALPH_TASK"
PROJECT = "RALPH_PROJECT"


class CurrentRun(NamedTuple):
    """What a run works on: in a planning run the feature is "", in a review the task.

    The feature is None where only the task is told.
    """

    feature: str | None
    task: str
    project: str


def current_run(environ: Mapping[str, str] | None = None) -> CurrentRun | None:
    """The run that this process was started in, None outside of any."""
    found = os.environ if environ is None else environ
    run = CurrentRun(found.get(FEATURE), found.get(TASK, ""), found.get(PROJECT, ""))
    return run if TASK in found or run.feature else None
