"""Many processes at one journal: nothing lost, nothing mixed, locks that die with their owner."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from journaling import child, forgotten, hear, living, note, run_child, summary, tell, unnumbered

from ralph.errors import JournalBusy
from ralph.journal import Fold
from ralph.journal.file import JsonlJournal

WRITERS = 8
EACH = 200

APPEND = """
    import sys
    from pathlib import Path
    from journaling import unnumbered
    from ralph.journal.file import JsonlJournal

    path, writer, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    journal = JsonlJournal(path)
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(count):
        text = f"{writer}-{i} " + "padding " * (i % 40)
        (appended,) = journal.append([unnumbered(f"{writer}-{i}", text=text)])
        assert appended.fresh
        print(appended.record.id, appended.record.number, flush=True)
"""


@pytest.fixture
def journal(tmp_path: Path) -> JsonlJournal:
    return JsonlJournal(tmp_path / "auth.jsonl")


def test_f5_eight_processes_append_at_once_and_a_follower_sees_each_record_once(
    journal: JsonlJournal,
) -> None:
    followed: list[str] = []
    position: str | None = None
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(child(APPEND, journal.path, writer, EACH))
            for writer in range(WRITERS)
        ]
        assert [hear(writer) for writer in writers] == ["ready"] * WRITERS
        for writer in writers:
            tell(writer, "go")
        while True:
            running = any(writer.poll() is None for writer in writers)
            batch = journal.read(position, limit=97)
            assert not batch.restarted
            followed += [located.record.id for located in batch.records]
            position = batch.position
            if batch.done and not running:
                break
        acknowledged = [hear(writer).split() for writer in writers for _ in range(EACH)]
        assert [writer.wait(timeout=60) for writer in writers] == [0] * WRITERS

    total = WRITERS * EACH
    lines = [json.loads(line) for line in journal.path.read_bytes().splitlines()]
    assert len(lines) == total
    assert Counter((line["id"], line["number"]) for line in lines) == Counter(
        (record_id, int(number)) for record_id, number in acknowledged
    )
    assert [line["number"] for line in lines] == list(range(1, total + 1))
    assert {line["body"]["summary"].split()[0] for line in lines} == {
        f"{writer}-{i}" for writer in range(WRITERS) for i in range(EACH)
    }
    assert journal.verify() == (total, [])
    assert followed == [line["id"] for line in lines]


def test_f5_forgetting_while_others_append_loses_nothing(journal: JsonlJournal) -> None:
    doomed = [note(f"doomed-{i}", i + 1, text=f"hunter2-{i}") for i in range(30)]
    journal.append(doomed)
    fold = Fold(journal)
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(child(APPEND, journal.path, w, 60)) for w in range(3)]
        assert [hear(writer) for writer in writers] == ["ready"] * 3
        for writer in writers:
            tell(writer, "go")
        for record in doomed:
            assert journal.forget([record.id]) == [record.id]
            fold.records()
        acknowledged = [hear(writer).split()[0] for writer in writers for _ in range(60)]
        assert [writer.wait(timeout=60) for writer in writers] == [0] * 3

    records = [located.record for located in fold.records()]
    assert sorted(record.id for record in records) == sorted(acknowledged)
    assert sorted(record.number for record in records) == list(range(31, 31 + 180))
    assert forgotten(journal) == {record.id for record in doomed}
    assert b"hunter2" not in journal.path.read_bytes()
    assert journal.verify() == (180, [])
    assert list(journal.path.parent.iterdir()) == [journal.path]


def test_f5_the_same_iteration_from_many_processes_is_one(journal: JsonlJournal) -> None:
    script = """
        import sys
        from pathlib import Path
        from journaling import unnumbered
        from ralph.journal.file import JsonlJournal

        journal = JsonlJournal(Path(sys.argv[1]))
        print("ready", flush=True)
        sys.stdin.readline()
        for i in range(20):
            (appended,) = journal.append([unnumbered(f"run-{i}")])
            print(appended.record.number, appended.fresh, flush=True)
    """
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(child(script, journal.path)) for _ in range(4)]
        assert [hear(writer) for writer in writers] == ["ready"] * 4
        for writer in writers:
            tell(writer, "go")
        told = [[hear(writer).split() for _ in range(20)] for writer in writers]
    assert [[int(number) for number, _ in lines] for lines in told] == [list(range(1, 21))] * 4
    assert sum(fresh == "True" for lines in told for _, fresh in lines) == 20
    assert living(journal) == [f"run-{i}" for i in range(20)]


def test_every_acknowledged_record_is_there_after_its_writer_was_killed(
    journal: JsonlJournal,
) -> None:
    acknowledged: list[str] = []
    dice = random.Random(7)
    for round_ in range(10):
        with child(APPEND, journal.path, f"round{round_}", 10_000) as writer:
            assert hear(writer) == "ready"
            tell(writer, "go")
            acknowledged += [hear(writer).split()[0] for _ in range(dice.randrange(1, 15))]
            writer.kill()
            assert writer.stdout is not None
            rest = writer.stdout.read().splitlines(keepends=True)
            acknowledged += [line.split()[0] for line in rest if line.endswith("\n")]
    ids = [located.record.id for located in Fold(journal).records()]
    assert set(acknowledged) <= set(ids)
    # At most one record a round was written and not yet acknowledged.
    assert len(ids) <= len(acknowledged) + 10
    assert journal.append([unnumbered("next")])[0].fresh


def test_a_forgetter_killed_at_any_moment_leaves_the_old_journal_or_the_new_one(
    journal: JsonlJournal,
) -> None:
    script = """
        import sys
        from pathlib import Path
        from ralph.journal.file import JsonlJournal

        journal = JsonlJournal(Path(sys.argv[1]))
        ids = [located.record.id for located in journal.read().records]
        print("ready", flush=True)
        for record_id in ids:
            journal.forget([record_id])
            print(record_id, flush=True)
    """
    dice = random.Random(7)
    journal.append([note(f"r{i}", i + 1, text="x" * 2000) for i in range(300)])
    everything = {located.record.id for located in journal.read().records}
    told: set[str] = set()
    for _ in range(6):
        with child(script, journal.path) as forgetter:
            assert hear(forgetter) == "ready"
            told |= {hear(forgetter) for _ in range(dice.randrange(1, 12))}
            forgetter.kill()
            assert forgetter.stdout is not None
            rest = forgetter.stdout.read().splitlines(keepends=True)
            told |= {line.strip() for line in rest if line.endswith("\n")}
        assert journal.verify()[1] == []
        assert {located.record.id for located in Fold(journal).records()} == (
            everything - forgotten(journal)
        )
        assert told <= forgotten(journal)
    journal.forget([next(iter(everything - forgotten(journal)))])
    assert list(journal.path.parent.iterdir()) == [journal.path]  # no draft is left


# -- the lock

HOLD = """
    import sys
    from pathlib import Path
    from ralph import disk

    with disk.lock(Path(sys.argv[1]), timeout_s=30):
        print("held", flush=True)
        sys.stdin.readline()
