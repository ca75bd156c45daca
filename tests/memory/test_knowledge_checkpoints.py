"""A checkpoint publishes what was staged, whole batches, once, however often it is interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from embedding_server import OLLAMA_MODEL, EmbeddingServer
from journaling import child, hear, tell
from knowing import LESSONS, ids_indexed, journals, lesson, lines, many, opened, solved
from remembering import ToyEmbedder, shown

from ralph import disk
from ralph.errors import BadInput, EmbedderOff, IndexOff, JournalBusy
from ralph.index.embedders.served import recipe_for
from ralph.memory.knowledge import Knowledge
from ralph.memory.project import Project
from ralph.recall.patterns import Patterns

QUESTION = "the database migration fails in CI: no such table users"
_EMBED = "/api/embed"
# What the model wants before a text that is kept.
_PASSAGE = recipe_for(OLLAMA_MODEL).passage
KILL_ROUNDS = int(os.environ.get("RALPH_KILL_ROUNDS", "8"))


@pytest.fixture
def knowledge(project: Path, toy: ToyEmbedder) -> Iterator[Knowledge]:
    with opened(project, toy) as open_knowledge:
        yield open_knowledge


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The root of a second project."""
    root = tmp_path / "other"
    root.mkdir()
    Project(root).init()
    return root


def answers(knowledge: Knowledge) -> list[Any]:
    """Everything that must be the same when nothing was published in between."""
    told: list[Any] = [[one.to_json() for one in knowledge.patterns()]]
    for problem, error, _ in LESSONS:
        told.append([one.to_json() for one in knowledge.query_for_task(problem, min_score=0.0)])
        failure = knowledge.query_for_failure(problem, error, min_score=0.0, max_results=20)
        told.append([one.to_json() for one in failure])
        told.append(shown(knowledge.search(problem, min_score=0.0, limit=20)))
    return told


def members(found: Patterns) -> dict[str, tuple[str, ...]]:
    return {one.id: one.entries for one in found}


# -- what is published


def test_what_is_staged_is_not_searchable_and_what_is_published_is(knowledge: Knowledge) -> None:
    one = knowledge.capture(lesson(0))
    assert knowledge.search(QUESTION, min_score=0.0) == []
    assert knowledge.query_for_task(QUESTION, min_score=0.0) == []
    assert knowledge.query_for_failure(QUESTION, min_score=0.0) == []
    assert knowledge.patterns() == []
    assert ids_indexed(knowledge) == []

    done = knowledge.checkpoint(kind="phase_complete")

    assert (done.kind, done.published, done.new_patterns, done.joined, done.notes) == (
        "phase_complete",
        (one.id,),
        1,
        0,
        (),
    )
    assert [hit.id for hit in knowledge.search(QUESTION, min_score=0.0)] == [one.id]
    assert [p.entries for p in knowledge.query_for_task(QUESTION)] == [(one.id,)]
    assert knowledge.staged() == []


def test_exactly_what_was_staged_for_that_project_is_published(knowledge: Knowledge) -> None:
    mine = [knowledge.capture(lesson(n)).id for n in (0, 1)]
    theirs = [knowledge.capture(lesson(n, project="billing")).id for n in (2, 3)]

    assert knowledge.checkpoint().published == tuple(mine)
    assert ids_indexed(knowledge) == sorted(mine)
    assert [one.id for one in knowledge.staged("*")] == theirs
    later = knowledge.capture(lesson(4, project="billing")).id
    assert knowledge.checkpoint("billing").published == (*theirs, later)
    assert ids_indexed(knowledge) == sorted([*mine, *theirs, later])


