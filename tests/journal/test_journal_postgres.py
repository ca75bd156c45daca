"""The journal in PostgreSQL: lost answers, lost servers, other schemas, hands in the tables."""

from __future__ import annotations

import contextlib
import logging
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from journaling import child, hear, living, note, run_child, tell, unnumbered
from postgres import Wire, own_server, with_database

from ralph.errors import BadRecord, BadSetting, JournalBusy, JournalDown, JournalError, MemoryOff
from ralph.journal.file import JournalFolder
from ralph.journal.postgres import PostgresJournal, PostgresJournals
from ralph.journal.session import (
    DatabaseSession,
    Link,
    Listener,
    Migration,
    Patience,
    Row,
    bring_up,
    migrations,
)
from ralph.records import Record, Source, Tombstone

QUICK = Patience(connect_s=2.0, lock_s=5.0, retry_after_s=0.0)


@pytest.fixture
def link(postgres: str) -> Iterator[Link]:
    one = Link(postgres, patience=QUICK)
    yield one
    one.close()


@pytest.fixture
def journal(link: Link) -> PostgresJournal:
    memory = f"feature/{uuid.uuid4()}"
    return PostgresJournal(link, lambda: memory, "auth")


@pytest.fixture
def wire(postgres: str) -> Iterator[Wire]:
    one = Wire(postgres)
    yield one
    one.close()


def ids(journal: PostgresJournal) -> list[str]:
    return [located.record.id for located in journal.read().records]


# -- what breaks on the way


@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_whose_answer_was_lost_is_neither_repeated_nor_lost(
    wire: Wire, arrived: bool
) -> None:
    link = Link(wire.url, patience=QUICK)
    memory = f"feature/{uuid.uuid4()}"
    journal = PostgresJournal(link, lambda: memory, "auth")
    journal.append([unnumbered("first")])
    if arrived:
        wire.after_commit = 1
    else:
        wire.before_commit = 1
    appended = journal.append([unnumbered("a"), note("b", 7), unnumbered("first")])
    assert [(one.record.number, one.fresh) for one in appended] == [
        (2, True),
        (7, True),
        (1, False),
    ]
    assert (wire.after_commit, wire.before_commit) == (0, 0)
    assert living(journal) == ["first", "a", "b"]
    assert journal.verify() == (3, [])
    link.close()


@pytest.mark.parametrize("arrived", [True, False])
def test_a_forget_whose_answer_was_lost_says_what_it_took_out(wire: Wire, arrived: bool) -> None:
    link = Link(wire.url, patience=QUICK)
    memory = f"feature/{uuid.uuid4()}"
    journal = PostgresJournal(link, lambda: memory, "auth")
    journal.append([note("a", 1), note("b", 2)])
    if arrived:
        wire.after_commit = 1
    else:
        wire.before_commit = 1
    assert journal.forget([note("a", 1).id, "unknown"]) == [note("a", 1).id]
    assert living(journal) == ["b"]
    assert len(journal.read().tombstones) == 1
    link.close()


def test_a_backend_that_is_ended_under_us_is_replaced(link: Link, journal: PostgresJournal) -> None:
    journal.append([unnumbered("a")])
    position = journal.read().position
    uses: list[Callable[[], bool]] = [
        lambda: journal.append([unnumbered("b")])[0].record.number == 2,
        lambda: len(journal.read(position).records) == 1,
        lambda: not journal.unchanged(position),
        lambda: journal.verify() == (2, []),
    ]
    for use in uses:
        end_backend(link)
        assert use()
    assert link.trouble is None


