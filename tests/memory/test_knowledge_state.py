"""However journals grow and are read, they come to the same: nothing twice, nothing missed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from journaling import run_child

from ralph.journal.file import JournalFolder
from ralph.memory.knowledge_state import KnowledgeState, PublishedState, Slot
from ralph.records.knowledge import (
    Checkpoint,
    FailureSolution,
    Outcome,
    PublishedEntry,
    entry_id,
    entry_record,
    outcome_id,
    pattern_id,
)

PROJECTS = ("billing", "shop", "ledger")
FIRST = "2026-01-01T00:00:00Z"
JUNK = (b"<<<<<<< HEAD\n", b'{"v":99,"kind":"checkpoint","id":"x"}\n', b'{"v":1,"kind":"failure_so')

step = st.one_of(
    st.tuples(st.just("capture"), st.sampled_from(PROJECTS), st.integers(0, 9)),
    st.tuples(st.just("checkpoint"), st.sampled_from(PROJECTS), st.integers(1, 4)),
    st.tuples(st.just("again"), st.sampled_from(PROJECTS), st.integers(0, 40)),
    st.tuples(st.just("outcome"), st.sampled_from(PROJECTS), st.integers(0, 40)),
    st.tuples(st.just("forget"), st.sampled_from(PROJECTS), st.integers(0, 40)),
    st.tuples(st.just("junk"), st.sampled_from(PROJECTS), st.integers(0, len(JUNK) - 1)),
    st.tuples(st.just("follow"), st.sampled_from(PROJECTS), st.integers(1, 3)),
)


def entry(project: str, n: int) -> FailureSolution:
    return FailureSolution(project=project, failure_description=f"p{n}", solution_steps=f"s{n}")


class Model:
    """What must come out, told in the simplest way."""

    def __init__(self) -> None:
        self.entries: dict[str, list[str]] = {name: [] for name in PROJECTS}
        self.covered: dict[str, list[str]] = {name: [] for name in PROJECTS}
        self.gone: set[str] = set()
        self.words: dict[tuple[str, str, str], bool] = {}
        # When each entry was published, and of which pattern it is.
        self.slots: dict[str, tuple[int, str]] = {}

    def staged(self, project: str) -> list[str]:
        return [
            one
            for one in self.entries[project]
            if one not in self.covered[project] and one not in self.gone
        ]

    def published(self) -> set[str]:
        return {one for name in PROJECTS for one in self.covered[name]} - self.gone

    def indexed(self) -> set[str]:
        """The first two of each pattern."""
        by_pattern: dict[str, list[str]] = {}
        for one in sorted(self.published(), key=lambda one: (self.slots[one][0], one)):
            by_pattern.setdefault(self.slots[one][1], []).append(one)
        return {one for some in by_pattern.values() for one in some[:2]}


class World:
    """Journals in a folder, a ledger that follows them, and an index that does."""

    def __init__(self, folder: Path) -> None:
        self.folder = JournalFolder(folder)
        self.state = KnowledgeState(self.folder)
        self.model = Model()
        self.followed: set[str] = set()
        self.position: str | None = None
        self._times = 0

    def now(self) -> str:
        """Every moment is later than the one before; some are whole seconds."""
        self._times += 1
        seconds, parts = divmod(self._times, 3)
        tail = f".{parts * 300:03}Z" if parts else "Z"
        return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}{tail}"

    def pattern(self, one: str) -> str:
        # A few patterns for many entries.
        return pattern_id(str(int(one, 16) % 3))

    def capture(self, project: str, n: int) -> None:
        told = entry(project, n)
        identity = entry_id(told)
        if identity not in self.model.entries[project] and identity not in self.model.gone:
            journal = self.folder.journal(project)
            at = self.now()
            journal.append([lambda number: entry_record(told, id=identity, number=number, at=at)])
            self.model.entries[project].append(identity)

    def checkpoint(self, project: str, n: int) -> None:
        chosen = self.model.staged(project)[:n]
        if chosen:
            covers = tuple(PublishedEntry(one, self.pattern(one)) for one in chosen)
            self._say(project, Checkpoint(project=project, why="manual", covers=covers), chosen[0])
            self.model.covered[project] += chosen
            self.model.slots |= {one: (self._times, self.pattern(one)) for one in chosen}

    def again(self, project: str, n: int) -> None:
        """Another machine has published the same at the same time; the first line counts."""
        if covered := self.model.covered[project]:
            covers = (PublishedEntry(covered[n % len(covered)], "another pattern"),)
            line = Checkpoint(project=project, why="manual", covers=covers)
            self._say(project, line, f"again-{n}-{self._times}")

    def outcome(self, project: str, n: int) -> None:
        published = sorted(self.model.published())
        if published:
            pattern = self.pattern(published[n % len(published)])
            task = str(n % 2) if n % 3 else ""
            said = Outcome(project=project, pattern=pattern, worked=n % 5 < 3, task=task)
            self._times += 1
            identity = outcome_id(project, pattern, task, str(self._times))
            self._say(project, said, identity)
            self.model.words[project, pattern, task or identity] = said.worked

    def _say(self, project: str, said: Any, name: str) -> None:
        at = self.now()
        identity = f"said-{name}"
        self.folder.journal(project).append(
            [lambda number: entry_record(said, id=identity, number=number, at=at)]
        )

    def forget(self, project: str, n: int) -> None:
        there = [one for one in self.model.entries[project] if one not in self.model.gone]
        if there:
            self.folder.journal(project).forget([there[n % len(there)]])
            self.model.gone.add(there[n % len(there)])

    def junk(self, project: str, n: int) -> None:
        with (self.folder.path / f"{project}.jsonl").open("ab") as file:
            file.write(JUNK[n])

    def follow(self, project: str, n: int) -> None:
        """Read on as the index does, a few at a time, and not always to the end."""
        batch = self.state.read(self.position, limit=n)
        if batch.restarted:
            self.followed.clear()
        fresh = [located.record.id for located in batch.records]
        assert len(fresh) <= n
        assert self.followed.isdisjoint(fresh)
        self.followed |= set(fresh)
        self.followed -= {stone.id for stone in batch.tombstones}
        self.position = batch.position

    def check(self) -> None:
        self.matches(self.state)
        self.matches(KnowledgeState(self.folder))
        published = self.state
        while not published.unchanged(self.position):
            self.follow("", 2)
        assert self.followed == self.model.indexed()
        again = KnowledgeState(self.folder).read()
        ids = [located.record.id for located in again.records]
        assert sorted(ids) == sorted(self.model.indexed())
        assert again.done

    def matches(self, ledger: KnowledgeState) -> None:
        model = self.model
        history = ledger.history()
        assert history.slots.keys() == model.published()
        for name in PROJECTS:
            account = ledger.account(name)
            assert list(account.staged) == model.staged(name)
            assert [slot.entry for slot in account.slots] == model.covered[name]
            for one in model.covered[name]:
                assert one in model.gone or history.projects[one] == name
        by_pattern: dict[str, set[str]] = {}
        for one in model.published():
            by_pattern.setdefault(self.pattern(one), set()).add(one)
        assert {name: set(some) for name, some in history.patterns.items()} == by_pattern
        for name in {pattern for _, pattern, _ in model.words}:
            told = [worked for (_, of, _), worked in model.words.items() if of == name]
            assert history.worked.get(name, 0) == sum(told)
            assert history.failed.get(name, 0) == len(told) - sum(told)


@settings(max_examples=examples(150))
@given(st.lists(step, max_size=40))
def test_a_ledger_that_follows_comes_to_what_a_new_one_reads(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for what, project, n in steps:
            getattr(world, what)(project, n)
        world.check()


def test_a_later_word_counts_also_when_it_falls_within_the_same_second(tmp_path: Path) -> None:
    """A whole second is written without its thousandths, and would sort behind them."""
    folder = JournalFolder(tmp_path)
    told = entry("billing", 1)
    name = pattern_id("x")
    covers = (PublishedEntry(entry_id(told), name),)
    line = Checkpoint(project="billing", why="manual", covers=covers)
    journal = folder.journal("billing")
    journal.append([lambda n: entry_record(told, id=entry_id(told), number=n, at=FIRST)])
    journal.append([lambda n: entry_record(line, id="c", number=n, at=FIRST)])
    for worked, at in ((True, "2026-01-01T00:00:01Z"), (False, "2026-01-01T00:00:01.500Z")):
        said = Outcome(project="billing", pattern=name, worked=worked, task="7")
        journal.append([entry_record(said, id=at, number=9, at=at)])
    history = KnowledgeState(folder).history()
    assert (history.worked.get(name, 0), history.failed.get(name, 0)) == (0, 1)


def test_an_entry_that_stands_behind_its_checkpoint_is_published_all_the_same(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.capture("shop", 1)
    world.capture("shop", 2)
    world.checkpoint("shop", 2)
    file = tmp_path / "shop.jsonl"
    first, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*rest, first]))
    world.check()


def test_a_journal_that_was_deleted_takes_what_it_published_along(tmp_path: Path) -> None:
    world = World(tmp_path)
    for project in PROJECTS:
        world.capture(project, 1)
        world.checkpoint(project, 1)
    world.check()
    (tmp_path / "shop.jsonl").unlink()
    batch = world.state.read(world.position)
    assert batch.restarted
    assert len(batch.records) == 2
    assert len(world.state.history().slots) == 2


def test_a_position_that_nobody_can_read_begins_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.capture("shop", 1)
    world.checkpoint("shop", 1)
    for position in ("", "{}", '{"places": 5}', "\ud800"):
        batch = world.state.read(position)
        assert batch.restarted
        assert len(batch.records) == 1
        assert not world.state.unchanged(position)


def test_why_something_went_is_read_once_until_the_journal_changes(tmp_path: Path) -> None:
    """What expired is asked for once an entry: a thousand of them must not read it as often."""
    world = World(tmp_path)
    world.capture("shop", 1)
    world.capture("shop", 2)
    account = world.state.account("shop")
    one, other = account.entries
    account.journal.forget([one], reason="worn")
    told = account.fold.reasons()
    assert told == {one: "worn"}
    assert account.fold.reasons() is told
    account.journal.forget([other], reason="torn")
    assert account.fold.reasons() == {one: "worn", other: "torn"}


def test_some_entries_can_be_left_out_of_a_history() -> None:
    slots = {name: Slot(name, "p" if name < "c" else "q", FIRST) for name in "abc"}
    whole = PublishedState(slots, {}, {"p": ["a", "b"], "q": ["c"]}, {"p": 1}, {})
    assert whole.without(lambda slot: slot.entry == "a").patterns == {"p": ["b"], "q": ["c"]}
    assert whole.without(lambda slot: slot.entry == "c").patterns == {"p": ["a", "b"]}
    assert whole.without(lambda slot: True).slots == {}


def test_ids_are_the_same_in_every_process_and_for_ever() -> None:
    """Journals hold them: a change here would make everything learned be learned twice."""
    script = """
    from ralph.records.knowledge import FailureSolution, checkpoint_id, entry_id, pattern_id
    told = FailureSolution(project="p", failure_description="f", solution_steps="s")
    first = entry_id(told)
    print(first, entry_id(told, again=1), pattern_id(first), checkpoint_id("p", first))
    """
    [line] = run_child(script)
    assert line.split() == [
        "f39bc6484ff65a26",
        "10a55d7ccaa3544e",
        "e6025b2f7a725557",
        "be3e49b7bcae570d",
    ]
