"""Reading from a position: each line once, and from the start when the file is not what it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from journaling import in_steps, note, summary

from ralph.journal import Batch
from ralph.journal.file import JsonlJournal
from ralph.journal.line import write_record

A = write_record(note("a", 1))
B = write_record(note("b", 2))
C = write_record(note("c", 3))
GONE = b'{"v":1,"kind":"forgotten","id":"gone","at":"2026-02-08T00:00:00Z"}\n'
MESS = (
    b"\xef\xbb\xbf" + A + b"\n<<<<<<< ours\n" + B + GONE + b'{"v":2}\n' + b"\0\0\0\n" + b"x" * 700
) + (b"\n" + C + A + C[:60])


@pytest.fixture
def journal(tmp_path: Path) -> JsonlJournal:
    return JsonlJournal(tmp_path / "auth.jsonl", max_line_bytes=600)


def texts(batch: Batch) -> list[str]:
    return [summary(located.record) for located in batch.records]


# -- going on


@pytest.mark.parametrize("limit", range(1, 14))
def test_steps_of_any_size_give_what_one_read_gives(journal: JsonlJournal, limit: int) -> None:
    journal.path.write_bytes(MESS)
    whole = journal.read()
    assert [located.line for located in whole.records] == [1, 4, 9, 10]
    assert [complaint.line for complaint in whole.complaints] == [1, 3, 6, 7, 8, 11]
    records, stones, complaints, position = in_steps(journal, limit)
    assert tuple(records) == whole.records
    assert tuple(stones) == whole.tombstones
    assert tuple(complaints) == whole.complaints
    assert position == whole.position


def test_a_limit_of_nothing_reads_nothing_and_says_that_there_is_more(
    journal: JsonlJournal,
) -> None:
    journal.path.write_bytes(A)
    batch = journal.read(limit=0)
    assert (batch.records, batch.done) == ((), False)
    assert texts(journal.read(batch.position)) == ["a"]


def test_what_is_appended_is_seen_from_the_position_and_nothing_else(journal: JsonlJournal) -> None:
    journal.append([note("a", 1)])
    position = journal.read().position
    assert journal.unchanged(position)
    JsonlJournal(journal.path).append([note("b", 2), note("c", 3)])
    assert not journal.unchanged(position)
    batch = journal.read(position)
    assert texts(batch) == ["b", "c"]
    assert [located.line for located in batch.records] == [2, 3]
    assert not batch.restarted
    assert journal.read(batch.position).records == ()


def test_a_position_belongs_to_the_file_and_not_to_the_process(journal: JsonlJournal) -> None:
    journal.append([note("a", 1)])
    position = journal.read().position
    journal.append([note("b", 2)])
    assert texts(JsonlJournal(journal.path).read(position)) == ["b"]


def test_a_torn_line_is_read_when_it_has_become_whole(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + B[:50])
    torn = journal.read()
    assert (texts(torn), len(torn.complaints)) == (["a"], 1)
    assert journal.unchanged(torn.position)
    journal.path.write_bytes(A + B)
    journal_grown = journal.read(torn.position)
    assert texts(journal_grown) == ["b"]
    assert [located.line for located in journal_grown.records] == [2]
    assert journal_grown.complaints == ()


def test_lines_are_counted_right_behind_one_that_got_its_newline_later(
    journal: JsonlJournal,
) -> None:
    journal.path.write_bytes(A + B.rstrip(b"\n"))
    batch = journal.read()
    assert texts(batch) == ["a", "b"]
    journal.append([note("c", 3)])
    journal.append([note("d", 4)])
    assert [located.line for located in journal.read(batch.position).records] == [3, 4]
    journal.path.write_bytes(journal.path.read_bytes() + b"foreign\n")
    assert [c.line for c in journal.read(batch.position).complaints] == [5]


def test_a_writer_counts_lines_as_a_reader_does(journal: JsonlJournal) -> None:
    journal.path.write_bytes(b"torn")
    for number in range(1, 5):
        journal.append([note(f"r{number}", number)])
    known = journal.state.position
    assert known == journal.read().position


# -- starting again


def restarted(journal: JsonlJournal, position: str) -> list[str]:
    """Everything in the journal, as a reader gets it that must begin again."""
    assert not journal.unchanged(position)
    batch = journal.read(position)
    assert batch.restarted
    assert journal.unchanged(batch.position)
    assert texts(batch) == texts(journal.read())
    return texts(batch)


def test_a_forget_is_noticed(journal: JsonlJournal) -> None:
    journal.append([note("a", 1), note("b", 2)])
    position = journal.read().position
    journal.forget([note("a", 1).id], reason="so long " * 100)  # longer than before
    assert restarted(journal, position) == ["b"]


@pytest.mark.parametrize("limit", [1, None])
def test_another_file_in_its_place_is_noticed(journal: JsonlJournal, limit: int | None) -> None:
    journal.path.write_bytes(A + B)
    position = journal.read(limit=limit).position
    new = journal.path.with_name("new")
    new.write_bytes(A + B + C)
    new.replace(journal.path)
    assert restarted(journal, position) == ["a", "b", "c"]


def test_a_shortened_file_is_noticed(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + B)
    position = journal.read().position
    os.truncate(journal.path, len(A))
    assert restarted(journal, position) == ["a"]


def test_a_file_shortened_and_grown_again_is_noticed(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + B)
    position = journal.read().position
    os.truncate(journal.path, len(A))
    journal.append([note("longer than b", 2), note("c", 3)])
    assert restarted(journal, position) == ["a", "longer than b", "c"]


@pytest.mark.parametrize("limit", [2, None])
def test_a_line_edited_in_place_to_the_same_length_is_noticed(
    journal: JsonlJournal, limit: int | None
) -> None:
    journal.path.write_bytes(A + B + C)
    position = journal.read(limit=limit).position
    edit(journal.path, A + B.replace(b'"summary":"b"', b'"summary":"x"') + C)
    assert restarted(journal, position) == ["a", "x", "c"]


def test_a_line_edited_behind_the_position_is_read_as_it_is_now(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + B + C)
    first = journal.read(limit=1)
    edit(journal.path, A + B.replace(b'"summary":"b"', b'"summary":"x"') + C)
    batch = journal.read(first.position)
    assert (texts(batch), batch.restarted) == (["x", "c"], False)


def test_a_file_with_another_time_and_the_same_bytes_is_not_read_again(
    journal: JsonlJournal,
) -> None:
    # So a reader finds it when another process's append has begun and not yet added its bytes.
    journal.path.write_bytes(A + B)
    position = journal.read().position
    edit(journal.path, A + B)
    assert not journal.unchanged(position)
    batch = journal.read(position)
    assert (batch.records, batch.restarted) == ((), False)
    assert journal.unchanged(batch.position)
    journal.append([note("c", 3)])
    assert texts(journal.read(batch.position)) == ["c"]


def test_a_line_inserted_before_the_position_is_noticed(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + C)
    position = journal.read().position
    edit(journal.path, A + B + C)
    assert restarted(journal, position) == ["a", "b", "c"]


def test_a_line_that_differs_only_at_its_head_is_noticed(tmp_path: Path) -> None:
    # As two branches have it, in a file that got the old one's number: the same failure twice.
    journal = JsonlJournal(tmp_path / "auth.jsonl")
    ours = write_record(note("session-1", 1, text="Rate limited. " * 200))
    theirs = write_record(note("session-2", 1, text="Rate limited. " * 200))
    assert ours[-2500:] == theirs[-2500:]
    journal.path.write_bytes(ours)
    position = journal.read().position
    edit(journal.path, theirs + A)
    batch = journal.read(position)
    assert batch.restarted
    assert [located.record.source.run for located in batch.records] == ["session-2", "a"]


def test_lines_that_changed_places_are_noticed(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + B)
    position = journal.read().position
    edit(journal.path, B + A)
    assert restarted(journal, position) == ["b", "a"]


def test_a_journal_that_vanishes_and_comes_back_is_noticed_both_times(
    journal: JsonlJournal,
) -> None:
    nothing = journal.read()
    assert (nothing.records, nothing.restarted, nothing.done) == ((), False, True)
    assert journal.unchanged(nothing.position)

    journal.append([note("a", 1)])
    assert not journal.unchanged(nothing.position)
    first = journal.read(nothing.position)
    assert (texts(first), first.restarted) == (["a"], False)

    content = journal.path.read_bytes()
    journal.path.unlink()
    assert not journal.unchanged(first.position)
    gone = journal.read(first.position)
    assert (gone.records, gone.restarted) == ((), True)
    assert journal.unchanged(gone.position)

    journal.path.write_bytes(content)
    back = journal.read(gone.position)
    assert (texts(back), back.restarted) == (["a"], False)


def test_a_journal_that_vanished_and_came_back_meanwhile_is_read_right(
    journal: JsonlJournal,
) -> None:
    journal.path.write_bytes(A + B)
    position = journal.read().position
    journal.path.unlink()
    journal.path.write_bytes(A + C)  # perhaps with the number of the old file
    edit(journal.path, A + C)
    assert restarted(journal, position) == ["a", "c"]


@pytest.mark.parametrize(
    "position",
    [
        "",
        "7",
        "not json",
        "{}",
        '{"offset":-1,"line":0,"inode":1,"size":0,"mtime_ns":0,"crc":0,"tail":"","done":true}',
        '{"offset":0,"line":0,"inode":1,"size":0,"mtime_ns":0,"tail":""}',
        "\ud800",
    ],
)
def test_a_position_of_another_version_is_started_again_from(
    journal: JsonlJournal, position: str
) -> None:
    assert not journal.unchanged(position)
    assert journal.read(position).restarted
    journal.path.write_bytes(A)
    assert restarted(journal, position) == ["a"]


def test_unchanged_is_said_only_when_nothing_happened(journal: JsonlJournal) -> None:
    journal.append([note("a", 1)])
    assert not journal.unchanged(None)
    position = journal.read().position
    journal.read()
    journal.verify()
    journal.append([note("a", 1)])  # there already
    journal.forget(["unknown"])
    assert journal.unchanged(position)
    edit(journal.path, journal.path.read_bytes())
    assert not journal.unchanged(position)


def edit(path: Path, content: bytes) -> None:
    """Write over the file as some editors do: the same file, another time."""
    before = path.stat()
    path.write_bytes(content)
    assert path.stat().st_ino == before.st_ino
    # Two writes within one tick of the file system's clock would carry the same time.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
