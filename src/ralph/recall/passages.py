"""How a record of each kind is cut into the passages that it is found by.

The index is loaded only when something is cut: the table of kinds is read by programs that need no
index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ralph.records import iteration as limits
from ralph.records.iteration import thoughts

if TYPE_CHECKING:
    from ralph.index import Passage
    from ralph.records import Record
    from ralph.records.conversation import Document, Exchange, Summary
    from ralph.records.iteration import Iteration
    from ralph.records.knowledge import Entry
    from ralph.records.learning import FeatureLearning, FeatureSnapshot

# How many thoughts of an iteration get their own passage, besides the first. One more passage has
# the rest.
_MOST_THOUGHTS = 12
_HEADING_CHARS = 300
_SOLUTION_CHARS = 1000


def whole(title: str, text: str) -> Sequence[Passage]:
    """Return a short record as one passage."""
    from ralph.index import Passage

    return [Passage(title=title, text=text, embed=f"{title}\n{text}".strip())]


def of_iteration(record: Record, iteration: Iteration) -> Sequence[Passage]:
    """Return a passage for each thought of an iteration, under its title."""
    from ralph.index import Passage

    title = iteration.task_title
    places = [file.path for file in iteration.files_touched]
    places += [error.file_path for error in iteration.errors if error.file_path]
    task: tuple[str, ...] = () if iteration.task_id is None else (str(iteration.task_id),)
    facets = {"type": (record.kind,), "outcome": (iteration.outcome,), "task_id": task}
    first, *others = thoughts(iteration) or [""]
    if len(others) > _MOST_THOUGHTS:
        others[_MOST_THOUGHTS:] = ["\n".join(others[_MOST_THOUGHTS:])]
    named = "\n".join(dict.fromkeys(places))
    return [
        Passage(
            title=title,
            text=text[: limits.EMBEDDING_CHARS],
            places="" if place else named,
            embed=f"{title}\n{text}".strip()[: limits.EMBEDDING_CHARS],
            facets=facets,
        )
        for place, text in enumerate([first, *others])
    ]


def of_exchange(record: Record, exchange: Exchange) -> Sequence[Passage]:
    """Return an exchange's passage; the question is the title, as it says what this is about.

    All words are indexed, but only the beginnings of question and answer are embedded.
    """
    from ralph.index import ASIDE, Passage

    asked = exchange.user[: limits.EMBEDDING_CHARS]
    rest = exchange.user[limits.EMBEDDING_CHARS :]
    embed = ASIDE.join(filter(None, (asked, exchange.assistant[: limits.EMBEDDING_CHARS])))
    if not embed:
        return ()
    beside = [text for error in exchange.errors for text in (error.message, error.resolution)]
    for decision in exchange.decisions:
        beside += [decision.description, decision.rationale]
    beside += [file.path for file in exchange.files_touched]
    text = "\n".join(part for part in beside if part)
    places = f"{exchange.assistant}\n{rest}".strip()
    return [Passage(title=asked, text=text, places=places, embed=embed)]


def of_summary(record: Record, summary: Summary) -> Sequence[Passage]:
    """Return a summary's passage, which repeats words of what it sums up."""
    from ralph.index import DERIVED, Passage

    return [Passage(title="", text=summary.text, embed=summary.text, facets=DERIVED)]


def of_document(record: Record, section: Document) -> Sequence[Passage]:
    """Return the passage of a document's section."""
    from ralph.index import Passage

    embed = f"{section.heading}\n{section.text}".strip()[: limits.EMBEDDING_CHARS]
    text = section.text[: limits.EMBEDDING_CHARS]
    return [Passage(title=section.heading, text=text, places=section.path, embed=embed)]


def of_learning(record: Record, learning: FeatureLearning) -> Sequence[Passage]:
    """Return the passage of a learning."""
    from ralph.index import Passage

    text = learning.text[: limits.EMBEDDING_CHARS]
    return [Passage(title="", text=text, embed=text, facets={"type": (record.kind,)})]


def of_feature(record: Record, feature: FeatureSnapshot) -> Sequence[Passage]:
    """Return the passage of a feature, which repeats words of its tasks."""
    from ralph.index import DERIVED, Passage

    text = feature.text[: limits.EMBEDDING_CHARS]
    facets = {"type": (record.kind,), **DERIVED}
    return [Passage(title=feature.feature, text=text, embed=text, facets=facets)]


def of_entry(record: Record, entry: Entry) -> Sequence[Passage]:
    """Return an entry's passages: its problem, and its solution under the problem's first line.

    Only the beginning of a solution is used: a whole patch has words about everything.
    """
    from ralph.index import Passage
    from ralph.recall.patterns import case_of
    from ralph.records.knowledge import facets

    case = case_of(entry)
    problem = f"{entry.subject}\n{case.problem}".strip()[: limits.EMBEDDING_CHARS]
    first, _, rest = problem.partition("\n")
    solution = f"{first[:_HEADING_CHARS]}\n{case.solution[:_SOLUTION_CHARS]}"
    of = facets(entry.agent_type, entry.task_type, entry.technology, entry.entry_type)
    return [
        Passage(first, rest, embed=problem, facets=of),
        Passage("", solution, embed=solution, facets=of),
    ]


def none(record: Record, content: Any) -> Sequence[Passage]:
    """Return nothing: a record of this kind is not found by itself."""
    return ()