def test_a_checkpoint_is_a_line_in_the_journal_and_repeating_it_writes_none(
    knowledge: Knowledge, home: Path
) -> None:
    knowledge.capture(lesson(0))
    knowledge.checkpoint(kind="project_complete")
    *_, line = lines(home)
    assert (line["kind"], line["body"]["why"]) == ("checkpoint", "project_complete")
    assert [entry for entry, _ in line["body"]["covers"]] == [
        p.entries[0] for p in knowledge.patterns()
    ]
    before = [file.read_bytes() for file in journals(home)]

    again = knowledge.checkpoint(kind="project_complete")

    assert (again.published, again.new_patterns, again.joined) == ((), 0, 0)
    assert [file.read_bytes() for file in journals(home)] == before


def test_there_are_four_kinds_of_checkpoint(knowledge: Knowledge) -> None:
    for n, kind in enumerate(("phase_complete", "project_complete", "cancelled", "manual")):
        knowledge.capture(lesson(n))
        assert knowledge.checkpoint(kind=kind).kind == kind
    knowledge.capture(lesson(5))
    with pytest.raises(BadInput, match="unknown checkpoint kind 'whenever'") as caught:
        knowledge.checkpoint(kind="whenever")
    assert caught.value.todo == "It is one of phase_complete, project_complete, cancelled, manual."
    assert len(knowledge.staged()) == 1


# -- patterns


def test_the_same_lesson_from_two_projects_is_one_pattern(
    knowledge: Knowledge, other: Path
) -> None:
    first = knowledge.capture(lesson(0))
    knowledge.checkpoint()
    with opened(other) as elsewhere:
        second = elsewhere.capture(lesson(0))
        done = elsewhere.checkpoint()
        assert (done.new_patterns, done.joined) == (0, 1)
        [pattern] = elsewhere.patterns()
    assert pattern.entries == (first.id, second.id)
    assert (pattern.success_count, pattern.projects) == (2, 2)
    assert members(knowledge.patterns()) == {pattern.id: (first.id, second.id)}


def test_the_same_lesson_twice_in_one_batch_is_one_pattern(knowledge: Knowledge) -> None:
    ids = [knowledge.capture(lesson(n % 2, subject=f"Task {n}")).id for n in range(6)]
    done = knowledge.checkpoint()
    assert (len(done.published), done.new_patterns, done.joined) == (6, 2, 4)
    assert sorted(members(knowledge.patterns()).values()) == sorted(
        [tuple(sorted(ids[0::2])), tuple(sorted(ids[1::2]))]
    )


@pytest.mark.parametrize("field", ["agent_type", "task_type", "technology"])
def test_work_of_another_sort_is_another_pattern(knowledge: Knowledge, field: str) -> None:
    for value in ("one", "two", "ONE ", "two, three", "three,two"):
        knowledge.capture(lesson(0, subject=value, **{field: value}))
    done = knowledge.checkpoint()
    assert (done.new_patterns, done.joined) == (3, 2)
    # Nor later, when the others are published.
    knowledge.capture(lesson(0))
    assert knowledge.checkpoint().new_patterns == 1


def test_a_gate_of_another_type_is_another_pattern(knowledge: Knowledge) -> None:
    approved = {"entry_type": "gate_approval", "approved_approach": "Roll out to one per cent"}
    for gate in ("design", "Design", "release"):
        knowledge.capture({**approved, "gate_type": gate, "subject": f"the {gate} of it"})
    knowledge.capture(solved("design", "Roll out to one per cent"))
    assert knowledge.checkpoint().new_patterns == 3


def test_patterns_are_never_joined_across_a_negation(knowledge: Knowledge) -> None:
    problem = "The image build breaks when urllib3 is resolved"
    knowledge.capture(solved(problem, "Pin urllib3 in the requirements"))
    knowledge.capture(solved(problem, "Do not pin urllib3 in the requirements"))
    knowledge.checkpoint()
    knowledge.capture(solved(problem, "Never pin urllib3 in the requirements", subject="Later"))
    knowledge.checkpoint()
    told = {one.solution: one.id for one in knowledge.patterns()}
    assert told["Pin urllib3 in the requirements"] not in {
        name for text, name in told.items() if text != "Pin urllib3 in the requirements"
    }
    assert len(knowledge.patterns()) in (2, 3)


