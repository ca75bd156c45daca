"""A checklist or a YAML document becomes a plan, and does so only once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralph.errors import BadInput, BadPlan
from ralph.plan.importing import import_plan
from ralph.plan.learnings import remove
from ralph.plan.store import Plan

CHECKLIST = """\
# Our product

A title with some words and no task.

## User login

Users log in with e-mail
and password.

### Architecture
Sessions in a cookie.

### Dependencies
- Postgres

### Tasks
- [ ] Build the login form (discipline: frontend) (priority: 1)
  - shows an error for a bad mail
    in red
  - keeps the mail on error
  - [ ] Validate the address
  - [x] Choose a library
- [x] Set up the project

```
- [ ] not a task, only code
```

## Payments
1. [ ] Charge a card
2. [~] Send a receipt (tags: mail, pdf)
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path)


def test_a_checklist_becomes_features_tasks_criteria_and_blockers(plan: Plan) -> None:
    imported = import_plan(plan, CHECKLIST, name="todo.md")
    view = plan.load()
    assert imported.features == ("user-login", "payments")
    login, payments = view.features
    assert login.display_name == "User login"
    assert login.description == "Users log in with e-mail\nand password."
    assert login.architecture == "Sessions in a cookie."
    assert login.dependencies == ("Postgres",)
    assert payments.description is None
    by_title = {task.title: task for task in view.tasks}
    assert list(by_title) == [
        "Validate the address",
        "Choose a library",
        "Build the login form",
        "Set up the project",
        "Charge a card",
        "Send a receipt",
    ]
    form = by_title["Build the login form"]
    assert (form.discipline, form.priority, form.status) == ("frontend", 1, "pending")
    assert form.acceptance_criteria == (
        "shows an error for a bad mail in red",
        "keeps the mail on error",
    )
    assert form.blocked_by == (1, 2)
    assert by_title["Choose a library"].status == "done"
    assert by_title["Choose a library"].completed is not None
    assert by_title["Send a receipt"].status == "in_progress"
    assert by_title["Send a receipt"].tags == ("mail", "pdf")


def test_indented_text_below_a_task_is_its_description(plan: Plan) -> None:
    text = (
        "# Login\n- [~] Sessions in Redis\n  One key each,\n  for a day.\n  - [ ] Choose a name\n"
    )
    import_plan(plan, text, name="todo.md")
    name, sessions = plan.load().tasks
    assert (sessions.title, sessions.description) == (
        "Sessions in Redis",
        "One key each,\nfor a day.",
    )
    assert (name.title, name.description) == ("Choose a name", None)


def test_a_line_that_is_there_twice_is_one_task_and_counted(plan: Plan) -> None:
    text = "# Docs\n- [ ] Write it\n- [ ] Print it\n- [ ] write it\n"
    first, again = (import_plan(plan, text, name="todo.md") for _ in range(2))
    assert (first.tasks, first.known_tasks, first.repeated) == ((1, 2), 0, 1)
    assert (again.tasks, again.known_tasks, again.repeated) == ((), 2, 1)


def test_items_without_a_box_become_description_and_are_counted(plan: Plan) -> None:
    text = (
        "# Title\n- not this\n\n# Docs\n- Rewrite the page\n## Tasks\n- [ ] Print it\n* Ship it\n"
    )
    assert import_plan(plan, text, name="todo.md").plain_items == 2
    (feature,) = plan.load().features
    assert feature.description == "- Rewrite the page\n- Ship it"


def test_importing_twice_adds_nothing(plan: Plan) -> None:
    import_plan(plan, CHECKLIST, name="todo.md")
    before = (plan.raw("features"), plan.raw("tasks"))
    again = import_plan(plan, CHECKLIST, name="todo.md")
    assert (again.features, again.tasks, again.known_tasks) == ((), (), 6)
    assert (plan.raw("features"), plan.raw("tasks")) == before


def statuses(plan: Plan) -> dict[str, str]:
    return {task.title: task.status for task in plan.load().tasks}


def test_a_box_ticked_since_updates_its_task_and_an_open_one_takes_nothing_back(plan: Plan) -> None:
    import_plan(plan, "# Docs\n- [ ] Write it\n- [ ] Print it\n- [x] Plan it\n", name="todo.md")
    ticked = "# Docs\n- [x] Write it\n- [~] Print it\n- [ ] Plan it\n"

    again = import_plan(plan, ticked, name="todo.md")

    assert statuses(plan) == {"Write it": "done", "Print it": "in_progress", "Plan it": "done"}
    assert plan.task(1).completed is not None
    assert (again.tasks, again.updated) == ((), (1, 2))
    assert import_plan(plan, ticked, name="todo.md").updated == ()


def test_a_line_that_gained_or_lost_words_is_the_same_task(plan: Plan) -> None:
    import_plan(plan, "# Docs\n- [ ] Describe the export of reports\n", name="todo.md")

    reworded = "# Docs\n- [x] Describe the export of reports as PDF\n"
    again = import_plan(plan, reworded, name="todo.md")

    assert statuses(plan) == {"Describe the export of reports as PDF": "done"}
    assert again.updated == (1,)


@pytest.mark.parametrize(
    "line",
    [
        "Describe the import of reports",  # another word is another task
        "Describe",  # too short to tell
        "Describe the export of reports, and review what the team wrote about billing",
    ],
)
def test_a_line_with_other_words_is_another_task(plan: Plan, line: str) -> None:
    import_plan(plan, "# Docs\n- [ ] Describe the export of reports\n", name="todo.md")

    import_plan(plan, f"# Docs\n- [ ] {line}\n", name="todo.md")

    assert len(statuses(plan)) == 2


