"""The plan as a stream of memory: a record for each learning, and for each feature that has a
description. It is read whole whenever its files have changed; nothing is stored twice."""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections.abc import Sequence
from typing import Literal

import msgspec

from ralph import disk
from ralph.errors import BadInput, UnsafeFile
from ralph.journal import Batch
from ralph.memory.feature import ProjectStream
from ralph.memory.store import PLAN, ProjectStore
from ralph.records import Complaint, JournalRecord, Record, short_id, write_body
from ralph.records.learning import FEATURE, LEARNING, FeatureLearning, FeatureSnapshot

_NAMESPACE = uuid.UUID("1b0a58f4-8a0c-5b57-8a3e-2f1f5a0f9c11")
_NO_TIME = "1970-01-01T00:00:00Z"
# The start of a list entry.
_ENTRY = re.compile(rb"^\s*- ", re.MULTILINE)
_FILES: tuple[Literal["features", "tasks"], ...] = ("features", "tasks")


class PlanJournal:
    """The plan's files, readable like a journal; a position is a hash of their bytes."""

    def __init__(self, store: ProjectStore) -> None:
        self._store = store
        self._known: tuple[str, tuple[JournalRecord, ...]] = ("", ())
        self._unreadable = ""

    def unchanged(self, position: str | None) -> bool:
        """Return whether the files are those of the position, or known to be unreadable."""
        return self._position(self._raw()) in (position, self._unreadable)

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """Return everything, unless the files are those of the position."""
        here = self._position(self._raw())
        if here == position:
            return Batch((), (), (), here, False, True)
        if self._known[0] != here:
            try:
                self._known = here, tuple(self._read())
            except (BadInput, OSError):
                self._unreadable = here  # `plan check` reports it; what was read before stays
                return Batch((), (), (), position or "", False, True)
        return Batch(self._known[1], (), (), here, position is not None, True)

    def _raw(self) -> list[bytes | None]:
        found: list[bytes | None] = [None for _ in _FILES]
        for n, name in enumerate(_FILES):
            with contextlib.suppress(OSError, UnsafeFile):
                found[n] = disk.read(self._store.project.db / f"{name}.yaml")
        return found

    @staticmethod
    def _position(raw: Sequence[bytes | None]) -> str:
        sums = (b"" if data is None else hashlib.sha256(data).digest() for data in raw)
        return hashlib.sha256(b"\0".join(sums)).hexdigest()[:32]

    def _read(self) -> list[JournalRecord]:
        features, *_ = self._raw()
        if not _ENTRY.search(features or b""):
            return []  # without loading the YAML reader, which is slow
        from ralph.plan.store import Plan

        view = Plan(self._store.project.root, state=self._store.project.cache).read(*_FILES)
        records: list[Record] = []
        for feature in view.features:
            made = feature.created or _NO_TIME
            if not feature.is_thin():
                names = ("description", "architecture", "boundaries")
                texts = {name: getattr(feature, name) or "" for name in names}
                texts |= {"current_state": view.current_state(feature.name)}
                snapshot = FeatureSnapshot(feature=feature.name, **texts)
                identity = short_id(_NAMESPACE, FEATURE, feature.name)
                records.append(Record(identity, FEATURE, 0, made, write_body(snapshot)))
            for one in feature.learnings:
                learning = FeatureLearning(**msgspec.structs.asdict(one), feature=feature.name)
                at = one.created or made
                records.append(Record(one.id, LEARNING, 0, at, write_body(learning)))
        file = ".ralph/db/features.yaml"
        return [JournalRecord(record, file, 0) for record in records]


class PlanStream(ProjectStream):
    """The plan of one project, as search sees it. It has no tombstones."""

    cut_version = "plan-2"

    def __init__(self, store: ProjectStore) -> None:
        super().__init__(PLAN, store, PlanJournal(store))

    def verify(self) -> tuple[int, list[Complaint]]:
        """Return how many there are; `ralph plan check` reports problems in the plan itself."""
        return len(self.records()), []
