"""What an entry of knowledge goes through before it is kept: checked, secrets out, limits on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ralph.config import Settings
from ralph.errors import BadRecord
from ralph.kinds.clean import clean_text
from ralph.kinds.iteration import cut
from ralph.kinds.knowledge import ENTRIES, Entry, FailureSolution, GateApproval, GateRejection
from ralph.text.marks import strip_marked
from ralph.text.redact import redact
from ralph.text.sanitise import visible

_SHORT_FIELD_CHARS = 100
_SUBJECT_CHARS = 300
_SHORT = ("agent_type", "task_type", "technology")
_NEEDED: dict[type[Entry], dict[str, str]] = {
    FailureSolution: {
        "failure_description": "Say what failed.",
        "solution_steps": "Knowledge is what was seen to work: say what solved it, or wait until"
        " something did.",
    },
    GateRejection: {
        "gate_type": "Say which gate, for example: design.",
        "human_feedback": "Say why it was rejected.",
        "revision_approach": "A rejection is complete when its revision was approved: say what"
        " that was.",
    },
    GateApproval: {
        "gate_type": "Say which gate, for example: design.",
        "approved_approach": "Say what was approved.",
    },
}


def read_entry(plain: Mapping[str, Any]) -> Entry:
    """An entry from its published form; what does not fit is an error that names the field."""
    given = dict(plain)
    kind = given.pop("entry_type", None)
    if not isinstance(kind, str) or kind not in ENTRIES:
        raise BadRecord(
            "no entry_type" if kind is None else f"there is no entry_type {kind!r}",
            todo=f"It is one of {', '.join(ENTRIES)}.",
        )
    fields = ENTRIES[kind].__struct_fields__
    unknown = sorted(given.keys() - set(fields))
    if unknown:
        raise BadRecord(
            f"a {kind} has no field {unknown[0]!r}", todo=f"Its fields are {', '.join(fields)}."
        )
    if isinstance(given.get("solution_steps"), list | tuple):
        given["solution_steps"] = in_lines(given["solution_steps"])
    # What is not given counts as empty, so that one place says what is needed.
    texts = {name: "" for name in fields if name != "success_verified"}
    told = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert({**texts, **told}, ENTRIES[kind])
    except msgspec.ValidationError as error:
        raise BadRecord(f"not a {kind}: {error}") from None


def in_lines(steps: str | Sequence[str]) -> str:
    """Steps, one a line."""
    if isinstance(steps, str):
        return steps
    if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
        raise BadRecord("solution_steps must be a text, or a list of texts")
    return "\n".join(step.strip() for step in steps)


def prepared_entry(entry: Entry, settings: Settings) -> Entry:
    """The entry as it may be written, or an error that says what is missing."""
    _check_types(entry)
    project = entry.project.strip()
    if not project:
        raise BadRecord("an entry needs the project it comes from")
    if redact(project) != project:
        raise BadRecord(
            "the project's name looks like a secret", todo="Name the project by what it is."
        )
    if isinstance(entry, FailureSolution) and not entry.success_verified:
        raise BadRecord(
            "a failure whose solution is not verified is not knowledge yet",
            todo="Capture it when the solution was seen to work.",
        )
    most = settings.knowledge_text_max_chars
    # What nobody can see goes first: it can hide a secret, or a marker, from who looks for it.
    texts = {
        name: _clean(strip_marked(visible(value)).strip(), most)
        for name in entry.__struct_fields__
        if isinstance(value := getattr(entry, name), str)
    }
    for name in _SHORT:
        texts[name] = _clean(facet(texts[name]), _SHORT_FIELD_CHARS)
    texts["subject"] = _clean(" ".join(texts["subject"].split()), _SUBJECT_CHARS)
    texts["project"] = project
    if "gate_type" in texts:
        texts["gate_type"] = _clean(facet(texts["gate_type"]), _SHORT_FIELD_CHARS)
    for name, todo in _NEEDED[type(entry)].items():
        if not texts[name]:
            raise BadRecord(f"a {entry.entry_type} needs {name}", todo=todo)
    return msgspec.structs.replace(entry, **texts)


def facet(text: str) -> str:
    """The text as it is compared: lower case, single blanks; several values stay apart."""
    return ", ".join(facet_values(text))


def facet_values(text: str | None) -> tuple[str, ...]:
    """The values that a comma separates, each once."""
    parts = (" ".join(part.split()).casefold() for part in (text or "").split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _check_types(entry: Entry) -> None:
    """Whoever calls from Python can give anything; what cannot be read back is not written."""
    try:
        msgspec.convert(msgspec.structs.asdict(entry), type(entry))
    except msgspec.ValidationError as error:
        raise BadRecord(f"not a {entry.entry_type}: {error}") from None


def _clean(text: str, max_chars: int) -> str:
    return cut(clean_text(text), max_chars)
