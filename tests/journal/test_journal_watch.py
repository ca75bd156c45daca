"""A watch answers from memory what nobody changed, and never what somebody may have."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from journaling import note, unnumbered
from postgres import Server, Wire

from ralph.errors import JournalDown
from ralph.journal.postgres import PostgresJournal, PostgresJournals
from ralph.journal.session import Link, Patience, Watch

QUICK = Patience(connect_s=2.0, lock_s=5.0, answer_s=2.0, retry_after_s=60.0)
_LONG_S = 50.0


class Watched:
    """A link through a wire with a watch on it, and a journal of a memory of its own."""

    def __init__(self, wire: Wire, patience: Patience = QUICK) -> None:
        self.wire = wire
        self.link = Link(wire.url, patience=patience)
        self.memory = f"feature/{uuid.uuid4()}"
        self.journals = PostgresJournals(self.link, lambda: self.memory)
        self.journal = self.journals.journal("auth")
        self.watch: Watch | None = None

    def start(self) -> str:
        """Write something, watch it, and give the position behind it."""
        self.journal.append([unnumbered("first")])
        position = self.journal.read().position
        self.watch = self.link.watch()
        until(lambda: self.remembers(position))
        return position

    def remembers(self, position: str) -> bool:
        """Whether it needs nobody to answer that nothing changed."""
        with contextlib.suppress(JournalDown):
            self.journal.unchanged(position)
            with self.unreachable():
                return self.journal.unchanged(position)
        return False

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        """Only the watch keeps the connection that it has."""
        self.link.close()
        self.wire.refuses = True
        try:
            yield
        finally:
            self.wire.refuses = False
            self.link.retry()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONG_S
    while not holds():
        assert time.monotonic() < deadline


@pytest.fixture
def watched(postgres: str) -> Iterator[Watched]:
    wire = Wire(postgres)
    one = Watched(wire)
    yield one
    if one.watch is not None:
        one.watch.close()
    one.link.close()
    wire.close()


@pytest.fixture
def elsewhere(postgres: str, watched: Watched) -> Iterator[PostgresJournal]:
    """The same journal, as another process has it."""
    link = Link(postgres, patience=QUICK)
    yield PostgresJournal(link, lambda: watched.memory, "auth")
    link.close()


def test_what_nobody_changed_is_answered_without_the_database(watched: Watched) -> None:
    position = watched.start()
    until(lambda: watched.journals.names() == ["auth"])
    assert watched.journals.newest_at("auth")
    with watched.unreachable():
        assert watched.journal.unchanged(position)
        assert watched.journals.names() == ["auth"]
        assert watched.journals.newest_at("auth")
        with pytest.raises(JournalDown):
            watched.journal.read()  # what was never asked is asked


def test_what_another_process_writes_or_forgets_is_heard(
    watched: Watched, elsewhere: PostgresJournal
) -> None:
    position = watched.start()
    elsewhere.append([unnumbered("second")])
    until(lambda: not watched.journal.unchanged(position))
    position = watched.journal.read().position
    until(lambda: watched.remembers(position))
    elsewhere.forget([note("first", 1).id])
    until(lambda: not watched.journal.unchanged(position))
    assert watched.journals.names() == ["auth"]
    PostgresJournal(elsewhere._link, lambda: watched.memory, "new").append([unnumbered("third")])
    until(lambda: watched.journals.names() == ["auth", "new"])


def test_what_this_process_writes_need_not_be_heard(watched: Watched) -> None:
    position = watched.start()
    watched.journal.append([unnumbered("second")])
    assert not watched.journal.unchanged(position)
    watched.journals.journal("billing").append([unnumbered("third")])
    assert watched.journals.names() == ["auth", "billing"]


def test_what_one_reader_has_read_no_other_reader_asks_for(
    watched: Watched, elsewhere: PostgresJournal
) -> None:
    position = watched.start()
    elsewhere.append([unnumbered("second"), unnumbered("third")])
    until(lambda: not watched.journal.unchanged(position))
    read = watched.journal.read(position)
    assert [one.record.id for one in read.records] == [note("second", 2).id, note("third", 3).id]
    again = watched.journals.journal("auth")
    with watched.unreachable():
        assert not again.unchanged(position)
        assert again.read(position) == read
        assert again.read(position, limit=20) == read
        assert again.unchanged(read.position)
        assert again.last_number == 3
        with pytest.raises(JournalDown):  # a part of it is asked for
            again.read(position, limit=1)
    assert not again.read(position, limit=1).done


def test_who_asks_whether_something_changed_need_not_ask_what(
    watched: Watched, elsewhere: PostgresJournal
) -> None:
    position = watched.start()
    elsewhere.append([unnumbered("second")])
    until(lambda: not watched.journal.unchanged(position))
    with watched.unreachable():
        batch = watched.journal.read(position)
        assert [one.record.number for one in batch.records] == [2]
        assert watched.journal.unchanged(batch.position)


def test_a_long_batch_is_not_kept_for_other_readers(watched: Watched) -> None:
    position = watched.start()
    watched.journal.append([unnumbered(f"number {n}") for n in range(100)])
    assert len(watched.journal.read(position).records) == 100
    with watched.unreachable(), pytest.raises(JournalDown):
        watched.journal.read(position)


def test_the_echo_of_an_own_write_changes_nothing(
    watched: Watched, elsewhere: PostgresJournal
) -> None:
    watched.start()
    watched.journal.append([unnumbered("second")])
    position = watched.journal.read().position
    # Notifications arrive in order: after the other process's, the own one has been heard, too.
    other = watched.journals.journal("billing")
    other.append([unnumbered("third")])
    billing = other.read().position
    PostgresJournal(elsewhere._link, lambda: watched.memory, "billing").append([unnumbered("4th")])
    until(lambda: not other.unchanged(billing))
    with watched.unreachable():
        assert watched.journal.unchanged(position)


def test_a_connection_that_always_brings_news_is_checked_all_the_same(
    watched: Watched, elsewhere: PostgresJournal
) -> None:
    position = watched.start()
    watch = watched.watch
    assert watch is not None
    begin, busy = watch._listener.heard_at, PostgresJournal(elsewhere._link, lambda: "x", "y")
    until(lambda: bool(busy.append([unnumbered(uuid.uuid4().hex)])) and _after(watch, begin + 2.0))
    assert watched.remembers(position)


def _after(watch: Watch, moment: float) -> bool:
    return watch._listener.heard_at > moment


def test_an_answer_that_a_change_overtook_is_not_remembered(watched: Watched) -> None:
    watched.start()
    watch = watched.watch
    assert watch is not None

    def overtaken() -> str:
        watch.forget(watched.memory, "auth")
        return "old"

    assert watch.answer(watched.memory, "auth", "what", overtaken) == "old"
    assert watch.answer(watched.memory, "auth", "what", lambda: "new") == "new"


def test_what_was_written_while_nobody_listened_is_asked_for(
    watched: Watched, elsewhere: PostgresJournal
) -> None:
    position = watched.start()
    watched.link.close()
    watched.wire.refuses = True
    elsewhere._link.run(lambda talk: talk.rows(_END, ["LISTEN%"]))
    elsewhere._link.run(lambda talk: talk.rows(_END, ["SELECT 1"]))

    def relies() -> bool:
        with contextlib.suppress(JournalDown):
            return watched.journal.unchanged(position)
        return False

    until(lambda: not relies())
    elsewhere.append([unnumbered("second")])
    watched.wire.refuses = False

    def asks() -> bool:
        try:
            assert not watched.journal.unchanged(position)
        except JournalDown:
            return False
        return True

    until(asks)


_END = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE query LIKE %s AND pid <> pg_backend_pid() AND application_name = 'ralph'
"""


