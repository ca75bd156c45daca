"""What the tests of memory on servers share: a project with all three memories, and questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from knowing import LESSONS, many
from remembering import TOPICS, ToyEmbedder, marker, open_toy, topical

from ralph.index.sync import Index
from ralph.journal import Journals
from ralph.memory.ralph import Ralph
from ralph.memory.store import on_server

FEATURES = ("auth", "billing")


def opened(project: Path, toy: ToyEmbedder | None = None, **settings: Any) -> Ralph:
    """The project with a toy embedder, its servers as told."""
    return open_toy(project, toy, **settings)


def filled(ralph: Ralph, *, each: int) -> None:
    """Put so many records into each feature, the conversations and the knowledge."""
    for place, name in enumerate(FEATURES):
        ralph.feature(name).remember_all(topical(each, start=place * each))
    talk = ralph.conversations
    for n in range(each // 10):
        held = talk.start(title=f"About {TOPICS[n % len(TOPICS)]}")
        for i in range(9):
            told = marker(n * 9 + i)
            talk.exchange(held, user=f"{TOPICS[i % len(TOPICS)]}: why {told}?", assistant=told * 2)
    ralph.knowledge.capture_all(many(each, project=ralph.project.id))
    ralph.knowledge.checkpoint(ralph.project.id, "manual")
    ralph.knowledge.capture_all(many(3, project=ralph.project.id, start=9000))


def questions() -> list[tuple[str, str]]:
    """Fifty: of the features together, of the conversations, of what was learned."""
    asked = [("features", f"{topic}") for topic in TOPICS[:10]]
    asked += [("features", f"{TOPICS[n % len(TOPICS)]} {marker(n)}") for n in range(3, 40, 4)]
    asked += [("conversations", f"why {topic}") for topic in TOPICS[:8]]
    asked += [("conversations", f"{TOPICS[n]} {marker(n)}") for n in range(2, 9)]
    asked += [("knowledge", lesson[0]) for lesson in LESSONS[:8]]
    asked += [("knowledge", f"{LESSONS[n][0]}: {marker(n)}") for n in range(7)]
    return asked


def top_five(ralph: Ralph) -> list[list[tuple[str, float | None]]]:
    """What is answered to each question: ids and scores of the best five, in their order."""
    answers: list[list[tuple[str, float | None]]] = []
    for memory, text in questions():
        if memory == "features":
            found = [(hit.id, hit.score) for hit in ralph.search(text, limit=5, min_score=0.0)]
        elif memory == "conversations":
            found = [(hit.id, hit.score) for hit in ralph.conversations.search(text, limit=5)]
        else:
            query = ralph.knowledge.query_for_task(text, max_results=5, min_score=0.0)
            found = [(one.id, one.score) for one in query]
        answers.append(found)
    return answers


def journals_of(ralph: Ralph) -> list[Journals]:
    """The journals of the three memories."""
    stores = (ralph.store, ralph.conversations.store, ralph.knowledge.store)
    return [store.journals for store in stores]


def indexes_of(ralph: Ralph) -> list[Index]:
    """The indexes of the three memories."""
    return [ralph.store.index, ralph.conversations.store.index, ralph.knowledge.store.index]


def everything(ralph: Ralph) -> dict[str, list[tuple[str, str, int, str, bytes]]]:
    """Every record of every journal, by memory and stream, in its order."""
    return {
        f"{place} {name}": [
            (one.record.id, one.record.kind, one.record.number, one.record.at, one.record.body)
            for one in journals.journal(name).read().records
        ]
        for place, journals in enumerate(journals_of(ralph))
        for name in journals.names()
    }


def deliver(journals: Journals) -> int:
    """Hand over what waits for the server of these journals."""
    server = on_server(journals)
    assert server is not None
    return server.deliver()
