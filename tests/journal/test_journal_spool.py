"""A journal whose server is away: writes wait in their order, and are delivered once."""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from journaling import child, hear, living, note, summary, tell, unnumbered
from postgres import Server, Wire, own_server

from ralph import disk
from ralph.errors import BadInput, BadRecord, JournalDown
from ralph.journal import Appended, Draft, Fold
from ralph.journal.file import JournalFolder
from ralph.journal.postgres import PostgresJournals, Tried
from ralph.journal.session import Link, Patience
from ralph.journal.spool import (
    Spool,
    SpooledJournal,
    SpooledJournals,
    deliver_to_files,
    server_journals,
)
from ralph.records import Record

QUICK = Patience(connect_s=2.0, lock_s=5.0, retry_after_s=0.0)


def spool_of(journals: SpooledJournals, name: str) -> Spool:
    return journals._spool(journals.spool_folder, name)


class Place:
    """A memory on a server behind a wire that can be cut, as one machine has it."""

    def __init__(self, url: str, wire: Wire, home: Path) -> None:
        self._url = url
        self.wire = wire
        self.home = home
        self.memory = f"feature/{uuid.uuid4()}"
        self._links: list[Link] = []
        self.server = PostgresJournals(self._link(url), lambda: self.memory)

    def opened(self) -> SpooledJournals:
        """The journals as a new process has them."""
        link = self._link(self.wire.url)
        return SpooledJournals(link, lambda: self.memory, self.home / "spool")

    def journal(self) -> SpooledJournal:
        return self.opened().journal("auth")

    def arrived(self) -> list[str]:
        """The texts on the server, in its order."""
        return [summary(one.record) for one in self.server.journal("auth").read().records]

    def cut(self) -> None:
        """From now on nobody reaches the server."""
        self.wire.refuses = True
        for link in self._links[1:]:
            link.close()

    def mend(self) -> None:
        self.wire.refuses = False

    def close(self) -> None:
        for link in self._links:
            link.close()
        self.wire.close()

    def _link(self, url: str) -> Link:
        self._links.append(Link(url, patience=QUICK))
        return self._links[-1]


@pytest.fixture
def place(postgres: str, tmp_path: Path) -> Iterator[Place]:
    one = Place(postgres, Wire(postgres), tmp_path)
    yield one
    one.close()


# -- writing while it is away


def test_what_is_written_while_the_server_is_away_arrives_later_in_its_order_and_once(
    place: Place,
) -> None:
    journal = place.journal()
    assert journal.append([unnumbered("a")])[0].record.number == 1
    place.cut()
    appended = [journal.append([unnumbered(run)])[0] for run in ("b", "c", "d")]
    assert [(one.record.number, one.fresh) for one in appended] == [(2, True), (3, True), (4, True)]
    assert place.arrived() == ["a"]
    assert [summary(one.record) for one in journal.waiting()] == ["b", "c", "d"]
    assert place.opened().waiting() == 3
    place.mend()
    assert journal.append([unnumbered("e")])[0].record.number == 5
    assert place.arrived() == ["a", "b", "c", "d", "e"]
    assert journal.waiting() == ()
    assert place.opened().deliver() == 0
    assert journal.verify() == (5, [])


@pytest.mark.parametrize("how", ["read", "deliver", "forget", "verify"])
def test_whoever_reaches_the_server_first_delivers(place: Place, how: str) -> None:
    place.cut()
    place.journal().append([unnumbered("a"), unnumbered("b")])
    place.mend()
    journals = place.opened()
    if how == "read":
        assert len(journals.journal("auth").read().records) == 2
    elif how == "deliver":
        assert journals.deliver() == 2
    elif how == "forget":
        assert journals.journal("auth").forget([note("a", 1).id]) == [note("a", 1).id]
        assert place.arrived() == ["b"]
        return
    else:
        assert journals.journal("auth").verify() == (2, [])
    assert place.arrived() == ["a", "b"]


def test_a_new_process_numbers_behind_what_this_machine_has_seen(place: Place) -> None:
    place.journal().append([note("a", 41)])
    place.cut()
    assert place.journal().append([unnumbered("b")])[0].record.number == 42
    assert place.journal().append([unnumbered("c")])[0].record.number == 43
    assert place.journal().append([unnumbered("b")])[0].fresh is False