def end_backend(link: Link) -> None:
    """End the server's side of the connection, and see that it is gone."""
    (pid,) = link.run(lambda talk: talk.rows("SELECT pg_backend_pid()"))[0]
    with psycopg.connect(link._url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def test_a_server_that_goes_away_while_a_reader_follows_is_down_and_comes_back() -> None:
    with own_server() as server:
        link = Link(server.url, patience=QUICK)
        journal = PostgresJournal(link, lambda: "feature/x", "auth")
        journal.append([unnumbered(f"r{i}") for i in range(10)])
        first = journal.read(limit=4)
        server.stop(at_once=True)
        for use in (
            lambda: journal.read(first.position),
            lambda: journal.unchanged(first.position),
            lambda: journal.append([unnumbered("new")]),
            lambda: journal.forget(["x"]),
            lambda: journal.forget([], stones=[Tombstone("x", "2026-02-07T14:30:00Z")]),
            journal.verify,
        ):
            with pytest.raises(JournalDown) as caught:
                use()
            assert isinstance(caught.value, JournalError)
            assert isinstance(caught.value, MemoryOff)
        assert "Connection refused" in str(caught.value)
        assert link.trouble is not None
        server.start()
        rest = journal.read(first.position)
        assert len(rest.records) == 6
        assert not rest.restarted
        assert link.trouble is None
        link.close()


def test_a_server_that_stands_still_is_given_up_on() -> None:
    with own_server() as server:
        link = Link(server.url, patience=Patience(connect_s=1.0, lock_s=0.1, answer_s=0.2))
        journal = PostgresJournal(link, lambda: "feature/x", "auth")
        journal.append([unnumbered("a")])
        server.freeze()
        try:
            with pytest.raises(JournalDown):
                journal.append([unnumbered("b")])
        finally:
            server.thaw()
        patient = Link(server.url, patience=QUICK)
        again = PostgresJournal(patient, lambda: "feature/x", "auth")
        again.append([unnumbered("b")])
        assert living(again) == ["a", "b"]
        patient.close()
        link.close()


def test_nobody_is_asked_again_for_a_while_after_nobody_answered(
    wire: Wire, tmp_path: Path
) -> None:
    wire.refuses = True
    url = wire.url
    patience = Patience(retry_after_s=600.0)
    first = Link(url, patience=patience, notes=tmp_path / "spool")
    with pytest.raises(JournalDown):
        first.run(lambda talk: talk.rows("SELECT 1"))
    wire.refuses = False
    # It would answer now; neither this process nor the next one tries.
    for link in (first, Link(url, patience=patience, notes=tmp_path / "spool")):
        with pytest.raises(JournalDown):
            link.run(lambda talk: talk.rows("SELECT 1"))
        assert link.trouble is not None
    sooner = Link(url, patience=QUICK, notes=tmp_path / "spool")
    assert sooner.run(lambda talk: talk.rows("SELECT 1")) == [(1,)]
    sooner.close()


def test_whoever_vanishes_in_the_middle_lets_go_before_others_give_up(
    postgres: str, journal: PostgresJournal
) -> None:
    journal.append([note("a", 1)])
    vanished = Link(postgres, patience=Patience(lock_s=60.0, answer_s=0.05))
    holds = "SELECT * FROM ralph_streams WHERE memory = %s FOR UPDATE"
    talk = vanished.open()
    talk.rows("BEGIN")
    talk.rows(holds, [journal._memory()])
    assert journal.append([note("b", 2)])[0].fresh  # within its 5 s
    talk.close()


def test_a_child_of_a_fork_leaves_its_parents_connection_alone(postgres: str) -> None:
    if sys.platform == "win32":
        pytest.skip("there is no fork")
    script = """
        import os, sys, threading, warnings
        from ralph.journal.session import DatabaseSession, Row, Link, Patience

        warnings.simplefilter("error", ResourceWarning)
        link = Link(sys.argv[1], patience=Patience())
        pid = "SELECT pg_backend_pid()"
        mine = link.run(lambda talk: talk.rows(pid))
        held, forked = threading.Event(), threading.Event()

        def work(talk):
            held.set()
            forked.wait()
            return talk.rows("SELECT 1")

        other = threading.Thread(target=lambda: link.run(work))
        other.start()
        held.wait()
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if not child:
            print(link.run(lambda talk: talk.rows(pid)) != mine, flush=True)
            sys.exit(0)  # with all that an interpreter does at its end
        forked.set()
        other.join()
        os.waitpid(child, 0)
        print(link.run(lambda talk: talk.rows(pid)) == mine)
        link.close()
    """
    assert run_child(script, postgres) == ["True", "True"]


def test_long_entries_are_read_a_few_at_a_time(
    journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [str(i) * 1_500_000 for i in range(9)]
    records = [
        Record(f"r{i}", "other", i + 1, "", f'"{text}"'.encode()) for i, text in enumerate(texts)
    ]
    journal.append(records)
    pages: list[int] = []
    rows = DatabaseSession.rows

    def counted(session: DatabaseSession, sql: str, *args: Any, **more: Any) -> list[Row]:
        found = rows(session, sql, *args, **more)
        pages.extend([len(found)] if "octet_length" in sql else [])
        return found

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseSession, "rows", counted)
        journal.read()
    assert pages == [3, 3, 3]
    assert [one.record for one in journal.read().records] == records
    first = journal.read(limit=4)
    assert (len(first.records), first.done) == (4, False)
    rest = journal.read(first.position, limit=5)
    assert (len(rest.records), rest.done) == (5, True)
    journal.forget(["r8"])
    assert len(journal.read(rest.position).tombstones) == 1
    assert journal.verify() == (8, [])


def test_the_newest_is_found_without_reading_the_rest(database: str) -> None:
    link = Link(database, patience=QUICK)
    journals = PostgresJournals(link, lambda: "feature/x")
    journal = journals.journal("auth")
    journal.append([note(f"r{i}", i + 1, text=str(i)) for i in range(3000)])
    link.run(lambda talk: talk.rows("ANALYZE"))
    read = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_user_tables"
    read += " WHERE relname = 'ralph_entries'"
    link.close()  # the figures are handed in with the end of a connection
    before = link.run(lambda talk: talk.rows(read))[0][0]
    assert journals.newest_at("auth") == "2026-02-07T14:30:00Z"
    link.close()
    assert link.run(lambda talk: talk.rows(read))[0][0] - before < 100
    link.close()


def test_a_journal_held_for_too_long_is_busy_and_says_so(
    postgres: str, journal: PostgresJournal
) -> None:
    journal.append([note("a", 1)])
    hurried = PostgresJournal(
        Link(postgres, patience=Patience(lock_s=0.05)), journal._memory, "auth"
    )
    with psycopg.connect(postgres) as holder:
        holder.execute("SELECT * FROM ralph_streams FOR UPDATE")
        for use in (
            lambda: hurried.append([note("b", 2)]),
            lambda: hurried.forget([note("a", 1).id]),
        ):
            with pytest.raises(JournalBusy, match=r"held the journal for over 0\.05 s"):
                use()
        assert ids(hurried) == [note("a", 1).id]  # reading needs none
    assert hurried.append([note("b", 2)])[0].fresh
    hurried._link.close()


# -- who may come in


def test_a_wrong_password_is_told_without_telling_it(
    postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts = urlsplit(postgres)
    url = postgres.replace(f":{parts.password}@", ":hunter2-secret@")
    link = Link(url, patience=QUICK)
    with caplog.at_level(logging.WARNING), pytest.raises(JournalDown) as caught:
        link.run(lambda talk: talk.rows("SELECT 1"))
    assert "password authentication failed" in str(caught.value)
    assert str(caught.value).startswith(f"{parts.hostname}:{parts.port}/postgres: ")
    (line,) = caplog.messages
    for told in (str(caught.value), line, link.shown, str(link.trouble)):
        assert "hunter2" not in told
        assert str(parts.username) not in told


def test_an_unknown_database_is_told_with_its_name(postgres: str) -> None:
    link = Link(with_database(postgres, "nowhere"), patience=QUICK)
    with pytest.raises(JournalDown, match='database "nowhere" does not exist'):
        link.run(lambda talk: talk.rows("SELECT 1"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sqlite:///x",
        "127.0.0.1/ralph",
        "mysql://ralph:hunter2@host/db",
        "postgresql://ralph:hunter2@host:no-port/db",
        "postgresql://ralph:hunter2@host/db?hunter2=1",
        "postgresql://ralph:hun%ter2@host/db",
        "postgresql://ralph:p@hunter2@host/db",
        "postgresql://ralph:p@hunter2/x@host/db",
        "postgresql://ralph:12/hunter2@host/db",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadSetting, match="postgresql://USER:PASSWORD@HOST") as caught:
        Link(url, patience=QUICK).run(lambda talk: talk.rows("SELECT 1"))
    assert "hunter2" not in str(caught.value)
    assert "hun%ter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_role_without_rights_is_told_what_to_do(database: str) -> None:
    role = f"role_{uuid.uuid4().hex[:8]}"
    name = urlsplit(database).path[1:]
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        admin.execute(f"REVOKE CREATE ON SCHEMA public FROM PUBLIC, {role}".encode())
        parts = urlsplit(database)
        url = f"postgresql://{role}:x@{parts.hostname}:{parts.port}/{name}"
        with pytest.raises(JournalError, match="permission denied for schema public") as caught:
            Link(url, patience=QUICK).run(lambda talk: talk.rows("SELECT 1"))
        assert "CREATE DATABASE ralph OWNER" in str(caught.value)
        assert isinstance(caught.value, JournalDown)  # so what comes meanwhile is spooled
        admin.execute(f"DROP ROLE {role}".encode())


def test_another_encoding_in_the_address_loses_no_letter(database: str) -> None:
    link = Link(f"{database}?client_encoding=latin1", patience=QUICK)
    journal = PostgresJournals(link, lambda: "test").journal("auth")
    journal.append([note("run", text="Ω is no letter of latin1")])
    assert living(journal) == ["Ω is no letter of latin1"]
    link.close()


def test_a_missing_package_is_told_with_what_to_install(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path

        sys.modules["psycopg"] = None
        from journaling import note
        from ralph.errors import JournalError
        from ralph.journal.spool import server_journals

        home = Path(sys.argv[1])
        journals = server_journals("postgresql://h/db", lambda: "x", home / "spool")
        for use in (
            lambda: journals.journal("auth").append([note("a")]),
            lambda: journals.journal("auth").read(),
            journals.names,
            lambda: journals.where,
            lambda: journals.listener().wait(0),
        ):
            try:
                use()
            except JournalError as error:
                print(error.todo)
        print(list(home.iterdir()))
    """
    told = run_child(script, tmp_path)
    assert told == ["Run: pip install 'ralph-rag[postgres]'"] * 5 + ["[]"]


def test_nothing_is_loaded_before_it_is_used() -> None:
    script = """
        import sys
        import ralph.journal.file
        import ralph.journal.spool

        print("psycopg" in sys.modules)
    """
    assert run_child(script) == ["False"]


# -- the schema

MIGRATE = """
    import sys
    from ralph.journal.session import DatabaseSession, Row, Link, Patience
    from ralph.journal.postgres import PostgresJournal
    from journaling import unnumbered

    link = Link(sys.argv[1], patience=Patience())
    journal = PostgresJournal(link, lambda: "feature/x", "auth")
    print("ready", flush=True)
    sys.stdin.readline()
    (appended,) = journal.append([unnumbered(sys.argv[2])])
    print(appended.record.number, flush=True)
"""


def test_processes_that_meet_an_empty_database_at_once_make_its_tables_once(database: str) -> None:
    with contextlib.ExitStack() as stack:
        comers = [stack.enter_context(child(MIGRATE, database, f"p{i}")) for i in range(4)]
        assert [hear(one) for one in comers] == ["ready"] * 4
        for one in comers:
            tell(one, "go")
        assert sorted(hear(one) for one in comers) == ["1", "2", "3", "4"]
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT number, name FROM ralph_migrations").fetchall()
    assert rows == [(step.number, step.name) for step in migrations()]


def test_the_tables_of_a_newer_ralph_are_refused_and_left_alone(database: str) -> None:
    link = Link(database, patience=QUICK)
    journal = PostgresJournal(link, lambda: "feature/x", "auth")
    journal.append([unnumbered("a")])
    link.close()
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO ralph_migrations VALUES (9001, 'from tomorrow')")
    with pytest.raises(JournalError, match="schema 9001, this one knows") as caught:
        journal.append([unnumbered("b")])
    assert "Upgrade Ralph here" in str(caught.value)
    assert not isinstance(caught.value, JournalDown)


def test_a_step_is_applied_behind_those_before_it_or_not_at_all(database: str) -> None:
    link = Link(database, patience=QUICK)
    link.run(lambda talk: talk.rows("SELECT 1"))
    number = migrations()[-1].number
    bad = Migration(number + 2, "bad", "CREATE TABLE half (a int); SELECT nothing FROM nowhere")
    good = Migration(number + 1, "good", "CREATE TABLE whole (a int); CREATE INDEX ON whole (a)")
    with pytest.raises(JournalError, match='relation "nowhere" does not exist'):
        link.run(lambda talk: bring_up(talk, "here", [*migrations(), good, bad]))
    count = "SELECT count(*) FROM pg_class WHERE relname IN ('half', 'whole')"
    assert link.run(lambda talk: talk.rows(count)) == [(0,)]
    link.run(lambda talk: bring_up(talk, "here", [*migrations(), good]))
    assert link.run(lambda talk: talk.rows(count)) == [(1,)]
    link.close()


def test_a_database_of_another_encoding_is_refused(database: str) -> None:
    name = f"latin_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'".encode()
        )
        with pytest.raises(JournalError, match="keeps its text as LATIN1"):
            Link(with_database(database, name), patience=QUICK).run(lambda talk: talk.rows("x"))
        admin.execute(f"DROP DATABASE {name}".encode())


# -- what the tables hold


@pytest.mark.parametrize(
    "record",
    [
        Record("a\0b", "iteration", 1, "", b"{}"),
        Record("r1", "a\0b", 1, "", b"{}"),
        Record("r1", "iteration", 1, "a\0b", b"{}"),
        Record("r1", "iteration", 1, "", b"{}", Source(file="a\0b")),
        Record("x" * 1001, "iteration", 1, "", b"{}"),
        Record("r1", "iteration", 1, "x" * 1001, b"{}"),
    ],
)
def test_what_only_a_file_can_hold_is_refused_before_anything_is_written(
    journal: PostgresJournal, record: Record
) -> None:
    with pytest.raises(BadRecord, match="cannot be kept"):
        journal.append([note("a"), record])
    assert journal.read().records == ()
    with pytest.raises(BadRecord):
        journal.forget((), stones=[Tombstone("a\0b", "2026-02-07T14:30:00Z")])


def test_a_row_that_was_changed_by_hand_is_reported(link: Link, journal: PostgresJournal) -> None:
    journal.append([note(f"r{i}", i + 1) for i in range(5)])
    name = journal.read().records[0].file
    stream = "(SELECT stream FROM ralph_streams WHERE memory = %s)"
    for sql in (
        f"UPDATE ralph_entries SET body = '{{}}' WHERE stream = {stream} AND position = 2",
        f"UPDATE ralph_entries SET v = 9 WHERE stream = {stream} AND position = 3",
        f"UPDATE ralph_entries SET source = '{{' WHERE stream = {stream} AND position = 4",
        f"DELETE FROM ralph_entries WHERE stream = {stream} AND position = 1",
    ):
        link.run(lambda talk, sql=sql: talk.rows(sql, [journal._memory()]))  # type: ignore[misc]
    readable, complaints = journal.verify()
    assert readable == 3
    assert [(c.file, c.line) for c in complaints] == [(name, 2), (name, 3), (name, 4), (name, 5)]
    told = [complaint.what for complaint in complaints]
    assert "does not match its digest" in told[0]
    assert "was written by a newer Ralph (version 9)" in told[1]
    assert "has a source that does not fit" in told[2]
    assert "found 4 entries but 5 were written" in told[3]


def test_a_database_that_went_back_in_time_is_read_from_the_start(
    link: Link, journal: PostgresJournal
) -> None:
    memory = journal._memory()
    journal.append([note(f"r{i}", i + 1) for i in range(5)])
    behind, end = journal.read(limit=2).position, journal.read().position
    stream = "(SELECT stream FROM ralph_streams WHERE memory = %s)"
    # As an older backup has it: two entries less, then others in their place.
    for sql in (
        f"DELETE FROM ralph_entries WHERE stream = {stream} AND position > 3",
        "UPDATE ralph_streams SET head = 3 WHERE memory = %s",
    ):
        link.run(lambda talk, sql=sql: talk.rows(sql, [memory]))  # type: ignore[misc]
    assert not journal.unchanged(end)
    assert journal.read(end).restarted
    journal.append([note("other", 9), note("another", 10)])
    assert not journal.unchanged(end)
    batch = journal.read(end)
    assert batch.restarted
    assert len(batch.records) == 5
    assert not journal.read(behind).restarted


def test_a_stream_that_was_made_anew_is_read_from_the_start(
    link: Link, journal: PostgresJournal
) -> None:
    memory = journal._memory()
    journal.append([note("a", 1)])
    position = journal.read().position
    stream = "(SELECT stream FROM ralph_streams WHERE memory = %s)"
    for sql in (
        f"DELETE FROM ralph_entries WHERE stream = {stream}",
        "DELETE FROM ralph_streams WHERE memory = %s",
    ):
        link.run(lambda talk, sql=sql: talk.rows(sql, [memory]))  # type: ignore[misc]
    gone = journal.read(position)
    assert (gone.records, gone.restarted) == ((), True)
    journal.append([note("b", 1)])
    assert journal.read(position).restarted
    assert not journal.read(gone.position).restarted


def test_an_appender_asks_for_what_it_needs_and_does_not_read_the_stream(
    database: str,
) -> None:
    link = Link(database, patience=QUICK)
    journal = PostgresJournal(link, lambda: "feature/x", "auth")
    journal.append([unnumbered(f"r{i}", at=f"2026-02-07T14:{i % 60:02}:00Z") for i in range(3000)])
    journal.forget([note("r7", 8, at="2026-02-07T14:07:00Z").id])
    link.run(lambda talk: talk.rows("ANALYZE ralph_entries"))
    read = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_user_tables"
    read += " WHERE relname = 'ralph_entries'"
    link.close()  # the figures are handed in with the end of a connection
    before = link.run(lambda talk: talk.rows(read))[0][0]
    newcomer = PostgresJournal(Link(database, patience=QUICK), lambda: "feature/x", "auth")
    assert newcomer.append([unnumbered("new")])[0].record.number == 3001
    assert not newcomer.append([unnumbered("r8", at="2026-02-07T14:08:00Z")])[0].fresh
    newcomer._link.close()
    link.close()
    assert link.run(lambda talk: talk.rows(read))[0][0] - before < 100
    link.close()


# -- waking those who follow


@contextlib.contextmanager
def listening(journals: PostgresJournals) -> Iterator[Listener]:
    with contextlib.closing(journals.listener()) as listener:
        listener.wait(0)  # from now on it listens
        yield listener


def test_a_listener_wakes_for_its_own_memory_and_for_no_other(link: Link) -> None:
    mine, other = f"feature/{uuid.uuid4()}", f"feature/{uuid.uuid4()}"
    journals = PostgresJournals(link, lambda: mine)
    others = PostgresJournals(link, lambda: other)
    with listening(journals) as listener:
        journals.journal("auth").append([unnumbered("a")])
        assert listener.wait(30)
        journals.journal("auth").append([unnumbered("a")])  # there already
        others.journal("auth").append([unnumbered("a")])
        assert not listener.wait(0.2)
        journals.journal("billing").append([unnumbered("c")])
        assert listener.wait(30)
        journals.journal("auth").forget([note("a", 1).id])
        assert listener.wait(30)


def test_a_listener_whose_server_went_away_says_look_and_listens_again(link: Link) -> None:
    memory = f"feature/{uuid.uuid4()}"
    journals = PostgresJournals(link, lambda: memory)
    with listening(journals) as listener:
        assert listener._talk is not None
        pid = listener._talk.connection.info.backend_pid
        end = "SELECT pg_terminate_backend(%s, 10000)"
        link.run(lambda talk: talk.rows(end, [pid]))
        assert listener.wait(30)  # something may have happened unheard, and it listens again
        journals.journal("auth").append([unnumbered("a")])
        assert listener.wait(30)


def test_a_listener_waits_out_its_time_where_nobody_may_listen(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Refused, as by a standby.
    monkeypatch.setattr("ralph.journal.session.CHANNEL", "not allowed")
    with listening(PostgresJournals(link, lambda: "x")) as listener:
        assert not listener.wait(0.05)
        assert listener._talk is None


def test_a_listener_that_was_closed_makes_no_connection(link: Link) -> None:
    listener = PostgresJournals(link, lambda: "x").listener()
    listener.close()
    assert not listener.wait(30)
    assert listener._talk is None


def test_a_listener_waits_out_its_time_where_there_is_no_server(wire: Wire) -> None:
    wire.refuses = True
    link = Link(wire.url, patience=QUICK)
    with listening(PostgresJournals(link, lambda: "x")) as listener:
        assert not listener.wait(0.05)


# -- the journals of a memory


def test_the_journals_of_a_memory_are_its_own(link: Link) -> None:
    memory = f"feature/{uuid.uuid4()}"
    journals = PostgresJournals(link, lambda: memory)
    assert journals.names() == []
    journals.journal("größe").append([note("a", at="2026-02-07T14:30:00Z")])
    journals.journal("a/b ").append([note("b", at="2026-02-09T14:30:00Z"), note("c")])
    assert journals.names() == ["a/b ", "größe"]
    assert PostgresJournals(link, lambda: "feature/other").names() == []
    assert journals.newest_at("a/b ") == "2026-02-09T14:30:00Z"
    assert journals.newest_at("nothing") == ""
    assert 0 < journals.size_bytes("größe") < journals.size_bytes("a/b ")
    assert journals.size_bytes("nothing") == 0
    assert journals.trouble() is None
    assert journals.where.endswith(f"/{memory}")


def test_a_folder_answers_the_same_questions(tmp_path: Path) -> None:
    journals = JournalFolder(tmp_path / "memory")
    assert journals.size_bytes("auth") == 0
    journals.journal("auth").append([note("a", at="2026-02-09T14:30:00Z"), note("b")])
    assert journals.newest_at("auth") == "2026-02-09T14:30:00Z"
    assert journals.size_bytes("auth") == journals.journal("auth").path.stat().st_size
    assert journals.where == str(tmp_path / "memory")
    journals.close()
    assert journals.names() == ["auth"]


def test_a_project_that_gets_its_id_with_its_first_record_is_found_under_it(link: Link) -> None:
    ids = ["from-its-path"]
    journals = PostgresJournals(link, lambda: ids[0])
    journal = journals.journal("auth")
    assert journal.read().records == ()
    ids[0] = str(uuid.uuid4())
    journal.append([note("a")])
    assert PostgresJournals(link, lambda: ids[0]).names() == ["auth"]
