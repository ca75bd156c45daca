"""The plan's files: read at any time, changed only under the lock, every write noted in a log."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ralph import disk
from ralph.errors import BadPlan, NotFound, PlanBusy
from ralph.plan import model
from ralph.plan.fields import read_view
from ralph.plan.model import KINDS, Data, Kind, PlanView
from ralph.plan.yaml import PlanFile
from ralph.records import now

Entry = TypeVar("Entry")
LOCK_TIMEOUT_S = 30.0
ABSENT = "absent"


class Write(msgspec.Struct, frozen=True):
    """One write by Ralph: which file, from which content to which, when, and what it was for."""

    n: int
    at: str
    file: str
    before: str
    after: str
    what: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Write).decode


def digest(raw: bytes | None) -> str:
    """A hash of a file's bytes; a file that is not there has one too."""
    return ABSENT if raw is None else hashlib.sha256(raw).hexdigest()[:32]


class WriteLog:
    """Ralph's own writes to the plan, noted so that nobody takes them for an agent's.

    `writes.jsonl`, in this machine's state of the project, has one line a write: the file's hash
    before and after. Both versions are kept beside it under their hash, so that the guard can
    repeat the change over a repaired file. Deleting it costs one iteration's memory of who wrote
    what. Every call is made under the plan's lock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "writes.jsonl"
        self._versions = folder / "versions"

    def last(self) -> int:
        """The number of the newest write, 0 when there is none."""
        return next((write.n for write in reversed(self._all())), 0)

    def note(self, at: str, file: str, before: bytes | None, after: bytes, what: str) -> Write:
        """Note a write before it is made: one that nobody knows of would be undone."""
        disk.make_folder(self._versions)
        for raw in (before, after):
            version = self._versions / digest(raw)
            if raw is not None and not disk.exists(version):
                disk.write(version, raw)
        write = Write(self.last() + 1, at, file, digest(before), digest(after), what)
        fd = disk.open_file(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(fd, "ab") as out:
            out.write(_encode(write) + b"\n")
        if write.n % 200 == 0:
            self._prune()
        return write

    def since(self, n: int, file: str) -> list[Write]:
        """The writes to a file after number n, oldest first."""
        writes = self._all()
        if not writes or writes[-1].n < n:  # somebody deleted the log, and it started again
            n = 0
        return [write for write in writes if write.n > n and write.file == file]

    def version(self, key: str) -> bytes | None:
        """The bytes of a noted version; None when there are none, or none any more."""
        raw = read_bytes(self._versions / key)
        return raw if digest(raw) == key else None  # else somebody has written to it

    def _all(self) -> list[Write]:
        writes: list[Write] = []
        for line in (read_bytes(self._file) or b"").splitlines():
            with contextlib.suppress(msgspec.MsgspecError):  # torn by a crash: never acknowledged
                writes.append(_decode(line))
        return writes

    def _prune(self) -> None:
        newest = self._all()[-1000:]
        disk.replace(self._file, b"".join(_encode(write) + b"\n" for write in newest))
        wanted = {key for write in newest for key in (write.before, write.after)}
        for name in disk.names(self._versions):
            if name not in wanted:
                disk.remove(self._versions / name)


class Plan:
    """The plan of the project in a folder. Any number of processes may read and change it."""

    # Whether it is on a server.
    remote = False

    def __init__(
        self,
        project: Path,
        *,
        state: Path | None = None,
        clock: Callable[[], str] = now,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self.project = project
        self.now = clock
        self.folder = project / disk.FOLDER / "db"
        # Outside of the project: files that come with a clone are not Ralph's own writes.
        self.cache = (state or Path(disk.state_folder(project))) / "plan"
        self.log = WriteLog(self.cache)
        self._lock_timeout_s = lock_timeout_s
        self._read: dict[Kind, tuple[str, PlanFile]] = {}

    def path(self, kind: str) -> Path:
        """The file of one kind, or of the project's `metadata`."""
        return self.folder / f"{kind}.yaml"

    def file_name(self, kind: Kind) -> str:
        """The file's name in messages."""
        return f".ralph/db/{kind}.yaml"

    def raw(self, kind: str) -> bytes | None:
        """The file's bytes as they are now, None when it is not there."""
        return read_bytes(self.path(kind))

    def document(self, kind: Kind) -> PlanFile:
        """The file as it is now; one that does not parse is an error with its place."""
        raw = self.raw(kind)
        key = digest(raw)
        if self._read.get(kind, ("",))[0] != key:
            self._read[kind] = (key, PlanFile.read(raw or b"", name=self.file_name(kind)))
        return self._read[kind][1]

    def read(self, *kinds: Kind) -> PlanView:
        """What can be read (of these files only), with its problems; only bad YAML raises."""
        return read_view({kind: self.document(kind) for kind in kinds or KINDS})

    def load(self) -> PlanView:
        """Everything, or the first thing that is wrong, with its place (F36)."""
        view = self.read()
        for problem in view.problems:
            if problem.severity == "error":
                where = f"{problem.file}:{problem.line}:{problem.column}"
                raise BadPlan(problem.what, where=where, todo=problem.todo)
        return view

    def feature(self, name: str) -> model.Feature:
        """One feature by its name."""
        return self._entry("features", name, model.Feature)

    def discipline(self, name: str) -> model.Discipline:
        """One discipline by its name."""
        return self._entry("disciplines", name, model.Discipline)

    def task(self, task_id: int | str) -> model.Task:
        """One task by its id."""
        return self._entry("tasks", task_id, model.Task)

    def _entry(self, kind: Kind, key: object, struct: type[Entry]) -> Entry:
        for entry in getattr(self.read(kind), kind):
            if isinstance(entry, struct) and str(getattr(entry, model.KEY_OF[kind])) == str(key):
                return entry
        raise self.missing(kind, key)

    # -- changing

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the plan's lock; it is not given twice to the same process."""
        lock = self.cache / "lock"
        disk.make_folder(self.cache)
        what = f"another process has been changing the plan for over {self._lock_timeout_s:.0f} s"
        todo = "Try again. If it stays busy, end the process that hangs."
        busy = PlanBusy(what, where=str(lock), todo=todo)
        with disk.lock(lock, timeout_s=self._lock_timeout_s, busy=busy):
            yield

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
            data: dict[Kind, Data] = {kind: model.deep_copy(before[kind].data) for kind in kinds}
            yield data
            for kind in kinds:
                if not model.identical(before[kind].data, data[kind]):
                    new = before[kind].with_data(data[kind])
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
        if (entry := model.find_entity(data, kind, key)) is None:
            raise self.missing(kind, key, data)
        return entry

    def missing(self, kind: Kind, key: object, data: Data | None = None) -> NotFound:
        """The error for an entry that is not there."""
        present = model.entities(self.document(kind).data if data is None else data, kind)
        names = [entity.key for entity in present if entity.key is not None]
        todo = f"There are: {', '.join(names[:20])}." if names else f"There are no {kind} yet."
        what = f"no {model.SINGULAR[kind]} {str(key)!r}"
        return NotFound(what, where=self.file_name(kind), todo=todo)


def read_bytes(path: Path) -> bytes | None:
    """The file's bytes, None when there is no such file."""
    with contextlib.suppress(FileNotFoundError):
        return disk.read(path)
    return None
