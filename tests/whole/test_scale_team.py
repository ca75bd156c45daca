"""Two machines on one database, as a team meets it: each sees the other and does it no harm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commanding import LOGIN, Line
from knowing import lesson
from postgres import Server
from qdrant_server import QdrantServer
from remembering import files_holding, made, summaries, topical
from scaling import deliver, opened


@pytest.fixture
def clone(project: Path, tmp_path: Path) -> Path:
    """The project as it lies on another machine: the same id, no cache."""
    with opened(project) as here:
        here.store.ensure()
    return Path(shutil.copytree(project, tmp_path / "elsewhere" / "project"))


def test_each_sees_what_the_other_remembers_and_numbers_are_given_out_once(
    project: Path, clone: Path, tmp_path: Path, database: str
) -> None:
    there = tmp_path / "other-home"
    with (
        opened(project, journal_url=database) as one,
        opened(clone, journal_url=database, home=there) as two,
    ):
        for n in range(3):
            one.feature("auth").remember(made(f"the first machine, step {n}"))
            two.feature("auth").remember(made(f"the second machine, step {n}"))
        told = one.feature("auth").recent(10)
        assert [hit.record.iteration_number for hit in told] == [6, 5, 4, 3, 2, 1]
        assert summaries(told) == summaries(two.feature("auth").recent(10))
        assert summaries(one.feature("auth").search("second machine"))[0].startswith("the second")
        held = one.conversations.start(title="Pools")
        one.conversations.exchange(held, user="why does the pool time out?", assistant="full")
        assert two.conversations.exchanges(held)[0].assistant == "full"
        one.knowledge.capture(lesson(0))
        one.knowledge.checkpoint(one.project.id, "manual")
        asked = two.knowledge.query_for_failure(lesson(0)["failure_description"])
        assert len(asked) == 1


def test_what_one_machine_forgets_is_gone_from_the_other_and_its_files(
    project: Path, clone: Path, tmp_path: Path, database: str
) -> None:
    there = tmp_path / "other-home"
    with (
        opened(project, journal_url=database) as one,
        opened(clone, journal_url=database, home=there) as two,
    ):
        kept = one.feature("auth").remember(made("the cellar door squeaks"))
        assert two.feature("auth").search("cellar door squeaks")
        one.feature("auth").forget([kept.id])
        assert two.feature("auth").search("cellar door squeaks") == []
        assert two.feature("auth").recent() == []
    assert files_holding(tmp_path, "cellar door") == []


def test_two_that_wrote_without_the_server_both_keep_what_they_wrote(
    project: Path, clone: Path, tmp_path: Path, server: Server
) -> None:
    homes = {project: tmp_path / "one", clone: tmp_path / "two"}
    for root, home in homes.items():
        with opened(root, journal_url=server.url, home=home) as ralph:
            ralph.feature("auth").remember(made(f"before, on {home.name}"))
            ralph.feature("auth").recent()
    server.stop()
    for root, home in homes.items():
        with opened(root, journal_url=server.url, home=home) as ralph:
            ralph.feature("auth").remember(made(f"meanwhile, on {home.name}", session_id=home.name))
    server.start()
    for root, home in homes.items():
        with opened(root, journal_url=server.url, home=home) as ralph:
            assert deliver(ralph.store.journals) == 1
    with opened(project, journal_url=server.url, home=tmp_path / "three") as ralph:
        told = ralph.feature("auth").recent()
        assert sorted(summaries(told)) == [
            "before, on one",
            "before, on two",
            "meanwhile, on one",
            "meanwhile, on two",
        ]
        assert ralph.feature("auth").verify() == (4, [])


def test_the_conversations_of_another_project_do_not_surface(
    project: Path, tmp_path: Path, database: str
) -> None:
    with opened(tmp_path / "another", journal_url=database) as other:
        other.store.ensure()
        held = other.conversations.start(title="Hangar")
        other.conversations.exchange(held, user="where is the zeppelin?", assistant="in its hangar")
        other.feature("auth").remember(made("the zeppelin is in its hangar"))
    with opened(project, journal_url=database, home=tmp_path / "other-home") as ralph:
        ralph.store.ensure()
        assert ralph.conversations.search("where is the zeppelin") == []
        assert ralph.conversations.list() == []
        assert ralph.feature("auth").search("zeppelin hangar") == []


# -- an index that machines share, while the journals are away


def test_pruning_without_the_journals_takes_no_other_machines_collections(
    ralph: Line,
    project: Path,
    tmp_path: Path,
    server: Server,
    qdrant: QdrantServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(project, journal_url=server.url, qdrant_url=qdrant.url) as one:
        one.feature("auth").remember_all(topical(3))
    before = {held.name for held in qdrant.client.get_collections().collections}
    assert before
    server.stop()
    monkeypatch.setenv("RALPH_HOME", str(tmp_path / "fresh"))  # a machine that has kept nothing
    monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
    monkeypatch.setenv("RALPH_QDRANT_URL", qdrant.url)
    told = ralph("index", "status", "--json").json
    assert ([held["orphan"] for held in told["collections"]], told["orphans"]) == ([None], [])
    said = ralph("index", "status").out
    assert "unknown" in said
    assert "prune" not in said
    ran = ralph("index", "prune")
    assert ran.code == 1
    assert "cannot reach" in ran.err
    assert {held.name for held in qdrant.client.get_collections().collections} == before


def test_an_index_is_not_compared_with_itself(
    ralph: Line, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
    ralph.well("record", "--feature", "auth", "-", stdin=json.dumps(LOGIN))
    ralph.well("search", "login form")
    assert ralph.well("index", "verify").out == "1 record of the journal is indexed.\n"
    server.stop()
    ran = ralph("index", "verify")
    assert (ran.code, ran.out) == (1, "")
    assert "cannot reach" in ran.err
