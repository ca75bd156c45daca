"""An agent that mangles the plan: what it destroyed comes back, its own change stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from looping import DONE, FEATURES, TASKS, Loop, planned, scripted, shell

from ralph.loop.edits import plan_edits
from ralph.plan.blame import kind_of
from ralph.plan.learnings import add
from ralph.plan.tasks import update_task

DB = ".ralph/db"
PROSE = ("The session lives in a cookie", "No third-party identity providers.")
LEARNINGS = ("The cookie must be set", "Hashes are compared", "The test database")


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(planned(tmp_path / "project"))


def features(loop: Loop) -> str:
    return (loop.root / DB / "features.yaml").read_text(encoding="utf-8")


def nothing_is_lost(loop: Loop) -> bool:
    """Whether the plan parses and still holds all its prose, learnings and tasks."""
    view = loop.plan.load()
    assert {feature.name for feature in view.features} == {"auth", "search"}
    assert {task.id for task in view.tasks} == {1, 2, 3}
    text = " ".join(features(loop).split())
    assert all(words in text for words in (*PROSE, *LEARNINGS, "An inverted index"))
    return True


MANGLINGS: dict[str, list[dict[str, Any]]] = {
    "f1 all learnings dropped": [
        {"write": f"{DB}/features.yaml", "content": FEATURES.partition("  learnings:")[0]}
    ],
    "f1 the prose emptied": [
        {
            "edit": f"{DB}/features.yaml",
            "old": "  boundaries: No third-party identity providers.\n",
            "new": '  boundaries: ""\n',
        }
    ],
    "f15 the file deleted": [{"bash": f"rm {DB}/features.yaml"}],
    "f15 tabs": [{"write": f"{DB}/features.yaml", "content": "features:\n\t- name: auth\n"}],
    "f15 garbage": [{"bash": f"head -c 2000 /dev/urandom > {DB}/features.yaml"}],
    "f15 half a file": [
        {"write": f"{DB}/features.yaml", "content": FEATURES[: len(FEATURES) // 3]}
    ],
    "f15 an empty file": [{"bash": f": > {DB}/features.yaml"}],
    "f15 another type": [{"write": f"{DB}/features.yaml", "content": "- a\n- b\n"}],
    "f6 another feature": [
        {
            "edit": f"{DB}/features.yaml",
            "old": "An inverted index in src/search.py.",
            "new": "Nothing any more.",
        }
    ],
    "f15 everything in the folder": [{"bash": "rm -rf .ralph/db/*.yaml"}],
    "f15 the tasks rewritten": [
        {"write": f"{DB}/tasks.yaml", "content": "tasks:\n- {id: 1, status: done}\n"}
    ],
}


@pytest.mark.parametrize("name", MANGLINGS)
def test_what_the_agent_mangled_is_restored_and_reported_and_its_task_stays_done(
    loop: Loop, tmp_path: Path, name: str
) -> None:
    steps = [DONE, *MANGLINGS[name]]
    loop(scripted(tmp_path, {"steps": steps, "result": "Tidied up."}), max_iterations=1)
    assert nothing_is_lost(loop)
    assert "restored" in loop.repairs
    if "everything" not in name:
        assert loop.outcomes == ["success"]
        assert loop.plan.task(1).status == "done"
        assert features(loop).startswith("# People's own words stay.")


def test_f15_what_was_there_is_kept_beside_and_named(loop: Loop, tmp_path: Path) -> None:
    mangled = "features: [\t"
    loop(scripted(tmp_path, {"steps": [{"write": f"{DB}/features.yaml", "content": mangled}]}),
         max_iterations=1)  # fmt: skip
    line = next(line for line in loop.repairs.splitlines() if "is kept in" in line)
    kept = loop.root / line.rpartition(" kept in ")[2]
    assert kept.read_text() == mangled


def test_f15_an_agent_whose_output_nobody_understands_cannot_destroy_either(
    loop: Loop, tmp_path: Path
) -> None:
    """Its edits cannot be told from a person's, but what destroys is put back all the same."""
    cut = FEATURES.partition("  learnings:")[0]
    (tmp_path / "cut.yaml").write_text(cut)
    loop(shell(tmp_path, f"echo working; cp ../cut.yaml {DB}/features.yaml"), max_iterations=1)
    assert nothing_is_lost(loop)
    assert "restored" in loop.repairs


