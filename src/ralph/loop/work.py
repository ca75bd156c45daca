"""One iteration under way, as it is kept on disk until its record is in the journal."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ralph import disk
from ralph.errors import BadPlan, LoopBusy
from ralph.loop.process import LOCK, AgentEnd
from ralph.plan.guard import Snapshot
from ralph.plan.model import Task
from ralph.plan.store import Plan
from ralph.records.iteration import ModelTier

_FILE = "run.json"
_SNAPSHOT = "snapshot.bin"
_ENDED = "ended.json"
_FOLDER_LOCK = ".lock"
_FOLDER_TIMEOUT_S = 30.0
# A snapshot holds all files of the plan, and more than once.
_LARGEST = 16 * disk.LARGEST_BYTES
# What is known of a run whose loop was killed with it: its output, and that somebody ended it.
_KILLED = AgentEnd(
    exit_code=None, timed_out=False, interrupted=True, duration_ms=0, stderr="", left_behind=0
)


class PendingIteration(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known to finish an iteration, by this process or by the next one."""

    run: str
    feature: str
    task_id: int | str | None
    title: str
    discipline: str
    tier: ModelTier
    review: bool
    started_at: str
    agent: str
    plan_before: str
    task_before: Task | None
    # Of other projects' knowledge, what its prompt carries.
    patterns: tuple[str, ...] = ()

    @staticmethod
    def new_run() -> str:
        """A name for a run that no other has."""
        return uuid.uuid4().hex[:12]


class RunFolder:
    """The folder of iterations under way; only what is unfinished stays in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, work: PendingIteration, snapshot: Snapshot) -> Path:
        """Keep the work, and give the folder for its files. They may hold secrets: ours alone."""
        folder = self._folder / work.run
        with self._alone():  # another loop must not take a folder that is being filled for a ruin
            disk.make_folder(folder)
            disk.replace(folder / _SNAPSHOT, snapshot.to_bytes())
            disk.replace(folder / _FILE, msgspec.json.encode(work))
        return folder

    def ended(self, work: PendingIteration, ended: AgentEnd) -> None:
        """Note how the agent ended, for whoever finishes the work."""
        disk.write(self._folder / work.run / _ENDED, msgspec.json.encode(ended))

    def finish(self, work: PendingIteration) -> None:
        """The record is in the journal: nothing of the run needs to stay.

        The work goes first: half a folder must not look like an iteration that said nothing.
        """
        disk.remove(self._folder / work.run / _FILE)
        shutil.rmtree(self._folder / work.run, ignore_errors=True)

    def snapshot(self, work: PendingIteration) -> Snapshot:
        """The plan as it was before the work."""
        return Snapshot.from_bytes(disk.read(self._folder / work.run / _SNAPSHOT, largest=_LARGEST))

    def how_it_ended(self, work: PendingIteration, *, timeout_s: float) -> AgentEnd:
        """How the agent of a loop that was killed ended; waits until all its processes have."""
        folder = self._folder / work.run
        try:
            with disk.locked(folder / LOCK, timeout_s=timeout_s):
                pass
        except disk.Busy:
            raise LoopBusy(
                f"the agent of an earlier run on {work.feature!r} is still being ended",
                where=str(folder),
                todo="Try again in a minute.",
            ) from None
        try:
            return msgspec.json.decode(disk.read(folder / _ENDED), type=AgentEnd)
        except (FileNotFoundError, msgspec.DecodeError):  # killed before, or while, it was noted
            return _KILLED

    def unfinished(self) -> list[tuple[PendingIteration, Path]]:
        """Work that other loops have not finished, dead or alive, oldest first."""
        if not self._folder.is_dir():
            return []
        found: list[tuple[PendingIteration, Path]] = []
        with self._alone():
            for folder in self._folder.iterdir():
                if not folder.is_dir():
                    continue
                try:
                    work = msgspec.json.decode(disk.read(folder / _FILE), type=PendingIteration)
                except FileNotFoundError:
                    # Killed before the work was written down, or after it was done.
                    shutil.rmtree(folder, ignore_errors=True)
                except msgspec.DecodeError:
                    continue  # written by another version of Ralph, which may come back for it
                else:
                    if work.run == folder.name:
                        found.append((work, folder))
        return sorted(found, key=lambda pair: pair[0].started_at)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        disk.make_folder(self._folder)
        lock = self._folder / _FOLDER_LOCK
        try:
            with disk.locked(lock, timeout_s=_FOLDER_TIMEOUT_S):
                yield
        except disk.Busy:
            raise LoopBusy(
                f"another loop has been beginning its work for over {_FOLDER_TIMEOUT_S:.0f} s",
                where=str(lock),
                todo="Try again; if it stays so, end the process that hangs.",
            ) from None


def plan_hash(plan: Plan, feature: str) -> str:
    """A hash of what the plan says about one feature and its tasks.

    Of the content, not of the bytes: an edit that was put back has changed nothing, and what other
    loops do to their features is not this one's progress.
    """
    try:
        view = plan.read()
    except BadPlan:
        return "unreadable"
    features = [one for one in view.features if one.name == feature]
    tasks = [task for task in view.tasks if task.feature == feature]
    names = sorted(one.name for one in view.features)
    return hashlib.sha256(msgspec.json.encode([features, tasks, names])).hexdigest()