def test_a_reader_has_seen_the_numbers_too(place: Place) -> None:
    place.server.journal("auth").append([note("theirs", 7)])
    place.journal().read()
    place.cut()
    assert place.journal().append([unnumbered("b")])[0].record.number == 8


def test_what_was_delivered_keeps_its_numbers(place: Place) -> None:
    place.journal().append([note("a", 41)])
    place.cut()
    assert place.journal().append([unnumbered("b")])[0].record.number == 42
    place.mend()
    assert place.opened().deliver() == 1
    place.cut()
    assert place.journal().append([unnumbered("c")])[0].record.number == 43


def test_a_process_that_knows_less_does_not_take_back_what_another_has_seen(place: Place) -> None:
    slow, fast = spool_of(place.opened(), "auth"), spool_of(place.opened(), "auth")
    slow.note(7)
    fast.note(9)
    slow.note(8)
    place.cut()
    assert place.journal().append([unnumbered("a")])[0].record.number == 10


class Dying(SpooledJournal):
    """A writer whose process dies as soon as the server has committed."""

    def attempt(self, drafts: Sequence[Record | Draft], tried: Tried) -> list[Appended]:
        super().attempt(drafts, tried)
        raise SystemExit


def test_no_number_is_given_twice_when_everything_dies_right_after_a_commit(place: Place) -> None:
    journals = place.opened()
    spool = spool_of(journals, "auth")
    dying = Dying(journals.link, journals.memory, "auth", lambda: spool)
    with pytest.raises(SystemExit):
        dying.append([unnumbered("a")])
    place.cut()

    assert place.journal().append([unnumbered("b")])[0].record.number == 2

    place.mend()
    place.opened().deliver()
    numbers = [one.record.number for one in place.server.journal("auth").read().records]
    assert numbers == [1, 2]


