"""What a task that got done at last teaches other projects: the errors that stood in its way,
each with what solved it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ralph.kinds.iteration import TRUNCATED, ErrorSeen, Iteration, Outcome, cut
from ralph.kinds.knowledge import FailureSolution
from ralph.memories.portable import portable
from ralph.memories.solved import same_error, tells
from ralph.text.sentences import sentences
from ralph.text.signature import signature

MOST = 3
_SENTENCES = 2
_TOLD_CHARS = 500
_SHORTEST = 8
# Tried without success. Where the provider refused, nothing was tried.
_NOT_YET: frozenset[Outcome] = frozenset({"failure", "timeout", "partial"})
# A tool that an agent may not use says nothing about the work.
_NO_LESSON = frozenset({"permission"})


class _Met(msgspec.Struct):
    """An error, by its signature, and the attempts that met it, oldest first."""

    name: str
    seen: list[tuple[Iteration, ErrorSeen]]


def lessons(
    told: Sequence[Iteration],
    success: Iteration,
    *,
    project: str,
    technology: str | None = None,
) -> list[FailureSolution]:
    """The failures that this success has solved, those met most often first, at most three.

    `told` are the iterations of its feature in their order. What kind of agent it was is left out:
    a discipline's name is a project's own, and an entry without one fits every agent.
    """
    if success.outcome != "success":
        return []
    open_still = [signature(e.message) for e in success.errors if not e.resolution]
    found: list[FailureSolution] = []
    for met in _most_often(_met(told, success)):
        solution = _resolution(met, success) or _told(success)
        if solution and not any(same_error(met.name, one) for one in open_still):
            attempt, error = met.seen[-1]
            found.append(
                FailureSolution(
                    project=project,
                    technology=technology or "",
                    subject=success.task_title,
                    failure_description=_description(attempt),
                    error_message=error.message,
                    solution_steps=solution,
                )
            )
    return found[:MOST]


def taught_by(entry: FailureSolution, iteration: Iteration, root: Path) -> bool:
    """Whether a lesson tells what this iteration met, tried or did."""
    whole = FailureSolution(
        project=entry.project,
        failure_description=_description(iteration),
        error_message="\n".join(error.message for error in iteration.errors),
        solution_steps="\n".join([_told(iteration), *_resolutions(iteration)]),
    )
    made = portable(whole, root)
    return (
        _same(entry.failure_description, made.failure_description)
        or _within(entry.error_message, made.error_message)
        or _within(entry.solution_steps, made.solution_steps)
    )


def _resolutions(iteration: Iteration) -> list[str]:
    return [error.resolution for error in iteration.errors if error.resolution]


def _same(one: str, other: str) -> bool:
    plain = _plain(one)
    return len(plain) >= _SHORTEST and _plain(other).startswith(plain)


def _within(one: str, whole: str) -> bool:
    plain = _plain(one)
    return len(plain) >= _SHORTEST and plain in _plain(whole)


def _plain(text: str) -> str:
    return " ".join(text.removesuffix(TRUNCATED).split())


def _met(told: Sequence[Iteration], success: Iteration) -> list[_Met]:
    found: list[_Met] = []
    for attempt in _attempts(told, success):
        for error in attempt.errors:
            name = signature(error.message)
            if error.error_type in _NO_LESSON or not tells(name):
                continue
            known = next((one for one in found if same_error(one.name, name)), None)
            if known is None:
                known = _Met(name, [])
                found.append(known)
            known.seen.append((attempt, error))
    return found


def _attempts(told: Sequence[Iteration], success: Iteration) -> Iterator[Iteration]:
    """What was tried before on the same task, since it was done the last time if it ever was."""
    tried: list[Iteration] = []
    for one in told:
        if str(one.task_id) != str(success.task_id) or not _is_before(one, success):
            continue
        if one.outcome == "success":
            tried = []
        elif one.outcome in _NOT_YET:
            tried.append(one)
    yield from tried


def _is_before(one: Iteration, other: Iteration) -> bool:
    return (one.iteration_number or 0) < (other.iteration_number or 0)


def _most_often(met: list[_Met]) -> list[_Met]:
    def place(one: _Met) -> tuple[int, int]:
        numbers = [attempt.iteration_number or 0 for attempt, _ in one.seen]
        return -len(set(numbers)), -max(numbers)

    return sorted(met, key=place)


def _resolution(met: _Met, success: Iteration) -> str:
    """How the error was solved where a run shows it itself, the success before the others."""
    again = [e for e in success.errors if same_error(signature(e.message), met.name)]
    candidates = [*again, *(error for _, error in reversed(met.seen))]
    return next((error.resolution for error in candidates if error.resolution), "")


def _told(success: Iteration) -> str:
    """What the iteration that succeeded says it did, and what it decided."""
    decisions = [
        f"{one.description}: {one.rationale}" if one.rationale else one.description
        for one in success.decisions
    ]
    return "\n".join(part.strip() for part in (success.summary, *decisions) if part.strip())


def _description(attempt: Iteration) -> str:
    """What was being done, and in a sentence or two what came of it."""
    said = " ".join(sentences(" ".join(attempt.summary.split()))[:_SENTENCES])
    parts = [part for part in (attempt.task_title.strip(), cut(said, _TOLD_CHARS)) if part]
    return ": ".join(parts) or f"An attempt that ended in {attempt.outcome}"
