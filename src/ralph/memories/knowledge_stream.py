"""Published knowledge as one stream: how it is cut for the index, and what a hit tells."""

from __future__ import annotations

from collections.abc import Sequence

from ralph.errors import BadRecord
from ralph.index import Embedder, Passage
from ralph.index.sync import Target
from ralph.kinds.knowledge import ENTRIES, Entry, knowledge_from
from ralph.memories.knowledge_intake import facet_values
from ralph.memories.ledger import Ledger
from ralph.memories.published import Published
from ralph.memories.series import when
from ralph.memories.shelf import Shelf
from ralph.recall import Found, Hit
from ralph.recall.patterns import case_of
from ralph.record import Record

NAME = "knowledge"
# The name the source documents gave it.
COLLECTION = "project_knowledge"
_CUT_VERSION = "knowledge-1"
_HEADING_CHARS = 300
_SOLUTION_CHARS = 1000


class KnowledgeShelf(Shelf):
    """The shelf of knowledge: the journals of all projects, read as one stream."""

    def names(self) -> set[str]:
        """The one stream, if there is anything."""
        return {NAME} if self.journals.names() else set()


class KnowledgeStream:
    """What every project has published."""

    name = NAME
    foreign = False

    def __init__(self, shelf: Shelf, ledger: Ledger) -> None:
        self._shelf = shelf
        self._ledger = ledger
        self._published = Published(ledger)

    def target(self, embedder: Embedder | None = None) -> Target:
        """What the index needs to know to follow what is published."""
        max_chars = self._shelf.settings.embedding_max_chars

        def cut(record: Record) -> Sequence[Passage]:
            return passages(record, max_chars)

        return Target(
            name=COLLECTION,
            stream=NAME,
            journal=self._published,
            cut=cut,
            cut_version=f"{_CUT_VERSION}-{max_chars}",
            embedder=embedder or self._shelf.embedder,
        )

    def records(self) -> list[Record]:
        """Every published record that is to be found."""
        history = self._ledger.history()
        return [
            record
            for account in self._ledger.accounts()
            for record in account.entries.values()
            if (slot := history.slots.get(record.id)) and history.tells(slot)
        ]

    def hits(self, found: Sequence[Found], last_number: int) -> list[Hit]:
        """What recall found, as an answer: entries."""
        return [
            Hit(
                id=one.record.id,
                kind=one.record.kind,
                score=one.score,
                relevance=one.relevance,
                when=when(one.record.at),
                why=one.why,
                record=knowledge_from(one.record),
                parts=one.parts,
            )
            for one in found
        ]


def passages(record: Record, max_chars: int) -> Sequence[Passage]:
    """An entry is found by its problem, and by its solution under the problem's first line.

    Of a solution its beginning counts: a whole patch has words of everything.
    """
    if record.kind not in ENTRIES:
        return ()
    try:
        entry: Entry = knowledge_from(record)
    except BadRecord:
        return ()
    both = case_of(entry)
    problem = f"{entry.subject}\n{both.problem}".strip()[:max_chars]
    first, _, rest = problem.partition("\n")
    solution = f"{first[:_HEADING_CHARS]}\n{both.solution[:_SOLUTION_CHARS]}"
    of = facets(entry)
    return [
        Passage(title=first, text=rest, embed=problem, facets=of),
        Passage(title="", text=solution, embed=solution, facets=of),
    ]


def facets(entry: Entry) -> dict[str, tuple[str, ...]]:
    """What an entry is of."""
    return {
        "entry_type": (entry.entry_type,),
        "agent_type": facet_values(entry.agent_type),
        "task_type": facet_values(entry.task_type),
        "technology": facet_values(entry.technology),
    }
