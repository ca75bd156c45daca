"""The plan's files: read at any time, changed only under the lock, every write logged."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ralph import disk
from ralph.current_run import feature_of_agent
from ralph.errors import BadPlan, NotFound, PlanBusy
from ralph.plan import model
from ralph.plan.fields import read_view
from ralph.plan.model import KINDS, Data, Kind, PlanView, Problem
from ralph.plan.yaml import PlanFile
from ralph.records import now
from ralph.state_folders import state_folder

if TYPE_CHECKING:
    from ralph.plan.edits import PlanEdits

Entry = TypeVar("Entry")
LOCK_TIMEOUT_S = 30.0
ABSENT = "absent"
# The name of the project's settings among the files that the guard knows.
SETTINGS = "settings"


class Write(msgspec.Struct, frozen=True):
    """One write by Ralph: which file, the content before and after, when, and what for.

    `agent_of` is the feature whose agent asked for it in its run; "" for everybody else.
    """

    n: int
    at: str
    file: str
    before: str
    after: str
    what: str = ""
    agent_of: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Write).decode


def digest(raw: bytes | None) -> str:
    """Return a hash of a file's bytes; a missing file has one, too."""
    return ABSENT if raw is None else hashlib.sha256(raw).hexdigest()[:32]


class WriteLog:
    """A log of Ralph's own writes to the plan, so that nobody takes them for an agent's.

    `writes.jsonl`, in this machine's state of the project, has one line per write: the file's hash
    before and after. Both versions are saved beside it under their hash, so that the guard can
    repeat the change on a repaired file. If it is deleted, Ralph only forgets who wrote what in one
    iteration. Every call needs the plan's lock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "writes.jsonl"
        self._versions = folder / "versions"

    def last(self) -> int:
        """Return the number of the newest write; 0 if there is none."""
        return next((write.n for write in reversed(self._all())), 0)

    def note(
        self,
        at: str,
        file: str,
        before: bytes | None,
        after: bytes,
        what: str,
        *,
        agent_of: str = "",
    ) -> Write:
        """Log a write before it is made: the guard would undo one that is not in the log."""
        disk.make_folder(self._versions)
        for raw in (before, after):
            version = self._versions / digest(raw)
            if raw is not None and not disk.exists(version):
                disk.write(version, raw)
        write = Write(self.last() + 1, at, file, digest(before), digest(after), what, agent_of)
        fd = disk.open_file(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(fd, "ab") as out:
            out.write(_encode(write) + b"\n")
        if write.n % 200 == 0:
            self._prune()
        return write

    def since(self, n: int, file: str) -> list[Write]:
        """Return the writes to a file after number n, oldest first."""
        writes = self._all()
        if not writes or writes[-1].n < n:  # somebody deleted the log, and it started again
            n = 0
        return [write for write in writes if write.n > n and write.file == file]

    def version(self, key: str) -> bytes | None:
        """Return the bytes of a logged version; None if they are missing or were changed."""
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

    project: Path
    folder: Path
    cache: Path
    log: WriteLog

    def __init__(
        self,
        project: Path,
        *,
        state: Path | None = None,
        clock: Callable[[], str] = now,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        agent_of: str = "",
    ) -> None:
        self.project = project
        # The feature whose agent makes the calls in its run; "" for a person's and Ralph's own.
        self._agent_of = agent_of
        self.now = clock
        self.folder = project / disk.FOLDER / "db"
        # Outside of the project: files from a clone must not count as Ralph's own writes.
        self.cache = (state or Path(state_folder(project))) / "plan"
        self.log = WriteLog(self.cache)
        self._lock_timeout_s = lock_timeout_s
        self._read: dict[Kind, tuple[str, PlanFile]] = {}

    def path(self, kind: str) -> Path:
        """Return the file of one kind, or of the project's `metadata` or `settings`."""
        if kind == SETTINGS:
            return self.folder.parent / disk.SETTINGS_FILE
        return self.folder / f"{kind}.yaml"

    def file_name(self, kind: Kind) -> str:
        """Return the file's name for messages."""
        return f".ralph/db/{kind}.yaml"

    def raw(self, kind: str) -> bytes | None:
        """Return the file's bytes as they are now; None if it does not exist."""
        return read_bytes(self.path(kind))

    def document(self, kind: Kind) -> PlanFile:
        """Return the file as it is now; if it does not parse, the error has the place."""
        raw = self.raw(kind)
        key = digest(raw)
        if self._read.get(kind, ("",))[0] != key:
            self._read[kind] = (key, PlanFile.read(raw or b"", name=self.file_name(kind)))
        return self._read[kind][1]

    def read(self, *kinds: Kind) -> PlanView:
        """Return what can be read in these files, with its problems; only bad YAML raises."""
        return read_view({kind: self.document(kind) for kind in kinds or KINDS})

    def errors(self, *kinds: Kind) -> list[Problem]:
        """Return what in these files could not be read."""
        return [each for each in self.read(*kinds).problems if each.severity == "error"]

    @property
    def edits(self) -> PlanEdits:
        """The changes that a person or an agent makes to it."""
        from ralph.plan.edits import PlanEdits  # it needs this module

        return PlanEdits(self)

    def load(self) -> PlanView:
        """Return everything, or raise the first error with its place (F36)."""
        view = self.read()
        for problem in view.problems:
            if problem.severity == "error":
                where = f"{problem.file}:{problem.line}:{problem.column}"
                raise BadPlan(problem.what, where=where, todo=problem.todo)
        return view

    def feature(self, name: str) -> model.Feature:
        """Return one feature by its name."""
        return self._entry("features", name, model.Feature)

    def discipline(self, name: str) -> model.Discipline:
        """Return one discipline by its name."""
        return self._entry("disciplines", name, model.Discipline)

    def task(self, task_id: int | str) -> model.Task:
        """Return one task by its id."""
        return self._entry("tasks", task_id, model.Task)

    def _entry(self, kind: Kind, key: object, struct: type[Entry]) -> Entry:
        for entry in getattr(self.read(kind), kind):
            if isinstance(entry, struct) and str(getattr(entry, model.KEY_OF[kind])) == str(key):
                return entry
        raise self.missing(kind, key)

    # -- changing

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the plan's lock. It is not reentrant."""
        lock = self.cache / "lock"
        disk.make_folder(self.cache)
        what = f"another process has been changing the plan for over {self._lock_timeout_s:.0f} s"
        todo = "Try again. If it stays busy, end the process that hangs."
        busy = PlanBusy(what, where=str(lock), todo=todo)
        with disk.lock(lock, timeout_s=self._lock_timeout_s, busy=busy):
            yield

    @contextlib.contextmanager
    def edit(self, kind: Kind, what: str) -> Iterator[Data]:
        """Lock the plan, yield the file's data to be changed in place, and write it."""
        with self.editing(what, kind) as data:
            yield data[kind]

    @contextlib.contextmanager
    def editing(self, what: str, *kinds: Kind) -> Iterator[dict[Kind, Data]]:
        """Edit several files at once; nothing is written if the block raises."""
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

    @contextlib.contextmanager
    def changing_settings(self) -> Iterator[None]:
        """Log that a person changes the project's settings through Ralph: the guard keeps that."""
        before = self.raw(SETTINGS)
        yield
        if (after := self.raw(SETTINGS)) is not None:
            self.log.note(self.now(), SETTINGS, before, after, "settings")

    def put(self, kind: Kind, raw: bytes, what: str) -> None:
        """Replace the whole file and log it as Ralph's own write; needs the lock."""
        path = self.path(kind)
        disk.make_folder(path.parent)
        before = self.raw(kind)
        # A script of an agent may call the library instead of the command line.
        agent_of = self._agent_of or feature_of_agent()
        self.log.note(self.now(), kind, before, raw, what, agent_of=agent_of)
        disk.replace(path, raw)

    def find(self, data: Data, kind: Kind, key: object) -> Data:
        """Return the entry in this data; if there is none, the error lists what there is."""
        if (entry := model.find_entity(data, kind, key)) is None:
            raise self.missing(kind, key, data)
        return entry

    def missing(self, kind: Kind, key: object, data: Data | None = None) -> NotFound:
        """Return the error for an entry that does not exist."""
        present = model.entities(self.document(kind).data if data is None else data, kind)
        names = [entity.key for entity in present if entity.key is not None]
        todo = f"There are: {', '.join(names[:20])}." if names else f"There are no {kind} yet."
        what = f"no {model.SINGULAR[kind]} {str(key)!r}"
        return NotFound(what, where=self.file_name(kind), todo=todo)


def read_bytes(path: Path) -> bytes | None:
    """Return the file's bytes; None if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return disk.read(path)
    return None
