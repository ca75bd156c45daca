"""Which learnings a prompt shows, and how: as observations with their provenance (F3, F25)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ralph.kinds.iteration import cut
from ralph.kinds.learning import TRUST, Learning
from ralph.plan.values import DEFAULT_LIMITS, Limits, TaskId
from ralph.text.sameness import compare, gist
from ralph.text.sanitise import sanitised_line


def is_stale(learning: Learning, current_iteration: int, limits: Limits = DEFAULT_LIMITS) -> bool:
    """An unreviewed learning of the extractor's that nothing has confirmed for long (F4)."""
    how_old = age(learning, current_iteration)
    return is_auto(learning) and how_old is not None and how_old > limits.stale_after


def conflicts(learnings: Sequence[Learning]) -> list[tuple[Learning, Learning]]:
    """Every pair that contradicts each other."""
    gists = [gist(learning.text) for learning in learnings]
    return [
        (learnings[i], learnings[j])
        for i in range(len(learnings))
        for j in range(i + 1, len(learnings))
        if compare(gists[i], gists[j]) == "conflict"
    ]


def top(
    learnings: Iterable[Learning], *, task_id: TaskId | None = None, limits: Limits = DEFAULT_LIMITS
) -> list[Learning]:
    """The ones a prompt shows for a task: reviewed first, then most seen, then most trusted.

    A learning of another task is not shown; one of the whole feature always is (F25).
    """
    fitting = [
        learning
        for learning in learnings
        if learning.task_id is None or str(learning.task_id) == str(task_id)
    ]
    fitting.sort(
        key=lambda x: (x.reviewed, x.hit_count, TRUST[x.source], x.iteration or 0), reverse=True
    )
    return fitting[: limits.learnings_in_prompt]


def prompt_lines(
    learnings: Sequence[Learning],
    *,
    current_iteration: int,
    task_id: TaskId | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> list[str]:
    """One line for each of the top ones: the text, where it came from, and what contradicts it."""
    against: dict[str, list[str]] = {}
    for one, other in conflicts(learnings):
        against.setdefault(one.text, []).append(other.text)
        against.setdefault(other.text, []).append(one.text)
    lines: list[str] = []
    for learning in top(learnings, task_id=task_id, limits=limits):
        stale = "[STALE] " if is_stale(learning, current_iteration, limits) else ""
        text = sanitised_line(learning.text)
        line = f"- {stale}{text} {provenance(learning)}"
        for rival in against.get(learning.text, ()):
            line += f" [conflicts with: {cut(sanitised_line(rival), 120)}]"
        lines.append(line)
    return lines


def provenance(learning: Learning) -> str:
    """Where a learning came from, as others may read it."""
    if isinstance(learning.task_id, str):
        clean = sanitised_line(learning.task_id)
        learning = msgspec.structs.replace(learning, task_id=clean)
    return learning.provenance


def is_auto(learning: Learning) -> bool:
    """Whether the extractor found it and nobody has looked at it since."""
    return learning.source == "auto" and not learning.reviewed


def age(learning: Learning, current_iteration: int) -> int | None:
    """How many iterations ago it was last seen; None when that was never noted."""
    seen = max(learning.last_seen or 0, learning.iteration or 0)
    return current_iteration - seen if seen else None