def test_the_highest_number_is_noted_whoever_notes_at_the_same_time(place: Place) -> None:
    lost: list[int] = []

    def note_all(first: int) -> None:
        spool, seen = (spool_of(place.opened(), "auth") for _ in range(2))
        for number in range(first, 1200, 4):
            spool.note(number)
            lost.extend([number] if seen.last_seen() < number else [])

    threads = [threading.Thread(target=note_all, args=[first]) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert lost == []


def test_a_journal_that_another_holds_for_too_long_is_no_reason_to_lose_a_record(
    place: Place, postgres: str
) -> None:
    journal = place.journal()
    journal.append([unnumbered("a")])
    link = Link(postgres, patience=Patience(lock_s=0.05))
    hurried = SpooledJournals(link, lambda: place.memory, place.home / "spool")
    with psycopg.connect(postgres) as holder:
        holder.execute("SELECT * FROM ralph_streams FOR UPDATE")
        (kept,) = hurried.journal("auth").append([unnumbered("b")])
        assert (kept.record.number, kept.fresh) == (2, True)
        assert place.arrived() == ["a"]
    journal.append([unnumbered("c")])
    assert place.arrived() == ["a", "b", "c"]
    link.close()


def test_a_record_that_is_there_already_is_not_kept_again_when_the_answer_is_lost(
    place: Place,
) -> None:
    journal = place.journal()
    journal.append([unnumbered("a")])
    place.wire.before_commit = 1

    def cutting(number: int) -> Record:
        place.wire.refuses = True  # the connection that there is goes on, no other is made
        return note("a", number)

    (again,) = journal.append([cutting])
    assert (again.record, again.fresh) == (note("a", 1), False)
    assert journal.waiting() == ()
    place.mend()
    assert place.opened().deliver() == 0
    assert place.arrived() == ["a"]


def test_a_folder_that_cannot_be_noted_in_is_told_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    journals = place.opened()
    (place.home / "spool").write_text("in the way", encoding="utf-8")
    spool = spool_of(journals, "auth")
    with caplog.at_level(logging.WARNING):
        spool.note(1)
        spool.note(2)
    assert len(caplog.messages) == 1
    assert spool.last_seen() == 2


def test_a_record_that_the_server_could_not_hold_is_refused_at_once(place: Place) -> None:
    place.cut()
    journal = place.journal()
    for bad in (Record("a\0b", "iteration", 1, "", b"{}"), Record("r", "iteration", 1, "", b"x")):
        with pytest.raises(BadRecord):
            journal.append([note("a"), bad])
    with pytest.raises(BadRecord):
        journal.append([lambda number: Record("x" * 2000, "iteration", number, "", b"{}")])
    assert journal.waiting() == ()


@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_whose_fate_nobody_can_tell_is_kept_and_known_again(
    place: Place, arrived: bool
) -> None:
    journal = place.journal()
    journal.append([unnumbered("a")])
    place.server.journal("auth").append([unnumbered("theirs")])  # not seen here: 2 is taken
    if arrived:
        place.wire.after_commit = 1
    else:
        place.wire.before_commit = 1

    def cutting(number: int) -> Record:
        place.wire.refuses = True  # the connection that there is goes on, no other is made
        return note("b", number)

    (appended,) = journal.append([cutting])
    assert (appended.record, appended.fresh) == (note("b", 3), True)
    assert [summary(one.record) for one in journal.waiting()] == ["b"]
    assert place.arrived() == (["a", "theirs", "b"] if arrived else ["a", "theirs"])
    place.mend()
    journal.append([unnumbered("c")])
    assert place.arrived() == ["a", "theirs", "b", "c"]
    assert place.server.journal("auth").verify() == (4, [])


def test_who_finds_another_one_delivering_goes_behind_him(place: Place) -> None:
    place.cut()
    journal = place.journal()
    journal.append([unnumbered("a")])
    place.mend()
    folder = place.opened().spool_folder
    with disk.lock(folder / "auth.jsonl.lock", timeout_s=5):
        journal.append([unnumbered("b")])
        assert place.arrived() == []
        assert len(journal.read().records) == 0  # reading waits for nobody
    journal.append([unnumbered("c")])
    assert place.arrived() == ["a", "b", "c"]


def test_what_was_forgotten_on_the_server_meanwhile_is_not_delivered(place: Place) -> None:
    place.server.journal("auth").append([note("x", 1), note("secret", 2)])
    place.cut()
    place.journal().append([note("a", 3), note("secret", 2), note("b", 4)])
    place.server.journal("auth").forget([note("secret", 2).id])
    place.mend()
    assert place.opened().deliver() == 2
    assert place.arrived() == ["x", "a", "b"]
    assert place.opened().waiting() == 0


def test_nothing_is_forgotten_while_the_server_is_away(place: Place) -> None:
    journal = place.journal()
    journal.append([note("a", 1)])
    place.cut()
    for use in (
        lambda: journal.forget([note("a", 1).id]),
        journal.verify,
    ):
        with pytest.raises(JournalDown):
            use()
    journal.append([note("b", 2)])
    with pytest.raises(JournalDown):
        place.opened().deliver()


# -- reading while it is away


def test_a_follower_gets_what_waits_and_later_everything_once(place: Place) -> None:
    journal = place.journal()
    journal.append([unnumbered("a")])
    fold = Fold(journal)
    assert [summary(one.record) for one in fold.records()] == ["a"]
    first = journal.read()
    place.cut()
    assert journal.unchanged(first.position)
    place.journal().append([unnumbered("b")])
    assert not journal.unchanged(first.position)
    waiting = journal.read(first.position)
    assert [summary(one.record) for one in waiting.records] == ["b"]
    assert (waiting.restarted, waiting.done) == (False, True)
    assert journal.unchanged(waiting.position)
    assert [summary(one.record) for one in fold.records()] == ["a", "b"]
    place.server.journal("auth").append([unnumbered("theirs")])
    place.mend()
    assert not journal.unchanged(waiting.position)
    rest = journal.read(waiting.position)
    assert [summary(one.record) for one in rest.records] == ["theirs", "b"]
    assert journal.unchanged(rest.position)
    assert [summary(one.record) for one in fold.records()] == ["a", "b", "theirs"]


def test_a_follower_is_not_confused_when_another_process_delivered(place: Place) -> None:
    journal = place.journal()
    journal.append([unnumbered("a")])
    position = journal.read().position
    place.cut()
    journal.append([unnumbered("b")])
    position = journal.read(position).position
    place.mend()
    place.opened().deliver()
    place.cut()
    assert not journal.unchanged(position)
    batch = journal.read(position)
    assert (batch.records, batch.restarted) == ((), False)
    place.mend()
    assert [summary(one.record) for one in journal.read(batch.position).records] == ["b"]


def test_who_begins_while_the_server_is_away_sees_what_waits_and_no_index_is_built_of_it(
    place: Place,
) -> None:
    place.server.journal("auth").append([note("a", 1)])
    place.cut()
    journal = place.journal()
    journal.append([note("b", 2)])
    with pytest.raises(JournalDown):
        journal.read()  # an index of what waits would take its part for the whole
    fold = Fold(journal)
    assert [summary(one.record) for one in fold.records()] == ["b"]
    journal.append([note("c", 3)])
    assert [summary(one.record) for one in fold.records()] == ["b", "c"]
    assert [summary(one.record) for one in fold.after(1)] == ["c"]
    before = fold.generation
    place.mend()
    assert [summary(one.record) for one in fold.records()] == ["a", "b", "c"]
    assert fold.generation > before
    assert [summary(one.record) for one in fold.after(0)] == ["a", "b", "c"]


def test_the_names_are_those_that_this_machine_knows(place: Place) -> None:
    place.server.journal("seen").append([note("a")])
    place.server.journal("unseen").append([note("a")])
    journals = place.opened()
    journals.journal("seen").read()
    place.cut()
    journals.journal("new").append([note("b", at="2026-02-09T14:30:00Z")])
    assert place.opened().names() == ["new", "seen"]
    assert journals.newest_at("new") == "2026-02-09T14:30:00Z"
    assert journals.newest_at("seen") == ""
    assert journals.size_bytes("seen") == 0
    place.mend()
    assert place.opened().names() == ["new", "seen", "unseen"]
    assert journals.size_bytes("seen") > 0


def test_trouble_is_told_while_it_lasts(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    journals = place.opened()
    journal = journals.journal("auth")
    journal.append([note("a", 1)])
    assert journals.trouble() is None
    place.cut()
    with caplog.at_level(logging.WARNING):
        journal.append([note("b", 2)])
        journal.append([note("c", 3)])
    trouble = journals.trouble() or ""
    assert trouble.startswith(f"cannot reach the journal server (127.0.0.1:{place.wire.port}/")
    assert trouble.endswith("; results may be out of date")
    assert "not-a-secret" not in trouble
    assert len(caplog.messages) == 1  # once, however often it is met
    place.mend()
    journal.append([note("d", 4)])
    assert journals.trouble() is None


def test_names_that_the_file_system_takes_for_one_do_not_mix_their_records(place: Place) -> None:
    place.cut()
    place.opened().journal("Auth").append([note("a")])
    folder = place.opened().spool_folder
    if (folder / "auth.jsonl").exists():
        with pytest.raises(BadInput, match="upper and lower case"):
            place.opened().journal("auth").append([note("b")])
        return
    place.opened().journal("auth").append([note("b")])
    place.mend()
    assert place.opened().deliver() == 2
    assert place.arrived() == ["b"]


# -- what a crash leaves

DELIVER = """
    import os, sys
    from pathlib import Path
    from ralph.journal import spool
    from ralph.journal.spool import server_journals

    url, home, memory, after = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    hand_over = spool._hand_over

    def dying(records, target):
        count = hand_over(records, target)
        dying.left -= 1
        if dying.left < 0:
            os._exit(9)
        return count

    dying.left = after
    spool._hand_over = dying
    spool._PORTION = 7
    server_journals(url, lambda: memory, home / "spool").deliver()
    os._exit(0)
"""


def test_whoever_is_killed_while_delivering_delivers_nothing_twice(place: Place) -> None:
    place.cut()
    journal = place.journal()
    runs = [f"r{i}" for i in range(40)]
    journal.append([unnumbered(run) for run in runs])
    place.mend()
    for after in (0, 2, 5):  # the last one: everything is there, nothing was taken away here
        with child(DELIVER, place._url, place.home, place.memory, after) as process:
            assert process.wait(timeout=60) == 9
        assert len(journal.waiting()) == 40
    assert place.arrived() == runs
    with child(DELIVER, place._url, place.home, place.memory, 100) as process:
        assert process.wait(timeout=60) == 0
    assert journal.waiting() == ()
    assert place.arrived() == runs


def test_a_line_that_cannot_be_read_is_set_aside_and_told(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.cut()
    journal = place.journal()
    journal.append([unnumbered("a")])
    file = place.opened().spool_folder / "auth.jsonl"
    with file.open("ab") as torn:
        torn.write(b'{"v":1,"kind":"iter')
    place.mend()
    with caplog.at_level(logging.WARNING):
        assert place.opened().deliver() == 1
    assert place.arrived() == ["a"]
    (left,) = file.parent.glob("auth.jsonl.left-*")
    assert left.read_bytes().endswith(b'{"v":1,"kind":"iter')
    assert any(left.name in message for message in caplog.messages)
    assert file.read_bytes() == b""


WRITE = """
    import sys
    from pathlib import Path
    from journaling import unnumbered
    from ralph.journal.session import Link, Patience
    from ralph.journal.spool import SpooledJournals

    url, home, memory, writer = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    link = Link(url, patience=Patience(retry_after_s=0.0))
    journals = SpooledJournals(link, lambda: memory, home / "spool")
    journal = journals.journal("auth")
    print("ready", flush=True)
    i = 0
    while sys.stdin.readline().strip() != "end":
        (appended,) = journal.append([unnumbered(f"{writer}-{i}")])
        print(appended.record.id, flush=True)
        i += 1
"""


def test_a_writer_killed_at_any_moment_of_an_outage_loses_nothing_it_acknowledged(
    place: Place,
) -> None:
    dice = random.Random(7)
    acknowledged: list[str] = []
    for round_ in range(4):
        with child(WRITE, place.wire.url, place.home, place.memory, f"w{round_}") as writer:
            assert hear(writer) == "ready"
            for step in range(12):
                place.wire.refuses = step % 4 > 1
                if dice.random() < 0.3:
                    place.wire.after_commit = 1
                tell(writer, "go")
                acknowledged.append(hear(writer))
            tell(writer, "go")
            writer.kill()
    place.wire.after_commit = 0
    place.mend()
    place.opened().deliver()
    ids = [one.record.id for one in place.server.journal("auth").read().records]
    assert len(ids) == len(set(ids))
    assert set(acknowledged) <= set(ids)
    assert len(ids) <= len(acknowledged) + 4
    assert [one for one in ids if one in acknowledged] == acknowledged


# -- a real outage, and the way back to files


@pytest.mark.slow
def test_a_loop_goes_on_through_a_stop_of_the_server_and_everything_is_there_afterwards(
    tmp_path: Path,
) -> None:
    with own_server() as server:
        journals = opened(server, tmp_path)
        journal = journals.journal("auth")
        journal.append([unnumbered("before")])
        server.stop()
        for i in range(5):
            assert journal.append([unnumbered(f"during-{i}")])[0].fresh
        server.start()
        assert journals.deliver() == 5
        journal.append([unnumbered("after")])
        told = ["before", *(f"during-{i}" for i in range(5)), "after"]
        assert living(journal) == told
        assert journal.verify() == (7, [])
        journals.close()


def opened(server: Server, home: Path) -> SpooledJournals:
    link = Link(server.url, patience=QUICK)
    return SpooledJournals(link, lambda: "conversations", home / "spool")


def test_memories_on_one_server_share_a_connection(postgres: str, tmp_path: Path) -> None:
    spools = tmp_path / "home" / "spool"
    one = server_journals(postgres, lambda: "knowledge", spools)
    other = server_journals(postgres, lambda: "conversations", spools)
    assert one.link is other.link
    assert not (tmp_path / "home").exists()


def test_what_still_waits_goes_to_the_files_when_the_server_is_given_up(
    place: Place, tmp_path: Path
) -> None:
    place.cut()
    place.journal().append([unnumbered("a"), unnumbered("b")])
    files = JournalFolder(tmp_path / "memory")
    deliver_to_files(files, place.memory, place.home / "spool")
    assert living(files.journal("auth")) == ["a", "b"]
    assert place.opened().waiting() == 0
    deliver_to_files(files, place.memory, place.home / "spool")
    assert len(files.journal("auth").read().records) == 2
