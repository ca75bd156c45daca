"""Past exchanges, with only what was decided, checked and changed: cheap to read in large numbers.

The steps and the answer make up nearly all of an exchange's size, and are skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from ralph.records import Record
from ralph.records.iteration import CheckRun, Decision, ErrorSeen, FileTouched


class _WorkBody(msgspec.Struct, frozen=True):
    conversation: str = ""
    status: str = "complete"
    errors: tuple[ErrorSeen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    files_touched: tuple[FileTouched, ...] = ()
    stumbles: dict[str, int] = {}
    checks: tuple[CheckRun, ...] = ()


_read = msgspec.json.Decoder(_WorkBody).decode


class PastWork(msgspec.Struct, frozen=True, kw_only=True):
    """What one exchange decided, ran and changed."""

    id: str
    at: str
    conversation: str = ""
    is_complete: bool = True
    errors: tuple[ErrorSeen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    changed: frozenset[str] = frozenset()
    stumbles: dict[str, int] = {}
    checks: tuple[CheckRun, ...] = ()

    @property
    def decided(self) -> tuple[str, ...]:
        """What a person decided, in their words."""
        return tuple(one.description for one in self.decisions if one.source == "human")


def past_work(records: Iterable[Record]) -> list[PastWork]:
    """Read the exchanges in these records, in time order."""
    found: list[PastWork] = []
    for record in records:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # `verify` reports it
            found.append(_work(record))
    return sorted(found, key=lambda work: work.at)


def by_session(work: Iterable[PastWork]) -> list[list[PastWork]]:
    """Return the work of each session; the session that ended last comes last."""
    found: dict[str, list[PastWork]] = {}
    for one in work:
        found.setdefault(one.conversation, []).append(one)
    return sorted(found.values(), key=lambda session: session[-1].at)


def _work(record: Record) -> PastWork:
    body = _read(record.body)
    return PastWork(
        id=record.id,
        at=record.at,
        conversation=body.conversation,
        is_complete=body.status == "complete",
        errors=body.errors,
        decisions=body.decisions,
        changed=frozenset(file.path for file in body.files_touched if file.action != "read"),
        stumbles=body.stumbles,
        checks=body.checks,
    )
