"""Gates: a rejection waits for the approval of its revision, and the two become one entry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from remembering import files_holding, made

from ralph.errors import BadInput, BadRecord, NotFound
from ralph.journal import Appended, Draft, Journal
from ralph.memory.gates import approach_of, approve, gates, reject, send_back
from ralph.memory.knowledge_state import stream_of
from ralph.memory.ralph import Ralph, open_ralph
from ralph.plan.edit import create_feature, create_task, update_task
from ralph.plan.store import Plan
from ralph.records import Record, now
from ralph.records.knowledge import GateApproval, GateRejection

VERSIONED = "Put /v1 in front of every route."


@pytest.fixture
def ralph(project: Path) -> Iterator[Ralph]:
    with open_ralph(project, embedder="none") as opened:
        yield opened


def staged(ralph: Ralph) -> list[str]:
    return [one.id for one in ralph.knowledge.staged()]


def test_a_rejection_is_no_knowledge_until_its_revision_is_approved(ralph: Ralph) -> None:
    waiting = reject(ralph, 7, "Design", "No versions", subject="Billing API", technology="Python")

    assert waiting.fresh
    assert staged(ralph) == []
    assert [(one.id, one.gate.task, one.gate.gate_type) for one in gates(ralph)] == [
        (waiting.id, "7", "design")
    ]

    [done] = approve(ralph, "7", "design", VERSIONED)

    assert done.record == GateRejection(
        project=ralph.project.id,
        gate_type="design",
        human_feedback="No versions",
        revision_approach=VERSIONED,
        subject="Billing API",
        technology="python",
    )
    assert (done.fresh, done.staged) == (True, True)
    assert staged(ralph) == [done.id]
    assert gates(ralph) == []


def test_an_approval_without_a_rejection_is_one_at_the_first_attempt(ralph: Ralph) -> None:
    [done] = approve(ralph, 7, "design", VERSIONED, subject="Billing API")

    assert isinstance(done.record, GateApproval)
    assert (done.record.approved_approach, done.record.subject) == (VERSIONED, "Billing API")


def test_a_rejection_told_twice_with_the_same_words_is_one(ralph: Ralph) -> None:
    first = reject(ralph, 7, "design", "No versions")
    again = reject(ralph, "7", "DESIGN", " No versions ", subject="told better")

    assert (again.id, again.at, again.fresh) == (first.id, first.at, False)
    assert len(gates(ralph)) == 1


def test_every_rejection_of_the_gate_is_completed_and_no_other(ralph: Ralph) -> None:
    reject(ralph, 7, "design", "No versions")
    reject(ralph, 7, "design", "No paging")
    reject(ralph, 7, "docs", "No example")
    reject(ralph, 8, "design", "No versions")

    done = approve(ralph, 7, "design", VERSIONED, agent_type="backend")

    told = [one.record for one in done if isinstance(one.record, GateRejection)]
    assert [one.human_feedback for one in told] == ["No versions", "No paging"]
    assert {one.agent_type for one in told} == {"backend"}
    assert [(one.gate.task, one.gate.gate_type) for one in gates(ralph)] == [
        ("7", "docs"),
        ("8", "design"),
    ]


def test_what_a_rejection_says_of_itself_stands_before_what_its_approval_says(ralph: Ralph) -> None:
    reject(ralph, 7, "design", "No versions", subject="Billing API", technology="go")

    [done] = approve(ralph, 7, "design", VERSIONED, subject="Another", technology="rust")

    assert (done.record.subject, done.record.technology) == ("Billing API", "go")


@pytest.mark.parametrize("rejected", [True, False])
def test_no_path_of_this_machine_goes_to_other_projects(ralph: Ralph, rejected: bool) -> None:
    inside = ralph.project.root / "api" / "routes.py"
    if rejected:
        reject(ralph, 7, "design", f"No versions in {inside}:3")

    [done] = approve(ralph, 7, "design", f"Versions in {inside}, as {Path.home() / 'x'} has them")

    told = done.record.to_json()
    assert str(ralph.project.root) not in str(told)
    approach = told["revision_approach" if rejected else "approved_approach"]
    assert approach.replace("\\", "/") == "Versions in api/routes.py, as ~/x has them"


@pytest.mark.parametrize("rejected", [True, False])
def test_the_same_approval_twice_is_one_entry(ralph: Ralph, rejected: bool) -> None:
    if rejected:
        reject(ralph, 7, "design", "No versions")
    [first] = approve(ralph, 7, "design", VERSIONED)

    [again] = approve(ralph, 7, "design", VERSIONED)

    assert (again.id, again.fresh, again.staged) == (first.id, False, True)
    assert staged(ralph) == [first.id]


def test_an_approval_that_was_cut_short_is_repeated_without_a_second_entry(ralph: Ralph) -> None:
    reject(ralph, 7, "design", "No versions")
    [half] = ralph.knowledge.capture_all(
        [
            GateRejection(
                project=ralph.project.id,
                gate_type="design",
                human_feedback="No versions",
                revision_approach=VERSIONED,
            )
        ]
    )

    [done] = approve(ralph, 7, "design", VERSIONED)

    assert (done.id, done.fresh) == (half.id, False)
    assert staged(ralph) == [half.id]
    assert gates(ralph) == []


def test_after_a_rejection_another_approach_is_no_first_attempt(ralph: Ralph) -> None:
    reject(ralph, 7, "design", "No versions")
    [done] = approve(ralph, 7, "design", VERSIONED)

    assert approve(ralph, 7, "design", "Another approach") == []
    assert staged(ralph) == [done.id]
    [other] = approve(ralph, 8, "design", "Another approach")
    assert isinstance(other.record, GateApproval)


def test_the_same_feedback_after_an_approval_is_a_new_rejection(ralph: Ralph) -> None:
    first = reject(ralph, 7, "design", "No versions")
    approve(ralph, 7, "design", VERSIONED)

    second = reject(ralph, 7, "design", "No versions")
    [done] = approve(ralph, 7, "design", "A header instead")

    assert second.fresh
    assert second.id != first.id
    assert isinstance(done.record, GateRejection)
    assert done.record.revision_approach == "A header instead"
    assert len(staged(ralph)) == 2


def test_a_rejection_that_was_forgotten_stays_so(ralph: Ralph) -> None:
    waiting = reject(ralph, 7, "design", "No versions")

    assert ralph.knowledge.forget([waiting.id]) == [waiting.id]

    assert gates(ralph) == []
    with pytest.raises(BadInput, match="was forgotten and cannot be added again"):
        reject(ralph, 7, "design", "No versions")
    [done] = approve(ralph, 7, "design", VERSIONED)
    assert isinstance(done.record, GateApproval)


def test_the_feedback_stands_in_one_place_and_goes_with_its_entry(ralph: Ralph, home: Path) -> None:
    reject(ralph, 7, "design", "zeppelin")
    [done] = approve(ralph, 7, "design", VERSIONED)
    ralph.knowledge.checkpoint()

    ralph.knowledge.forget([done.id])

    assert files_holding(home, "zeppelin") == []


def test_secrets_and_length_are_seen_to(ralph: Ralph) -> None:
    token = "ghp_" + "a1B2c3D4" * 4 + "Zz9y"

    waiting = reject(ralph, 7, "design", f"Do not print {token} " + "x" * 5000)

    assert "[redacted:github-token]" in waiting.gate.human_feedback
    assert len(waiting.gate.human_feedback) == 4000


@pytest.mark.parametrize(
    ("task", "gate_type", "feedback", "told"),
    [
        ("7", "design", "  ", "needs human_feedback"),
        ("7", " , ", "No versions", "needs gate_type"),
        (" ", "design", "No versions", "no task is named"),
    ],
)
def test_a_rejection_that_says_too_little_is_refused(
    ralph: Ralph, task: str, gate_type: str, feedback: str, told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        reject(ralph, task, gate_type, feedback)
    assert gates(ralph) == []


def test_an_approval_that_does_not_say_of_what_is_refused(ralph: Ralph) -> None:
    reject(ralph, 7, "design", "No versions")

    with pytest.raises(BadRecord, match="needs approved_approach"):
        approve(ralph, 7, "design", " ")

    assert len(gates(ralph)) == 1


def test_a_project_that_gives_nothing_keeps_no_gates(project: Path) -> None:
    with open_ralph(project, embedder="none", knowledge_give=False) as ralph:
        with pytest.raises(BadInput, match="does not share knowledge"):
            reject(ralph, 7, "design", "No versions")
        with pytest.raises(BadInput, match="does not share knowledge"):
            approve(ralph, 7, "design", VERSIONED)
        assert not ralph.knowledge.store.names()


def test_gates_are_of_their_own_project(ralph: Ralph, tmp_path: Path) -> None:
    reject(ralph, 7, "design", "No versions")

    with open_ralph(tmp_path / "other", embedder="none") as other:
        assert gates(other) == []
        [done] = approve(other, 7, "design", VERSIONED)

    assert isinstance(done.record, GateApproval)
    assert len(gates(ralph)) == 1


def test_two_processes_that_reject_the_same_keep_one(ralph: Ralph, project: Path) -> None:
    code = (
        "import sys; from ralph import open_ralph; from ralph.memory.gates import reject\n"
        "with open_ralph(sys.argv[1], embedder='none') as ralph:\n"
        "    sys.stdin.readline()\n"
        "    print(reject(ralph, 7, 'design', 'No versions').id)"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(project)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = {one.communicate(timeout=60)[0] for one in started}

    assert [one.id for one in gates(ralph)] == [next(iter(told)).strip()]
    assert len(told) == 1
    assert ralph.knowledge.verify() == (1, [])


# -- what the plan and the iterations add


def test_the_newest_success_says_what_was_approved(ralph: Ralph) -> None:
    ralph.feature("api").remember_all(
        [
            made("First draft", task_id=7, outcome="success", timestamp="2026-02-01T10:00:00Z"),
            made("Versioned", task_id=7, outcome="success", timestamp="2026-02-03T10:00:00Z"),
            made("Gave up", task_id=7, outcome="failure", timestamp="2026-02-04T10:00:00Z"),
            made("Other", task_id=8, outcome="success", timestamp="2026-02-05T10:00:00Z"),
        ]
    )

    assert approach_of(ralph, "7") == "Versioned"
    with pytest.raises(NotFound, match="no successful iteration of task 9"):
        approach_of(ralph, 9)


@pytest.mark.parametrize(
    ("status", "then"), [("done", "in_progress"), ("pending", "pending"), ("blocked", "blocked")]
)
def test_a_task_hears_the_feedback_and_a_done_one_goes_back(
    ralph: Ralph, project: Path, status: str, then: str
) -> None:
    plan = Plan(project)
    create_feature(plan, "api")
    task = create_task(plan, "api", "Billing API", {"status": status})
    waiting = reject(ralph, task.id, "design", "No versions")

    send_back(plan, task, waiting.gate)

    told = plan.task(task.id)
    assert told.status == then
    assert [(one.text, one.author) for one in told.comments] == [
        ("Rejected at the design gate: No versions", "human")
    ]


def test_what_is_said_again_is_commented_again_only_on_a_task_that_was_done_anew(
    ralph: Ralph, project: Path
) -> None:
    plan = Plan(project)
    create_feature(plan, "api")
    task = create_task(plan, "api", "Billing API")
    gate = reject(ralph, task.id, "design", "No versions " * 400).gate
    task = send_back(plan, task, gate, fresh=True)

    task = send_back(plan, task, gate, fresh=False)
    assert len(task.comments) == 1

    task = update_task(plan, task.id, {"status": "done"})
    task = send_back(plan, task, gate, fresh=False)
    assert (len(task.comments), task.status) == (2, "in_progress")


class AskedTwice:
    """A journal that asks what it is to keep a second time, later, as one on a server does."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def append(self, drafts: Sequence[Record | Draft]) -> list[Appended]:
        made = [one for one in drafts if not isinstance(one, Record)]
        first = [one(1) for one in made]
        began = now()
        while now() == began:
            pass  # a thousandth of a second is all that two of them differ by
        assert [(one.at, one.digest) for one in first] == [
            (again.at, again.digest) for again in (one(1) for one in made)
        ]
        self.asked += len(made)
        return self._journal.append(drafts)


def test_whatever_is_written_is_the_same_however_often_the_journal_asks_for_it(
    ralph: Ralph,
) -> None:
    """On PostgreSQL many entries at once never came to an end: each look found them changed."""
    memory = ralph.knowledge
    account = memory.state.account(stream_of(ralph.project.id))
    journal = AskedTwice(account.journal)
    account.journal = cast("Journal", journal)

    reject(ralph, 7, "design", "No versions")
    approve(ralph, 7, "design", VERSIONED)
    memory.checkpoint()
    memory.report_outcome(memory.patterns()[0].id, True)

    assert journal.asked == 4
