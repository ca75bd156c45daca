"""What every journal promises, in a file, in PostgreSQL, and there with a spool before it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from journaling import forgotten, in_steps, living, note, summary, unnumbered

from ralph.errors import BadRecord, JournalError, RecordForgotten
from ralph.journal import Batch, Fold, Journal, Journals
from ralph.journal.file import JournalFolder, JsonlJournal
from ralph.journal.postgres import PostgresJournal, PostgresJournals
from ralph.journal.session import Link, Patience
from ralph.journal.spool import server_journals
from ralph.records import Record, Source, Tombstone


class Ground:
    """One journal, opened as often as a test wants, and everything that is stored of it."""

    def __init__(self, journals: Callable[[], Journals], stored: Callable[[], str]) -> None:
        self._journals = journals
        self.stored = stored
        self.journal = self.again()

    def again(self) -> Journal:
        """The same journal as another process sees it."""
        return self._journals().journal("auth")

    def count(self) -> int:
        """How many entries stand in it."""
        batch = self.again().read()
        return len(batch.records) + len(batch.tombstones)


@pytest.fixture(
    params=[
        "files",
        pytest.param("postgres", marks=pytest.mark.slow),
        pytest.param("spooled", marks=pytest.mark.slow),
    ]
)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    if request.param == "files":
        file = tmp_path / "memory" / "auth.jsonl"
        yield Ground(
            lambda: JournalFolder(file.parent),
            lambda: file.read_text(encoding="utf-8") if file.exists() else "",
        )
        return
    url: str = request.getfixturevalue("postgres")
    memory = f"feature/{uuid.uuid4()}"
    link = Link(url, patience=Patience(lock_s=5.0))

    def stored() -> str:
        sql = """SELECT e::text FROM ralph_entries e JOIN ralph_streams s USING (stream)
            WHERE s.memory = %s ORDER BY position"""
        rows = link.run(lambda talk: talk.rows(sql, [memory]))
        return "\n".join(row[0] for row in rows)

    def spooled() -> Journals:
        return server_journals(url, lambda: memory, tmp_path / "spool", lock_s=5.0)

    def plain() -> Journals:
        return PostgresJournals(link, lambda: memory)

    yield Ground(plain if request.param == "postgres" else spooled, stored)
    spooled().close()
    link.close()


@pytest.fixture
def journal(ground: Ground) -> Journal:
    return ground.journal


def texts(batch: Batch) -> list[str]:
    return [summary(located.record) for located in batch.records]


# -- append


def test_nothing_to_append_is_fine_and_begins_no_journal(ground: Ground) -> None:
    assert ground.journal.append([]) == []
    assert ground.journal.read().records == ()
    assert ground.journal.verify() == (0, [])
    assert ground.journal.forget(["r1"]) == []
    assert ground.stored() == ""


def test_a_numbered_record_appended_twice_is_one(ground: Ground) -> None:
    record = note("a", 3)
    (first,) = ground.journal.append([record])
    (second,) = ground.journal.append([record])
    (elsewhere,) = ground.again().append([record])
    assert [first.fresh, second.fresh, elsewhere.fresh] == [True, False, False]
    assert first.record == second.record == elsewhere.record == record
    assert ground.count() == 1


def test_an_unnumbered_record_appended_twice_is_one_and_keeps_its_number(ground: Ground) -> None:
    ground.journal.append([unnumbered("a"), unnumbered("b"), unnumbered("c")])
    (second,) = ground.journal.append([unnumbered("b")])
    (elsewhere,) = ground.again().append([unnumbered("b")])
    assert [second.fresh, elsewhere.fresh] == [False, False]
    assert second.record == elsewhere.record == note("b", 2)
    assert ground.count() == 3


def test_a_record_twice_in_one_batch_is_one(journal: Journal) -> None:
    appended = journal.append([note("a"), note("a"), unnumbered("b"), unnumbered("b")])
    assert [a.fresh for a in appended] == [True, False, True, False]
    assert [a.record.number for a in appended] == [1, 1, 2, 2]


def test_known_and_new_drafts_in_one_batch_get_the_numbers_that_are_theirs(
    ground: Ground,
) -> None:
    ground.journal.append([unnumbered("a"), unnumbered("b")])
    appended = ground.again().append(
        [unnumbered("c"), unnumbered("b"), unnumbered("d"), note("e", 40), unnumbered("f")]
    )
    assert [a.record.number for a in appended] == [3, 2, 4, 40, 41]
    assert [a.fresh for a in appended] == [True, False, True, True, True]


def test_numbers_go_on_from_the_highest(ground: Ground) -> None:
    ground.journal.append([unnumbered("a"), note("b", 40), unnumbered("c"), note("d", 7)])
    ground.again().append([unnumbered("e")])
    ground.journal.append([unnumbered("f")])
    numbers = [located.record.number for located in ground.again().read().records]
    assert numbers == [1, 40, 41, 7, 42, 43]


def test_two_branches_iteration_8_are_two_records(journal: Journal) -> None:
    journal.append([note("main", 8), note("branch", 8)])
    assert living(journal) == ["main", "branch"]
    assert journal.verify() == (2, [])


def test_two_projects_iteration_8_are_two_records(journal: Journal) -> None:
    journal.append([note("main", 8, project="one"), note("main", 8, project="two")])
    assert journal.verify() == (2, [])


def test_the_same_id_with_other_content_is_kept_twice_and_reported(ground: Ground) -> None:
    journal = ground.journal
    one, other = note("a", 1, text="it works"), note("a", 1, text="it does not")
    assert one.id == other.id
    assert [a.fresh for a in journal.append([one, other])] == [True, True]
    assert [a.fresh for a in ground.again().append([other, one])] == [False, False]
    assert living(journal) == ["it works", "it does not"]
    readable, complaints = journal.verify()
    assert readable == 2
    name = journal.read().records[0].file
    assert [str(c) for c in complaints] == [
        f"{name}:2: record {one.id} is also on line 1 with different content; both are kept"
    ]


def test_a_record_comes_back_as_it_was_given(ground: Ground) -> None:
    source = Source(run="s", file="runs/out.jsonl", line=12)
    odd = '{"text":"naïve \\u0000 \\ud83d\\ude00 😀 \\\\ %s {}","n":1.50}'.encode()
    record = Record("r1", "iteration", 2**53 - 1, "2026-02-07T14:30:00Z", odd, source)
    ground.journal.append([record])
    (located,) = ground.again().read().records
    assert located.record == record
    assert located.line == 1
    assert ground.again().verify() == (1, [])


def test_a_batch_with_one_bad_record_is_not_kept_at_all(ground: Ground) -> None:
    journal = ground.journal
    journal.append([note("before")])
    before = ground.stored()
    bad = Record("r1", "iteration", 1, "", b"not json")
    with pytest.raises(BadRecord):
        journal.append([note("good"), bad])
    assert ground.stored() == before
    assert journal.append([note("good")])[0].fresh  # it was not remembered as written


@pytest.mark.parametrize(
    "record",
    [
        Record("r1", "iteration", 1, "", b""),
        Record("r1", "iteration", 1, "", b"not json"),
        Record("r1", "iteration", 1, "", b'{"a":1'),
        Record("r1", "iteration", 1, "", b'{\n"a":1}'),
        Record("r1", "iteration", 1, "", b' {"a":1} '),
        Record("r1", "iteration", 1, "", b'"\xff"'),
        Record("r1", "iteration", 1, "", b'"\0"'),
        Record("r1", "iteration", 1, "", b'{}, "id": "r2"'),
        Record("r1", "iteration", 1, "", b"[" * 100_000 + b"]" * 100_000),
        Record("r1", "iteration", -1, "", b"{}"),
        Record("r1", "iteration", 2**53, "", b"{}"),
        Record("r1", "forgotten", 1, "", b"{}"),
        Record("r1", "", 1, "", b"{}"),
        Record("", "iteration", 1, "", b"{}"),
        Record("r1", "iteration", 1, "\ud800", b"{}"),
        Record("r1", "\ud800", 1, "", b"{}"),
        Record("\ud800", "iteration", 1, "", b"{}"),
        Record("r1", "iteration", 1, "", b"{}", Source(run="\ud800")),
    ],
)
def test_a_record_that_would_not_read_back_is_refused_and_not_acknowledged(
    ground: Ground, record: Record
) -> None:
    with pytest.raises(BadRecord, match="cannot be kept"):
        ground.journal.append([record])
    assert ground.stored() == ""
    assert ground.journal.append([note("a")])[0].fresh


def test_a_draft_that_fails_writes_nothing_and_lets_the_lock_go(journal: Journal) -> None:
    def fails(number: int) -> Record:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        journal.append([unnumbered("a"), fails])
    (appended,) = journal.append([unnumbered("b")])
    assert (appended.record.number, appended.fresh) == (1, True)


def test_a_record_over_the_limit_is_refused_with_both_sizes(tmp_path: Path, postgres: str) -> None:
    link = Link(postgres, patience=Patience())
    memory = f"feature/{uuid.uuid4()}"
    for journal in (
        JsonlJournal(tmp_path / "auth.jsonl"),
        PostgresJournal(link, lambda: memory, "auth"),
    ):
        with pytest.raises(
            JournalError, match=r"takes \d{7} bytes, the limit is 4194304"
        ) as caught:
            journal.append([note("a", text="x" * 4_194_304)])
        assert "nothing was written" in str(caught.value)
        journal.append([note("b")])
        assert living(journal) == ["b"]
    link.close()


# -- forget


def test_a_forgotten_record_leaves_a_tombstone_and_nothing_of_its_content(ground: Ground) -> None:
    journal = ground.journal
    secret = note("b", 2, text="the word is hunter2")
    journal.append([note("a", 1), secret, note("c", 3)])
    assert "hunter2" in ground.stored()
    assert journal.forget([secret.id], reason="a password") == [secret.id]
    assert "hunter2" not in ground.stored()
    assert secret.digest not in ground.stored()
    assert living(journal) == ["a", "c"]
    (stone,) = ground.again().read().tombstones
    assert stone == Tombstone(secret.id, stone.at, "a password", 2, secret.at)
    assert forgotten(journal) == {secret.id}
    assert journal.verify() == (2, [])


@pytest.mark.parametrize("other", [False, True])
def test_a_forgotten_record_does_not_come_back_by_an_append(ground: Ground, other: bool) -> None:
    journal = ground.journal
    journal.append([unnumbered("a"), unnumbered("b"), unnumbered("c")])
    journal.forget([note("b", 2).id])
    before = ground.stored()
    writer = ground.again() if other else journal
    for draft in (note("b", 2), unnumbered("b"), note("b", 2, text="in other words")):
        with pytest.raises(RecordForgotten, match=f"{note('b', 2).id} was forgotten"):
            writer.append([note("new", 9), draft])
    assert ground.stored() == before


def test_the_number_of_a_forgotten_record_stays_taken(ground: Ground) -> None:
    ground.journal.append([unnumbered("a"), unnumbered("session")])
    ground.journal.forget([note("session", 2).id])
    # The same run goes on to its next iteration: not the one that was forgotten.
    later = unnumbered("session", at="2026-02-07T14:45:00Z")
    assert ground.again().append([later])[0].record.number == 3
    assert ground.journal.append([unnumbered("b")])[0].record.number == 4


def test_all_contents_under_one_id_are_forgotten_together(journal: Journal) -> None:
    one, other = note("a", 1, text="this"), note("a", 1, text="that")
    journal.append([one, other, note("b", 2)])
    assert journal.forget([one.id]) == [one.id]
    assert living(journal) == ["b"]
    assert len(journal.read().tombstones) == 1


def test_forgetting_twice_or_something_unknown_changes_nothing(ground: Ground) -> None:
    journal = ground.journal
    record = note("a")
    journal.append([record])
    journal.forget([record.id])
    before = ground.stored()
    assert journal.forget([record.id, "unknown", "a\0b", "caf\udce9"]) == []
    assert journal.forget([]) == []
    assert ground.stored() == before


def test_an_unseen_record_can_be_forgotten_before_it_comes(ground: Ground) -> None:
    journal = ground.journal
    record = note("a", 9)
    stone = Tombstone(record.id, "2026-02-07T14:30:00Z", "elsewhere", record.number, record.at)
    assert journal.forget([], stones=[stone]) == []
    assert forgotten(journal) == {record.id}
    assert journal.read().tombstones == (stone,)
    with pytest.raises(RecordForgotten):
        journal.append([record])
    before = ground.stored()
    assert journal.forget([], stones=[stone]) == []
    assert ground.stored() == before
    assert journal.append([unnumbered("b")])[0].record.number == 10


def test_what_a_tombstone_from_elsewhere_stands_for_goes_too(ground: Ground) -> None:
    record = note("a")
    ground.journal.append([record, note("b", 2)])
    stone = Tombstone(record.id, "2026-02-07T14:30:00Z", "elsewhere", record.number, record.at)
    assert ground.journal.forget([], stones=[stone]) == [record.id]
    assert ground.again().read().tombstones == (stone,)
    assert living(ground.again()) == ["b"]


def test_a_reason_that_is_no_text_does_not_stop_a_forget(journal: Journal) -> None:
    record = note("a")
    journal.append([record])
    journal.forget([record.id], reason="caf\udce9")  # as a terminal hands over a stray byte
    assert [stone.reason for stone in journal.read().tombstones] == ["caf?"]


# -- reading on


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9, 50])
def test_steps_of_any_size_give_what_one_read_gives(journal: Journal, limit: int) -> None:
    journal.append([unnumbered(f"r{i}") for i in range(9)])
    journal.forget([note("r0", 1).id, note("r4", 5).id, note("r8", 9).id])
    whole = journal.read()
    assert texts(whole) == ["r1", "r2", "r3", "r5", "r6", "r7"]
    records, stones, complaints, position = in_steps(journal, limit)
    assert tuple(records) == whole.records
    assert tuple(stones) == whole.tombstones
    assert complaints == []
    assert position == whole.position


def test_a_limit_of_nothing_reads_nothing_and_says_that_there_is_more(journal: Journal) -> None:
    journal.append([note("a")])
    batch = journal.read(limit=0)
    assert (batch.records, batch.done) == ((), False)
    assert texts(journal.read(batch.position)) == ["a"]


def test_what_is_appended_is_seen_from_the_position_and_nothing_else(ground: Ground) -> None:
    journal = ground.journal
    nothing = journal.read()
    assert (nothing.records, nothing.restarted, nothing.done) == ((), False, True)
    assert journal.unchanged(nothing.position)
    journal.append([note("a", 1)])
    assert not journal.unchanged(nothing.position)
    first = journal.read(nothing.position)
    assert (texts(first), first.restarted) == (["a"], False)
    assert journal.unchanged(first.position)
    ground.again().append([note("b", 2), note("c", 3)])
    assert not journal.unchanged(first.position)
    batch = ground.again().read(first.position)
    assert texts(batch) == ["b", "c"]
    assert [located.line for located in batch.records] == [2, 3]
    assert not batch.restarted
    assert journal.read(batch.position).records == ()


def test_unchanged_is_said_only_when_nothing_happened(journal: Journal) -> None:
    journal.append([note("a", 1)])
    assert not journal.unchanged(None)
    position = journal.read().position
    journal.read()
    journal.verify()
    journal.append([note("a", 1)])  # there already
    journal.forget(["unknown"])
    assert journal.unchanged(position)
    journal.forget([note("a", 1).id])
    assert not journal.unchanged(position)


@pytest.mark.parametrize(
    "position",
    ["", "7", "not json", "{}", '{"epoch":"e","at":-1}', '{"epoch":"e","at":1}', "\ud800"],
)
def test_a_position_that_does_not_fit_is_started_again_from(
    journal: Journal, position: str
) -> None:
    assert not journal.unchanged(position)
    assert journal.read(position).restarted
    journal.append([note("a", 1)])
    batch = journal.read(position)
    assert (texts(batch), batch.restarted) == (["a"], True)
    assert journal.unchanged(batch.position)


def test_a_follower_learns_of_a_forget_wherever_it_stands(ground: Ground) -> None:
    journal = ground.journal
    journal.append([unnumbered(f"r{i}") for i in range(5)])
    folds = [Fold(ground.again()) for _ in range(2)]
    folds[0].records()
    begun = journal.read(limit=2)
    journal.forget([note("r1", 2).id, note("r4", 5).id])
    for fold in folds:
        assert [summary(one.record) for one in fold.records()] == ["r0", "r2", "r3"]
        assert fold.forgotten() == {note("r1", 2).id, note("r4", 5).id}
    rest = journal.read(begun.position)
    assert {stone.id for stone in rest.tombstones} == {note("r1", 2).id, note("r4", 5).id}
    assert "r4" not in texts(rest)


def test_a_fold_keeps_up_with_appends_and_forgets(ground: Ground) -> None:
    fold = Fold(ground.journal)

    def told() -> list[str]:
        return [summary(located.record) for located in fold.records()]

    assert told() == []
    ground.journal.append([note("a", 1), note("b", 2)])
    assert told() == ["a", "b"]
    ground.again().append([note("c", 3)])
    assert told() == ["a", "b", "c"]
    ground.again().forget([note("a", 1).id])
    assert told() == ["b", "c"]
