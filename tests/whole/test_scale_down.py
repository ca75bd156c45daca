"""The servers are away: everything goes on, quickly, says so, and is made up for later."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chatting import talking
from commanding import LOGIN, Line, process
from hooking import Session, log
from knowing import lesson
from looping import DONE, Loop, planned, scripted
from postgres import PASSWORD, Server
from qdrant_server import QdrantServer
from remembering import made, summaries, topical
from scaling import deliver, everything, journals_of, opened

from ralph.chat.model import EchoModel
from ralph.doors.cli.context import _records
from ralph.errors import JournalDown
from ralph.journal.session import RETRY_AFTER_S
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.transfer import waiting_records

# A slow machine is no failure.
UNHURRIED = {"RALPH_HOOK_TIMEOUT_S": "30"}
LOGGED = "memory: cannot reach the journal server"


class Deaf:
    """Takes connections and never says a word; tells how many came."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._came: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def came(self) -> int:
        return len(self._came)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._came.append(self._listening.accept()[0])

    def close(self) -> None:
        self._listening.close()
        for one in self._came:
            one.close()


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    one = Deaf()
    yield one
    one.close()


def taught(ralph: Ralph) -> str:
    """Something in each memory; gives the conversation."""
    ralph.feature("auth").remember_all(topical(3))
    held = ralph.conversations.start(title="Debug timeouts")
    ralph.conversations.exchange(held, user="why does the pool time out?", assistant="it is full")
    ralph.conversations.sync()
    ralph.knowledge.capture(lesson(0))
    ralph.knowledge.checkpoint(ralph.project.id, "manual")
    return held


# -- PostgreSQL


