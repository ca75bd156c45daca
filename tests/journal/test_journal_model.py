"""Any order of appends, forgets, merges and damage, held against a dict that knows what must be."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from journaling import forgotten, note, unnumbered

from ralph.errors import RecordForgotten
from ralph.journal import Fold, Selection
from ralph.journal.file import JsonlJournal
from ralph.journal.ledger import Ledger
from ralph.records import Record

Key = tuple[str, str]  # id and digest

branches = st.sampled_from(["ours", "theirs"])
runs = st.sampled_from(["r1", "r2", "r3"])
texts = st.sampled_from(["it works", "it does not"])
numbers = st.integers(1, 3)


class Branch:
    """One journal, what must be in it, and readers that have followed it from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = Ledger(path.parent / "ledgers", path.name)
        self.journal = JsonlJournal(path)
        self.fold = Fold(JsonlJournal(path))
        self.position: str | None = None
        self.followed: dict[Key, None] = {}
        self.stones_followed: set[str] = set()
        self.records: dict[Key, Record] = {}
        self.stones: dict[str, int] = {}

    @property
    def last_number(self) -> int:
        numbers = [record.number for record in self.records.values()]
        return max([0, *numbers, *self.stones.values()])

    @property
    def living(self) -> set[Key]:
        return {key for key in self.records if key[0] not in self.stones}

    def has(self, record: Record) -> bool:
        return key_of(record) in self.records

    def follow(self, limit: int) -> None:
        done = False
        while not done:
            batch = JsonlJournal(self.path).read(self.position, limit=limit)
            if batch.restarted:
                self.followed.clear()
                self.stones_followed.clear()
            self.followed |= {key_of(located.record): None for located in batch.records}
            self.stones_followed |= {stone.id for stone in batch.tombstones}
            self.position, done = batch.position, batch.done


def key_of(record: Record) -> Key:
    return record.id, record.digest


def a_note(run: str, number: int, text: str) -> Record:
    return note(run, number, text=text, at=f"2026-02-07T14:30:0{run[1]}Z")