# -- batches


class Failing(EmbeddingServer):
    """Answers so many requests for vectors, and then none."""

    def __init__(self) -> None:
        super().__init__()
        self.patience: int | None = None
        self.given: list[list[str]] = []

    def vectors(self, texts: list[str], model: str, dims: int | None) -> list[list[float]]:
        self.given.append(texts)
        return super().vectors(texts, model, dims)

    def due(self, path: str) -> str | None:
        if path == _EMBED and self.patience is not None:
            self.patience -= 1
            if self.patience < 0:
                return "400"
        return super().due(path)


@pytest.fixture
def server() -> Iterator[Failing]:
    started = Failing()
    try:
        yield started
    finally:
        started.close()


def served(server: Failing, **more: Any) -> dict[str, Any]:
    return {"embedder": "ollama", "ollama_url": server.url, "batch": 3, **more}


def test_a_batch_is_published_whole_or_not_at_all_and_nothing_is_embedded_twice(
    project: Path, home: Path, server: Failing
) -> None:
    with opened(project, **served(server)) as knowledge:
        ids = [knowledge.capture(lesson(n)).id for n in range(8)]
        assert knowledge.store.embedder is not None
        knowledge.store.embedder.check()
        server.given.clear()
        server.patience = 1

        with pytest.raises(EmbedderOff, match="3 published, 5 stay staged: ") as caught:
            knowledge.checkpoint()
        assert caught.value.todo

        assert [one.id for one in knowledge.staged()] == ids[3:]
        assert ids_indexed(knowledge) == sorted(ids[:3])
        assert len([line for line in lines(home) if line["kind"] == "checkpoint"]) == 1
    server.patience = None
    with opened(project, **served(server)) as knowledge:
        done = knowledge.checkpoint()
        assert done.published == tuple(ids[3:])
        assert done.notes == ()
        assert ids_indexed(knowledge) == sorted(ids)
        assert knowledge.verify() == (8 + 3, [])
        assert knowledge.query_for_failure(*LESSONS[7][:2], min_score=0.0).notes == ()

    # What was refused is asked for again; what was given is not.
    given = [text for one in server.given for text in one if text.startswith(_PASSAGE)]
    assert set(Counter(given).values()) == {1}
    for problem, _, _ in LESSONS[:8]:
        assert any(problem in text for text in given)


def test_nothing_is_embedded_again_by_the_index_or_by_a_repeated_checkpoint(
    project: Path, toy: ToyEmbedder
) -> None:
    with opened(project, toy, batch=3) as knowledge:
        knowledge.capture_all([knowledge.entry(lesson(n)) for n in range(7)])
        knowledge.checkpoint()
        knowledge.checkpoint()
        knowledge.query_for_task(QUESTION)
    assert set(Counter(toy.embedded).values()) == {1}
    for problem, _, _ in LESSONS[:7]:
        assert any(problem in text for text in toy.embedded)


def test_an_embedder_that_is_off_publishes_nothing(project: Path, toy: ToyEmbedder) -> None:
    with opened(project, toy) as knowledge:
        ids = [knowledge.capture(lesson(n)).id for n in range(3)]
        toy.off = True
        with pytest.raises(
            EmbedderOff, match="0 published, 3 stay staged: the toy is switched off"
        ):
            knowledge.checkpoint()
        assert ids_indexed(knowledge) == []
        toy.off = False
        assert knowledge.checkpoint().published == tuple(ids)


def test_an_index_that_cannot_be_opened_publishes_nothing(project: Path, home: Path) -> None:
    home.mkdir(exist_ok=True)
    with opened(project) as knowledge:
        one = knowledge.capture(lesson(0))
        (home / "cache").write_bytes(b"a file where a folder should be")
        with pytest.raises(IndexOff) as caught:
            knowledge.checkpoint()
        assert caught.value.todo
        assert [waiting.id for waiting in knowledge.staged()] == [one.id]
        (home / "cache").unlink()
        assert knowledge.checkpoint().published == (one.id,)