def test_all_three_memories_keep_what_comes_and_deliver_it_in_order_and_once(
    project: Path, home: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(project, journal_url=server.url) as ralph:
        held = taught(ralph)
        server.stop()
        kept = [ralph.feature("auth").remember(made(f"while away {n}")) for n in range(3)]
        ralph.conversations.exchange(held, user="and now?", assistant="a larger pool")
        captured = ralph.knowledge.capture(lesson(1))
        assert [one.record.iteration_number for one in kept] == [4, 5, 6]
        assert captured.staged
        assert waiting_records(home) == {
            f"feature/{ralph.project.id}": 3,
            "conversations": 1,
            "knowledge": 1,
        }
        assert sum(LOGGED in line for line in caplog.messages) == 1
        server.start()
        assert [deliver(one) for one in journals_of(ralph)] == [3, 1, 1]
        assert [deliver(one) for one in journals_of(ralph)] == [0, 0, 0]
        assert waiting_records(home) == {}
        numbers = [number for _, _, number, _, _ in everything(ralph)["0 auth"]]
        assert numbers == [1, 2, 3, 4, 5, 6]
        assert ralph.conversations.stream.verify() == (3, [])
        assert ralph.knowledge.verify() == (3, [])
        assert ralph.feature("auth").search("while away").notes == ()


def test_nothing_is_published_while_the_server_is_away(project: Path, server: Server) -> None:
    with opened(project, journal_url=server.url) as ralph:
        taught(ralph)
        server.stop()
        captured = ralph.knowledge.capture(lesson(1))
        with pytest.raises(JournalDown, match="nothing is published"):
            ralph.knowledge.checkpoint()
        assert [one.id for one in ralph.knowledge.staged()] == [captured.id]
        server.start()
        for one in journals_of(ralph):
            deliver(one)
        assert len(ralph.knowledge.checkpoint().published) == 1


def test_the_next_use_delivers_by_itself(project: Path, home: Path, server: Server) -> None:
    server.stop()
    with opened(project, journal_url=server.url) as ralph:
        ralph.feature("auth").remember(made("first"))
    server.start()
    for note in (home / "spool").glob("down-*"):
        note.unlink()  # as when some seconds have passed
    words = {"RALPH_JOURNAL_URL": server.url, "RALPH_EMBEDDER": "none"}
    ran = process(["recent", "--feature", "auth", "--json"], cwd=project, environ=words)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"first" in ran.stdout
    assert waiting_records(home) == {}


def test_a_process_that_begins_meanwhile_searches_the_index_keeps_what_comes_and_says_so(
    project: Path, server: Server
) -> None:
    with opened(project, journal_url=server.url) as ralph:
        held = taught(ralph)
        before = everything(ralph)
    server.stop()
    with opened(project, journal_url=server.url) as late:
        answer = late.feature("auth").search(topical(1)[0].summary)
        assert answer[0].record.summary == topical(1)[0].summary
        assert any("results may be out of date" in note for note in answer.notes)
        # A conversation that was begun before goes on.
        late.conversations.exchange(held, user="and now?", assistant="a larger pool")
        late.feature("auth").remember(made("while away"))
        assert summaries(late.feature("auth").recent()) == ["while away"]
        patterns = late.knowledge.query_for_failure(lesson(0)["failure_description"])
        assert any("cannot reach" in note for note in patterns.notes)
        with pytest.raises(JournalDown, match="cannot reach"):
            late.feature("auth").verify()
    server.start()
    with opened(project, journal_url=server.url) as after:
        assert [deliver(one) for one in journals_of(after)] == [1, 1, 0]
        now = everything(after)
        assert {name: some[: len(before[name])] for name, some in now.items()} == before
        assert after.feature("auth").verify() == (4, [])
        assert after.conversations.exchanges(held)[1].user == "and now?"


def test_a_server_that_never_answers_is_waited_for_once_by_whoever_comes(
    project: Path, home: Path, deaf: Deaf
) -> None:
    url = f"postgresql://ralph:{PASSWORD}@127.0.0.1:{deaf.port}/ralph"
    began = time.monotonic()
    for process_ in "abc":  # as new processes would
        with opened(project, journal_url=url, remember_budget_s=0.2) as ralph:
            for n in range(5):
                ralph.feature("auth").remember(made(f"step {process_}{n}"))
                ralph.feature("auth").search("step of the login")
                ralph.conversations.start(title="x")
                ralph.knowledge.capture(lesson(n))
    # Once for each time that it is left alone: on most machines that is once.
    assert 1 <= deaf.came <= 1 + (time.monotonic() - began) // RETRY_AFTER_S
    assert waiting_records(home)[f"feature/{ralph.project.id}"] == 15


# -- Qdrant


def test_qdrant_is_away_so_the_journal_is_searched_by_words_and_says_so(
    project: Path, server: Server, qdrant: QdrantServer
) -> None:
    with opened(project, journal_url=server.url, qdrant_url=qdrant.url) as ralph:
        held = taught(ralph)
        qdrant.fail("reset")
        ralph.feature("auth").remember(made("the cellar door squeaks"))
        answer = ralph.feature("auth").search("cellar door squeaks")
        assert summaries(answer) == ["the cellar door squeaks"]
        assert any(note.startswith("searched the journal by words alone") for note in answer.notes)
        said = ralph.conversations.search("why does the pool time out")
        assert [hit.record.conversation for hit in said] == [held]
        asked = len(qdrant.requests)
        for _ in range(10):
            ralph.feature("auth").search("cellar door squeaks")
        assert len(qdrant.requests) == asked  # it is left alone for a while
        qdrant.fail(None)
        ralph.store.index.store.check()
        answer = ralph.feature("auth").search("cellar door squeaks")
        assert summaries(answer) == ["the cellar door squeaks"]
        assert answer.notes == ()


def test_qdrant_hangs_and_is_asked_once(project: Path, qdrant: QdrantServer) -> None:
    with opened(project, qdrant_url=qdrant.url, remember_budget_s=0.1) as ralph:
        taught(ralph)
        qdrant.fail("hang")
        asked = len(qdrant.requests)
        for n in range(5):
            ralph.feature("auth").remember(made(f"the cellar door squeaks {n}"))
            assert ralph.feature("auth").search("cellar door squeaks")
            assert ralph.conversations.search("why does the pool time out")
        # One for all memories of a process, and one more of a connection that was there before.
        assert len(qdrant.requests) - asked <= 2


# -- both


def test_both_are_away_and_what_came_meanwhile_is_found_by_its_words(
    project: Path, home: Path, server: Server, qdrant: QdrantServer
) -> None:
    servers = {"journal_url": server.url, "qdrant_url": qdrant.url}
    with opened(project, None, **servers) as ralph:
        taught(ralph)
        assert len(ralph.feature("auth").recent()) == 3
        server.stop()
        qdrant.fail("reset")
        ralph.feature("auth").remember(made("the cellar door squeaks"))
        answer = ralph.feature("auth").search("cellar door squeaks")
        assert summaries(answer) == ["the cellar door squeaks"]
        assert any("by words alone" in note for note in answer.notes)
        assert any("out of date" in note for note in answer.notes)
        # What was read before the outage is known, too.
        assert len(ralph.feature("auth").search(topical(1)[0].summary)) >= 1
    with opened(project, None, **servers) as late:
        assert summaries(late.feature("auth").search("cellar door squeaks")) == [
            "the cellar door squeaks"
        ]
        assert late.feature("auth").search("pool time out") == []
    qdrant.fail(None)
    server.start()
    with opened(project, None, **servers) as after:
        after.store.index.store.check()
        deliver(after.store.journals)
        answer = after.feature("auth").search("cellar door squeaks")
        assert (summaries(answer), answer.notes) == (["the cellar door squeaks"], ())
        assert after.feature("auth").verify() == (4, [])
    assert waiting_records(home) == {}


# -- whoever works with it


def test_a_loop_goes_on_without_its_servers_and_everything_is_there_afterwards(
    tmp_path: Path, home: Path, server: Server, qdrant: QdrantServer
) -> None:
    root = planned(tmp_path / "project")
    loop = Loop(root, journal_url=server.url, qdrant_url=qdrant.url)
    server.stop()
    qdrant.fail("reset")
    agent = scripted(tmp_path, {"say": "Did it.", "does": [DONE]}, {"say": "More.", "does": [DONE]})
    loop(agent, max_iterations=2)
    assert len(loop.outcomes) == 2
    assert sum(waiting_records(home).values()) >= 2
    qdrant.fail(None)
    server.start()
    with loop.opened() as ralph:
        for journals in journals_of(ralph):
            deliver(journals)
    assert len(loop.told("auth")) == 2
    assert waiting_records(home) == {}


def test_a_chat_goes_on_without_its_servers(project: Path, home: Path, server: Server) -> None:
    with opened(project, journal_url=server.url) as ralph:
        taught(ralph)
    server.stop()
    settings = {"journal_url": server.url, "embedder": "none"}
    with talking(project, model=EchoModel(), settings=settings) as talk:
        done = talk.ask("why does the pool time out?")
        assert done.exchange
        talk.ask("and what now?")
    assert waiting_records(home)["conversations"] >= 3
    server.start()
    with opened(project, journal_url=server.url) as ralph:
        deliver(ralph.conversations.store.journals)
        asked = [
            one.user
            for listed in ralph.conversations.list()
            for one in ralph.conversations.exchanges(listed.conversation.id)
        ]
    assert sorted(asked) == [
        "and what now?",
        "why does the pool time out?",
        "why does the pool time out?",
    ]


def test_hooks_recall_from_a_server_and_keep_what_is_said_while_it_is_away(
    project: Path, tmp_path: Path, home: Path, server: Server
) -> None:
    with open_ralph(project, journal_url=server.url, embedder="none") as ralph:
        ralph.feature("login").remember(
            made("Safari refused the session cookie of the login form.", task_title="Cookie")
        )
    set_here = {"RALPH_JOURNAL_URL": server.url, "RALPH_EMBEDDER": "none", **UNHURRIED}
    session = Session(project, tmp_path)
    asked = "Why does Safari refuse the session cookie of the login form?"
    told = session.hook("user-prompt-submit", prompt=asked, environ=set_here)
    assert "Safari refused the session cookie" in told.context
    begun = Session(project, tmp_path).hook("session-start", source="startup", environ=set_here)
    assert "login" in begun.context
    server.stop()
    # No text of before is shown as that of now, and nothing is cached.
    again = Session(project, tmp_path).hook("session-start", source="startup", environ=set_here)
    assert again.code == 0
    session.prompts(asked)
    session.says("SameSite=Lax is missing.")
    session.hook("stop", environ=set_here)
    assert waiting_records(home)["conversations"] == 2
    assert PASSWORD not in "\n".join(log(project))
    server.start()
    with opened(project, journal_url=server.url) as ralph:
        deliver(ralph.conversations.store.journals)
        assert [
            one.user
            for listed in ralph.conversations.list()
            for one in ralph.conversations.exchanges(listed.conversation.id)
        ] == [asked]


def test_a_hook_does_not_cache_what_a_server_may_change(
    project: Path, tmp_path: Path, home: Path, server: Server
) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(f'{{"journal_url": "{server.url}"}}', encoding="utf-8")
    first = Session(project, tmp_path).hook("session-start", source="startup", environ=UNHURRIED)
    with opened(project) as ralph:  # on another machine, no file here would change
        ralph.feature("login").remember_all(topical(2))
    second = Session(project, tmp_path).hook("session-start", source="startup", environ=UNHURRIED)
    assert first.context != second.context
    assert list(home.glob("cache/hooks/*/brief.json")) == []


def test_the_command_line_tells_an_outage_in_one_line_and_ends_well(
    project: Path, server: Server
) -> None:
    server.stop()
    words = {"RALPH_JOURNAL_URL": server.url, "RALPH_EMBEDDER": "none"}
    kept = process(
        ["record", "--feature", "auth", "-"],
        cwd=project,
        stdin=b'{"summary": "the cellar door squeaks"}',
        environ=words,
    )
    assert kept.returncode == 0
    assert kept.stderr.decode().count("\n") == 1
    assert LOGGED in kept.stderr.decode()
    found = process(["search", "cellar door", "--json"], cwd=project, environ=words)
    assert found.returncode == 0
    assert b"the cellar door squeaks" in found.stdout
    assert b"results may be out of date" in found.stderr
    assert PASSWORD.encode() not in kept.stderr + found.stderr


def test_completion_knows_what_is_on_the_server_and_a_bar_does_not_count_it(
    project: Path,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
    ralph = Line(capsys, monkeypatch)
    ralph.record("auth", LOGIN)
    line = {"_RALPH_COMPLETE": "bash_complete", "COMP_WORDS": "ralph recent --feature a"}
    ran = process([], cwd=project, environ={**line, "COMP_CWORD": "3"})
    assert b"auth" in ran.stdout
    with opened(project) as memory:
        memory.feature("auth").remember_all(topical(4))
        assert _records(memory) is None  # a bar without its end, and no question for it


def test_nothing_of_the_servers_is_loaded_where_none_is_set(project: Path) -> None:
    code = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1], embedder="none") as ralph:
    ralph.feature("auth").remember({"summary": "the cellar door squeaks"})
    ralph.feature("auth").search("cellar door")
    ralph.conversations.start(title="x")
    ralph.knowledge.staged()
print(*sorted(name for name in sys.modules if name.split(".")[0] in {"psycopg", "qdrant_client"}))
print(*sorted(name for name in sys.modules if name.startswith("ralph.journal")))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(project)], capture_output=True, text=True, check=True
    )
    servers, journals = ran.stdout.splitlines()
    assert servers == ""
    assert not {"ralph.journal.postgres", "ralph.journal.spool"} & set(journals.split())
