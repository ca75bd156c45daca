"""A file and a database, given the same calls in any order, answer the same."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from journaling import forgotten, note, unnumbered

from ralph.errors import RecordForgotten
from ralph.journal import Draft, Fold, Journal
from ralph.journal.file import JsonlJournal
from ralph.journal.postgres import PostgresJournal
from ralph.journal.session import Link, Patience
from ralph.records import Record, Tombstone

_T = TypeVar("_T")
runs = st.sampled_from(["r1", "r2", "r3"])
texts = st.sampled_from(["it works", "it does not"])
numbers = st.integers(1, 4)


def a_time(run: str) -> str:
    return f"2026-02-07T14:30:0{run[1]}Z"


def a_record(run: str, number: int, text: str) -> Record:
    return note(run, number, text=text, at=a_time(run))


def a_draft(run: str, text: str) -> Draft:
    return unnumbered(run, text=text, at=a_time(run))


drafts = st.lists(
    st.one_of(st.builds(a_record, runs, numbers, texts), st.builds(a_draft, runs, texts)),
    min_size=1,
    max_size=4,
)


class SameAnswers(RuleBasedStateMachine):
    """Every call goes to both, and both must come to the same."""

    link: Link

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = f"same/{uuid.uuid4()}"
        self.reopen()
        self.folds = [Fold(one) for one in self.both]
        self.positions: list[str | None] = [None, None]
        self.followed: list[set[tuple[str, str]]] = [set(), set()]

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def ask(self, question: Callable[[Journal], _T]) -> list[_T | str]:
        told: list[_T | str] = []
        for journal in self.both:
            try:
                told.append(question(journal))
            except RecordForgotten as error:
                told.append(error.what)
        return told

    @rule()
    def reopen(self) -> None:
        self.both: list[Journal] = [
            JsonlJournal(self.folder / "auth.jsonl"),
            PostgresJournal(self.link, lambda: self.memory, "auth"),
        ]

    @rule(some=drafts)
    def append(self, some: list[Record | Draft]) -> None:
        one, other = self.ask(lambda journal: journal.append(some))
        assert one == other

    @rule(run=runs, number=numbers, unknown=st.booleans())
    def forget(self, run: str, number: int, unknown: bool) -> None:
        ids = [a_record(run, number, "").id, *(["unknown"] if unknown else [])]
        one, other = self.ask(lambda journal: journal.forget(ids, reason="r"))
        assert one == other

    @rule(run=runs, number=st.integers(1, 6))
    def bury(self, run: str, number: int) -> None:
        record = a_record(run, number, "")
        stone = Tombstone(record.id, "2026-02-08T00:00:00Z", "elsewhere", number, record.at)
        one, other = self.ask(lambda journal: journal.forget((), stones=[stone]))
        assert one == other

    @rule(limit=st.integers(1, 5))
    def follow(self, limit: int) -> None:
        for place, journal in enumerate(self.both):
            done = False
            while not done:
                batch = journal.read(self.positions[place], limit=limit)
                if batch.restarted:
                    self.followed[place].clear()
                for located in batch.records:
                    self.followed[place].add((located.record.id, located.record.digest))
                gone = {stone.id for stone in batch.tombstones}
                self.followed[place] -= {key for key in self.followed[place] if key[0] in gone}
                self.positions[place], done = batch.position, batch.done
            assert journal.unchanged(self.positions[place])
        assert self.followed[0] == self.followed[1]

    @invariant()
    def both_hold_the_same(self) -> None:
        one, other = ([located.record for located in fold.records()] for fold in self.folds)
        assert one == other
        assert self.ask(lambda journal: journal.verify()[0]) == [len(one)] * 2
        buried, graves = self.ask(lambda journal: forgotten(journal))
        assert buried == graves


def test_any_order_of_calls_comes_to_the_same(postgres: str) -> None:
    SameAnswers.link = Link(postgres, patience=Patience())
    try:
        run_state_machine_as_test(
            SameAnswers,
            settings=settings(max_examples=25, stateful_step_count=20, deadline=None),
        )
    finally:
        SameAnswers.link.close()
