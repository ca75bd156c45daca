"""Knowledge: what one project paid for and another may have for free.

Three kinds of entry, and what is said of them later: a checkpoint publishes, an outcome tells
whether a pattern helped, a gate waits for the approval that follows its rejection.
"""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final, Literal, get_args

import msgspec

from ralph.errors import BadRecord
from ralph.records import Record, now, read_body, short_id, to_json, utc, write_body

FAILURE_SOLUTION: Final = "failure_solution"
GATE_REJECTION: Final = "gate_rejection"
GATE_APPROVAL: Final = "gate_approval"
CHECKPOINT = "checkpoint"
OUTCOME = "outcome"
GATE = "gate"

EntryType = Literal["failure_solution", "gate_rejection", "gate_approval"]
CheckpointKind = Literal["phase_complete", "project_complete", "cancelled", "manual"]
Quality = Literal["high", "highest"]
CHECKPOINT_KINDS: tuple[CheckpointKind, ...] = get_args(CheckpointKind)

# Ids must be the same on every machine for ever, so this namespace never changes.
_NAMESPACE = uuid.UUID("5f6a1d0c-7a53-5a0e-9b1e-2f8f0d6c4e17")


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What every entry says of where it comes from; a field it does not have fits any filter."""

    project: str
    agent_type: str = ""
    task_type: str = ""
    technology: str = ""
    # What was worked on when it happened: a task's title.
    subject: str = ""

    entry_type: ClassVar[EntryType]
    quality: ClassVar[Quality]

    def to_json(self) -> dict[str, Any]:
        """Every field under its published name, the empty ones too."""
        return {"entry_type": self.entry_type, **to_json(self)}


class FailureSolution(_Entry, frozen=True, omit_defaults=True, kw_only=True):
    """Something failed, and this solved it: seen to work, not hoped for."""

    failure_description: str
    solution_steps: str
    error_message: str = ""
    success_verified: bool = True

    entry_type: ClassVar[EntryType] = FAILURE_SOLUTION
    quality: ClassVar[Quality] = "high"


class GateRejection(_Entry, frozen=True, omit_defaults=True, kw_only=True):
    """A person rejected something, said why, and approved the revision."""

    gate_type: str
    human_feedback: str
    revision_approach: str

    entry_type: ClassVar[EntryType] = GATE_REJECTION
    quality: ClassVar[Quality] = "highest"


class GateApproval(_Entry, frozen=True, omit_defaults=True, kw_only=True):
    """A person approved something at the first attempt."""

    gate_type: str
    approved_approach: str

    entry_type: ClassVar[EntryType] = GATE_APPROVAL
    quality: ClassVar[Quality] = "highest"


class PublishedEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry that a checkpoint publishes, and the pattern it belongs to from then on."""

    entry: str
    pattern: str


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """From its time on, these entries are published; what no checkpoint covers is staged."""

    project: str
    why: CheckpointKind
    covers: tuple[PublishedEntry, ...]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether a pattern that an agent was given helped; of one task only the last word counts."""

    project: str
    pattern: str
    worked: bool
    task: str = ""
    note: str = ""


class Gate(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A rejection that waits for the approval of its revision."""

    project: str
    task: str
    gate_type: str
    human_feedback: str
    subject: str = ""
    agent_type: str = ""
    task_type: str = ""
    technology: str = ""


Entry = FailureSolution | GateRejection | GateApproval
LedgerEvent = Checkpoint | Outcome | Gate

ENTRIES: dict[str, type[Entry]] = {one.entry_type: one for one in get_args(Entry)}
_TYPES: dict[str, Any] = {**ENTRIES, CHECKPOINT: Checkpoint, OUTCOME: Outcome, GATE: Gate}
_KINDS = {type_: kind for kind, type_ in _TYPES.items()}
_READERS = {kind: msgspec.json.Decoder(type_).decode for kind, type_ in _TYPES.items()}


def entry_id(entry: Entry, *, again: int = 0) -> str:
    """The id that an entry always gets: the same thing told twice by a project is one.

    `again` counts how often it was kept, and expired, before.
    """
    fields = [str(getattr(entry, name)) for name in sorted(entry.__struct_fields__)]
    return short_id(_NAMESPACE, entry.entry_type, *fields, *([str(again)] if again else []))


def pattern_id(entry: str) -> str:
    """The id of the pattern that begins with this entry."""
    return short_id(_NAMESPACE, "pattern", entry)


def checkpoint_id(project: str, first: str) -> str:
    """The id of the checkpoint that covers this entry: it is covered once."""
    return short_id(_NAMESPACE, CHECKPOINT, project, first)


def outcome_id(project: str, pattern: str, task: str, run: str) -> str:
    """The id of what this run on this task says of a pattern: said once."""
    return short_id(_NAMESPACE, OUTCOME, project, pattern, task, run)


def entry_record(said: Entry | LedgerEvent, id: str, number: int, at: str | None = None) -> Record:
    """An entry, or what was said of entries or patterns, in its envelope."""
    moment = utc(at, field="at") if at else now()
    return Record(id, _KINDS[type(said)], number, moment, write_body(said))


def is_knowledge_kind(kind: str) -> bool:
    """Whether records of this kind are read here."""
    return kind in _READERS


def knowledge_from(record: Record) -> Any:
    """What is inside a record: an entry, a Checkpoint, an Outcome or a Gate."""
    if not is_knowledge_kind(record.kind):
        raise BadRecord(f"record {record.id} is a {record.kind}, not knowledge")
    return read_body(_READERS[record.kind], record)
