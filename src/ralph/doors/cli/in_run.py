"""The commands that an agent may call in its run; all others are refused.

An agent gets the memory and the plan of its feature, as over MCP. The table leaves out other
projects, the user's conversations, settings and keys, and the commands that direct agents.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from ralph.config import home_folder
from ralph.current_run import current_run
from ralph.doors.cli.context import the_plan
from ralph.doors.cli.main import project_given
from ralph.errors import BadInput
from ralph.memory.project import find_project


class Call(NamedTuple):
    """A command that a run may call; `but` lists the options that it may not use.

    `feature` is the parameter that must name the run's own feature, which is also its default.
    `task` is the parameter that must name a task of that feature.
    """

    but: tuple[str, ...] = ()
    feature: str = ""
    task: str = ""


_ANY = Call()
_OWN = Call(feature="feature")
_READING = dict.fromkeys(
    (
        *("feature list", "feature show", "task list", "task ready", "task show"),
        *("learning list", "discipline list", "discipline show", "plan check"),
    ),
    _ANY,
)
# Work on a task.
_WORK = _READING | {
    "search": Call(but=("conversations", "knowledge", "everywhere", "tags"), feature="feature"),
    "recent": Call(but=("everywhere",), feature="feature"),
    "log": Call(but=("everywhere",), feature="feature"),
    "remember": Call(but=("private", "replaces"), feature="feature"),
    "failures": Call(but=("everywhere",), feature="feature"),
    "files": _OWN,
    "blame": _ANY,  # shows records of the run's feature
    "show": Call(but=("everywhere",)),  # shows records of the run's feature
    "prompt": Call(task="task_id"),
    "feature update": Call(feature="key"),
    "task add": _OWN,
    "task update": Call(feature="feature", task="key"),
    "learning add": _OWN,
    "learning remove": _OWN,
}
# A review of a feature: only it says that what others wrote holds (F10, F27).
_REVIEW = _WORK | {"learning review": _OWN}
# A planning run works on a copy of the plan, and the user reviews it before it is accepted.
_PLANNING = _READING | {
    "feature add": _ANY,
    "feature update": _ANY,
    "task add": _ANY,
    "task update": _ANY,
}


def check(context: click.Context) -> None:
    """Raise if an agent in its run may not make this call."""
    run = current_run()
    assert run is not None
    words = context.command_path.partition(" ")[2]
    if run.feature == "":
        table = _PLANNING
    elif run.on_task:
        table = _WORK
    else:
        table = _REVIEW
    call = table.get(words)
    if call is None:
        what = " while it works on a task" if words in _REVIEW else ""
        raise _refused(f"may not call `ralph {words}`{what}")
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in call.but and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise _refused(f"may not call `ralph {words} {parameter.opts[0]}`")
    if (named := project_given()) is not None:
        home = home_folder()
        wanted = find_project(Path(named).expanduser(), home=home)
        own = find_project(Path(run.project) if run.project else Path.cwd(), home=home)
        if wanted is None or own is None or wanted.root != own.root:
            raise _refused(f"may not use {named}, which is not its project")
    feature = run.feature
    if call.feature and feature:
        given = context.params.get(call.feature)
        if given is None and words != "task update":
            context.params[call.feature] = feature
        elif given is not None and given != feature:
            raise _refused(f"works on {feature!r}, not on {given!r}")
    if call.task and feature:
        wanted_id = str(context.params[call.task])
        for task in the_plan().read("tasks").tasks:
            if str(task.id) == wanted_id and task.feature != feature:
                what = f"works on {feature!r}, and task {wanted_id} is of {task.feature!r}"
                raise _refused(what)


def _refused(why: str) -> BadInput:
    return BadInput(
        f"an agent in `ralph run` {why}",
        todo="It has the memory and the plan of its feature; a person can do the rest.",
    )
