"""A Qdrant server that fails: told at once, nothing lost, and caught up with when it is back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import some
from qdrant import index_on, open_served
from qdrant_server import FAULTS, KEY, QdrantServer, running
from remembering import made, open_toy, summaries, topical

from ralph import disk
from ralph.errors import IndexOff
from ralph.index import CollectionSize
from ralph.index.qdrant import REST_S, QdrantConnection
from ralph.index.sync import is_current, live_of
from ralph.memory.ralph import Ralph
from ralph.memory.status import verify_index

QUESTION = "login form validation"
# Short, because a server that hangs is waited for; and long where it must answer, however busy
# the machine is.
HASTY_S, PATIENT_S = 0.2, 60.0
WRITES = r"^PUT .*/points$"
# What makes sense for an answer to a question: the others are about writing points.
ASKING = [one for one in FAULTS if one not in ("some", "unfinished")]


@pytest.fixture
def served(project: Path, server: QdrantServer) -> Iterator[Ralph]:
    with open_served(project, server.url, remember_budget_s=PATIENT_S) as opened:
        yield opened


@pytest.fixture
def hasty(project: Path, server: QdrantServer) -> Iterator[Ralph]:
    with open_served(project, server.url, remember_budget_s=HASTY_S) as opened:
        yield opened


@pytest.mark.parametrize("fault", ASKING)
def test_a_question_that_the_server_fails_is_answered_from_the_journal(
    served: Ralph, hasty: Ralph, server: QdrantServer, fault: str
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(20))
    auth.sync()
    before = auth.search(QUESTION)
    server.fail(fault)
    answer = hasty.feature("auth").search(QUESTION)
    [note] = answer.notes
    assert note.startswith("searched the journal by words alone: ")
    assert "Qdrant" in note
    assert server.url in note
    assert answer[0].id in {hit.id for hit in before}
    server.fail(None)
    again = auth.search(QUESTION)
    assert again.notes == ()
    assert [hit.id for hit in again] == [hit.id for hit in before]


@pytest.mark.parametrize("fault", [*FAULTS])
def test_a_write_that_fails_loses_nothing_and_is_repeated(
    served: Ralph,
    hasty: Ralph,
    server: QdrantServer,
    fault: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(3))
    auth.sync()
    [before] = served.store.index.collections()
    server.fail(fault, paths=WRITES)
    with caplog.at_level(logging.WARNING, "ralph"):
        hasty.feature("auth").remember_all(topical(40, start=3))
    assert "not indexed yet: " in caplog.text
    assert len(auth.records()) == 43
    server.fail(None)
    [after] = served.store.index.collections()
    assert after.position == before.position  # it moves when all of a batch is there
    assert auth.sync().complete
    assert verify_index(served).ok
    with served.store.index.store.state() as view:
        live = live_of(view, auth.target().name)
        assert live is not None
        assert view.size(live) == CollectionSize(43, 43, 0)


@pytest.mark.parametrize("request_number", some(range(1, 26, 3), every=4))
def test_a_sync_that_is_cut_off_at_any_request_goes_on(
    project: Path, server: QdrantServer, request_number: int
) -> None:
    with open_toy(project) as embedded:
        embedded.feature("auth").remember_all(topical(600))
    with open_served(project, server.url, remember_budget_s=PATIENT_S) as memory:
        auth = memory.feature("auth")
        seen = 0

        def cut_off(asked: object) -> None:
            nonlocal seen
            seen += 1
            if seen == request_number:
                server.fail("reset")

        server.after = cut_off
        with pytest.raises(IndexOff):
            auth.sync()
        server.after = lambda asked: None
        server.fail(None)
        memory.store.index.store.check()
        assert auth.sync().complete
        assert verify_index(memory).ok
        memory.store.index.prune()
    assert len(server.client.get_collections().collections) == 1


@pytest.mark.parametrize("fault", ["reset", "500", "half"])
def test_a_rebuild_that_fails_leaves_the_old_one_answering(
    served: Ralph, hasty: Ralph, server: QdrantServer, fault: str
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(30))
    auth.sync()
    before = auth.search(QUESTION)
    [old] = served.store.index.collections()
    server.fail(fault, paths=rf"^PUT .*(?<!{old.physical})/points$")
    with pytest.raises(IndexOff):
        hasty.feature("auth").sync(afresh=True)
    server.fail(None)
    with served.store.index.store.state() as view:
        live = live_of(view, auth.target().name)
    assert live is not None
    assert live.physical == old.physical
    assert auth.sync(afresh=True).complete
    assert [hit.id for hit in auth.search(QUESTION)] == [hit.id for hit in before]
    assert len(server.client.get_collections().collections) == 1


def test_a_server_that_failed_is_left_alone_for_a_while(hasty: Ralph, server: QdrantServer) -> None:
    auth = hasty.feature("auth")
    auth.remember_all(topical(5))
    server.fail("hang")
    auth.search(QUESTION)
    asked = len(server.requests)
    for n in range(5):
        assert auth.search(QUESTION).notes
        auth.remember(made(f"more of it {n}", session_id=f"more-{n}"))
    assert len(server.requests) == asked


def test_a_server_is_asked_again_after_a_while(server: QdrantServer) -> None:
    now = 100.0
    one = QdrantConnection(server.url, timeout_s=2.5)
    one.clock = lambda: now
    server.fail("500")
    with pytest.raises(IndexOff, match="500: Service internal error"):
        one.check()
    server.fail(None)
    now += REST_S - 1
    with pytest.raises(IndexOff, match="500: Service internal error"):
        one.ask("GET", "/collections", returns=dict[str, list[str]])
    now += 2
    answer = one.ask("GET", "/collections", returns=dict[str, list[str]])
    assert answer == {"collections": []}


def test_all_indexes_of_a_process_know_that_the_server_is_away(
    served: Ralph, server: QdrantServer
) -> None:
    served.feature("auth").remember_all(topical(5))
    talk = served.conversations.start("Login")
    served.conversations.exchange(talk, user="what of the login?", assistant="done")
    server.fail("reset")
    served.feature("auth").search(QUESTION)
    asked = len(server.requests)
    assert served.conversations.search("login").notes
    assert len(server.requests) == asked


def test_a_server_that_is_not_there_costs_no_record_and_says_so_once(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running() as gone:
        url = gone.url
    with open_served(project, url) as memory:
        with caplog.at_level(logging.WARNING, "ralph"):
            for n in range(3):
                memory.feature("auth").remember(made(f"login form {n}", session_id=str(n)))
        answer = memory.feature("auth").search("login form")
        assert sorted(summaries(answer)) == ["login form 0", "login form 1", "login form 2"]
    [line] = caplog.messages
    assert "Qdrant is not reachable" in line
    assert url in line
    assert "is not reachable" in answer.notes[0]


def test_a_server_that_comes_back_gets_what_it_missed(project: Path) -> None:
    with running() as first:
        with open_served(project, first.url) as memory:
            memory.feature("auth").remember_all(topical(5))
        port, client = first.port, first.client
    with open_served(project, f"http://127.0.0.1:{port}") as memory:
        memory.feature("auth").remember_all(topical(5, start=5))
        second = QdrantServer(port, client)
        try:
            memory.store.index.store.check()
            assert memory.feature("auth").search(QUESTION).notes == ()
            assert is_current(memory.store.index.store, memory.feature("auth").target())
        finally:
            second.close()


@pytest.mark.parametrize("version", ["1.9.7", "0.11.1"])
def test_an_old_server_is_told_with_what_to_do(
    served: Ralph, server: QdrantServer, version: str
) -> None:
    server.version = version
    served.feature("auth").remember(made("login form", session_id="1"))
    answer = served.feature("auth").search("login form")
    assert f"Qdrant is too old ({version}). Update it to 1.10 or newer" in answer.notes[0]
    assert len(answer) == 1
    assert server.asked("PUT") == []


def test_a_newer_server_is_fine(served: Ralph, server: QdrantServer) -> None:
    server.version = "2.0.0-dev"
    served.feature("auth").remember(made("login form", session_id="1"))
    assert served.feature("auth").search("login form").notes == ()


def test_something_else_that_answers_there_is_told(served: Ralph, server: QdrantServer) -> None:
    server.title = "elasticsearch"
    served.feature("auth").remember(made("login form", session_id="1"))
    [note] = served.feature("auth").search("login form").notes
    assert "is not what answers there" in note


def test_a_server_that_wants_a_key_says_which_setting(served: Ralph, server: QdrantServer) -> None:
    server.key = KEY
    served.feature("auth").remember(made("login form", session_id="1"))
    [note] = served.feature("auth").search("login form").notes
    assert "Qdrant asks for a key" in note
    assert "RALPH_QDRANT_API_KEY" in note


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("not a url", "has no usable URL"),
        ("ftp://127.0.0.1", "has no usable URL"),
        ("http://127.0.0.1:99999", "has no usable URL"),
        ("http://me:secret@127.0.0.1:6333", "has credentials in its URL"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_without_its_password(
    project: Path, url: str, told: str
) -> None:
    with open_served(project, url) as memory:
        memory.feature("auth").remember(made("login form", session_id="1"))
        [note] = memory.feature("auth").search("login form").notes
    assert told in note
    assert "secret" not in note


def test_a_key_that_is_no_key_is_told_without_showing_it(project: Path) -> None:
    with open_served(project, "http://127.0.0.1:6333", qdrant_api_key="line\nbreak") as memory:
        memory.feature("auth").remember(made("login form", session_id="1"))
        [note] = memory.feature("auth").search("login form").notes
    assert "cannot be sent such a key" in note
    assert "break" not in note


def test_while_another_process_builds_nothing_is_dropped(
    served: Ralph, server: QdrantServer
) -> None:
    auth = served.feature("auth")
    auth.remember_all(topical(10))
    auth.sync()
    index = served.store.index
    other = index_on(QdrantConnection(server.url), index.path.parent, "x", lock_timeout_s=0.0)
    with disk.lock(index.path.with_name("index.lock"), timeout_s=1.0):
        with pytest.raises(IndexOff, match="another process"):
            other.drop("name")
        assert other.prune() == []
