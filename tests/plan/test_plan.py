"""Features, tasks and disciplines: patches, limits, paths, order, problems with their places."""

from __future__ import annotations

import multiprocessing
from itertools import count
from pathlib import Path

import pytest

from ralph.errors import BadInput, BadPlan, NotFound, PlanBusy
from ralph.plan import edit, learnings
from ralph.plan.edit import check
from ralph.plan.learnings import add
from ralph.plan.model import ContextFile, Status, Task
from ralph.plan.store import Plan, digest
from ralph.prompt.build import PromptFacts, PromptLimits, task_prompt


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    ticks = count(1)
    return Plan(tmp_path, clock=lambda: f"2026-02-07T00:00:{next(ticks) % 60:02d}.000Z")


def write(plan: Plan, kind: str, text: str) -> None:
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / f"{kind}.yaml").write_text(text, encoding="utf-8")


def text_of(plan: Plan, kind: str) -> str:
    return (plan.folder / f"{kind}.yaml").read_text(encoding="utf-8")


# -- features


def test_a_feature_is_created_read_changed_and_deleted(plan: Plan) -> None:
    edit.create_feature(plan, "auth", {"description": "Users log in.", "acronym": "AU"})
    assert plan.feature("auth").description == "Users log in."
    edit.update_feature(plan, "auth", {"architecture": "JWT"})
    found = plan.feature("auth")
    assert (found.description, found.architecture) == ("Users log in.", "JWT")
    edit.delete(plan, "features", "auth")
    with pytest.raises(NotFound, match="There are no features yet"):
        plan.feature("auth")


def test_f1_what_is_not_given_is_kept_and_null_clears(plan: Plan) -> None:
    edit.create_feature(plan, "auth", {"description": "d", "boundaries": "b"})
    edit.update_feature(plan, "auth", {"description": None})
    found = plan.feature("auth")
    assert (found.description, found.boundaries) == (None, "b")


