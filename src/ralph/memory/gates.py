"""Gates: what a person rejected waits for the approval of its revision, and then is knowledge.

A waiting rejection is a line in the project's knowledge journal. The approval turns it into an
entry and takes the line out again, so that what it says stands in one place and ages there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from ralph.errors import BadInput, NotFound
from ralph.memory.knowledge_journal import NOT_GIVING, SavedEntry, said_draft, stream_of
from ralph.memory.ledger import prepared_entry
from ralph.memory.lessons import portable
from ralph.plan.edit import update_task
from ralph.plan.fields import clean_text
from ralph.plan.model import Limits
from ralph.records import Record
from ralph.records.knowledge import (
    GATE,
    GATE_REJECTION,
    Gate,
    GateApproval,
    GateRejection,
    entry_id,
    knowledge_from,
)
from ralph.text.redact import redact
from ralph.text.sanitize import sanitize

if TYPE_CHECKING:
    from ralph.memory.ledger import ProjectKnowledge
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import Task
    from ralph.plan.store import Plan


_TASK_CHARS = 100
# Says who speaks in a comment on a task.
_AUTHOR = "human"


class PendingRejection(msgspec.Struct, frozen=True):
    """A rejection that waits for its approval, and whether it was new."""

    id: str
    at: str
    gate: Gate
    fresh: bool = False

    def to_json(self) -> dict[str, Any]:
        """Every field under its published name, the empty ones too."""
        fields = {name: getattr(self.gate, name) for name in self.gate.__struct_fields__}
        return {"id": self.id, "at": self.at, **fields}


def reject(
    ralph: Ralph,
    task: str | int,
    gate_type: str,
    feedback: str,
    *,
    subject: str = "",
    agent_type: str | None = None,
    task_type: str | None = None,
    technology: str | None = None,
) -> PendingRejection:
    """Keep why a person rejected something, until its revision is approved; told twice it is one.

    `subject` says what was worked on: the task's title.
    """
    _refuse_unless_giving(ralph)
    given = Gate(
        project=ralph.project.id,
        task=_name_of(task),
        gate_type=gate_type,
        human_feedback=feedback,
        subject=subject,
        agent_type=agent_type or "",
        task_type=task_type or "",
        technology=technology or "",
    )
    gate = _prepared(ralph, portable(given, ralph.project.root))
    account = _account(ralph)
    identity = _identity(account, gate)

    ours = said_draft(gate, identity)

    def draft(number: int) -> Record:
        # Under the journal's lock: what another process has just kept stands as that wrote it.
        known = _standing(account.follow()).get(identity)
        return known or ours(number)

    fresh = identity not in account.gates
    if fresh:
        ralph.knowledge.write(gate.project, draft)
    kept = _standing(account.follow())[identity]
    return PendingRejection(identity, kept.at, knowledge_from(kept), fresh)


def approve(
    ralph: Ralph,
    task: str | int,
    gate_type: str,
    approach: str,
    *,
    subject: str = "",
    agent_type: str | None = None,
    task_type: str | None = None,
    technology: str | None = None,
) -> list[SavedEntry]:
    """Stage what an approval teaches; the same approval twice is one.

    It completes every waiting rejection of this task and gate. Without any it is an approval at
    the first attempt; where the gate was rejected and passed before, another approach is neither,
    and nothing is kept of it.
    """
    memory = ralph.knowledge
    _refuse_unless_giving(ralph)
    given = GateApproval(
        project=ralph.project.id,
        gate_type=gate_type,
        approved_approach=approach,
        subject=subject,
        agent_type=agent_type or "",
        task_type=task_type or "",
        technology=technology or "",
    )
    told = portable(given, ralph.project.root)
    approval = cast("GateApproval", prepared_entry(told, memory.shelf.settings))
    account, name = _account(ralph), _name_of(task)
    passed = _completed(name, approval.gate_type)
    open_ = {
        identity: gate
        for identity, gate in account.gates.items()
        if (gate.task, gate.gate_type) == (name, approval.gate_type)
    }
    if open_:
        captured = memory.capture_all([_revised(gate, approval) for gate in open_.values()])
        account.journal.forget(sorted(open_), reason=passed)
        return captured
    if passed in account.reasons().values():
        return _told_before(account, approval)
    return memory.capture_all([approval])


def gates(ralph: Ralph) -> list[PendingRejection]:
    """The rejections of this project that wait for their approval, oldest first."""
    account = _account(ralph)
    return [
        PendingRejection(identity, record.at, account.gates[identity])
        for identity, record in _standing(account).items()
        if identity in account.gates
    ]


def approach_of(ralph: Ralph, task: str | int) -> str:
    """What was approved, where nobody says it: what the task's newest success says it did."""
    name = _name_of(task)
    told = [
        (one.timestamp or "", located.record.number, one.summary)
        for memory in ralph.features()
        for located, one in memory.iterations()
        if str(one.task_id) == name and one.outcome == "success" and one.summary.strip()
    ]
    if not told:
        raise NotFound(
            f"no successful iteration of task {name} tells what was approved",
            todo="Say it: --approach TEXT.",
        )
    return max(told)[2]


