"""The journal as a file, in one process: its published form, merges, what a crash left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from journaling import forgotten, living, note, summary

from ralph.errors import RecordForgotten
from ralph.journal import Fold, Journal
from ralph.journal.file import JsonlJournal
from ralph.records import Record, utc


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
    assert forgotten(journal) == {secret.id}
    assert journal.verify() == (2, [])


def test_the_other_lines_are_byte_for_byte_what_they_were(journal: JsonlJournal) -> None:
    journal.append([note("a", 1), note("b", 2), note("c", 3)])
    a, b, c = journal.path.read_bytes().splitlines(keepends=True)
    odd = b'{"v":99,"new":true}\r\n\n  \n<<<<<<< HEAD\n' + b"\0\0\n"
    journal.path.write_bytes(a + b + odd + c)
    journal.forget([note("b", 2).id])
    assert journal.path.read_bytes().startswith(a + odd + c)
    assert len(journal.path.read_bytes()[len(a + odd + c) :].splitlines()) == 1


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


def test_a_fold_takes_a_torn_line_when_it_became_whole(journal: JsonlJournal) -> None:
    journal.append([note("a", 1), note("b", 2)])
    whole = journal.path.read_bytes()
    journal.path.write_bytes(b"foreign\n" + whole[:-20])
    fold = Fold(journal)
    assert [summary(located.record) for located in fold.records()] == ["a"]
    with journal.path.open("ab") as file:
        file.write(whole[-20:-10])
    assert [summary(located.record) for located in fold.records()] == ["a"]
    with journal.path.open("ab") as file:
        file.write(whole[-10:])
    assert [summary(located.record) for located in fold.records()] == ["a", "b"]
