"""Gates: a person's rejection waits until its revision is approved, then becomes knowledge.

A waiting rejection is a line in the project's knowledge journal. The approval turns it into an
entry and deletes the line, so that its content is in one place only and expires there.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ralph.errors import BadInput, NotFound
from ralph.memory.checkpoints import said_draft
from ralph.memory.knowledge import SavedEntry
from ralph.memory.knowledge_state import ProjectKnowledge, prepared_entry
from ralph.memory.lessons import portable
from ralph.memory.ralph import Ralph
from ralph.plan.edit import update_task
from ralph.plan.fields import clean_text
from ralph.plan.model import Limits, Task
from ralph.plan.store import Plan
from ralph.records import Record
from ralph.records import knowledge as kinds
from ralph.records.knowledge import Gate, GateApproval, GateRejection, knowledge_from
from ralph.text.redact import redact
from ralph.text.sanitize import sanitize

_TASK_CHARS = 100
# The author of a comment on a task.
_AUTHOR = "human"


class PendingRejection(msgspec.Struct, frozen=True):
    """A rejection that waits for approval, and whether it was new."""

    id: str
    at: str
    gate: Gate
    fresh: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name, including empty ones."""
        return {"id": self.id, "at": self.at, **msgspec.structs.asdict(self.gate)}


def reject(
    ralph: Ralph, task: str | int, gate_type: str, feedback: str, **of: str | None
) -> PendingRejection:
    """Save why a person rejected something, until its revision is approved. Safe to repeat.

    `of` may have a `subject` (what was worked on: the task's title), `agent_type`, `task_type`
    and `technology`.
    """
    memory = ralph.knowledge
    memory.check_giving(ralph.project.id)
    about = {name: value or "" for name, value in of.items()} | {"project": ralph.project.id}
    given = Gate(task=_name_of(task), gate_type=gate_type, human_feedback=feedback, **about)
    # Run the checks of the entry it will become. Its revision is not known yet.
    entry = prepared_entry(_rejection(portable(given, ralph.project.root), revision="later"))
    names = [name for name in Gate.__struct_fields__ if name != "task"]
    gate = Gate(task=given.task, **{name: getattr(entry, name) for name in names})
    account = memory.account()
    # The id of a rejection of this task without a revision, which no entry can have. It is the same
    # for the same feedback on the same gate of a task, until an approval; then it is new.
    same = {name: getattr(gate, name) for name in ("project", "gate_type", "human_feedback")}
    named = GateRejection(**same, revision_approach="", subject=gate.task)
    identity = account.new_id(named, _passed(gate.task, gate.gate_type))
    ours = said_draft(gate, identity)

    def draft(number: int) -> Record:
        # Under the journal's lock: if another process has just saved it, its record stays.
        return account.follow().gates.get(identity) or ours(number)

    fresh = identity not in account.gates
    if fresh:
        memory.write(gate.project, draft)
    return _pending(account.follow().gates[identity], fresh=fresh)


def approve(
    ralph: Ralph, task: str | int, gate_type: str, approach: str, **of: str | None
) -> list[SavedEntry]:
    """Stage what an approval teaches. Safe to repeat.

    It completes every waiting rejection of this task and gate. If there is none, it is an approval
    at the first attempt. But if the gate was rejected and passed before, another approach is
    neither, and nothing is saved.
    """
    memory = ralph.knowledge
    memory.check_giving(ralph.project.id)
    about = {name: value or "" for name, value in of.items()} | {"project": ralph.project.id}
    given = GateApproval(gate_type=gate_type, approved_approach=approach, **about)
    approval = cast("GateApproval", prepared_entry(portable(given, ralph.project.root)))
    account = memory.account()
    gate = (_name_of(task), approval.gate_type)
    passed = _passed(*gate)
    pending = {one.id: one.gate for one in gates(ralph)}
    waiting = {i: one for i, one in pending.items() if (one.task, one.gate_type) == gate}
    if waiting:
        captured = memory.capture_all([_revised(gate, approval) for gate in waiting.values()])
        account.journal.forget(sorted(waiting), reason=passed)
        return captured
    if passed in account.fold.reasons().values():
        return _told_before(account, approval)
    return memory.capture_all([approval])


def gates(ralph: Ralph) -> list[PendingRejection]:
    """Return the rejections of this project that wait for approval, oldest first."""
    return [_pending(record) for record in ralph.knowledge.account().gates.values()]


def _pending(record: Record, *, fresh: bool = False) -> PendingRejection:
    return PendingRejection(record.id, record.at, knowledge_from(record), fresh)


def approach_of(ralph: Ralph, task: str | int) -> str:
    """Return what was approved if nobody says it: the summary of the task's newest success."""
    name = _name_of(task)
    iterations = (pair for memory in ralph.features() for pair in memory.iterations())
    done = [pair for pair in iterations if pair[1].outcome == "success"]
    mine = [(at, one) for at, one in done if str(one.task_id) == name and one.summary.strip()]
    told = [(one.timestamp or "", at.record.number, one.summary) for at, one in mine]
    if not told:
        what = f"no successful iteration of task {name} tells what was approved"
        raise NotFound(what, todo="Say it: --approach TEXT.")
    return max(told)[2]


def send_back(plan: Plan, task: Task, gate: Gate, *, fresh: bool = True) -> Task:
    """Add the feedback to the task as a comment; a task that was done is in progress again.

    Repeated feedback adds nothing, unless the task was done meanwhile.
    """
    said = f"Rejected at the {gate.gate_type} gate: {gate.human_feedback}"
    comment = clean_text("comment", sanitize(said), Limits.comment)
    done = task.status == "done"
    if not (fresh or done) and any(one.text == comment for one in task.comments):
        return task
    patch = {"status": "in_progress"} if done else {}
    return update_task(plan, task.id, patch, comment=said, author=_AUTHOR)


def _revised(gate: Gate, approval: GateApproval) -> GateRejection:
    """Return the entry that a waiting rejection becomes; the approval fills its empty fields."""
    entry = _rejection(gate, revision=approval.approved_approach)
    names = ("subject", "agent_type", "task_type", "technology")
    fills = {name: getattr(approval, name) for name in names if not getattr(entry, name)}
    return msgspec.structs.replace(entry, **fills)


def _rejection(gate: Gate, *, revision: str) -> GateRejection:
    fields = msgspec.structs.asdict(gate)
    del fields["task"]
    return GateRejection(revision_approach=revision, **fields)


def _passed(task: str, gate_type: str) -> str:
    """Return why a rejection no longer waits, for its tombstone."""
    return f"the {gate_type} gate of task {task} was passed"


def _told_before(account: ProjectKnowledge, approval: GateApproval) -> list[SavedEntry]:
    """Return what the same approval captured when it completed a rejection."""
    wanted = approval.gate_type, approval.approved_approach
    rejections = {
        record.id: knowledge_from(record)
        for record in account.entries.values()
        if record.kind == kinds.GATE_REJECTION
    }
    return [
        SavedEntry(identity, one, fresh=False, staged=identity in account.staged)
        for identity, one in rejections.items()
        if (one.gate_type, one.revision_approach) == wanted
    ]


def _name_of(task: str | int) -> str:
    name = redact(" ".join(str(task).split()))[:_TASK_CHARS]
    if not name:
        raise BadInput("no task is named", todo="Give the id of a task.")
    return name
