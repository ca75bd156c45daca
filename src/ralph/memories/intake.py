"""What an iteration goes through before it is kept: secrets out, limits on, paths relative."""

from __future__ import annotations

import hashlib
import math

import msgspec

from ralph.config import Settings
from ralph.errors import BadRecord
from ralph.kinds.clean import clean_text
from ralph.kinds.iteration import (
    Decision,
    ErrorSeen,
    FileTouched,
    Iteration,
    cut,
    relative_path,
    strongest,
)
from ralph.record import Source
from ralph.text.redact import redact

_SHORT_FIELD_CHARS = 300
# One far number would leave none for those after it.
_LAST_NUMBER = 1_000_000_000


def prepared(iteration: Iteration, settings: Settings, *, root: str) -> Iteration:
    """The iteration as it may be written: nothing secret, nothing over its limit."""
    number = iteration.iteration_number
    if number is not None and not 1 <= number <= _LAST_NUMBER:
        raise BadRecord(
            f"iteration_number goes from 1 to {_LAST_NUMBER}, not {number}",
            todo="Leave it out to get the next one.",
        )
    for field in ("tokens_used", "cost_usd", "duration_ms"):
        amount = getattr(iteration, field)
        if amount is not None and not 0 <= amount < math.inf:
            raise BadRecord(
                f"{field} {amount} is not an amount", todo="Leave it out if it is not known."
            )
    errors = list(dict.fromkeys(iteration.errors))  # the same error is kept once
    ready = msgspec.structs.replace(
        iteration,
        task_id=_task_id(iteration.task_id),
        task_title=_clean(iteration.task_title, _SHORT_FIELD_CHARS),
        discipline=_clean(iteration.discipline, _SHORT_FIELD_CHARS),
        summary=_clean(iteration.summary, settings.summary_max_chars),
        errors=tuple(_error(e, settings, root) for e in errors[: settings.errors_max]),
        decisions=tuple(
            _decision(d, settings) for d in iteration.decisions[: settings.decisions_max]
        ),
        files_touched=_files(iteration.files_touched, root)[: settings.files_max],
        model=_clean(iteration.model, _SHORT_FIELD_CHARS) if iteration.model else None,
        session_id=_run(iteration.session_id) if iteration.session_id else None,
    )
    told = ready.task_title.strip() or ready.summary.strip()
    if not (told or ready.errors or ready.decisions or ready.files_touched):
        raise BadRecord(
            "there is nothing in this iteration to remember",
            todo="Give at least one of task_title, summary, errors, decisions, files_touched.",
        )
    return ready


def clean_source(source: Source) -> Source:
    """Where a record came from, without what must not be written."""
    return Source(
        run=_run(source.run) if source.run else None,
        file=redact(_whole(source.file)) if source.file else None,
        line=source.line,
    )


def _error(error: ErrorSeen, settings: Settings, root: str) -> ErrorSeen:
    return msgspec.structs.replace(
        error,
        message=_clean(error.message, settings.error_max_chars),
        resolution=(
            _clean(error.resolution, settings.decision_max_chars) if error.resolution else None
        ),
        file_path=_path(error.file_path, root) if error.file_path else None,
    )


def _decision(decision: Decision, settings: Settings) -> Decision:
    limit = settings.decision_max_chars
    return Decision(
        _clean(decision.description, limit),
        _clean(decision.rationale, limit) if decision.rationale else None,
    )


def _path(path: str, root: str) -> str | None:
    return relative_path(redact(_from_root(path, root)))


def _files(files: tuple[FileTouched, ...], root: str) -> tuple[FileTouched, ...]:
    inside = tuple(FileTouched(_from_root(f.path, root), f.action) for f in files)
    paths = "\n".join(file.path for file in inside)
    if redact(paths) != paths:  # asking once is cheaper than for each
        inside = tuple(FileTouched(redact(f.path), f.action) for f in inside)
    return strongest(inside)


def _from_root(path: str, root: str) -> str:
    """Redacting comes after: the folders above a project may look like anything."""
    base = root.replace("\\", "/").rstrip("/")
    plain = _whole(path).replace("\\", "/")
    return plain.removeprefix(f"{base}/") if base else plain


def _run(run: str) -> str:
    """The run's own name, or its hash: two runs must stay two whatever their names hold."""
    if len(run) <= _SHORT_FIELD_CHARS and redact(_whole(run)) == run:
        return run
    return f"run-{hashlib.sha256(run.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _task_id(task_id: int | str | None) -> int | str | None:
    return _clean(task_id, _SHORT_FIELD_CHARS) if isinstance(task_id, str) else task_id


def _clean(text: str, max_chars: int) -> str:
    return cut(clean_text(_whole(text)), max_chars)


def _whole(text: str) -> str:
    # Half a surrogate pair cannot be written as UTF-8; it is damage, not content.
    return text.encode("utf-8", "replace").decode("utf-8")
