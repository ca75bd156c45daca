"""What an agent changed in the plan is shown at the end of its iteration, and can be undone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commanding import Line
from looping import FEATURES, Loop, planned, scripted

from ralph.memory.keeping import choose, forget
from ralph.plan.edit import update_feature, update_task
from ralph.plan.store import Plan

DB = ".ralph/db"
ARCHITECTURE = "A form posts to src/signing.py, which checks the hash and sets the cookie."
CALLS = [
    {"bash": f"{{{{ralph}}}} feature update auth --architecture '{ARCHITECTURE}'"},
    {"bash": "{{ralph}} learning add 'Retries hide the timeout.' --feature auth --reason seen"},
    {"bash": "{{ralph}} task update 2 --status skipped"},
    {"bash": "{{ralph}} task add 'Rate limits' --feature auth"},
    {"bash": "{{ralph}} task update 1 --status done --comment 'All of it.'"},
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return planned(tmp_path / "project")


@pytest.fixture
def loop(project: Path) -> Loop:
    return Loop(project, embedder="none")


def play(loop: Loop, tmp_path: Path, *steps: dict[str, Any], **options: Any) -> list[str]:
    loop(scripted(tmp_path, {"steps": list(steps)}), max_iterations=1, **options)
    return [line for facts in loop.facts("changed") for line in facts["lines"]]


def test_changes_through_an_agents_calls_are_shown_and_undone(
    loop: Loop, tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = play(loop, tmp_path, *CALLS)
    assert lines == [
        "feature auth: architecture reworded, 72 -> 74 characters",
        "feature auth: learning added: Retries hide the timeout.",
        "task 2: status pending -> skipped",
        "task 4 added: Rate limits",
    ]
    monkeypatch.chdir(loop.root)
    [listed] = ralph.well("undo", "--list", "--json").json
    assert listed["lines"] == lines

    ran = ralph.well("undo")

    assert "Undone, task 4 removed: Rate limits" in ran.out
    feature = loop.plan.feature("auth")
    assert feature.architecture == (
        "A form posts to src/login.py, which checks the hash and sets the cookie."
    )
    assert len(feature.learnings) == 3
    assert {task.id: task.status for task in loop.plan.read("tasks").tasks} == {
        1: "done",
        2: "pending",
        3: "pending",
    }
    assert [comment.text for comment in loop.plan.task(1).comments] == ["All of it."]
    assert "nothing to undo" in ralph("undo").complaint


def test_f10_an_agents_review_run_is_shown_and_undone(
    project: Path, tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(project, embedder="none", review_every=1)
    lines = play(
        loop,
        tmp_path,
        {"bash": "{{ralph}} learning remove 1 --feature auth"},
        {"bash": "{{ralph}} learning review 1 --feature auth"},
        {"bash": "{{ralph}} feature update auth --clear description"},
    )
    assert lines == [
        "feature auth: description emptied",
        "feature auth: learning removed: The cookie must be set before the redirect.",
        "feature auth: learning reviewed: Hashes are compared in constant time.",
    ]
    monkeypatch.chdir(loop.root)
    ralph.well("undo")
    feature = loop.plan.feature("auth")
    assert feature.description
    by_text = {learning.text: learning for learning in feature.learnings}
    assert by_text["The cookie must be set before the redirect."].source == "human"
    assert not by_text["Hashes are compared in constant time."].reviewed
    assert "removed_learnings" not in (loop.root / DB / "features.yaml").read_text()


def test_an_edit_of_the_file_that_the_guard_lets_stay_is_shown_and_undone(
    loop: Loop, tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = play(
        loop,
        tmp_path,
        {"edit": f"{DB}/features.yaml", "old": "src/login.py", "new": "src/signing.py"},
    )
    assert lines == ["feature auth: architecture reworded, 72 -> 74 characters"]
    monkeypatch.chdir(loop.root)
    ralph.well("undo")
    assert (loop.root / DB / "features.yaml").read_text() == FEATURES


def test_a_damaged_copy_is_reported_and_takes_nothing_out_of_the_plan(
    loop: Loop, tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(
        loop,
        tmp_path,
        {"edit": f"{DB}/features.yaml", "old": "src/login.py", "new": "src/signing.py"},
    )
    with loop.opened() as memory:
        [copy] = memory.project.cache.glob("undo/*/features.without.yaml")
    copy.write_text("features: [")
    before = (loop.root / DB / "features.yaml").read_bytes()
    monkeypatch.chdir(loop.root)
    ran = ralph("undo")
    assert ran.code == 1
    assert "features.without.yaml" in ran.complaint
    assert (loop.root / DB / "features.yaml").read_bytes() == before


def test_what_others_changed_is_neither_shown_nor_undone(
    loop: Loop, tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(event: Any) -> None:
        if event.event == "started":
            update_task(Plan(loop.root), 3, {"priority": 1})

    loop.on_event = change
    lines = play(loop, tmp_path, *CALLS[:3])
    assert not any("task 3" in line for line in lines)
    boundaries = "No passwords in logs, ever."
    update_feature(Plan(loop.root), "auth", {"boundaries": boundaries})
    update_task(Plan(loop.root), 2, {"status": "in_progress"})
    monkeypatch.chdir(loop.root)

    ran = ralph.well("undo", "--json").json

    assert ran["left"] == ["`status` of task 2"]
    assert loop.plan.task(2).status == "in_progress"
    assert loop.plan.task(3).priority == 1
    assert loop.plan.feature("auth").boundaries == boundaries
    assert len(loop.plan.feature("auth").learnings) == 3


def test_an_iteration_without_other_changes_has_nothing_to_undo(loop: Loop, tmp_path: Path) -> None:
    assert play(loop, tmp_path, CALLS[-1]) == []
    assert loop.facts("changed") == []


def test_an_agent_cannot_undo(loop: Loop, tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    play(loop, tmp_path, CALLS[0])
    play(loop, tmp_path, {"bash": f"{{{{ralph}}}} undo > {kept} 2>&1; true"})
    assert "may not call `ralph undo`" in kept.read_text()
    assert loop.plan.feature("auth").architecture == ARCHITECTURE


def test_forgotten_words_are_not_kept_for_undoing(loop: Loop, tmp_path: Path) -> None:
    play(loop, tmp_path, *CALLS)
    with loop.opened() as ralph:
        forget(ralph, choose(ralph, match="Retries hide"))
    left = [path for path in tmp_path.rglob("*") if path.is_file() and "script" not in path.name]
    assert [path for path in left if b"Retries hide" in path.read_bytes()] == []


def test_journal_lines_that_git_took_come_back_with_undo(
    loop: Loop, tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(loop.root)
    ralph.record("auth", {"summary": "Built the form."})
    for command in ("git init -q -b main", "git add .", "git commit -q -m one"):
        words = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *words, *command.split()[1:]], check=True)
    taken = "git rm -rq .ralph/db/memory; git -c user.name=A -c user.email=a@b.c commit -qm two"
    play(loop, tmp_path, {"bash": taken})
    assert [one.summary for one in loop.told()] != ["Built the form."]
    ran = ralph.well("undo", "--json").json
    assert ran["journal"] == [".ralph/db/memory/auth.jsonl: 1 line lost"]
    assert "Built the form." in [one.summary for one in loop.told()]


LIBRARY = """\
import sys
from pathlib import Path
from ralph import RalphError, open_ralph
from ralph.plan.edit import update_feature
from ralph.plan.learnings import add, remove, review
from ralph.plan.store import Plan
plan = Plan(Path(sys.argv[1]))
with open_ralph(sys.argv[1]) as memory:
    calls = (
        lambda: remove(plan, "auth", 1),
        lambda: review(plan, "auth", 1),
        lambda: memory.knowledge.checkpoint(),
        lambda: memory.feature("auth").forget(["1"]),
    )
    for call in calls:
        try:
            call()
        except RalphError as error:
            print(error, file=sys.stderr)
        else:
            sys.exit("allowed")
    memory.remember("Deploys need nobody.")
add(plan, "auth", "The form needs no test.", source="human")
update_feature(plan, "auth", {"architecture": "A form posts to src/login.py, which sets a cookie."})
"""


def test_f1_f10_an_agents_script_may_do_no_more_with_the_library_than_by_commands(
    loop: Loop, tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "library.py"
    script.write_text(LIBRARY)
    before = loop.plan.feature("auth")
    lines = play(loop, tmp_path, {"bash": f"{sys.executable} {script} {loop.root}"})
    after = loop.plan.feature("auth")
    assert after.learnings[: len(before.learnings)] == before.learnings
    assert [learning.source for learning in after.learnings[len(before.learnings) :]] == ["agent"]
    with loop.opened() as memory:
        assert [hit.record.by for hit in memory.recent(9) if hit.kind == "note"] == ["agent"]
    assert "feature auth: learning added: The form needs no test." in lines
    assert any("architecture reworded" in line for line in lines)
    monkeypatch.chdir(loop.root)
    ralph.well("undo")
    assert loop.plan.feature("auth").architecture == before.architecture
    assert loop.plan.feature("auth").learnings == before.learnings
