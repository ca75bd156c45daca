"""Killed at any moment: nothing acknowledged is lost, nothing forgotten comes back.

A child writes, rebuilds and forgets, and says so on a pipe after each step has returned; it is
killed in the middle, and the next start must need no help. `RALPH_KILL_ROUNDS=200` runs them all.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from journaling import child, tell
from remembering import files_holding, marker, open_toy

from ralph.memory.ralph import Ralph

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs processes that fork and signals that kill"
)

ROUNDS = int(os.environ.get("RALPH_KILL_ROUNDS", "25"))
_ROUNDS_A_PROJECT = 10
_SIGKILL = 9  # by number: Windows has no name for it

# Forks a worker for each line: a fresh process with everything imported already.
NURSERY = """
import json, os, random, sys
from remembering import made, marker, open_toy
from ralph.index import sync as sync_module

sync_module._BATCH = 5  # many transactions, many moments to die in

def say(**what):
    os.write(1, (json.dumps(what) + "\\n").encode())

def work(root, seed, first):
    dice = random.Random(seed)
    with open_toy(root) as memory:
        auth = memory.feature("auth")
        while True:
            choice = dice.random()
            if choice < 0.5:
                many = range(first, first + dice.randint(1, 4))
                first = many.stop
                kept = auth.remember_all(
                    [made(f"step {marker(n)}", task_title=f"Task {n}", session_id=f"run-{n}")
                     for n in many])
                say(kept={one.id: n for one, n in zip(kept, many)})
            elif choice < 0.75:
                ids = [hit.id for hit in auth.recent(1000)]
                chosen = dice.sample(ids, min(len(ids), dice.randint(1, 2)))
                say(forgetting=chosen)
                gone = auth.forget(chosen)
                assert sorted(gone) == sorted(chosen), (gone, chosen)
                say(forgotten=gone)
            elif choice < 0.9:
                assert auth.sync(afresh=True).complete
                say(rebuilt=True)
            else:
                assert not auth.search("step task").notes
                say(asked=True)

for line in sys.stdin:
    root, seed, first = json.loads(line)
    worker = os.fork()
    if worker == 0:
        say(worker=os.getpid())
        try:
            work(root, seed, first)
        except BaseException as error:
            say(failed=repr(error))
        finally:
            os._exit(1)
    os.waitpid(worker, 0)
    say(dead=worker)
"""


class Story:
    """What the children of one project have said, over all their lives."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.doomed: set[str] = set()
        self.forgotten: set[str] = set()
        self.steps = 0

    def hear(self, said: dict[str, object]) -> None:
        match said:
            case {"kept": dict() as ids}:
                self.kept |= {str(i): int(n) for i, n in ids.items()}
            case {"forgetting": list() as ids}:
                self.doomed |= set(map(str, ids))
                return
            case {"forgotten": list() as ids}:
                self.forgotten |= set(map(str, ids))
            case {"failed": error}:
                pytest.fail(f"a child failed by itself: {error}")
        self.steps += 1


class Nursery:
    """Starts workers, listens to them, and kills them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self._pipe = process.stdout.fileno()
        self._rest = b""

    def round(self, root: Path, seed: int, story: Story) -> None:
        """Let a worker live for a few steps and a moment more, then kill it."""
        dice = random.Random(seed)
        tell(self._process, json.dumps([str(root), seed, 1000 * seed]))
        worker = int(str(self._next()["worker"]))
        last = story.steps + dice.randint(0, 6)
        while story.steps < last:
            story.hear(self._next())
        # Not to be right, only to be unpredictable: the moment may lie inside any step.
        select.select([], [], [], dice.random() ** 2 * 0.03)
        os.kill(worker, _SIGKILL)
        while "dead" not in (said := self._next()):
            story.hear(said)

    def _next(self) -> dict[str, object]:
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._pipe], [], [], 60)
            assert ready, "a child says nothing"
            data = os.read(self._pipe, 65536)
            assert data, "the nursery is gone"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        said = json.loads(line)
        assert isinstance(said, dict)
        return said


@contextlib.contextmanager
def nursery() -> Iterator[Nursery]:
    with child(NURSERY) as process:
        yield Nursery(process)


def torn(line: bytes) -> bool:
    """Whether this is the beginning of an entry and not all of it."""
    start = b'{"v":1,"kind":"'
    try:
        json.loads(line)
    except ValueError:
        return line.startswith(start) or start.startswith(line)
    return False


def check(root: Path, story: Story) -> None:
    """The next start, without help."""
    with open_toy(root) as memory:
        if not memory.project.exists:
            assert not story.kept
            return
        auth = memory.feature("auth")
        journal = root / ".ralph" / "db" / "memory" / "auth.jsonl"
        lines = journal.read_bytes().split(b"\n") if journal.exists() else []
        count, complaints = auth.verify()
        assert [c for c in complaints if not torn(lines[c.line - 1])] == []
        living = {hit.id: hit.record for hit in auth.recent(100_000)}
        assert count == len(living)
        assert story.kept.keys() - living.keys() <= story.doomed, "acknowledged and lost"
        assert not living.keys() & story.forgotten, "forgotten and back"
        for record_id, number in story.kept.items():
            if record_id in living:
                assert living[record_id].summary == f"step {marker(number)}"
        assert_index_is_journal(memory)
        gone = [marker(n) for i, n in story.kept.items() if i not in living]
        assert files_holding(root / ".ralph", *gone) == []
        for number in list(story.kept.values())[-3:]:
            found = auth.search(marker(number))
            assert found.notes == ()
            assert {hit.record.summary for hit in found} <= {f"step {marker(number)}"} | {
                record.summary for record in living.values()
            }
        if living:
            newest = auth.recent(1)[0]
            assert newest.id in {hit.id for hit in auth.search(newest.record.summary, limit=20)}


def assert_index_is_journal(memory: Ralph) -> None:
    auth = memory.feature("auth")
    auth.search("anything at all")
    store = memory.store.index.store
    assert store.check(deep=True) == []
    with store.state() as view:
        found = view.collections(auth.target().name)
        assert len(found) <= 1
        known = {key for one in found for key in view.content(one).keys}
        sizes = [view.size(one) for one in found]
    assert known == {(record.id, record.digest) for record in auth.records()}
    for size in sizes:
        assert size.records == size.passages == len(known)
        assert size.waiting == 0


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_killed_at_random_moments_nothing_is_lost_and_nothing_comes_back(tmp_path: Path) -> None:
    steps = kept = forgotten = 0
    with nursery() as workers:
        for first in range(0, ROUNDS, _ROUNDS_A_PROJECT):
            root = tmp_path / f"project-{first}"
            story = Story()
            for seed in range(first, min(first + _ROUNDS_A_PROJECT, ROUNDS)):
                workers.round(root, seed + 1, story)
                check(root, story)
            steps += story.steps
            kept += len(story.kept)
            forgotten += len(story.forgotten)
            shutil.rmtree(root)
    sys.stderr.write(f"{ROUNDS} kills: {steps} steps, {kept} kept, {forgotten} forgotten\n")
    assert kept > ROUNDS
    assert forgotten > 0
