"""`ralph feature`, `task`, `discipline` and `plan`: PATCHes, refusals, and what programs read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commanding import LOGIN, Line, Terminal, process

from ralph.doors.cli.context import completing
from ralph.doors.cli.main import COMMANDS
from ralph.doors.cli.main import ralph as tree
from ralph.errors import IndexOff
from ralph.memory.feature import FeatureMemory

pytestmark = pytest.mark.usefixtures("words")


FEATURES = "features: [{name: auth, description: Sign-in for customers.}]\n"
TASKS = """
tasks:
  - {id: 1, feature: auth, title: Build the login form, priority: 2}
  - {id: 2, feature: auth, title: Keep people in, blocked_by: [1]}
"""


@pytest.fixture
def planned(ralph: Line, project: Path) -> Line:
    """The same, with a feature and two tasks; the second waits for the first."""
    (project / ".ralph/db/features.yaml").write_text(FEATURES, encoding="utf-8")
    (project / ".ralph/db/tasks.yaml").write_text(TASKS, encoding="utf-8")
    return ralph


# -- what every command here keeps to

OURS = "demo feature task discipline learning plan run prompt focus record".split()


@pytest.mark.parametrize("name", OURS)
def test_the_first_line_of_a_help_is_the_line_of_the_table(ralph: Line, name: str) -> None:
    said = ralph.well(name, "--help").out

    [first] = [line.strip() for line in said.splitlines()[2:3]]
    assert said.startswith(f"Usage: ralph {name}")
    assert first == COMMANDS[name][1]


READING = [
    *("feature list", "feature show auth", "task list", "task show 1", "task ready", "plan check"),
    *("discipline list", "discipline show be", "learning list --feature auth", "prompt 1", "focus"),
]


@pytest.mark.parametrize("line", READING)
def test_reading_commands_answer_in_json_from_any_folder(
    planned: Line, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    planned.well("discipline", "add", "be")
    monkeypatch.chdir(tmp_path)

    first = planned.well("--project", project, *line.split(), "--json")
    last = planned.well(*line.split(), "--json", "--project", project)

    assert first.json == last.json
    assert first.err == last.err == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("feature add", "Missing argument 'NAME'"),
        ("feature show", "Missing argument 'NAME'"),
        ("task add Title", "Missing option '--feature'"),
        ("task update", "Missing argument 'ID'"),
        ("task frob", "There is no command 'frob'"),
        ("learning remove x", "Missing option '--feature'"),
        ("learning add x --feature f --source god", "'god' is not one of 'human', 'agent'"),
        ("plan import", "Missing argument 'FILE|-'"),
        ("prompt", "Missing argument 'TASK'"),
        ("focus a b c", "unexpected extra argument"),
        ("focus auth --clear", "--clear cannot be used"),
        ("run --max-iterations 0", "--max-iterations"),
        ("run --timeout 0", "--timeout"),
        ("run --budget-usd -1", "--budget-usd"),
        ("demo --json", "--json"),
    ],
)
def test_a_wrong_call_ends_with_2(ralph: Line, line: str, told: str) -> None:
    ran = ralph(*line.split())

    assert ran.code == 2
    assert told in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("feature show nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("feature update nope --acronym N", "features.yaml: no feature 'nope'. There are: auth."),
        ("feature update nope --verified", "features.yaml: no feature 'nope'. There are: auth."),
        ("feature delete nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("task add x --feature nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("task list --feature nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("task ready --feature nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("task update 1 --feature nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("task show 9", "tasks.yaml: no task '9'. There are: 1, 2."),
        ("task update 9 --status done", "tasks.yaml: no task '9'. There are: 1, 2."),
        ("task delete 9", "tasks.yaml: no task '9'. There are: 1, 2."),
        ("task update 1 --blocked-by 9", "tasks.yaml: no task '9'. There are: 1, 2."),
        ("prompt 9", "tasks.yaml: no task '9'. There are: 1, 2."),
        ("run --task 9", "tasks.yaml: no task '9'. There are: 1, 2."),
        ("run --feature nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("discipline show x", "disciplines.yaml: no discipline 'x'. There are no disciplines yet."),
        ("learning list --feature nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("learning add x --feature nope", "features.yaml: no feature 'nope'. There are: auth."),
        ("learning add x --feature auth --task 9", "tasks.yaml: no task '9'. There are: 1, 2."),
    ],
)
def test_an_unknown_name_is_refused_with_what_there_is(planned: Line, line: str, told: str) -> None:
    ran = planned(*line.split())

    assert ran.code == 1
    assert ran.complaint == f"ralph: .ralph/db/{told}"


def test_outside_a_project_a_plan_command_says_how_to_make_one(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ran = ralph("task", "list")

    assert ran.code == 1
    assert ran.complaint.endswith("Run: ralph init")


def test_a_plan_that_does_not_parse_is_one_line_with_its_place(
    planned: Line, project: Path
) -> None:
    file = project / ".ralph/db/tasks.yaml"
    file.write_text("tasks:\n  - id: 1\n\ttitle: x\n", encoding="utf-8")

    for line in ("task list", "prompt 1", "task update 1 --status done"):
        ran = planned(*line.split())
        assert ran.code == 1
        assert ran.complaint.startswith("ralph: .ralph/db/tasks.yaml:3:1: ")


# -- features


def test_a_feature_as_programs_read_it(ralph: Line) -> None:
    fields = "--display-name Sign-in --acronym AU --boundaries billing --dependency redis".split()
    lists = [
        "--dependency",
        "a clock",
        "--knowledge-path",
        "docs/auth.md",
        "--context-file",
        "a.py",
    ]
    made = ralph.well("feature", "add", "auth", *fields, *lists, "--json").json

    assert made == {
        "name": "auth",
        "display_name": "Sign-in",
        "acronym": "AU",
        "description": None,
        "architecture": None,
        "boundaries": "billing",
        "dependencies": ["redis", "a clock"],
        "knowledge_paths": ["docs/auth.md"],
        "context_files": [
            {"path": "a.py", "source": "human", "touch_count": 0, "last_touched": None}
        ],
        "last_verified": None,
        "learnings": [],
        "created": made["created"],
        "current_state": "0/0 tasks complete. Done: none. In progress: none.",
    }
    taken = {"iterations": 0, "success_rate": None, "cost_usd": 0.0, "tokens_used": 0}
    assert ralph.well("feature", "show", "auth", "--json").json == {**made, **taken}
    assert ralph.well("feature", "list", "--json").json == [made]


def test_an_update_of_a_feature_keeps_what_it_does_not_name(ralph: Line) -> None:
    ralph.well("feature", "add", "auth", "--description", "old", "--dependency", "redis")

    ran = ralph.well("feature", "update", "auth", "--description", "new", "--acronym", "AU")
    assert ran.out == "Changed feature auth: description, acronym.\n"
    changed = ralph.well("feature", "show", "auth", "--json").json
    assert changed["description"] == "new"
    assert changed["dependencies"] == ["redis"]


@pytest.mark.parametrize("word", ["dependencies", "dependency"])
def test_a_field_is_cleared_by_its_name_or_by_its_options(ralph: Line, word: str) -> None:
    ralph.well("feature", "add", "auth", "--description", "kept", "--dependency", "redis")

    changed = ralph.well("feature", "update", "auth", "--clear", word, "--json").json

    assert changed["dependencies"] == []
    assert changed["description"] == "kept"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("feature update auth", "there is nothing to change. See: ralph feature update --help"),
        ("task update 1", "there is nothing to change. See: ralph task update --help"),
        ("feature update auth --clear mood", "a feature has no field 'mood'. It has display_name,"),
        ("feature update auth --clear name", "`name` of a feature cannot be set. A name never"),
        ("feature update auth --clear learnings", "`learnings` of a feature cannot be set."),
        ("feature update auth --clear current-state", "`current_state` of a feature cannot be"),
        (
            "feature update auth --acronym A --clear acronym",
            "acronym cannot be set and cleared at once. Use one of them.",
        ),
        (
            "feature update auth --verified --clear last-verified",
            "last_verified cannot be set and cleared at once",
        ),
        ("feature update auth --knowledge-path ../x", "the path '../x' leaves the project"),
        ("feature add auth", "'auth' exists already. Update it, or choose another name."),
        ("feature add a/b", ".ralph/db/features.yaml: 'a/b' is not a name."),
        ("task update 1 --clear title", "a task needs its `title`. Give a `title`."),
        ("task update 1 --clear comments", "`comments` of a task cannot be set."),
        ("task update 1 --status bogus", "the status 'bogus' does not exist. Use one of pending,"),
        ("task list --status bogus", "the status 'bogus' does not exist. Use one of pending,"),
        ("task update 1 --priority soon", "the priority 'soon' is not a number."),
        ("task update 1 --blocked-by 2", "the tasks would wait for each other: 1 -> 2 -> 1."),
        ("task update 1 --blocked-by 007", ".ralph/db/tasks.yaml: no task '007'."),
        ("task update 1 --blocked-by ٣", ".ralph/db/tasks.yaml: no task '٣'."),
        ("task delete 1", ".ralph/db/tasks.yaml: task 1 blocks 2."),
        ("discipline add be --mcp-servers {", "--mcp-servers is not JSON: Expecting property name"),
        ("discipline add be --mcp-servers 7", "`mcp_servers` is not a mapping."),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(planned: Line, line: str, told: str) -> None:
    before = planned.well("task", "list", "--json").out, planned.well("feature", "list").out

    ran = planned(*line.split())

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {told}")
    assert (planned.well("task", "list", "--json").out, planned.well("feature", "list").out) == (
        before
    )


def test_verified_notes_the_newest_iteration(planned: Line) -> None:
    planned.record("auth", LOGIN, {"summary": "another"})

    changed = planned.well("feature", "update", "auth", "--verified", "--acronym", "A", "--json")

    assert changed.json["last_verified"] == 2
    assert changed.json["acronym"] == "A"


def test_features_are_listed_with_how_far_they_are(planned: Line) -> None:
    planned.well("feature", "add", "billing")
    planned.well("task", "update", "1", "--status", "done")
    planned.well("task", "update", "2", "--status", "doing")

    assert planned.well("feature", "list").out.splitlines() == [
        "feature  done  learnings  in progress",
        "auth     1/2           0  Keep people in",
        "billing  0/0           0",
    ]


def test_an_empty_plan_says_how_to_begin(ralph: Line) -> None:
    assert "ralph feature add NAME" in ralph.well("feature", "list").out
    assert "ralph task add TITLE --feature NAME" in ralph.well("task", "list").out
    assert "ralph discipline add NAME" in ralph.well("discipline", "list").out
    assert ralph.well("task", "ready").out == "No task is ready.\n"
    for kind in ("feature", "task", "discipline"):
        assert ralph.well(kind, "list", "--json").json == []


def test_f14_a_feature_with_tasks_is_not_deleted(planned: Line) -> None:
    ran = planned("feature", "delete", "auth")

    assert ran.code == 1
    assert ran.complaint == (
        "ralph: .ralph/db/features.yaml: the feature 'auth' still has tasks: 1, 2. "
        "Delete them or give them another feature first."
    )


def test_f14_a_deleted_feature_leaves_the_index_and_keeps_its_journal(
    planned: Line, project: Path
) -> None:
    planned.record("auth", LOGIN)
    planned.well("task", "delete", "2")
    planned.well("task", "delete", "1")

    ran = planned.well("feature", "delete", "auth")

    assert ran.out == "Deleted feature auth. Its index is deleted too; its journal stays.\n"
    assert planned.well("feature", "list", "--json").json == []
    [memory] = planned.well("status", "--json").json["features"]
    assert (memory["journalled"], memory["indexed"]) == (1, 0)
    assert (project / ".ralph/db/memory/auth.jsonl").exists()


def test_the_index_of_a_deleted_feature_does_not_come_back_by_itself(ralph: Line) -> None:
    """F14"""
    ralph.well("feature", "add", "auth")
    ralph.record("auth", {"summary": "Built the sign-in form with a cookie."})
    ralph.record("web", {"summary": "Built the start page with a cookie."})
    ralph.well("feature", "delete", "auth")

    def found(*words: str) -> list[str]:
        hits = ralph.well("search", "built with a cookie", "--json", *words).json
        return [hit["record"]["feature"] for hit in hits]

    def indexed() -> dict[str, int]:
        listed = ralph.well("status", "--json").json["features"]
        return {one["feature"]: one["indexed"] for one in listed}

    assert found() == ["web"]
    assert found("--feature", "auth") == []
    ralph.well("index", "rebuild")
    assert found() == ["web"]
    assert indexed() == {"auth": 0, "web": 1}
    assert ralph.well("index", "verify", "--json").json["ok"]

    ralph.record("auth", {"summary": "Built it once more with another cookie."})

    assert sorted(found()) == ["auth", "auth", "web"]


def test_a_feature_is_deleted_also_while_memory_is_off(
    ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FeatureMemory) -> None:
        raise IndexOff("the index is in use", todo="Run: ralph index prune")

    ralph.well("feature", "add", "auth")
    monkeypatch.setattr(FeatureMemory, "drop_index", fail)

    ran = ralph.well("feature", "delete", "auth", "--json")

    assert ran.json == {"deleted": "auth"}
    assert ran.complaint.endswith("still in the index: the index is in use. Run: ralph index prune")


def test_a_feature_is_shown_with_its_lines_and_provenance(planned: Line) -> None:
    text = "First line.\n\n  - indented"
    planned.well("feature", "update", "auth", "--architecture", text, "--context-file", "a.py")
    planned.well("learning", "add", "Sessions expire.", "--feature", "auth")

    shown = planned.well("feature", "show", "auth").out

    assert "architecture:\n  First line.\n\n    - indented\n" in shown
    assert "context_files:\n  - a.py [human]\n" in shown
    assert "Sessions expire. [human]" in shown
    assert "acronym" not in shown


# -- tasks


def test_a_task_as_programs_read_it(planned: Line) -> None:
    made = planned.well(
        *("task", "add", "Docs", "--feature", "auth", "--discipline", "writing", "--tag", "t"),
        *("--description", "Write.", "--criterion", "one", "--criterion", "two", "--json"),
        *("--status", "todo", "--priority", "1", "--blocked-by", "1", "--blocked-by", "2"),
    ).json

    assert made == {
        "id": 3,
        "feature": "auth",
        "title": "Docs",
        "discipline": "writing",
        "description": "Write.",
        "acceptance_criteria": ["one", "two"],
        "status": "pending",
        "priority": 1,
        "blocked_by": [1, 2],
        "tags": ["t"],
        "comments": [],
        "created": made["created"],
        "updated": None,
        "completed": None,
    }
    assert planned.well("task", "show", "3", "--json").json == made
    assert planned.well("task", "list", "--json").json[2] == made


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("wip", "in_progress"),
        ("in-progress", "in_progress"),
        ("Completed", "done"),
        ("open", "pending"),
    ],
)
def test_a_status_may_be_said_in_other_words(planned: Line, word: str, status: str) -> None:
    changed = planned.well("task", "update", "1", "--status", word, "--json").json

    assert changed["status"] == status
    assert (changed["completed"] is not None) == (status == "done")
    assert [one["id"] for one in planned.well("task", "list", "--status", word, "--json").json] == (
        [1, 2] if status == "pending" else [1]
    )


def test_an_update_of_a_task_keeps_what_it_does_not_name(planned: Line) -> None:
    planned.well("task", "update", "2", "--tag", "a", "--criterion", "c", "--priority", "low")

    changed = planned.well("task", "update", "2", "--clear", "criterion", "--json").json

    assert changed["acceptance_criteria"] == []
    assert changed["tags"] == ["a"]
    assert changed["priority"] == 4
    assert changed["blocked_by"] == [1]
    assert planned.well("task", "update", "2", "--clear", "blocked-by").out == (
        "Changed task 2 of auth (pending): blocked_by.\n"
    )


@pytest.mark.parametrize(
    ("environ", "flags", "author"),
    [
        ({}, [], None),
        ({}, ["--author", "Ada"], "Ada"),
        ({"RALPH_TASK": "1"}, [], "agent"),
        ({"RALPH_TASK": ""}, [], "agent"),  # a review
        ({"RALPH_TASK": "1"}, ["--author", "Ada"], "agent"),
    ],
)
def test_a_comment_says_who_made_it(
    planned: Line,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    flags: list[str],
    author: str | None,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    changed = planned.well("task", "update", "1", "--comment", "half done", *flags, "--json").json

    [comment] = changed["comments"]
    assert (comment["text"], comment["author"]) == ("half done", author)
    assert changed["status"] == "pending"
    assert f"{author or 'unknown'}: half done" in planned.well("task", "show", "1").out


def test_ready_tasks_come_in_the_order_of_a_run(planned: Line) -> None:
    planned.well("task", "add", "Urgent", "--feature", "auth", "--priority", "critical")
    planned.well("task", "add", "Begun", "--feature", "auth", "--status", "doing")

    assert planned.well("task", "ready").out.splitlines() == [
        "id  status       prio  feature  title",
        " 4  in_progress     3  auth     Begun",
        " 3  pending         1  auth     Urgent",
        " 1  pending         2  auth     Build the login form",
    ]
    assert planned.well("task", "list", "--status", "blocked").out == "No task matches.\n"


def test_a_task_is_deleted_when_nobody_waits_for_it(planned: Line) -> None:
    assert planned.well("task", "delete", "2", "--json").json == {"deleted": 2}
    assert planned.well("task", "delete", "1").out == "Deleted task 1: Build the login form\n"
    assert planned.well("task", "list", "--json").json == []


# -- disciplines


def test_a_discipline_from_its_making_to_its_end(ralph: Line) -> None:
    servers = {"files": {"command": "files-server", "args": ["--ro"]}}
    made = ralph.well(
        *("discipline", "add", "backend", "--display-name", "Backend", "--skill", "python"),
        *("--convention", "No globals.", "--mcp-servers", json.dumps(servers), "--json"),
    ).json

    assert made == {
        "name": "backend",
        "display_name": "Backend",
        "system_prompt": None,
        "skills": ["python"],
        "conventions": ["No globals."],
        "mcp_servers": servers,
    }
    assert ralph.well("discipline", "show", "backend", "--json").json == made
    assert (
        f"mcp_servers: {json.dumps(servers)}\n" in ralph.well("discipline", "show", "backend").out
    )
    changed = ralph.well(
        *("discipline", "update", "backend", "--system-prompt", "You build servers."),
        *("--clear", "mcp-servers", "--clear", "skill", "--json"),
    ).json
    assert changed == {
        **made,
        "system_prompt": "You build servers.",
        "skills": [],
        "mcp_servers": {},
    }
    assert ralph.well("discipline", "list").out.splitlines() == [
        "discipline  system prompt",
        "backend     You build servers.",
    ]
    refused = ralph("discipline", "update", "backend")
    assert refused.complaint.startswith("ralph: there is nothing to change")
    assert ralph.well("discipline", "delete", "backend", "--json").json == {"deleted": "backend"}
    assert ralph.well("discipline", "list", "--json").json == []


# -- the plan as a whole

CHECKLIST = "# Sign-in\nFor customers.\n\n- [x] Build the form\n- [ ] Keep people in\n"


def test_a_checklist_comes_in_from_stdin_once(ralph: Line) -> None:
    ran = ralph.well("plan", "import", "-", "--json", stdin=CHECKLIST)

    assert ran.json == {
        "features": ["sign-in"],
        "tasks": [1, 2],
        "disciplines": [],
        "filled": [],
        "known_tasks": 0,
        "updated": [],
    }
    again = ralph.well("plan", "import", "-", stdin=CHECKLIST)
    assert again.out == "Nothing is new. 2 tasks already known.\n"


def test_an_import_says_what_it_did_not_take_as_a_task(ralph: Line) -> None:
    checklist = f"{CHECKLIST}- [ ] Keep people in\n- Rewrite the docs page\n"
    ran = ralph.well("plan", "import", "-", stdin=checklist)
    assert ran.out == (
        "Added 1 feature, 2 tasks. 1 line is there twice."
        " 1 list item without a box became description; a task needs [ ].\n"
    )


def test_an_import_fills_what_a_known_feature_lacks(ralph: Line) -> None:
    ralph.well("feature", "add", "sign-in")

    ran = ralph.well("plan", "import", "-", stdin=CHECKLIST)

    assert ran.out == "Added 2 tasks. Filled in missing fields of sign-in.\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_plan_is_read_in_the_encodings_that_editors_write(
    ralph: Line, project: Path, encoding: str
) -> None:
    (project / "plan.md").write_bytes("# Größe\n\n- [ ] Maß nehmen\n".encode(encoding))

    assert ralph.well("plan", "import", "plan.md").out == "Added 1 feature, 1 task.\n"
    [task] = ralph.well("task", "list", "--json").json
    assert task["title"] == "Maß nehmen"


def test_tasks_under_no_heading_go_to_the_feature_that_is_named(ralph: Line) -> None:
    refused = ralph("plan", "import", "-", stdin="- [ ] Do it\n")
    ralph.well("plan", "import", "-", "--feature", "auth", stdin="- [ ] Do it\n")

    assert refused.code == 1
    assert refused.complaint.startswith("ralph: <stdin>: tasks have no heading above them.")
    [task] = ralph.well("task", "list", "--json").json
    assert (task["feature"], task["title"]) == ("auth", "Do it")


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("gone.md", None, "gone.md: No such file or directory"),
        ("empty.md", b"", "empty.md: no task was found."),
        ("bad.yaml", b"features:\n\t- x\n", "bad.yaml:2:1: "),
        ("noise.md", b"- [ ] \xff\xff\n", "noise.md:1: is not UTF-8 text"),
    ],
)
def test_what_cannot_be_imported_is_told_with_its_place(
    ralph: Line, project: Path, name: str, data: bytes | None, told: str
) -> None:
    if data is not None:
        (project / name).write_bytes(data)

    ran = ralph("plan", "import", name)

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {told}")
    assert ralph.well("feature", "list", "--json").json == []


def test_check_ends_with_1_and_names_every_error(planned: Line, project: Path) -> None:
    assert planned.well("plan", "check").out == "The plan is fine.\n"
    assert planned.well("plan", "check", "--json").json == {"ok": True, "problems": []}
    tasks = project / ".ralph/db/tasks.yaml"
    tasks.write_text(
        tasks.read_text(encoding="utf-8") + "  - {id: 3, feature: nope, title: x, discipline: y}\n",
        encoding="utf-8",
    )

    ran = planned("plan", "check")
    told = planned("plan", "check", "--json")

    assert ran.code == told.code == 1
    assert ran.err == ""
    line = len(tasks.read_text(encoding="utf-8").splitlines())
    first, second, last = ran.out.splitlines()
    assert first.startswith(f"error .ralph/db/tasks.yaml:{line}:")
    assert "task 3 belongs to the unknown feature 'nope'" in first
    assert second.startswith("warning ")
    assert last == "1 error, 1 warning."
    assert told.json["ok"] is False
    assert told.json["problems"][0] == {
        "file": ".ralph/db/tasks.yaml",
        "line": line,
        "column": told.json["problems"][0]["column"],
        "what": "task 3 belongs to the unknown feature 'nope'",
        "todo": "Add the feature, or correct the name.",
        "severity": "error",
    }


def test_warnings_alone_do_not_fail_a_check(planned: Line) -> None:
    planned.well("task", "update", "1", "--discipline", "unheard-of")

    ran = planned.well("plan", "check")

    assert ran.out.splitlines()[-1] == "0 errors, 1 warning."


# -- how it looks


def test_tables_fit_a_narrow_terminal(planned: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in ("task list", "feature list", "feature show auth", "task show 1"):
        screen = Terminal()
        monkeypatch.setenv("COLUMNS", "40")
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", screen)
            patch.setenv("TERM", "xterm")
            assert planned(*line.split()).code == 0
        rows = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
        assert rows
        assert all(len(row) <= 40 for row in rows), rows


def test_names_of_the_plan_are_completed(planned: Line) -> None:
    context = tree.make_context("ralph", ["task"], resilient_parsing=True)
    complete = completing("features")

    assert complete(context, tree.params[0], "a") == ["auth"]
    assert complete(context, tree.params[0], "b") == []
    assert completing("tasks")(context, tree.params[0], "") == ["1", "2"]


def test_text_from_anywhere_survives_an_encoding_that_lacks_it(project: Path) -> None:
    made = process(
        ["feature", "add", "größe", "--description", "项目", "--json"],
        cwd=project,
        environ={"PYTHONIOENCODING": "ascii"},
    )

    assert made.returncode == 0, made
    assert json.loads(made.stdout)["description"] == "项目"


def test_f12_a_feature_shows_the_sizes_of_its_knowledge_files(planned: Line, project: Path) -> None:
    (project / "docs.md").write_text("Tokens are signed with RS256. " * 100)
    planned.well("feature", "update", "auth", "--knowledge-path", "docs.md")
    assert "docs.md [" in planned.well("feature", "show", "auth").out
    assert " tokens]" in planned.well("feature", "show", "auth").out
    assert planned.well("feature", "show", "auth", "--json").json["knowledge_paths"] == ["docs.md"]