class JournalLaw(RuleBasedStateMachine):
    """What is acknowledged is there once until it is forgotten, and then never again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.branches = {name: Branch(self.folder / name) for name in ("ours", "theirs")}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(name=branches, run=runs, number=numbers, text=texts)
    def append_numbered(self, name: str, run: str, number: int, text: str) -> None:
        branch = self.branches[name]
        record = a_note(run, number, text)
        if record.id in branch.stones:
            with pytest.raises(RecordForgotten):
                branch.journal.append([record])
            return
        (appended,) = branch.journal.append([record])
        assert appended.record == record
        assert appended.fresh == (not branch.has(record))
        branch.records[key_of(record)] = record

    @rule(name=branches, run=runs, text=texts)
    def append_unnumbered(self, name: str, run: str, text: str) -> None:
        branch = self.branches[name]
        draft = unnumbered(run, text=text, at=f"2026-02-07T14:30:0{run[1]}Z")
        candidates = [
            record
            for record in branch.records.values()
            if draft(record.number) == record and record.id not in branch.stones
        ]
        buried = any(draft(number).id == stone for stone, number in branch.stones.items())
        try:
            (appended,) = branch.journal.append([draft])
        except RecordForgotten:
            assert buried
            return
        if appended.fresh:
            assert not candidates
            assert not buried
            assert appended.record == draft(branch.last_number + 1)
            branch.records[key_of(appended.record)] = appended.record
        else:
            assert appended.record in candidates

    @rule(name=branches, picks=st.lists(st.integers(0, 20), min_size=1, max_size=2))
    def forget(self, name: str, picks: list[int]) -> None:
        branch = self.branches[name]
        known = {r.id: r.number for b in self.branches.values() for r in b.records.values()}
        ids = [*known, "unknown"]
        wanted = {ids[pick % len(ids)] for pick in picks}
        there = {record.id for record in branch.records.values()} & wanted
        assert set(branch.journal.forget(wanted)) == there
        branch.records = {key: r for key, r in branch.records.items() if key[0] not in there}
        branch.stones |= {record_id: known[record_id] for record_id in there}

    @rule(name=branches, dice=st.randoms(use_true_random=False))
    def merge(self, name: str, dice: random.Random) -> None:
        into = self.branches[name]
        other = self.branches["theirs" if name == "ours" else "ours"]
        if not (into.path.exists() and other.path.exists()):
            return
        ours = into.path.read_bytes().splitlines()
        theirs = other.path.read_bytes().splitlines()
        merged = [*ours, *(line for line in theirs if line not in ours or dice.random() < 0.3)]
        dice.shuffle(merged)
        into.path.with_name("merged").write_bytes(b"".join(line + b"\n" for line in merged))
        into.path.with_name("merged").replace(into.path)
        into.records |= other.records
        into.stones |= other.stones

    @rule(name=branches)
    def checkout(self, name: str) -> None:
        into = self.branches[name]
        other = self.branches["theirs" if name == "ours" else "ours"]
        into.path.unlink(missing_ok=True)
        if other.path.exists():
            shutil.copy(other.path, into.path)
        into.records, into.stones = dict(other.records), dict(other.stones)

    @rule(
        name=branches,
        damage=st.sampled_from([b"<<<<<<< ours", b'{"v":1,"ki', b'{"v":9}\n', b"\0\0", b"\xff\n"]),
    )
    def damage(self, name: str, damage: bytes) -> None:
        with self.branches[name].path.open("ab+") as file:
            file.seek(max(0, file.tell() - 1))
            torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" + damage if torn else damage)

    @rule(name=branches)
    def lose_the_last_newline(self, name: str) -> None:
        path = self.branches[name].path
        if path.exists():
            path.write_bytes(path.read_bytes().removesuffix(b"\n"))

    @rule(name=branches)
    def reopen(self, name: str) -> None:
        self.branches[name].journal = JsonlJournal(self.branches[name].path)

    @rule(name=branches, limit=st.integers(1, 5))
    def follow(self, name: str, limit: int) -> None:
        branch = self.branches[name]
        branch.follow(limit)
        assert branch.followed.keys() == branch.records.keys()
        assert branch.stones_followed == branch.stones.keys()

    @invariant()
    def every_reader_sees_what_must_be_there(self) -> None:
        for branch in self.branches.values():
            fresh = Fold(JsonlJournal(branch.path)).records()
            assert {key_of(located.record) for located in fresh} == branch.living
            assert len(fresh) == len(branch.living)
            assert [located.record for located in branch.fold.records()] == [
                located.record for located in fresh
            ]
            assert forgotten(branch.journal) == branch.stones.keys()
            assert branch.journal.verify()[0] == len(branch.living)


# What may be wrong in a ledger although it looks whole.
LIES = (
    "UPDATE head SET last_number = 0",
    "DELETE FROM entry WHERE row = 1",
    "DELETE FROM entry",
    "DELETE FROM head",
    "UPDATE entry SET start = start + 1",
)


class LedgerLaw(JournalLaw):
    """The law holds with a ledger, too, whatever happens to the ledger."""

    @rule(name=branches)
    def reopen(self, name: str) -> None:
        branch = self.branches[name]
        branch.journal = with_ledger(branch)

    @rule(name=branches)
    def delete_the_ledger(self, name: str) -> None:
        self.branches[name].ledger.path.unlink(missing_ok=True)

    @rule(name=branches)
    def take_the_ledger_of_the_other(self, name: str) -> None:
        other = self.branches["theirs" if name == "ours" else "ours"].ledger
        if other.path.exists():
            shutil.copy(other.path, self.branches[name].ledger.path)

    @rule(name=branches, statement=st.sampled_from(LIES))
    def let_the_ledger_lie(self, name: str, statement: str) -> None:
        path = self.branches[name].ledger.path
        if path.exists():
            with contextlib.closing(sqlite3.connect(path)) as connection:
                with contextlib.suppress(sqlite3.DatabaseError):  # it was damaged before
                    connection.execute(statement)
                connection.commit()

    @rule(name=branches, size=st.sampled_from([0, 100, 5000]))
    def damage_the_ledger(self, name: str, size: int) -> None:
        path = self.branches[name].ledger.path
        if path.exists():
            with path.open("rb+") as file:
                file.seek(size)
                file.write(b"damage" * 50)

    @rule(name=branches, count=st.integers(0, 3), run=runs)
    def select(self, name: str, count: int, run: str) -> None:
        branch = self.branches[name]
        everything = Fold(JsonlJournal(branch.path)).records()
        ids = {*list(branch.stones)[:1], *(located.record.id for located in everything[:1])}
        for selection in (
            Selection(kinds=("iteration",), newest=count),
            Selection(run=run),
            Selection(ids=ids),
        ):
            selected = Fold(with_ledger(branch)).select(selection)
            assert selected == selection.of(everything)
        ever = {*branch.stones, *(record_id for record_id, _ in branch.records)}
        assert Fold(with_ledger(branch)).known({*ids, "unknown"}) == ids & ever


def with_ledger(branch: Branch) -> JsonlJournal:
    """The journal as a new process opens it, with a ledger for every line."""
    return JsonlJournal(branch.path, ledger=branch.ledger, ledger_step_bytes=0)


JournalLaw.TestCase.settings = settings(
    max_examples=examples(50), stateful_step_count=25, deadline=None
)
LedgerLaw.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=20, deadline=None
)
test_any_order_of_events_keeps_the_law_of_the_journal = JournalLaw.TestCase
test_any_order_of_events_keeps_the_law_with_a_ledger = LedgerLaw.TestCase
