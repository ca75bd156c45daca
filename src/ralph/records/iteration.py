"""Iteration: the record of one run of an agent on one task."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar, get_args

import msgspec

from ralph import records
from ralph.errors import BadRecord, suggestion
from ralph.records import Record, Source, encode, now, read_body, to_json, utc, write_body

KIND = "iteration"
_S = TypeVar("_S", bound=msgspec.Struct)

Outcome = Literal[
    "success", "failure", "partial", "timeout", "rate_limited", "interrupted", "unknown"
]
ErrorType = Literal["runtime", "compile", "test", "lint", "permission", "logic", "unknown"]
FileAction = Literal["read", "modified", "created", "deleted"]
ModelTier = Literal["haiku", "opus"]

FAILED: frozenset[Outcome] = frozenset({"failure", "timeout"})
TRUNCATED = " [truncated]"

# The most that a record keeps.
ERROR_CHARS = 1000
DECISION_CHARS = 500
TEXT_CHARS = {
    "summary": 2000,
    "message": ERROR_CHARS,
    "resolution": DECISION_CHARS,
    "description": DECISION_CHARS,
    "rationale": DECISION_CHARS,
}
SHORT_TEXT_CHARS = 300  # for every other text
MOST_ERRORS = 50
MOST_DECISIONS = 50
MOST_FILES = 500
MOST_CHECKS = 20
# The most of a record's text that is embedded.
EMBEDDING_CHARS = 4000
_SHORT_THOUGHTS_CHARS = 500
# How many of the newest are listed by default.
RECENT_COUNT = 10
# Ids must be the same on every machine forever, so this namespace never changes.
_NAMESPACE = uuid.UUID("6f1c2f0e-53f4-5a0b-9b1c-0d1f6f0c7a11")
_STRENGTH: dict[FileAction, int] = {action: i for i, action in enumerate(get_args(FileAction))}


class ErrorSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error the agent met: its place, if it was stated, and how it was solved, if the same run
    shows it. `count` is how often the agent met it."""

    message: str
    error_type: ErrorType = "unknown"
    file_path: str | None = None
    line: int | None = None
    resolution: str | None = None
    count: int = 1


ACCEPTED_PLAN = "Accepted plan: "


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided and why; `source` is who decided it."""

    description: str
    rationale: str | None = None
    source: Literal["agent", "human"] = "agent"

    @property
    def accepts_plan(self) -> bool:
        """Whether it is the title of a plan that a person accepted."""
        return self.description.startswith(ACCEPTED_PLAN)


class CheckRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that tests, builds, lints or runs the project, and whether it passed last."""

    command: str
    passed: bool = True


class FileTouched(msgspec.Struct, frozen=True):
    """A project-relative path and the strongest thing that was done to it."""

    path: str
    action: FileAction