def test_a_server_that_no_longer_answers_is_not_relied_on(own_postgres: Server) -> None:
    wire = Wire(own_postgres.url)
    # So patient that the connection is not given up before the test is.
    watched = Watched(wire, Patience(connect_s=2.0, answer_s=1000.0))
    position = watched.start()
    watch = watched.watch
    assert watch is not None

    def remembered() -> bool:
        return watch.answer(watched.memory, "auth", f"after {position}", lambda: None) is not None

    assert remembered()
    own_postgres.freeze()
    try:
        until(lambda: not remembered())
    finally:
        own_postgres.thaw()
    watched.journal.append([unnumbered("second")])
    position = watched.journal.read().position
    until(lambda: watched.remembers(position))
    watch.close()
    assert not watched.remembers(position)
    watched.link.close()
    wire.close()


def test_a_server_that_is_back_is_found_though_others_would_pause(own_postgres: Server) -> None:
    wire = Wire(own_postgres.url)
    watched = Watched(wire)
    watched.start()
    own_postgres.stop()

    def answers() -> bool:
        with contextlib.suppress(JournalDown):
            return bool(watched.journal.read().records)
        return False

    assert not answers()  # from now on nobody else tries for a minute
    own_postgres.start()
    until(answers)
    assert watched.watch is not None
    watched.watch.close()
    watched.link.close()
    wire.close()


def test_a_watch_outlives_tables_that_it_cannot_use(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        watched = Watched(Wire(database))
        watched.journal.append([unnumbered("first")])
        admin.execute("INSERT INTO ralph_migrations (number, name) VALUES (999, 'newer')")
        watch = watched.watch = watched.link.watch()
        until(lambda: watch._changes > 0)  # it tried
        admin.execute("DELETE FROM ralph_migrations WHERE number = 999")
        position = watched.journal.read().position
        until(lambda: watched.remembers(position))
        watch.close()
        watched.link.close()
        watched.wire.close()