def test_a_line_beside_the_one_it_extends_is_another_task(plan: Plan) -> None:
    import_plan(plan, "# Docs\n- [ ] Export the reports\n", name="todo.md")

    both = "# Docs\n- [ ] Export the reports\n- [ ] Export the reports as PDF\n"
    import_plan(plan, both, name="todo.md")

    assert len(statuses(plan)) == 2


def test_a_task_added_to_the_list_later_is_the_only_one_imported(plan: Plan) -> None:
    import_plan(plan, CHECKLIST, name="todo.md")
    again = import_plan(plan, CHECKLIST + "3. [ ] Refund a card\n", name="todo.md")
    assert len(again.tasks) == 1
    assert plan.task(again.tasks[0]).title == "Refund a card"


def test_yaml_may_nest_tasks_and_name_blockers_by_title(plan: Plan) -> None:
    text = """\
features:
  - name: auth
    description: Log in.
    tasks:
      - Build form
      - title: Write docs
        blocked_by: [Build form]
        comments: [kept out]
tasks:
  - {feature: pay, title: Charge}
disciplines:
  - {name: docs, system_prompt: Write well.}
"""
    imported = import_plan(plan, text, name="plan.yaml")
    assert imported.features == ("auth", "pay")
    assert imported.disciplines == ("docs",)
    assert [(t.id, t.title, t.blocked_by) for t in plan.load().tasks] == [
        (1, "Build form", ()),
        (2, "Write docs", (1,)),
        (3, "Charge", ()),
    ]
    assert import_plan(plan, text, name="plan.yaml").tasks == ()


def test_a_task_keeps_its_id_where_it_is_free_and_its_blockers_follow_where_it_is_not(
    plan: Plan,
) -> None:
    import_plan(plan, "# Billing\n- [ ] Invoice\n", name="first.md")
    text = """\
features: [{name: search}]
tasks:
  - {id: 1, feature: search, title: Build the index}
  - {id: 40, feature: search, title: Ask it, blocked_by: [1]}
  - {feature: search, title: Show it, blocked_by: [40, Build the index]}
"""
    assert import_plan(plan, text, name="plan.yaml").tasks == (2, 40, 41)
    assert [(t.id, t.title, t.blocked_by) for t in plan.load().tasks] == [
        (1, "Invoice", ()),
        (2, "Build the index", ()),
        (40, "Ask it", (2,)),
        (41, "Show it", (40, 2)),
    ]
    again = import_plan(plan, text, name="plan.yaml")
    assert (again.tasks, again.known_tasks) == ((), 3)


def test_learnings_in_the_document_are_imported_once_and_stay_removed(plan: Plan) -> None:
    text = """\
features:
  - name: search
    learnings:
      - FTS5 needs its own table.
      - {text: Rank by bm25., source: human, reason: measured, task_id: 7}
    tasks: [{id: 7, title: Rank}]
"""
    import_plan(plan, text, name="plan.yaml")
    import_plan(plan, text, name="plan.yaml")
    (feature,) = plan.load().features
    assert [(x.text, x.source, x.reason, x.task_id) for x in feature.learnings] == [
        ("FTS5 needs its own table.", "agent", None, None),
        ("Rank by bm25.", "human", "measured", 7),
    ]
    remove(plan, "search", "Rank by bm25.")
    import_plan(plan, text, name="plan.yaml")
    (feature,) = plan.load().features
    assert [x.text for x in feature.learnings] == ["FTS5 needs its own table."]


def test_a_box_without_a_title_is_neither_a_task_nor_prose(plan: Plan) -> None:
    import_plan(plan, "# Billing\nBills.\n- [ ] Invoice\n- [ ]\n* [x] \n", name="todo.md")
    view = plan.load()
    assert [t.title for t in view.tasks] == ["Invoice"]
    assert view.features[0].description == "Bills."


def test_tasks_under_no_heading_need_a_feature(plan: Plan) -> None:
    with pytest.raises(BadInput, match="no heading above"):
        import_plan(plan, "- [ ] Do it\n", name="x.md")
    assert import_plan(plan, "- [ ] Do it\n", name="x.md", feature="auth").features == ("auth",)


def test_what_holds_no_plan_is_refused_with_what_to_write(plan: Plan) -> None:
    with pytest.raises(BadInput, match=r"x\.md: no task was found. Write `# Feature`"):
        import_plan(plan, "# Just\n\nwords\n", name="x.md")
    with pytest.raises(BadPlan, match=r"x\.yaml:1:"):
        import_plan(plan, "features: [", name="x.yaml")
    with pytest.raises(BadInput, match="there are no features, tasks or disciplines"):
        import_plan(plan, "colour: red\n", name="x.yaml")
    with pytest.raises(BadInput, match=r"x\.yaml:1:12: .* not a mapping"):
        import_plan(plan, "features: [auth]", name="x.yaml")
    assert plan.raw("features") is None


def test_a_ring_in_the_document_is_named_and_nothing_is_written(plan: Plan) -> None:
    text = (
        "tasks:\n  - {feature: a, title: one, blocked_by: [two]}\n"
        "  - {feature: a, title: two, blocked_by: [one]}\n"
    )
    with pytest.raises(BadInput, match="1 -> 2 -> 1"):
        import_plan(plan, text, name="x.yaml")
    assert plan.raw("tasks") is None
