"""The records that worked on a file: what changed it, decided about it or broke in it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ralph.capture.decisions import SAID_WHEN_REFUSING
from ralph.capture.lasting import REJECTED_PLAN
from ralph.memory.anchors import AnchorStore, SavedAnchor
from ralph.recall import PERSON, Hit, Scope
from ralph.records.conversation import Exchange
from ralph.records.iteration import Decision, ErrorSeen
from ralph.text.signature import same_error, signature

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph

KINDS_OF_WORK = ("iteration", "conversation")
MOST_DECISIONS = 5
_MOST_BROKEN = 3


class FileWork(msgspec.Struct, frozen=True):
    """A record that worked on a file, and the lines that it left there."""

    hit: Hit
    anchors: tuple[SavedAnchor, ...] = ()

    @property
    def id(self) -> str:
        """The id of the record."""
        return self.hit.id

    @property
    def session(self) -> str:
        """The conversation of an exchange, or ""."""
        record = self.hit.record
        return record.conversation if isinstance(record, Exchange) else ""

    @property
    def started(self) -> str:
        """When the work began."""
        return getattr(self.hit.record, "started", None) or self.hit.at

    @property
    def hashes(self) -> frozenset[str]:
        """The lines that it left in the file."""
        return frozenset[str]().union(*(saved.anchor.hashes for saved in self.anchors))

    @property
    def action(self) -> str:
        """What it did to the file, as far as that was captured."""
        paths = {saved.anchor.path for saved in self.anchors}
        files = {file.path: file.action for file in self.hit.record.files_touched}
        return next((files[path] for path in paths if path in files), "modified")


class StatedDecision(msgspec.Struct, frozen=True):
    """What was decided or turned down, why, by whom, and the record that says so."""

    text: str
    why: str
    by: str
    id: str
    at: str


class BrokenHere(msgspec.Struct, frozen=True):
    """An error in the file, how it was solved if it was, and the record that says so."""

    message: str
    resolution: str
    line: int | None
    id: str
    at: str


def work_on(ralph: Ralph, paths: Collection[str], scope: Scope = PERSON) -> list[FileWork]:
    """Return the records that worked on a file that has or had these paths, the newest first."""
    store = AnchorStore(ralph.project.home)
    anchors: dict[str, list[SavedAnchor]] = {}
    for path in paths:
        for saved in store.of_file(path):
            anchors.setdefault(saved.record, []).append(saved)
    return [
        FileWork(hit, tuple(anchors.get(hit.id, ())))
        for hit in ralph.recent(sys.maxsize, kinds=KINDS_OF_WORK, scope=scope)
        if hit.id in anchors or _is_about(hit, paths)
    ]


def _is_about(hit: Hit, paths: Collection[str]) -> bool:
    files = getattr(hit.record, "files_touched", ())
    errors = getattr(hit.record, "errors", ())
    return any(file.path in paths and file.action != "read" for file in files) or any(
        error.file_path in paths for error in errors
    )


def decisions_of(work: Iterable[FileWork]) -> list[StatedDecision]:
    """Return what was decided, a person's decisions first."""
    found = [item for item in _decisions(work) if not _is_refusal(item)]
    found.sort(key=lambda item: item.by != "human")
    return found[:MOST_DECISIONS]


def refusals_of(work: Iterable[FileWork]) -> list[StatedDecision]:
    """Return what a person turned down."""
    return [item for item in _decisions(work) if _is_refusal(item)][:MOST_DECISIONS]


def _decisions(work: Iterable[FileWork]) -> Iterable[StatedDecision]:
    for item in work:
        for decision in item.hit.record.decisions:
            yield _stated(decision, item)


def _stated(decision: Decision, work: FileWork) -> StatedDecision:
    return StatedDecision(
        decision.description, decision.rationale or "", decision.source, work.id, work.hit.at
    )


def _is_refusal(decision: StatedDecision) -> bool:
    return decision.text.startswith(REJECTED_PLAN) or decision.why.startswith(SAID_WHEN_REFUSING)


def broken_in(work: Sequence[FileWork], paths: Collection[str]) -> list[BrokenHere]:
    """Return the newest errors in a file, each once, those that were solved first."""
    found: dict[str, BrokenHere] = {}
    for item in work:
        for error in item.hit.record.errors:
            if error.file_path in paths:
                name = signature(error.message)
                known = next((other for other in found if same_error(name, other)), name)
                if known not in found or (error.resolution and not found[known].resolution):
                    found[known] = _broken(error, item)
    return sorted(found.values(), key=lambda broken: not broken.resolution)[:_MOST_BROKEN]


def _broken(error: ErrorSeen, work: FileWork) -> BrokenHere:
    return BrokenHere(error.message, error.resolution or "", error.line, work.id, work.hit.at)
