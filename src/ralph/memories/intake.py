"""What an iteration goes through before it is kept: secrets out, limits on, paths relative."""

from __future__ import annotations

import msgspec

from ralph.config import Settings
from ralph.errors import BadRecord
from ralph.kinds.iteration import Decision, ErrorSeen, Iteration, cut, relative_path, strongest
from ralph.text.redact import redact

_SHORT_FIELD_CHARS = 300


def prepared(iteration: Iteration, settings: Settings, *, root: str) -> Iteration:
    """The iteration as it may be written: nothing secret, nothing over its limit."""
    if iteration.iteration_number is not None and iteration.iteration_number < 1:
        raise BadRecord(
            f"iteration_number must be 1 or more, not {iteration.iteration_number}",
            todo="Leave it out to get the next one.",
        )
    ready = msgspec.structs.replace(
        iteration,
        task_id=_task_id(iteration.task_id),
        task_title=_clean(iteration.task_title, _SHORT_FIELD_CHARS),
        discipline=_clean(iteration.discipline, _SHORT_FIELD_CHARS),
        summary=_clean(iteration.summary, settings.summary_max_chars),
        errors=tuple(_error(e, settings, root) for e in iteration.errors[: settings.errors_max]),
        decisions=tuple(
            _decision(d, settings) for d in iteration.decisions[: settings.decisions_max]
        ),
        files_touched=strongest(iteration.files_touched, root)[: settings.files_max],
        model=_clean(iteration.model, _SHORT_FIELD_CHARS) if iteration.model else None,
    )
    if not (
        ready.task_title or ready.summary or ready.errors or ready.decisions or ready.files_touched
    ):
        raise BadRecord(
            "there is nothing in this iteration to remember",
            todo="Give at least one of task_title, summary, errors, decisions, files_touched.",
        )
    return ready


def _error(error: ErrorSeen, settings: Settings, root: str) -> ErrorSeen:
    return msgspec.structs.replace(
        error,
        message=_clean(error.message, settings.error_max_chars),
        file_path=relative_path(error.file_path, root) if error.file_path else None,
    )


def _decision(decision: Decision, settings: Settings) -> Decision:
    limit = settings.decision_max_chars
    return Decision(
        _clean(decision.description, limit),
        _clean(decision.rationale, limit) if decision.rationale else None,
    )


def _task_id(task_id: int | str | None) -> int | str | None:
    return _clean(task_id, _SHORT_FIELD_CHARS) if isinstance(task_id, str) else task_id


def _clean(text: str, max_chars: int) -> str:
    # Half a surrogate pair cannot be written as UTF-8; it is damage, not content.
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return cut(redact(whole), max_chars)
