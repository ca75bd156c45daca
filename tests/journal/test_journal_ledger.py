"""Long journals: a process that appends or wants the newest records reads only the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from journaling import child, hear, living, note, run_child, unnumbered

from ralph.journal import Fold, Selection
from ralph.journal.file import JournalFolder, JsonlJournal
from ralph.journal.ledger import Ledger

COUNT = 1200
_IO = Path("/proc/self/io")


def opened(folder: Path) -> JsonlJournal:
    """The journal as a new process opens it."""
    return JournalFolder(folder / "memory", ledgers=folder / "ledgers").journal("auth")


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A folder with a journal of about 0.6 MB."""
    text = "a line about the login form " * 10
    records = [
        note(f"r{number}", number, text=f"{text}{number}", at=_at(number))
        for number in range(1, COUNT + 1)
    ]
    opened(tmp_path).append(records)
    return tmp_path


def _at(number: int) -> str:
    return f"2026-02-07T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"


def ledger_of(folder: Path) -> Path:
    [file] = (folder / "ledgers").iterdir()
    return file


def test_a_short_journal_has_no_ledger(tmp_path: Path) -> None:
    opened(tmp_path).append([note("a", 1)])
    assert not (tmp_path / "ledgers").exists()


@pytest.mark.skipif(not _IO.exists(), reason="only Linux counts the bytes that a process reads")
def test_a_new_process_reads_only_the_end_of_a_long_journal(long: Path) -> None:
    size = (long / "memory" / "auth.jsonl").stat().st_size
    script = """
        import sys
        from pathlib import Path
        from journaling import unnumbered
        from ralph.journal import Fold, Selection
        from ralph.journal.file import JournalFolder

        def bytes_read():
            return int(Path("/proc/self/io").read_text().split()[1])

        folder = Path(sys.argv[1])
        journal = JournalFolder(folder / "memory", ledgers=folder / "ledgers").journal("auth")
        import sqlite3
        before = bytes_read()
        [appended] = journal.append([unnumbered("new")])
        print(appended.record.number, bytes_read() - before)
        before = bytes_read()
        found = Fold(journal).select(Selection(kinds=("iteration",), newest=2))
        print([each.record.source.run for each in found], bytes_read() - before)
    """
    appended, selected = run_child(script, long)
    number, appending = appended.split()
    assert int(number) == COUNT + 1
    assert int(appending) < size
    newest, _, selecting = selected.rpartition(" ")
    assert newest == f"['r{COUNT}', 'new']"
    assert int(selecting) < size


def test_the_same_record_is_not_written_twice_by_another_process(long: Path) -> None:
    old = Fold(opened(long)).select(Selection(run="r5"))[0].record
    draft = unnumbered("r5", text="a line about the login form " * 10 + "5", at=old.at)
    [by_content] = opened(long).append([draft])
    [by_id] = opened(long).append([old])
    assert (by_content.fresh, by_content.record) == (False, old)
    assert (by_id.fresh, by_id.record) == (False, old)
    assert opened(long).verify() == (COUNT, [])


def test_numbers_go_on_without_a_ledger_and_with_an_old_one(long: Path) -> None:
    old = ledger_of(long).read_bytes()
    for number in range(1, 4):
        opened(long).append([unnumbered(f"again {number}")])
    ledger_of(long).write_bytes(old)
    [after_old] = opened(long).append([unnumbered("after an old one")])
    ledger_of(long).unlink()
    [without] = opened(long).append([unnumbered("without one")])
    assert (after_old.record.number, without.record.number) == (COUNT + 4, COUNT + 5)
    assert opened(long).verify() == (COUNT + 5, [])


def test_what_is_forgotten_is_not_selected_and_not_saved_again(long: Path) -> None:
    gone = Fold(opened(long)).select(Selection(run="r7"))[0].record
    opened(long).forget([gone.id])
    assert not any((long / "ledgers").iterdir())
    journal = opened(long)
    assert Fold(journal).select(Selection(ids=[gone.id])) == []
    assert Fold(journal).known([gone.id, "never seen"]) == {gone.id}
    with pytest.raises(Exception, match="was forgotten"):
        opened(long).append([gone])


def test_a_ledger_that_cannot_be_written_changes_nothing(tmp_path: Path, long: Path) -> None:
    ledger_of(long).unlink()
    (long / "ledgers").rmdir()
    (long / "ledgers").write_bytes(b"a file where the folder should be")
    [appended] = opened(long).append([unnumbered("still saved")])
    assert appended.record.number == COUNT + 1
    assert living(opened(long))[-1] == "still saved"


def test_select_sees_what_was_written_a_moment_ago(long: Path) -> None:
    opened(long).append([note("late", 2000, at="2026-03-01T00:00:00Z")])
    found = Fold(opened(long)).select(Selection(kinds=("iteration",), newest=3))
    assert [each.record.source.run for each in found] == [f"r{COUNT - 1}", f"r{COUNT}", "late"]


def test_a_process_that_is_killed_while_it_makes_a_ledger_does_no_harm(long: Path) -> None:
    ledger_of(long).unlink()
    script = """
        import sys
        from pathlib import Path
        from ralph.journal.ledger import Ledger, LedgerView
        folder = Path(sys.argv[1])
        ledger = Ledger(folder / "ledgers", "auth.jsonl")
        with ledger.view(writes=True) as view, open(folder / "memory" / "auth.jsonl", "rb") as file:
            from ralph.journal.position import scan
            view.add(list(scan(file, 1 << 20))[:500], "half of it")
            print("added", flush=True)
            sys.stdin.readline()
    """
    with child(script, long) as process:
        assert hear(process) == "added"
        process.kill()
        process.wait(timeout=30)
    [appended] = opened(long).append([unnumbered("after the kill")])
    assert appended.record.number == COUNT + 1
    found = Fold(opened(long)).select(Selection(run="r3"))
    assert [each.line for each in found] == [3]


def test_a_damaged_ledger_is_made_again(long: Path) -> None:
    ledger_of(long).write_bytes(b"not a database" * 1000)
    [appended] = opened(long).append([unnumbered("after the damage")])
    assert appended.record.number == COUNT + 1
    with Ledger(long / "ledgers", "auth.jsonl").view() as view:
        assert view.head() is not None
