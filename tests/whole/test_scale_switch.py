"""A project goes from files and SQLite to PostgreSQL and Qdrant and back: the same answers, and
nothing lost."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commanding import Line
from qdrant import REAL_KEY, REAL_URL
from qdrant_server import running
from remembering import ToyEmbedder
from scaling import everything, filled, indexes_of, opened, questions, top_five

from ralph.journal.spool import SpooledJournals
from ralph.memory.project import Project


@pytest.fixture
def servers(database: str) -> Iterator[dict[str, Any]]:
    """The settings of both servers; the one of Qdrant is a real one where there is one."""
    if REAL_URL is not None:
        yield {"journal_url": database, "qdrant_url": REAL_URL, "qdrant_api_key": REAL_KEY}
        return
    with running() as qdrant:
        yield {"journal_url": database, "qdrant_url": qdrant.url}


def test_there_and_back_gives_the_same_top_five_for_fifty_questions_and_loses_nothing(
    project: Path,
    servers: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    ralph = Line(capsys, monkeypatch)
    toy = ToyEmbedder()
    assert len(questions()) == 50
    with opened(project, toy) as embedded:
        filled(embedded, each=70)
        before, records = top_five(embedded), everything(embedded)
    assert sum(map(len, records.values())) > 250
    assert all(before[n] for n in range(50))

    ralph.well("journal", "move", "--to", str(servers["journal_url"]), "--switch")
    with opened(project, toy, **servers) as served:
        assert isinstance(served.store.journals, SpooledJournals)
        assert served.store.index.store.title == "Qdrant"
        try:
            there = top_five(served)
            assert everything(served) == records
            # What is added there comes back too.
            served.feature("auth").remember_all(
                [{"summary": "one more thing", "timestamp": "2026-03-01T00:00:00Z"}]
            )
            grown = everything(served)
        finally:
            for index in indexes_of(served):
                index.delete()
    assert there == before

    back = ralph.well("journal", "move", "--to", "files", "--switch", "--json").json
    assert (back["fresh"], back["records"]) == (1, sum(map(len, grown.values())))
    again = len(toy.embedded)
    with opened(project, toy) as embedded:
        assert not isinstance(embedded.store.journals, SpooledJournals)
        assert everything(embedded) == grown
        for feature in embedded.features():
            assert feature.verify()[1] == []
        newcomer = embedded.feature("auth").recent(1)[0].id
        embedded.feature("auth").forget([newcomer])
        assert top_five(embedded) == before
    # What the embedded index had it still has: only the new record and the questions are embedded.
    assert len(toy.embedded) - again <= 1


def test_a_clone_on_another_machine_meets_the_same_memory(
    project: Path, tmp_path: Path, servers: dict[str, Any]
) -> None:
    with opened(project, **servers) as first:
        first.feature("auth").remember_all([{"summary": f"fact {uuid.uuid4().hex}"}])
        one = everything(first)
        clone = tmp_path / "elsewhere"
        Project(clone).init()
        name = ".ralph/db/metadata.yaml"
        (clone / name).write_bytes((project / name).read_bytes())
        with opened(clone, home=tmp_path / "other home", **servers) as second:
            assert everything(second) == one
            found = second.feature("auth").search("fact", min_score=0.0)
            assert [hit.id for hit in found] == [hit.id for hit in first.feature("auth").recent()]
        for index in indexes_of(first):
            index.delete()