"""


def test_a_journal_held_for_too_long_is_busy_and_says_so(journal: JsonlJournal) -> None:
    journal.append([note("a", 1)])
    before = journal.path.read_bytes()
    hurried = JsonlJournal(journal.path, lock_timeout_s=0.05)
    with child(HOLD, journal.path) as holder:
        assert hear(holder) == "held"
        for use in (
            lambda: hurried.append([note("b", 2)]),
            lambda: hurried.forget([note("a", 1).id]),
            hurried.verify,
        ):
            with pytest.raises(JournalBusy) as caught:
                use()
            assert str(caught.value) == (
                "auth.jsonl: another process has held the journal for over 0.05 s. "
                "Try again when it has finished."
            )
        assert [summary(r.record) for r in hurried.read().records] == ["a"]  # reading needs none
        tell(holder, "let go")
        holder.wait(timeout=30)
    assert journal.path.read_bytes() == before
    assert hurried.append([note("b", 2)])[0].fresh


def test_the_lock_of_a_killed_process_is_free(journal: JsonlJournal) -> None:
    with child(HOLD, journal.path) as holder:
        assert hear(holder) == "held"
        holder.kill()
        holder.wait(timeout=30)
        hurried = JsonlJournal(journal.path, lock_timeout_s=0)
        assert hurried.append([note("a")])[0].fresh


def test_a_journal_replaced_while_a_writer_waits_gets_its_record(journal: JsonlJournal) -> None:
    wait = """
        import sys
        from pathlib import Path
        from journaling import unnumbered
        from ralph import disk
        from ralph.journal.file import JsonlJournal

        try_lock = disk._try_lock

        def spy(fd):
            got = try_lock(fd)
            if not got and not told:
                told.append(True)
                print("waiting", flush=True)
            return got

        told = []
        disk._try_lock = spy
        (appended,) = JsonlJournal(Path(sys.argv[1])).append([unnumbered("late")])
        print(appended.record.number, flush=True)
    """
    journal.append([note("a", 1), note("b", 2)])
    with contextlib.ExitStack() as stack:
        holder = stack.enter_context(child(HOLD, journal.path))
        assert hear(holder) == "held"
        waiter = stack.enter_context(child(wait, journal.path))
        assert hear(waiter) == "waiting"
        new = journal.path.with_name("new")
        JsonlJournal(new).append([note("a", 1), note("other", 7)])
        new.replace(journal.path)
        tell(holder, "let go")
        assert hear(waiter) == "8"
    assert living(journal) == ["a", "other", "late"]


def test_ids_and_lines_are_the_same_in_every_process(journal: JsonlJournal) -> None:
    script = """
        from journaling import note
        from ralph.journal.line import write_record

        print(write_record(note("session-1", 7, text="Validated ü", task=42)).decode(), end="")
    """
    journal.append([note("session-1", 7, text="Validated ü", task=42)])
    assert run_child(script) == journal.path.read_text("utf-8").splitlines()