def send_back(plan: Plan, task: Task, gate: Gate, *, fresh: bool = True) -> Task:
    """The task with the feedback as a comment; one that was done is in progress again.

    What is said once more adds nothing, unless the task was done meanwhile.
    """
    said = f"Rejected at the {gate.gate_type} gate: {gate.human_feedback}"
    comment = clean_text("comment", sanitize(said), Limits.comment)
    done = task.status == "done"
    if not (fresh or done) and any(one.text == comment for one in task.comments):
        return task
    patch = {"status": "in_progress"} if done else {}
    return update_task(plan, task.id, patch, comment=said, author=_AUTHOR)


def _refuse_unless_giving(ralph: Ralph) -> None:
    if ralph.knowledge.keeps_to_itself(ralph.project.id):
        raise BadInput(NOT_GIVING, todo="Run: ralph config knowledge_give true")


def _prepared(ralph: Ralph, gate: Gate) -> Gate:
    """The gate as it may be written, through the same checks as the entry it will become."""
    # What the revision was is not known yet; only the rest is looked at.
    entry = prepared_entry(_rejection(gate, revision="later"), ralph.knowledge.shelf.settings)
    return Gate(
        task=gate.task,
        **{name: getattr(entry, name) for name in Gate.__struct_fields__ if name != "task"},
    )


def _revised(gate: Gate, approval: GateApproval) -> GateRejection:
    """The entry that a waiting rejection becomes; what it does not say the approval may."""
    entry = _rejection(gate, revision=approval.approved_approach)
    fills = {
        name: getattr(approval, name)
        for name in ("subject", "agent_type", "task_type", "technology")
        if not getattr(entry, name)
    }
    return msgspec.structs.replace(entry, **fills)


def _rejection(gate: Gate, *, revision: str) -> GateRejection:
    return GateRejection(
        project=gate.project,
        gate_type=gate.gate_type,
        human_feedback=gate.human_feedback,
        revision_approach=revision,
        subject=gate.subject,
        agent_type=gate.agent_type,
        task_type=gate.task_type,
        technology=gate.technology,
    )


def _identity(account: ProjectKnowledge, gate: Gate) -> str:
    """The same for the same feedback on the same gate of a task; after an approval it is new."""
    # The id of a rejection without a revision, of this task: no entry can have it.
    named = GateRejection(
        project=gate.project,
        gate_type=gate.gate_type,
        human_feedback=gate.human_feedback,
        revision_approach="",
        subject=gate.task,
    )
    again = 0
    while account.has_forgotten(identity := entry_id(named, again=again)):
        if account.reasons().get(identity) != _completed(gate.task, gate.gate_type):
            raise BadInput(f"the rejection {identity} was forgotten, and stays so")
        again += 1
    return identity


def _completed(task: str, gate_type: str) -> str:
    """Why a rejection no longer waits; its tombstone says so."""
    return f"the {gate_type} gate of task {task} was passed"


def _told_before(account: ProjectKnowledge, approval: GateApproval) -> list[SavedEntry]:
    """What the same approval captured when it completed a rejection."""
    found: list[SavedEntry] = []
    for record in account.entries.values():
        if record.kind == GATE_REJECTION:
            one: GateRejection = knowledge_from(record)
            if (one.gate_type, one.revision_approach) == (
                approval.gate_type,
                approval.approved_approach,
            ):
                staged = record.id in account.staged
                found.append(SavedEntry(record.id, one, fresh=False, staged=staged))
    return found


def _name_of(task: str | int) -> str:
    name = redact(" ".join(str(task).split()))[:_TASK_CHARS]
    if not name:
        raise BadInput("no task is named", todo="Give the id of a task.")
    return name


def _account(ralph: Ralph) -> ProjectKnowledge:
    return ralph.knowledge.ledger.account(stream_of(ralph.project.id))


def _standing(account: ProjectKnowledge) -> dict[str, Record]:
    return {
        located.record.id: located.record
        for located in account.standing()
        if located.record.kind == GATE
    }
