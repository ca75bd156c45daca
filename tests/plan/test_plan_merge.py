"""Two versions of the plan become one, also in real git repositories: nothing lost or doubled."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.errors import BadPlan
from ralph.memory.project import Project
from ralph.plan import learnings
from ralph.plan.edit import create_feature, create_task, update_task
from ralph.plan.merge import merge, merge_files
from ralph.plan.store import Plan

TASKS: dict[str, Any] = {
    "version": 1,
    "tasks": [{"id": 1, "feature": "docs", "title": "First", "status": "pending"}],
}


def with_tasks(*tasks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"version": 1, "tasks": [{**TASKS["tasks"][0], **changes}, *tasks]}


def task(number: int, title: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "feature": "docs", "title": title, **more}


# -- rules


def test_a_number_that_both_took_is_given_again_and_blockers_follow() -> None:
    theirs = with_tasks(task(2, "Theirs"), task(3, "After it", blocked_by=[2, 1]))

    found = merge("tasks", TASKS, theirs, with_tasks(task(2, "Ours")))

    titles = {entry["title"]: entry for entry in found.data["tasks"]}
    assert [titles[name]["id"] for name in ("First", "Ours", "Theirs", "After it")] == [1, 2, 4, 3]
    assert titles["After it"]["blocked_by"] == [4, 1]
    assert found.renumbered == {"2": 4}
    assert found.conflicts == []


def test_the_same_new_task_on_both_sides_is_one_task() -> None:
    found = merge("tasks", TASKS, with_tasks(task(2, "New")), with_tasks(task(2, "New")))

    assert [entry["title"] for entry in found.data["tasks"]] == ["First", "New"]
    assert found.renumbered == {}


def test_each_side_keeps_the_fields_that_only_it_changed() -> None:
    found = merge("tasks", TASKS, with_tasks(title="Renamed"), with_tasks(priority=1))

    assert found.data["tasks"] == [{**TASKS["tasks"][0], "title": "Renamed", "priority": 1}]


def test_done_on_one_side_is_done_and_the_later_moment_counts() -> None:
    theirs = with_tasks(status="in_progress", updated="2026-02-03T00:00:00Z")
    ours = with_tasks(status="done", updated="2026-02-02T00:00:00Z")

    [entry] = merge("tasks", TASKS, theirs, ours).data["tasks"]

    assert (entry["status"], entry["updated"]) == ("done", "2026-02-03T00:00:00Z")


def test_a_text_that_both_rewrote_is_a_conflict_and_ours_stays() -> None:
    found = merge("tasks", TASKS, with_tasks(title="Theirs"), with_tasks(title="Ours"))

    assert found.data["tasks"][0]["title"] == "Ours"
    assert found.conflicts == ["task 1"]


def test_what_one_side_deleted_and_the_other_changed_stays_and_is_a_conflict() -> None:
    nothing = {"version": 1, "tasks": []}

    found = merge("tasks", TASKS, nothing, with_tasks(title="Ours"))

    assert [entry["title"] for entry in found.data["tasks"]] == ["Ours"]
    assert found.conflicts == ["task 1"]


def test_learnings_of_both_sides_are_there_once_with_the_higher_count() -> None:
    def feature(*learnings: dict[str, Any]) -> dict[str, Any]:
        return {"features": [{"name": "docs", "learnings": list(learnings)}]}

    old = {"text": "Old", "hit_count": 1}
    both = {"text": "Both saw it", "source": "auto"}
    theirs = feature({**old, "hit_count": 2}, {"text": "both saw it"}, {"text": "Theirs"})

    found = merge("features", feature(old), theirs, feature({**old, "hit_count": 5}, both))

    assert found.data["features"][0]["learnings"] == [
        {"text": "Old", "hit_count": 5},
        both,
        {"text": "Theirs"},
    ]


def test_a_comment_in_our_file_survives_a_merge() -> None:
    base = b"tasks:\n  - {id: 1, feature: docs, title: First}\n"
    ours = b"# ours\n" + base

    merged, _ = merge_files(base, ours, base + b"  - {id: 2, feature: docs, title: B}\n", name="t")

    assert merged.startswith(b"# ours\n")
    assert b"title: B" in merged


def test_a_file_that_is_no_plan_is_not_merged() -> None:
    with pytest.raises(BadPlan, match="not a file of the plan"):
        merge_files(b"", b"a: 1\n", b"b: 1\n", name="notes.yaml")


titles = st.lists(st.sampled_from("abcdef"), max_size=4, unique=True)


@given(titles, titles)
def test_no_new_task_is_lost_or_doubled_whatever_both_add(
    ours: list[str], theirs: list[str]
) -> None:
    def added(names: list[str]) -> dict[str, Any]:
        return with_tasks(*(task(2 + i, name) for i, name in enumerate(names)))

    found = merge("tasks", TASKS, added(theirs), added(ours))

    entries = found.data["tasks"]
    ids = [entry["id"] for entry in entries]
    assert len(ids) == len(set(ids))
    assert {entry["title"] for entry in entries} == {"First", *ours, *theirs}


# -- in git


def git(root: Path, *args: str, code: int = 0) -> str:
    own = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_NAME": "Ada" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "ada@example.org" for who in ("AUTHOR", "COMMITTER")},
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *args], cwd=root, env=env | own, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    """Two clones of a project with a plan; each has added a task and a learning."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    git(first, "init", "--initial-branch=main")
    Project(first, tmp_path / "home").init()
    create_feature(Plan(first), "docs", {"description": "What the program does, for its users."})
    create_task(Plan(first), "docs", "First")
    git(first, "add", "--all")
    git(first, "commit", "--message", "plan")
    git(first, "clone", "--quiet", str(first), str(second))
    for root in (first, second):
        create_task(Plan(root), "docs", f"Task of {root.name}")
        learnings.add(Plan(root), "docs", f"What {root.name} learned about the build.")
        git(root, "commit", "--all", "--message", root.name)
    return first, second


def assert_merged(root: Path) -> None:
    plan = Plan(root)
    view = plan.load()
    assert [task.id for task in view.tasks] == [1, 2, 3]
    assert {task.title for task in view.tasks} == {"First", "Task of first", "Task of second"}
    texts = {learning.text for learning in plan.feature("docs").learnings}
    assert texts == {f"What {name} learned about the build." for name in ("first", "second")}


def test_two_clones_merge_without_a_conflict(clones: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = clones
    Project(second, tmp_path / "home").init()

    told = git(second, "pull", "--no-rebase", "--no-edit", str(first), "main")

    assert "Task 2 became task 3" in told
    assert_merged(second)


def test_a_clone_where_init_never_ran_is_told_how_to_merge(
    clones: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = clones
    git(second, "pull", "--no-rebase", "--no-edit", str(first), "main", code=1)

    with pytest.raises(BadPlan, match="merge conflict") as error:
        Plan(second).load()
    assert "git checkout -m .ralph/db/" in str(error.value.todo)

    Project(second, tmp_path / "home").init()
    git(second, "checkout", "-m", ".ralph/db/tasks.yaml", ".ralph/db/features.yaml")
    assert_merged(second)


def test_a_conflict_is_told_to_git(clones: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = clones
    Project(second, tmp_path / "home").init()
    for root in clones:
        update_task(Plan(root), 1, {"title": f"Reworded by {root.name}"})
        git(root, "commit", "--all", "--message", "reworded")

    told = git(second, "pull", "--no-rebase", "--no-edit", str(first), "main", code=1)

    assert "both sides changed task 1" in told
    assert Plan(second).task(1).title == "Reworded by second"