def test_what_was_published_is_counted_when_the_index_fails_only_then(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(project, batch=2) as knowledge:
        ids = [knowledge.capture(lesson(n)).id for n in range(3)]
        index = knowledge.store.index
        sync = type(index).sync

        def failing(self: Any, *args: Any, **more: Any) -> Any:
            if more.get("changed"):  # as a disk that is full at the moment of writing
                raise IndexOff("the disk is full")
            return sync(self, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(type(index), "sync", failing)
            with pytest.raises(IndexOff, match="2 published, 1 stay staged: the disk is full"):
                knowledge.checkpoint()
        assert [one.id for one in knowledge.staged()] == ids[2:]
        # The index catches up by itself.
        assert len(knowledge.search(QUESTION, min_score=0.0)) > 0
        assert ids_indexed(knowledge) == sorted(ids[:2])
        assert knowledge.checkpoint().published == tuple(ids[2:])
        assert ids_indexed(knowledge) == sorted(ids)


def test_one_checkpoint_waits_for_another_and_says_so(project: Path) -> None:
    with opened(project, journal_lock_timeout_s=0.05) as knowledge:
        knowledge.capture(lesson(0))
        lock = knowledge.store.index.path.with_name("checkpoint.lock")
        with disk.lock(lock, timeout_s=1), pytest.raises(JournalBusy, match="another checkpoint"):
            knowledge.checkpoint()
        assert len(knowledge.checkpoint().published) == 1


def test_a_pruning_that_fails_does_not_undo_a_checkpoint(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        (home / "cache" / "pruned-knowledge" / "in the way").mkdir(parents=True)
        one = knowledge.capture(lesson(0))
        done = knowledge.checkpoint()
        assert done.published == (one.id,)
        [note] = done.notes
        assert note.startswith("not pruned: ")
        assert "when it was pruned cannot be noted" in note


# -- killed

KILLED = """
import json, os, signal, sys
from pathlib import Path
from knowing import opened
import ralph.index.sync, ralph.memory.checkpoints
import ralph.index.embedders.static

def work(root, last):
    seen = 0
    def count(frame, event, arg):
        nonlocal seen
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)
    with opened(Path(root), batch=4) as knowledge:
        sys.setprofile(count)
        knowledge.checkpoint()
        sys.setprofile(None)
    return seen

for line in sys.stdin:
    root, last = json.loads(line)
    worker = os.fork()
    if worker == 0:
        try:
            print(work(root, last), flush=True)
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            os._exit(1)
    os.waitpid(worker, 0)
    print("dead", flush=True)
"""


def killed(nursery: subprocess.Popen[str], root: Path, last: int) -> int | None:
    """Run a checkpoint that dies at its `last` step; how many steps it took if it did not."""
    tell(nursery, json.dumps([str(root), last]))
    steps = None
    while (said := hear(nursery)) != "dead":
        assert said.isdigit(), said
        steps = int(said)
    return steps


@pytest.mark.slow
@pytest.mark.timeout(300 + 30 * KILL_ROUNDS)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_killed_at_any_moment_and_run_again_everything_is_published_once(
    project: Path, home: Path, tmp_path: Path
) -> None:
    """The moments are steps of the program: calls, returns and what goes to the system."""
    twins = [lesson(n % 5, subject=f"Task {n}") for n in range(10)]
    with opened(project) as knowledge:
        knowledge.capture(lesson(0, project="billing"))
        knowledge.checkpoint("billing")
        knowledge.capture(lesson(1, project="billing"))  # never published
        ids = [knowledge.capture(plain).id for plain in twins]
    staged = tmp_path / "staged"
    shutil.copytree(home, staged)
    dice = random.Random(11)
    patterns: set[str] = set()
    with child(KILLED, "") as nursery:
        whole = killed(nursery, project, -1)
        assert whole is not None
        for _ in range(KILL_ROUNDS):
            shutil.rmtree(home)
            shutil.copytree(staged, home)
            while killed(nursery, project, dice.randrange(1, whole)) is None:
                with opened(project) as knowledge:
                    covered = knowledge.living().slots.keys()
                    assert set(ids_indexed(knowledge)) <= covered
                    assert {one.id for one in knowledge.staged()} == set(ids) - covered
            with opened(project) as knowledge:
                knowledge.checkpoint()
                assert knowledge.staged() == []
                covers = [
                    e
                    for line in lines(home)
                    if line["kind"] == "checkpoint"
                    for e, _ in line["body"]["covers"]
                ]
                assert Counter(covers) == Counter([*ids, knowledge.of_project("billing")[0].id])
                found = knowledge.patterns()
                assert ids_indexed(knowledge) == sorted(e for p in found for e in p.entries[:2])
                assert sorted(e for one in found for e in one.entries) == sorted(covers)
                assert [one.success_count for one in found] == [3, 2, 2, 2, 2]
                assert knowledge.verify()[1] == []
                patterns |= {one.id for one in found}
    assert len(patterns) == 5


# -- two at once

PUBLISH = """
    import sys
    from pathlib import Path
    from knowing import opened
    with opened(Path(sys.argv[1]), batch=2) as knowledge:
        print("ready", flush=True)
        sys.stdin.readline()
        done = knowledge.checkpoint()
        print(*done.published, flush=True)
"""


def at_once(*roots: Path) -> list[list[str]]:
    """What each of these published, all of them at the same time."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(child(PUBLISH, root)) for root in roots]
        assert [hear(one) for one in children] == ["ready"] * len(roots)
        for one in children:
            tell(one, "go")
        published = [hear(one).split() for one in children]
        assert [one.wait(timeout=60) for one in children] == [0] * len(roots)
    return published


def test_two_projects_that_publish_the_same_lessons_at_once_share_patterns(
    project: Path, other: Path
) -> None:
    for root in (project, other):
        with opened(root) as knowledge:
            knowledge.capture_all([knowledge.entry(lesson(n)) for n in range(6)])
    published = at_once(project, other)
    assert [len(some) for some in published] == [6, 6]
    with opened(project) as knowledge:
        found = knowledge.patterns()
        assert [(one.success_count, one.projects) for one in found] == [(2, 2)] * 6
        assert ids_indexed(knowledge) == sorted(published[0] + published[1])


def test_one_project_published_twice_at_once_is_published_once(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        ids = [
            one.id for one in knowledge.capture_all([knowledge.entry(lesson(n)) for n in range(9)])
        ]
    first, second = at_once(project, project)
    assert sorted(first + second) == sorted(ids)
    with opened(project) as knowledge:
        assert ids_indexed(knowledge) == sorted(ids)
        assert len(knowledge.patterns()) == 9
        assert knowledge.verify()[1] == []


# -- rebuilt


def published_lessons(root: Path, other: Path, embedder: ToyEmbedder | None = None) -> list[str]:
    """Lessons of two projects, some of them the same, and some that are not published."""
    with opened(root, embedder) as knowledge:
        for n in (0, 1, 2, 3, 4, 5):
            knowledge.capture(lesson(n, technology="python" if n % 2 else ""))
        knowledge.checkpoint()
        knowledge.report_outcome(knowledge.patterns()[0].id, False, task=1)
        for n in (6, 7):
            knowledge.capture(lesson(n))
        knowledge.checkpoint()
        waiting = [knowledge.capture(lesson(8)).id]
    with opened(other, embedder) as knowledge:
        for n in (1, 3, 9):
            knowledge.capture(lesson(n, technology="python"))
        knowledge.checkpoint()
        waiting.append(knowledge.capture(lesson(10)).id)
    return waiting


def test_a_rebuild_gives_the_same_answers_and_publishes_nothing_of_its_own(
    project: Path, other: Path, home: Path
) -> None:
    waiting = published_lessons(project, other)
    with opened(project) as knowledge:
        before = answers(knowledge)
        assert any(before[1:])
        indexed = ids_indexed(knowledge)
    shutil.rmtree(home / "cache")
    with opened(other) as knowledge:
        assert answers(knowledge) == before
        assert ids_indexed(knowledge) == indexed
        assert set(indexed).isdisjoint(waiting)
        assert knowledge.sync(afresh=True).complete
        assert answers(knowledge) == before
        assert {one.id for one in knowledge.staged("*")} == set(waiting)


def test_an_index_that_grew_step_by_step_answers_like_one_built_at_once(
    project: Path, other: Path, home: Path
) -> None:
    steps: list[list[Any]] = []
    with opened(project) as knowledge:
        for n in range(len(LESSONS)):
            knowledge.capture(lesson(n, project="billing" if n % 3 else ""))
            knowledge.checkpoint("billing" if n % 3 else None)
        knowledge.forget([knowledge.patterns()[0].entries[0]])
        steps.append(answers(knowledge))
    shutil.rmtree(home / "cache")
    with opened(project) as knowledge:
        steps.append(answers(knowledge))
    assert steps[0] == steps[1]


def test_what_a_person_changed_in_a_journal_is_found_as_it_stands_there(
    knowledge: Knowledge, home: Path
) -> None:
    knowledge.capture(solved("The harbour crane stops", "Oil the brake"))
    knowledge.checkpoint()
    assert (
        knowledge.search("harbour crane", min_score=0.0)[0].record.solution_steps == "Oil the brake"
    )
    [file] = journals(home)
    file.write_bytes(file.read_bytes().replace(b"Oil the brake", b"Dry the brake with air"))
    [hit] = knowledge.search("harbour crane", min_score=0.0)
    assert hit.record.solution_steps == "Dry the brake with air"
    [one] = knowledge.query_for_task("harbour crane", min_score=0.0)
    assert one.solution == "Dry the brake with air"


def test_another_embedder_keeps_the_patterns(project: Path, other: Path) -> None:
    published_lessons(project, other)
    embedders = ["none", "static", *(["minilm"] if find_spec("onnxruntime") else [])]
    with opened(project) as knowledge:
        patterns = [one.to_json() for one in knowledge.patterns()]
    for name in embedders:
        with opened(project, embedder=name) as knowledge:
            found = knowledge.query_for_failure(*LESSONS[1][:2], min_score=0.0)
            assert found[0].solution == LESSONS[1][2]
            assert [one.to_json() for one in knowledge.patterns()] == patterns


@pytest.mark.parametrize("name", ["none", "static"])
def test_the_same_lesson_joins_its_pattern_whatever_finds_it(
    project: Path, other: Path, name: str
) -> None:
    published_lessons(project, other)
    with opened(project, embedder=name) as knowledge:
        before = members(knowledge.patterns())
        for n in (1, 3):
            knowledge.capture(lesson(n, technology="python", subject="Once more"))
        done = knowledge.checkpoint()
        assert (done.new_patterns, done.joined) == (1, 2)  # one was staged before
        assert knowledge.patterns()[0].success_count == 3
        assert before.keys() < members(knowledge.patterns()).keys()


def test_many_are_published_in_batches_and_all_of_them_found(project: Path) -> None:
    with opened(project, batch=25) as knowledge:
        captured = knowledge.capture_all([knowledge.entry(one.to_json()) for one in many(120)])
        done = knowledge.checkpoint()
        assert done.published == tuple(one.id for one in captured)
        assert ids_indexed(knowledge) == sorted(done.published)
        assert sum(one.success_count for one in knowledge.patterns()) == 120
