"""Plan: the files of one project, read at any time and changed only under the lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ralph import disk
from ralph.errors import BadPlan, NotFound, PlanBusy
from ralph.plan.document import Data, Document
from ralph.plan.entities import KINDS, ONE, Kind, entities, find
from ralph.plan.read import view
from ralph.plan.splice import rendered, same
from ralph.plan.values import DEFAULT_LIMITS, Feature, Limits, Task, View
from ralph.plan.writes import WriteLog, digest
from ralph.records import now

LOCK_TIMEOUT_S = 30.0


class Plan:
    """The plan of the project in a folder. Any number of processes may read and change it."""

    def __init__(
        self,
        project: Path,
        *,
        state: Path | None = None,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], str] = now,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self.project = project
        self.limits = limits
        self.now = clock
        self.folder = project / disk.FOLDER / "db"
        # Not in the project: what a clone brings along is no write of ours.
        self.cache = (state or Path(disk.state_folder(project))) / "plan"
        self.log = WriteLog(self.cache)
        self._lock_timeout_s = lock_timeout_s
        self._read: dict[Kind, tuple[str, Document]] = {}

    def path(self, kind: Kind) -> Path:
        """The file of one kind."""
        return self.folder / f"{kind}.yaml"

    def shown(self, kind: Kind) -> str:
        """The file's name as messages say it."""
        return f".ralph/db/{kind}.yaml"

    def raw(self, kind: Kind) -> bytes | None:
        """The file's bytes as they are now, None when it is not there."""
        return read_bytes(self.path(kind))

    def document(self, kind: Kind) -> Document:
        """The file as it is now; one that does not parse is an error with its place."""
        raw = self.raw(kind)
        key = digest(raw)
        known = self._read.get(kind)
        if known is None or known[0] != key:
            known = (key, Document.read(raw or b"", name=self.shown(kind)))
            self._read[kind] = known
        return known[1]

    def read(self, *kinds: Kind) -> View:
        """What can be read (of these files only), with its problems; only bad YAML raises."""
        return view({kind: self.document(kind) for kind in kinds or KINDS}, self.limits)

    def load(self) -> View:
        """Everything, or the first thing that is wrong, with its place (F36)."""
        found = self.read()
        for problem in found.problems:
            if problem.severity == "error":
                where = f"{problem.file}:{problem.line}:{problem.column}"
                raise BadPlan(problem.what, where=where, todo=problem.todo)
        return found

    def feature(self, name: str) -> Feature:
        """One feature by its name."""
        for feature in self.read("features").features:
            if feature.name == name:
                return feature
        raise self.missing("features", name)

    def task(self, task_id: int | str) -> Task:
        """One task by its id."""
        for task in self.read("tasks").tasks:
            if str(task.id) == str(task_id):
                return task
        raise self.missing("tasks", task_id)

    # -- changing

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the plan's lock; it is not given twice to the same process."""
        lock = self.cache / "lock"
        disk.make_folder(self.cache)
        try:
            with disk.locked(lock, timeout_s=self._lock_timeout_s):
                yield
        except disk.Busy:
            raise PlanBusy(
                "another process has been changing the plan for "
                f"more than {self._lock_timeout_s:.0f} s",
                where=str(lock),
                todo="Try again; if it stays so, end the process that hangs.",
            ) from None

    @contextlib.contextmanager
    def edit(self, kind: Kind, what: str) -> Iterator[Data]:
        """The file's data as it is under the lock, to be changed in place and then written."""
        with self.editing(what, kind) as data:
            yield data[kind]

    @contextlib.contextmanager
    def editing(self, what: str, *kinds: Kind) -> Iterator[dict[Kind, Data]]:
        """The data of several files at once; nothing is written when the block raises."""
        with self.locked():
            before = {kind: self.document(kind) for kind in kinds}
            data: dict[Kind, Data] = {kind: copied(before[kind].data) for kind in kinds}
            yield data
            for kind in kinds:
                if not same(before[kind].data, data[kind]):
                    self.write(kind, before[kind], data[kind], what)

    def write(self, kind: Kind, before: Document, data: Data, what: str) -> None:
        """Put the data into the document's text and the text into the file; needs the lock."""
        new = rendered(before, data)
        raw = new.text.encode()
        self.put(kind, raw, what)
        self._read[kind] = (digest(raw), new)

    def put(self, kind: Kind, raw: bytes, what: str) -> None:
        """Replace the file whole and note it as Ralph's own; needs the lock."""
        path = self.path(kind)
        disk.make_folder(path.parent)
        self.log.note(self.now(), kind, self.raw(kind), raw, what)
        disk.replace(path, raw)

    def find(self, data: Data, kind: Kind, key: object) -> Data:
        """The entry in this data, or an error that names what there is."""
        found = find(data, kind, key)
        if found is None:
            raise self.missing(kind, key, data)
        return found

    def missing(self, kind: Kind, key: object, data: Data | None = None) -> NotFound:
        """The error for an entry that is not there."""
        there = entities(self.document(kind).data if data is None else data, kind)
        names = [entity.key for entity in there if entity.key is not None]
        known = f"There are: {', '.join(names[:20])}." if names else f"There are no {kind} yet."
        return NotFound(f"no {ONE[kind]} {str(key)!r}", where=self.shown(kind), todo=known)


def read_bytes(path: Path) -> bytes | None:
    """The file's bytes, None when there is no such file."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def copied(value: Any) -> Any:
    """Plain data that can be changed without changing the original."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value
