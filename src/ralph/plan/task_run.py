"""What the agent of a task run may change through Ralph's own calls.

The guard keeps agents from destroying the plan by editing its files. These are the same rules for
the command line and MCP: what takes away from others needs a review run or a person (F1, F10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ralph.plan.fields import Patch, clean_priority
from ralph.plan.judge import ASSIGNMENT, PROSE, loss_of_text
from ralph.plan.learnings import refused_in_task
from ralph.plan.model import DEFAULT_PRIORITY, Data, Feature, Task


def check_feature_patch(feature: Feature, patch: Patch) -> None:
    """Raise if the patch empties the feature's prose, or leaves only a stub of it."""
    for field in PROSE:
        before = getattr(feature, field)
        if field not in patch or not before:
            continue
        if why := loss_of_text(patch[field], before):
            raise refused_in_task(f"change the {field} of {feature.name!r} like this: {why}")


def check_task_patch(task: Task, patch: Patch) -> None:
    """Raise if the patch changes what the task asks for; empty fields may be filled."""
    for field in ASSIGNMENT:
        before: Any = getattr(task, field)
        is_filled = before != DEFAULT_PRIORITY if field == "priority" else bool(before)
        if field in patch and is_filled and not _same(field, patch[field], before):
            raise refused_in_task(f"change the {field} of task {task.id}, which says what to do")


def files_of_agent(feature: Feature, paths: Sequence[str]) -> list[Data]:
    """Return an agent's list of context files: a person's stay, and new ones are not a person's."""
    source = {file.path: file.source for file in feature.context_files}
    persons = [path for path, whose in source.items() if whose == "human" and path not in paths]
    wanted = dict.fromkeys([*persons, *paths])
    return [{"path": path, "source": source.get(path, "auto")} for path in wanted]


def _same(field: str, new: Any, before: Any) -> bool:
    if field == "priority":
        return new is not None and clean_priority(new) == before
    if field == "acceptance_criteria":
        return list(new or ()) == list(before)
    return bool(new == before)
