"""`ralph gate`: a person's word on a task, at the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from commanding import Line, process

FEATURES = "features: [{name: api, description: Invoices for customers.}]\n"
TASKS = """
tasks:
  - {id: 1, feature: api, title: Design the billing API, status: done, discipline: backend}
  - {id: 2, feature: api, title: Write the guide}
"""
WHY = "Routes need a version"


@pytest.fixture
def ralph(words: None, ralph: Line, project: Path) -> Line:
    (project / ".ralph/db/features.yaml").write_text(FEATURES, encoding="utf-8")
    (project / ".ralph/db/tasks.yaml").write_text(TASKS, encoding="utf-8")
    return ralph


def task(ralph: Line, number: int = 1) -> dict[str, object]:
    found: dict[str, object] = ralph.well("task", "show", str(number), "--json").json
    return found


def test_a_rejection_sends_a_done_task_back_with_the_feedback(ralph: Line) -> None:
    ran = ralph.well("gate", "reject", "1", "--type", "Design", "--feedback", WHY, "--json")

    told = ran.json
    assert (told["task"], told["gate_type"], told["human_feedback"]) == ("1", "design", WHY)
    assert (told["subject"], told["fresh"]) == ("Design the billing API", True)
    assert told["status"] == "in_progress"
    sent_back = task(ralph)
    assert sent_back["status"] == "in_progress"
    assert WHY in json.dumps(sent_back["comments"])
    assert WHY in ralph.well("prompt", "1").out


def test_a_rejection_is_told_to_people_with_what_comes_next(ralph: Line) -> None:
    shown = ralph.well("gate", "reject", "1", "--type", "design", "--feedback", WHY).out

    assert "Rejected at the design gate: task 1." in shown
    assert "ralph gate approve 1 --type design --approach TEXT" in shown
    again = ralph.well("gate", "reject", "1", "--type", "design", "--feedback", WHY).out
    assert "It was rejected for this before." in again
    comments = task(ralph)["comments"]
    assert isinstance(comments, list)
    assert len(comments) == 1


def test_what_comes_next_can_be_typed_as_it_stands(ralph: Line) -> None:
    shown = ralph.well("gate", "reject", "1", "--type", "code review", "--feedback", WHY).out

    line = shown.split("Approve its revision: ralph ")[1].strip()
    ran = ralph.well(*shlex.split(line), "--json")
    assert ran.json[0]["record"]["gate_type"] == "code review"


def test_the_approval_completes_the_rejections_and_stages_one_entry_each(ralph: Line) -> None:
    ralph.well("gate", "reject", "1", "--type", "design", "--feedback", WHY)
    ralph.well("gate", "reject", "1", "--type", "design", "--feedback", "Page the lists")
    words = ("gate", "approve", "1", "--type", "design", "--approach", "A /v1 prefix", "--json")

    done = ralph.well(*words).json

    assert [one["record"]["human_feedback"] for one in done] == [WHY, "Page the lists"]
    assert {one["record"]["revision_approach"] for one in done} == {"A /v1 prefix"}
    assert {one["record"]["entry_type"] for one in done} == {"gate_rejection"}
    assert [one["id"] for one in ralph.well("knowledge", "staged", "--json").json] == [
        one["id"] for one in done
    ]
    again = ralph.well(*words).json
    assert [(one["id"], one["fresh"]) for one in again] == [(one["id"], False) for one in done]


def test_an_approval_takes_what_the_newest_success_says(ralph: Line) -> None:
    ralph.record(
        "api",
        {"task_id": 2, "outcome": "success", "summary": "Examples stand before the reference."},
        {"task_id": 2, "outcome": "failure", "summary": "The link checker failed."},
    )

    [done] = ralph.well("gate", "approve", "2", "--type", "docs", "--json").json

    assert done["record"]["entry_type"] == "gate_approval"
    assert done["record"]["approved_approach"] == "Examples stand before the reference."
    assert done["record"]["subject"] == "Write the guide"


def test_an_approval_that_nothing_explains_is_refused(ralph: Line) -> None:
    ran = ralph("gate", "approve", "1", "--type", "design")

    assert ran.code == 1
    assert ran.complaint == (
        "ralph: no successful iteration of task 1 tells what was approved. Say it: --approach TEXT."
    )
    assert ralph.well("knowledge", "staged", "--json").json == []


def test_a_second_approach_after_a_rejection_is_told_of_and_not_kept(ralph: Line) -> None:
    ralph.well("gate", "reject", "1", "--type", "design", "--feedback", WHY)
    ralph.well("gate", "approve", "1", "--type", "design", "--approach", "A /v1 prefix")

    ran = ralph.well("gate", "approve", "1", "--type", "design", "--approach", "Other", "--json")

    assert ran.json == []
    assert "no approval at the first attempt" in ran.complaint


def test_a_task_that_the_plan_does_not_know_is_kept_all_the_same(ralph: Line) -> None:
    ran = ralph.well("gate", "reject", "A-7", "--type", "design", "--feedback", WHY, "--json")

    assert ran.complaint == "ralph: the plan has no task 'A-7'. Saved anyway."
    assert (ran.json["task"], ran.json["subject"], ran.json["status"]) == ("A-7", "", None)
    done = ralph.well("gate", "approve", "A-7", "--type", "design", "--approach", "b", "--json")
    assert done.json[0]["record"]["human_feedback"] == WHY


def test_gates_need_no_plan(ralph: Line, project: Path) -> None:
    for name in ("features", "tasks"):
        (project / f".ralph/db/{name}.yaml").unlink()

    ralph.well("gate", "reject", "7", "--type", "design", "--feedback", WHY)

    assert len(ralph.well("gate", "list", "--json").json) == 1


def test_a_plan_that_cannot_be_read_stops_before_anything_is_kept(
    ralph: Line, project: Path
) -> None:
    (project / ".ralph/db/tasks.yaml").write_text("tasks: [", encoding="utf-8")

    ran = ralph("gate", "reject", "1", "--type", "design", "--feedback", WHY)

    assert ran.code == 1
    assert ".ralph/db/tasks.yaml:1" in ran.complaint
    assert ralph.well("gate", "list", "--json").json == []


def test_the_technology_is_the_projects_unless_the_line_says_another(
    ralph: Line, project: Path
) -> None:
    (project / "Cargo.toml").write_text("[package]\n", encoding="utf-8")
    words = ("gate", "reject", "1", "--type", "design", "--json", "--feedback")

    assert ralph.well(*words, "a").json["technology"] == "rust"
    assert ralph.well(*words, "b", "--technology", "Go").json["technology"] == "go"
    ralph.well("config", "technology", "zig")
    assert ralph.well(*words, "c", "--agent-type", "Backend").json["technology"] == "zig"
    assert ralph.well(*words, "d", "--technology", "").json["technology"] == ""


def test_waiting_rejections_are_listed_shown_and_forgotten(ralph: Line) -> None:
    assert ralph.well("gate", "list").out == "No rejections are waiting for approval.\n"
    ralph.well("gate", "reject", "1", "--type", "design", "--feedback", WHY)

    [waiting] = ralph.well("gate", "list", "--json").json

    assert list(waiting) == [
        *("id", "at", "project", "task", "gate_type", "human_feedback", "subject"),
        *("agent_type", "task_type", "technology"),
    ]
    assert WHY in ralph.well("gate", "list").out
    shown = ralph.well("show", waiting["id"][:8], "--json").json
    assert (shown["kind"], shown["human_feedback"]) == ("gate", WHY)
    gone = ralph.well("forget", waiting["id"][:8])
    assert f"{waiting['id'][:8]}  gate  {waiting['subject']}" in gone.out
    assert gone.err == ""
    assert ralph.well("gate", "list", "--json").json == []


@pytest.mark.parametrize(
    "words",
    [
        ("reject", "1", "--type", "design"),
        ("reject", "1", "--feedback", "x"),
        ("approve", "1"),
        ("approve", "--type", "design"),
        ("pass", "1"),
        ("list", "1"),
    ],
)
def test_a_line_that_lacks_something_is_a_matter_of_usage(
    ralph: Line, words: tuple[str, ...]
) -> None:
    assert ralph("gate", *words).code == 2


def test_empty_feedback_is_refused_and_the_task_left_alone(ralph: Line) -> None:
    ran = ralph("gate", "reject", "1", "--type", "design", "--feedback", " ")

    assert ran.code == 1
    assert "Say why it was rejected." in ran.complaint
    assert task(ralph)["status"] == "done"


def test_a_project_that_gives_nothing_refuses_and_leaves_the_task_alone(ralph: Line) -> None:
    ralph.well("config", "knowledge_give", "false")

    rejected = ralph("gate", "reject", "1", "--type", "design", "--feedback", WHY)
    approved = ralph("gate", "approve", "1", "--type", "design", "--approach", "x")

    for ran in (rejected, approved):
        assert ran.code == 1
        assert ran.complaint == (
            "ralph: this project does not share knowledge (knowledge_give is false). "
            "Run: ralph config knowledge_give true"
        )
    assert task(ralph)["status"] == "done"


def test_an_agent_at_work_decides_on_no_gate(ralph: Line, project: Path) -> None:
    words = ["gate", "approve", "1", "--type", "design", "--approach", "mine"]

    ran = process(words, cwd=project, environ={"RALPH_TASK": "1"})

    assert ran.returncode == 1
    assert b"an agent in `ralph run` may not call `ralph gate approve`" in ran.stderr
    assert ralph.well("knowledge", "staged", "--json").json == []