def test_f6_a_task_of_another_feature_is_not_the_agents_to_change(
    loop: Loop, tmp_path: Path
) -> None:
    other = {
        "edit": f"{DB}/tasks.yaml",
        "old": "title: Rank by age\n  status: pending",
        "new": "title: Rank by age\n  status: done",
    }
    loop(scripted(tmp_path, {"steps": [DONE, other]}), max_iterations=1)
    assert loop.plan.task(1).status == "done"
    assert loop.plan.task(3).status == "pending"
    assert "another feature" in loop.repairs


def test_f1_a_learning_the_agent_adds_stays_and_those_it_dropped_come_back(
    loop: Loop, tmp_path: Path
) -> None:
    head = FEATURES.partition("  learnings:")[0]
    text = f"{head}  learnings:\n  - The form needs a token against forgery.\n"
    steps = [DONE, {"write": f"{DB}/features.yaml", "content": text}]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    learnings = loop.plan.feature("auth").learnings
    assert nothing_is_lost(loop)
    assert learnings[-1].text == "The form needs a token against forgery."
    assert learnings[-1].source == "agent"


def test_what_came_through_ralph_meanwhile_is_never_undone(loop: Loop, tmp_path: Path) -> None:
    """Another loop finishes its task and learns while our agent writes an old copy back."""
    steps = [
        {"bash": f"cp {DB}/features.yaml ../f.yaml; cp {DB}/tasks.yaml ../t.yaml; touch ../copied"},
        {"bash": "while [ ! -e ../written ]; do sleep 0.02; done"},
        {"bash": f"cp ../f.yaml {DB}/features.yaml; cp ../t.yaml {DB}/tasks.yaml"},
        DONE,
    ]

    def meanwhile(event: Any) -> None:
        if (tmp_path / "copied").exists() and not (tmp_path / "written").exists():
            update_task(loop.plan, 3, {"status": "done"}, comment="ranked")
            add(loop.plan, "search", "Ranks are cached for an hour.", source="human")
            (tmp_path / "written").touch()

    loop.on_event = meanwhile
    loop(scripted(tmp_path, {"steps": steps}), task_id="1", max_iterations=1)
    assert (tmp_path / "written").exists()
    assert loop.plan.task(3).status == "done"
    assert loop.plan.task(1).status == "done"
    assert [x.text for x in loop.plan.feature("search").learnings] == [
        "Ranks are cached for an hour."
    ]


def test_an_iteration_that_leaves_the_plan_alone_reports_nothing(loop: Loop) -> None:
    before = (features(loop), (loop.root / DB / "tasks.yaml").read_text())
    loop("/bin/true", max_iterations=1)
    assert loop.repairs == ""
    assert before == (FEATURES, TASKS)
    assert (loop.root / DB / "tasks.yaml").read_text() == TASKS


def test_an_old_copy_written_over_ralphs_own_change_is_noticed_though_the_bytes_are_the_same(
    loop: Loop, tmp_path: Path
) -> None:
    steps = [
        {"bash": f"cp {DB}/tasks.yaml ../t.yaml"},
        {"bash": '{{ralph}} task update 1 --status done --comment "the form is there"'},
        {"bash": f"cp ../t.yaml {DB}/tasks.yaml"},
    ]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    assert loop.outcomes == ["success"]
    assert loop.plan.task(1).status == "done"


def test_the_projects_identity_is_put_back(loop: Loop, tmp_path: Path) -> None:
    before = (loop.root / DB / "metadata.yaml").read_bytes()
    loop(scripted(tmp_path, {"steps": [{"bash": f"echo x > {DB}/metadata.yaml"}]}),
         max_iterations=1)  # fmt: skip
    assert (loop.root / DB / "metadata.yaml").read_bytes() == before
    assert "metadata.yaml" in loop.repairs


@pytest.mark.parametrize(
    ("event", "kinds"),
    [
        ({"item": {"command": f"sed -i s/a/b/ {DB}/tasks.yaml"}}, ["tasks"]),
        (
            {"item": {"changes": [{"path": f"/p/{DB}/features.yaml"}, {"path": "a.py"}]}},
            ["features"],
        ),
        ({"item": {"command": f"cat {DB}/tasks.yaml"}}, []),
        ({"item": "rm .ralph"}, []),
        ({"message": {"content": "see .ralph/db/tasks.yaml"}}, []),
        (["rm .ralph"], []),
    ],
)
def test_the_direct_edits_that_another_dialect_tells_of(event: Any, kinds: list[str]) -> None:
    found = plan_edits(json.dumps(event).encode())
    assert [kind_of(edit.path) for edit in found] == kinds


@pytest.mark.parametrize("line", [b"rm .ralph {", b"\xff .yaml", b"", b"{}"])
def test_a_line_that_is_no_event_tells_of_no_edit(line: bytes) -> None:
    assert plan_edits(line) == []
