"""Whatever is on a line: told with file and line, stepped over, never deleted, read on behind."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journaling import living, note, summary

from ralph.errors import JournalError
from ralph.journal import Fold
from ralph.journal.file import JsonlJournal
from ralph.journal.line import MAX_LINE_BYTES, write_record
from ralph.journal.position import scan
from ralph.records import JournalRecord

A = write_record(note("a", 1))
B = write_record(note("b", 2))
C = write_record(note("c", 3))
DEEP = b'{"v":1,"kind":"k","id":"i","body":' + b"[" * 50_000 + b"]" * 50_000 + b"}"


@pytest.fixture
def journal(tmp_path: Path) -> JsonlJournal:
    return JsonlJournal(tmp_path / "auth.jsonl", name=".ralph/db/memory/auth.jsonl")


def complaints(journal: JsonlJournal) -> list[tuple[int, str]]:
    """What reading complains about; verifying must complain about the same."""
    told = journal.read().complaints
    assert list(told) == journal.verify()[1]
    assert {complaint.file for complaint in told} <= {".ralph/db/memory/auth.jsonl"}
    return [(complaint.line, complaint.what) for complaint in told]


def still_takes_a_record(journal: JsonlJournal, text: str = "next") -> bool:
    """Whether an append only adds to the file, and what it adds is read back."""
    before = journal.path.read_bytes()
    journal.append([note(text, 99)])
    added = write_record(note(text, 99))
    after = journal.path.read_bytes()
    assert after in (before + added, before + b"\n" + added)
    return living(journal)[-1] == text


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"<<<<<<< HEAD", "is not an entry of this journal"),
        (b"hello", "is not an entry of this journal"),
        (b"{}", "is not an entry of this journal"),
        (b"[]", "is not an entry of this journal"),
        (b"[1, 2]", "is not an entry of this journal"),
        (b"42", "is not an entry of this journal"),
        (b"null", "is not an entry of this journal"),
        (b'"text"', "is not an entry of this journal"),
        (b'{"kind":"iteration","id":"x"}', "is not an entry of this journal"),
        (A.rstrip() + B.rstrip(), "is not an entry of this journal"),
        (DEEP, "is not an entry of this journal"),
        (b'{"v":1,"kind":"iteration"}', "is an entry with a field that does not fit"),
        (b'{"v":1,"kind":"iteration","id":7}', "is an entry with a field that does not fit"),
        (b'{"v":1,"kind":7,"id":"x"}', "is an entry with a field that does not fit"),
        (b'{"v":1,"kind":"k","id":"x","number":"1"}', "is an entry with a field that does not"),
        (b'{"v":1,"kind":"k","id":"x","number":1.5}', "is an entry with a field that does not"),
        (b'{"v":1,"kind":"k","id":"x","number":-1}', "is an entry with a field that does not"),
        (b'{"v":1,"kind":"k","id":"x","number":' + b"9" * 400 + b"}", "with a field that does not"),
        (b'{"v":1,"kind":"k","id":"x","at":null}', "is an entry with a field that does not"),
        (b'{"v":1,"kind":"k","id":"x","source":"s"}', "is an entry with a field that does not"),
        (b'{"v":0,"kind":"iteration","id":"x"}', "it has no version, kind or id"),
        (b'{"v":-1,"kind":"iteration","id":"x"}', "it has no version, kind or id"),
        (b'{"v":1,"kind":"","id":"x"}', "it has no version, kind or id"),
        (b'{"v":1,"kind":"iteration","id":""}', "it has no version, kind or id"),
        (b'{"v":2,"kind":"iteration","id":"x"}', "was written by a newer Ralph (version 2)"),
        (b'{"v":2,"shape":["all","new"]}', "was written by a newer Ralph (version 2)"),
        (b'{"v":2,"kind":7,"id":8}', "was written by a newer Ralph (version 2)"),
        (b"\0" * 4096, "contains NUL bytes"),
        (A.rstrip().replace(b"auth", b"au\0th"), "contains NUL bytes"),
        (b"\xff\xfe{\0}\0", "contains NUL bytes"),  # UTF-16
        (A.rstrip().replace(b"auth", b"au\xffth"), "is not UTF-8 text"),
        (b"\x80abc", "is not UTF-8 text"),
        (b'{"v":1,"kind":"k","id":"\\ud800"}', "is not an entry of this journal"),
    ],
)
def test_a_line_that_is_no_entry_is_told_and_stepped_over(
    journal: JsonlJournal, line: bytes, what: str
) -> None:
    journal.path.write_bytes(A + line + b"\n" + B)
    assert living(journal) == ["a", "b"]
    assert [located.line for located in journal.read().records] == [1, 3]
    assert journal.verify()[0] == 2
    ((number, told),) = complaints(journal)
    assert number == 2
    assert what in told
    assert still_takes_a_record(journal)


def test_a_newer_version_is_told_with_what_to_do(journal: JsonlJournal) -> None:
    journal.path.write_bytes(b'{"v":7,"kind":"iteration","id":"x"}\n')
    (complaint,) = journal.verify()[1]
    assert str(complaint) == (
        ".ralph/db/memory/auth.jsonl:1: "
        "was written by a newer Ralph (version 7); upgrade to read it"
    )


# -- the last line


@pytest.mark.parametrize("kept", [1, 10, 100, len(C) - 3, len(C) - 2])
def test_a_torn_last_line_is_told_kept_and_ended_by_the_next_append(
    journal: JsonlJournal, kept: int
) -> None:
    journal.path.write_bytes(A + B + C[:kept])
    assert living(journal) == ["a", "b"]
    ((number, told),) = complaints(journal)
    assert number == 3
    assert told.startswith("is torn: it is not an entry")
    assert still_takes_a_record(journal)
    assert journal.path.read_bytes() == A + B + C[:kept] + b"\n" + write_record(note("next", 99))
    assert [number for number, _ in complaints(journal)] == [3]


def test_a_torn_only_line_is_no_hindrance(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A[:20])
    assert journal.read().records == ()
    assert still_takes_a_record(journal, "a")


def test_what_stood_behind_a_torn_line_and_is_gone_can_be_written_again(
    journal: JsonlJournal,
) -> None:
    journal.path.write_bytes(A[:20])
    assert journal.append([note("a", 1)])[0].fresh
    os.truncate(journal.path, 20)  # restored from a copy, say
    assert journal.append([note("a", 1)])[0].fresh
    assert living(journal) == ["a"]


def test_zeros_at_the_end_as_a_power_cut_leaves_them_are_told_and_kept(
    journal: JsonlJournal,
) -> None:
    journal.path.write_bytes(A + B[:50] + b"\0" * 5000)
    ((number, told),) = complaints(journal)
    assert number == 2
    assert told.startswith("is torn: it contains NUL bytes")
    assert still_takes_a_record(journal)


def test_a_whole_last_line_without_its_newline_is_read(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + B.rstrip(b"\n"))
    assert living(journal) == ["a", "b"]
    assert complaints(journal) == []
    assert still_takes_a_record(journal)
    assert [located.line for located in journal.read().records] == [1, 2, 3]
    assert journal.append([note("b", 2)])[0].fresh is False


def test_a_line_that_a_writer_has_half_written_is_not_read_as_two(tmp_path: Path) -> None:
    path = tmp_path / "auth.jsonl"
    path.write_bytes(A + B[:50])
    with path.open("rb") as file:
        steps = scan(file, MAX_LINE_BYTES)
        assert [next(steps).torn, next(steps).torn] == [False, True]
        with path.open("ab") as writer:
            writer.write(B[50:] + C)
        assert list(steps) == []  # the rest of B is no line of its own


# -- what editors and systems do to a file


def test_lines_that_end_in_crlf_are_read_and_told_once(journal: JsonlJournal) -> None:
    journal.path.write_bytes((A + B + C).replace(b"\n", b"\r\n"))
    assert living(journal) == ["a", "b", "c"]
    assert [(number, "CRLF" in told) for number, told in complaints(journal)] == [(1, True)]
    assert journal.append([note("b", 2)])[0].fresh is False
    assert still_takes_a_record(journal)


def test_a_byte_order_mark_is_told_and_ignored(journal: JsonlJournal) -> None:
    journal.path.write_bytes(b"\xef\xbb\xbf" + A + B)
    assert living(journal) == ["a", "b"]
    assert complaints(journal) == [(1, "begins with a byte order mark; it was ignored")]
    assert still_takes_a_record(journal)


def test_a_file_of_a_byte_order_mark_alone_is_empty(journal: JsonlJournal) -> None:
    journal.path.write_bytes(b"\xef\xbb\xbf")
    assert [number for number, _ in complaints(journal)] == [1]
    assert still_takes_a_record(journal)


def test_blank_lines_are_nothing_to_complain_about(journal: JsonlJournal) -> None:
    journal.path.write_bytes(b"\n\n" + A + b"  \t \n\n" + b"  " + B.rstrip() + b"  \n\n")
    assert living(journal) == ["a", "b"]
    assert [located.line for located in journal.read().records] == [3, 6]
    assert complaints(journal) == []
    assert still_takes_a_record(journal)


def test_an_empty_file_is_an_empty_journal(journal: JsonlJournal) -> None:
    journal.path.write_bytes(b"")
    assert journal.verify() == (0, [])
    assert still_takes_a_record(journal)


def test_a_record_changed_by_hand_is_read_and_told(journal: JsonlJournal) -> None:
    journal.path.write_bytes(A + B.replace(b'"summary":"b"', b'"summary":"edited"') + C)
    assert living(journal) == ["a", "edited", "c"]
    readable, told = journal.verify()
    assert readable == 3
    assert [(c.line, "does not match its digest" in c.what) for c in told] == [(2, True)]


def test_a_line_spaced_and_ordered_by_another_tool_is_the_same_record(
    journal: JsonlJournal,
) -> None:
    plain = json.loads(A)
    reordered = dict(sorted(plain.items()))
    journal.path.write_text(json.dumps(reordered, separators=(",", ":")) + "\n", "utf-8")
    assert journal.read().records[0].record == note("a", 1)
    assert journal.append([note("a", 1)])[0].fresh is False


def test_a_record_of_an_unknown_kind_is_a_record(journal: JsonlJournal) -> None:
    line = b'{"v":1,"kind":"dream","id":"d1","mood":"calm","body":{"sheep":7}}\n'
    journal.path.write_bytes(A + line)
    assert [located.record.kind for located in journal.read().records] == ["iteration", "dream"]
    assert complaints(journal) == []


# -- size


def test_a_line_of_10_mb_is_told_stepped_over_and_never_held(journal: JsonlJournal) -> None:
    size = 10_000_000
    journal.path.write_bytes(A + b"x" * size + b"\n" + B)
    told = f"is {size + 1} bytes long, over the limit of {MAX_LINE_BYTES}"
    tracemalloc.start()
    try:
        batch = journal.read()
        readable, complained = journal.verify()
        journal.append([note("next", 99)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size
    assert [located.line for located in batch.records] == [1, 3]
    assert [(c.line, c.what) for c in batch.complaints] == [(2, told)]
    assert (readable, complained) == (2, list(batch.complaints))
    assert living(journal) == ["a", "b", "next"]


def test_a_long_line_takes_no_more_memory_the_longer_it_is(tmp_path: Path) -> None:
    def peak_of(size: int) -> int:
        journal = JsonlJournal(tmp_path / f"{size}.jsonl", max_line_bytes=100_000)
        with journal.path.open("wb") as file:
            file.seek(size)  # a hole of NUL bytes
            file.write(b"\n" + B)
        tracemalloc.start()
        try:
            assert living(journal) == ["b"]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_of(50_000_000) < peak_of(5_000_000) + 2_000_000


def test_a_torn_line_over_the_limit_is_ended_by_the_next_append(tmp_path: Path) -> None:
    journal = JsonlJournal(tmp_path / "auth.jsonl", max_line_bytes=1000)
    journal.path.write_bytes(A + b"x" * 5000)
    batch = journal.read()
    assert [(c.line, c.what) for c in batch.complaints] == [
        (2, "is 5000 bytes long, over the limit of 1000")
    ]
    assert still_takes_a_record(journal)
    (located,) = journal.read(batch.position).records
    assert located.line == 3


@pytest.mark.parametrize("over", [False, True])
def test_the_limit_of_a_line_is_exact(tmp_path: Path, over: bool) -> None:
    journal = JsonlJournal(tmp_path / "auth.jsonl", max_line_bytes=len(A) - over)
    journal.path.write_bytes(A + b"\n")
    assert living(journal) == ["a"]  # the newline does not count
    journal = JsonlJournal(journal.path, max_line_bytes=len(A) - 1 - over)
    assert living(journal) == ([] if over else ["a"])


# -- not a file


def test_a_folder_in_the_place_of_the_file_is_told_clearly(journal: JsonlJournal) -> None:
    journal.path.mkdir()
    for use in (
        journal.read,
        journal.verify,
        lambda: journal.append([note("a")]),
        lambda: journal.forget(["r1"]),
    ):
        with pytest.raises(JournalError, match="Is a directory") as caught:
            use()
        assert str(caught.value).startswith(f"{journal.path}: cannot ")
    assert not journal.unchanged(None)


def test_a_file_in_the_place_of_the_folder_is_told_clearly(tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(b"")
    journal = JsonlJournal(tmp_path / "memory" / "auth.jsonl")
    for use in (journal.read, journal.verify, lambda: journal.append([note("a")])):
        with pytest.raises(JournalError, match=r"Not a directory|File exists"):
            use()
    assert not journal.unchanged(JsonlJournal(tmp_path / "none.jsonl").read().position)


# -- anything

fragments = st.sampled_from(
    [
        *(A, B, C, A.rstrip(), B[:40], C[40:]),
        *(b"\n", b"\r\n", b"\r", b"\0", b" ", b"\xef\xbb\xbf", b"\xff", b"{", b"}", b"[" * 3000),
        b'{"v":1,"kind":"forgotten","id":"' + note("a", 1).id.encode() + b'"}\n',
        b'{"v":1,"kind":"forgotten","id":"x","number":5}\n',
        b'{"v":9}\n',
        b"x" * 700,
    ]
)
files = st.binary(max_size=300) | st.lists(fragments | st.binary(max_size=8), max_size=12).map(
    b"".join
)


@settings(max_examples=examples(150), deadline=None)
@given(files, st.integers(1, 4))
@example(b"", 1)
@example(A + B[:40], 1)
def test_any_bytes_are_read_verified_and_appended_to_without_harm(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, limit: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "auth.jsonl"
    path.write_bytes(content)
    journal = JsonlJournal(path, max_line_bytes=600)
    whole = journal.read()
    assert whole.done
    assert all(1 <= c.line <= content.count(b"\n") + 1 for c in whole.complaints)
    readable, told = journal.verify()
    assert set(whole.complaints) <= set(told)
    assert readable == len(Fold(journal).records())

    stepped: list[JournalRecord] = []
    position: str | None = None
    for _ in range(content.count(b"\n") + 2):
        batch = journal.read(position, limit=limit)
        stepped += batch.records
        position = batch.position
        if batch.done:
            break
    assert batch.done
    assert tuple(stepped) == whole.records
    assert journal.unchanged(position)

    journal.append([note("new", 99)])
    assert path.read_bytes().startswith(content)
    assert summary(journal.read(position).records[-1].record) == "new"
    assert living(journal)[-1] == "new"

    journal.forget([note("new", 99).id])
    assert path.read_bytes().startswith(content)
    assert [located.record for located in journal.read().records] == [
        located.record for located in whole.records
    ]
