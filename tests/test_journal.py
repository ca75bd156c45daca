"""The journal in one process: each record once, numbers, forgetting, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from journaling import living, note, summary, unnumbered

from ralph.errors import BadRecord, JournalError, RecordForgotten
from ralph.journal import Journal
from ralph.journal.fold import Fold
from ralph.journal.jsonl import JsonlJournal
from ralph.record import Record, Source, Tombstone, utc


@pytest.fixture
def journal(tmp_path: Path) -> JsonlJournal:
    return JsonlJournal(tmp_path / "memory" / "auth.jsonl")


def again(journal: JsonlJournal) -> JsonlJournal:
    """The same file as another process sees it."""
    return JsonlJournal(journal.path)


def lines(journal: JsonlJournal) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.path.read_bytes().splitlines()]


def test_a_file_of_lines_keeps_the_promises_of_a_journal(journal: JsonlJournal) -> None:
    promised: Journal = journal
    assert promised.append([]) == []


# -- the published form


def test_the_line_of_a_record_is_as_published(journal: JsonlJournal) -> None:
    journal.append([note("session-1", 7, text="Validated ü", task=42)])
    assert journal.path.read_text("utf-8") == (
        '{"v":1,"kind":"iteration","id":"f2f035e0-8122-598f-ab4b-533145922c37","number":7,'
        '"at":"2026-02-07T14:30:00Z","digest":"91b52e903dca35a3381fe12ddf204ea0",'
        '"source":{"run":"session-1"},'
        '"body":{"feature":"auth","task_id":42,"summary":"Validated ü"}}\n'
    )


def test_the_line_of_a_tombstone_is_as_published(journal: JsonlJournal) -> None:
    record = note("session-1", 7)
    journal.append([record])
    journal.forget([record.id], reason="a password")
    (stone,) = lines(journal)
    assert list(stone) == ["v", "kind", "id", "number", "at", "was_at", "reason"]
    assert utc(stone["at"]) == stone["at"]
    assert stone == {
        "at": stone["at"],
        "v": 1,
        "kind": "forgotten",
        "id": record.id,
        "number": 7,
        "was_at": "2026-02-07T14:30:00Z",
        "reason": "a password",
    }


# -- append


def test_a_numbered_record_appended_twice_is_one(journal: JsonlJournal) -> None:
    record = note("a", 3)
    (first,) = journal.append([record])
    (second,) = journal.append([record])
    (elsewhere,) = again(journal).append([record])
    assert [first.fresh, second.fresh, elsewhere.fresh] == [True, False, False]
    assert first.record == second.record == elsewhere.record == record
    assert len(lines(journal)) == 1


def test_an_unnumbered_record_appended_twice_is_one_and_keeps_its_number(
    journal: JsonlJournal,
) -> None:
    journal.append([unnumbered("a"), unnumbered("b"), unnumbered("c")])
    (second,) = journal.append([unnumbered("b")])
    (elsewhere,) = again(journal).append([unnumbered("b")])
    assert [second.fresh, elsewhere.fresh] == [False, False]
    assert second.record == elsewhere.record == note("b", 2)
    assert len(lines(journal)) == 3


def test_a_record_twice_in_one_batch_is_one(journal: JsonlJournal) -> None:
    appended = journal.append([note("a"), note("a"), unnumbered("b"), unnumbered("b")])
    assert [a.fresh for a in appended] == [True, False, True, False]
    assert [a.record.number for a in appended] == [1, 1, 2, 2]


def test_numbers_go_on_from_the_highest_in_the_file(journal: JsonlJournal) -> None:
    journal.append([unnumbered("a"), note("b", 40), unnumbered("c"), note("d", 7)])
    again(journal).append([unnumbered("e")])
    journal.append([unnumbered("f")])
    assert [line["number"] for line in lines(journal)] == [1, 40, 41, 7, 42, 43]


def test_two_branches_iteration_8_are_two_records(journal: JsonlJournal) -> None:
    journal.append([note("main", 8), note("branch", 8)])
    assert living(journal) == ["main", "branch"]
    assert journal.verify() == (2, [])


def test_two_projects_iteration_8_are_two_records(journal: JsonlJournal) -> None:
    journal.append([note("main", 8, project="one"), note("main", 8, project="two")])
    assert journal.verify() == (2, [])


def test_the_same_id_with_other_content_is_kept_twice_and_reported(journal: JsonlJournal) -> None:
    one, other = note("a", 1, text="it works"), note("a", 1, text="it does not")
    assert one.id == other.id
    assert [a.fresh for a in journal.append([one, other])] == [True, True]
    assert [a.fresh for a in again(journal).append([other, one])] == [False, False]
    assert living(journal) == ["it works", "it does not"]
    readable, complaints = journal.verify()
    assert readable == 2
    assert [str(c) for c in complaints] == [
        f"auth.jsonl:2: record {one.id} stands on line 1 with other content; both are kept"
    ]


def test_the_source_of_a_record_comes_back(journal: JsonlJournal) -> None:
    source = Source(run="s", file="runs/out.jsonl", line=12)
    journal.append([Record("r1", "iteration", 1, "2026-02-07T14:30:00Z", b"{}", source)])
    (located,) = again(journal).read().records
    assert located.record.source == source
    assert (located.file, located.line) == ("auth.jsonl", 1)


def test_a_batch_with_one_bad_record_is_not_kept_at_all(journal: JsonlJournal) -> None:
    journal.append([note("before")])
    before = journal.path.read_bytes()
    bad = Record("r1", "iteration", 1, "", b"not json")
    with pytest.raises(BadRecord):
        journal.append([note("good"), bad])
    assert journal.path.read_bytes() == before
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
    journal: JsonlJournal, record: Record
) -> None:
    with pytest.raises(BadRecord, match="cannot be kept"):
        journal.append([record])
    assert journal.path.read_bytes() == b""
    assert journal.append([note("a")])[0].fresh


def test_a_record_over_the_limit_of_a_line_is_refused_with_both_sizes(tmp_path: Path) -> None:
    journal = JsonlJournal(tmp_path / "auth.jsonl", max_line_bytes=1000)
    with pytest.raises(JournalError, match=r"takes \d{4} bytes, the limit is 1000") as caught:
        journal.append([note("a", text="x" * 1000)])
    assert "nothing was written" in str(caught.value)
    journal.append([note("b")])
    assert living(journal) == ["b"]


def test_a_draft_that_fails_writes_nothing_and_lets_the_lock_go(journal: JsonlJournal) -> None:
    def fails(number: int) -> Record:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        journal.append([unnumbered("a"), fails])
    (appended,) = journal.append([unnumbered("b")])
    assert (appended.record.number, appended.fresh) == (1, True)


def test_what_is_appended_while_git_replaces_the_file_goes_into_the_new_one(
    journal: JsonlJournal,
) -> None:
    journal.append([note("ours", 1)])
    other = JsonlJournal(journal.path.with_name("theirs.jsonl"))
    other.append([note("ours", 1), note("theirs", 2)])
    replaced = other.path.read_bytes()
    seen: list[int] = []

    def replacing(number: int) -> Record:
        if not seen:  # the moment between the look at the file and the write to it
            journal.path.unlink()
            journal.path.write_bytes(replaced)
        seen.append(number)
        return note("new", number)

    (appended,) = journal.append([replacing])
    assert appended.record.number == 3
    assert seen == [2, 3]
    assert living(again(journal)) == ["ours", "theirs", "new"]


def test_an_append_does_not_create_what_it_does_not_write(journal: JsonlJournal) -> None:
    journal.append([])
    assert not journal.path.exists()
    assert journal.read().records == ()
    assert journal.verify() == (0, [])
    assert journal.forget(["r1"]) == []
    assert not journal.path.parent.exists()


# -- forget


def test_a_forgotten_record_leaves_a_tombstone_and_none_of_its_bytes(journal: JsonlJournal) -> None:
    secret = note("b", 2, text="the password is hunter2")
    journal.append([note("a", 1), secret, note("c", 3)])
    assert journal.forget([secret.id], reason="a password") == [secret.id]
    assert b"hunter2" not in journal.path.read_bytes()
    assert secret.digest.encode() not in journal.path.read_bytes()
    assert living(journal) == ["a", "c"]
    (stone,) = journal.read().tombstones
    assert (stone.id, stone.reason) == (secret.id, "a password")
    assert journal.forgotten() == {secret.id}
    assert journal.verify() == (2, [])


def test_the_other_lines_are_byte_for_byte_what_they_were(journal: JsonlJournal) -> None:
    journal.append([note("a", 1), note("b", 2), note("c", 3)])
    a, b, c = journal.path.read_bytes().splitlines(keepends=True)
    odd = b'{"v":99,"new":true}\r\n\n  \n<<<<<<< HEAD\n' + b"\0\0\n"
    journal.path.write_bytes(a + b + odd + c)
    journal.forget([note("b", 2).id])
    assert journal.path.read_bytes().startswith(a + odd + c)
    assert len(journal.path.read_bytes()[len(a + odd + c) :].splitlines()) == 1


@pytest.mark.parametrize("other", [False, True])
def test_a_forgotten_record_does_not_come_back_by_an_append(
    journal: JsonlJournal, other: bool
) -> None:
    journal.append([unnumbered("a"), unnumbered("b"), unnumbered("c")])
    journal.forget([note("b", 2).id])
    before = journal.path.read_bytes()
    writer = again(journal) if other else journal
    for draft in (note("b", 2), unnumbered("b"), note("b", 2, text="in other words")):
        with pytest.raises(RecordForgotten, match=f"{note('b', 2).id} was forgotten"):
            writer.append([note("new", 9), draft])
    assert journal.path.read_bytes() == before


def test_the_number_of_a_forgotten_record_stays_taken(journal: JsonlJournal) -> None:
    journal.append([unnumbered("a"), unnumbered("session")])
    journal.forget([note("session", 2).id])
    # The same run goes on to its next iteration: not the one that was forgotten.
    later = unnumbered("session", at="2026-02-07T14:45:00Z")
    assert again(journal).append([later])[0].record.number == 3
    assert journal.append([unnumbered("b")])[0].record.number == 4


def test_all_contents_under_one_id_are_forgotten_together(journal: JsonlJournal) -> None:
    one, other = note("a", 1, text="this"), note("a", 1, text="that")
    journal.append([one, other, note("b", 2)])
    assert journal.forget([one.id]) == [one.id]
    assert living(journal) == ["b"]
    assert len(journal.read().tombstones) == 1


def test_forgetting_twice_or_something_unknown_changes_nothing(journal: JsonlJournal) -> None:
    record = note("a")
    journal.append([record])
    journal.forget([record.id])
    before = journal.path.read_bytes()
    assert journal.forget([record.id, "unknown"]) == []
    assert journal.forget([]) == []
    assert journal.path.read_bytes() == before


def test_an_unseen_record_can_be_forgotten_before_it_comes(journal: JsonlJournal) -> None:
    record = note("a")
    stone = Tombstone(record.id, "2026-02-07T14:30:00Z", "elsewhere", record.number, record.at)
    assert journal.forget([], stones=[stone]) == []
    assert journal.forgotten() == {record.id}
    assert journal.read().tombstones == (stone,)
    with pytest.raises(RecordForgotten):
        journal.append([record])
    before = journal.path.read_bytes()
    assert journal.forget([], stones=[stone]) == []
    assert journal.path.read_bytes() == before


def test_a_record_that_a_merge_brought_back_is_not_living_is_reported_and_can_go_again(
    journal: JsonlJournal,
) -> None:
    secret = note("b", 2, text="hunter2")
    journal.append([note("a", 1), secret])
    theirs = journal.path.read_bytes()
    journal.forget([secret.id])
    ours = journal.path.read_bytes()
    union = ours + b"".join(line for line in theirs.splitlines(True) if line not in ours)
    journal.path.write_bytes(union)

    assert living(journal) == ["a"]
    with pytest.raises(RecordForgotten):
        journal.append([secret])
    readable, complaints = journal.verify()
    assert readable == 1
    assert [(c.line, secret.id in c.what) for c in complaints] == [(3, True)]
    assert "forgotten and is back" in complaints[0].what

    assert journal.forget([secret.id]) == [secret.id]
    assert journal.path.read_bytes() == ours


def test_what_a_crash_left_half_written_of_a_record_is_forgotten_with_it(
    journal: JsonlJournal,
) -> None:
    secret = note("b", 2, text="hunter2" * 20)
    journal.append([note("a", 1), secret])
    whole = journal.path.read_bytes().splitlines(keepends=True)
    torn = whole[1][:-30]
    journal.path.write_bytes(whole[0] + torn)
    again(journal).append([secret])  # the writer tries again
    assert journal.path.read_bytes() == whole[0] + torn + b"\n" + whole[1]

    assert journal.forget([secret.id]) == [secret.id]
    assert b"hunter2" not in journal.path.read_bytes()
    assert living(journal) == ["a"]


def test_a_half_written_record_alone_can_be_forgotten(journal: JsonlJournal) -> None:
    secret = note("b", 2, text="hunter2" * 20)
    journal.append([note("a", 1), secret])
    journal.path.write_bytes(journal.path.read_bytes()[:-30])
    assert journal.forget([secret.id]) == [secret.id]
    assert b"hunter2" not in journal.path.read_bytes()
    assert journal.verify() == (1, [])
    with pytest.raises(RecordForgotten):
        journal.append([secret])


def test_a_reason_that_is_no_text_does_not_stop_a_forget(journal: JsonlJournal) -> None:
    record = note("a")
    journal.append([record])
    journal.forget([record.id], reason="caf\udce9")  # as a terminal hands over a stray byte
    assert [stone.reason for stone in journal.read().tombstones] == ["caf?"]


def test_a_draft_left_by_a_crashed_rewrite_is_swept_by_the_next(journal: JsonlJournal) -> None:
    record = note("a")
    journal.append([record, note("b", 2)])
    left = journal.path.with_name(".auth.jsonl.4711-0.tmp")
    left.write_bytes(journal.path.read_bytes())
    assert living(journal) == ["a", "b"]
    journal.forget([record.id])
    assert list(journal.path.parent.iterdir()) == [journal.path]


def test_a_journal_behind_a_link_is_forgotten_from_where_it_is(tmp_path: Path) -> None:
    real = JsonlJournal(tmp_path / "elsewhere.jsonl")
    record = note("a", text="hunter2")
    real.append([record, note("b", 2)])
    link = tmp_path / "auth.jsonl"
    link.symlink_to(real.path)
    JsonlJournal(link).forget([record.id])
    assert link.is_symlink()
    assert b"hunter2" not in real.path.read_bytes()
    assert living(JsonlJournal(link)) == living(real) == ["b"]


# -- fold


def test_a_fold_keeps_up_with_appends_forgets_and_a_vanished_file(journal: JsonlJournal) -> None:
    fold = Fold(journal)

    def texts() -> list[str]:
        return [summary(located.record) for located in fold.records()]

    assert texts() == []
    journal.append([note("a", 1), note("b", 2)])
    assert texts() == ["a", "b"]
    again(journal).append([note("c", 3)])
    assert texts() == ["a", "b", "c"]
    again(journal).forget([note("a", 1).id])
    assert texts() == ["b", "c"]
    journal.path.unlink()
    assert texts() == []
    journal.append([note("a", 1)])
    assert texts() == ["a"]


def test_a_fold_gives_a_line_that_stands_twice_once(journal: JsonlJournal) -> None:
    journal.append([note("a", 1), note("b", 2)])
    journal.path.write_bytes(journal.path.read_bytes() * 2)
    assert living(journal) == ["a", "b"]
    assert journal.verify() == (2, [])


def test_a_fold_complains_of_a_line_once_and_not_when_it_became_whole(
    journal: JsonlJournal,
) -> None:
    journal.append([note("a", 1), note("b", 2)])
    whole = journal.path.read_bytes()
    journal.path.write_bytes(b"foreign\n" + whole[:-20])
    fold = Fold(journal)
    fold.records()
    assert [c.line for c in fold.complaints] == [1, 3]
    with journal.path.open("ab") as file:
        file.write(whole[-20:-10])
    fold.records()
    assert [c.line for c in fold.complaints] == [1, 3]
    with journal.path.open("ab") as file:
        file.write(whole[-10:])
    assert [summary(located.record) for located in fold.records()] == ["a", "b"]
    assert [c.line for c in fold.complaints] == [1]
