"""The agent run that this process belongs to, from the environment that the loop sets.

This is a fence, not a wall. On Linux, a command whose variables were dropped or changed is still
known by the processes above it; elsewhere it passes for a person's. The module imports almost
nothing, because every hook asks it first.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

FEATURE = "RALPH_FEATURE"
TASK = "RALPH_TASK"
PROJECT = "RALPH_PROJECT"
STARTED = "RALPH_STARTED"
_VARIABLES = (FEATURE, TASK, PROJECT, STARTED)
_MOST_PARENTS = 64


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


def restore_run(environ: MutableMapping[str, str]) -> None:
    """Set the variables again with which the loop started the agent above this process, if any.

    An agent could drop them to pass for a person, or empty the task to pass for a review.
    """
    if (started_with := _run_above()) is None:
        return
    for name in _VARIABLES:
        if name in started_with:
            environ[name] = started_with[name]
        else:
            environ.pop(name, None)


def refuse_agent(what: str) -> None:
    """Raise if this process belongs to the agent of a run, also by its parents (F1).

    What destroys memory asks this itself, because a script may call it without the command line.
    """
    if agents_run() is None:
        return
    from ralph.errors import BadInput  # most hooks never need it

    raise BadInput(
        f"an agent in `ralph run` may not {what}",
        todo="It has the memory and the plan of its feature; a person can do the rest.",
    )


def feature_of_agent() -> str:
    """Return the feature whose agent this process belongs to, also by its parents; else ""."""
    run = agents_run()
    return (run.feature if run else None) or ""


def agents_run() -> CurrentRun | None:
    """Return the run whose agent this process belongs to, also by its parents."""
    variables = _run_above()
    return current_run(os.environ if variables is None else variables)


@functools.cache
def _run_above() -> dict[str, str] | None:
    """Return the variables of the outermost process above this one that belongs to a run.

    That is the keeper of the agent, which also adopts processes whose parents have ended. A process
    cannot change the environment that others read here, which it was started with.
    """
    if sys.platform != "linux":
        return None
    found: dict[str, str] | None = None
    pid = os.getppid()
    for _ in range(_MOST_PARENTS):
        if pid <= 1:
            break
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - needs no pathlib
                # The second field is the name in brackets, and may contain spaces and brackets.
                parent = int(file.read().rpartition(b")")[2].split()[1])
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                pairs = file.read().decode("utf-8", "surrogateescape").split("\0")
        except OSError:  # another user's process, or one that has just ended
            break
        variables = dict(pair.split("=", 1) for pair in pairs if pair.startswith("RALPH_"))
        if TASK in variables:
            found = {name: variables[name] for name in _VARIABLES if name in variables}
        pid = parent
    return found
