"""How well knowledge is found: each issue captured as a failure with its fix as the solution.

Asked by an issue's first line and by the discussion before its fix, through the memory and, beside
it, of the index alone: the same passages in the order in which the index gives their entries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.datasets_texts import Issue, read_issues
from bench.ground import Tell
from bench.ranking import DEPTH, Mean, first_of_each, means, measured
from ralph.kinds.knowledge import FailureSolution
from ralph.memories import open_ralph
from ralph.memories.knowledge import Knowledge
from ralph.recall.search import Question

_HEADLINE = ("recall@1", "recall@5", "recall@10", "MRR")
_PROJECT = "dataset"
_TELL_EVERY = 100


class Found(msgspec.Struct, frozen=True):
    """One way of asking: over how many questions, how well, and how often above the floor."""

    what: str
    questions: int
    means: dict[str, Mean]
    above_floor: float | None = None


def evaluate(
    file: Path,
    *,
    embedder: str = "static",
    limit: int | None = None,
    tell: Tell = lambda text: None,
) -> list[Found]:
    """Capture every issue of a file, publish them, and ask for each."""
    issues = read_issues(file)[:limit]
    with tempfile.TemporaryDirectory(prefix="ralph-bench-") as folder:
        place = Path(folder)
        with open_ralph(place / "project", home=place / "home", embedder=embedder) as ralph:
            memory = ralph.knowledge
            captured = memory.capture_all([_entry(one) for one in issues])
            done = memory.checkpoint(_PROJECT)
            tell(f"{len(issues)} issues published as {done.new_patterns} patterns")
            ids = {one.instance_id: kept.id for one, kept in zip(issues, captured, strict=True)}
            found: list[Found] = []
            for what, asked in (("title", _titles(issues)), ("discussion", _discussions(issues))):
                found += _asked(memory, what, [(q, ids[name]) for name, q in asked], tell)
    return found


def _asked(
    memory: Knowledge, what: str, asked: Sequence[tuple[str, str]], tell: Tell
) -> list[Found]:
    by_memory: list[dict[str, float]] = []
    by_index: list[dict[str, float]] = []
    above = 0
    floor = memory.shelf.settings.knowledge_task_min_score
    for number, (text, wanted) in enumerate(asked, 1):
        patterns = memory.query_for_task(text, max_results=DEPTH, min_score=0.0)
        right = [one for one in patterns if wanted in one.entries]
        by_memory.append(measured([one.id for one in patterns], {one.id for one in right} or {""}))
        above += any((one.score or 0.0) >= floor for one in right)
        hits = memory.shelf.ask([memory.stream], Question(text, DEPTH, 0.0))
        by_index.append(measured(first_of_each(hit.id for hit in hits), {wanted}))
        if number % _TELL_EVERY == 0:
            tell(f"{what}: {number} of {len(asked)} asked")
    if not asked:
        return []
    return [
        Found(f"by {what}", len(asked), means(by_memory), above / len(asked)),
        Found(f"by {what}, index alone", len(asked), means(by_index)),
    ]


def _entry(issue: Issue) -> FailureSolution:
    return FailureSolution(
        project=_PROJECT,
        failure_description=issue.problem_statement,
        solution_steps=issue.gold_patch,
    )


def _titles(issues: Sequence[Issue]) -> list[tuple[str, str]]:
    return [(one.instance_id, one.title) for one in issues if one.title]


def _discussions(issues: Sequence[Issue]) -> list[tuple[str, str]]:
    return [(one.instance_id, one.discussion) for one in issues if one.discussion]


def to_json(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Everything as JSON-like data."""
    plain: list[dict[str, Any]] = msgspec.to_builtins(found)
    return plain


def write_table(found: Sequence[Found], write: Callable[[str], object]) -> None:
    """One line a way of asking; the means and their 95 % intervals."""
    for one in found:
        told = [
            f"{name} {mean.mean:.3f} [{mean.low:.3f}-{mean.high:.3f}]"
            for name in _HEADLINE
            if (mean := one.means.get(name))
        ]
        if one.above_floor is not None:
            told.append(f"above the floor {one.above_floor:.3f}")
        write(f"{one.what:<26} {one.questions:>4} questions  {'  '.join(told)}\n")