class Iteration(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One iteration of an agent on one task of one feature.

    `iteration_number` and `timestamp` may be left out: the journal sets the number, the clock the
    time. `session_id` is the agent's own name for the run. In the journal these three are in the
    envelope.
    """

    feature: str = ""
    task_id: int | str | None = None
    task_title: str = ""
    discipline: str = ""
    outcome: Outcome = "unknown"
    summary: str = ""
    errors: tuple[ErrorSeen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    files_touched: tuple[FileTouched, ...] = ()
    tokens_used: int | None = None
    cost_usd: float | None = None
    duration_ms: int | None = None
    model: str | None = None
    model_tier: ModelTier | None = None
    iteration_number: int | None = None
    timestamp: str | None = None
    session_id: str | None = None

    @property
    def failed(self) -> bool:
        """Whether `failures` lists this attempt."""
        return self.outcome in FAILED

    def to_json(self) -> dict[str, Any]:
        """Return every field under its published name, including empty ones."""
        plain = to_json(self)
        plain["errors"] = [to_json(error) for error in self.errors]
        for error in plain["errors"]:
            if not error["resolution"]:
                del error["resolution"]
            if error["count"] == 1:
                del error["count"]
        plain["decisions"] = [to_json(decision) for decision in self.decisions]
        for decision in plain["decisions"]:
            if decision["source"] == "agent":
                del decision["source"]
        return plain


FIELDS: tuple[str, ...] = Iteration.__struct_fields__
# What else a field may be called, and the key of an entry that is given as a plain text.
OTHER_NAMES = {"errors_encountered": "errors", "iteration": "iteration_number"}
_TEXT_KEYS = {"errors": "message", "decisions": "description"}
_HINT = f"The fields are {', '.join(FIELDS)}."
_CHOICES: dict[str, tuple[str, ...]] = {
    "outcome": get_args(Outcome),
    "error_type": get_args(ErrorType),
    "action": get_args(FileAction),
    "model_tier": get_args(ModelTier),
}
_decode = msgspec.json.Decoder(Iteration).decode


def read_iteration(plain: Mapping[str, Any], *, where: str | None = None) -> Iteration:
    """Read an iteration from JSON-like data; the error names the field that does not fit.

    A null field counts as left out. An error or a decision may be a plain text, and some fields
    have a second name: `errors_encountered`, and `iteration` for the number. A field that no
    iteration has is refused, because a misspelled one would be lost in silence.
    """
    if not isinstance(plain, Mapping):
        what = f"an iteration must be an object, not a {type(plain).__name__}"
        raise BadRecord(what, where=where, todo=_HINT)
    for name in plain:
        if not is_field(name):
            what = f"an iteration has no field {name!r}"
            raise BadRecord(what, where=where, todo=suggestion(str(name), FIELDS) + _HINT)
    try:
        return msgspec.convert(_in_full(_without_nulls(plain)), Iteration)
    except msgspec.ValidationError as error:
        raise _misfit(error, where) from None


def is_field(name: object) -> bool:
    """Return whether an iteration may have a field of this name."""
    return name in FIELDS or name in OTHER_NAMES


def check_fields(iteration: Iteration) -> Iteration:
    """Return the iteration with its field types checked, which Python itself does not do."""
    try:
        return msgspec.convert(msgspec.to_builtins(iteration), Iteration)
    except (msgspec.ValidationError, TypeError) as error:  # the latter: not a JSON value
        raise _misfit(error, None) from None


def _in_full(plain: dict[str, Any]) -> dict[str, Any]:
    """Return an iteration with its fields under their own names, and its texts as objects."""
    for other, name in OTHER_NAMES.items():
        if other in plain and name not in plain:
            plain[name] = plain.pop(other)
    for name, key in _TEXT_KEYS.items():
        if isinstance(plain.get(name), list):
            plain[name] = [{key: one} if isinstance(one, str) else one for one in plain[name]]
    return plain


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list | tuple) else value


def _misfit(error: Exception, where: str | None) -> BadRecord:
    _, _, field = str(error).rstrip("`").rpartition(".")
    choices = _CHOICES.get(field) if "enum" in str(error) else None
    todo = f"It is one of {', '.join(choices)}." if choices else _HINT
    return BadRecord(f"not an iteration: {error}", where=where, todo=todo)


def to_record(
    iteration: Iteration, *, project_id: str, number: int, source: Source | None = None
) -> Record:
    """Return the iteration in its envelope, with the id that the same iteration always gets."""
    cost = iteration.cost_usd
    if cost is not None and not math.isfinite(cost):  # JSON would keep it as null
        raise BadRecord(f"not an iteration: cost_usd {cost} is not an amount")
    at = utc(iteration.timestamp) if iteration.timestamp else now()
    run = iteration.session_id or (source.run if source else None)
    try:
        body = write_body(iteration, iteration_number=None, timestamp=None, session_id=None)
        task = None if iteration.task_id is None else str(iteration.task_id)
        # UUIDv5 of the parts that identify an iteration; JSON separates them.
        name = encode([project_id, iteration.feature, number, task, run or at])
    except BadRecord as error:
        raise BadRecord(f"not an iteration: {error}") from None
    return Record(
        id=str(uuid.uuid5(_NAMESPACE, name.decode())),
        kind=KIND,
        number=number,
        at=at,
        body=body,
        source=msgspec.structs.replace(source or Source(), run=run),
    )


def from_record(record: Record) -> Iteration:
    """Return the iteration inside a record."""
    try:
        at = _moment(record.at)
    except BadRecord as error:
        raise BadRecord(f"record {record.id} is not a readable iteration: {error}") from None
    found: Iteration = read_body(
        _decode, record, iteration_number=record.number, timestamp=at, session_id=record.source.run
    )
    if not found.feature:
        raise BadRecord(f"record {record.id} is not a readable iteration: it has no feature")
    return found


def _moment(at: str) -> str:
    # Ralph's own lines are already in UTC, and every query reads all of them.
    if at.endswith("Z"):
        with contextlib.suppress(ValueError):  # reported below
            datetime.fromisoformat(at)
            return at
    return utc(at, field="at")


def thoughts(iteration: Iteration) -> list[str]:
    """Return the texts of an iteration, one per thought: summary, errors, decisions (F7).

    Short ones are joined: each extra text slows every search, and in a short text nothing gets
    lost.
    """
    errors = ["\n".join(filter(None, (e.message, e.resolution))) for e in iteration.errors]
    decisions = [": ".join(filter(None, (d.description, d.rationale))) for d in iteration.decisions]
    found: list[str] = []
    for text in filter(None, (iteration.summary, *errors, *decisions)):
        if found and len(found[-1]) + len(text) < _SHORT_THOUGHTS_CHARS:
            found[-1] += f"\n{text}"
        else:
            found.append(text)
    return found


def fit_texts(value: _S) -> _S:
    """Return the struct with its texts redacted and cut; an empty text becomes the default."""
    names = value.__struct_fields__
    defaults = value.__struct_defaults__
    empty = dict(zip(reversed(names), reversed(defaults), strict=False))
    texts = {
        name: fit(text, TEXT_CHARS.get(name, SHORT_TEXT_CHARS)) or empty.get(name, "")
        for name in names
        if isinstance(text := getattr(value, name), str)
    }
    return msgspec.structs.replace(value, **texts)


def fit(text: str | None, max_chars: int) -> str:
    """Return the text without secrets, cut to the limit."""
    # Redact before cutting: half a secret is not recognized.
    return cut(records.clean_beginning(whole_text(text or ""), max_chars), max_chars)


def whole_text(text: str) -> str:
    """Return the text with lone surrogates replaced, so that UTF-8 can encode it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, max_chars: int) -> str:
    """Return the text cut to the limit, with a mark if something was cut."""
    if len(text) <= max_chars:
        return text
    if max_chars <= len(TRUNCATED):
        return text[:max_chars]
    return text[: max_chars - len(TRUNCATED)].rstrip() + TRUNCATED


def relative_path(path: str, root: str | None = None) -> str | None:
    """Return the path relative to the project's root with forward slashes; None outside it (F9)."""
    plain = path.replace("\\", "/")
    base = root.replace("\\", "/").rstrip("/") if root else ""
    if base and plain.startswith(base + "/"):
        plain = plain[len(base) + 1 :]
    pure = PurePosixPath(plain)
    if "\0" in plain or str(pure)[1:2] == ":" or pure.is_absolute() or ".." in pure.parts:
        return None
    return str(pure) if pure.parts else None


def strongest(files: tuple[FileTouched, ...], root: str | None = None) -> tuple[FileTouched, ...]:
    """Return each path inside the project once, with its strongest action, in first-seen order."""
    kept: dict[str, FileAction] = {}
    for file in files:
        path = relative_path(file.path, root)
        if path is None:
            continue
        before = kept.get(path)
        if before is None or _STRENGTH[file.action] > _STRENGTH[before]:
            kept[path] = file.action
    return tuple(FileTouched(path, action) for path, action in kept.items())
