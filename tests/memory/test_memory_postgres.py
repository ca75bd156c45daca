"""Memory with its journals in PostgreSQL: the same calls, and an outage that stops nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from postgres import own_server
from remembering import ToyEmbedder, made, open_toy
from scaling import deliver

from ralph.errors import JournalDown
from ralph.journal.file import JournalFolder
from ralph.memory.ralph import Ralph
from ralph.memory.transfer import move
from ralph.records.conversation import Exchange


@pytest.fixture
def opened(project: Path, toy: ToyEmbedder) -> Callable[[str | None], Ralph]:
    return lambda url: open_toy(project, toy, journal_url=url)


def found(ralph: Ralph, query: str) -> list[str]:
    return [hit.record.summary for hit in ralph.feature("auth").search(query)]


def test_what_was_remembered_is_found_and_stands_in_no_file(
    database: str, project: Path, opened: Callable[[str | None], Ralph]
) -> None:
    with opened(database) as ralph:
        ralph.feature("auth").remember(made("validated the login form"))
        ralph.feature("auth").remember(made("rotated the session token"))
        conversation = ralph.conversations.start(title="Debug timeouts")
        ralph.conversations.exchange(conversation, user="why the timeout?", assistant="the pool")
        assert found(ralph, "login form validated") == ["validated the login form"]
        assert [one.name for one in ralph.features()] == ["auth"]
        assert len(ralph.conversations.search("why the timeout")) == 1
    with opened(database) as again:
        assert [hit.record.summary for hit in again.feature("auth").recent()] == [
            "rotated the session token",
            "validated the login form",
        ]
        gone = again.feature("auth").recent()[0]
        again.feature("auth").forget([gone.id])
        assert found(again, "session token rotated") == []
    assert JournalFolder(project / ".ralph/db/memory").names() == []


def test_a_project_moves_to_a_database_and_back_with_the_same_answers(
    database: str, opened: Callable[[str | None], Ralph]
) -> None:
    with opened(None) as files:
        for i in range(5):
            files.feature("auth").remember(made(f"step {i} of the login form"))
        before = found(files, "step of the login form")
        with opened(database) as server:
            (moved,) = move(files.store.journals, server.store.journals).streams
            assert moved.records == 5
            assert found(server, "step of the login form") == before
            server.feature("auth").remember(made("one more step of the login form"))
            after = found(server, "step of the login form")
            (moved,) = move(server.store.journals, files.store.journals).streams
            assert moved.fresh == 1
        assert found(files, "step of the login form") == after


@pytest.mark.slow
def test_an_outage_stops_neither_remembering_nor_finding(
    opened: Callable[[str | None], Ralph],
) -> None:
    with own_server() as server:
        with opened(server.url) as ralph:
            ralph.feature("auth").remember(made("validated the login form"))
            server.stop()
            kept = ralph.feature("auth").remember(made("rotated the session token"))
            assert (kept.fresh, kept.record.iteration_number) == (True, 2)
            answer = ralph.feature("auth").search("session token rotated")
            assert [hit.record.summary for hit in answer] == ["rotated the session token"]
            assert any(
                "cannot reach the journal server (127.0.0.1" in note for note in answer.notes
            )
            assert found(ralph, "login form validated") == ["validated the login form"]
            with pytest.raises(JournalDown):
                ralph.feature("auth").forget([kept.id])
        with opened(server.url) as newcomer:  # a process that starts meanwhile
            kept = newcomer.feature("auth").remember(made("drew the settings page"))
            assert kept.record.iteration_number == 3
            assert found(newcomer, "settings page drew") == ["drew the settings page"]
            newcomer.conversations.start(title="meanwhile")
        server.start()
        with opened(server.url) as later:
            assert deliver(later.store.journals) == 2
            assert deliver(later.conversations.store.journals) == 1
            assert [hit.record.iteration_number for hit in later.feature("auth").recent()] == [
                3,
                2,
                1,
            ]
            assert later.feature("auth").search("settings page drew").notes == ()
            assert later.feature("auth").verify() == (3, [])
            assert later.conversations.stream.verify() == (1, [])


def test_many_exchanges_without_a_time_are_kept_at_once(
    database: str, opened: Callable[[str | None], Ralph]
) -> None:
    with opened(database) as ralph:
        memory = ralph.conversations
        talk = memory.conversation(memory.start("Many"))
        told = [
            Exchange(id=f"{n:016x}", conversation=talk.id, user=f"question {n}") for n in range(300)
        ]
        memory.add(talk, told)
        assert {one.user for one in memory.exchanges(talk.id)} == {one.user for one in told}