def test_f1_no_update_replaces_the_learnings(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    add(plan, "auth", "Tokens expire after an hour")
    with pytest.raises(BadInput, match="single learnings"):
        edit.update_feature(plan, "auth", {"learnings": []})
    assert len(plan.feature("auth").learnings) == 1


def test_f17_the_current_state_is_computed_and_cannot_be_written(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    edit.create_task(plan, "auth", "Build form", {"status": "done"})
    edit.create_task(plan, "auth", "Write docs", {"status": "in_progress"})
    edit.create_task(plan, "auth", "Ship")
    with pytest.raises(BadInput, match="computed from the tasks"):
        edit.update_feature(plan, "auth", {"current_state": "all done"})
    state = "1/3 tasks complete. Done: Build form. In progress: Write docs."
    assert plan.read().current_state("auth") == state
    assert "current_state" not in text_of(plan, "features")


def test_f17_a_current_state_in_the_file_is_not_believed(plan: Plan) -> None:
    write(plan, "features", "features:\n  - name: auth\n    current_state: all done\n")
    assert plan.load().current_state("auth") == "0/0 tasks complete. Done: none. In progress: none."
    assert "never read from the file" in str(check(plan)[0])


def test_f2_a_text_over_its_limit_is_cut_and_says_so(plan: Plan) -> None:
    edit.create_feature(plan, "auth", {"description": "x" * 4000, "boundaries": "y" * 4000})
    found = plan.feature("auth")
    assert found.description is not None
    assert len(found.description) == 3000
    assert found.description.endswith("[truncated]")
    assert len(found.boundaries or "") == 1500


def test_f2_a_text_over_its_limit_in_the_file_is_cut_when_it_is_read(plan: Plan) -> None:
    write(plan, "features", f"features:\n  - name: auth\n    description: {'x' * 3500}\n")
    assert len(plan.load().features[0].description or "") == 3000
    assert "3500 characters" in str(check(plan)[0])


def test_a_secret_is_redacted_before_it_reaches_the_plan(plan: Plan) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    edit.create_feature(plan, "auth", {"description": f"Signs in with {secret} to GitHub."})
    task = edit.create_task(plan, "auth", "Log in", {"acceptance_criteria": [f"{secret} works"]})
    edit.update_task(plan, task.id, comment=f"It works with {secret}.")
    add(plan, "auth", f"The token {secret} works.", reason=f"tried {secret}")
    assert "ghp_" not in text_of(plan, "features") + text_of(plan, "tasks")
    assert plan.task(task.id).comments[0].text == "It works with [redacted:github-token]."
    assert plan.feature("auth").learnings[0].text == "The token [redacted:github-token] works."


def test_f2_a_full_list_refuses(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    with pytest.raises(BadInput, match="can have 20 items, not 21"):
        edit.update_feature(plan, "auth", {"dependencies": [f"d{i}" for i in range(21)]})
    with pytest.raises(BadInput, match="can have 10 items"):
        edit.update_feature(plan, "auth", {"knowledge_paths": [f"d{i}.md" for i in range(11)]})


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "a/../../x", "a\\..\\x", "C:\\x", "c:/x", "a\0b", "~/x", "", "x" * 501],
)
def test_f9_a_path_that_leaves_the_project_is_refused(plan: Plan, path: str) -> None:
    edit.create_feature(plan, "auth")
    with pytest.raises(BadInput):
        edit.update_feature(plan, "auth", {"context_files": [path]})
    if path and "\0" not in path:
        with pytest.raises(BadInput):
            edit.update_feature(plan, "auth", {"knowledge_paths": [path]})


def test_f9_a_bad_path_in_the_file_is_a_problem_with_its_place(plan: Plan) -> None:
    write(
        plan,
        "features",
        "features:\n  - name: a\n    context_files:\n      - ok.py\n      - ../x\n",
    )
    assert plan.read().features[0].context_files == (ContextFile("ok.py"),)
    with pytest.raises(BadPlan, match=r"features\.yaml:5:9: .* leaves the project"):
        plan.load()


def test_paths_are_kept_with_forward_slashes(plan: Plan) -> None:
    edit.create_feature(plan, "auth", {"knowledge_paths": ["docs\\auth.md"]})
    assert plan.feature("auth").knowledge_paths == ("docs/auth.md",)


def test_f13_description_and_architecture_may_say_the_same(plan: Plan) -> None:
    text = "Tokens are signed with RS256 and live in a cookie for one hour."
    edit.create_feature(plan, "auth", {"description": text, "architecture": text})
    edit.update_feature(plan, "auth", {"boundaries": text})
    feature = plan.load().features[0]
    assert (feature.description, feature.architecture, feature.boundaries) == (text, text, text)
    assert edit.check(plan) == []
    task = Task(id=1, feature="auth", title="t")
    facts = PromptFacts(feature=feature, task=task, current_state="")
    prompt = task_prompt(facts, PromptLimits())
    assert prompt.text.count(text) == 3


def test_f14_a_feature_with_tasks_is_not_deleted(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    task = edit.create_task(plan, "auth", "Build form")
    with pytest.raises(BadInput, match="still has tasks: 1"):
        edit.delete(plan, "features", "auth")
    edit.delete(plan, "tasks", task.id)
    edit.delete(plan, "features", "auth")
    assert plan.read().features == ()


def test_f11_the_same_learning_twice_in_the_file_is_removed_as_one(plan: Plan) -> None:
    write(plan, "features", "features:\n- {name: auth, learnings: [Same., Other., Same.]}\n")
    learnings.remove(plan, "auth", "Same.")
    assert [learning.text for learning in plan.feature("auth").learnings] == ["Other."]


def test_f36_a_malformed_learning_is_an_error_with_its_place(plan: Plan) -> None:
    write(
        plan,
        "features",
        "features:\n  - name: auth\n    learnings:\n      - fine\n"
        "      - {text: x, hit_count: many}\n"
        "      - [a]\n",
    )
    with pytest.raises(BadPlan, match=r"features\.yaml:5:9: not a learning: .*hit_count"):
        plan.load()
    assert [str(p).split(": ")[0] for p in check(plan)] == [
        ".ralph/db/features.yaml:5:9",
        ".ralph/db/features.yaml:6:9",
    ]
    with pytest.raises(BadInput, match=r"features\.yaml:5:9"):
        add(plan, "auth", "something new")


def test_f3_a_plain_text_is_a_learning_of_an_agent(plan: Plan) -> None:
    write(plan, "features", "features:\n  - name: auth\n    learnings:\n      - Tokens expire\n")
    (learning,) = plan.load().features[0].learnings
    assert (learning.text, learning.source, learning.hit_count) == ("Tokens expire", "agent", 1)
    assert learning.provenance == "[agent, unverified]"


def test_unknown_keys_and_comments_survive_a_write(plan: Plan) -> None:
    text = "# mine\nversion: 1\nfeatures:\n  - name: auth  # x\n    owner: ana\n\n    # why\n"
    text += "    k: 1\n"
    write(plan, "features", text)
    edit.update_feature(plan, "auth", {"description": "d"})
    assert text_of(plan, "features") == text + "    description: d\n"


def test_a_mapping_by_name_is_read_and_written_as_one(plan: Plan) -> None:
    write(plan, "features", "features:\n  auth:\n    description: d\n  pay:\n")
    edit.update_feature(plan, "pay", {"description": "money"})
    edit.create_feature(plan, "new")
    assert [f.name for f in plan.load().features] == ["auth", "pay", "new"]
    assert text_of(plan, "features").startswith(
        "features:\n  auth:\n    description: d\n  pay:\n    description: money\n  new:\n"
    )


@pytest.mark.parametrize("name", ["", " ", "a/b", "x" * 101, "a\nb"])
def test_a_name_that_is_none_is_refused(plan: Plan, name: str) -> None:
    with pytest.raises(BadInput, match="is not a name"):
        edit.create_feature(plan, name)


def test_unknown_fields_and_wrong_types_are_refused_with_what_there_is(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    with pytest.raises(BadInput, match="has no field 'colour'"):
        edit.update_feature(plan, "auth", {"colour": "red"})
    with pytest.raises(BadInput, match="must be a text"):
        edit.update_feature(plan, "auth", {"description": 3})
    with pytest.raises(BadInput, match="exists already"):
        edit.create_feature(plan, "auth")
    with pytest.raises(NotFound, match="There are: auth"):
        edit.update_feature(plan, "nope", {"description": "x"})


def test_nothing_is_written_when_a_change_is_refused(plan: Plan) -> None:
    edit.create_feature(plan, "auth", {"description": "d"})
    before = text_of(plan, "features")
    with pytest.raises(BadInput):
        edit.update_feature(plan, "auth", {"description": "new", "dependencies": 7})
    assert text_of(plan, "features") == before


# -- tasks


def test_ready_is_in_progress_first_then_priority_then_id() -> None:
    def task(number: int, status: Status = "pending", priority: int = 3, *wait: int) -> Task:
        return Task(
            id=number, feature="a", title="t", status=status, priority=priority, blocked_by=wait
        )

    listed = [
        task(10), task(9), task(1, "done"), task(2, "pending", 1), task(3, "in_progress", 9),
        task(4, "blocked"), task(5, "skipped"), task(6, "pending", 1, 1), task(7, "pending", 0, 9),
    ]  # fmt: skip
    assert [t.id for t in edit.ready(listed)] == [3, 2, 6, 9, 10]


def test_a_status_change_stamps_and_a_comment_is_appended(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    task = edit.create_task(plan, "auth", "Build form")
    assert (task.id, task.status, task.completed) == (1, "pending", None)
    done = edit.update_task(plan, 1, {"status": "completed"}, comment="works", author="agent")
    assert done.status == "done"
    assert done.completed is not None
    assert done.updated == done.completed
    assert [(c.text, c.author) for c in done.comments] == [("works", "agent")]
    again = edit.update_task(plan, 1, {"status": "in_progress"}, comment="not quite")
    assert again.completed is None
    assert [c.text for c in again.comments] == ["works", "not quite"]


def test_a_cycle_is_refused_and_named(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    for title in ("a", "b", "c"):
        edit.create_task(plan, "auth", title)
    edit.update_task(plan, 1, {"blocked_by": [2]})
    edit.update_task(plan, 2, {"blocked_by": [3]})
    with pytest.raises(BadInput, match="1 -> 2 -> 3 -> 1"):
        edit.update_task(plan, 3, {"blocked_by": [1]})
    with pytest.raises(NotFound, match="no task '9'"):
        edit.update_task(plan, 3, {"blocked_by": [9]})
    with pytest.raises(BadInput, match="1 -> 1"):
        edit.update_task(plan, 1, {"blocked_by": [1]})


def test_bad_values_of_a_task_are_refused(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    edit.create_task(plan, "auth", "a")
    with pytest.raises(BadInput, match="Use one of pending"):
        edit.update_task(plan, 1, {"status": "perhaps"})
    with pytest.raises(NotFound, match="no feature 'nope'"):
        edit.create_task(plan, "nope", "a")
    with pytest.raises(BadInput, match="Append a single comment"):
        edit.update_task(plan, 1, {"comments": []})
    with pytest.raises(BadInput, match="comment is empty"):
        edit.update_task(plan, 1, comment=" ")
    with pytest.raises(BadInput, match="needs its `title`"):
        edit.update_task(plan, 1, {"title": None})


def test_a_task_without_its_title_is_not_written_to_but_named_with_its_place(plan: Plan) -> None:
    text = "tasks:\n  - {id: 1, feature: auth}\n"
    write(plan, "tasks", text)
    with pytest.raises(BadPlan, match=r"tasks\.yaml:2:5: task 1 has no `title`"):
        edit.update_task(plan, 1, {"status": "done"})
    assert text_of(plan, "tasks") == text


def test_a_broken_file_does_not_hinder_a_change_in_another_one(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    write(plan, "tasks", "tasks: [")
    assert edit.update_feature(plan, "auth", {"description": "d"}).description == "d"
    with pytest.raises(BadPlan, match=r"tasks\.yaml:1:9"):
        edit.update_task(plan, 1, comment="x")


def test_a_task_that_others_wait_for_is_not_deleted(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    edit.create_task(plan, "auth", "a")
    edit.create_task(plan, "auth", "b", {"blocked_by": [1]})
    with pytest.raises(BadInput, match="task 1 blocks 2"):
        edit.delete(plan, "tasks", 1)
    # Written by hand, as a number instead of a list.
    tasks = "{id: 1, feature: auth, title: a}, {id: 2, feature: auth, title: b, blocked_by: 1}"
    write(plan, "tasks", f"tasks: [{tasks}]\n")
    assert plan.task(2).blocked_by == (1,)
    with pytest.raises(BadInput, match="task 1 blocks 2"):
        edit.delete(plan, "tasks", 1)


# -- check


def test_check_names_every_problem_with_its_place(plan: Plan) -> None:
    write(plan, "features", "version: 1\nfeatures:\n  - name: auth\n  - name: auth\n  - {x: 1}\n")
    write(
        plan,
        "tasks",
        "tasks:\n"
        "  - {id: 1, feature: auth, title: a, blocked_by: [2]}\n"
        "  - {id: 2, feature: auth, title: b, blocked_by: [1, 9]}\n"
        "  - id: 3\n    feature: nope\n    title: c\n    status: maybe\n    priority: soon\n"
        "  - id: 4\n    feature: auth\n",
    )
    told = [str(problem) for problem in check(plan)]
    for expected in (
        "features.yaml:4:5: the feature 'auth' is here twice",
        "features.yaml:5:5: a feature without `name`",
        "tasks.yaml:2:",
        "tasks wait for each other: 1 -> 2 -> 1",
        "tasks.yaml:3:54: task 2 waits for the unknown task 9",
        "tasks.yaml:5:14: task 3 belongs to the unknown feature 'nope'",
        "tasks.yaml:7:13: the status 'maybe' does not exist",
        "tasks.yaml:8:15: the priority 'soon' is not a number",
        "tasks.yaml:9:5: task 4 has no `title`",
    ):
        assert any(expected in line for line in told), (expected, told)


def test_check_of_a_file_that_does_not_parse_is_one_problem(plan: Plan) -> None:
    write(plan, "features", "features:\n  - name: [x\n")
    (problem,) = check(plan)
    assert str(problem).startswith(".ralph/db/features.yaml:3:1: not valid YAML")
    with pytest.raises(BadPlan, match=r"features\.yaml:3:1"):
        plan.load()


def test_check_shows_learnings_that_contradict_each_other(plan: Plan) -> None:
    write(
        plan,
        "features",
        "features:\n  - name: a\n    learnings:\n      - Use Redis for sessions\n"
        "      - Don't use Redis for sessions\n",
    )
    (problem,) = check(plan)
    assert problem.severity == "warning"
    assert ":5:9: two learnings of a contradict each other" in str(problem)


def test_a_plan_from_a_newer_ralph_is_an_error(plan: Plan) -> None:
    write(plan, "tasks", "version: 2\ntasks: []\n")
    with pytest.raises(BadPlan, match="newer than this Ralph knows"):
        plan.load()


@pytest.mark.parametrize("version", ["'1'", "1.5", "one", "", "[1]"])
def test_a_version_that_is_no_number_is_an_error_and_not_called_newer(
    plan: Plan, version: str
) -> None:
    write(plan, "tasks", f"version: {version}\ntasks: []\n")
    (problem,) = check(plan)
    assert str(problem).startswith(".ralph/db/tasks.yaml:1:")
    assert "version must be a number, not " in str(problem)
    assert "Write `version: 1`." in str(problem)


# -- several at once


def _append_some(project: str, who: int, how_many: int) -> None:
    plan = Plan(Path(project))
    for i in range(how_many):
        add(plan, "auth", f"worker{who} saw thing{i} in module{who}x{i}", source="human")


def test_f5_processes_that_append_at_once_lose_nothing(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_append_some, args=(str(plan.project), who, 8)) for who in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert len(plan.load().features[0].learnings) == 32
    assert plan.log.last() == 33


def test_f5_a_lock_that_is_never_free_is_an_error_that_says_so(plan: Plan) -> None:
    edit.create_feature(plan, "auth")
    hasty = Plan(plan.project, lock_timeout_s=0.01)
    with plan.locked(), pytest.raises(PlanBusy, match="another process"):
        edit.update_feature(hasty, "auth", {"description": "x"})


def test_the_log_of_writes_stays_small_and_forgets_old_versions(plan: Plan) -> None:
    for n in range(1, 1250):
        plan.log.note("t", "features", f"n: {n}".encode(), f"n: {n + 1}".encode(), "test")
    assert plan.log.last() == 1249
    assert len(plan.log.since(0, "features")) <= 1200
    assert plan.log.version(digest(b"n: 1")) is None
    assert plan.log.version(digest(b"n: 1249")) == b"n: 1249"
