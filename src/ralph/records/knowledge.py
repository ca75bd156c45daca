"""Knowledge: lessons that one project learned and other projects can use.

There are three kinds of entry, and later events about them: a checkpoint publishes entries, an
outcome says whether a pattern helped, a gate is a rejection that waits for its approval.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
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

# Ids must be the same on every machine forever, so this namespace never changes.
_NAMESPACE = uuid.UUID("5f6a1d0c-7a53-5a0e-9b1e-2f8f0d6c4e17")


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The origin, which every entry has; an empty field matches any filter."""

    project: str
    agent_type: str = ""
    task_type: str = ""
    technology: str = ""
    # The title of the task at the time.
    subject: str = ""

    entry_type: ClassVar[EntryType]
    quality: ClassVar[Quality]

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name, including empty ones."""
        return {"entry_type": self.entry_type, **to_json(self)}


class FailureSolution(_Entry, frozen=True, omit_defaults=True, kw_only=True):
    """Something failed, and this solved it: it was seen to work."""

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
    """A person approved something on the first attempt."""

    gate_type: str
    approved_approach: str

    entry_type: ClassVar[EntryType] = GATE_APPROVAL
    quality: ClassVar[Quality] = "highest"


class PublishedEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry that a checkpoint publishes, and the pattern it belongs to from then on."""

    entry: str
    pattern: str


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Publishes these entries from its time on; entries without a checkpoint are staged."""

    project: str
    why: CheckpointKind
    covers: tuple[PublishedEntry, ...]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether a pattern that an agent was given helped; for one task only the last one counts."""

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
    """Return the id that an entry always gets: a project's equal entries are one entry.

    `again` counts how often the entry was saved before and expired.
    """
    fields = [str(getattr(entry, name)) for name in sorted(entry.__struct_fields__)]
    return short_id(_NAMESPACE, entry.entry_type, *fields, *([str(again)] if again else []))


def pattern_id(entry: str) -> str:
    """Return the id of the pattern that begins with this entry."""
    return short_id(_NAMESPACE, "pattern", entry)


def checkpoint_id(project: str, first: str) -> str:
    """Return the id of the checkpoint whose first entry is this one: it is published only once."""
    return short_id(_NAMESPACE, CHECKPOINT, project, first)


def outcome_id(project: str, pattern: str, task: str, run: str) -> str:
    """Return the id of a run's outcome for a pattern: one per task and run."""
    return short_id(_NAMESPACE, OUTCOME, project, pattern, task, run)


def entry_record(said: Entry | LedgerEvent, id: str, number: int, at: str | None = None) -> Record:
    """Return an entry or a ledger event in its envelope."""
    moment = utc(at, field="at") if at else now()
    return Record(id, _KINDS[type(said)], number, moment, write_body(said))


def is_knowledge_kind(kind: str) -> bool:
    """Whether `knowledge_from` reads records of this kind."""
    return kind in _READERS


def knowledge_from(record: Record) -> Any:
    """Return the value inside a record: an entry, a Checkpoint, an Outcome or a Gate."""
    if not is_knowledge_kind(record.kind):
        raise BadRecord(f"record {record.id} is a {record.kind}, not knowledge")
    return read_body(_READERS[record.kind], record)


def entry_from_plain(plain: Mapping[str, Any]) -> Entry:
    """Return an entry from its published form, as a server sends it."""
    fields = {name: value for name, value in plain.items() if name != "entry_type"}
    entry: Entry = msgspec.convert(fields, ENTRIES[plain["entry_type"]])
    return entry


def facet_values(text: str | None) -> tuple[str, ...]:
    """Return the comma-separated values, each once."""
    parts = (" ".join(part.split()).casefold() for part in (text or "").split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def facets(
    agent_type: str | None, task_type: str | None, technology: str | None, *entry_types: str
) -> dict[str, tuple[str, ...]]:
    """Return the facets of an entry, or those that a query asks for."""
    given = {"agent_type": agent_type, "task_type": task_type, "technology": technology}
    return {"entry_type": entry_types, **{name: facet_values(given[name]) for name in given}}
